"""Going on with a stream that has begun already (`lswap.net.continuation`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.framing import ChunkFollower, ResponseHead
from lswap.errors import UpstreamError
from lswap.net.continuation import Continuation
from lswap.net.dial import Origin
from lswap.net.upstream import Upstream
from tests.net.test_relay import Client
from tests.net.wire import Net, Wire

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b"Content-Type: text/event-stream; charset=utf-8\r\n"
BEFORE = b"data: loading\n\n"


def plain(data: bytes) -> bytes:
    """What is in these chunks, which must be whole."""
    spans: list[bytes] = []
    assert ChunkFollower().feed(data, spans) == len(data), data
    return b"".join(spans)


class ContinuationTests(SynchronousTestCase):
    """An answer behind what was said while the model loaded."""

    def begin(self, http11: bool = True) -> Wire:
        """A stream that began; the hand at the server's end."""
        self.client = Client(http11)
        piece = b"%x\r\n%b\r\n" % (len(BEFORE), BEFORE) if http11 else BEFORE
        self.client.begin(200, [HEAD, piece])
        self.ends: list[UpstreamError | None] = []
        self.heads: list[ResponseHead] = []
        self.taps: list[bytes] = []
        self.net = Net()
        self.sink = Continuation(self.client, self.ends.append, lambda status, body: b"[%d|%b]" % (status, body))
        self.sink.on_head, self.sink.tap = self.heads.append, self.taps.append
        call = Upstream(self.net, Origin("http://127.0.0.1:9")).send(
            b"GET", [b"GET / HTTP/1.1\r\n\r\n"], None, self.sink
        )
        self.client.take_from(call)
        return self.net.accept()

    def assert_whole(self, body: bytes, error: bool = False) -> None:
        """The client got this after what there was, ended well, and the end was told once."""
        sent = self.client.body
        self.assertEqual(plain(sent) if self.client.http11 else sent, BEFORE + body)
        self.assertEqual(self.client.end_is, ["end"])
        self.assertEqual([end is not None for end in self.ends], [error])

    def test_events(self) -> None:
        """A stream of events goes on, however its body is framed, in whatever pieces it comes."""
        for head, body, closes in (
            (b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", False),
            (b"Transfer-Encoding: chunked\r\n", b"5;x=y\r\nabcde\r\n0\r\nTrailer: x\r\n\r\n", False),
            (b"Content-Length: 5\r\n", b"abcde", False),
            (b"", b"abcde", True),
        ):
            whole = b"HTTP/1.1 200 OK\r\n" + EVENTS + head + b"\r\n" + body
            for http11 in (True, False):
                for size in (1, 7, len(whole)):
                    wire = self.begin(http11)
                    for at in range(0, len(whole), size):
                        wire.say(whole[at : at + size])
                    if closes:
                        wire.end()
                    self.assert_whole(b"abcde")

    def test_no_events(self) -> None:
        """Anything else is collected, and told as an event at its end: JSON, errors, coded streams, nothing at all."""
        for head, told in (
            (b"200 OK\r\nContent-Type: application/json", b"[200|abcde]"),
            (b"400 Bad\r\n" + EVENTS.strip(), b"[400|abcde]"),
            (b"200 OK\r\nContent-Encoding: gzip\r\n" + EVENTS.strip(), b"[200|abcde]"),
            (b"503 No", b"[503|abcde]"),
        ):
            for http11 in (True, False):
                wire = self.begin(http11)
                wire.say(b"HTTP/1.1 " + head + b"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
                self.assertNotIn(b"|", self.client.body)
                wire.say(b"2\r\nde\r\n0\r\n\r\n")
                self.assert_whole(told)
        self.begin().say(b"HTTP/1.1 204 Nothing\r\n\r\n")
        self.assert_whole(b"[204|]")

    def test_memory(self) -> None:
        """What is collected is bounded; the answer is read to its end all the same."""
        wire = self.begin()
        wire.say(b"HTTP/1.1 500 No\r\nContent-Length: 4194304\r\n\r\n")
        for _ in range(64):
            wire.say(b"x" * 65536)
        self.assertEqual(len(plain(self.client.body)), len(BEFORE) + len(b"[500|]") + (1 << 20))

    def test_what_others_see(self) -> None:
        """The head, each piece of the body, the status, and the number of bytes."""
        wire = self.begin()
        wire.say(b"HTTP/1.1 201 Made\r\n" + EVENTS + b"Content-Length: 5\r\n\r\nab")
        self.assertTrue(self.sink.begun)
        wire.say(b"cde")
        self.assertEqual(([head.status for head in self.heads], self.taps), ([201], [b"ab", b"cde"]))
        self.assertEqual((self.sink.status, self.sink.payload), (201, 5))

    def test_interim(self) -> None:
        """A 1xx answer comes too late."""
        wire = self.begin()
        wire.say(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + EVENTS + b"Content-Length: 1\r\n\r\nx")
        self.assert_whole(b"x")
        self.assertEqual(self.client.interims, b"")

    def test_no_answer(self) -> None:
        """Without one the stream is left to whoever asked."""
        self.begin().end()
        self.assertEqual((self.sink.begun, self.client.end_is, len(self.ends)), (False, [], 1))
        self.assertEqual(plain(self.client.body + b"0\r\n\r\n"), BEFORE)

    def test_cut_events(self) -> None:
        """A stream that breaks off breaks off for the client, too."""
        for http11, end in ((True, "cut"), (False, "reset")):
            wire = self.begin(http11)
            wire.say(b"HTTP/1.1 200 OK\r\n" + EVENTS + b"Content-Length: 5\r\n\r\nab")
            wire.end()
            self.assertEqual((self.client.end_is, [end is None for end in self.ends]), ([end], [False]))

    def test_cut_error(self) -> None:
        """Of an answer that was collected, what came is told, and the stream ends well."""
        for http11 in (True, False):
            wire = self.begin(http11)
            wire.say(b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nab")
            wire.end()
            self.assert_whole(b"[500|ab]", error=True)
