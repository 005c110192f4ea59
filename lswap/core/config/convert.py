"""Nodes → values of the fields of a struct. The walker knows every key from the structs, and collects what is wrong.

Decides the conversions of the reference's configuration, section 3: a text key takes any scalar, a whole number cuts
fractions, null leaves the default. A value that does not fit is reported and left out. Read `models` next.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import msgspec

from lswap.core.config import units
from lswap.core.config.nodes import Map, Node, Scalar, Seq, describe, is_null
from lswap.core.config.problems import HIDDEN, Report
from lswap.core.config.scalars import BAD, Bad, Timestamp, text_of
from lswap.core.model_parts import Size

__all__ = ["ABSENT", "Field", "Walker", "fields_of", "plain", "unknown_key"]


class _Absent:
    """No value: the key keeps its default."""


ABSENT: Any = _Absent()
_YES = dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True)
_BOOLEANS = _YES | dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False)
_LARGEST = (1 << 63) - 1

Convert = Callable[["Walker", Node, str], Any]


class Field(msgspec.Struct, frozen=True):
    """One key of a section."""

    #: The key in the file.
    key: str
    #: The field in the struct.
    name: str
    convert: Convert


class Walker:
    """Reads nodes; one a load."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def section(
        self, node: Node | None, cls: type, path: str, more: Iterable[str] = (), strict: bool = False
    ) -> dict[str, Any]:
        """The fields of a struct that a mapping has good values for. `more`: keys that somebody else reads.

        An unknown key is a warning, or an error where `strict`.
        """
        values: dict[str, Any] = {}
        mapping = self.mapping(node, path)
        if mapping is None:
            return values
        fields = fields_of(cls)
        for key, child in mapping.entries.items():
            known = fields.get(key)
            if known is None:
                if key not in more:
                    unknown_key(self.report, mapping, key, path, [*fields, *more], strict)
                continue
            value = known.convert(self, child, f"{path}.{key}" if path else key)
            if value is not ABSENT:
                values[known.name] = value
        return values

    def mapping(self, node: Node | None, path: str, what: str = "map") -> Map | None:
        """The node as a mapping; None if it is absent, null or (reported) something else."""
        if node is None or isinstance(node, Map):
            return node
        if not (isinstance(node, Scalar) and (node.value is None or node.value is BAD)):
            self.mismatch(node, path, what, "a mapping")
        return None

    def items(self, node: Node | None, path: str, what: str = "[]string", secret: bool = False) -> list[Node]:
        """The items of a list; none if it is absent, null or (reported) something else."""
        if isinstance(node, Seq):
            return node.items
        if node is not None and not (isinstance(node, Scalar) and (node.value is None or node.value is BAD)):
            self.mismatch(node, path, what, "a list", secret)
        return []

    def mismatch(self, node: Node, path: str, what: str, hint: str, secret: bool = False) -> None:
        """Report a value of the wrong type."""
        value = ""
        if isinstance(node, Scalar):
            value = f" `{HIDDEN if secret else self.report.shown(_raw(node))}`"
        self.report.error(node.place, path, f"cannot unmarshal {describe(node)}{value} into {what}", f"expected {hint}")

    def text(self, node: Node, path: str, secret: bool = False) -> Any:
        """Any scalar, as its canonical text."""
        if not isinstance(node, Scalar):
            self.mismatch(node, path, "string", "a text", secret)
            return ABSENT
        if node.value is None or isinstance(node.value, Bad):
            return ABSENT
        text = text_of(node.value)
        if "\0" in text:
            # No program, file or header can be told such a text.
            self.report.error(node.place, path, "a text cannot have a null character in it")
            return ABSENT
        return text

    def boolean(self, node: Node, path: str) -> Any:
        """true or false, or one of the old words for them."""
        value = node.value if isinstance(node, Scalar) else node
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _BOOLEANS:
            return _BOOLEANS[value]
        return self._not(node, path, "bool", "true or false")

    def whole(self, node: Node, path: str) -> Any:
        """A whole number of 64 bits; a fraction is cut."""
        value = node.value if isinstance(node, Scalar) else node
        if type(value) is float and math.isfinite(value) and abs(value) <= _LARGEST:
            return int(value)
        if type(value) is int and -_LARGEST - 1 <= value <= _LARGEST:
            return value
        return self._not(node, path, "int", "a whole number")

    def number(self, node: Node, path: str) -> Any:
        """Any finite number."""
        value = node.value if isinstance(node, Scalar) else node
        if type(value) in (int, float) and math.isfinite(value):  # type: ignore[arg-type]
            return float(value)  # type: ignore[arg-type]
        return self._not(node, path, "float", "a number")

    def _not(self, node: Node, path: str, what: str, hint: str) -> Any:
        if not (isinstance(node, Scalar) and (node.value is None or node.value is BAD)):
            self.mismatch(node, path, what, hint)
        return ABSENT

    def texts(self, node: Node, path: str, secret: bool = False) -> Any:
        """A list of texts; null items are dropped."""
        if isinstance(node, Scalar) and (node.value is None or node.value is BAD):
            return ABSENT
        found = [
            self.text(item, f"{path}[{at}]", secret) for at, item in enumerate(self.items(node, path, secret=secret))
        ]
        return tuple(text for text in found if text is not ABSENT) if isinstance(node, Seq) else ABSENT

    def measure(self, node: Node, path: str, read: Callable[[str], float | None], what: str, hint: str) -> Any:
        """A number with a unit, or a bare one."""
        value = node.value if isinstance(node, Scalar) else node
        if type(value) in (int, float) and math.isfinite(value) and value >= 0:  # type: ignore[arg-type,operator]
            return int(value) if read is units.size else float(value)  # type: ignore[arg-type]
        if isinstance(value, str) and not isinstance(value, Timestamp):
            result = read(value)
            if result is not None:
                return result
        return self._not(node, path, what, hint)


def _raw(node: Scalar) -> str:
    return node.value if isinstance(node.value, str) else node.text


def unknown_key(report: Report, mapping: Map, key: str, path: str, known: Iterable[str], strict: bool = False) -> None:
    """Tell of a key that means nothing, with the nearest one that does."""
    say = report.error if strict else report.warn
    hint = report.did_you_mean(key, known)
    say(mapping.places[key], f"{path}.{key}" if path else key, f'unknown key "{report.shown(key)}"', hint)


def plain(node: Node, memo: dict[int, Any] | None = None) -> Any:
    """Any value as JSON can carry it: a float without fraction is a whole number, as in the reference's output."""
    if isinstance(node, Scalar):
        value = node.value
        if isinstance(value, Timestamp):
            return str(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                return text_of(value)
            return int(value) if value.is_integer() and abs(value) < 1e21 else value
        return None if isinstance(value, Bad) else value
    memo = {} if memo is None else memo
    if id(node) not in memo:
        memo[id(node)] = (
            [plain(item, memo) for item in node.items]
            if isinstance(node, Seq)
            else {key: plain(value, memo) for key, value in node.entries.items()}
        )
    return memo[id(node)]


@functools.cache
def fields_of(cls: type) -> dict[str, Field]:
    """The keys of a struct, by their names in the file."""
    return {
        info.encode_name: Field(info.encode_name, info.name, convert)
        for info in msgspec.structs.fields(cls)
        if (convert := _converter(info.type, {})) is not None
    }


def _converter(kind: Any, extra: dict[str, Any]) -> Convert | None:
    """How a value of this type is read; None for what is no key."""
    if typing.get_origin(kind) is Annotated:
        inner, *notes = typing.get_args(kind)
        for note in notes:
            extra = {**_bounds(note), **(note.extra or {}), **extra}
        return _converter(inner, extra)
    if extra.get("key") is False:
        return None
    convert = _special(extra) or _by_type(kind, extra)
    return _bounded(convert, extra) if extra.keys() & {"ge", "gt", "le"} else convert


def _bounds(note: msgspec.Meta) -> dict[str, Any]:
    return {name: bound for name in ("ge", "gt", "le") if (bound := getattr(note, name)) is not None}


def _special(extra: dict[str, Any]) -> Convert | None:
    match extra.get("as"):
        case "whole":
            return Walker.whole
        case "size":
            return lambda walk, node, path: walk.measure(node, path, units.size, "size", "bytes, or a text like 20G")
        case "duration":
            return lambda walk, node, path: walk.measure(
                node, path, units.seconds, "duration", "seconds, or a text like 90s, 15m, 12h, 7d"
            )
        case "go_duration":
            return _go_duration
        case "names":
            return _names
        case "memory":
            return _memory
        case "skip" | "sleep":
            return lambda walk, node, path: ABSENT
    return None


def _go_duration(walk: Walker, node: Node, path: str) -> Any:
    value = node.value if isinstance(node, Scalar) else None
    result = units.go_duration(value) if isinstance(value, str) else None
    return walk._not(node, path, "time.Duration", "a duration like 5s or 1m30s") if result is None else result


def _memory(walk: Walker, node: Node, path: str) -> Any:
    """`auto` is no size of anything: who wants it looks at the node."""
    return ABSENT if isinstance(node, Scalar) and node.value == "auto" else _table(Size)(walk, node, path)


def _names(walk: Walker, node: Node, path: str) -> Any:
    text = walk.text(node, path)
    if text is ABSENT:
        return ABSENT
    return tuple(sorted({name.strip() for name in text.split(",")} - {"", "model"}))


def _by_type(kind: Any, extra: dict[str, Any]) -> Convert:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    secret = bool(extra.get("secret"))
    if origin in (types.UnionType, typing.Union):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        convert = _converter(inner, {})
        assert convert is not None
        return convert
    if origin is Literal:
        return lambda walk, node, path: _choice(walk, node, path, arguments)
    if origin is tuple:
        assert arguments[0] is str
        return lambda walk, node, path: walk.texts(node, path, secret)
    if origin is dict:
        return _table(arguments[1])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return lambda walk, node, path: _struct(walk, node, path, kind)
    if kind is Any:
        return lambda walk, node, path: plain(node)
    if kind is str:
        return lambda walk, node, path: walk.text(node, path, secret)
    return {bool: Walker.boolean, int: Walker.whole, float: Walker.number}[kind]


def _struct(walk: Walker, node: Node, path: str, cls: type[msgspec.Struct]) -> Any:
    mapping = walk.mapping(node, path)
    return ABSENT if mapping is None else cls(**walk.section(mapping, cls, path))


def _table(kind: Any) -> Convert:
    convert = _converter(kind, {})
    assert convert is not None

    empty: Any = "" if kind is str else {} if typing.get_origin(kind) is dict else ABSENT

    def read(walk: Walker, node: Node, path: str) -> Any:
        mapping = walk.mapping(node, path)
        if mapping is None:
            return ABSENT
        found: dict[str, Any] = {}
        for key, child in mapping.entries.items():
            value = convert(walk, child, f"{path}.{key}")
            if value is ABSENT and is_null(child):
                value = empty
            if value is not ABSENT:
                found[key] = value
        return found

    return read


def _choice(walk: Walker, node: Node, path: str, words: tuple[str, ...]) -> Any:
    text = walk.text(node, path)
    if text is ABSENT or text in words:
        return text
    walk.report.error(
        node.place, path, f'"{walk.report.shown(text)}" is not possible here', f"one of: {', '.join(words)}"
    )
    return ABSENT


def _bounded(convert: Convert, extra: dict[str, Any]) -> Convert:
    least, above, most = extra.get("ge"), extra.get("gt"), extra.get("le")

    def read(walk: Walker, node: Node, path: str) -> Any:
        value = convert(walk, node, path)
        if value is ABSENT:
            return value
        if least is not None and value < least:
            walk.report.error(node.place, path, f"must be >= {least}")
        elif above is not None and value <= above:
            walk.report.error(node.place, path, f"must be > {above}")
        elif most is not None and value > most:
            walk.report.error(node.place, path, f"must be <= {most}")
        else:
            return value
        return ABSENT

    return read
