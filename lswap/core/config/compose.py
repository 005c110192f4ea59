"""YAML text → a tree of nodes.

Decides: scalar types (through `scalars`), aliases, merge keys, duplicate keys, and the bounds that keep a small file
from becoming a big tree. Works on the parser's events, so nothing here recurses. Read `merge` next.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from lswap.core.config.nodes import Map, Node, Scalar, Seq
from lswap.core.config.problems import NOWHERE, Place, Report
from lswap.core.config.scalars import BAD, ScalarError, resolve

__all__ = ["Composer"]

#: How deep a document may be nested, aliases followed.
DEPTH = 100
#: How many nodes a document may become when its aliases are followed: this many, and a multiple of those written.
SIZE, SIZE_FACTOR = 100_000, 20


class _Open:
    """A collection that is being read."""

    __slots__ = ("anchor", "depth", "key", "key_place", "merges", "node", "size")

    def __init__(self, node: Seq | Map, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: str | None = None
        self.key_place = NOWHERE
        self.merges: list[tuple[int, Place, Node]] = []
        self.size = 1
        self.depth = 0


class _Unfit(Exception):
    """The document cannot become a tree; reading ends."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.place = place


_MERGE = "\0<<"  # cannot be a key: YAML has no NUL
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_ALIEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


class Composer:
    """Reads the first document of one text."""

    def __init__(self, report: Report, file: int) -> None:
        self._report = report
        self._file = file
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._stack: list[_Open] = []
        self._root: Node | None = None
        self._written = 0
        self._opened: dict[str, int] = {}
        #: Mappings in which a key stands twice, with their paths.
        self.repeated: list[tuple[Map, str]] = []
        #: Where anchors are.
        self.anchored: set[Place] = set()

    def compose(self, text: str) -> Node | None:
        """The document's root, or None for an empty or unreadable one (which is reported)."""
        if alien := _ALIEN.search(text):
            self._fail(alien.start(), f"control characters are not allowed (U+{ord(alien[0]):04X})")
            return None
        loader = yaml.CSafeLoader(text)
        try:
            while (event := loader.get_event()) is not None:
                if isinstance(event, yaml.DocumentEndEvent):
                    break
                self._take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._fail(mark.index if mark else 0, _wording(error))
            return None
        except yaml.YAMLError:
            self._fail(0, "not YAML")
            return None
        except _Unfit as error:
            self._fail(error.place.at, str(error))
            return None
        return self._root

    def _fail(self, index: int, message: str) -> None:
        path = self._report.texts[self._file].path
        self._report.error(Place(self._file, index), "", f"failed to parse config {path}: {message}")

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind in _ENDS:
            self._close()
            return
        place = Place(self._file, event.start_mark.index)
        if kind is yaml.ScalarEvent:
            self._scalar(event, place)
        elif kind is yaml.MappingStartEvent:
            self._open(Map(place), event.anchor, place)
        elif kind is yaml.SequenceStartEvent:
            self._open(Seq([], place), event.anchor, place)
        elif kind is yaml.AliasEvent:
            self._alias(event.anchor or "", place)

    def _scalar(self, event: Any, place: Place) -> None:
        plain, tag = event.implicit[0], event.tag
        text = event.value
        try:
            value = resolve(text, plain, tag)
        except ScalarError as error:
            self._fail(place.at, str(error))
            value = BAD
        if text == "<<" and (plain if tag is None else tag == "tag:yaml.org,2002:merge"):
            top = self._stack[-1] if self._stack else None
            if top is not None and isinstance(top.node, Map) and top.key is None:
                text = _MERGE
        node = Scalar(value, place, text)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, 1, 0)
            self.anchored.add(place)
        self._add(node, 1, 0, place)

    def _open(self, node: Seq | Map, anchor: str | None, place: Place) -> None:
        if len(self._stack) >= DEPTH:
            raise _Unfit(f"nested more than {DEPTH} levels deep", place)
        if self._stack and isinstance(self._stack[-1].node, Map) and self._stack[-1].key is None:
            raise _Unfit("a key must be text", place)
        if anchor is not None:
            self._anchors.pop(anchor, None)
            self._opened[anchor] = self._opened.get(anchor, 0) + 1
            self.anchored.add(place)
        self._stack.append(_Open(node, anchor))

    def _close(self) -> None:
        top = self._stack.pop()
        if isinstance(top.node, Map) and top.merges:
            self._merge(top.node, top.merges)
        if top.anchor is not None:
            self._opened[top.anchor] -= 1
            self._anchors[top.anchor] = (top.node, top.size, top.depth + 1)
        self._add(top.node, top.size, top.depth + 1, top.node.place)

    def _alias(self, anchor: str, place: Place) -> None:
        # The name is not shown: it may be the first part of an unquoted secret.
        if anchor in self._anchors:
            node, size, depth = self._anchors[anchor]
        elif self._opened.get(anchor):
            raise _Unfit("anchor contains itself", place)
        else:
            raise _Unfit("unknown anchor", place)
        self._add(node, size, depth, place)

    def _add(self, node: Node, size: int, depth: int, place: Place) -> None:
        """Put a complete node where it belongs."""
        self._written += 1
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.size += size
        top.depth = max(top.depth, depth)
        if top.size > SIZE + SIZE_FACTOR * self._written:
            raise _Unfit("aliases make this document too large", place)
        if len(self._stack) + depth > DEPTH:
            raise _Unfit(f"nested more than {DEPTH} levels deep", place)
        if isinstance(top.node, Seq):
            top.node.items.append(node)
        elif top.key is None:
            top.key, top.key_place = self._key(node, place), place
        else:
            self._entry(top, node)

    def _key(self, node: Node, place: Place) -> str:
        if not isinstance(node, Scalar):
            raise _Unfit("a key must be text", place)
        if node.value is None:
            return "null"
        # As written, not as the number that it may be: `1.10` names another thing than `1.1`.
        return node.text

    def _entry(self, top: _Open, node: Node) -> None:
        assert isinstance(top.node, Map) and top.key is not None
        key, top.key = top.key, None
        if key == _MERGE:
            top.merges.append((len(top.node.entries), top.key_place, node))
        elif key in top.node.entries:
            if not top.node.repeats:
                self.repeated.append((top.node, self._path()))
            top.node.repeats.append((key, top.key_place, node))
        else:
            top.node.put(key, node, top.key_place)

    def _path(self) -> str:
        """The path of the collection that is being read."""
        path = ""
        for outer in self._stack[:-1]:
            if isinstance(outer.node, Seq):
                path += f"[{len(outer.node.items)}]"
            else:
                path += f".{outer.key}" if path else str(outer.key)
        return path

    def _merge(self, node: Map, merges: list[tuple[int, Place, Node]]) -> None:
        """Fill in what `<<` names: own entries win, but take the turn of those that they replace."""
        own, places = node.entries, node.places
        turns = list(own)
        node.entries, node.places = {}, {}
        done = 0
        for before, place, value in merges:
            for key in turns[done:before]:
                node.entries.setdefault(key, own[key])
                node.places.setdefault(key, places[key])
            done = before
            for source in value.items if isinstance(value, Seq) else [value]:
                if not isinstance(source, Map):
                    self._fail(place.at, "map merge requires map or sequence of maps as the value")
                    continue
                for key, entry in source.entries.items():
                    if key not in node.entries:
                        node.put(key, own.get(key, entry), places.get(key, source.places[key]))
        for key in turns[done:]:
            node.entries.setdefault(key, own[key])
            node.places.setdefault(key, places[key])


def _wording(error: yaml.MarkedYAMLError) -> str:
    """What the parser says, in one line, without text of the file."""
    return ", ".join(part for part in (error.problem, error.context) if part)
