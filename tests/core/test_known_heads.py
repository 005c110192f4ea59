"""Heads that are recognized: they mean what they would mean if they were read again."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.framing import ResponseHead, parse_head
from lswap.core.headers import Headers, request_lines, response_lines
from lswap.core.known_heads import AnswerHead, HeadMemory, RequestHead, cut_length, read_answer, with_length
from lswap.errors import BadAnswer

_END = b"\r\n\r\n"
_lines = st.lists(
    st.sampled_from(
        (
            b"Content-Type: text/event-stream",
            b"content-length: 3",
            b"CONTENT-LENGTH:%d",
            b"Content-Length:\t %d",
            b"Content-Length: %d, %d",
            b"Content-Length: %d\r\n 4",
            b"X-Content-Length: %d",
            b"X: y\r\n Content-Length: %d",
            b"X: y\nContent-Length: %d",
            b"Content-Length: -%d",
            b"Content-Length: ",
            b"Content-Length : %d",
            b"Transfer-Encoding: chunked",
            b"Connection: close, x",
            b"X: hop",
            b"Date: then",
            b"Trailer: t",
            b"Access-Control-Allow-Origin: there",
        )
    ),
    max_size=5,
)
_statuses = st.sampled_from((b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.1 103 Early"))
_lengths = st.sampled_from((0, 1, 2, 3, 40, 10**14, 10**15, 10**17, 10**19))


def _filled(lines: list[bytes], length: int) -> bytes:
    return b"\r\n".join(line.replace(b"%d", b"%d" % length) for line in lines)


def _facts(head: ResponseHead) -> tuple[object, ...]:
    """All that a head says."""
    names = set(ResponseHead.__slots__) - {"known"}
    return tuple((name, getattr(head, name)) for name in sorted(names))


class AnswerTests(SynchronousTestCase):
    """`read_answer`."""

    @given(_statuses, _lines, st.lists(_lengths, min_size=2, max_size=4), st.sampled_from((b"GET", b"HEAD", b"POST")))
    @example(b"HTTP/1.1 200 OK", [b"CONTENT-LENGTH:%d", b"content-length: 3"], [3, 4], b"GET")
    @example(b"HTTP/1.1 204 No", [b"CONTENT-LENGTH:%d"], [3, 4], b"GET")
    @example(b"HTTP/1.1 200 OK", [b"CONTENT-LENGTH:%d"], [3, 0, 40], b"GET")
    def test_as_if_read_anew(self, status: bytes, lines: list[bytes], lengths: list[int], method: bytes) -> None:
        """Facts, and the lines that the client gets, are the same as without a memory; so is what is refused."""
        memory: HeadMemory[AnswerHead] = HeadMemory()
        for length in lengths:
            data = _filled([status, *lines], length)
            try:
                expected = parse_head(data, method)
            except BadAnswer:
                with self.assertRaises(BadAnswer):
                    read_answer(memory, data + _END + b"rest", len(data), method)
                continue
            head = read_answer(memory, data + _END + b"rest", len(data), method)
            self.assertEqual(_facts(head), _facts(expected))
            for date, origin in ((b"now", True), (b"now", False), (b"later", False), (b"later", False)):
                if head.known is not None:
                    mine = b"".join(head.known.lines(head.length, date, origin))
                    self.assertEqual(mine, b"".join(response_lines(expected, date, origin)))

    def test_recognized(self) -> None:
        """With another length it is known, and has its own; nothing that one answer changes is seen by the next."""
        memory: HeadMemory[AnswerHead] = HeadMemory()
        first = read_answer(memory, b"HTTP/1.1 200 OK\r\nContent-Length: 5" + _END, 34, b"GET")
        first.keep_alive = False
        second = read_answer(memory, b"HTTP/1.1 200 OK\r\nContent-Length: 77" + _END, 35, b"GET")
        self.assertEqual(len(memory), 1)
        self.assertIs(first.known, second.known)
        self.assertEqual((second.length, second.headers, second.keep_alive), (77, [(b"Content-Length", b"77")], True))
        self.assertEqual((first.length, first.value(b"content-length")), (5, b"5"))

    def test_bare_line_ends(self) -> None:
        """Heads with other line ends are read each time."""
        memory: HeadMemory[AnswerHead] = HeadMemory()
        for end in (b"\n\n", b"\r\n\n"):
            head = read_answer(memory, b"HTTP/1.1 200 OK\nContent-Length: 5" + end, 33, b"GET")
            self.assertEqual((head.length, head.known), (5, None))
        self.assertEqual(len(memory), 0)


class RequestTests(SynchronousTestCase):
    """`RequestHead`."""

    HEADERS: Headers = [  # noqa: RUF012 - never changed
        (b"Host", b"h"),
        (b"Accept-Encoding", b"br, gzip"),
        (b"content-length", b"5"),
        (b"X-Forwarded-For", b"1.2.3.4"),
        (b"Connection", b"X-Hop"),
        (b"X-Hop", b"1"),
    ]

    def test_lines(self) -> None:
        """They are those of `request_lines`, for each client and server."""
        head = RequestHead((b"POST", b"/", b"HTTP/1.1"), self.HEADERS, {}, True)
        for client, metered, host in ((b"a", True, None), (b"a", True, None), (b"b", False, b"s"), (b"a", False, b"s")):
            lines = b"".join(request_lines(self.HEADERS, client, None, metered, host))
            self.assertEqual(head.lines(client, metered, host), lines)

    def test_length(self) -> None:
        """It is put where it stood, in a copy."""
        head = RequestHead((b"POST", b"/", b"HTTP/1.1"), self.HEADERS, {}, True)
        changed = with_length(head.headers, head.place, 12)
        self.assertEqual(changed, [(n, b"12" if n == b"content-length" else v) for n, v in self.HEADERS])
        self.assertEqual(dict(head.headers)[b"content-length"], b"5")
        self.assertIs(with_length(head.headers, -1, 3), head.headers)


class MemoryTests(SynchronousTestCase):
    """`HeadMemory` and its keys."""

    def test_keys(self) -> None:
        """The same key is the same head but for its length; one without a number is another."""
        heads = [
            b"A\r\nContent-Length: 5",
            b"A\r\nContent-Length: 66",
            b"A\r\nContent-Length: ",
            b"A\r\nContent-Length: 5\r\nContent-Length: 6",
            b"A\r\nContent-Length: 5\r\nContent-Length: 7",
            b"A\r\nX: 1\r\nContent-Length: 5",
            b"A\r\n Content-Length: 5",
            b"A",
        ]
        found = [cut_length(head + _END, len(head)) for head in heads]
        self.assertEqual([length for _, length in found], [5, 66, -1, 5, 5, 5, -1, -1])
        self.assertEqual(len({key for key, _ in found}), len(heads) - 1)
        self.assertEqual(found[0][0], found[1][0])

    def test_what_follows_is_no_part(self) -> None:
        """A length in the body is none."""
        self.assertEqual(cut_length(b"A\r\nB: c\r\n\r\nContent-Length: 5\r\n", 7), (b"A\r\nB: c", -1))
        self.assertEqual(cut_length(b"A\r\n\r\nContent-Length: 5\r\n\r\n", 1), (b"A", -1))

    def test_bounds(self) -> None:
        """It does not grow for ever, neither by number nor by size."""
        memory: HeadMemory[int] = HeadMemory()
        most = 0
        for number in range(1000):
            memory.keep(b"%d" % number, number)
            most = max(most, len(memory))
            self.assertEqual(memory.find(b"%d" % number), number)
        self.assertLess(most, 300)
        for key in (b"x" * 5000, (b"x" * 2500, b"y" * 2500)):
            memory.keep(key, 1)
            self.assertIsNone(memory.find(key))
