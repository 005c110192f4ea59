"""Eviction by the matrix: decides which running models have to go for another, by the sets that may run together.

The search is in `lswap.core.matrix_solver`, the language of the sets in `lswap.core.matrix`. Read `lswap.core.policy`
next for what is expected of a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from lswap.core.matrix import Matrix
from lswap.core.matrix_solver import MatrixSolver, Solution

__all__ = ["MatrixPolicy"]

#: Answers that are remembered. The same few situations come again and again.
_REMEMBERED = 512


class MatrixPolicy:
    """Keeps what costs most to evict, within one set that has the target.

    A model that is in no set runs alone.
    """

    def __init__(self, matrix: Matrix) -> None:
        """Raises UnfitSetsError when sets cannot be looked through, see `MatrixSolver`."""
        self._solve = lru_cache(_REMEMBERED)(MatrixSolver(matrix).solve)

    def evict(self, target: str, running: Sequence[str]) -> tuple[str, ...]:
        """See `Policy.evict`. A target that runs evicts nothing."""
        return () if target in running else self.solve(target, running).evict

    def solve(self, target: str, running: Sequence[str]) -> Solution:
        """The whole answer: also the set, its members and the cost, for the log."""
        return self._solve(target, tuple(running))

    def why(self, target: str, victim: str, running: Sequence[str]) -> str:
        """See `ExplainingPolicy.why`."""
        solution = self.solve(target, running)
        if not solution.set:
            return f"{target!r} is in no set of the matrix, so it runs alone"
        return f"set {solution.set!r} is what keeps most beside {target!r}, and does not have {victim!r}"
