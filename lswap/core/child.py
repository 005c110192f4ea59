"""The life of one model's process as a machine: inputs in, steps out.

The machine decides, `lswap.service.children` carries the steps out; docs/machines/child.md is a drawing of it. Outputs
only append steps and note the state's name, so they cannot fail. "Make it ready" and "stop it" are commands that may
come in any state and any number of times; nothing outside reads a state and then acts on it.

A model that is stopped while it starts shows as `stopping` until its process group is gone. A start that is wanted
while the process is still stopping is kept (`restarting`, shown as `stopping`) and begins when the group is gone.
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

    #: Check the port, spawn, poll the health endpoint; then `healthy`, or `failed`.
    SPAWN = "spawn"
    #: End the process as its configuration says; then `gone`.
    END = "end"
    #: End a start, and what there is of its process, which gets less time for it; then `gone`.
    ABORT = "abort"
    #: Those who wait for readiness have it.
    READY = "ready"
    #: Those who wait for readiness get the error.
    FAILED = "failed"
    #: Those who wait for the end of the process have it.
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

    def stop(self) -> None:
        """Command: end it."""

    def shut(self) -> None:
        """Command: end it for good."""

    def healthy(self) -> None:
        """The process answers."""

    def failed(self) -> None:
        """The start came to nothing: no spawn, or no answer in time."""

    def exited(self) -> None:
        """The leader of the process group ended."""

    def gone(self) -> None:
        """Nothing of the process is left."""


_builder = TypeMachineBuilder(ChildInputs, Life)

_stopped = _builder.state("stopped")
_starting = _builder.state("starting")
_ready = _builder.state("ready")
_stopping = _builder.state("stopping")
_restarting = _builder.state("restarting")
_ending = _builder.state("ending")
_shutdown = _builder.state("shutdown")

_S = State
#: state, input, next state, what others see then, steps
_TABLE = (
    (_stopped, ChildInputs.start, _starting, _S.STARTING, (Step.SPAWN,)),
    (_stopped, ChildInputs.stop, _stopped, _S.STOPPED, (Step.STOPPED,)),
    (_stopped, ChildInputs.shut, _shutdown, _S.SHUTDOWN, (Step.STOPPED,)),
    (_starting, ChildInputs.start, _starting, _S.STARTING, ()),
    (_starting, ChildInputs.healthy, _ready, _S.READY, (Step.READY,)),
    (_starting, ChildInputs.failed, _stopping, _S.STOPPING, (Step.FAILED, Step.ABORT)),
    (_starting, ChildInputs.exited, _stopping, _S.STOPPING, (Step.FAILED, Step.ABORT)),
    (_starting, ChildInputs.stop, _stopping, _S.STOPPING, (Step.FAILED, Step.ABORT)),
    (_starting, ChildInputs.shut, _ending, _S.STOPPING, (Step.FAILED, Step.ABORT)),
    (_ready, ChildInputs.start, _ready, _S.READY, (Step.READY,)),
    (_ready, ChildInputs.stop, _stopping, _S.STOPPING, (Step.END,)),
    (_ready, ChildInputs.exited, _stopping, _S.STOPPING, (Step.END,)),
    (_ready, ChildInputs.shut, _ending, _S.STOPPING, (Step.END,)),
    (_stopping, ChildInputs.start, _restarting, _S.STOPPING, ()),
    (_stopping, ChildInputs.stop, _stopping, _S.STOPPING, (Step.END,)),
    (_stopping, ChildInputs.gone, _stopped, _S.STOPPED, (Step.STOPPED,)),
    (_stopping, ChildInputs.shut, _ending, _S.STOPPING, (Step.END,)),
    (_restarting, ChildInputs.start, _restarting, _S.STOPPING, ()),
    (_restarting, ChildInputs.stop, _stopping, _S.STOPPING, (Step.FAILED, Step.END)),
    (_restarting, ChildInputs.gone, _starting, _S.STARTING, (Step.STOPPED, Step.SPAWN)),
    (_restarting, ChildInputs.shut, _ending, _S.STOPPING, (Step.FAILED, Step.END)),
    (_ending, ChildInputs.start, _ending, _S.STOPPING, (Step.FAILED,)),
    (_ending, ChildInputs.stop, _ending, _S.STOPPING, (Step.END,)),
    (_ending, ChildInputs.shut, _ending, _S.STOPPING, (Step.END,)),
    (_ending, ChildInputs.gone, _shutdown, _S.SHUTDOWN, (Step.STOPPED,)),
    (_shutdown, ChildInputs.start, _shutdown, _S.SHUTDOWN, (Step.FAILED,)),
    (_shutdown, ChildInputs.stop, _shutdown, _S.SHUTDOWN, (Step.STOPPED,)),
    (_shutdown, ChildInputs.shut, _shutdown, _S.SHUTDOWN, (Step.STOPPED,)),
)
_STATES = (_stopped, _starting, _ready, _stopping, _restarting, _ending, _shutdown)
_INPUTS = (
    ChildInputs.start,
    ChildInputs.stop,
    ChildInputs.shut,
    ChildInputs.healthy,
    ChildInputs.failed,
    ChildInputs.exited,
    ChildInputs.gone,
)


def _output(shown: State, steps: tuple[Step, ...]) -> Callable[[ChildInputs, Life], None]:
    def note(_: ChildInputs, life: Life) -> None:
        life.state = shown
        life.steps += steps

    return note


def _ignored(_: ChildInputs, life: Life) -> None:
    """A report that comes too late to matter, such as a death while the end is already on its way."""


def _build() -> Callable[[Life], ChildInputs]:
    named = {(state, told): (then, _output(shown, steps)) for state, told, then, shown, steps in _TABLE}
    for state in _STATES:
        for told in _INPUTS:
            then, output = named.get((state, told), (state, _ignored))
            state.upon(told).to(then)(output)
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
    for state, told, then, shown, steps in _TABLE:
        yield Transition(state.name, told.__name__, then.name, shown, steps)


def new_child(life: Life) -> ChildInputs:
    """A stopped child that notes what is due in `life`."""
    return _machine(life)
