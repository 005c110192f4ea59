"""What lswap does, in one short line: for the service manager. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lswap.core.events import State

__all__ = ["status_line"]

#: Names of models that are told of each state.
_MOST = 8
#: The states that are told, those that matter most first.
_TOLD = (State.READY, State.STARTING, State.WAKING, State.STOPPING, State.SLEEPING, State.ASLEEP)


def status_line(states: Mapping[str, State], problems: int = 0) -> str:
    """`ready: a, b; starting: c`; `problems` is how many the latest configuration has, which is not in force then."""
    parts = []
    if problems:
        parts.append(f"the latest configuration was refused, with {problems} problem{'' if problems == 1 else 's'}")
    for told in _TOLD:
        names = sorted(name for name, state in states.items() if state is told)
        if names:
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            parts.append(f"{told.value}: {', '.join(names[:_MOST])}{more}")
    if not parts or (problems and len(parts) == 1):
        parts.append("no model runs")
    return "; ".join(parts)
