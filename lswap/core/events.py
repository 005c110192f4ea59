"""What a scheduler is told. Frozen values; time travels inside them, so that the scheduler needs no clock.

Seconds are floats of one monotonic clock. `ticket` names one client request and is never used twice.
Read `lswap.core.effects` next: what a scheduler answers with.
"""

from __future__ import annotations

import enum

import msgspec

__all__ = ["Arrived", "Event", "Expired", "Left", "Served", "ShutDown", "State", "StateChanged", "SwapEnded", "Unload"]


class State(enum.Enum):
    """Where the process of a model is in its life; the values are the words of `/running`."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    #: On its way to sleep, asleep (its process is there, its memory is not), and on its way back.
    SLEEPING = "sleeping"
    ASLEEP = "asleep"
    WAKING = "waking"
    STOPPING = "stopping"
    SHUTDOWN = "shutdown"


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all events."""

    now: float


class Arrived(Event, frozen=True, gc=False):
    """A client wants a model."""

    ticket: int
    model: str


class Left(Event, frozen=True, gc=False):
    """The client of a request that still waits is gone. For any other ticket: no effect."""

    ticket: int


class Served(Event, frozen=True, gc=False):
    """A granted request is over, whichever way. Exactly one for each `Grant`."""

    ticket: int


class StateChanged(Event, frozen=True, gc=False):
    """The owner of a model's process reports a new state."""

    model: str
    state: State


class SwapEnded(Event, frozen=True):
    """The task that a `Swap` effect asked for is over; `error` is None when the model is ready.

    Exactly one for each `Swap`, also when that was given up or its model unloaded; then it answers no request. What the
    process did before has been reported by then.
    """

    swap: int
    error: str | None
    #: Whether the error is that of a hook.
    hook: bool = False


class Unload(Event, frozen=True):
    """Somebody asked by hand that models be stopped, whatever they do."""

    models: tuple[str, ...]


class Expired(Event, frozen=True, gc=False):
    """The idle time of a model has run out. No effect when it has work again."""

    model: str


class ShutDown(Event, frozen=True, gc=False):
    """Everything that still waits must be told that there will be no answer; later arrivals too."""
