"""Finds members of the top-level object in a JSON body that comes in pieces, without parsing the rest.

Tolerant: what a strict parser would refuse elsewhere in the body (a BOM, NaN, control characters, trailing commas,
broken text) is the model server's business. Of equal keys the first counts, as in the reference.

How it is fast: escaped quotes and backslashes are blanked, then a regular expression looks for the wanted keys; what
lies between two finds is never read token by token, only its quotes and brackets are counted. So the work is one pass
in C, whatever the body holds, and a piece of a dense body holds up the reactor no longer than one of plain text.
"""

from __future__ import annotations

import enum
import functools
import json
import re

import msgspec

from lswap.core.brackets import brackets_of, levels_of, pass_brackets

__all__ = ["JsonScan", "Member"]

_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb'[^"\[\]{},:]*')
_QUOTE, _COLON, _OPEN = b'":{'
#: Longer values are not kept; no model is called so.
_KEEP = 4096
#: After so many nested keys it is looked whether the piece has anything but nested ones.
_DOUBT = 64


class Member(msgspec.Struct, frozen=True):
    """A member that was asked for: the place of its value in the body, and the value if it is a scalar.

    `text` is the string itself, or the text of a number, `true`, `false` or `null`; None for an object or a list (then
    only `start` tells the place), and for a value that is too long to be of interest.
    """

    start: int
    end: int
    text: str | None
    is_string: bool


class _Step(enum.Enum):
    """What comes next."""

    SEEK = enum.auto()  # a wanted key, anywhere
    COLON = enum.auto()  # the colon after a string that would be one
    VALUE = enum.auto()
    STRING = enum.auto()
    SCALAR = enum.auto()


class JsonScan:
    """Feed it a body; `members` has what was found so far of the `wanted` keys (ASCII, without quotes)."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.members: dict[str, Member] = {}
        #: Where the top-level object ends, just past its brace; -1 while it has not.
        self.object_end = -1
        self._wanted = wanted
        self._over = False
        self._base = 0  # place of the piece in the body
        self._odd = False  # the last piece ended in a backslash that escapes what comes next
        self._depth = 0
        self._in_string = False
        self._step = _Step.SEEK
        self._key = ""
        self._kept: list[bytes] | None = None  # pieces of the key or value that is being read
        self._size = 0
        self._start = self._end = 0

    @property
    def over(self) -> bool:
        """Whether more data can change nothing."""
        return self._over or len(self.members) == len(self._wanted)

    def feed(self, data: bytes) -> None:
        """Read the next piece. Never raises."""
        if not data or self.over:
            return
        text = self._blanked(data)
        pos, size = 0, len(data)
        while pos < size and not self.over:
            if self._step is _Step.SEEK:
                pos = self._in_key(data, text, pos) if self._in_string else self._seek(data, text, pos)
            elif self._step is _Step.STRING:
                pos = self._string(data, text, pos)
            elif self._step is _Step.SCALAR:
                pos = self._scalar(data, text, pos)
            else:
                pos = self._between(text, pos)
        self._base += size

    def _blanked(self, data: bytes) -> bytes:
        """`data` with escaped quotes and backslashes blanked: each quote that is left begins or ends a string."""
        text = data
        if self._odd and data[:1] in (b'"', b"\\"):
            text = b"\0" + data[1:]
        if b"\\" in text:
            text = text.replace(b"\\\\", b"\0\0").replace(b'\\"', b"\0\0")
        self._odd = text.endswith(b"\\")
        return text

    # -- keys ----------------------------------------------------------------

    def _seek(self, data: bytes, text: bytes, pos: int) -> int:
        """Go to the next wanted key; returns where to go on."""
        names, key = _keys(self._wanted.difference(self.members))
        search_from, nested = pos, 0
        while (found := key.search(text, search_from)) is not None:
            quote = found.start()
            self._pass_over(text, pos, quote)
            if self._over:
                return quote
            if self._depth == 1 and not self._in_string:
                self._key = names[(found.lastindex or 1) - 1]
                self._step = _Step.COLON
                return found.end()
            pos, search_from, nested = quote, quote + 1, nested + 1
            if nested == _DOUBT and self._stays_nested(text, pos):
                break
        self._pass_over(text, pos, len(text))
        if self._in_string:  # it may be a key whose end is in the next piece
            self._keep_from(self._depth == 1)
            self._keep(data[text.rfind(b'"') + 1 :])
        return len(text)

    def _in_key(self, data: bytes, text: bytes, pos: int) -> int:
        """Go to the end of a string that began in an earlier piece, which may be a wanted key."""
        end = text.find(b'"', pos)
        if end < 0:
            self._keep(data[pos:])
            return len(text)
        self._keep(data[pos:end])
        self._in_string = False
        names, key = _keys(self._wanted.difference(self.members))
        kept = b'"%s"' % self._taken()
        found = key.fullmatch(kept)
        if found is not None:
            self._key = names[(found.lastindex or 1) - 1]
            self._step = _Step.COLON
        return end + 1

    def _pass_over(self, text: bytes, start: int, stop: int) -> None:
        """Count the quotes and brackets in a stretch of text."""
        parts = text[start:stop].split(b'"')
        brackets = brackets_of(parts, self._in_string)
        if brackets and self._depth == 0 and brackets[0] != _OPEN:
            self._over = True  # no object
        self._depth, end = pass_brackets(parts, self._in_string, brackets, self._depth)
        if end >= 0 and not self._over:
            self._over = True
            self.object_end = self._base + start + end
        self._in_string ^= len(parts) % 2 == 0

    def _stays_nested(self, text: bytes, pos: int) -> bool:
        """Whether the rest of a piece nowhere comes back to the top level."""
        return min(levels_of(brackets_of(text[pos:].split(b'"'), self._in_string), self._depth)) > 1

    # -- values --------------------------------------------------------------

    def _between(self, text: bytes, pos: int) -> int:
        """Pass the space before a colon or before a value; returns where to go on."""
        found = _SPACE.match(text, pos)
        pos = found.end() if found is not None else pos
        if pos == len(text):
            return pos
        char = text[pos]
        if self._step is _Step.COLON:
            self._step = _Step.VALUE if char == _COLON else _Step.SEEK
            return pos + 1 if char == _COLON else pos
        self._start = self._end = self._base + pos
        self._step = _Step.SEEK
        if char == _QUOTE:
            self._step = _Step.STRING
            self._keep_from(True)
            return pos + 1
        if char in b"{[":
            self._note(Member(start=self._start, end=self._start + 1, text=None, is_string=False))
        elif char not in b"}],:":
            self._step = _Step.SCALAR
            self._keep_from(True)
        return pos

    def _string(self, data: bytes, text: bytes, pos: int) -> int:
        end = text.find(b'"', pos)
        if end < 0:
            self._keep(data[pos:])
            return len(text)
        self._keep(data[pos:end])
        value = _unquoted(self._taken()) if self._size <= _KEEP else None
        self._note(Member(start=self._start, end=self._base + end + 1, text=value, is_string=True))
        return end + 1

    def _scalar(self, data: bytes, text: bytes, pos: int) -> int:
        found = _SCALAR.match(text, pos)
        end = found.end() if found is not None else pos
        piece = data[pos:end]
        self._keep(piece)
        held = len(piece.rstrip(b" \t\r\n"))
        if held:
            self._end = self._base + pos + held
        if end < len(text):
            raw = self._taken()[: self._end - self._start]
            value = raw.decode("utf-8", "replace") if self._size <= _KEEP else None
            self._note(Member(start=self._start, end=self._end, text=value, is_string=False))
        return end

    def _note(self, member: Member) -> None:
        self.members[self._key] = member
        self._step = _Step.SEEK

    # -- what is kept --------------------------------------------------------

    def _keep_from(self, wanted: bool) -> None:
        self._kept, self._size = [] if wanted else None, 0

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._kept is not None and self._size <= _KEEP:
            self._kept.append(data)

    def _taken(self) -> bytes:
        kept, self._kept = self._kept, None
        return b"".join(kept or ())


@functools.lru_cache(maxsize=64)
def _keys(names: frozenset[str]) -> tuple[tuple[str, ...], re.Pattern[bytes]]:
    """These names in some order, and what finds one as a key, in all spellings that JSON allows; a group for each.

    The colon may be in the next piece. A name that would have to be escaped is not found.
    """
    order = tuple(sorted(names))
    spelled = ("".join(map(_spellings, name)) for name in order)
    either = "|".join(f"({spelling})" for spelling in spelled)
    return order, re.compile(f'"(?:{either})"(?=[ \\t\\r\\n]*(?::|\\Z))'.encode())


def _spellings(char: str) -> str:
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{ord(char):04x}")
    return rf"(?:{re.escape(char)}|\\u{digits})"


def _unquoted(raw: bytes) -> str:
    """The string that stands between quotes; text that is not quite right is mended as other parsers do."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        text = str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text
    return text.encode("utf-8", "replace").decode("utf-8")  # halves of surrogate pairs
