"""Heads and framings of answers: what is understood, what is refused, and where a body ends, cut anywhere."""

from __future__ import annotations

import functools

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.framing import (
    CHUNKED,
    CLOSE,
    END_OF_HEAD,
    LENGTH,
    NOTHING,
    ChunkFollower,
    ResponseHead,
    chunk,
    parse_head,
)
from lswap.errors import BadAnswer
from tests.core.timing import best_time


def parsed(*lines: bytes, status: bytes = b"HTTP/1.1 200 OK", method: bytes = b"GET") -> ResponseHead:
    """The head of these lines."""
    return parse_head(b"\r\n".join([status, *lines]), method)


class HeadTests(SynchronousTestCase):
    """`parse_head`: the lines."""

    def assert_bad(self, data: bytes) -> None:
        """It is no head."""
        with self.assertRaises(BadAnswer, msg=data):
            parse_head(data, b"GET")

    def test_status_line(self) -> None:
        """Version, status and reason, of which the last may be missing or odd."""
        for line, expected in {
            b"HTTP/1.1 200 OK": (True, 200, b"OK"),
            b"HTTP/1.0 404 Not  Found": (False, 404, b"Not  Found"),
            b"HTTP/1.1 299": (True, 299, b""),
            b"HTTP/1.1 999 ": (True, 999, b""),
            b"HTTP/1.2 200 \xe9\t!": (True, 200, b"\xe9\t!"),
        }.items():
            for end in (b"", b"\r\nA: b", b"\nA: b"):
                head = parse_head(line + end, b"GET")
                self.assertEqual((head.http11, head.status, head.reason), expected)

    def test_status_line_that_is_none(self) -> None:
        """What does not begin like HTTP/1.x is refused, and so is what could end the line early at the client."""
        for line in (
            *(
                b"",
                b"HTTP/1.1",
                b"HTTP/2 200 OK",
                b"http/1.1 200 OK",
                b"HTTP/1.1 20 OK",
                b"HTTP/1.1 2000 OK",
                b"ICY 200 OK",
            ),
            *(b"HTTP/1.1 000 OK", b"HTTP/1.1 200OK", b" HTTP/1.1 200 OK", b"HTTP/1.1 +20 OK", b"<html>"),
            *(b"HTTP/1.1 200 O\rK", b"HTTP/1.1 200 O\0K", b"HTTP/1.1 200 OK\r\r", b"\r\nHTTP/1.1 200 OK"),
        ):
            self.assert_bad(line)
            self.assert_bad(line + b"\r\nA: b")

    def test_headers(self) -> None:
        """Names, values, order and repetition stay; space around values goes."""
        head = parsed(b"X-b: 1", b"x-A:\t v  w \t", b"X-B:", b"x-b: \xe9\xff", b"C:d:e")
        expected = [(b"X-b", b"1"), (b"x-A", b"v  w"), (b"X-B", b""), (b"x-b", b"\xe9\xff"), (b"C", b"d:e")]
        self.assertEqual(head.headers, expected)
        self.assertEqual((head.values(b"x-b"), head.value(b"x-b")), ([b"1", b"", b"\xe9\xff"], b"1"))
        self.assertEqual((head.values(b"y"), head.value(b"y")), ([], None))

    def test_line_ends(self) -> None:
        """A lone LF ends a line, too."""
        self.assertEqual(parse_head(b"HTTP/1.1 200 OK\nA: b\r\nC: d", b"GET").headers, [(b"A", b"b"), (b"C", b"d")])

    def test_folded_lines(self) -> None:
        """A folded value is joined; a fold that belongs to nothing is refused."""
        self.assertEqual(parsed(b"A: b", b" c", b"\t d", b"E: f").headers, [(b"A", b"b c d"), (b"E", b"f")])
        self.assertEqual(parsed(b"A: b", b" ", b"E: f").headers, [(b"A", b"b"), (b"E", b"f")])
        self.assertEqual(parse_head(b"HTTP/1.1 200 OK\nA:\n b", b"GET").headers, [(b"A", b"b")])
        self.assert_bad(b"HTTP/1.1 200 OK\r\n A: b")

    def test_malformed_lines(self) -> None:
        """Lines without a name, and values that could end a line early, are refused."""
        for line in (
            b"no colon",
            b": v",
            b"A : v",
            b"A\t: v",
            b"A b: v",
            b"\xe9: v",
            b"A: b\rC: d",
            b"A: \0",
            b"A\r: b",
            b"",
        ):
            self.assert_bad(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nX: y")
        self.assert_bad(b"HTTP/1.1 200 OK\r\nA: b\r\n c\rd")
        self.assert_bad(b"HTTP/1.1 200 OK\r\nA: b\r\n c\0")

    def test_end_of_head(self) -> None:
        """The empty line after a head, whatever the line ends are."""
        for end in (b"\r\n\r\n", b"\n\n", b"\r\n\n", b"\n\r\n"):
            found = END_OF_HEAD.search(b"HTTP/1.1 200 OK\r\nA: b" + end + b"body")
            assert found is not None
            self.assertEqual(found.span(), (21, 21 + len(end)))

    def test_large_heads_take_no_time(self) -> None:
        """A head of 1 MiB is read in less than 20 ms of computing, or refused for its many lines."""
        for line, fits in (
            (b"A: b\r\n", False),
            (b" x\r\n", False),
            (b"\t" * 600 + b"\r\n", True),
            (b"A: " + b"b" * 600 + b"\r\n", True),
        ):
            data = b"HTTP/1.1 200 OK\r\nX: y\r\n" + line * ((1 << 20) // len(line))
            read = self.assert_bad if not fits else lambda head: parse_head(head, b"GET")
            self.assertLess(best_time(functools.partial(read, data[:-2]), 0.020), 0.020)
        self.assertEqual(len(parsed(*[b"A: b"] * 2000).headers), 2000)
        self.assert_bad(b"HTTP/1.1 200 OK" + b"\r\nA: b" * 2001)

    @given(st.binary(max_size=80))
    def test_any_bytes(self, data: bytes) -> None:
        """Nothing but BadAnswer is raised, and what passes can be written again as lines."""
        for head in (data, b"HTTP/1.1 200 " + data, b"HTTP/1.1 200 OK\r\n" + data):
            try:
                result = parse_head(head, b"GET")
            except BadAnswer:
                continue
            for text in (result.reason, *(part for pair in result.headers for part in pair)):
                self.assertNotRegex(text, rb"[\r\n\0]")


class MeaningTests(SynchronousTestCase):
    """`parse_head`: what the head means for the body and the connection."""

    def test_length(self) -> None:
        """A length, also one that is said twice alike."""
        for lines in (
            [b"Content-Length: 12"],
            [b"content-length:12 ", b"CONTENT-LENGTH: 12"],
            [b"Content-Length: 12, 12"],
        ):
            head = parsed(*lines)
            self.assertEqual((head.framing, head.length, head.keep_alive), (LENGTH, 12, True))
        self.assertEqual(parsed(b"Content-Length: 0").length, 0)

    def test_unusable_length(self) -> None:
        """Two lengths that differ, and what is no plain number, are refused."""
        for value in (b"", b"-1", b"+1", b"1x", b"0x1", b"1_0", b"1.0", b"1 2", b"1, 2", b"1,", b"\xb2", b"9" * 19):
            with self.assertRaises(BadAnswer, msg=value):
                parsed(b"Content-Length: " + value)
        with self.assertRaises(BadAnswer):
            parsed(b"Content-Length: 1", b"Content-Length: 2")
        self.assertEqual(parsed(b"Content-Length: " + b"9" * 18).length, 10**18 - 1)

    def test_chunked(self) -> None:
        """Chunks, in any case; beside a length, or from an old server, the connection does not serve again."""
        for value in (b"chunked", b"Chunked", b" chunked\t"):
            head = parsed(b"Transfer-Encoding: " + value)
            self.assertEqual((head.framing, head.keep_alive), (CHUNKED, True))
        head = parsed(b"Content-Length: 5", b"Transfer-Encoding: chunked")
        self.assertEqual((head.framing, head.keep_alive), (CHUNKED, False))
        old = parsed(b"Transfer-Encoding: chunked", b"Connection: keep-alive", status=b"HTTP/1.0 200 OK")
        self.assertEqual((old.framing, old.keep_alive), (CHUNKED, False))
        self.assertEqual(parsed(b"Transfer-Encoding: identity", b"Content-Length: 5").framing, LENGTH)

    def test_other_codings(self) -> None:
        """A coding that is not understood is refused."""
        for value in (
            b"gzip",
            b"gzip, chunked",
            b"chunked, gzip",
            b"chunked, chunked",
            b"chunkedx",
            b"",
            b"\x0bchunked\x0b;",
        ):
            with self.assertRaises(BadAnswer, msg=value):
                parsed(b"Transfer-Encoding: " + value)
        with self.assertRaises(BadAnswer):
            parsed(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")

    def test_close(self) -> None:
        """Without length or chunks the answer ends with its connection."""
        for lines in ([], [b"Connection: keep-alive"], [b"Transfer-Encoding: identity"]):
            head = parsed(*lines)
            self.assertEqual((head.framing, head.keep_alive), (CLOSE, False))

    def test_nothing(self) -> None:
        """No body follows some statuses and HEAD, whatever the head says about one."""
        lines = (b"Content-Length: 5", b"Transfer-Encoding: gzip")
        for status in (b"100", b"103", b"204", b"304"):
            self.assertEqual(parsed(*lines, status=b"HTTP/1.1 %s x" % status).framing, NOTHING)
        head = parsed(*lines, method=b"HEAD")
        self.assertEqual((head.framing, head.keep_alive), (NOTHING, True))
        self.assertEqual(parsed(b"Content-Length: 5", status=b"HTTP/1.1 205 x").framing, LENGTH)

    def test_keep_alive(self) -> None:
        """By version and by `Connection`, in whatever place and case."""
        body = b"Content-Length: 0"
        for lines, new, old in (
            ([], True, False),
            ([b"Connection: close"], False, False),
            ([b"Connection: x, CLOSE"], False, False),
            ([b"Connection: x", b"connection: Close"], False, False),
            ([b"Connection: Keep-Alive"], True, True),
            ([b"Connection: keep-alive, close"], False, False),
            ([b"Connection: closed"], True, False),
        ):
            self.assertEqual(parsed(body, *lines).keep_alive, new, lines)
            self.assertEqual(parsed(body, *lines, status=b"HTTP/1.0 200 OK").keep_alive, old, lines)
        self.assertEqual(parsed(b"Connection: X-a, close", b"Connection:,y").connection, {b"x-a", b"close", b"", b"y"})


def fed(body: bytes, *cuts: int) -> tuple[int, bytes]:
    """Where a chunked body ends, in all that came, and its content, when it comes in pieces cut at these places."""
    follower, spans, start = ChunkFollower(), list[bytes](), 0
    for cut in [*sorted(cuts), len(body)]:
        if cut <= start:
            continue
        end = follower.feed(body[start:cut], spans)
        if end >= 0:
            return start + end, b"".join(spans)
        start = cut
    return -1, b"".join(spans)


SIZES = st.sampled_from(["%x", "%X", "0%x", "000000%X", "%x ", "%x;x", '%x ;a="b;c"', "%x;a=\xe9"])
TRAILERS = st.sampled_from([b"", b"X-Sum: 1\r\n", b"X-Sum: 1\r\nY:\r\n", b"X: " + b"y" * 300 + b"\r\n"])


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A chunked body and its content."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    framed = [(draw(SIZES) % len(piece)).encode("latin-1") + b"\r\n" + piece + b"\r\n" for piece in pieces]
    last = (draw(SIZES) % 0).encode("latin-1") + b"\r\n" + draw(TRAILERS) + b"\r\n"
    return b"".join(framed) + last, b"".join(pieces)


class ChunkTests(SynchronousTestCase):
    """`ChunkFollower`."""

    @given(chunked(), st.binary(max_size=20), st.data())
    def test_end(self, body: tuple[bytes, bytes], after: bytes, data: st.DataObject) -> None:
        """The end is found, and the content, in whatever pieces the body comes and whatever follows it."""
        framed, content = body
        cuts = data.draw(st.lists(st.integers(0, len(framed + after)), max_size=8))
        self.assertEqual(fed(framed + after, *cuts), (len(framed), content))
        self.assertEqual(fed(framed + after, *range(len(framed + after))), (len(framed), content))

    @given(chunked(), st.data())
    def test_no_end(self, body: tuple[bytes, bytes], data: st.DataObject) -> None:
        """A body that is cut anywhere has no end."""
        framed, content = body
        size = data.draw(st.integers(0, len(framed) - 1))
        end, partial = fed(framed[:size], *data.draw(st.lists(st.integers(0, size), max_size=4)))
        self.assertEqual(end, -1)
        self.assertTrue(content.startswith(partial))

    @given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
    def test_any_bytes(self, body: bytes, cuts: list[int]) -> None:
        """Nothing but BadAnswer is raised, and pieces do not matter to the result."""
        results = []
        for places in ([], cuts, range(len(body))):
            try:
                results.append(fed(body, *places)[0])
            except BadAnswer:
                results.append(-2)
        self.assertEqual(len(set(results)), 1, results)

    def assert_bad(self, body: bytes) -> None:
        """The framing is refused, whole and byte by byte."""
        for cuts in ((), range(len(body))):
            with self.assertRaises(BadAnswer, msg=body):
                fed(body, *cuts)

    def test_sizes_that_are_none(self) -> None:
        """Only hexadecimal digits are a size, and not too many."""
        for size in (
            *(
                b"",
                b" 1",
                b"+1",
                b"-1",
                b"0x1",
                b"1_0",
                b"1g",
                b"1.",
                b"1 1",
                b"\t",
                b";x",
                b"1\x0b",
                b"\xb2",
                b"1" * 17,
            ),
            *(b"1\n", b"1\r", b"1;\n", b"1;x\ny", b"1;\0"),
        ):
            self.assert_bad(size + b"\r\nx\r\n0\r\n\r\n")

    def test_chunk_without_its_end(self) -> None:
        """What follows a chunk's data must be its line end."""
        for after in (b"x\r\n0\r\n\r\n", b"\n0\r\n\r\n", b"\rx0\r\n\r\n", b"0\r\n\r\n"):
            self.assert_bad(b"1\r\nx" + after)

    def test_trailer_that_hides_a_line_end(self) -> None:
        """A bare line end in a trailer is refused, as another reader could see the end of the body in it."""
        for line in (b"X: y\n", b"X: y\n\nHTTP/1.1 200 OK", b"X: \r y", b"X: \0"):
            self.assert_bad(b"0\r\n" + line + b"\r\n\r\n")

    def test_huge_chunk(self) -> None:
        """A chunk may be of any size; nothing of it is kept."""
        follower = ChunkFollower()
        self.assertEqual(follower.feed(b"ffffffffffffffff\r\n"), -1)
        for _ in range(3):
            self.assertEqual(follower.feed(b"\r\n0\r\n\r\n" * 1000), -1)

    def test_endless_lines(self) -> None:
        """A size or trailer that does not end is refused, so that memory is bounded."""
        for begin in (b"1;", b"0\r\nX: "):
            follower = ChunkFollower()
            follower.feed(begin)
            with self.assertRaises(BadAnswer):
                for _ in range(80):
                    follower.feed(b"y" * 1024)

    def test_spans_are_not_empty(self) -> None:
        """No empty span is given, wherever the body is cut."""
        body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        for cut in range(len(body)):
            follower, spans = ChunkFollower(), list[bytes]()
            for piece in (body[:cut], body[cut:]):
                if piece:
                    follower.feed(piece, spans)
            self.assertEqual((b"".join(spans), b"" in spans), (b"abcde", False))

    def test_chunk(self) -> None:
        """A chunk that is made is one that is understood."""
        for size in (1, 10, 16, 70_000):
            data = b"x" * size
            framed = b"".join([*chunk(data), b"0\r\n\r\n"])
            self.assertEqual(fed(framed), (len(framed), data))
