"""The line that each request leaves in the log (`lswap.web.access_log`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.web.access_log import AccessLog, go_duration
from tests.memory import MemoryLswap

CONFIG = 'models: {a: {cmd: "server --port ${PORT}"}}'


class AccessLogTests(SynchronousTestCase):
    """Requests over genuine HTTP in memory."""

    def setUp(self) -> None:
        """Nothing was asked yet."""
        self.lswap = MemoryLswap(CONFIG)
        self.lines: list[str] = []
        self.lswap.service.site.access_log = AccessLog(self.lines.append, self.lswap.reactor.seconds)
        self.client = self.lswap.client()

    def test_own_answer(self) -> None:
        """Address, request line without its query, status, bytes of the body, agent, duration."""
        self.client.send("GET", "/health?key=secret", headers=[("User-Agent", "me/1")])
        self.client.read()
        self.assertEqual(self.lines, ['Request 192.0.2.7 "GET /health HTTP/1.1" 200 2 "me/1" 0s'])

    def test_relayed_answer(self) -> None:
        """Status and size are those that the model's server gave, without the framing of chunks."""
        self.client.chat("a")
        self.assertEqual(self.lines, [])
        request = self.lswap.models["a"].request
        request.begin()
        request.chunk(b"12345")
        self.lswap.turn(1.5)
        request.chunk(b"67")
        request.chunk(b"")
        self.lswap.turn()
        self.assertRegex(self.lines[0], r'^Request 192\.0\.2\.7 "POST /v1/chat/completions HTTP/1.1" 200 7 "" [\d.]+s$')
        self.client.chat("a")
        self.lswap.models["a"].request.answer(418, b"tea")
        self.lswap.turn()
        self.assertRegex(self.lines[1], r'" 418 3 "" ')

    def test_client_that_leaves(self) -> None:
        """One that got nothing has a status of its own; one that got a part has what it got. Each has one line."""
        self.client.chat("a")
        self.client.leave()
        self.lswap.turn()
        self.assertRegex(self.lines[0], r'"POST /v1/chat/completions HTTP/1.1" 499 0 ')
        client = self.lswap.client()
        client.chat("a")
        request = self.lswap.models["a"].request
        request.begin()
        request.chunk(b"12345")
        self.lswap.turn()
        client.leave()
        self.lswap.turn()
        self.assertEqual(len(self.lines), 2)
        self.assertIn('HTTP/1.1" 200 5 ', self.lines[1])

    def test_broken_upload(self) -> None:
        """A request whose body never came has a line; a head that never came has none."""
        self.client.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab")
        self.client.leave()
        self.lswap.turn()
        self.assertIn('"POST /v1/chat/completions HTTP/1.1" 499 0 ', self.lines[0])
        other = self.lswap.client()
        other.raw(b"POST /v1/chat/completions HT")
        other.leave()
        self.lswap.turn()
        self.assertEqual(len(self.lines), 1)

    def test_refused_by_the_connection(self) -> None:
        """A request that is turned away before it is whole has a line with that status."""
        self.client.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n")
        self.lswap.turn()
        self.client.leave()
        self.lswap.turn()
        self.assertEqual(len(self.lines), 1)
        self.assertRegex(self.lines[0], r'"POST /v1/chat/completions HTTP/1.1" 413 \d+ ')

    def test_polled_paths(self) -> None:
        """Three prefixes leave no line."""
        for path in ("/wol-health", "/api/performance?after=x", "/metrics"):
            self.client.send("GET", path)
            self.client.read()
        self.assertEqual(self.lines, [])

    def test_forwarded_address(self) -> None:
        """The first item of X-Forwarded-For, else X-Real-IP."""
        for headers, shown in (
            ([("X-Forwarded-For", "198.51.100.7, 10.0.0.1"), ("X-Real-IP", "198.51.100.9")], "198.51.100.7"),
            ([("x-real-ip", "198.51.100.8")], "198.51.100.8"),
            ([("X-Forwarded-For", " ")], "192.0.2.7"),
        ):
            self.client.send("GET", "/health", headers=headers)
            self.client.read()
            self.assertEqual(self.lines.pop().split()[1], shown)

    def test_forgery(self) -> None:
        """A path or an agent can neither end its quotes nor begin a line."""
        self.client.send("GET", "/a%22%20200%0A[ERROR]%1b", headers=[("User-Agent", 'x" 200 "')])
        self.client.read()
        self.assertIn('"GET /a\\" 200\n[ERROR]\x1b HTTP/1.1" 404 ', self.lines[0])
        self.assertIn('"x\\" 200 \\""', self.lines[0])


class DurationTests(SynchronousTestCase):
    """Times as Go prints them."""

    def test_units(self) -> None:
        """Microseconds to hours, without zeros at the end."""
        for seconds, text in (
            (0, "0s"),
            (45.678e-6, "45.678µs"),
            (0.0015, "1.5ms"),
            (1.25, "1.25s"),
            (90.5, "1m30.5s"),
            (3661, "1h1m1s"),
            (0.0000001, "0s"),
        ):
            self.assertEqual(go_duration(seconds), text)
