"""All that a scheduler may ask for. Frozen values; `lswap.service.router` carries them out, in order, after the event.

Each `Arrived` is answered by exactly one of `Grant` and `Refuse`, unless a `Left` of the same ticket came first.
"""

from __future__ import annotations

import enum

import msgspec

__all__ = ["Effect", "GiveUp", "Grant", "Idle", "Refusal", "Refuse", "Stop", "Swap"]


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of all effects."""


class Refusal(enum.Enum):
    """Why a request gets no model."""

    UNKNOWN = "unknown model"
    LIMIT = "concurrency limit"
    QUEUE_FULL = "queue full"
    KEPT = "a kept model is in the way"
    FAILED = "start failed"
    HOOK = "hook failed"
    UNLOADED = "model unloaded"
    SHUTTING_DOWN = "shutting down"


class Grant(Effect, frozen=True, gc=False):
    """The request may use its model now. It counts as in flight from here until its `Served`."""

    ticket: int
    model: str


class Refuse(Effect, frozen=True, gc=False):
    """The request is over; `detail` has the start error for `FAILED` and `HOOK`, the models for `KEPT`."""

    ticket: int
    reason: Refusal
    detail: str = ""


class Swap(Effect, frozen=True):
    """Free the room of `evict` side by side, wait for that, make `model` ready, then report `SwapEnded(swap)`.

    Room is free when a model is gone, or asleep.
    """

    swap: int
    model: str
    evict: tuple[str, ...]


class GiveUp(Effect, frozen=True, gc=False):
    """The swap is not wanted any more: do not start its model, or abort the start; `SwapEnded` follows all the same.

    A model that is ready by now stays so. `why` is `swap` (others want its room), `unload`, `reload` or `shutdown`.
    """

    swap: int
    why: str = "swap"


class Stop(Effect, frozen=True):
    """Stop these models side by side; `why` is `unload`, `ttl` (put them to sleep if they can) or `reload`."""

    models: tuple[str, ...]
    why: str


class Idle(Effect, frozen=True, gc=False):
    """A ready model has nothing in flight since `since`, and nobody waits for it: its idle time runs from there.

    May be told again with the same `since`, when something held back an `Expired` meanwhile.
    """

    model: str
    since: float
