"""What an eviction policy is: a pure function from (target, what runs) to what has to go.

Nothing here decides; read `lswap.core.plan_group` and `lswap.core.plan_matrix` for the two policies that exist, and
`lswap.core.board` for the only place that asks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

__all__ = ["ExplainingPolicy", "Policy"]


class Policy(Protocol):
    """Says which running models must be stopped before another may be started.

    A policy is asked often and for requests that may never come true, so `evict` has no effect of any kind, reads no
    clock and gives the same answer to the same question. What it knows is fixed when it is made; to change a policy,
    make another one and hand it to `Scheduler.replace`.
    """

    def evict(self, target: str, running: Sequence[str]) -> tuple[str, ...]:
        """The members of `running` that cannot stay when `target` is loaded, in the order of `running`.

        `running` is sorted; it holds whatever has a process or is about to get one, also models that are starting or
        stopping. `target` is among them if it is up already, and is never part of the answer.
        """
        ...


@runtime_checkable
class ExplainingPolicy(Policy, Protocol):
    """A policy that can give reasons. A plan shows them to the user; nothing depends on them."""

    def why(self, target: str, victim: str, running: Sequence[str]) -> str:
        """One sentence: why `victim`, a member of `evict(target, running)`, has to go."""
        ...
