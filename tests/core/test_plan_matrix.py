"""Eviction by the matrix: the tables of the reference, the search against a naive one, its bounds."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core import matrix_solver
from lswap.core.effects import Grant, Swap
from lswap.core.matrix import All, Expression, Leaf, Matrix, MatrixSet, OneOf, Reference, ordered, parse, rename
from lswap.core.matrix_solver import MatrixSolver, Solution
from lswap.core.plan_matrix import MatrixPolicy
from tests.core.desk import Desk, Moved
from tests.core.policy_contract import PolicyContract


def matrix(
    sets: Mapping[str, str], costs: Mapping[str, int] | None = None, names: Mapping[str, str] | None = None
) -> Matrix:
    """A matrix from expressions, as a configuration gives it."""
    parsed = {name: rename(parse(text), lambda leaf: (names or {}).get(leaf, leaf)) for name, text in sets.items()}
    order, circular = ordered(parsed)
    assert not circular
    return Matrix(sets=tuple([MatrixSet(name, parsed[name]) for name in order]), costs=dict(costs or {}))


#: The example of the reference; `lone` is in no set.
EXAMPLE = matrix(
    {"chat": "(S | M) & T", "search": "(S | M) & R & T", "art": "S & I", "solo": "B"},
    {"tts": 20, "big": 30, "img": 5},
    {"S": "small", "M": "medium", "B": "big", "T": "tts", "R": "rank", "I": "img"},
)


class TableTests(SynchronousTestCase):
    """Each row: what runs, the target, what is evicted, the set and the cost."""

    def solve(self, running: str, target: str, victims: str, chosen: str, cost: int) -> Solution:
        """One row, in words separated by blanks; the whole answer."""
        solution = MatrixSolver(EXAMPLE).solve(target, running.split())
        self.assertEqual((solution.evict, solution.set, solution.cost), (tuple(victims.split()), chosen, cost))
        return solution

    def test_nothing_runs(self) -> None:
        """1: three sets cost nothing, the first wins; all of it is told, only the target will be started."""
        self.assertEqual(self.solve("", "small", "", "chat", 0).members, ("small", "tts"))

    def test_order_of_sets_decides(self) -> None:
        """2: search would cost the same."""
        self.solve("small tts", "medium", "small", "chat", 1)

    def test_larger_set(self) -> None:
        """3: only search has rank."""
        self.assertEqual(self.solve("small tts", "rank", "", "search", 0).members, ("rank", "small", "tts"))

    def test_costly_victim(self) -> None:
        """4: only art has img."""
        self.solve("small tts", "img", "tts", "art", 20)

    def test_no_common_set(self) -> None:
        """5: everything has to go."""
        self.solve("medium tts", "img", "medium tts", "art", 21)

    def test_set_that_keeps_more(self) -> None:
        """6: chat would cost 2."""
        self.solve("rank small tts", "medium", "small", "search", 1)

    def test_tie(self) -> None:
        """7: search would cost the same."""
        self.solve("img small", "tts", "img", "chat", 5)

    def test_set_of_one(self) -> None:
        """8: it runs alone."""
        self.solve("small tts", "big", "small tts", "solo", 21)

    def test_target_in_no_set(self) -> None:
        """9: it runs alone, without a set and at no cost."""
        self.assertEqual(self.solve("big", "lone", "big", "", 0).members, ("lone",))

    def test_running_model_in_no_set(self) -> None:
        """10: it always goes."""
        self.solve("lone", "small", "lone", "chat", 1)

    def test_target_that_runs(self) -> None:
        """11: evicts nothing; the first set that has all of it is named."""
        self.solve("small tts", "small", "", "chat", 0)

    def test_models_that_should_not_be_together(self) -> None:
        """12: are left alone."""
        self.solve("big small", "small", "", "", 0)

    def test_costlier_one_is_kept(self) -> None:
        """13: chat would cost 6, search 5."""
        self.solve("img rank", "small", "rank", "art", 1)

    def test_rival_of_the_same_set(self) -> None:
        """14: the others stay."""
        self.solve("medium rank tts", "small", "medium", "search", 1)

    def test_cheaper_victim(self) -> None:
        """15: art would cost 20."""
        self.solve("img tts", "small", "img", "chat", 5)


class ExpressionTests(SynchronousTestCase):
    """Single sets, ties and references."""

    def evicts(self, sets: Mapping[str, str], running: str, target: str, victims: str, costs: str = "") -> Solution:
        """What goes for `target`; the whole answer."""
        weights = {name: int(cost) for name, _, cost in (word.partition(":") for word in costs.split())}
        solution = MatrixSolver(matrix(sets, weights)).solve(target, running.split())
        self.assertEqual(solution.evict, tuple(victims.split()))
        return solution

    def test_alternatives_from_left_to_right(self) -> None:
        """The first of equal ones is kept."""
        self.evicts({"s": "t & (a | b)"}, "a b", "t", "b")
        self.evicts({"s": "t & (b | a)"}, "a b", "t", "a")

    def test_first_factor_varies_slowest(self) -> None:
        """T78: of ac, ad, bc and bd the first."""
        self.evicts({"s": "(a | b) & (c | d) & t"}, "a b c d", "t", "b d")

    def test_first_factor_varies_slowest_among_costs(self) -> None:
        """The same where only ad and bd are cheapest."""
        self.evicts({"s": "(a | b) & (c | d) & t"}, "a b c d", "t", "b c", "d:2")

    def test_alternative_within_a_later_one(self) -> None:
        """T84: the larger one keeps more."""
        self.evicts({"s": "t & (a | (a & b))"}, "a b", "t", "")

    def test_and_binds_tighter(self) -> None:
        """T78: `a | b & c` is a, or b and c."""
        self.evicts({"s": "a | b & c"}, "b", "c", "")
        self.evicts({"s": "a | b & c"}, "a", "c", "a")

    def test_model_named_twice(self) -> None:
        """T78: `a & a` is a."""
        self.assertEqual(self.evicts({"s": "a & a"}, "b", "a", "b").members, ("a",))

    def test_costs_across_sets(self) -> None:
        """One heavy model against three light ones, and the tie between them."""
        sets = {"one": "t & heavy", "two": "t & l1 & l2 & l3"}
        running = "heavy l1 l2 l3"
        self.assertEqual(self.evicts(sets, running, "t", "heavy", "heavy:2").cost, 2)
        self.assertEqual(self.evicts(sets, running, "t", "l1 l2 l3", "heavy:3").set, "one")
        self.assertEqual(self.evicts(sets, running, "t", "l1 l2 l3", "heavy:4").cost, 3)

    def test_first_set_when_nothing_runs(self) -> None:
        """T71: sets `a & b` and `a & c`."""
        self.assertEqual(self.evicts({"first": "a & b", "second": "a & c"}, "", "a", "").set, "first")

    def test_cheaper_set(self) -> None:
        """T72: b is dearer than c."""
        solution = self.evicts({"first": "a & c", "second": "a & b"}, "b c", "a", "c", "b:10 c:1")
        self.assertEqual(solution.set, "second")

    def test_target_that_runs_names_its_set(self) -> None:
        """H73: the first that can hold all that runs."""
        self.assertEqual(self.evicts({"x": "a & c", "y": "(c | a) & b"}, "a b", "a", "").set, "y")

    def test_outsider(self) -> None:
        """H74: set {a, b}, running b and c, target a."""
        self.evicts({"s": "a & b"}, "b c", "a", "c")

    def test_either_set_without_loss(self) -> None:
        """H75: whichever runs, the set that has it."""
        sets = {"first": "a & v", "second": "a & L"}
        self.assertEqual(self.evicts(sets, "v", "a", "", "v:50 L:30").set, "first")
        self.assertEqual(self.evicts(sets, "L", "a", "", "v:50 L:30").set, "second")

    def test_example_configuration(self) -> None:
        """H76: the one of the reference's documentation."""
        sets = {
            "standard": "(g | q | m) & v",
            "with_rerank": "(g | q) & v & e",
            "creative": "(g | q) & sd",
            "full": "L",
        }
        costs = "v:50 L:30"
        self.assertEqual(self.evicts(sets, "g v", "q", "g", costs).set, "standard")
        self.evicts(sets, "g v", "L", "g v", costs)
        self.assertEqual(self.evicts(sets, "g v", "sd", "v", costs).members, ("g", "sd"))
        self.assertEqual(self.evicts(sets, "e q v", "g", "q", costs).members, ("e", "g", "v"))

    def test_references(self) -> None:
        """T79: alternatives of another set, two levels deep."""
        sets = {"llms": "g | q | m", "with_tts": "+llms & v", "mega": "+with_tts & e"}
        for model in "gqm":
            self.assertEqual(self.evicts(sets, "e v", model, "").members, tuple(sorted(["e", model, "v"])))

    def test_reference_that_overlaps(self) -> None:
        """T80: a model in both parts of a product."""
        self.evicts({"base": "a & b", "s": "target & +base & b"}, "a b", "target", "")

    def test_referenced_set_counts_first(self) -> None:
        """Order of the search: base, then wide; the larger one wins where it keeps more."""
        sets = {"wide": "+base & x", "base": "a | b"}
        self.assertEqual(self.evicts(sets, "", "a", "").set, "base")
        self.assertEqual(self.evicts(sets, "x", "a", "").set, "wide")

    def test_six_groups_of_ten(self) -> None:
        """T82: one of each runs, and an outsider, which alone has to go."""
        groups = [[f"g{i}m{j}" for j in range(10)] for i in range(6)]
        text = " & ".join("(" + " | ".join(group) + ")" for group in groups)
        running = sorted([group[i] for i, group in enumerate(groups)] + ["out"])
        solution = self.evicts({"s": f"{text} & t"}, " ".join(running), "t", "out")
        self.assertEqual(len(solution.members), 7)

    def test_seventy_models(self) -> None:
        """T83: no limit of 64."""
        running = sorted(f"m{i:02}" for i in range(70))
        self.evicts({"s": " & ".join([*running, "t"])}, " ".join([*running, "out"]), "t", "out")

    def test_target_in_no_set(self) -> None:
        """T85: everything goes, in order."""
        solution = self.evicts({"s": "a & b"}, "a b", "t", "a b")
        self.assertEqual((solution.set, solution.members, solution.cost), ("", ("t",), 0))

    def test_member_that_is_not_running_is_told(self) -> None:
        """The first alternative stands for those that make no difference."""
        self.assertEqual(self.evicts({"s": "t & (x | y) & (a | z)"}, "z", "t", "").members, ("t", "x", "z"))

    def test_cost_of_a_model_in_no_set(self) -> None:
        """It counts in the cost, though nothing can keep it."""
        self.assertEqual(self.evicts({"s": "a"}, "out", "a", "out", "out:7").cost, 7)


class BoundTests(SynchronousTestCase):
    """What takes too long in full is cut short, to a valid answer."""

    def test_many_pairs(self) -> None:
        """Thirty independent pairs are 2**30 choices; each pair is decided by itself, exactly."""
        pairs = [(f"a{i:02}", f"b{i:02}") for i in range(30)]
        text = " & ".join(f"({a} | {b})" for a, b in pairs)
        running = sorted(itertools.chain(*pairs))
        solution = MatrixSolver(matrix({"s": f"{text} & t"}, {"b07": 2})).solve("t", running)
        expected = {b for _, b in pairs} - {"b07"} | {"a07"}
        self.assertEqual((set(solution.evict), solution.cost), (expected, 30))

    def test_chain_of_pairs(self) -> None:
        """Pairs that depend on each other all along: the answer is one that the set allows, and not a bad one."""
        names = [f"m{i:02}" for i in range(60)]
        text = " & ".join(f"({a} | {b})" for a, b in itertools.pairwise(names))
        solution = MatrixSolver(matrix({"s": f"{text} & t"})).solve("t", names)
        kept = set(names) - set(solution.evict)
        self.assertIn("t", solution.members)
        self.assertLess(kept, set(solution.members))
        self.assertTrue(all(a in kept or b in kept for a, b in itertools.pairwise(names)))
        self.assertLessEqual(solution.cost, 2)

    def test_choice_after_choice(self) -> None:
        """What is cut short takes into account what the factors before it keep already."""
        self.patch(matrix_solver, "_COMPARISONS", 0)
        solver = MatrixSolver(matrix({"s": "(a | b) & (a | c) & t"}))
        self.assertEqual(solver.solve("t", ["a", "b", "c"]).evict, ("b",))

    def test_set_that_doubles_itself(self) -> None:
        """Each set names the one before it twice: 2**100 paths, each looked at once."""
        sets = {"s0": "m0 | n0"}
        sets |= {f"s{i}": f"(+s{i - 1} | m{i}) & (n{i} | +s{i - 1})" for i in range(1, 100)}
        solution = MatrixSolver(matrix(sets)).solve("m50", sorted(f"m{i}" for i in range(50)))
        self.assertIn("m50", solution.members)
        self.assertNotEqual(solution.evict, tuple(sorted(f"m{i}" for i in range(50))))

    def test_work_is_bounded(self) -> None:
        """However many sets: the number of steps of one question stays the same, and the target gets a set."""
        names = [f"m{i:02}" for i in range(60)]
        dice = random.Random(7)
        texts = [" & ".join(f"({' | '.join(dice.sample(names, 20))})" for _ in range(20)) + " & t" for _ in range(200)]
        solver = MatrixSolver(matrix({f"s{i}": text for i, text in enumerate(texts)}))
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            solution = solver.solve("t", names)
        finally:
            sys.setprofile(None)
        self.assertLess(calls, 4_000)
        self.assertTrue(solution.set)
        self.assertIn("t", solution.members)

    def test_nested_too_deep(self) -> None:
        """Is an error that names the set, not a crash while a client waits."""
        sets = {"s0": "a"} | {f"s{i}": f"(+s{i - 1} | a) & b" for i in range(1, 200)}
        error = self.assertRaises(ValueError, MatrixSolver, matrix(sets))
        self.assertIn("nested more than 250 deep", str(error))

    def test_deepest_nesting_is_searched(self) -> None:
        """All that is accepted can be searched, in each of its ways, below Python's own limit."""
        sets = {"s0": "a"} | {f"s{i}": f"(+s{i - 1} | x{i} & y) & (y | z{i})" for i in range(1, 124)}
        solver = MatrixSolver(matrix(sets))
        running = sorted({"y", *[f"x{i}" for i in range(60)], *[f"z{i}" for i in range(60)]})
        self.assertIn("a", solver.solve("a", running).members)
        self.patch(matrix_solver, "_COMPARISONS", 0)
        self.assertIn("a", solver.solve("a", running).members)


class MatrixPolicyTests(PolicyContract, SynchronousTestCase):
    """The policy that is made of it."""

    def make_policy(self) -> MatrixPolicy:
        """`g` and `h` are in no set."""
        sets = {"one": "a & (b | c)", "two": "(a | d) & e & f", "three": "+one & e"}
        return MatrixPolicy(matrix(sets, {"e": 3}))

    def test_reasons(self) -> None:
        """They name the set, or say that there is none."""
        policy = MatrixPolicy(EXAMPLE)
        text = "set 'art' is what keeps most beside 'img', and does not have 'tts'"
        self.assertEqual(policy.why("img", "tts", ["small", "tts"]), text)
        self.assertEqual(policy.why("lone", "big", ["big"]), "'lone' is in no set of the matrix, so it runs alone")


class ScheduledTests(SynchronousTestCase):
    """The same rules under a scheduler."""

    def desk(self, **sets: str) -> Desk:
        """A desk with the models `a`, `b` and `c`."""
        return Desk(MatrixPolicy(matrix(sets)))

    def test_model_of_another_set_is_stopped(self) -> None:
        """T67: sets `a` and `b`."""
        desk = self.desk(one="a", two="b")
        desk.up("a")
        self.assertEqual(desk.ask(1, "b"), [Swap(1, "b", ("a",))])

    def test_model_of_the_same_set_is_kept(self) -> None:
        """T68: set `a & b`; a request for the one that runs evicts nothing either."""
        desk = self.desk(one="a & b")
        desk.up("a")
        self.assertEqual(desk.ask(1, "b"), [Swap(1, "b", ())])
        self.assertEqual(desk.ask(2, "a"), [Grant(2, "a")])

    def test_models_of_one_set_load_together(self) -> None:
        """T69: both start before either is ready."""
        desk = self.desk(one="a & b")
        self.assertEqual([desk.ask(1, "a"), desk.ask(2, "b")], [[Swap(1, "a", ())], [Swap(2, "b", ())]])

    def test_models_of_different_sets_load_one_after_the_other(self) -> None:
        """T70: the second waits until the first was ready and served."""
        desk = self.desk(one="a", two="b")
        desk.ask(1, "a")
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Swap(2, "b", ("a",))])

    def test_models_that_should_not_be_together_are_left_alone(self) -> None:
        """Row 12 of the table: a request for one that is ready is let through."""
        desk = self.desk(one="a", two="b")
        desk.up("a", "b")
        self.assertEqual(desk.ask(1, "a"), [Grant(1, "a")])

    def test_stopping_target_is_checked_anew(self) -> None:
        """A model that is on its way out may have become one too many; the reference restarts it unchecked."""
        desk = self.desk(one="a & c", two="b & c")
        desk.up("a", "c")
        desk.unload("a")
        desk.ask(1, "b")
        desk.ended(1, "boom")
        desk.up("b")
        self.assertEqual(desk.ask(2, "a"), [Swap(2, "a", ("b",))])


# -- against a naive search ------------------------------------------------------------------------------------------

_MODELS = tuple("abcdef")
_leaves = st.sampled_from(_MODELS).map(Leaf)
_expressions: st.SearchStrategy[Expression] = st.recursive(
    _leaves,
    lambda inner: st.tuples(st.sampled_from((All, OneOf)), st.lists(inner, min_size=2, max_size=3)).map(
        lambda drawn: drawn[0](tuple(drawn[1]))
    ),
    max_leaves=9,
)


def families(sets: Sequence[MatrixSet], relevant: frozenset[str]) -> dict[str, list[frozenset[str]]]:
    """All families, written out and pruned as the reference does it."""
    known: dict[str, list[frozenset[str]]] = {}

    def add(family: list[frozenset[str]], choice: frozenset[str]) -> None:
        kept = choice & relevant
        if not any(kept <= other & relevant for other in family):
            family[:] = [other for other in family if not other & relevant < kept]
            family.append(choice)

    def family_of(expression: Expression) -> list[frozenset[str]]:
        if isinstance(expression, Leaf):
            return [frozenset({expression.model})]
        if isinstance(expression, Reference):
            return known[expression.set]
        if isinstance(expression, OneOf):
            alternatives: list[frozenset[str]] = []
            for part in expression.parts:
                for choice in family_of(part):
                    add(alternatives, choice)
            return alternatives
        product = [frozenset[str]()]
        for part in expression.parts:
            factors, so_far, product = family_of(part), product, []
            for choice in so_far:
                for factor in factors:
                    add(product, choice | factor)
        return product

    for one in sets:
        known[one.name] = family_of(one.expression)
    return known


class NaiveSearchTests(SynchronousTestCase):
    """The search gives the same answer as one that writes out every family."""

    @given(
        parts=st.lists(_expressions, min_size=1, max_size=4),
        link=st.booleans(),
        target=st.sampled_from(_MODELS),
        running=st.sets(st.sampled_from((*_MODELS, "out"))).map(sorted),
        costs=st.dictionaries(st.sampled_from(_MODELS), st.integers(1, 3)),
    )
    @settings(max_examples=400, database=None)
    def test_same_answer(
        self, parts: list[Expression], link: bool, target: str, running: list[str], costs: dict[str, int]
    ) -> None:
        """Set, members, victims and cost, ties included."""
        sets = [MatrixSet(f"s{i}", part) for i, part in enumerate(parts)]
        if link:
            sets.append(MatrixSet("all", All(tuple(Reference(one.name) for one in sets[-2:]))))
        solution = MatrixSolver(Matrix(sets=tuple(sets), costs=costs)).solve(target, running)
        self.assertEqual(solution, self.naive(sets, target, running, costs))

    def naive(self, sets: list[MatrixSet], target: str, running: list[str], costs: dict[str, int]) -> Solution:
        """The rules word for word."""
        written = families(sets, frozenset(running) | {target})
        if target in running:
            for name, family in written.items():
                for choice in family:
                    if choice >= set(running):
                        return Solution(name, tuple(sorted(choice)), (), 0)
            return Solution("", (target,), (), 0)
        best: Solution | None = None
        for name, family in written.items():
            for choice in family:
                evict = tuple([model for model in running if model not in choice])
                cost = sum(costs.get(model, 1) for model in evict)
                if target in choice and (best is None or cost < best.cost):
                    best = Solution(name, tuple(sorted(choice)), evict, cost)
        return best or Solution("", (target,), tuple(running), 0)

    @given(
        parts=st.lists(_expressions, min_size=1, max_size=3),
        target=st.sampled_from(_MODELS),
        running=st.sets(st.sampled_from(_MODELS)).map(sorted),
    )
    @settings(max_examples=100, database=None)
    def test_answer_without_effort_is_valid(self, parts: list[Expression], target: str, running: list[str]) -> None:
        """Cut short from the very first step, the answer is still a choice of a set that has the target."""
        sets = [MatrixSet(f"s{i}", part) for i, part in enumerate(parts)]
        self.patch(matrix_solver, "_COMPARISONS", 0)
        self.patch(matrix_solver, "_LOOKS", 0)
        solution = MatrixSolver(Matrix(sets=tuple(sets))).solve(target, running)
        if target in running:
            self.assertEqual(solution.evict, ())
            return
        everything = families(sets, frozenset(_MODELS))
        if not any(target in choice for family in everything.values() for choice in family):
            self.assertEqual(solution.evict, tuple(running))
            return
        kept = {target, *running} - set(solution.evict)
        self.assertTrue(any(kept <= choice for choice in everything[solution.set]))
