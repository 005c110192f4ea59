"""The life of one model's process as a machine: inputs in, steps out.

The machine decides, `lswap.service.children` carries the steps out; docs/machines/child.md is a drawing of it. Outputs
only append steps and note the state's name, so they cannot fail. "Make it ready", "make room" and "stop it" are
commands that may come in any state and any number of times; nothing outside reads a state and then acts on it.

A whole life goes through these phases; what runs in each is over before the next one begins:

    stopped > preparing > starting > warming > ready > parting > stopping > clearing > stopped
              on_will_start          on_startup        on_will_stop         on_stopped

and in the middle, for a model that can sleep, ready > sleeping > asleep > waking > ready. A start that comes to nothing
skips `parting`, and so does a process that died by itself. What is wanted while an end is under way is kept: nothing, a
new start (`..._wanted`), or the end for good (`..._last`). While `clearing` nothing is left of the process, so others
see it as stopped, and only the next start of the same model waits for it. A model whose start is stopped shows as
`stopping` until its process group is gone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from automat import TypeMachineBuilder

from lswap.core.events import State

__all__ = ["ChildInputs", "Life", "Step", "Transition", "new_child", "transitions"]


class Step(enum.Enum):
    """What the owner of a process has to do."""

    #: Do what comes before the spawn; then `done`, or `failed`.
    PREPARE = "prepare"
    #: Check the port, spawn, poll the health endpoint; then `healthy`, or `failed`.
    SPAWN = "spawn"
    #: Do what comes before the first request; then `done`, or `failed`.
    WARM = "warm"
    #: Put it to sleep; then `done`, or `failed`.
    SLEEP = "sleep"
    #: Wake it up; then `done`, or `failed`.
    WAKE = "wake"
    #: Do what comes before the stop signal; then `done`, whatever became of it.
    PART = "part"
    #: End the process as its configuration says; then `gone`.
    END = "end"
    #: End a start, and what there is of its process, which gets less time for it; then `gone`.
    ABORT = "abort"
    #: Do what comes after the end; then `done`, whatever became of it.
    CLEAR = "clear"
    #: Those who wait for readiness have it.
    READY = "ready"
    #: Those who wait for readiness get the error.
    FAILED = "failed"
    #: Those who wait for its room have it: it is asleep.
    AWAY = "away"
    #: Those who wait for the end of the process have it, and those who wait for its room.
    STOPPED = "stopped"


class Life:
    """What the machine tells: the steps that are due, and the state as others see it."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.state = State.STOPPED

    def take(self) -> list[Step]:
        """The steps since the last call."""
        steps, self.steps = self.steps, []
        return steps


class ChildInputs(Protocol):
    """All that can happen to a child."""

    def start(self) -> None:
        """Command: make it ready."""

    def rest(self) -> None:
        """Command: make room. It falls asleep if it is ready, and is stopped else. Only for one that can sleep."""

    def stop(self) -> None:
        """Command: end it."""

    def shut(self) -> None:
        """Command: end it for good."""

    def healthy(self) -> None:
        """The process answers."""

    def done(self) -> None:
        """What the last step asked for came to its end."""

    def failed(self) -> None:
        """What the last step asked for came to nothing."""

    def exited(self) -> None:
        """The leader of the process group ended."""

    def spoilt(self) -> None:
        """The leader ended of something that the next start will do without."""

    def gone(self) -> None:
        """Nothing of the process is left."""


_builder = TypeMachineBuilder(ChildInputs, Life)

_NAMES = (
    *("stopped", "preparing", "starting", "warming", "ready", "sleeping", "recalled", "asleep", "waking", "parting"),
    *("parting_wanted", "parting_last", "stopping", "stopping_wanted", "stopping_last", "clearing", "clearing_wanted"),
    *("clearing_last", "shutdown"),
)
#: What others see in each state.
_SHOWN = {
    "stopped": State.STOPPED,
    "preparing": State.STARTING,
    "starting": State.STARTING,
    "warming": State.STARTING,
    "ready": State.READY,
    "sleeping": State.SLEEPING,
    "recalled": State.SLEEPING,
    "asleep": State.ASLEEP,
    "waking": State.WAKING,
    "clearing": State.STOPPED,
    "clearing_wanted": State.STARTING,
    "clearing_last": State.STOPPED,
    "shutdown": State.SHUTDOWN,
}

_in = ChildInputs
_S = Step
_ABORTED = (_S.FAILED, _S.ABORT)
#: state, input, next state, steps. An input that has no row changes nothing: it comes too late to matter, such as a
#: death while the end is already on its way.
_TABLE = (
    ("stopped", _in.start, "preparing", (_S.PREPARE,)),
    ("stopped", _in.rest, "stopped", (_S.STOPPED,)),
    ("stopped", _in.stop, "stopped", (_S.STOPPED,)),
    ("stopped", _in.shut, "shutdown", (_S.STOPPED,)),
    ("preparing", _in.done, "starting", (_S.SPAWN,)),
    ("starting", _in.healthy, "warming", (_S.WARM,)),
    ("warming", _in.done, "ready", (_S.READY,)),
    ("warming", _in.spoilt, "stopping_wanted", (_S.ABORT,)),
    *(
        (state, told, then, _ABORTED)
        for state in ("preparing", "starting", "warming")
        for told, then in (
            (_in.failed, "stopping"),
            (_in.exited, "stopping"),
            (_in.rest, "stopping"),
            (_in.stop, "stopping"),
            (_in.shut, "stopping_last"),
        )
    ),
    ("ready", _in.start, "ready", (_S.READY,)),
    ("ready", _in.rest, "sleeping", (_S.SLEEP,)),
    ("ready", _in.stop, "parting", (_S.PART,)),
    ("ready", _in.exited, "stopping", (_S.END,)),
    ("ready", _in.shut, "parting_last", (_S.PART,)),
    ("sleeping", _in.start, "recalled", ()),
    ("sleeping", _in.done, "asleep", (_S.AWAY,)),
    ("sleeping", _in.failed, "parting", (_S.PART,)),
    ("sleeping", _in.stop, "parting", (_S.PART,)),
    ("sleeping", _in.exited, "stopping", (_S.END,)),
    ("sleeping", _in.shut, "parting_last", (_S.PART,)),
    ("recalled", _in.rest, "sleeping", (_S.FAILED,)),
    ("recalled", _in.done, "waking", (_S.AWAY, _S.WAKE)),
    ("recalled", _in.failed, "parting_wanted", (_S.PART,)),
    ("recalled", _in.stop, "parting", (_S.FAILED, _S.PART)),
    ("recalled", _in.exited, "stopping_wanted", (_S.END,)),
    ("recalled", _in.shut, "parting_last", (_S.FAILED, _S.PART)),
    ("asleep", _in.start, "waking", (_S.WAKE,)),
    ("asleep", _in.rest, "asleep", (_S.AWAY,)),
    ("asleep", _in.stop, "parting", (_S.PART,)),
    ("asleep", _in.exited, "stopping", (_S.END,)),
    ("asleep", _in.shut, "parting_last", (_S.PART,)),
    ("waking", _in.done, "ready", (_S.READY,)),
    ("waking", _in.failed, "parting_wanted", (_S.PART,)),
    ("waking", _in.rest, "parting", (_S.FAILED, _S.PART)),
    ("waking", _in.stop, "parting", (_S.FAILED, _S.PART)),
    ("waking", _in.exited, "stopping_wanted", (_S.END,)),
    ("waking", _in.shut, "parting_last", (_S.FAILED, _S.PART)),
    # On the way out: what is wanted afterwards changes at once, the phases follow each other.
    *(
        (f"{phase}{wish}", told, f"{phase}{then}", steps + again)
        for phase, again in (("parting", ()), ("stopping", (_S.END,)), ("clearing", (_S.STOPPED,)))
        for wish, told, then, steps in (
            ("", _in.rest, "", ()),
            ("", _in.stop, "", ()),
            ("", _in.shut, "_last", ()),
            ("_wanted", _in.rest, "", (_S.FAILED,)),
            ("_wanted", _in.stop, "", (_S.FAILED,)),
            ("_wanted", _in.shut, "_last", (_S.FAILED,)),
            ("_last", _in.rest, "_last", ()),
            ("_last", _in.stop, "_last", ()),
            ("_last", _in.shut, "_last", ()),
        )
    ),
    *(
        row
        for phase in ("parting", "stopping", "clearing")
        for row in (
            (phase, _in.start, f"{phase}_wanted", ()),
            (f"{phase}_last", _in.start, f"{phase}_last", (_S.FAILED,)),
        )
    ),
    *(
        row
        for wish in ("", "_wanted", "_last")
        for row in (
            (f"parting{wish}", _in.done, f"stopping{wish}", (_S.END,)),
            (f"parting{wish}", _in.failed, f"stopping{wish}", (_S.END,)),
            (f"stopping{wish}", _in.gone, f"clearing{wish}", (_S.STOPPED, _S.CLEAR)),
        )
    ),
    *(
        row
        for told in (_in.done, _in.failed)
        for row in (
            ("clearing", told, "stopped", ()),
            ("clearing_wanted", told, "preparing", (_S.PREPARE,)),
            ("clearing_last", told, "shutdown", ()),
        )
    ),
    ("shutdown", _in.start, "shutdown", (_S.FAILED,)),
    ("shutdown", _in.rest, "shutdown", (_S.STOPPED,)),
    ("shutdown", _in.stop, "shutdown", (_S.STOPPED,)),
    ("shutdown", _in.shut, "shutdown", (_S.STOPPED,)),
)
_INPUTS = (_in.start, _in.rest, _in.stop, _in.shut, _in.healthy, _in.done, _in.failed, _in.exited, _in.spoilt, _in.gone)


def _output(shown: State, steps: tuple[Step, ...]) -> Callable[[ChildInputs, Life], None]:
    def note(_: ChildInputs, life: Life) -> None:
        life.state = shown
        life.steps += steps

    return note


def _ignored(_: ChildInputs, life: Life) -> None:
    """Nothing follows."""


def _build() -> Callable[[Life], ChildInputs]:
    states = {name: _builder.state(name) for name in _NAMES}
    rows = {(state, told): (then, steps) for state, told, then, steps in _TABLE}
    assert len(rows) == len(_TABLE), "two rows for one input in one state"
    for name, state in states.items():
        for told in _INPUTS:
            if (name, told) in rows:
                then, steps = rows[name, told]
                state.upon(told).to(states[then])(_output(_SHOWN.get(then, State.STOPPING), steps))
            else:
                state.upon(told).to(state)(_ignored)
    return _builder.build()


_machine = _build()


class Transition(NamedTuple):
    """What an input does in a state, for those who draw the machine; where there is none, the input is ignored."""

    state: str
    told: str
    then: str
    #: What others see then.
    shown: State
    steps: tuple[Step, ...]


def transitions() -> Iterator[Transition]:
    """All of the machine; the first state is the one that it begins in."""
    for state, told, then, steps in _TABLE:
        yield Transition(state, told.__name__, then, _SHOWN.get(then, State.STOPPING), steps)


def new_child(life: Life) -> ChildInputs:
    """A stopped child that notes what is due in `life`."""
    return _machine(life)
