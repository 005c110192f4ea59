"""Remembers heads that were read and found well-formed: who sends one again, with another length at most, is known.

A client that keeps its connection sends the same head with each request but for the number in `Content-Length`, and so
does a server with its answers. Reading a head costs more than all that is decided about the request. A memory is asked
with the head less the digits of its length; what it holds is read-only, and tells nothing that the bytes do not say.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

from lswap.core.framing import LENGTH, ResponseHead, parse_head
from lswap.core.headers import Headers, request_lines, response_lines

__all__ = ["AnswerHead", "HeadMemory", "Key", "RequestHead", "cut_length", "read_answer", "with_length"]

#: A head without the digits of its length, as what stands before and behind them; or a whole one without a length.
Key = tuple[bytes, bytes] | bytes

#: The header line that is cut. Whatever else could be read as a length stays in the key.
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})\r\n", re.IGNORECASE)
#: Heads that one memory keeps, and the bytes of the longest.
_MOST = 256
_LONGEST = 4096

Known = TypeVar("Known")


def cut_length(data: bytes, end: int) -> tuple[Key, int]:
    """What a head is remembered by, and its length, or -1; `end` is where its last header ends, before the line end."""
    found = _LENGTH.search(data, 0, end + 2)
    if found is None:
        return data[:end], -1
    start, stop = found.span(1)
    return (data[:start], data[stop:end]), int(found[1])


def with_length(headers: Headers, place: int, length: int) -> Headers:
    """A copy of these headers, with this length in that of them; -1 is none."""
    if place < 0:
        return headers
    changed = headers.copy()
    changed[place] = (headers[place][0], b"%d" % length)
    return changed


def _place(headers: Headers) -> int:
    """Where the length stands among headers; -1 is nowhere."""
    return next((place for place, (name, _) in enumerate(headers) if name.lower() == b"content-length"), -1)


class HeadMemory(Generic[Known]):
    """What was found in the heads of late, within a bound; forgets all of them when it is full."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def find(self, key: Key) -> Known | None:
        """What was found in this head."""
        return self._known.get(key)

    def keep(self, key: Key, known: Known) -> None:
        """Remember this; without effect for a head that is too long."""
        if (len(key) if isinstance(key, bytes) else len(key[0]) + len(key[1])) > _LONGEST:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = known

    def __len__(self) -> int:
        return len(self._known)


def read_answer(memory: HeadMemory[AnswerHead], data: bytes, end: int, method: bytes) -> ResponseHead:
    """Read the head that ends at `end`, before its empty line, or recognize it; else as `parse_head`."""
    if method == b"HEAD" or not data.startswith(b"\r\n\r\n", end):
        return parse_head(data[:end], method)
    key, length = cut_length(data, end)
    known = memory.find(key)
    if known is not None:
        return known.again(length)
    head = parse_head(data[:end], method)
    if AnswerHead.suits(head, length):
        head.known = AnswerHead(head.copy())
        memory.keep(key, head.known)
    return head


class RequestHead:
    """The head of a request, read once, and what follows from it for all requests that come with it."""

    __slots__ = ("_lines", "_lines_for", "command", "firsts", "headers", "persistent", "place", "target", "version")

    def __init__(
        self, words: tuple[bytes, bytes, bytes], headers: Headers, firsts: dict[bytes, bytes], persistent: bool
    ) -> None:
        """@param words: method, target and version.  @param firsts: first values by name in lower case."""
        self.command, self.target, self.version = words
        self.headers = headers
        self.firsts = firsts
        #: Whether the connection can be kept after the answer.
        self.persistent = persistent
        #: Where the length stands among the headers; -1 is nowhere.
        self.place = _place(headers)
        self._lines: bytes = b""
        self._lines_for: tuple[bytes, bool, bytes | None] | None = None

    def lines(self, client: bytes, metered: bool, host: bytes | None) -> bytes:
        """The header lines of the request as it goes upstream, but for that of its length (see `request_lines`)."""
        asked = (client, metered, host)
        if asked != self._lines_for:
            self._lines = b"".join(request_lines(self.headers, client, None, metered, host))
            self._lines_for = asked
        return self._lines


class AnswerHead:
    """The head of an answer, read once, and what follows from it for all answers that come with it."""

    __slots__ = ("_after", "_before", "_head", "_lines_for", "_name", "_place")

    def __init__(self, head: ResponseHead) -> None:
        """@param head: one that suits."""
        self._head = head
        self._place = _place(head.headers)
        self._lines_for: tuple[bytes, bool] | None = None
        self._before = self._after = b""
        #: Of the length as the server spells it; None where the client gets none.
        self._name: bytes | None = None

    @staticmethod
    def suits(head: ResponseHead, length: int) -> bool:
        """Whether a head with this length, or without one (-1), says the same with another."""
        if head.status < 200:
            return False
        lengths = len(head.values(b"content-length"))
        return not lengths if length < 0 else (lengths == 1 and head.framing == LENGTH)

    def again(self, length: int) -> ResponseHead:
        """The head of another answer, with this length; -1 is none."""
        head = self._head.copy()
        head.known = self
        if length >= 0:
            head.headers = with_length(head.headers, self._place, length)
            head.first_values = {**head.first_values, b"content-length": b"%d" % length}
            head.length = length
        return head

    def lines(self, length: int, date: bytes, origin: bool) -> list[bytes]:
        """The header lines of an answer of this length as it goes to the client (see `response_lines`)."""
        if (date, origin) != self._lines_for:
            lines = response_lines(self._head, date, origin)
            place = next((i for i, line in enumerate(lines) if line.lower().startswith(b"content-length:")), len(lines))
            self._before, self._after = b"".join(lines[:place]), b"".join(lines[place + 1 :])
            self._name = lines[place].partition(b":")[0] if place < len(lines) else None
            self._lines_for = date, origin
        if self._name is None:
            return [self._before]
        return [self._before, self._name, b": %d\r\n" % length, self._after]
