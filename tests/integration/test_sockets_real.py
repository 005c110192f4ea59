"""Websockets and peers over loopback: real sockets, real TLS with certificates made here, a real lswap process."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import pathlib
import signal
import socket
import ssl
import sys
import tempfile
import time
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running import LSWAP, SLACK, Running
from tests.integration.socket_server import ConnectProxy, SocketServer, accept_for, frame, read_frame

SERVER = pathlib.Path(__file__).with_name("socket_server.py")
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Websocket:
    """A client's end."""

    def __init__(self, port: int, target: str, early: bytes = b"") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20 * SLACK)
        lines = [
            f"GET {target} HTTP/1.1",
            "Host: door.example",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Key: {KEY}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: chat, other",
        ]
        self._socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + early)
        self._stream: Any = self._socket.makefile("rb")
        self.status = int(self._stream.readline().split()[1])
        self.headers = {}
        while line := self._stream.readline().decode().strip():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def send(self, kind: int, data: bytes) -> None:
        """Send a frame."""
        self._socket.sendall(frame(kind, data, b"mask"))

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame; None at the end."""
        return read_frame(self._stream)

    def shut(self) -> None:
        """Say that nothing more comes."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Leave."""
        self._stream.close()
        self._socket.close()


class Authority:
    """Makes certificates, and is in nobody's list."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        usage = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._name, self._key.public_key()).add_extension(usage, critical=True)
        self.file = str(folder / "authority.pem")
        signed = certificate.sign(self._key, hashes.SHA256())
        pathlib.Path(self.file).write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: Any) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
            now + datetime.timedelta(days=1)
        )

    def context(self, name: str) -> ssl.SSLContext:
        """For a server that is called so."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            called: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            called = x509.DNSName(name)
        builder = self._builder(x509.Name([]), key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([called]), critical=True)
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


class SocketCase(SynchronousTestCase):
    """A folder, and an lswap process in it."""

    def setUp(self) -> None:
        """Nothing runs."""
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.getcwd()))

    def start(self, config: str, **environment: str) -> Running:
        """Start lswap with this configuration."""
        (self.folder / "config.yaml").write_text(config)
        former = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            running = Running([*LSWAP, "-config", str(self.folder / "config.yaml")], cwd=pathlib.Path.cwd())
        finally:
            for name, value in former.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        self.addCleanup(running.end)
        return running.serving()

    def websocket(self, running: Running, target: str, early: bytes = b"") -> Websocket:
        """An open websocket."""
        link = Websocket(running.port, target, early)
        self.addCleanup(link.close)
        self.assertEqual(link.status, 101, running.output)
        self.assertEqual(link.headers["sec-websocket-accept"], accept_for(KEY))
        self.assertEqual(link.headers["sec-websocket-protocol"], "chat")
        self.assertEqual(link.receive(), (1, b"welcome"))
        return link

    def assert_echoes(self, link: Websocket) -> None:
        """Small and large frames come back, and the close code as well; then the connection ends."""
        for kind, data in ((1, b"hello"), (2, bytes(range(256)) * 4000), (9, b"ping")):
            link.send(kind, data)
            self.assertEqual(link.receive(), (kind, data))
        link.send(8, b"\x10\x1bbye")
        self.assertEqual(link.receive(), (8, b"\x10\x1bbye"))
        self.assertIsNone(link.receive())


class WebsocketTests(SocketCase):
    """To a model."""

    def test_model(self) -> None:
        """A websocket starts its model, carries frames and close codes unchanged, and does not hold up the end."""
        running = self.start(f"models: {{m: {{cmd: '{sys.executable} {SERVER} ${{PORT}}'}}}}")
        link = self.websocket(running, "/upstream/m/ws", frame(1, b"early", b"mask"))
        self.assertEqual(link.receive(), (1, b"early"))
        self.assert_echoes(link)
        shut = self.websocket(running, "/upstream/m/ws")
        shut.send(8, b"\x03\xe8")
        shut.shut()
        self.assertEqual(shut.receive(), (8, b"\x03\xe8"))
        self.assertIsNone(shut.receive())
        held = self.websocket(running, "/upstream/m/ws")
        begun = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(8), 0)
        self.assertLess(time.monotonic() - begun, 4 * SLACK)
        self.assertIsNone(held.receive())
        running.wait_alone(5)


class TlsTests(SocketCase):
    """To a peer by https."""

    def setUp(self) -> None:
        """An authority of our own."""
        super().setUp()
        self.authority = Authority(self.folder)

    def peer(self, name: str) -> SocketServer:
        """A peer whose certificate has this name."""
        server = SocketServer(context=self.authority.context(name)).start()
        self.addCleanup(server.stop)
        return server

    def chat(self, running: Running) -> tuple[int, Any]:
        """Ask the peer's model something."""
        status, body = running.ask("POST", "/v1/chat/completions", {"model": "p/m"})
        return status, json.loads(body)

    def test_trusted(self) -> None:
        """A certificate of an authority that the system trusts, with the right name: requests and websockets pass."""
        for name in ("localhost", "127.0.0.1"):
            port = self.peer(name).port
            running = self.start(
                f"peers: {{p: {{proxy: 'https://{name}:{port}/base', models: [m], apiKey: secret}}}}",
                SSL_CERT_FILE=self.authority.file,
            )
            for _ in range(2):
                status, got = self.chat(running)
                self.assertEqual(status, 200, got)
                self.assertEqual(got["first"], "POST /base/v1/chat/completions HTTP/1.1")
                self.assertEqual(got["headers"]["authorization"], "Bearer secret")
                self.assertEqual(json.loads(got["body"]), {"model": "m"})
            self.assert_echoes(self.websocket(running, "/upstream/p/m/ws"))
            running.end()

    def test_not_trusted(self) -> None:
        """Signed by nobody known, or for another name: 502, and the request never reaches the peer."""
        for name, known in (("localhost", False), ("other.example", True)):
            port = self.peer(name).port
            environment = {"SSL_CERT_FILE": self.authority.file if known else os.devnull}
            running = self.start(f"peers: {{p: {{proxy: 'https://localhost:{port}', models: [m]}}}}", **environment)
            status, got = self.chat(running)
            self.assertEqual(status, 502, got)
            message = got["error"]["message"]
            self.assertTrue(message.startswith("peer proxy error: peer p: no secure connection to https://"), message)
            self.assertIn("verif" if known else "certificate verify failed", message.lower())
            running.end()

    def test_by_proxy(self) -> None:
        """HTTPS_PROXY: the proxy is asked to connect, and the certificate is still that of the peer."""
        proxy = ConnectProxy(self.peer("peer.test").port)
        proxy.start()
        self.addCleanup(proxy.stop)
        running = self.start(
            "peers: {p: {proxy: 'https://peer.test', models: [m]}}",
            SSL_CERT_FILE=self.authority.file,
            HTTPS_PROXY=f"http://user:word@127.0.0.1:{proxy.port}",
            NO_PROXY="other.test",
        )
        status, got = self.chat(running)
        self.assertEqual(status, 200, got)
        self.assertEqual(got["headers"]["host"], "peer.test")
        self.assertNotIn("proxy-authorization", got["headers"])
        first, headers = proxy.asked[0]
        self.assertEqual(first, "CONNECT peer.test:443 HTTP/1.1")
        self.assertEqual(headers["proxy-authorization"], "Basic dXNlcjp3b3Jk")
        self.assert_echoes(self.websocket(running, "/upstream/p/m/ws"))
        self.assertNotIn("word", running.output)
