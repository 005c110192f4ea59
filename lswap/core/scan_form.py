"""Finds the first `model` of a form that comes in pieces: multipart (RFC 7578) and URL-encoded; and in a query.

Only as much is kept as a model's name may be long; the files of an upload pass by.
"""

from __future__ import annotations

import functools
import re
from urllib.parse import quote, unquote_to_bytes

__all__ = ["MultipartScan", "UrlencodedScan", "boundary_of", "query_value", "query_with"]

_PARAMETER = re.compile(rb';[ \t]*([^\s;="]+)[ \t]*=[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s;"]*))[ \t]*', re.DOTALL)
_DISPOSITION = re.compile(rb"\r\ncontent-disposition:[ \t]*form-data[ \t]*(;[^\r\n]*)", re.IGNORECASE)
#: Longer names are not looked at; no model is called so.
_KEEP = 4096
_HEAD_LIMIT = 65536
#: An upload of more parts is not searched further, as in the reference.
_PARTS = 1000
#: So many values of equal names are replaced in a query; nobody means more.
_REPLACED = 64
#: The longest boundary, and the longest space after a delimiter, that are borne.
_BOUNDARY, _PADDING = 1024, 64


def _parameters(text: bytes) -> dict[bytes, bytes]:
    """The parameters `; name=value` that `text` begins with, names in lower case; of equal ones the first counts."""
    found: dict[bytes, bytes] = {}
    place = 0
    while (match := _PARAMETER.match(text, place)) is not None:
        quoted, bare = match[2], match[3]
        value = bare if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        found.setdefault(match[1].lower(), value)
        place = match.end()
    return found


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary of a multipart media type, or None."""
    _, semicolon, rest = content_type.partition(b";")
    boundary = _parameters(semicolon + rest).get(b"boundary", b"")
    return boundary if 0 < len(boundary) <= _BOUNDARY else None


class MultipartScan:
    """Feed it a body; `name` is the value of the first field called `model`, and `start`, `end` its place."""

    def __init__(self, boundary: bytes) -> None:
        self.name: str | None = None
        self.start = self.end = 0
        #: Ends a part: another follows, or (group 1) none does.
        self._delimiter = re.compile(rb"\r\n--%s(?:(--)|[ \t]{0,%d}\r\n)" % (re.escape(boundary), _PADDING))
        self._longest = len(boundary) + 6 + _PADDING
        self._buffer = b"\r\n"  # the first delimiter has no line end before it
        self._at = -2  # place of the buffer's first byte in the body
        self._searched = 0  # up to here the buffer holds no end of what is being read
        self._parts = 0
        self._in_head = False
        self._wanted = False
        self._over = False

    @property
    def over(self) -> bool:
        """Whether more data can change nothing."""
        return self._over

    def feed(self, data: bytes) -> None:
        """Read the next piece. Never raises."""
        if self._over:
            return
        self._buffer += data
        place = 0  # where the head or body that is being read begins
        while not self._over and (end := self._head(place) if self._in_head else self._body(place)) >= 0:
            place = end
        size = len(self._buffer)
        if self._over:
            place = size
        elif not (self._in_head or self._wanted):  # what cannot be the beginning of a delimiter may go
            place = max(place, size - self._longest)
        self._buffer = self._buffer[place:]
        self._at += place
        self._searched = max(0, size - place - (3 if self._in_head else self._longest))

    def _body(self, place: int) -> int:
        """Look for the end of the part's body that begins at `place`; where the next head begins, or -1."""
        found = self._delimiter.search(self._buffer, max(place, self._searched))
        if self._wanted:
            end = found.start() if found is not None else len(self._buffer) - self._longest
            self._over = found is not None or end - place > _KEEP
            if found is not None and end - place <= _KEEP:
                self.start, self.end = self._at + place, self._at + end
                self.name = self._buffer[place:end].decode("utf-8", "replace")
            return -1
        if found is None:
            return -1
        self._parts += 1
        self._over = found[1] is not None or self._parts > _PARTS
        self._in_head = True
        return found.end() - 2

    def _head(self, place: int) -> int:
        """Read the part's head that begins (with the delimiter's line end) at `place`; where its body begins, or -1."""
        end = self._buffer.find(b"\r\n\r\n", max(place, self._searched))
        if end < 0 or end - place > _HEAD_LIMIT:
            self._over = end >= 0 or len(self._buffer) - place > _HEAD_LIMIT + 3
            return -1
        self._wanted = self._names_model(place, end)
        self._in_head = False
        return end + 4

    def _names_model(self, place: int, end: int) -> bool:
        """Whether a part is the field, which is no file."""
        if self._buffer.find(b"model", place, end) < 0:
            return False
        found = _DISPOSITION.search(self._buffer, place, end)
        parameters = _parameters(found[1]) if found is not None else {}
        return parameters.get(b"name") == b"model" and not parameters.get(b"filename")


@functools.lru_cache(maxsize=8)
def _spelled(name: str) -> bytes:
    """What matches a name (ASCII) in a query, each letter as it is or escaped."""
    escaped = ("".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in f"{ord(char):02x}") for char in name)
    return "".join(f"(?:{re.escape(char)}|%{digits})" for char, digits in zip(name, escaped, strict=True)).encode()


def _decoded(value: bytes | None) -> str:
    return unquote_to_bytes((value or b"").replace(b"+", b" ")).decode("utf-8", "replace")


class UrlencodedScan:
    """Feed it a body; `name` is the value of the first field called `model`, and `start`, `end` its place."""

    #: The field, with the `&` before it and (group 2) the one after it.
    _FIELD = re.compile(rb"&%s(?:=([^&]*))?(&|\Z)" % _spelled("model"))
    _LONGEST = len("&%6d%6f%64%65%6c=")

    def __init__(self) -> None:
        self.name: str | None = None
        self.start = self.end = 0
        self._over = False
        self._rest = b"&"  # the pair whose end is still to come, as far as it may be the field
        self._at = -1  # place of its first byte in the body

    @property
    def over(self) -> bool:
        """Whether more data can change nothing."""
        return self._over

    def feed(self, data: bytes) -> None:
        """Read the next piece. Never raises."""
        if self._over:
            return
        buffer = self._rest + data
        found = self._FIELD.search(buffer)
        if found is not None and found[2]:
            self._take(found)
            return
        if found is not None:
            self._rest = buffer[found.start() :]
            self._over = len(self._rest) > self._LONGEST + _KEEP
        else:
            last = buffer.rfind(b"&")
            self._rest = buffer[last:] if last >= 0 and len(buffer) - last <= self._LONGEST else b""
        self._at += len(buffer) - len(self._rest)

    def finish(self) -> None:
        """The body is over."""
        found = None if self._over else self._FIELD.search(self._rest)
        if found is not None:
            self._take(found)

    def _take(self, found: re.Match[bytes]) -> None:
        self._over = True
        value = found[1]
        if value is None or len(value) <= _KEEP:
            self.name = _decoded(value)
        if value is not None:
            self.start, self.end = self._at + found.start(1), self._at + found.end(1)


@functools.lru_cache(maxsize=8)
def _pair(name: str) -> re.Pattern[bytes]:
    """A well-formed pair of a query with this name, and the `&` before it."""
    value = rb"[^&;%]*(?:%[0-9A-Fa-f]{2}[^&;%]*)*"
    return re.compile(b"&" + _spelled(name) + rb"(?:=(" + value + rb"))?(?=&|\Z)")


def query_value(query: bytes, wanted: str) -> str | None:
    """The first value of a name in a query string; pairs with a semicolon or a broken escape do not count.

    None also for a value that is too long to be of interest.
    """
    found = _pair(wanted).search(b"&" + query)
    return None if found is None or len(found[0]) > _KEEP else _decoded(found[1])


def query_with(query: bytes, wanted: str, value: str) -> bytes:
    """A query string with another value in the place of each well-formed one of this name; no other byte changes."""
    written = quote(value, safe="/:@!$'()*,-._~").encode()

    def replaced(found: re.Match[bytes]) -> bytes:
        name, _, _ = found[0].partition(b"=")
        return name + b"=" + written

    return _pair(wanted).sub(replaced, b"&" + query, count=_REPLACED)[1:]
