"""HTTP/1.x answers as bytes: parse the head once, follow the framing of the body without touching it.

No sockets here. `lswap.net.upstream` feeds these from a connection, `lswap.net.relay` decides what the client gets.
Rules: RFC 9112 sections 4 to 7; a lone LF is taken as a line end in heads, as most clients do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lswap.errors import BadAnswer

if TYPE_CHECKING:
    from lswap.core.known_heads import AnswerHead

__all__ = [
    "CHUNKED",
    "CLOSE",
    "END_OF_HEAD",
    "LENGTH",
    "NOTHING",
    "ChunkFollower",
    "ResponseHead",
    "chunk",
    "parse_head",
]

#: How the end of a body is told.
NOTHING, LENGTH, CHUNKED, CLOSE = range(4)

#: The empty line after a head.
END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: ([^\x00\r\n]*))?\r?")
_FOLD = re.compile(rb"\n[ \t]+")
_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00\r\n]*")
#: A bare CR or LF, or a NUL, is how two readers come to see two different ends.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00\r\n]*)?")
_ONE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_TRAILER = re.compile(rb"[^\x00\r\n]*")
#: A chunk's size line or a trailer line longer than this is a broken answer, and so is a head of more lines.
_LINE_LIMIT = 65536
_HEADERS_LIMIT = 2000


class ResponseHead:
    """The head of an answer: what it says, and what it means for the body and the connection.

    `headers` keeps names, values, order and repetition as sent. `length` counts for `LENGTH` only. `keep_alive` tells
    whether the connection may serve again.
    """

    __slots__ = (
        "connection",
        "first_values",
        "follower",
        "framing",
        "headers",
        "http11",
        "keep_alive",
        "known",
        "length",
        "reason",
        "status",
    )

    def __init__(self, http11: bool, status: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.http11 = http11
        self.status = status
        self.reason = reason
        self.headers = headers
        #: The first value of each header by its name in lower case.
        self.first_values = {name.lower(): value for name, value in reversed(headers)}
        self.framing = CLOSE
        self.length = 0
        self.keep_alive = http11
        #: Lower-case tokens of all `Connection` headers.
        self.connection: frozenset[bytes] = frozenset()
        #: What follows the chunks of the body, for a body that has them.
        self.follower: ChunkFollower | None = None
        #: What remembers this head, if anything does (`lswap.core.known_heads`).
        self.known: AnswerHead | None = None

    def copy(self) -> ResponseHead:
        """The same for another answer, without what follows its chunks; headers are shared."""
        head: ResponseHead = ResponseHead.__new__(ResponseHead)
        head.http11, head.status, head.reason, head.headers = self.http11, self.status, self.reason, self.headers
        head.first_values, head.framing, head.length = self.first_values, self.framing, self.length
        head.keep_alive, head.connection, head.follower, head.known = self.keep_alive, self.connection, None, None
        return head

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header; `name` in lower case."""
        return [value for header, value in self.headers if header.lower() == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of a header; `name` in lower case."""
        return self.first_values.get(name)


def parse_head(data: bytes, method: bytes) -> ResponseHead:
    """Read a whole head, without the empty line at its end; `method` is that of the request.

    @raise BadAnswer: not an HTTP/1.x head, or too many headers, or two lengths that differ, or a coding that is not
        `chunked`.
    """
    first, _, rest = data.partition(b"\n")
    status_line = _STATUS.fullmatch(first)
    if status_line is None:
        raise BadAnswer(f"the answer does not begin like HTTP/1.x: {first[:60]!r}")
    if rest.count(b"\n") >= _HEADERS_LIMIT:
        raise BadAnswer(f"the answer has more than {_HEADERS_LIMIT} header lines")
    rest = rest.replace(b"\r\n", b"\n").removesuffix(b"\r")
    lines = _FOLD.sub(b" ", rest).split(b"\n") if rest else []
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        if _LINE.fullmatch(line) is None:
            raise BadAnswer(f"the answer has a malformed header line: {line[:60]!r}")
        name, _, value = line.partition(b":")
        headers.append((name, value.strip(b" \t")))
    head = ResponseHead(status_line[1] != b"0", int(status_line[2]), status_line[3] or b"", headers)
    _understand(head, method)
    return head


def _understand(head: ResponseHead, method: bytes) -> None:
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    tokens: set[bytes] = set()
    for name, value in head.headers:
        low = name.lower()
        if low == b"content-length":
            lengths.update(part.strip(b" \t") for part in value.split(b","))
        elif low == b"transfer-encoding":
            codings += [part.strip().lower() for part in value.split(b",")]
        elif low == b"connection":
            tokens.update(part.strip().lower() for part in value.split(b","))
    head.connection = frozenset(tokens)
    head.keep_alive = (head.http11 or b"keep-alive" in tokens) and b"close" not in tokens
    if head.status < 200 or head.status in (204, 304) or method == b"HEAD":
        head.framing = NOTHING
    elif codings and codings != [b"identity"]:
        if codings != [b"chunked"]:
            raise BadAnswer(f"the answer has a transfer coding that is not understood: {b', '.join(codings)[:60]!r}")
        head.framing = CHUNKED
        if lengths or not head.http11:
            head.keep_alive = False  # whoever sends that may be out of step (RFC 9112 section 6.1)
    elif lengths:
        text = lengths.pop()
        if lengths or not text.isdigit() or len(text) > 18:
            raise BadAnswer("the answer has no usable Content-Length")
        head.framing, head.length = LENGTH, int(text)
    else:
        head.keep_alive = False


class ChunkFollower:
    """Finds the end of a chunked body without decoding it (RFC 9112 section 7.1)."""

    __slots__ = ("_after", "_part", "_skip", "_trailer", "announced")

    def __init__(self) -> None:
        self._skip = 0  # bytes of a chunk's data that are still to come
        self._part = b""  # the beginning of a line whose end is still to come
        self._after = False  # whether the line end after a chunk's data is due
        self._trailer = False
        #: Bytes of data in all chunks that have begun.
        self.announced = 0

    @property
    def delivered(self) -> int:
        """Bytes of data that came, without their framing."""
        return self.announced - self._skip

    def feed(self, data: bytes, spans: list[bytes] | None = None) -> int:
        """Index just past the end of the body in `data`, or -1 when it goes on. Data of chunks is appended to `spans`.

        Not to be called again once the body has ended.

        @raise BadAnswer: the framing is broken; nothing of `data` should be passed on.
        """
        if not (self._skip or self._part or self._after or self._trailer):
            # One whole chunk, as servers send it for each token.
            line = _ONE.match(data)
            if line is not None:
                start, length = line.end(), int(line[1], 16)
                if length and len(data) == start + length + 2 and data.endswith(b"\r\n"):
                    self.announced += length
                    if spans is not None:
                        spans.append(data[start : start + length])
                    return -1
        return self._follow(data, spans)

    def _follow(self, data: bytes, spans: list[bytes] | None) -> int:
        """See `feed`; whatever comes."""
        pos, size, held = self._skip, len(data), 0
        if spans is not None and pos:
            spans.append(data[:pos])
        if self._part:
            held = len(self._part)
            data, size, self._part = self._part + data, size + held, b""
        while pos < size:
            if self._after:
                if data.startswith(b"\r\n", pos):
                    pos += 2
                    self._after = False
                    continue
                if size - pos == 1 and data[pos] == 13:
                    break
                raise BadAnswer("a chunk of the answer is longer than announced")
            end = data.find(b"\r\n", pos)
            if end < 0:
                if size - pos > _LINE_LIMIT:
                    raise BadAnswer("a line in the framing of the answer is too long")
                break
            if self._trailer:
                if end == pos:
                    return end + 2 - held
                if _TRAILER.fullmatch(data, pos, end) is None:
                    raise BadAnswer("the answer has a malformed trailer line")
                pos = end + 2
                continue
            line = _SIZE.fullmatch(data, pos, end)
            if line is None:
                raise BadAnswer(f"the answer has a malformed chunk size: {data[pos : min(end, pos + 20)]!r}")
            length = int(line[1], 16)
            pos = end + 2
            if not length:
                self._trailer = True
                continue
            if spans is not None and pos < size:
                spans.append(data[pos : pos + length])
            pos += length
            self.announced += length
            if data.startswith(b"\r\n", pos):
                pos += 2
            else:
                self._after = True
        if pos < size:
            self._part, self._skip = data[pos:], 0
        else:
            self._skip = pos - size
        return -1


def chunk(data: bytes) -> Sequence[bytes]:
    """One chunk around `data`, which must not be empty."""
    return (b"%x\r\n" % len(data), data, b"\r\n")
