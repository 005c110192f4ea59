"""Where a URL leads, which addresses are tried, and why it failed."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import DNSLookupError, NoRouteError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IHostnameResolver, IReactorPluggableNameResolver
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from lswap.errors import ConnectFailed
from lswap.net.dial import Dialer, Origin
from tests.net.wire import Net


class OriginTests(SynchronousTestCase):
    """`Origin`."""

    def test_same_server(self) -> None:
        """Names of this machine are one; scheme and port count, the path does not."""
        for one, other, same in (
            ("http://localhost:1/x", "http://127.0.0.1:1/y", True),
            ("http://[::1]:1", "http://localhost:1", True),
            ("http://h:1", "http://h:1", True),
            ("http://h:1", "http://localhost:1", False),
            ("http://localhost:1", "http://localhost:2", False),
            ("http://localhost:1", "https://localhost:1", False),
        ):
            self.assertIs(Origin(one).same_server(Origin(other)), same, (one, other))

    def test_parts(self) -> None:
        """Scheme, host, port and what `Host` says."""
        for url, text, netloc, host in (
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", b"127.0.0.1:9000", "127.0.0.1"),
            ("HTTP://Example.COM/", "http://example.com:80", b"Example.COM", "example.com"),
            ("https://h", "https://h:443", b"h", "h"),
            ("https://user:pass@h:1/x", "https://h:1", b"h:1", "h"),
            ("http://[::1]:5/x", "http://[::1]:5", b"[::1]:5", "::1"),
        ):
            origin = Origin(url)
            self.assertEqual((str(origin), origin.netloc, origin.host), (text, netloc, host))

    def test_no_url(self) -> None:
        """What is no absolute http or https URL is refused."""
        for url in (
            "",
            "x",
            "/x",
            "h:80",
            "ftp://h",
            "http://",
            "http:///x",
            "http://:80",
            "http://h:x",
            "http://h:99999",
            "http://[::1",
            "http://\udcff",
        ):
            with self.assertRaises(ValueError, msg=url):
                Origin(url)

    def test_target(self) -> None:
        """Our path comes before the client's, our query too; nothing of the client's changes."""
        for url, target, expected in (
            ("http://h", b"/x?y", b"/x?y"),
            ("http://h/", b"/x%2Fy", b"/x%2Fy"),
            ("http://h/base/", b"/x", b"/base/x"),
            ("http://h/base", b"/", b"/base/"),
            ("http://h?k=1", b"/x", b"/x?k=1"),
            ("http://h/b?k=1", b"/x?y=2?z", b"/b/x?k=1&y=2?z"),
            ("http://h/b?k=1", b"/x?", b"/b/x?k=1"),
            ("http://h/b#f", b"/x", b"/b/x"),
        ):
            self.assertEqual(Origin(url).target(target), expected, url)

    def test_odd_characters(self) -> None:
        """What may not stand in a request line is escaped, what is escaped already stays."""
        origin = Origin("http://h/a b/é%20\n?x=<y z>")
        self.assertEqual(origin.target(b"/"), b"/a%20b/%C3%A9%20/?x=%3Cy%20z%3E")


@implementer(IHostnameResolver)
class Names:
    """A resolver with a table, which answers when it is told to."""

    def __init__(self, **table: list[Any]) -> None:
        self.table = table
        self.receivers: list[Any] = []

    def resolveHostName(self, resolutionReceiver: Any, hostName: str, *_: Any, **__: Any) -> Any:
        """For the code under test."""
        resolutionReceiver.resolutionBegan(self)
        for address in self.table.get(hostName, []):
            resolutionReceiver.addressResolved(address)
        resolutionReceiver.resolutionComplete()
        return self


@implementer(IReactorPluggableNameResolver)
class NamedNet(Net):
    """A reactor that knows names."""

    def __init__(self) -> None:
        super().__init__()
        self.nameResolver: Any = Names(both=[IPv6Address("TCP", "fd00::1", 9), IPv4Address("TCP", "10.0.0.1", 9)])

    def installNameResolver(self, resolver: Any) -> Any:
        """Not needed."""


class DialerTests(SynchronousTestCase):
    """`Dialer`."""

    def dial(self, url: str, timeout: float = 30.0) -> tuple[NamedNet, Dialer]:
        """A reactor, and a dialer of this URL."""
        net = NamedNet()
        return net, Dialer(net, Origin(url), timeout)

    def connect(self, dialer: Dialer) -> Deferred[Any]:
        """An attempt."""
        return dialer.connect(Factory.forProtocol(Protocol))

    def assert_failed(self, attempt: Deferred[Any], text: str, refused: bool) -> None:
        """It failed for this reason."""
        error = self.failureResultOf(attempt, ConnectFailed).value
        self.assertIn(text, str(error))
        self.assertEqual(error.refused, refused)

    def test_addresses(self) -> None:
        """A literal address is connected to as it is, with the limit that was set."""
        for url, host, limit in (("http://10.1.2.3:9", "10.1.2.3", 30.0), ("http://[fd00::2]:9", "fd00::2", 5.0)):
            net, dialer = self.dial(url, limit)
            attempt = self.connect(dialer)
            self.assertEqual(net.tcpClients[0][:2] + net.tcpClients[0][3:4], (host, 9, limit))
            wire = net.accept()
            self.assertIs(self.successResultOf(attempt).transport, wire)

    def test_no_limit(self) -> None:
        """A limit of 0 is none."""
        net, dialer = self.dial("http://10.0.0.1", 0.0)
        self.connect(dialer)
        self.assertIsNone(net.tcpClients[0][3])

    def test_another_limit(self) -> None:
        """A limit can be changed: an attempt under way keeps its own, and comes about all the same."""
        net, dialer = self.dial("http://localhost", 30.0)
        attempt = self.connect(dialer)
        dialer.set_timeout(5.0)
        net.refuse()
        self.assertEqual([each[3] for each in net.tcpClients], [30.0, 30.0])
        net.accept()
        self.successResultOf(attempt)
        self.connect(dialer)
        self.assertEqual((net.hosts[2], net.tcpClients[2][3]), ("127.0.0.1", 5.0))

    def test_connections_are_set_up(self) -> None:
        """Small writes are sent at once, and a silent other end is looked after."""
        net, dialer = self.dial("http://10.0.0.1")
        self.connect(dialer)
        options = net.accept().handle.options
        self.assertIn((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), options)
        self.assertIn((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), options)

    def test_localhost(self) -> None:
        """A server may listen on one of the two addresses only; the one that answered is tried first from then on."""
        net, dialer = self.dial("http://localhost:9")
        attempt = self.connect(dialer)
        net.refuse()
        self.assertEqual(net.hosts, ["127.0.0.1", "::1"])
        net.accept()
        self.successResultOf(attempt)
        second = self.connect(dialer)
        self.assertEqual(net.hosts[2:], ["::1"])
        net.refuse()
        self.assertEqual(net.hosts[3:], ["127.0.0.1"])
        net.accept()
        self.successResultOf(second)
        self.connect(dialer)
        self.assertEqual(net.hosts[4:], ["127.0.0.1"])

    def test_localhost_refused(self) -> None:
        """Both refused is refused; so is one refused and one that failed otherwise."""
        for second in (None, NoRouteError()):
            net, dialer = self.dial("http://localhost:9")
            attempt = self.connect(dialer)
            net.refuse()
            net.refuse(error=second)
            self.assert_failed(attempt, "http://localhost:9 refused", True)

    def test_reasons(self) -> None:
        """The text says what went wrong, and with what."""
        for reason, text in (
            (ConnectTimeout(), "no connection to http://10.0.0.1:80 within 7 s"),
            (NoRouteError(), "no connection to http://10.0.0.1:80: No route to host"),
        ):
            net, dialer = self.dial("http://10.0.0.1", 7.0)
            attempt = self.connect(dialer)
            net.refuse(error=reason)
            self.assert_failed(attempt, text, False)

    def test_names(self) -> None:
        """A name is resolved, and all of its addresses are tried."""
        net, dialer = self.dial("http://both:9")
        attempt = self.connect(dialer)
        self.assertEqual(net.hosts, ["fd00::1"])
        net.refuse()
        net.advance(0.3)
        self.assertEqual(net.hosts, ["fd00::1", "10.0.0.1"])
        net.accept()
        self.successResultOf(attempt)

    def test_names_refused(self) -> None:
        """All refused is refused."""
        net, dialer = self.dial("http://both:9")
        attempt = self.connect(dialer)
        net.advance(0.3)
        net.refuse(0)
        net.refuse(1)
        net.advance(1)
        self.assert_failed(attempt, "refused", True)

    def test_unknown_names(self) -> None:
        """A name that is not known, or that can be none, is a failure to connect like any other."""
        for url in ("http://unknown", "http://" + "x" * 300, "https://" + "x" * 300, "http://-.-"):
            _, dialer = self.dial(url)
            self.assert_failed(self.connect(dialer), "no connection to http", False)
            self.assert_failed(self.connect(dialer), "no connection to http", False)
        self.flushLoggedErrors(DNSLookupError)

    def test_cancel(self) -> None:
        """Giving up ends the attempt, and no other address is tried."""
        for url in ("http://localhost", "http://10.0.0.1", "http://both"):
            net, dialer = self.dial(url)
            attempt = self.connect(dialer)
            attempt.cancel()
            self.failureResultOf(attempt, CancelledError)
            self.assertTrue(net.connectors[0].stoppedConnecting)
            net.advance(60)
            self.assertEqual(len(net.tcpClients), 1)

    def test_cancel_of_the_second_address(self) -> None:
        """It can be given up there, too."""
        net, dialer = self.dial("http://localhost")
        attempt = self.connect(dialer)
        net.refuse()
        attempt.cancel()
        self.failureResultOf(attempt, CancelledError)
        self.assertTrue(net.connectors[1].stoppedConnecting)

    def test_tls(self) -> None:
        """For https the connection begins with a handshake that names the host."""
        net, dialer = self.dial("https://both")
        attempt = self.connect(dialer)
        wire = net.accept()
        hello = wire.take()
        self.assertEqual(hello[:1], b"\x16")
        self.assertIn(b"both", hello)
        self.assertIsInstance(self.successResultOf(attempt), Protocol)
        self.assertIn((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), wire.handle.options)
