"""What the scheduler tells those who only ask: what would happen to a request, and who waits for what.

Decides nothing: it puts the decision of `lswap.core.board` into words, so that what is told is what would be done.
Read `lswap.core.scheduler` next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from lswap.core.board import Board, Decision, ModelView, Request, Step
from lswap.core.effects import Refusal
from lswap.core.policy import ExplainingPolicy

__all__ = ["Plan", "Queued", "as_record", "make_plan", "tell_decision", "tell_queue"]


class Plan(msgspec.Struct, frozen=True):
    """What would happen to a request that came now; or happens to one, when the decision is really taken."""

    #: `serve`: let through at once. `start`: its model is being loaded, or would be at once. `wait`: something busy or
    #: another swap comes first. `refuse`: turned away, for `refusal`.
    would: Literal["serve", "start", "wait", "refuse"]
    #: Models that would be stopped for it, each with the reason.
    unload: tuple[tuple[str, str], ...] = ()
    #: Models whose requests, or whose loading, it would wait for, each with its number of requests in flight.
    waits_for: tuple[tuple[str, int], ...] = ()
    #: Requests for any model that wait already.
    ahead: int = 0
    refusal: Refusal | None = None


class Queued(msgspec.Struct, frozen=True):
    """One request in the queue."""

    ticket: int
    model: str
    #: 1 is the first.
    position: int
    #: When it arrived, on the clock of the events.
    since: float
    #: Models whose requests, or whose loading, it waits for.
    waits_for: tuple[str, ...]


def make_plan(board: Board, model: str) -> Plan:
    """What would happen to a request for `model` that came now."""
    return tell_decision(board, model, board.admit(model), len(board.waiting))


def tell_decision(board: Board, model: str, decision: Decision, ahead: int) -> Plan:
    """A decision of this board in words, before it is carried out; `ahead` requests wait already."""
    if decision.step is Step.REFUSE:
        return Plan("refuse", ahead=ahead, refusal=decision.refusal)
    if decision.step is Step.SERVE:
        return Plan("serve", ahead=ahead)
    view = board.models[model]
    victims = decision.evict
    if decision.step is Step.JOIN and view.swap is not None:
        victims = tuple([name for name in view.swap.evict if name in board.running()])
    return Plan(
        would="wait" if decision.step is Step.WAIT else "start",
        unload=tuple([(victim, _why(board, view, victim)) for victim in victims]),
        waits_for=tuple([(name, board.models[name].inflight) for name in _waits_for(decision)]),
        ahead=ahead,
    )


def as_record(model: str, state: str, plan: Plan) -> dict[str, Any]:
    """A plan as it is shown and logged. `model` is the name that was asked for, `state` that of its process."""
    record: dict[str, Any] = {
        "model": model,
        "state": state,
        "would": plan.would,
        "unload": [{"model": victim, "why": why} for victim, why in plan.unload],
        "waitsFor": [{"model": name, "inflight": count} for name, count in plan.waits_for],
        "ahead": plan.ahead,
    }
    if plan.refusal is not None:
        record["refusal"] = plan.refusal.value
    return record


def tell_queue(board: Board, queue: Iterable[Request]) -> tuple[Queued, ...]:
    """The queue with reasons."""
    requests = list(queue)
    waits_for = {model: _waits_for(board.place(model)) for model in {request.model for request in requests}}
    return tuple(
        [
            Queued(request.ticket, request.model.name, position, request.since, waits_for[request.model])
            for position, request in enumerate(requests, 1)
        ]
    )


def _waits_for(decision: Decision) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*decision.busy, *[swap.model.name for swap in decision.behind]]))


def _why(board: Board, view: ModelView, victim: str) -> str:
    if victim == view.name:
        return "its process was started by an older configuration"
    if isinstance(board.policy, ExplainingPolicy):
        return board.policy.why(view.name, victim, board.running_beside(view))
    return f"it cannot run beside {view.name!r}"
