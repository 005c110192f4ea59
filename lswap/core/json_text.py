"""Where values end in a JSON text: one container is read, what lies in it is passed over in bulk.

The text may be megabytes long and need not be quite right; nothing here raises. Functions that may take long are
generators: each step between two `yield`s is short (at most some milliseconds, mostly far less), so that a caller can
let others have their turn. A text is `bytes`, or an `mmap` of the same. Read `lswap.core.edit_json` next.
"""

from __future__ import annotations

import functools
import json
import mmap
import re
from collections.abc import Generator

from lswap.core.brackets import brackets_of, pass_brackets

__all__ = ["CLOSING", "OPENING", "Container", "Item", "Text", "Wanted", "read_container"]

Text = bytes | mmap.mmap

OPENING, CLOSING = b"{[", b"}]"
_QUOTE, _COMMA, _COLON = b'",:'
_SPACES = b" \t\r\n"
# Groups are repeated within an atomic group, never possessively: Python before 3.11.5 does not step back from the last,
# failed round of a possessive repetition (python/cpython#106052).
_REST = rb'[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_STRING = re.compile(rb'"' + _REST, re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb'[^"\[\]{},]*+')
#: Containers that one pattern passes over lie in each other up to this depth.
_DEEP = 7
_NESTED = rb"(?!)"
for _ in range(_DEEP):
    _NESTED = rb'[\[{](?>(?:[^"\\\[\]{}]++|"' + _REST + rb"|" + _NESTED + rb")*)[\]}]"
_FLAT = re.compile(_NESTED, re.DOTALL)
_KEY = re.compile(rb'"([^"\\]{0,512}+)"[ \t\r\n]{0,64}+:[ \t\r\n]{0,64}+')
#: Bytes that are looked at in one step where a value is long.
_BLOCK = 32768
#: Bytes that one pattern may take in at most.
_STRIDE = 4096
#: Bytes after which a step ends where there is much to see.
_BREATH = 1024

_Ends = Generator[None, None, int]


class Wanted:
    """The names of members that are to be found in an object, and how many items of a list."""

    def __init__(self, names: frozenset[str], most: int) -> None:
        self.names = names
        self.most = most
        self.raw = {name.encode("utf-8", "replace"): name for name in names}
        #: Bytes of the longest spelling of a name.
        self.longest = max((12 * len(name) for name in names), default=0)
        self.others = _others(names)


@functools.lru_cache(maxsize=256)
def _others(names: frozenset[str]) -> re.Pattern[bytes]:
    """A run of members with other names and small values, each with its comma."""
    either = b"|".join(re.escape(name.encode("utf-8", "replace")) for name in sorted(names)) or b"(?!)"
    space = rb"[ \t\r\n]{0,64}+"
    value = rb'(?:"' + _REST + rb'|[^"\[\]{},:]{1,256}+|' + _NESTED + rb")"
    member = space + rb'"(?!(?:' + either + rb')")[^"\\]{0,512}+"' + space + b":" + space + value + space + b","
    return re.compile(b"(?>(?:" + member + b")*)", re.DOTALL)


class Item:
    """A member of an object, or an item of a list; places in the text, -1 for what is not there."""

    __slots__ = ("after", "comma", "end", "name", "others", "start", "value")

    def __init__(self, name: str, comma: int, start: int, value: int, end: int, others: bool) -> None:
        self.name = name
        #: The comma before it, its first byte (of the key, if it has one), its value, the comma behind it.
        self.comma = comma
        self.start = start
        self.value = value
        self.end = end
        self.after = -1
        #: Whether items that were not asked for stand before it.
        self.others = others


class Container:
    """What was found in an object or a list."""

    __slots__ = ("close", "is_list", "items", "last_comma", "last_end", "others")

    def __init__(self, is_list: bool) -> None:
        self.is_list = is_list
        self.items: list[Item] = []
        #: Whether there are items that were not asked for.
        self.others = False
        #: The place of the closing bracket; -1 where there is none, or enough was seen before.
        self.close = -1
        #: Behind the last value or comma, and the last comma.
        self.last_end = 0
        self.last_comma = -1


def read_container(
    text: Text, start: int, size: int, wanted: Wanted, limit: int
) -> Generator[None, None, Container | None]:
    """Read the container between `start` and `size`; None when more than `limit` items of it are wanted."""
    found = Container(text[start : start + 1] == b"[")
    pos = start + 1
    found.last_end = pos
    breath = pos + _BREATH
    comma = -1
    last: Item | None = None
    while pos < size:
        if pos >= breath:
            yield
            breath = pos + _BREATH
        if not found.is_list and last is None:
            run = wanted.others.match(text, pos, pos + _STRIDE)
            if run is not None and pos < run.end() <= size:
                pos = found.last_end = run.end()
                comma = found.last_comma = pos - 1
                found.others = True
                continue
        char = text[pos]
        if char in _SPACES:
            pos = yield from _space_end(text, pos)
            if pos >= size:
                break
            char = text[pos]
        if char == _COMMA:
            comma = found.last_comma = pos
            pos += 1
            found.last_end = pos
            if last is not None:
                last.after, last = comma, None
            continue
        if char in CLOSING:
            found.close = pos
            break
        begin = pos
        name: str | None = ""
        if not found.is_list:
            name, pos = yield from _member(text, pos, wanted)
        end = min((yield from _value_end(text, pos, size)), size)
        if end == begin:  # a character that means nothing here
            end += 1
        if name is None:
            found.others, last = True, None
        else:
            last = Item(name, comma, begin, pos, end, found.others)
            found.items.append(last)
            if found.is_list and len(found.items) >= wanted.most:
                return found
            if len(found.items) > limit:
                return None
        comma = -1
        pos = found.last_end = end
    return found


def _member(text: Text, pos: int, wanted: Wanted) -> Generator[None, None, tuple[str | None, int]]:
    """The wanted name that a member begins with, if it is one, and where its value begins.

    What is no member, though it may have been meant as one, has neither name nor key.
    """
    if text[pos] != _QUOTE:
        return None, pos
    quick = _KEY.match(text, pos)
    if quick is not None:
        return wanted.raw.get(quick[1]), quick.end()
    string = _STRING.match(text, pos, pos + _STRIDE)
    end = string.end() if string is not None else (yield from _string_end(text, pos))
    name = _name(text, pos, end, wanted)
    colon = yield from _space_end(text, end)
    if colon >= len(text) or text[colon] != _COLON:
        return None, pos
    return name, (yield from _space_end(text, colon + 1))


def _value_end(text: Text, pos: int, size: int) -> _Ends:
    """Behind the value that begins at `pos`; `pos` itself if none does."""
    char = text[pos] if pos < size else _COMMA
    if char == _QUOTE:
        string = _STRING.match(text, pos, pos + _STRIDE)
        return string.end() if string is not None else (yield from _string_end(text, pos))
    if char in OPENING:
        flat = _FLAT.match(text, pos, pos + _STRIDE)
        return flat.end() if flat is not None else (yield from _container_end(text, pos))
    if char in CLOSING or char == _COMMA:
        return pos
    return (yield from _scalar_end(text, pos))


def _name(text: Text, start: int, end: int, wanted: Wanted) -> str | None:
    """The wanted name that a string in the text is, if it is one."""
    if end - start - 2 > wanted.longest:
        return None
    raw = text[start + 1 : end - 1]
    if b"\\" not in raw:
        return wanted.raw.get(raw)
    try:
        name = json.loads(b'"' + raw + b'"', strict=False)
    except ValueError:
        return None
    return name if name in wanted.names else None


def _space_end(text: Text, pos: int) -> _Ends:
    while (space := _SPACE.match(text, pos, pos + _BLOCK)) is not None and space.end() == pos + _BLOCK:
        pos = space.end()
        yield
    return space.end() if space is not None else pos


def _scalar_end(text: Text, pos: int) -> _Ends:
    """Behind the last byte of a number, of a word, or of what stands in their place."""
    end = pos
    while (scalar := _SCALAR.match(text, pos, pos + _BLOCK)) is not None:
        held = scalar[0].rstrip(_SPACES)
        if held:
            end = pos + len(held)
        pos = scalar.end()
        if len(scalar[0]) < _BLOCK:
            break
        yield
    return end


def _blanked(block: bytes) -> bytes:
    """`block` with escaped quotes and backslashes blanked: each quote that is left begins or ends a string."""
    if b"\\" in block:
        return block.replace(b"\\\\", b"\0\0").replace(b'\\"', b"\0\0")
    return block


class _Blocks:
    """Blocks of a text, blanked; an escape that is cut by the end of a block is taken care of."""

    __slots__ = ("_odd", "_text", "pos")

    def __init__(self, text: Text, pos: int) -> None:
        self._text = text
        self._odd = False
        self.pos = pos

    def next(self, size: int) -> bytes:
        """The next block of this size; empty at the end of the text."""
        block = self._text[self.pos : self.pos + size]
        self.pos += len(block)
        if self._odd and block[:1] in (b'"', b"\\"):
            block = b"\0" + block[1:]
        block = _blanked(block)
        self._odd = block.endswith(b"\\")
        return block


def _string_end(text: Text, pos: int) -> _Ends:
    """Behind the closing quote of the string that begins at `pos`; the end of the text if there is none."""
    blocks, size = _Blocks(text, pos + 1), 256
    while block := blocks.next(size):
        end = block.find(b'"')
        if end >= 0:
            return blocks.pos - len(block) + end + 1
        if size == _BLOCK:
            yield
        size = min(size * 4, _BLOCK)
    return len(text)


def _container_end(text: Text, pos: int) -> _Ends:
    """Behind the bracket that closes the container at `pos`; the end of the text if there is none.

    Begins with small blocks, as most containers are small.
    """
    blocks, size = _Blocks(text, pos), 256
    depth, in_string = 0, False
    while block := blocks.next(size):
        parts = block.split(b'"')
        depth, end = pass_brackets(parts, in_string, brackets_of(parts, in_string), depth)
        if end >= 0:
            return blocks.pos - len(block) + end
        in_string ^= len(parts) % 2 == 0
        if size == _BLOCK:
            yield
        size = min(size * 4, _BLOCK)
    return len(text)
