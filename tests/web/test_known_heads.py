"""Heads that a client sends again (`lswap.core.known_heads`), on genuine connections in memory."""

from __future__ import annotations

import json
import pathlib

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.known_heads import HeadMemory
from tests.memory import MemoryLswap
from tests.stand_in import Served

CONFIG = """
limits: {requestHead: 2048, requestBody: 1000, headTimeout: 10, idleTimeout: 30}
models:
  a: {cmd: "server --port ${PORT}"}
"""
TARGET = b"/v1/chat/completions"


def body_of(words: str) -> bytes:
    """A request for the model."""
    return json.dumps({"model": "a", "x": words}).encode()


def head_of(body: bytes, *lines: bytes, version: bytes = b"1.1", target: bytes = TARGET) -> bytes:
    """The same head for all bodies but for its length."""
    first = b"POST " + target + b" HTTP/" + version
    return b"\r\n".join([first, b"Host: h", b"Content-Type: application/json", *lines]) + (
        b"\r\nContent-Length: %d\r\nX-End: 1\r\n\r\n" % len(body)
    )


class KnownHeadCase(SynchronousTestCase):
    """An lswap whose model is ready and repeats what it hears."""

    def setUp(self) -> None:
        """Nothing is known yet."""
        self.path = pathlib.Path(self.mktemp())
        self.lswap = MemoryLswap(CONFIG, path=str(self.path))
        self.lswap.ready("a")
        self.model = self.lswap.models["a"]
        self.client = self.lswap.client()
        self.heads = self.lswap.service.site.heads = HeadMemory()

    def reload(self, text: str) -> None:
        """Another configuration."""
        self.path.write_text(text)
        self.lswap.service.reloader.reload()
        self.lswap.turn()

    def learn(self, *lines: bytes) -> None:
        """The head comes for the first time."""
        self.ask(body_of("first"), *lines)
        self.assertEqual(len(self.heads), 1)

    def ask(self, body: bytes, *lines: bytes) -> Served:
        """Ask in one piece; what the model got."""
        self.client.raw(head_of(body, *lines) + body)
        return self.answered()

    def answered(self, body: bytes = b"hello") -> Served:
        """The model has a request, and answers it."""
        served = self.model.request
        served.answer(200, body)
        answer = self.client.read()
        self.assertEqual((answer.status, answer.body, answer.complete), (200, body, True))
        return served


class KnownHeadTests(KnownHeadCase):
    """What comes in one piece."""

    def test_other_lengths(self) -> None:
        """Each request has its own length and body; headers, their order and the client's address are as ever."""
        self.learn()
        seen = []
        for words in ("", "second", "ü" * 100, "first"):
            served = self.ask(body_of(words))
            self.assertEqual(served.body, body_of(words))
            self.assertIn(("Content-Length", str(len(served.body))), served.headers)
            seen.append([header for header in served.headers if header[0] != "Content-Length"])
        self.assertEqual(len(self.heads), 1)
        self.assertEqual(seen, [seen[0]] * 4)
        self.assertIn(("X-Forwarded-For", "192.0.2.7"), seen[0])

    def test_another_client(self) -> None:
        """What is known from one client tells the model nothing wrong of another."""
        self.learn()
        self.client = self.lswap.client(("198.51.100.3", 50_000))
        self.assertIn(("X-Forwarded-For", "198.51.100.3"), self.ask(body_of("x")).headers)

    def test_pieces(self) -> None:
        """The body may come later, in pieces, or be large."""
        self.learn()
        for size in (1, 7, 900):
            body = body_of("y" * 900)
            data = head_of(body) + body[:20]
            self.client.raw(data)
            for start in range(20, len(body), size):
                self.client.raw(body[start : start + size])
            self.assertEqual(self.answered().body, body)

    def test_one_after_the_other(self) -> None:
        """Requests that come together are answered in their order, and so are those cut in the middle of a head."""
        self.learn()
        bodies = [body_of("x" * size) for size in (1, 10, 5)]
        data = b"".join(head_of(body) + body for body in bodies)
        for cut in (len(data), len(data) - 30, len(head_of(bodies[0]) + bodies[0]) + 15):
            self.client.raw(data[:cut])
            self.client.raw(data[cut:])
            for body in bodies:
                self.assertEqual(self.answered().body, body)

    def test_many_at_once(self) -> None:
        """A thousand small requests in one piece are no matter."""
        head = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"
        self.client.raw(head)
        self.assertEqual(self.client.read().status, 200)
        self.client.raw(head * 1000)
        for _ in range(1000):
            self.assertEqual(self.client.read().status, 200)

    def test_empty_body(self) -> None:
        """A length of 0 is one."""
        self.learn()
        self.client.raw(head_of(b""))
        self.assertEqual(self.client.read().status, 404)
        self.assertEqual(len(self.ask(body_of("x")).body), len(body_of("x")))

    def test_the_list_of_requests(self) -> None:
        """Tools see the headers of this request."""
        self.learn()
        body = body_of("now")
        self.client.raw(head_of(body) + body)
        (entry,) = self.lswap.service.inflight.snapshot(0.0)
        self.assertEqual(entry["req_headers"]["Content-Length"], str(len(body)))
        self.answered()


class RefusedTests(KnownHeadCase):
    """What is not to be taken for a known head."""

    def assert_refused(self, status: int, data: bytes) -> None:
        """It is refused, and the connection ends."""
        self.client = self.lswap.client()
        self.client.raw(data)
        answer = self.client.read()
        self.assertEqual((answer.status, self.client.closed), (status, True), data)

    def test_too_large(self) -> None:
        """The limit of a body holds for each; the connection of one that keeps to it stays."""
        self.learn()
        self.assert_refused(413, head_of(b"x" * 1001))
        self.client = self.lswap.client()
        self.ask(body_of("x" * 900))

    def test_limit_of_today(self) -> None:
        """A limit that a reload has lowered holds for known heads, too."""
        self.learn()
        self.reload(CONFIG.replace("requestBody: 1000", "requestBody: 50"))
        self.assert_refused(413, head_of(b"x" * 51))

    def test_tricks(self) -> None:
        """Heads that two servers may read differently are refused, however much they look like a known one."""
        self.learn()
        body = body_of("x")
        good = head_of(body)
        for trick in (
            good.replace(b"X-End: 1", b"Content-Length: 1"),
            good.replace(b"X-End: 1", b"content-length: %d" % len(body)),
            good.replace(b"X-End: 1", b"Transfer-Encoding: chunked"),
            good.replace(b"Content-Length: ", b"Content-Length : "),
            good.replace(b"Content-Length: ", b"Content-Length: +"),
            good.replace(b"\r\nX-End", b"\rX-End"),
            good.replace(b"X-End: 1", b"X-End: \x00"),
            good.replace(b"Host: h", b"Host: h\r\nHost: h"),
            good.replace(b"Host: h", b"Host: h\r\n "),
        ):
            for _ in range(2):  # the second time it would be known
                if trick.count(b"\r\n ") == 0:
                    self.assert_refused(400, trick + body)
        self.assertEqual(len(self.heads), 1)
        self.client = self.lswap.client()
        self.ask(body)

    def test_what_is_said_once(self) -> None:
        """A head that asks for more than an answer is not remembered."""
        for line in (b"Expect: 100-continue", b"Upgrade: x\r\nConnection: upgrade", b"Transfer-Encoding: chunked"):
            head = b"POST " + TARGET + b" HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n\r\n"
            self.client = self.lswap.client()
            self.client.raw(head)
        self.client.raw(b"GET http://h/health HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(len(self.heads), 0)

    def test_connections_that_close(self) -> None:
        """Who says that it is the last request, or speaks HTTP/1.0, gets its connection closed each time."""
        for head in (
            b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            b"GET /health HTTP/1.0\r\nHost: h\r\n\r\n",
        ):
            for _ in range(2):
                self.client = self.lswap.client()
                self.client.raw(head + head)
                self.assertEqual((self.client.read().status, self.client.take(), self.client.closed), (200, b"", True))

    def test_slow_body(self) -> None:
        """The limit of time runs for a body whose head is known."""
        self.learn()
        self.client.raw(head_of(b"12345") + b"12")
        self.lswap.turn(11)
        self.assertEqual((self.client.read().status, self.client.closed), (408, True))


class KeyTests(KnownHeadCase):
    """API keys and known heads."""

    def test_keys_of_today(self) -> None:
        """A key that a reload has taken away opens nothing, however well its head is known; the model sees no key."""
        self.reload(CONFIG + "apiKeys: [good, other]\n")
        line = b"Authorization: Bearer good"
        self.learn(line)
        served = self.ask(body_of("x"), line)
        self.assertNotIn("Authorization", dict(served.headers))
        self.reload(CONFIG + "apiKeys: [other]\n")
        body = body_of("x")
        self.client.raw(head_of(body, line) + body)
        self.assertEqual(self.client.read().status, 401)
