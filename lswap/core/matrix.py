"""The matrix language: expressions that say which models may run together → a parsed form.

Decides tokens, grammar, references and their errors (configuration reference, section 9.3). Expressions are never
expanded. Choosing what to evict is somebody else's: it walks the parsed form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Union

import msgspec

__all__ = [
    "All",
    "Expression",
    "Leaf",
    "Matrix",
    "MatrixSet",
    "MatrixSyntaxError",
    "OneOf",
    "Reference",
    "atoms",
    "ordered",
    "parse",
    "rename",
    "together",
]


class Leaf(msgspec.Struct, frozen=True):
    """One model, by its ID (as parsed: by the name in the expression)."""

    model: str


class Reference(msgspec.Struct, frozen=True):
    """All that another set stands for."""

    set: str


class All(msgspec.Struct, frozen=True):
    """`a & b`: one choice of each part, together."""

    parts: tuple[Expression, ...]


class OneOf(msgspec.Struct, frozen=True):
    """`a | b`: one of the parts."""

    parts: tuple[Expression, ...]


Expression = Union[Leaf, Reference, All, OneOf]  # noqa: UP007 - a forward reference


class MatrixSet(msgspec.Struct, frozen=True):
    """One named set."""

    name: str
    expression: Expression


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The whole section, names resolved to model IDs."""

    #: In the order that decides ties: as defined, but what is referenced comes before what refers to it.
    sets: tuple[MatrixSet, ...]
    #: Model ID to the cost of evicting it; 1 where unnamed.
    costs: dict[str, int] = {}


class MatrixSyntaxError(ValueError):
    """An expression is none; the text says what and where."""


class _Token(NamedTuple):
    kind: str  # one of: name + ( ) & | end
    text: str


_NESTING = 100
_END = _Token("end", "")


def _is_name(character: str) -> bool:
    return character.isalpha() or character.isdecimal() or character in "_-."


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        character = text[at]
        start = at
        at += 1
        if character.isspace():
            continue
        if character in "()&|":
            tokens.append(_Token(character, character))
            continue
        if character != "+" and not _is_name(character):
            raise MatrixSyntaxError(f"tokenize: unexpected character '{character}' at position {start}")
        while at < len(text) and _is_name(text[at]):
            at += 1
        if character != "+":
            tokens.append(_Token("name", text[start:at]))
        elif at > start + 1:
            tokens.append(_Token("+", text[start + 1 : at]))
        else:
            raise MatrixSyntaxError(f"tokenize: expected set name after '+' at position {start}")
    return tokens


def parse(text: str) -> Expression:
    """The parsed form of one expression, names as they stand there. MatrixSyntaxError if it is none."""
    text = text.strip()
    if not text:
        raise MatrixSyntaxError("empty DSL expression")
    parser = _Parser(_tokens(text))
    result = parser.alternatives(0)
    if (rest := parser.peek()) is not _END:
        raise MatrixSyntaxError(f'parse: unexpected token "{rest.text}" after expression')
    return result


class _Parser:
    """One pass over the tokens; `&` binds tighter than `|`."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def alternatives(self, depth: int) -> Expression:
        parts = [self._together(depth)]
        while self.peek().kind == "|":
            self._at += 1
            parts.append(self._together(depth))
        return parts[0] if len(parts) == 1 else OneOf(tuple(parts))

    def _together(self, depth: int) -> Expression:
        parts = [self._atom(depth)]
        while self.peek().kind == "&":
            self._at += 1
            parts.append(self._atom(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _atom(self, depth: int) -> Expression:
        token = self.peek()
        self._at += 1
        if token.kind == "name":
            return Leaf(token.text)
        if token.kind == "+":
            return Reference(token.text)
        if token.kind != "(":
            raise MatrixSyntaxError(f'parse: unexpected token "{token.text}"')
        if depth >= _NESTING:
            raise MatrixSyntaxError(f"parse: more than {_NESTING} parentheses inside each other")
        result = self.alternatives(depth + 1)
        if self.peek().kind != ")":
            raise MatrixSyntaxError("parse: missing closing parenthesis")
        self._at += 1
        return result


def atoms(expression: Expression) -> Iterable[Leaf | Reference]:
    """All leaves and references, from left to right."""
    stack = [expression]
    while stack:
        top = stack.pop()
        if isinstance(top, (Leaf, Reference)):
            yield top
        else:
            stack += reversed(top.parts)


def rename(expression: Expression, name: Callable[[str], str]) -> Expression:
    """The same expression with every leaf renamed."""
    if isinstance(expression, Leaf):
        return Leaf(name(expression.model))
    if isinstance(expression, Reference):
        return expression
    return type(expression)(tuple(rename(part, name) for part in expression.parts))


def ordered(sets: Mapping[str, Expression]) -> tuple[list[str], list[str]]:
    """The names of sets so that what is referenced comes first; and the sets that refer to themselves, in a circle.

    Otherwise the order of definition is kept. References to sets that do not exist are passed over.
    """
    order: dict[str, None] = {}
    circular: list[str] = []
    for first in sets:
        path: list[tuple[str, list[str]]] = [(first, _references(sets[first]))] if first not in order else []
        open_names = {first}
        while path:
            name, waiting = path[-1]
            if not waiting:
                path.pop()
                open_names.discard(name)
                order[name] = None
                continue
            following = waiting.pop(0)
            if following in open_names:
                circular.append(following)
            elif following in sets and following not in order:
                open_names.add(following)
                path.append((following, _references(sets[following])))
    return list(order), circular


def _references(expression: Expression) -> list[str]:
    return [atom.set for atom in atoms(expression) if isinstance(atom, Reference)]


#: More partial choices than these are not looked through.
_CHOICES = 2000


class _TooMany(Exception):
    pass


def together(matrix: Matrix, models: Collection[str]) -> bool:
    """Whether one choice in one set covers all these models, so that they may run side by side.

    True also where this would take too long to find out.
    """
    bits = {model: 1 << at for at, model in enumerate(dict.fromkeys(models))}
    wanted = (1 << len(bits)) - 1
    known: dict[str, list[int]] = {}
    try:
        for one in matrix.sets:
            known[one.name] = _cover(one.expression, bits, known)
    except _TooMany:
        return True
    return any(wanted in masks for masks in known.values())


def _cover(expression: Expression, bits: Mapping[str, int], known: Mapping[str, list[int]]) -> list[int]:
    """The largest parts of the models that single choices cover, as bit masks."""
    if isinstance(expression, Leaf):
        return [bits.get(expression.model, 0)]
    if isinstance(expression, Reference):
        return known.get(expression.set, [0])
    parts = [_cover(part, bits, known) for part in expression.parts]
    if isinstance(expression, OneOf):
        return _largest(mask for masks in parts for mask in masks)
    result = [0]
    for masks in parts:
        if len(result) * len(masks) > _CHOICES:
            raise _TooMany
        result = _largest(a | b for a in result for b in masks)
    return result


def _largest(masks: Iterable[int]) -> list[int]:
    """Without those that are part of another."""
    result: list[int] = []
    for mask in sorted(set(masks), key=int.bit_count, reverse=True):
        if not any(mask & other == mask for other in result):
            result.append(mask)
        if len(result) > _CHOICES:
            raise _TooMany
    return result
