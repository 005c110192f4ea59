"""One call of lswap's own (`lswap.net.errand`): what goes out, and what counts as its end."""

from __future__ import annotations

from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import ConnectFailed, UpstreamClosed
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.errand import KEPT, errand
from lswap.net.upstream import Upstream
from tests.net.wire import Net

URL = "http://127.0.0.1:9"


class ErrandTests(SynchronousTestCase):
    """Calls on connections that are made by hand."""

    def setUp(self) -> None:
        """A client on a pool."""
        self.net = Net()
        self.pool = Upstream(self.net, Origin(URL))
        self.client = HTTPClient(UpstreamAgent(lambda origin: self.pool))

    def tearDown(self) -> None:
        """Nothing is left when all is closed."""
        self.pool.close()
        self.net.turn()
        self.assertEqual((self.net.timers, list(self.pool._all)), (0, []))

    def call(self, method: str = "GET", target: str = "/x", **how: Any) -> Deferred[tuple[int, bytes]]:
        """Begin one."""
        return errand(self.client, method, URL + target, **how)

    def test_request(self) -> None:
        """Method, target as written, headers, body with its length."""
        asked = self.call("PUT", "/a%2Fb?x=1&y=%2F&z", headers=[("X-A", "1"), ("X-A", "\u00fc")], body=b"data")
        head, _, body = self.net.accept().take().partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.assertEqual((lines[0], body), (b"PUT /a%2Fb?x=1&y=%2F&z HTTP/1.1", b"data"))
        self.assertIn(b"Content-Length: 4", lines)
        self.assertIn(b"X-A: 1", lines)
        self.assertIn("X-A: \u00fc".encode(), lines)
        asked.addErrback(lambda _: None)

    def test_methods(self) -> None:
        """All of those that a hook may use; without a body there is none."""
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            asked = self.call(method)
            wire = self.net.accept()
            head, _, body = wire.take().partition(b"\r\n\r\n")
            self.assertEqual((head.split(b" ")[0], body), (method.encode(), b""))
            wire.say(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            self.assertEqual(self.successResultOf(asked), (204, b""))
            self.net.turn()

    def test_redirects_are_answers(self) -> None:
        """Nobody follows them."""
        asked = self.call()
        self.net.accept().say(b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.successResultOf(asked), (302, b""))

    def test_answer(self) -> None:
        """It is over with its last byte; of a large one the beginning is kept."""
        asked = self.call()
        wire = self.net.accept()
        wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(10):
            self.assertNoResult(asked)
            wire.say(b"%x\r\n%b\r\n" % (KEPT // 4, b"x" * (KEPT // 4)))
        wire.say(b"0\r\n\r\n")
        status, body = self.successResultOf(asked)
        self.assertEqual((status, len(body)), (200, KEPT))

    def test_answer_that_ends_with_its_connection(self) -> None:
        """It is whole."""
        asked = self.call()
        wire = self.net.accept()
        wire.say(b"HTTP/1.1 200 OK\r\n\r\nhello")
        self.assertNoResult(asked)
        wire.end()
        self.assertEqual(self.successResultOf(asked), (200, b"hello"))

    def test_cut_answer(self) -> None:
        """It is none."""
        asked = self.call()
        wire = self.net.accept()
        wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
        wire.end()
        self.failureResultOf(asked, UpstreamClosed)

    def test_nobody_there(self) -> None:
        """The failure is that of the connection."""
        asked = self.call()
        self.net.refuse()
        self.net.turn()
        self.failureResultOf(asked, ConnectFailed)

    def test_cancelled(self) -> None:
        """At each stage: the connection is closed."""
        for said in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"):
            asked = self.call()
            wire = self.net.accept()
            wire.say(said)
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
            self.net.turn()
            self.assertTrue(wire.closed)
