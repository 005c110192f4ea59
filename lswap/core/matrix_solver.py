"""Solves the matrix: which models that run now may stay when another one is loaded, so that least is lost.

Decides by the parsed sets of `lswap.core.matrix` alone; knows nothing of processes. Read `lswap.core.plan_matrix`
next, which makes an eviction policy of it.

A set stands for a family of choices, each a set of models that may run together. A family is never written out: of a
choice only the *relevant* part counts, the models that run now and the target, and a choice whose relevant part lies
within another's is dropped. Which of several equally good choices wins is part of the contract (matrix reference,
section 4.2): the first in the order of sets, alternatives from left to right, the first factor varying slowest. Where
factors have no relevant model in common their best choices are found one by one, which gives the same answer in linear
time.

A set whose factors have models in common may describe more choices than can ever be compared; configurations with such
a one are refused (`too_large`). The work on one question is bounded in any case, so that no matrix can hold up the
program. Past `_COMPARISONS` a factor takes what is best after the factors before it; past `_LOOKS` the best set so far
wins. The answer is then still one that the sets allow, but maybe not the cheapest. What people write stays far below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import msgspec

from lswap.core.matrix import All, Expression, Leaf, Matrix, OneOf, Reference

__all__ = ["MatrixSolver", "Solution", "UnfitSetsError"]

#: Comparisons of two choices for one question, and parts of expressions looked at: below 1 ms for each.
_COMPARISONS = 3_000
_LOOKS = 1_500
#: How deep expressions may be nested, references included. Python's own limit would be reached at about twice that.
_DEPTH = 250


#: Choices that may have to be compared with each other, by a generous count.
_CHOICES = 1_000_000_000


class UnfitSetsError(ValueError):
    """Sets that cannot be looked through at all; `problems` says why, by their names."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"set {name!r}: {problem}" for name, problem in problems.items()))
        self.problems = problems


class Solution(msgspec.Struct, frozen=True):
    """The answer to one question."""

    #: The set that was chosen; empty for none.
    set: str
    #: All models of the choice, sorted, also those that do not run: only the target is started.
    members: tuple[str, ...]
    #: The running models that are not in it, in the order in which they were given.
    evict: tuple[str, ...]
    #: What their eviction costs.
    cost: int


@attrs.define(eq=False, frozen=True)
class _Node:
    """An expression with its models as bits of a number."""

    kind: type[Leaf] | type[All] | type[OneOf]
    parts: tuple[_Node, ...]
    #: All models that are named in it.
    mask: int
    #: The first choice of its family.
    first: int
    depth: int
    #: How many choices it describes, at most.
    choices: int = 1
    #: How many of them may have to be compared with each other, at most: factors without a common model need not be.
    work: int = 1


#: The relevant part of a choice, and the whole of it.
_Choice = tuple[int, int]
#: The same behind its weight.
_Weighed = tuple[int, int, int]


class MatrixSolver:
    """Answers questions about one matrix."""

    def __init__(self, matrix: Matrix) -> None:
        """Raises UnfitSetsError when sets are nested too deep to be looked through."""
        self._bits: dict[str, int] = {}
        self._costs = matrix.costs
        self._sets: list[tuple[str, _Node]] = []
        compiled: dict[str, _Node] = {}
        problems: dict[str, str] = {}
        #: Why a set cannot be looked through in full, by its name.
        self.too_large: dict[str, str] = {}
        for one in matrix.sets:
            node = compiled[one.name] = self._compile(one.expression, compiled)
            if node.depth > _DEPTH:
                problems[one.name] = f"nested more than {_DEPTH} deep"
            elif node.work > _CHOICES:
                self.too_large[one.name] = f"more than {_CHOICES:,} choices, as its factors have models in common"
            self._sets.append((one.name, node))
        if problems:
            raise UnfitSetsError(problems)
        self._names = list(self._bits)
        #: Places of the sets that have a model, by its bit.
        self._sets_with: dict[int, list[int]] = {}
        for place, (_, node) in enumerate(self._sets):
            for bit in _each(node.mask):
                self._sets_with.setdefault(bit, []).append(place)

    def solve(self, target: str, running: Sequence[str]) -> Solution:
        """What has to go for `target`. If it runs already, nothing: what runs is not put right by a request."""
        if target in running:
            return self._together(target, running)
        bits = self._bits
        goal = bits.get(target, 0)
        costs = {name: self._costs.get(name, 1) for name in running}
        total = sum(costs.values())
        weights = {bits[name]: cost for name, cost in costs.items() if name in bits}
        weights[goal] = total + 1  # more than all the others together: no choice without the target wins
        search = _Search(weights)
        # By what a set may keep at most, so that few of them have to be looked at; the first of equal ones wins.
        bounds = [
            (-search.weight(self._sets[place][1].mask & search.relevant), place)
            for place in self._sets_with.get(goal, ())
        ]
        if not bounds:
            return Solution("", (target,), tuple(running), 0)
        best, chosen = (0, 0), 0
        for bound in sorted(bounds):
            if bound >= best or search.exhausted:
                break
            weight, _, whole = search.best(self._sets[bound[1]][1])
            if (-weight, bound[1]) < best:
                best, chosen = (-weight, bound[1]), whole
        evict = tuple([name for name in running if not bits.get(name, 0) & chosen])
        return Solution(self._sets[best[1]][0], self._members(chosen), evict, sum([costs[name] for name in evict]))

    def _together(self, target: str, running: Sequence[str]) -> Solution:
        """The first set that can hold all that runs."""
        if all(name in self._bits for name in running):
            search = _Search({self._bits[name]: 1 for name in running})
            for name, node in self._sets:
                if search.relevant & ~node.mask:
                    continue
                _, kept, whole = search.best(node)
                if kept == search.relevant:
                    return Solution(name, self._members(whole), (), 0)
        return Solution("", (target,), (), 0)

    def _members(self, mask: int) -> tuple[str, ...]:
        return tuple(sorted([self._names[bit.bit_length() - 1] for bit in _each(mask)]))

    def _compile(self, expression: Expression, sets: Mapping[str, _Node]) -> _Node:
        if isinstance(expression, Reference):
            return sets[expression.set]
        if isinstance(expression, Leaf):
            bit = self._bits.setdefault(expression.model, 1 << len(self._bits))
            return _Node(Leaf, (), bit, bit, 1)
        parts = tuple([self._compile(part, sets) for part in expression.parts])
        mask = first = 0
        for part in parts:
            mask |= part.mask
            first |= part.first
        depth, work = 1 + max([part.depth for part in parts]), max([part.work for part in parts])
        if isinstance(expression, OneOf):
            choices = min(sum([part.choices for part in parts]), 1 << mask.bit_count())
            return _Node(OneOf, parts, mask, parts[0].first, depth, choices, work)
        choices = 1
        for models, factors in _tied(parts):
            together = min(math.prod([part.choices for part in factors]), 1 << models.bit_count())
            choices *= together
            if len(factors) > 1:
                work = max(work, together)
        return _Node(All, parts, mask, first, depth, choices, work)


class _TooMuchError(Exception):
    """A family is too large to be compared in full."""


class _Search:
    """One question to all sets: what each of them keeps at best. What was found is remembered by node."""

    def __init__(self, weights: Mapping[int, int]) -> None:
        self._weights = weights
        self.relevant = 0
        #: The same by weight: few differ.
        self._alike: dict[int, int] = {}
        for bit, weight in weights.items():
            self.relevant |= bit
            self._alike[weight] = self._alike.get(weight, 0) | bit
        self._comparisons = _COMPARISONS
        self._looks = _LOOKS
        self._best: dict[_Node, _Weighed] = {}
        self._families: dict[_Node, list[_Choice]] = {}
        self._greedy: dict[tuple[_Node, int], _Weighed] = {}

    @property
    def exhausted(self) -> bool:
        """Enough has been looked at."""
        return self._looks < 0

    def weight(self, relevant: int) -> int:
        """What it is worth to keep these models."""
        return sum([weight * (relevant & alike).bit_count() for weight, alike in self._alike.items()])

    def best(self, node: _Node) -> _Weighed:
        """The first choice of the most weight."""
        relevant = node.mask & self.relevant
        if not relevant:
            return 0, 0, node.first
        if node.kind is Leaf:
            return self._weights[relevant], relevant, relevant
        found = self._best.get(node)
        if found is None:
            self._looks -= len(node.parts)
            found = self._best_part(node) if node.kind is OneOf else self._best_of_all(node)
            self._best[node] = found
        return found

    def _best_part(self, node: _Node) -> _Weighed:
        found = (0, 0, node.first)
        for part in node.parts:
            if part.mask & self.relevant:
                choice = self.best(part)
                if choice[0] > found[0]:
                    found = choice
        return found

    def _best_of_all(self, node: _Node) -> _Weighed:
        """Factors without a relevant model in common do not depend on each other."""
        weight = kept = whole = 0
        for group in self._dependent(node.parts):
            part = self.best(group[0]) if len(group) == 1 else self._best_product(group)
            weight += part[0]
            kept |= part[1]
            whole |= part[2]
        return weight, kept, whole

    def _dependent(self, parts: Sequence[_Node]) -> list[list[_Node]]:
        """The parts in groups: two that share a relevant model are in the same one."""
        groups: list[tuple[int, list[int]]] = []
        seen = 0
        for place, part in enumerate(parts):
            mask, places = part.mask & self.relevant, [place]
            if mask & seen:
                apart = []
                for group in groups:
                    if group[0] & mask:
                        mask |= group[0]
                        places += group[1]
                    else:
                        apart.append(group)
                groups = apart
            seen |= mask
            groups.append((mask, places))
        return [[parts[place] for place in sorted(places)] for _, places in groups]

    def _best_product(self, parts: list[_Node]) -> _Weighed:
        try:
            family = self._product(parts)
        except _TooMuchError:
            return self._greedy_product(parts, self.relevant)
        found = (0, 0, 0)
        for kept, whole in family:
            weight = self.weight(kept)
            if weight > found[0]:
                found = weight, kept, whole
        return found

    # -- families in full ----------------------------------------------------------------------------------------------

    def _family(self, node: _Node) -> list[_Choice]:
        """All choices whose relevant part is not within another's."""
        relevant = node.mask & self.relevant
        if not relevant:
            return [(0, node.first)]
        if node.kind is Leaf:
            return [(relevant, relevant)]
        family = self._families.get(node)
        if family is None:
            self._looks -= len(node.parts)
            if node.kind is OneOf:
                family = []
                for part in node.parts:
                    for choice in self._family(part):
                        self._add(family, choice)
            else:
                family = self._product(node.parts)
            self._families[node] = family
        return family

    def _product(self, parts: Sequence[_Node]) -> list[_Choice]:
        family: list[_Choice] = [(0, 0)]
        for part in parts:
            factors = self._family(part)
            product: list[_Choice] = []
            for kept, whole in family:
                for more, rest in factors:
                    self._add(product, (kept | more, whole | rest))
            family = product
        return family

    def _add(self, family: list[_Choice], choice: _Choice) -> None:
        """Add a choice, unless it keeps nothing that one of the others does not; drop those that it outdoes."""
        self._comparisons -= 1 + len(family)
        if self._comparisons < 0:
            raise _TooMuchError
        kept = choice[0]
        outdone = False
        for other, _ in family:
            if kept | other == other:
                return
            outdone = outdone or kept | other == kept
        if outdone:
            family[:] = [other for other in family if kept | other[0] != kept]
        family.append(choice)

    # -- and when that is too much -------------------------------------------------------------------------------------

    def _greedy_choice(self, node: _Node, relevant: int) -> _Weighed:
        """A good choice of those that keep any of `relevant`, in linear time."""
        relevant &= node.mask
        if not relevant:
            return 0, 0, node.first
        if node.kind is Leaf:
            return self._weights[relevant], relevant, relevant
        found = self._greedy.get((node, relevant))
        if found is None:
            self._looks -= len(node.parts)
            if node.kind is OneOf:
                found = (0, 0, node.first)
                for part in node.parts:
                    if part.mask & relevant:
                        choice = self._greedy_choice(part, relevant)
                        if choice[0] > found[0]:
                            found = choice
            else:
                found = self._greedy_product(node.parts, relevant)
            self._greedy[node, relevant] = found
        return found

    def _greedy_product(self, parts: Sequence[_Node], relevant: int) -> _Weighed:
        weight = kept = whole = 0
        for part in parts:
            choice = self._greedy_choice(part, relevant & ~kept)
            weight += choice[0]
            kept |= choice[1]
            whole |= choice[2]
        return weight, kept, whole


def _tied(parts: Sequence[_Node]) -> list[tuple[int, list[_Node]]]:
    """The factors in groups that have no model in common, with the models of each group."""
    groups: list[tuple[int, list[_Node]]] = []
    for part in parts:
        mask, members = part.mask, [part]
        apart = []
        for models, others in groups:
            if models & mask:
                mask |= models
                members += others
            else:
                apart.append((models, others))
        groups = [*apart, (mask, members)]
    return groups


def _each(mask: int) -> list[int]:
    """The bits of a number."""
    bits = []
    while mask:
        bit = mask & -mask
        bits.append(bit)
        mask ^= bit
    return bits
