"""Eviction by groups: decides which running models have to go for another, by the groups that they are in.

Source: the reference's groups. Knows nothing of processes or requests. Read `lswap.core.policy` next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lswap.core.model import DEFAULT_GROUP, Group

__all__ = ["GroupPolicy"]


class GroupPolicy:
    """Evicts a running model when

    - it is in the target's own group, and that group swaps; or
    - it is in another group which is not persistent, and the target's group is exclusive.

    So a target whose group is not exclusive never evicts anything of another group, not even a model that is in an
    exclusive one.
    """

    def __init__(self, groups: Mapping[str, Group]) -> None:
        """A model that no group names belongs to the default group, which need not be given.

        Raises ValueError when a model is in two groups, or twice in one.
        """
        self._default = groups.get(DEFAULT_GROUP, Group(id=DEFAULT_GROUP))
        self._group_of: dict[str, Group] = {}
        for group in groups.values():
            for member in group.members:
                if member in self._group_of:
                    raise ValueError(
                        f"model {member!r} is a member of {self._group_of[member].id!r} and of {group.id!r}"
                    )
                self._group_of[member] = group

    def group(self, model: str) -> Group:
        """The group whose rules hold for this model, known or not."""
        return self._group_of.get(model, self._default)

    def evict(self, target: str, running: Sequence[str]) -> tuple[str, ...]:
        """See `Policy.evict`."""
        own = self.group(target)
        return tuple([model for model in running if model != target and self._excludes(own, self.group(model))])

    def why(self, target: str, victim: str, running: Sequence[str]) -> str:
        """See `ExplainingPolicy.why`."""
        own = self.group(target)
        if self.group(victim) is own:
            return f"group {own.id!r} runs one model at a time"
        return f"group {own.id!r} of {target!r} is exclusive"

    @staticmethod
    def _excludes(own: Group, other: Group) -> bool:
        if own is other:
            return own.swap
        return own.exclusive and not other.persistent
