"""Which target of a selector gets a request: decides from states and counts that are passed in, and says why.

Touches nothing; `lswap.service.selectors` keeps the counts. Source: routing reference, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lswap.core.events import State

__all__ = ["Choice", "Target", "choose"]

_WARM = (State.READY, State.WAKING, State.STARTING)
_LEAVING = (State.STOPPING, State.SHUTDOWN)


class Target(msgspec.Struct, frozen=True):
    """One target as it is now."""

    #: As the selector lists it; may be an alias. The request is changed to this name.
    name: str
    #: What it means: the ID of a local model, or `<peer>/<model>`. Requests are counted by this.
    model: str
    #: Of the local model's process; None for a peer's model, whose state is not known.
    state: State | None


class Choice(msgspec.Struct, frozen=True):
    """The decision."""

    target: Target
    #: For the log.
    why: str
    #: Whether it is the turn of the target among equals, so that the next one is due next time.
    in_turn: bool = False


def choose(strategy: str, targets: Sequence[Target], busy: Mapping[str, int], limit: int, turn: int) -> Choice | None:
    """The target for the next request; None when there is none that may take it.

    @param strategy: `pin`, `warm` or `spillover`; anything else is `pin`.
    @param busy: requests under way by `Target.model`, as this selector has sent them.
    @param limit: requests that a target takes before the next one is woken; for `spillover`.
    @param turn: how many ties were broken so far; for `spillover`.
    """
    if strategy == "spillover":
        return _spillover(targets, busy, limit, turn)
    if not targets:
        return None
    if strategy == "warm":
        for state in _WARM:
            for target in targets:
                if target.state is state:
                    return Choice(target, f"the first that is {state.value}")
        return Choice(targets[0], "the first, as none is ready or starting")
    return Choice(targets[0], "the first, always")


def _spillover(targets: Sequence[Target], busy: Mapping[str, int], limit: int, turn: int) -> Choice | None:
    active: list[Target] = []
    cold: list[Target] = []
    for target in targets:
        if target.state in _LEAVING:
            continue
        if target.state in _WARM or busy.get(target.model, 0) > 0:
            active.append(target)
        else:
            cold.append(target)
    if not active:
        return Choice(cold[0], "the first cold one, as none is active") if cold else None
    least = min(busy.get(target.model, 0) for target in active)
    if least >= limit and cold:
        return Choice(cold[0], f"the first cold one, as each active one has {limit} or more")
    equals = [target for target in active if busy.get(target.model, 0) == least]
    chosen = equals[turn % len(equals)]
    return Choice(chosen, f"the least busy of {len(active)} active: {least} under way, limit {limit}", in_turn=True)
