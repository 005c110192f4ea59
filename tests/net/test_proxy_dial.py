"""The way through a proxy (`lswap.net.proxy_dial`), with a proxy that a test plays."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.proxy_env import Proxy
from lswap.errors import ConnectFailed
from lswap.net.dial import Origin
from lswap.net.proxy_dial import AbsoluteOrigin, ProxyEndpoint
from tests.memory import MemoryReactor, MemorySocket

PLACE = ("127.0.0.1", 3128)
PROXY = Proxy(url="http://127.0.0.1:3128", authorization=b"Basic eDp5")


class FakeProxy:
    """Listens, and does nothing by itself."""

    silent = False

    def __init__(self) -> None:
        self.connections: list[MemorySocket] = []

    def accept(self, connection: MemorySocket) -> None:
        """Somebody connects."""
        self.connections.append(connection)

    def serve(self) -> bool:
        """Nothing to do."""
        return False


class Speaker(Protocol):
    """Whoever speaks beyond the proxy."""

    def __init__(self) -> None:
        self.got = b""
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        """Bytes from beyond the proxy."""
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The end."""
        self.lost = True


class ConnectTests(SynchronousTestCase):
    """CONNECT, for https."""

    def setUp(self) -> None:
        """A proxy that listens."""
        self.reactor = MemoryReactor()
        self.proxy = FakeProxy()
        self.reactor.listeners[PLACE] = self.proxy

    def connect(
        self, url: str = "https://den.example", proxy: Proxy = PROXY, timeout: float = 5
    ) -> Deferred[IProtocol]:
        """Begin to connect."""
        endpoint = ProxyEndpoint(self.reactor, proxy, timeout, Origin(url))
        connected = endpoint.connect(Factory.forProtocol(Speaker))
        self.reactor.turn()
        return connected

    def answer(self, data: bytes) -> None:
        """The proxy says something."""
        self.proxy.connections[-1].peer.inbox += data
        self.reactor.turn()

    def failed(self, connected: Deferred[IProtocol]) -> str:
        """Why it failed; nothing may be left."""
        failure = self.failureResultOf(connected)
        self.assertIsInstance(failure.value, ConnectFailed)
        for connection in self.proxy.connections:
            self.assertTrue(connection.peer.closed)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        return str(failure.value)

    def test_request(self) -> None:
        """The proxy is told host and port, and who asks."""
        for url, there in (
            ("https://den.example/base", b"den.example:443"),
            ("https://den.example:8443", b"den.example:8443"),
            ("https://[fd00::1]", b"[fd00::1]:443"),
            ("https://b\xfccher.example", b"xn--bcher-kva.example:443"),
        ):
            self.connect(url)
            said = bytes(self.proxy.connections[-1].inbox)
            self.assertEqual(
                said,
                b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nProxy-Authorization: Basic eDp5\r\n\r\n" % (there, there),
            )
        self.connect(proxy=Proxy(url=PROXY.url))
        self.assertNotIn(b"Authorization", self.proxy.connections[-1].inbox)

    def test_agreed(self) -> None:
        """After the agreement bytes flow, also those that came with it, and those in small pieces before."""
        connected = self.connect()
        self.proxy.connections[-1].inbox.clear()
        for piece in (b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 200", b" Fine\r\nX: 1\r", b"\n\r\nearly"):
            self.assertNoResult(connected)
            self.answer(piece)
        speaker = self.successResultOf(connected)
        assert isinstance(speaker, Speaker) and speaker.transport is not None
        self.answer(b"bird")
        self.assertEqual(speaker.got, b"earlybird")
        speaker.transport.write(b"worm")
        self.reactor.turn(100)
        self.assertEqual(self.proxy.connections[-1].inbox, b"worm")
        self.proxy.connections[-1].close()
        self.reactor.turn()
        self.assertTrue(speaker.lost)

    def test_refused(self) -> None:
        """What the proxy says instead is told; nothing stays open."""
        for said, told in (
            (b"HTTP/1.1 407 Who are you\r\n\r\n", "407 Who are you"),
            (b"HTTP/1.1 302 X\r\nLocation: /\r\n\r\n", "302"),
            (b"SSH-2.0\r\n\r\n", "does not begin like HTTP"),
            (b"x" * 70_000, "too long"),
        ):
            connected = self.connect()
            self.answer(said)
            message = self.failed(connected)
            self.assertIn(told, message)
            self.assertIn("http://127.0.0.1:3128", message)

    def test_closed(self) -> None:
        """A proxy that closes instead of answering."""
        connected = self.connect()
        self.proxy.connections[-1].close()
        self.reactor.turn()
        self.assertIn("closed", self.failed(connected))

    def test_silent(self) -> None:
        """A proxy that does not answer in time."""
        connected = self.connect(timeout=5)
        self.reactor.turn(4.9)
        self.assertNoResult(connected)
        self.reactor.turn(0.1)
        self.assertIn("within 5 s", self.failed(connected))

    def test_nobody_there(self) -> None:
        """No proxy at all."""
        self.reactor.listeners.clear()
        self.assertIn("refused", self.failed(self.connect()))

    def test_given_up(self) -> None:
        """Cancelling closes the connection, whether there is an answer or not."""
        connected = self.connect()
        connected.addErrback(lambda _: None)
        connected.cancel()
        self.reactor.turn()
        self.assertTrue(self.proxy.connections[-1].peer.closed)
        self.reactor.turn(10)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class AbsoluteTests(SynchronousTestCase):
    """The whole URL in the request, for http."""

    def test_target(self) -> None:
        """Host, base path, path and query, in this order."""
        for url, target, whole in (
            ("http://den.example", b"/v1/x?y", b"http://den.example/v1/x?y"),
            ("http://den.example:8080/api/", b"/v1", b"http://den.example:8080/api/v1"),
            ("http://user:word@den.example", b"/v1", b"http://den.example/v1"),
        ):
            self.assertEqual(AbsoluteOrigin(url).target(target), whole)
