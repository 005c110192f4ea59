"""The matrix language: tokens, grammar, references, and which models may be together."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.matrix import (
    All,
    Expression,
    Leaf,
    Matrix,
    MatrixSet,
    MatrixSyntaxError,
    OneOf,
    Reference,
    atoms,
    ordered,
    parse,
    rename,
    together,
)

A, B, C = Leaf("a"), Leaf("b"), Leaf("c")


class ParseTests(SynchronousTestCase):
    """Text to form."""

    def test_grammar(self) -> None:
        """`&` binds tighter than `|`, parentheses first, blanks mean nothing."""
        for text, form in (
            ("a", A),
            (" a&b ", All((A, B))),
            ("a | b & c", OneOf((A, All((B, C))))),
            ("(a | b) & c", All((OneOf((A, B)), C))),
            ("((a))", A),
            ("a & +x.y-z | +2", OneOf((All((A, Reference("x.y-z"))), Reference("2")))),
            ("model-name.v2_x", Leaf("model-name.v2_x")),
            ("größe & 模型 & ٣", All((Leaf("größe"), Leaf("模型"), Leaf("٣")))),
            ("a\t&\n b", All((A, B))),
        ):
            self.assertEqual(parse(text), form, text)

    def test_mistakes(self) -> None:
        """The words of the reference; positions count characters after trimming, from 0."""
        for text, told in (
            ("", "empty DSL expression"),
            ("  ", "empty DSL expression"),
            ("  a @ b", "tokenize: unexpected character '@' at position 2"),
            ("é & +", "tokenize: expected set name after '+' at position 4"),
            ("+ a", "tokenize: expected set name after '+' at position 0"),
            ("(a", "parse: missing closing parenthesis"),
            ("a)", 'parse: unexpected token ")" after expression'),
            ("a b", 'parse: unexpected token "b" after expression'),
            ("()", 'parse: unexpected token ")"'),
            ("a &", 'parse: unexpected token ""'),
            ("| a", 'parse: unexpected token "|"'),
            ("a && b", 'parse: unexpected token "&"'),
            ("org/c", "unexpected character '/'"),
            ("½", "unexpected character"),
            ("(" * 5000, "parentheses inside each other"),
        ):
            self.assertIn(told, str(self.assertRaises(MatrixSyntaxError, parse, text)))

    def test_long_expressions(self) -> None:
        """There is no limit on their size."""
        for sign in "&|":
            self.assertEqual(len(list(atoms(parse(f" {sign} ".join(["a"] * 5000))))), 5000)

    @given(st.text("ab+&|() .@", max_size=20))
    def test_any_text(self, text: str) -> None:
        """Either a form or a reason."""
        try:
            parse(text)
        except MatrixSyntaxError as error:
            self.assertTrue(str(error))


class ReferenceTests(SynchronousTestCase):
    """Sets that refer to sets."""

    def test_order(self) -> None:
        """As defined, but what is referenced comes first."""
        sets = {name: parse(text) for name, text in {"z": "a", "m": "+y & +z", "b": "a", "y": "+b"}.items()}
        self.assertEqual(ordered(sets), (["z", "b", "y", "m"], []))

    def test_circles(self) -> None:
        """Each is told; sets that do not exist are passed over, long chains are no burden."""
        sets = {name: parse(text) for name, text in {"a": "+b", "b": "+a", "c": "+c", "d": "+nope"}.items()}
        self.assertEqual(ordered(sets)[1], ["a", "c"])
        chain = {f"s{i}": parse(f"+s{i + 1}") for i in range(5000)}
        self.assertEqual(ordered(chain)[1], [])

    def test_renaming(self) -> None:
        """Leaves get other names, references stay."""
        self.assertEqual(rename(parse("a & (b | +c)"), str.upper), parse("A & (B | +c)"))


def choices(expression: Expression, known: dict[str, list[frozenset[str]]]) -> list[frozenset[str]]:
    """All choices, expanded: what the module never does."""
    if isinstance(expression, Leaf):
        return [frozenset([expression.model])]
    if isinstance(expression, Reference):
        return known[expression.set]
    parts = [choices(part, known) for part in expression.parts]
    if isinstance(expression, OneOf):
        return [choice for part in parts for choice in part]
    return [frozenset().union(*combination) for combination in itertools.product(*parts)]


forms: st.SearchStrategy[Expression] = st.recursive(
    st.sampled_from("abcd").map(Leaf),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3)
        .map(tuple)
        .flatmap(lambda parts: st.sampled_from([All(parts), OneOf(parts)]))
    ),
    max_leaves=8,
)


class TogetherTests(SynchronousTestCase):
    """Whether models may run side by side."""

    def test_one_choice_has_to_cover_them(self) -> None:
        """Within one set, through references, and not in two sets by halves."""
        matrix = Matrix(sets=(MatrixSet("t", OneOf((A, C))), MatrixSet("s", All((Reference("t"), B)))))
        self.assertTrue(together(matrix, ["a", "b"]))
        self.assertTrue(together(matrix, ["b", "c"]))
        self.assertFalse(together(matrix, ["a", "c"]))
        self.assertFalse(together(matrix, ["d"]))

    def test_what_would_take_too_long(self) -> None:
        """A combination that cannot be looked through counts as possible, and takes no time."""
        pairs = All(tuple(OneOf((Leaf(f"x{i}"), Leaf(f"y{i}"))) for i in range(70)))
        matrix = Matrix(sets=(MatrixSet("s", pairs),))
        self.assertTrue(together(matrix, [f"{side}{i}" for i in range(70) for side in "xy"]))
        wide = All(tuple(OneOf(tuple(Leaf(f"m{i}x{j}") for j in range(10))) for i in range(6)))
        self.assertTrue(together(Matrix(sets=(MatrixSet("s", wide),)), ["m0x3", "m5x9"]))
        self.assertFalse(together(Matrix(sets=(MatrixSet("s", wide),)), ["m0x3", "m0x4"]))

    @given(st.lists(forms, min_size=1, max_size=3), st.sets(st.sampled_from("abcde"), min_size=1, max_size=3))
    def test_against_all_choices(self, expressions: list[Expression], wanted: set[str]) -> None:
        """The same answer as from looking at every choice."""
        known: dict[str, list[frozenset[str]]] = {}
        sets = []
        for at, expression in enumerate(expressions):
            if at:
                expression = OneOf((expression, Reference(f"s{at - 1}")))
            known[f"s{at}"] = choices(expression, known)
            sets.append(MatrixSet(f"s{at}", expression))
        possible = any(wanted <= choice for found in known.values() for choice in found)
        self.assertEqual(together(Matrix(sets=tuple(sets)), wanted), possible)
