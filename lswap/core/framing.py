"""HTTP/1.x answers as bytes: parse the head once, follow the framing of the body without touching it.

No sockets here. `lswap.net.upstream` feeds these from a connection, `lswap.net.relay` decides what the client gets.
Rules: RFC 9112 sections 4 to 7; a lone LF is taken as a line end in heads, as most clients do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lswap.errors import BadAnswer

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
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: (.*))?")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00\r\n]*)?")
#: A chunk's size line or a trailer line longer than this is a broken answer.
_LINE_LIMIT = 65536


class ResponseHead:
    """The head of an answer: what it says, and what it means for the body and the connection.

    `headers` keeps names, values, order and repetition as sent. `length` counts for `LENGTH` only.
    """

    __slots__ = ("connection", "framing", "headers", "http11", "keep_alive", "length", "reason", "status")

    def __init__(self, http11: bool, status: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.http11 = http11
        self.status = status
        self.reason = reason
        self.headers = headers
        self.framing = CLOSE
        self.length = 0
        self.keep_alive = http11
        #: Lower-case tokens of all `Connection` headers.
        self.connection: frozenset[bytes] = frozenset()

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header; `name` in lower case."""
        return [value for header, value in self.headers if header.lower() == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of a header; `name` in lower case."""
        for header, value in self.headers:
            if header.lower() == name:
                return value
        return None


def parse_head(data: bytes, method: bytes) -> ResponseHead:
    """Read a whole head, without the empty line at its end; `method` is that of the request.

    @raise BadAnswer: not an HTTP/1.x head, or two lengths that differ, or a coding that is not `chunked`.
    """
    lines = data.split(b"\n")
    first = lines[0].rstrip(b"\r")
    status_line = _STATUS.fullmatch(first)
    if status_line is None:
        raise BadAnswer(f"the answer does not begin like HTTP/1.x: {first[:60]!r}")
    headers: list[tuple[bytes, bytes]] = []
    for line in lines[1:]:
        if line.endswith(b"\r"):
            line = line[:-1]
        if line[:1] in (b" ", b"\t") and headers:
            name, value = headers[-1]
            headers[-1] = (name, value + b" " + line.strip(b" \t"))
            continue
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None or b"\0" in value or b"\r" in value:
            raise BadAnswer(f"the answer has a malformed header line: {line[:60]!r}")
        headers.append((name, value.strip(b" \t")))
    head = ResponseHead(status_line[1] == b"1", int(status_line[2]), status_line[3] or b"", headers)
    _understand(head, method)
    return head


def _understand(head: ResponseHead, method: bytes) -> None:
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    tokens: set[bytes] = set()
    for name, value in head.headers:
        low = name.lower()
        if low == b"content-length":
            lengths.update(part.strip() for part in value.split(b","))
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
    elif lengths:
        text = lengths.pop()
        if lengths or not text.isdigit() or len(text) > 18:
            raise BadAnswer("the answer has no usable Content-Length")
        head.framing, head.length = LENGTH, int(text)
    else:
        head.keep_alive = False


class ChunkFollower:
    """Finds the end of a chunked body without decoding it (RFC 9112 section 7.1).

    `payload` counts the bytes that the chunks announced so far.
    """

    __slots__ = ("_after", "_part", "_skip", "_trailer", "payload")

    def __init__(self) -> None:
        self.payload = 0
        self._skip = 0  # bytes of a chunk's data that are still to come
        self._part = b""  # the beginning of a line whose end is still to come
        self._after = False  # whether the line end after a chunk's data is due
        self._trailer = False

    def feed(self, data: bytes, spans: list[bytes] | None = None) -> int:
        """Index just past the end of the body in `data`, or -1 when it goes on. Data of chunks is appended to `spans`.

        @raise BadAnswer: the framing is broken; nothing of `data` should be passed on.
        """
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
                pos = end + 2
                continue
            line = _SIZE.fullmatch(data, pos, end)
            if line is None:
                raise BadAnswer(f"the answer has a malformed chunk size: {data[pos : min(end, pos + 20)]!r}")
            length = int(line[1], 16)
            pos = end + 2
            if length:
                if spans is not None:
                    spans.append(data[pos : pos + length])
                self.payload += length
                pos += length
                self._after = True
            else:
                self._trailer = True
        if pos < size:
            self._part, self._skip = data[pos:], 0
        else:
            self._skip = pos - size
        return -1


def chunk(data: bytes) -> Sequence[bytes]:
    """One chunk around `data`, which must not be empty."""
    return (b"%x\r\n" % len(data), data, b"\r\n")
