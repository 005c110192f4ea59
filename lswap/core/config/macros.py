"""`${name}` in the values of a configuration: declaring macros, replacing them, finding what is left over.

Decides exactly what the reference's configuration, section 4, says: macros are applied one at a time from the last
declared to the first, a value that is nothing but `${name}` takes the macro's type, mapping keys are left alone.
Works on nodes and shares what has nothing to replace. Read `ports` next.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping

from lswap.core.config.nodes import Map, Node, Scalar, Seq
from lswap.core.config.problems import NOWHERE, Place, Report
from lswap.core.config.scalars import BAD, Bad, Timestamp, Value, text_of

__all__ = ["RESERVED", "Budget", "Macros", "declare", "leftovers", "rename", "rewrite"]

#: Names that lswap gives values to.
RESERVED = ("PORT", "MODEL_ID", "PID")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_USE = re.compile(r"\$\{([a-zA-Z0-9_-]+)\}")
_LEFT = re.compile(r"\$\{(?:([a-zA-Z0-9_-]+)|env\.([a-zA-Z_][a-zA-Z0-9_]*))\}")
_LONGEST_NAME = 63
#: Characters that one value may grow to; no system takes longer commands.
_LONGEST_TEXT = 1 << 20

Declared = dict[str, Value]


class Budget:
    """How much text the macros of one load may produce and look through: a small file must stay small."""

    def __init__(self, size: int) -> None:
        """`size`: characters of all sources."""
        self._left = (16 << 20) + 1000 * size

    def spend(self, characters: int) -> bool:
        """Take that much; False when nothing is left."""
        self._left -= characters
        return self._left >= 0


def declare(node: Node | None, path: str, owner: str, report: Report) -> Declared:
    """The macros of one `macros` block, in order; bad ones are reported and hold `BAD`.

    `owner` begins the messages: `model <id>: `, or nothing for the global block.
    """
    declared: Declared = {}
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return declared
    if not isinstance(node, Map):
        if not (isinstance(node, Scalar) and node.value is BAD):
            report.error(node.place, path, f"{owner}macros must be a mapping")
        return declared
    for name, value in node.entries.items():
        reason = _refusal(name, value)
        if reason:
            report.error(node.places.get(name, NOWHERE), f"{path}.{name}", owner + reason)
            declared[name] = BAD
        else:
            assert isinstance(value, Scalar)
            declared[name] = value.value
    return declared


def _refusal(name: str, value: Node) -> str:
    """Why a macro cannot be declared; empty if it can."""
    if len(name.encode()) > _LONGEST_NAME:
        return f"macro name '{name}' exceeds maximum length of {_LONGEST_NAME} characters"
    if not _NAME.fullmatch(name):
        return f"macro name '{name}' contains invalid characters, must match pattern ^[a-zA-Z0-9_-]+$"
    content = value.value if isinstance(value, Scalar) else None
    if content is BAD:
        return ""
    if content is None or isinstance(content, Timestamp):
        what = "map" if isinstance(value, Map) else "list" if isinstance(value, Seq) else _type_name(content)
        return f"macro '{name}' has invalid type {what}, must be a scalar type (string, int, float, or bool)"
    if isinstance(content, str) and f"${{{name}}}" in content:
        return f"macro '{name}' contains self-reference"
    if name in RESERVED:
        return f"macro name '{name}' is reserved"
    return ""


def _type_name(content: Value) -> str:
    return "null" if content is None else "timestamp"


class Macros:
    """A list of macros, ready to be applied."""

    def __init__(self, declared: Mapping[str, Value], report: Report, budget: Budget) -> None:
        self._names = list(declared)
        self._values = list(declared.values())
        self._turn = {name: turn for turn, name in enumerate(self._names)}
        self._report = report
        self._budget = budget

    def for_model(self, model_id: str, own: Mapping[str, Value]) -> Macros:
        """One model's list: its ID, the global macros (its own value in the place of one it redefines), its own."""
        declared: Declared = {"MODEL_ID": model_id}
        for name, value in zip(self._names, self._values, strict=True):
            declared[name] = own.get(name, value)
        declared.update({name: value for name, value in own.items() if name not in declared})
        return Macros(declared, self._report, self._budget)

    def with_port(self, port: int) -> Macros:
        """The same list with `PORT`, which is applied after all others."""
        declared = {"PORT": port, **dict(zip(self._names, self._values, strict=True))}
        return Macros(declared, self._report, self._budget)

    def text(self, text: str, place: Place, path: str) -> Value:
        """One value with all macros applied; `BAD` if it grows beyond all bounds (reported)."""
        turn = len(self._names)
        while True:
            best = -1
            for name in _USE.findall(text):
                at = self._turn.get(name, -1)
                if best < at < turn:
                    best = at
            if best < 0:
                return text
            turn = best
            value, use = self._values[best], f"${{{self._names[best]}}}"
            if isinstance(value, Bad):
                return BAD
            if text == use:
                if not isinstance(value, str):
                    return value
                text = value
            else:
                insert = text_of(value) if value is not None else ""
                size = len(text) + text.count(use) * len(insert)
                if size > _LONGEST_TEXT or not self._budget.spend(8 * size):
                    self._report.error(place, path, f"macro '{self._names[best]}' makes this value too large")
                    return BAD
                text = text.replace(use, insert)
            if not self._budget.spend(len(text)):
                self._report.error(place, path, "macros make this configuration too large")
                return BAD


#: What becomes of a text: called with the text, its place and its path.
Visit = Callable[[str, Place, str], Value]


def rewrite(node: Node, path: str, visit: Visit) -> Node:
    """A node in which `visit` decided about every text with `${` in it; itself where nothing changed.

    Mapping keys stay. What is shared (by aliases) is visited once, under the first of its paths.
    """
    return _rewrite(node, path, visit, {})


def _rewrite(node: Node, path: str, visit: Visit, memo: dict[int, Node]) -> Node:
    if isinstance(node, Scalar):
        old = node.value
        if not isinstance(old, str) or "${" not in old:
            return node
        value = visit(old, node.place, path)
        return node if value is old else Scalar(value, node.place, node.text)
    result = memo.get(id(node))
    if result is not None:
        return result
    if isinstance(node, Seq):
        items = [_rewrite(item, f"{path}[{at}]", visit, memo) for at, item in enumerate(node.items)]
        changed = any(map(operator.is_not, items, node.items))
        result = Seq(items, node.place) if changed else node
    else:
        result = _rewrite_map(node, path, visit, memo)
    memo[id(node)] = result
    return result


def _rewrite_map(node: Map, path: str, visit: Visit, memo: dict[int, Node]) -> Map:
    start = f"{path}." if path else ""
    values = [_rewrite(value, start + key, visit, memo) for key, value in node.entries.items()]
    repeats = [(key, place, _rewrite(value, start + key, visit, memo)) for key, place, value in node.repeats]
    if not any(map(operator.is_not, values, node.entries.values())) and all(
        new[2] is old[2] for new, old in zip(repeats, node.repeats, strict=True)
    ):
        return node
    result = Map(node.place)
    result.entries = dict(zip(node.entries, values, strict=True))
    result.places = node.places
    result.repeats = repeats
    return result


def rename(node: Map, path: str, visit: Visit) -> tuple[Map, list[tuple[str, str, Place]]]:
    """A mapping whose keys went through `visit`; and pairs of keys that became the same, with the second's place."""
    result = Map(node.place)
    written: dict[str, str] = {}
    collisions: list[tuple[str, str, Place]] = []
    for key, value in node.entries.items():
        place = node.places[key]
        new = visit(key, place, path) if "${" in key else key
        if isinstance(new, Bad):
            continue
        name = text_of(new) if new is not None else ""
        if name in written:
            collisions.append((written[name], key, place))
        else:
            written[name] = key
            result.put(name, value, place)
    return result, collisions


def leftovers(text: str) -> Iterator[tuple[str, bool]]:
    """The macros that are still in a text: name, and whether it is one of the environment."""
    for match in _LEFT.finditer(text):
        yield (match[1], False) if match[1] is not None else (match[2], True)
