"""The tree of a document: scalars, lists and mappings that know their places.

Nodes may be shared (YAML aliases) and are never changed once they are composed; stages that replace something make
copies. Read `compose` next: where nodes come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from lswap.core.config.problems import NOWHERE, Place
from lswap.core.config.scalars import BAD, Bad, Value, kind_of, text_of

__all__ = [
    "Map",
    "Node",
    "Scalar",
    "Seq",
    "below",
    "describe",
    "is_bad",
    "is_null",
    "kind",
    "pairs_of",
    "place_of",
    "texts_of",
]


class Scalar:
    """One value; `text` is what was written."""

    __slots__ = ("place", "text", "value")

    def __init__(self, value: Value, place: Place = NOWHERE, text: str = "") -> None:
        self.value = value
        self.place = place
        self.text = text


class Seq:
    """A list."""

    __slots__ = ("items", "place")

    def __init__(self, items: list[Node], place: Place = NOWHERE) -> None:
        self.items = items
        self.place = place


class Map:
    """A mapping: keys are text, in the order of the file.

    `places` has those of the keys. `repeats` has the entries whose key stood there already: an error, but for the
    methods of an `http` hook.
    """

    __slots__ = ("entries", "place", "places", "repeats")

    def __init__(self, place: Place = NOWHERE) -> None:
        self.entries: dict[str, Node] = {}
        self.places: dict[str, Place] = {}
        self.repeats: list[tuple[str, Place, Node]] = []
        self.place = place

    def put(self, key: str, node: Node, place: Place = NOWHERE) -> None:
        """Set an entry; one that is there already keeps its turn."""
        self.entries[key] = node
        self.places[key] = place

    def get(self, key: str) -> Node | None:
        """The value of a key; None where it is absent."""
        return self.entries.get(key)

    def where(self, key: str) -> Place:
        """The place of an entry's value, else of the mapping itself."""
        node = self.entries.get(key)
        return self.place if node is None else node.place


Node = Union[Scalar, Seq, Map]  # noqa: UP007 - a forward reference to all three

_KINDS = {Scalar: 8, Seq: 2, Map: 4}


def kind(node: Node) -> int:
    """The number that the reference's messages have for the kind of a node."""
    return _KINDS[type(node)]


def describe(node: Node) -> str:
    """`!!map`, `!!seq`, or the type of the scalar."""
    if isinstance(node, Map):
        return "!!map"
    return "!!seq" if isinstance(node, Seq) else kind_of(node.value)


def pairs_of(node: Node | None) -> Iterator[tuple[str, Node]]:
    """The entries of a mapping; nothing for any other node."""
    return iter(node.entries.items() if isinstance(node, Map) else ())


def is_null(node: Node | None) -> bool:
    """Whether a value is absent or null."""
    return node is None or (isinstance(node, Scalar) and node.value is None)


def is_bad(node: Node | None) -> bool:
    """Whether something is reported about this value already."""
    return isinstance(node, Scalar) and node.value is BAD


def below(node: Node | None, *keys: str) -> Node | None:
    """The node under these keys; None if there is none."""
    for key in keys:
        node = node.get(key) if isinstance(node, Map) else None
    return node


def texts_of(node: Node | None) -> Iterator[tuple[str, Place]]:
    """The texts of a list with their places; what is none is passed over."""
    for item in node.items if isinstance(node, Seq) else ():
        if isinstance(item, Scalar) and item.value is not None and not isinstance(item.value, Bad):
            yield text_of(item.value), item.place


def place_of(node: Node | None, key: str, otherwise: Map) -> Place:
    """The place of an entry of a node, if that is a mapping; else of another one."""
    return node.where(key) if isinstance(node, Map) else otherwise.place
