"""The data path on real sockets of this machine: back pressure, cut answers, kept connections, large uploads, TLS.

A model server, lswap's part between, and clients run in one process, on loopback. What a slow side does to memory and
what the system's buffers do to the end of a connection cannot be seen without sockets.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPullProducer
from twisted.internet.protocol import ClientFactory, Factory, Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from lswap.core.framing import ResponseHead
from lswap.errors import ConnectFailed, UpstreamClosed, UpstreamError
from lswap.net.agent import UpstreamAgent
from lswap.net.body import Body, Spool
from lswap.net.call import Call
from lswap.net.dial import Origin
from lswap.net.relay import Relay
from lswap.net.upstream import Upstream

#: Multiplies all bounds of waiting, for slow machines.
SLACK = float(os.environ.get("SLACK", "1"))
LARGE = 100_000_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def memory() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@implementer(IPullProducer)
class Stream:
    """Writes so many bytes, as they are taken."""

    def __init__(self, transport: Any, size: int) -> None:
        self.transport = transport
        self.left = size
        transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        """Write the next piece."""
        size = min(self.left, 65536)
        self.left -= size
        self.transport.write(b"x" * size)
        if not self.left:
            self.transport.unregisterProducer()

    def stopProducing(self) -> None:
        """The connection is gone."""


class Model(Protocol):
    """One connection of a model server: reads requests, and answers as its factory says."""

    transport: Any
    factory: ModelFactory

    def connectionMade(self) -> None:
        """Note it."""
        self.factory.connections += 1
        self.factory.all.append(self)
        self.buffer = b""
        self.left = -1
        if self.factory.on_connect is not None:
            self.factory.on_connect(self)

    def dataReceived(self, data: bytes) -> None:
        """Read requests; bodies are only hashed."""
        while data:
            if self.left < 0:
                self.buffer += data
                head, end, data = self.buffer.partition(b"\r\n\r\n")
                if not end:
                    return
                self.buffer = b""
                self.left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                self.head, self.digest = head, hashlib.sha256()
                if self.factory.on_head is not None:
                    self.factory.on_head(self)
            piece, data = data[: self.left], data[self.left :]
            self.left -= len(piece)
            self.digest.update(piece)
            if self.left:
                return
            self.left = -1
            self.factory.requests += 1
            self.factory.answer(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        """Note it."""
        self.factory.lost += 1


class ModelFactory(Factory):
    """A model server."""

    protocol: Any = Model

    def __init__(self, answer: Callable[[Model], None]) -> None:
        self.answer = answer
        self.on_head: Callable[[Model], None] | None = None
        self.on_connect: Callable[[Model], None] | None = None
        self.connections = self.requests = self.lost = 0
        #: Those that do not read are known to nobody else, and would be collected, with their sockets.
        self.all: list[Model] = []


class Front(Protocol):
    """One connection of a client to lswap: relays requests one after the other, as the web server does."""

    transport: Any
    factory: Any
    cross_origin = False

    def connectionMade(self) -> None:
        """Nothing asked yet."""
        self.waiting: deque[bytes] = deque()
        self.buffer = b""
        self.call: Call | None = None
        self.http11 = True
        self.closing = False

    def dataReceived(self, data: bytes) -> None:
        """Requests without bodies."""
        *heads, self.buffer = (self.buffer + data).split(b"\r\n\r\n")
        self.waiting.extend(heads)
        if self.call is None:
            self.next()

    def next(self) -> None:
        """Relay the next request."""
        if self.waiting:
            head = self.waiting.popleft()
            self.http11 = b"HTTP/1.1" in head
            self.closing = not self.http11
            lines = [head.replace(b"HTTP/1.0", b"HTTP/1.1"), b"\r\n\r\n"]
            call = self.factory.upstream.send(b"GET", lines, None, Relay(self, self.over))
            self.call = call
            self.take_from(call)

    def over(self, error: UpstreamError | None) -> None:
        """The relay is over."""
        self.factory.ends.append(error)
        self.call = None

    def date(self) -> bytes:
        """See `lswap.net.relay.Downstream`."""
        return b"now"

    def interim(self, data: bytes) -> None:
        """See `lswap.net.relay.Downstream`."""

    def begin(self, status: int, data: Sequence[bytes]) -> None:
        """See `lswap.net.relay.Downstream`."""
        self.transport.writeSequence(data)

    def pass_on(self, data: bytes) -> None:
        """See `lswap.net.relay.Downstream`."""
        self.transport.write(data)

    def end(self) -> None:
        """See `lswap.net.relay.Downstream`."""
        if self.closing:
            self.transport.loseConnection()
        else:
            self.next()

    def cut(self, reset: bool) -> None:
        """See `lswap.net.relay.Downstream`."""
        if reset:
            self.transport.abortConnection()
        else:
            self.transport.loseConnection()

    def take_from(self, producer: Call | None) -> None:
        """See `lswap.net.relay.Downstream`."""
        if producer is not None:
            self.transport.registerProducer(producer, True)
        else:
            self.transport.unregisterProducer()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        """The client left."""
        if self.call is not None:
            self.call.abort()


class Client(Protocol):
    """A client: counts what it reads, keeps the beginning and the end of it."""

    transport: Any

    def __init__(self, request: bytes, reads: bool) -> None:
        self.request = request
        self.reads = reads
        self.size = 0
        self.data = b""
        self.reason: Failure | None = None

    def connectionMade(self) -> None:
        """Ask."""
        self.transport.write(self.request)
        if not self.reads:
            self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        """Read."""
        self.size += len(data)
        self.data = self.data + data if self.size < 1_000_000 else self.data[:1000] + data[-1000:]

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        """The end."""
        self.reason = reason


class Taken:
    """A sink that keeps the answer."""

    def __init__(self) -> None:
        self.done: Deferred[None] = Deferred()
        self.head: ResponseHead | None = None
        self.body = b""
        self.error: UpstreamError | None = None

    def interim(self, head: ResponseHead) -> None:
        """See `lswap.net.call.Sink`."""

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """See `lswap.net.call.Sink`."""
        self.head = head
        self.piece(data, last)

    def piece(self, data: bytes, last: bool) -> None:
        """See `lswap.net.call.Sink`."""
        self.body += data
        if last:
            self.done.callback(None)

    def failed(self, error: UpstreamError) -> None:
        """See `lswap.net.call.Sink`."""
        self.error = error
        self.done.callback(None)


class RealTestCase(TestCase):
    """Servers and clients on loopback; all of them are closed afterwards."""

    timeout = 60

    def setUp(self) -> None:
        """The reactor, which must not be imported earlier."""
        from twisted.internet import reactor

        untyped: Any = reactor
        self.reactor = untyped
        self.model = ModelFactory(lambda model: model.transport.write(OK))
        self.ends: list[UpstreamError | None] = []
        port: Any = self.reactor.listenTCP(0, self.model, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.upstream = self.pool(f"http://127.0.0.1:{port.getHost().port}")

    def pool(self, url: str, tls_timeout: float = 10.0) -> Upstream:
        """A pool that is closed afterwards, with all its connections."""
        upstream = Upstream(self.reactor, Origin(url), tls_timeout=tls_timeout)
        upstream.keeps_open[False] = True  # this server has kept its word before

        def close() -> Deferred[Any]:
            upstream.close()
            return Deferred.fromCoroutine(self.until(lambda: not upstream._all))

        self.addCleanup(close)
        return upstream

    def front(self) -> int:
        """lswap's port."""
        factory: Any = Factory.forProtocol(Front)
        factory.upstream = self.upstream
        factory.ends = self.ends
        port = self.reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    async def client(self, request: bytes, reads: bool = True) -> Client:
        """A client that has connected and asked."""
        client = Client(request, reads)
        factory: Any = ClientFactory()
        factory.buildProtocol = lambda addr: client
        self.reactor.connectTCP("127.0.0.1", self.front(), factory)

        async def close() -> None:
            if client.transport is not None and client.reason is None:
                client.transport.abortConnection()
                await self.until(lambda: client.reason is not None)

        self.addCleanup(lambda: Deferred.fromCoroutine(close()))
        await self.until(lambda: client.transport is not None)
        return client

    async def until(self, check: Callable[[], Any], seconds: float = 10.0) -> None:
        """Wait for this to become true."""
        end = time.monotonic() + seconds * SLACK
        while not check():
            if time.monotonic() > end:
                self.fail("it did not come in time")
            await deferLater(self.reactor, 0.005)

    async def sent(self, body: Body | None, upstream: Upstream | None = None, method: bytes = b"POST") -> Taken:
        """Send a request through a pool and wait for its end."""
        taken = Taken()
        head = [method + b" / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (body.length if body is not None else 0)]
        (upstream or self.upstream).send(method, head, body, taken)
        await taken.done
        return taken


def spooled(size: int) -> tuple[Body, str]:
    """A body in a file, and its hash."""
    spool, digest = Spool(), hashlib.sha256()
    for number in range(size // 65536):
        piece = number.to_bytes(8, "big") * 8192
        digest.update(piece)
        spool.write(piece)
    return Body(spool), digest.hexdigest()


class BackPressureTests(RealTestCase):
    """A side that is slow."""

    async def test_stalled_reader(self) -> None:
        """A client that does not read 100 MB costs less than 5 MB here, stops the model, and gets all of it later."""
        streams: list[Stream] = []

        def answer(model: Model) -> None:
            model.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
            streams.append(Stream(model.transport, LARGE))

        self.model.answer = answer
        warm = await self.client(b"GET / HTTP/1.1\r\n\r\n")
        await self.until(lambda: warm.size > 5_000_000)
        warm.transport.abortConnection()
        await self.until(lambda: self.model.lost)
        before = memory()
        client = await self.client(b"GET / HTTP/1.1\r\n\r\n", reads=False)
        await self.until(lambda: len(streams) == 2)
        left = -1
        while left != streams[1].left:  # until nothing moves any more
            left = streams[1].left
            await deferLater(self.reactor, 0.2)
        self.assertGreater(left, LARGE // 2)
        self.assertLess(memory() - before, 5_000_000)
        client.transport.resumeProducing()
        await self.until(lambda: self.ends == [None], 30)
        await self.until(lambda: client.size >= LARGE)
        self.assertLess(memory() - before, 5_000_000)

    async def test_stalled_model(self) -> None:
        """A model that does not read an upload costs little here, and gets all of it later."""
        models: list[Model] = []

        def stall(model: Model) -> None:
            models.append(model)
            model.transport.pauseProducing()

        self.model.on_head = stall
        self.model.answer = lambda model: model.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + model.digest.hexdigest().encode()
        )
        body, digest = spooled(40_000_000)
        before = memory()
        sending = Deferred.fromCoroutine(self.sent(body))
        await self.until(lambda: models)
        await deferLater(self.reactor, 0.3)
        self.assertFalse(sending.called)
        self.assertLess(memory() - before, 5_000_000)
        models[0].transport.resumeProducing()
        taken = await sending
        self.assertEqual(taken.body.decode(), digest)
        self.assertLess(memory() - before, 5_000_000)

    async def test_client_that_leaves(self) -> None:
        """The model's connection is closed within moments, whether the client was reading or not."""
        self.model.answer = lambda model: (
            model.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE),
            Stream(model.transport, LARGE),
        )[0]
        for number, reads in enumerate((True, False)):
            client = await self.client(b"GET / HTTP/1.1\r\n\r\n", reads)
            await self.until(lambda: self.model.requests > number)  # noqa: B023 - awaited here
            await deferLater(self.reactor, 0.05)
            client.transport.abortConnection()
            begun = time.monotonic()
            await self.until(lambda: self.model.lost > number)  # noqa: B023 - awaited here
            self.assertLess(time.monotonic() - begun, 0.5 * SLACK)
        self.assertEqual(self.ends, [])


class CutTests(RealTestCase):
    """Answers that break off: what came arrives, the end does not."""

    async def cut(self, head: bytes, reset: bool, version: bytes = b"1.1") -> Client:
        """A client whose answer, of 300 KB, breaks off."""

        def answer(model: Model) -> None:
            model.transport.write(head + b"x" * 300_000)
            if reset:
                self.reactor.callLater(0.1, model.transport.abortConnection)
            else:
                model.transport.loseConnection()

        self.model.answer = answer
        client = await self.client(b"GET / HTTP/%s\r\n\r\n" % version)
        await self.until(lambda: client.reason is not None)
        self.assertEqual([type(end) for end in self.ends], [UpstreamClosed])
        return client

    async def test_short_of_its_length(self) -> None:
        """The client gets what there was, and the end of the connection."""
        client = await self.cut(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n", reset=False)
        self.assertEqual(client.data.partition(b"\r\n\r\n")[2], b"x" * 300_000)
        assert client.reason is not None
        client.reason.trap(ConnectionDone)

    async def test_without_the_last_chunk(self) -> None:
        """So with chunks, whose terminator is missing."""
        client = await self.cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", reset=False)
        self.assertEqual(client.data.partition(b"\r\n\r\n")[2], b"fffff\r\n" + b"x" * 300_000)

    async def test_reset(self) -> None:
        """A reset of the model's connection loses nothing that had come."""
        client = await self.cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", reset=True)
        self.assertEqual(client.data.partition(b"\r\n\r\n")[2], b"fffff\r\n" + b"x" * 300_000)

    async def test_old_client(self) -> None:
        """A client that would take the end of the connection for that of the answer gets a reset."""
        client = await self.cut(b"HTTP/1.1 200 OK\r\n\r\n", reset=True, version=b"1.0")
        assert client.reason is not None
        self.assertIsNone(client.reason.check(ConnectionDone))


class KeptTests(RealTestCase):
    """Connections that serve more than one request."""

    async def test_pipelined(self) -> None:
        """A hundred requests on one connection need one connection to the model, and are answered in order."""
        self.model.answer = lambda model: model.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + model.head.split(b" ")[1][1:]
        )
        client = await self.client(b"".join(b"GET /%04d HTTP/1.1\r\n\r\n" % number for number in range(100)))
        await self.until(lambda: len(self.ends) == 100)
        await self.until(lambda: client.data.endswith(b"0099"))
        self.assertEqual([part[:4] for part in client.data.split(b"\r\n\r\n")[1:]], [b"%04d" % n for n in range(100)])
        self.assertEqual((self.model.connections, set(self.ends)), (1, {None}))

    async def test_unannounced_close(self) -> None:
        """A server that closes after each answer without a word costs no request."""

        def answer(model: Model) -> None:
            model.transport.write(OK)
            model.transport.loseConnection()

        self.model.answer = answer
        for method in (b"GET", b"POST"):
            for _ in range(20):
                taken = await self.sent(None, method=method)
                self.assertEqual((taken.body, taken.error), (b"ok", None))
        self.assertGreater(self.model.connections, 1)

    async def test_server_that_is_gone(self) -> None:
        """Nobody listens any more: the failure says so."""
        port = self.reactor.listenTCP(0, self.model, interface="127.0.0.1")
        upstream = self.pool(f"http://localhost:{port.getHost().port}")
        self.assertEqual((await self.sent(None, upstream)).body, b"ok")
        await port.stopListening()
        upstream.forget_idle()
        error = (await self.sent(None, upstream)).error
        assert isinstance(error, ConnectFailed)
        self.assertTrue(error.refused)


class UploadTests(RealTestCase):
    """Large bodies."""

    async def test_spooled_upload(self) -> None:
        """A body from a file arrives as it is, and its connection serves again."""
        self.model.answer = lambda model: model.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + model.digest.hexdigest().encode()
        )
        body, digest = spooled(20_000_000)
        for _ in range(2):
            taken = await self.sent(body)
            self.assertEqual((taken.body.decode(), taken.error), (digest, None))
        self.assertEqual(self.model.connections, 1)

    async def test_refused_upload(self) -> None:
        """A server that says no without reading the body, and closes, is heard."""

        def refuse(model: Model) -> None:
            model.transport.pauseProducing()
            model.transport.write(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
            model.transport.loseConnection()

        self.model.on_head = refuse
        body, _ = spooled(5_000_000)
        for _ in range(5):
            taken = await self.sent(body)
            self.assertEqual((taken.error, taken.body), (None, b"no"))

    async def test_treq_upload(self) -> None:
        """treq's own producer, which works in turns of the reactor, is collected and sent."""
        client = HTTPClient(UpstreamAgent(lambda _: self.upstream))
        response = await client.post(f"{self.upstream.origin}/x", data=b"y" * 200_000)
        self.assertEqual((response.code, await response.content()), (200, b"ok"))


class TlsTests(RealTestCase):
    """An origin with https."""

    def secure(self, name: str = "localhost") -> int:
        """The port of a model server behind TLS, whose certificate signs itself; the file of that is `self.trusted`."""
        from twisted.internet.ssl import Certificate, CertificateOptions, KeyPair

        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        names = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        addresses = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = (
            x509.CertificateBuilder(names, names, key.public_key(), 1, now, now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        certificate = made.public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.trusted = self.mktemp()
        with open(self.trusted, "wb") as file:
            file.write(certificate)
        options = CertificateOptions(
            privateKey=KeyPair.load(secret, 1).original, certificate=Certificate.loadPEM(certificate).original
        )
        port = self.reactor.listenSSL(0, self.model, options, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    def trust(self) -> None:
        """Trust the certificate that was made."""
        os.environ["SSL_CERT_FILE"] = os.path.abspath(self.trusted)
        self.addCleanup(os.environ.pop, "SSL_CERT_FILE")

    async def test_unknown_certificate(self) -> None:
        """A server that nobody vouches for gets no byte of the request, and the error names the reason."""
        upstream = self.pool(f"https://localhost:{self.secure()}")
        error = (await self.sent(None, upstream)).error
        assert isinstance(error, ConnectFailed)
        self.assertFalse(error.refused)
        self.assertIn("certificate", str(error))
        self.assertEqual(self.model.requests, 0)

    async def test_certificate_of_another(self) -> None:
        """A certificate that is trusted must be that of the host."""
        port = self.secure("somebody.else")
        self.trust()
        error = (await self.sent(None, self.pool(f"https://localhost:{port}"))).error
        self.assertIsInstance(error, ConnectFailed)
        self.assertEqual(self.model.requests, 0)

    async def test_requests(self) -> None:
        """With a trusted certificate all is as without TLS: kept connections, large bodies, cuts that are seen."""
        port = self.secure()
        self.trust()
        self.model.answer = lambda model: model.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + model.digest.hexdigest().encode()
        )
        body, digest = spooled(3_000_000)
        for host in ("localhost", "127.0.0.1"):
            upstream = self.pool(f"https://{host}:{port}")
            for _ in range(2):
                taken = await self.sent(body, upstream)
                self.assertEqual((taken.error, taken.body.decode()), (None, digest))
        self.assertEqual(self.model.connections, 2)

        def vanish(model: Model) -> None:
            model.transport.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
            self.reactor.callLater(0.05, model.transport.abortConnection)

        self.model.answer = vanish
        taken = await self.sent(None, upstream)
        self.assertEqual((taken.body, type(taken.error)), (b"hello", UpstreamClosed))

    async def test_silent_server(self) -> None:
        """A server that accepts and never begins the handshake is given up after the limit."""
        upstream = self.pool(f"https://127.0.0.1:{self.upstream.origin.port}", tls_timeout=0.2)
        self.model.on_connect = lambda model: model.transport.pauseProducing()
        error = (await self.sent(None, upstream)).error
        assert isinstance(error, ConnectFailed)
        self.assertIn("within 0.2 s", str(error))
