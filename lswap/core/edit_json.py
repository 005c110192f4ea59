"""Edits a JSON body by splicing: members are removed, set and added, and every byte that need not change stays.

The rule for duplicates: of equal keys all are changed, since servers differ in which one they take.
A path leads through objects by name and through lists by index; what is missing on the way is made (a list for an
index, with `null` before it), and what is neither object nor list gives way. New members stand last. What is not quite
JSON (a BOM, NaN, trailing commas, control characters) stays as it is; an object that never ends gets no new members.
Works in steps, as `lswap.core.json_text` does; `lswap.core.filters` says what is to be done.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from lswap.core.json_text import OPENING, Container, Text, Wanted, read_container

__all__ = ["Edit", "EditError", "Parts", "Step", "encoded", "parse_path", "spliced"]

Parts = list[bytes | tuple[int, int]]
Path = tuple[str, ...]
_Work = Generator[None, None, None]

#: Members and items that one edit may look at; more are an attack.
_MOST = 1000
#: Digits of an index of a list.
_INDEX_DIGITS = 4


class EditError(Exception):
    """A body cannot be edited. `by_client` tells whose fault it is: the body's, or that of the settings."""

    def __init__(self, message: str, by_client: bool) -> None:
        super().__init__(message)
        self.by_client = by_client


class Step(msgspec.Struct, frozen=True):
    """One thing to do: set a value, given as JSON, or remove what is there (None). `label` is for messages."""

    path: Path
    value: bytes | None
    label: str


class Edit:
    """What is to be done to a body, one step after the other; removals first, as nothing new is to be removed."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(sorted(steps, key=lambda step: step.value is not None))
        removals = sum(step.value is None for step in steps)
        #: What has to be found in a container, by its depth.
        self.wanted: list[Wanted] = []
        for depth in range(max((len(step.path) for step in steps), default=0)):
            names = frozenset(step.path[depth] for step in steps if len(step.path) > depth)
            indices = [index for index in map(_index, names) if index is not None]
            # Each removal moves what stands behind it.
            self.wanted.append(Wanted(names, max(indices, default=0) + 1 + removals))


def parse_path(text: str) -> Path:
    """The names of a dotted path; a backslash takes the meaning from what follows it."""
    names, name = [], ""
    chars = iter(text)
    for char in chars:
        if char == "\\":
            name += next(chars, "")
        elif char == ".":
            names.append(name)
            name = ""
        else:
            name += char
    return (*names, name)


def encoded(value: Any) -> bytes:
    """A value as JSON, compact."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")


def spliced(text: Text, edit: Edit) -> Generator[None, None, Parts]:
    """The edited body: slices (start, end) of `text`, and new bytes between them. No slice when nothing is an object.

    @raise EditError: a name where a list wants an index, or too many equal keys.
    """
    start = text.find(b"{")
    if start < 0:
        return [(0, len(text))]
    root = _Node(text, start, len(text))
    work = _Editor(text, edit)
    for step in edit.steps:
        if step.value is None:
            yield from work.remove(root, step, 0)
        else:
            yield from work.set(root, step, 0)
    work.emit(text, 0, start)
    work.render(root)
    return work.parts


class _Node:
    """A value: a stretch of some text, and what was found in it once somebody looked."""

    __slots__ = ("end", "inside", "start", "text")

    def __init__(self, text: Text, start: int, end: int) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.inside: _Inside | None = None

    def become(self, value: bytes) -> None:
        """Be another value."""
        self.text, self.start, self.end, self.inside = value, 0, len(value), None


class _Inside:
    """A container with what was done to it."""

    __slots__ = ("added", "found", "live", "removed", "values")

    def __init__(self, found: Container, text: Text) -> None:
        self.found = found
        self.values = [_Node(text, item.value, item.end) for item in found.items]
        #: New items, in order: the key with its colon (nothing in a list), and the value.
        self.added: list[tuple[bytes, _Node]] = []
        self.removed: set[int] = set()
        #: The values that are there now, by number; negative numbers are new ones. For lists.
        self.live: list[_Node] = list(self.values)

    def at(self, name: str) -> list[_Node]:
        """The values with this name, or at this index."""
        if self.found.is_list:
            index = _index(name)
            return [self.live[index]] if index is not None and index < len(self.live) else []
        there = [
            node
            for number, node in enumerate(self.values)
            if self.found.items[number].name == name and number not in self.removed
        ]
        key = _key(name)
        return there + [node for prefix, node in self.added if prefix == key]

    def remove(self, name: str) -> None:
        """Take the members with this name out, or the item at this index. Nothing was added yet."""
        if self.found.is_list:
            for node in self.at(name):
                self.removed.add(next(number for number, one in enumerate(self.values) if one is node))
                self.live.remove(node)
        else:
            self.removed.update(number for number, item in enumerate(self.found.items) if item.name == name)

    def add(self, name: str, value: bytes) -> bool:
        """Put a value behind the last one; False when it has no place there."""
        if not self.found.is_list:
            self.added.append((_key(name), _Node(value, 0, len(value))))
            return True
        index = _index(name)
        if index is None:
            return False
        for new in [*[b"null"] * (index - len(self.live)), value]:
            node = _Node(new, 0, len(new))
            self.added.append((b"", node))
            self.live.append(node)
        return True


class _Editor:
    """One edit of one text."""

    def __init__(self, text: Text, edit: Edit) -> None:
        self.parts: Parts = []
        self._text = text
        self._wanted = edit.wanted
        self._left = _MOST + sum(wanted.most for wanted in edit.wanted)

    def _inside(self, node: _Node, depth: int) -> Generator[None, None, _Inside | None]:
        """What is in a value; None if it is no container."""
        if node.inside is None and node.start < node.end and node.text[node.start] in OPENING:
            found = yield from read_container(node.text, node.start, node.end, self._wanted[depth], self._left)
            if found is None:
                raise EditError(
                    f"request has more than {_MOST} members with names that are to be changed", by_client=True
                )
            self._left -= len(found.items)
            node.inside = _Inside(found, node.text)
        return node.inside

    def remove(self, node: _Node, step: Step, depth: int) -> _Work:
        """Take out what the path leads to from here on."""
        inside = yield from self._inside(node, depth)
        if inside is None:
            return
        name = step.path[depth]
        if depth + 1 == len(step.path):
            inside.remove(name)
            return
        for value in inside.at(name):
            yield from self.remove(value, step, depth + 1)

    def set(self, node: _Node, step: Step, depth: int) -> _Work:
        """Put the value to where the path leads from here on."""
        assert step.value is not None
        if depth == len(step.path):
            node.become(step.value)
            return
        inside = yield from self._inside(node, depth)
        if inside is None:
            node.become(_built(step.path[depth:], step.value))
            return
        name = step.path[depth]
        there = inside.at(name)
        for value in there:
            yield from self.set(value, step, depth + 1)
        if not there and not inside.add(name, _built(step.path[depth + 1 :], step.value)):
            raise EditError(f"error setting parameter {step.label} in request", by_client=False)

    # -- the result ----------------------------------------------------------------------

    def emit(self, text: Text, start: int, end: int) -> None:
        """Add a stretch of a text to the result."""
        if start >= end:
            return
        if text is not self._text:
            self.parts.append(text[start:end])
            return
        last = self.parts[-1] if self.parts else b""
        if isinstance(last, tuple) and last[1] == start:
            self.parts[-1] = (last[0], end)
        else:
            self.parts.append((start, end))

    def _say(self, new: bytes) -> None:
        if new:
            self.parts.append(new)

    def render(self, node: _Node) -> None:
        """Add a value to the result, with all that was done in it."""
        inside = node.inside
        if inside is None:
            self.emit(node.text, node.start, node.end)
            return
        text, pos, kept = node.text, node.start, False
        for number, (item, value) in enumerate(zip(inside.found.items, inside.values, strict=True)):
            kept = kept or item.others
            if number not in inside.removed:
                kept = True
                self.emit(text, pos, item.value)
                self.render(value)
                pos = item.end
                continue
            with_comma = kept and item.comma >= 0
            self.emit(text, pos, item.comma if with_comma else item.start)
            pos = item.end if kept or item.after < 0 else item.after + 1
        pos = self._render_added(inside, text, pos, kept or inside.found.others)
        self.emit(text, pos, node.end)

    def _render_added(self, inside: _Inside, text: Text, pos: int, kept: bool) -> int:
        found = inside.found
        if not inside.added or found.close < 0:
            return pos
        point = max(pos, found.last_end)
        self.emit(text, pos, point)
        hangs = found.last_comma >= pos and found.last_comma + 1 == found.last_end
        comma = kept and not hangs
        for prefix, value in inside.added:
            self._say((b"," if comma else b"") + prefix)
            self.render(value)
            comma = True
        return point


def _index(name: str) -> int | None:
    """The index that a name is, if it is one."""
    return int(name) if name.isascii() and name.isdigit() and len(name) <= _INDEX_DIGITS else None


@functools.lru_cache(maxsize=1024)
def _key(name: str) -> bytes:
    return encoded(name) + b":"


def _built(path: Path, value: bytes) -> bytes:
    """The value at the end of a path that is made for it."""
    for name in reversed(path):
        index = _index(name)
        value = b"{" + _key(name) + value + b"}" if index is None else b"[" + b"null," * index + value + b"]"
    return value
