"""TLS for the port that lswap listens on (`lswap.net.tls`), with certificates that are made here."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import ClientContextFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import LswapError
from lswap.net.tls import encrypted

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class Signed:
    """A certificate and its key."""

    def __init__(self, name: str, by: Signed | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        signer = by or self
        builder = x509.CertificateBuilder(
            signer.subject, self.subject, self.key.public_key(), x509.random_serial_number(), now - _DAY, now + _DAY
        )
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(_PEM)

    def key_pem(self, phrase: bytes | None = None) -> bytes:
        """The key, perhaps encrypted."""
        how: Any = serialization.BestAvailableEncryption(phrase) if phrase else serialization.NoEncryption()
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, how)


class Echo(Protocol):
    """Says everything twice."""

    def dataReceived(self, data: bytes) -> None:
        """Say it."""
        assert self.transport is not None
        self.transport.write(data * 2)


class Asker(Protocol):
    """Asks, and keeps what it hears."""

    def connectionMade(self) -> None:
        """Ask."""
        self.heard = b""
        assert self.transport is not None
        self.transport.write(b"ab")

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self.heard += data


class TlsTests(SynchronousTestCase):
    """Good and bad files."""

    def setUp(self) -> None:
        """An authority, and a certificate that it signed."""
        self.root = Signed("root")
        self.leaf = Signed("leaf", self.root)

    def file(self, data: bytes) -> str:
        """A file with this."""
        path = pathlib.Path(self.mktemp())
        path.write_bytes(data)
        return str(path)

    def talk(self, certificates: bytes, version: int | None = None) -> tuple[Any, Any]:
        """Shake hands with a server of these certificates, in memory; the client's protocol and its TLS connection."""
        clock = Clock()
        server_factory: Any = encrypted(
            Factory.forProtocol(Echo), self.file(certificates), self.file(self.leaf.key_pem()), clock
        )
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        if version is not None:
            context.set_max_proto_version(version)

        class Contexts(ClientContextFactory):
            def getContext(self) -> Any:
                return context

        client_factory = TLSMemoryBIOFactory(Contexts(), True, Factory.forProtocol(Asker), clock)
        client, server = client_factory.buildProtocol(None), server_factory.buildProtocol(None)
        wires = StringTransport(), StringTransport()
        client.makeConnection(wires[0])
        server.makeConnection(wires[1])
        for _ in range(20):
            clock.advance(0)
            for wire, there in ((wires[0], server), (wires[1], client)):
                data = wire.value()
                wire.clear()
                if data:
                    there.dataReceived(data)
        return client.wrappedProtocol, client._tlsConnection

    def problem(self, certificate: str, key: str) -> str:
        """What is wrong with these files."""
        return str(self.assertRaises(LswapError, encrypted, Factory.forProtocol(Echo), certificate, key, Clock()))

    def test_works(self) -> None:
        """A client talks to the factory behind it."""
        client, connection = self.talk(self.leaf.pem)
        self.assertEqual(client.heard, b"abab")
        self.assertIn(connection.get_protocol_version_name(), ("TLSv1.2", "TLSv1.3"))

    def test_tls_1_2(self) -> None:
        """The oldest version that is spoken."""
        client, connection = self.talk(self.leaf.pem, SSL.TLS1_2_VERSION)
        self.assertEqual((client.heard, connection.get_protocol_version_name()), (b"abab", "TLSv1.2"))

    def test_older(self) -> None:
        """An older one is not."""
        client, _ = self.talk(self.leaf.pem, SSL.TLS1_1_VERSION)
        self.assertEqual(client.heard, b"")

    def test_chain(self) -> None:
        """What stands behind the certificate is sent with it; text between is no matter."""
        _, connection = self.talk(b"leaf:\n" + self.leaf.pem + b"\nroot:\n" + self.root.pem)
        chain = [found.get_subject().CN for found in connection.get_peer_cert_chain()]
        self.assertEqual(chain, ["leaf", "root"])

    def test_missing_files(self) -> None:
        """The message names what is missing, and why."""
        good, none = self.file(self.leaf.pem), self.mktemp()
        self.assertEqual(self.problem(none, good), f"cannot read the certificate {none}: No such file or directory")
        self.assertEqual(self.problem(good, none), f"cannot read the private key {none}: No such file or directory")

    def test_another_key(self) -> None:
        """A key that belongs to another certificate."""
        certificate, key = self.file(self.leaf.pem), self.file(self.root.key_pem())
        wanted = f"the private key in {key} does not belong to the certificate in {certificate}"
        self.assertEqual(self.problem(certificate, key), wanted)

    def test_garbage(self) -> None:
        """Files that hold something else are told by their names; nothing of a key is shown."""
        certificate, key = self.file(self.leaf.pem), self.file(self.leaf.key_pem())
        broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        for data in (b"", b"\0\xff", self.leaf.key_pem(), broken):
            bad = self.file(data)
            self.assertIn(f"{bad} is no usable PEM certificate: ", self.problem(bad, key))
        secret = self.leaf.key_pem().replace(b"M", b"N")
        for data in (b"", b"\0\xff", self.leaf.pem, secret):
            bad = self.file(data)
            said = self.problem(certificate, bad)
            self.assertIn(f"{bad} is no usable PEM private key: ", said)
            self.assertNotIn("[(", said)
            self.assertNotIn(secret.decode().split("\n")[1][:20], said)

    def test_encrypted_key(self) -> None:
        """One with a pass phrase is refused; nobody is asked for it at a terminal."""
        key = self.file(self.leaf.key_pem(b"secret"))
        self.assertIn(f"{key} is no usable PEM private key: ", self.problem(self.file(self.leaf.pem), key))
