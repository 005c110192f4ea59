"""Which request gets its model when: events in, effects out. The heart of lswap, and a pure one.

`Scheduler.handle` is the only way in. It never waits, does nothing itself and knows no clock; what it wants done it
returns. Each event is worked off in two steps: note the fact and answer what follows from it at once; look at the
queue again if anything changed that could let somebody go on.

The decision itself is in `lswap.core.board`, the order of waiting in `lswap.core.queue`, the choice of victims in a
`lswap.core.policy`, the answers to those who only ask in `lswap.core.plan`. `lswap.core.events` and
`lswap.core.effects` are the two vocabularies; docs/scheduler.md tells the whole as a story.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from lswap.core.board import ActiveSwap, Board, Decision, ModelRules, ModelView, Request, Step
from lswap.core.effects import Effect, GiveUp, Grant, Idle, Refusal, Refuse, Stop, Swap
from lswap.core.events import (
    Arrived,
    Event,
    Expired,
    Left,
    Served,
    ShutDown,
    State,
    StateChanged,
    SwapEnded,
    Unload,
)
from lswap.core.plan import Plan, Queued, make_plan, tell_decision, tell_queue
from lswap.core.policy import Policy
from lswap.core.queue import Queue

__all__ = ["EventError", "ModelRules", "Plan", "Queued", "Scheduler"]


class EventError(ValueError):
    """Whoever told the event broke the contract of the events, which is a fault of ours. It had no effect."""


class Scheduler:
    """Owns every request from its `Arrived` to its `Refuse`, `Left` or `Served`."""

    def __init__(self, models: Mapping[str, ModelRules], policy: Policy, queue_limit: int) -> None:
        """`queue_limit` is how many requests may wait at the same time, over all models; at least 1."""
        self._board = Board(models, policy, queue_limit)
        self._queue = Queue()
        #: Granted requests, by ticket.
        self._granted: dict[int, ModelView] = {}
        self._swaps_begun = 0
        #: Told of each decision before it is carried out: ticket, model, and what `plan` would have said. It may not
        #: call the scheduler. For one that waits in the queue the decision to wait is told once.
        self.on_decision: Callable[[int, str, Plan], None] | None = None
        self._handlers: dict[type[Event], Callable[[Any, list[Effect]], ModelView | None]] = {
            Arrived: self._arrived,
            Left: self._left,
            Served: self._served,
            StateChanged: self._state_changed,
            SwapEnded: self._swap_ended,
            Unload: self._unload,
            Expired: self._expired,
            ShutDown: self._shut_down,
        }

    # -- the way in --------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Take note of an event; what has to be done about it, in this order.

        An event that comes late or names something unknown has no effect. Raises `EventError`, and changes nothing,
        when a ticket arrives that is in use, or one is served that was not granted, or the event is of no known kind.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise EventError(f"not an event for a scheduler: {event!r}")
        effects: list[Effect] = []
        model = handler(event, effects)
        if self._board.changed:
            self._settle(effects)
        if model is not None:
            if model.spent:
                self._retire(model, effects)
            elif model.idle and not self._board.closing:
                effects.append(Idle(model.name, model.idle_since))
            elif model.rules is None:
                self._board.forget(model)
        return effects

    def grant_now(self, ticket: int, model: str) -> bool:
        """Grant a request that arrives now if nothing is in its way; False changes nothing, and is for `Arrived`.

        What most requests need, for a tenth of the cost. Decisions that somebody is told of take the long way.
        """
        board = self._board
        if self.on_decision is not None or board.admit(model).step is not Step.SERVE:
            return False
        view = board.models[model]
        view.reserved += 1
        self._grant(ticket, view, [])
        return True

    def replace(
        self,
        models: Mapping[str, ModelRules],
        policy: Policy,
        queue_limit: int,
        outdated: Collection[str] = (),
        leaving: Collection[int] = (),
    ) -> list[Effect]:
        """Go on by other rules; what follows for the requests in the queue.

        Those whose model is gone are refused as unknown, also where it is being loaded. Requests keep the priority that
        they came with. A model that is gone from the rules finishes its requests and is stopped, and is in the way of
        others until its owner reports that. So does one of `outdated`, and requests that come from now on wait for its
        new process. A load of either that nobody waits for ends early. `leaving` are tickets that leave in the same
        step, so that their room is given by the new rules.
        """
        effects: list[Effect] = []
        for ticket in leaving:
            self._left(Left(0.0, ticket), effects)
        self._board.adopt(models, policy, queue_limit, outdated)
        self._refuse_queued(lambda request: request.model.rules is None, Refusal.UNKNOWN, effects)
        for swap in self._board.swaps.values():
            if swap.model.rules is None:
                for request in swap.waiters.values():
                    self._refuse(request, Refusal.UNKNOWN, effects)
                swap.waiters.clear()
            if not swap.waiters and (swap.model.rules is None or swap.model.outdated):
                self._give_up(swap, effects, "reload")
        self._settle(effects)
        for model in list(self._board.models.values()):
            if model.spent:
                self._retire(model, effects)
        return effects

    # -- questions ---------------------------------------------------------------------------------------------------

    def plan(self, model: str) -> Plan:
        """What would happen to a request for `model` that came now. Changes nothing."""
        return make_plan(self._board, model)

    def queued(self) -> tuple[Queued, ...]:
        """The queue, in its order. Requests that wait for a swap that is under way are not in it."""
        return tell_queue(self._board, self._queue)

    def place(self, ticket: int) -> int:
        """Where a request stands in the queue: 1 is the first, 0 is not in it."""
        request = self._board.waiting.get(ticket)
        return self._queue.place(request) if request is not None else 0

    def waiting(self) -> int:
        """How many requests wait, in the queue or for a swap."""
        return len(self._board.waiting)

    def inflight(self, model: str) -> int:
        """How many granted requests of a model are not over."""
        view = self._board.models.get(model)
        return view.inflight if view is not None else 0

    def reserved(self, model: str) -> int:
        """How many requests of a model wait or are in flight: what `concurrencyLimit` counts."""
        view = self._board.models.get(model)
        return view.reserved if view is not None else 0

    def state(self, model: str) -> State:
        """The state last reported of a model; stopped if there was none."""
        view = self._board.models.get(model)
        return view.state if view is not None else State.STOPPED

    def running(self) -> tuple[str, ...]:
        """All models that have a process or for which a swap is under way, sorted."""
        return self._board.running()

    # -- from requests -----------------------------------------------------------------------------------------------

    def _arrived(self, event: Arrived, effects: list[Effect]) -> ModelView | None:
        ticket = event.ticket
        board = self._board
        if ticket in self._granted or ticket in board.waiting:
            raise EventError(f"ticket {ticket} is in use")
        decision = board.admit(event.model)
        if self.on_decision is not None:
            plan = tell_decision(board, event.model, decision, len(board.waiting))
            self.on_decision(ticket, event.model, plan)
        if decision.refusal is not None:
            effects.append(Refuse(ticket, decision.refusal, ", ".join(decision.evict)))
            return None
        view = board.models[event.model]
        view.reserved += 1
        if decision.step is Step.SERVE:
            self._grant(ticket, view, effects)
            return None
        assert view.rules is not None  # admit() saw to it
        request = Request(ticket, view, view.rules.priority, event.now)
        board.waiting[ticket] = request
        if decision.step is Step.WAIT:
            self._queue.add(request)
            self._make_room(request, decision, effects)
        else:
            self._go_on(request, decision, effects)
        return None

    def _left(self, event: Left, effects: list[Effect]) -> ModelView | None:
        request = self._board.waiting.pop(event.ticket, None)
        if request is None:
            return None
        request.model.reserved -= 1
        if request.queued:
            self._queue.remove(request)
        else:
            swap = request.model.swap
            assert swap is not None  # or it would have had its answer
            del swap.waiters[event.ticket]
            if not swap.waiters:
                # Somebody in the queue may want its room, now that nobody waits for it.
                self._board.changed = True
        return request.model

    def _served(self, event: Served, effects: list[Effect]) -> ModelView | None:
        view = self._granted.pop(event.ticket, None)
        if view is None:
            if event.ticket in self._board.waiting:
                raise EventError(f"ticket {event.ticket} was not granted")
            return None
        view.reserved -= 1
        view.inflight -= 1
        if not view.inflight:
            view.idle_since = event.now
            self._board.changed = True
        return view

    # -- from processes and swaps ------------------------------------------------------------------------------------

    def _state_changed(self, event: StateChanged, effects: list[Effect]) -> ModelView | None:
        view = self._board.observe(event.model, event.state)
        if view is not None and view.ready and not view.inflight:
            view.idle_since = event.now
        return view

    def _swap_ended(self, event: SwapEnded, effects: list[Effect]) -> ModelView | None:
        swap = self._board.swaps.get(event.swap)
        if swap is None:
            self._board.end_forgotten(event.swap)
            return None
        self._board.end(swap)
        if event.error is None:
            self._board.keep(swap.model)
        for request in swap.waiters.values():
            if event.error is None:
                del self._board.waiting[request.ticket]
                self._grant(request.ticket, swap.model, effects)
            else:
                self._refuse(request, Refusal.HOOK if event.hook else Refusal.FAILED, effects, event.error)
        return swap.model

    # -- from people and timers --------------------------------------------------------------------------------------

    def _unload(self, event: Unload, effects: list[Effect]) -> None:
        names = frozenset(event.models)
        for swap in [swap for swap in self._board.swaps.values() if swap.model.name in names]:
            # Its end answers nobody: by then another swap may be loading the model for others.
            self._board.disown(swap)
            for request in swap.waiters.values():
                self._refuse(request, Refusal.UNLOADED, effects)
            self._give_up(swap, effects, "unload")
        self._refuse_queued(lambda request: request.model.name in names, Refusal.UNLOADED, effects)
        if event.models:
            self._stop(event.models, "unload", effects)

    def _expired(self, event: Expired, effects: list[Effect]) -> None:
        view = self._board.models.get(event.model)
        if view is not None and view.idle and view.swap is None:
            self._stop((view.name,), "ttl", effects)

    def _shut_down(self, event: ShutDown, effects: list[Effect]) -> None:
        self._board.closing = True
        for swap in self._board.swaps.values():
            for request in swap.waiters.values():
                self._refuse(request, Refusal.SHUTTING_DOWN, effects)
            swap.waiters.clear()
            self._give_up(swap, effects, "shutdown")
        self._refuse_queued(lambda request: True, Refusal.SHUTTING_DOWN, effects)

    # -- what is done ------------------------------------------------------------------------------------------------

    def _settle(self, effects: list[Effect]) -> None:
        """Let everybody in the queue go on who can, in order; a later request may pass one that still has to wait.

        A swap that begins may let in an earlier request as well, as the policy sees it running then; so the queue is
        looked at until nothing changes. Afterwards nobody is in it who could go on: whatever could change that sets
        `Board.changed`.
        """
        board = self._board
        while board.changed:
            board.changed = False
            for request in self._queue.walk():
                decision = board.place(request.model)
                if decision.step is Step.WAIT:
                    self._make_room(request, decision, effects)
                    continue
                self._tell(request, decision)
                self._queue.remove(request)
                if decision.refusal is not None:
                    self._refuse(request, decision.refusal, effects, ", ".join(decision.evict))
                else:
                    self._go_on(request, decision, effects)

    def _tell(self, request: Request, decision: Decision) -> None:
        """Tell what becomes of a request that has waited in the queue."""
        if self.on_decision is not None:
            board = self._board
            ahead = list(board.waiting).index(request.ticket)  # they are in the order of arrival
            model = request.model.name
            self.on_decision(request.ticket, model, tell_decision(board, model, decision, ahead))

    def _go_on(self, request: Request, decision: Decision, effects: list[Effect]) -> None:
        """Carry out a decision other than to wait or to refuse."""
        view = request.model
        if decision.step is Step.SERVE:
            del self._board.waiting[request.ticket]
            self._grant(request.ticket, view, effects)
            return
        if decision.step is Step.START:
            self._swaps_begun += 1
            self._board.begin(ActiveSwap(self._swaps_begun, view, decision.evict))
            effects.append(Swap(self._swaps_begun, view.name, decision.evict))
        swap = view.swap
        assert swap is not None  # just begun, or the reason to join
        swap.waiters[request.ticket] = request

    def _make_room(self, request: Request, decision: Decision, effects: list[Effect]) -> None:
        """End the swaps in the way of a queued request that nobody waits for any more.

        A swap is in the way when one of the two evicts the other's model, or when it loads, by an older configuration,
        what this request asks for. Not when both evict the same one: the request can go on as soon as that is gone,
        long before the other swap is over.
        """
        for swap in decision.behind:
            outdated = swap.model is request.model  # else the request would have joined it
            in_the_way = swap.model.name in decision.evict or swap.wants_room_of(request.model.name)
            if not swap.waiters and (outdated or in_the_way):
                self._give_up(swap, effects)

    def _give_up(self, swap: ActiveSwap, effects: list[Effect], why: str = "swap") -> None:
        if not swap.given_up:
            swap.given_up = True
            effects.append(GiveUp(swap.id, why))

    def _stop(self, names: tuple[str, ...], why: str, effects: list[Effect]) -> None:
        for name in names:
            self._board.dismiss(name)
        effects.append(Stop(names, why))

    def _retire(self, model: ModelView, effects: list[Effect]) -> None:
        """End a process that the configuration in force does not want, at its first idle moment."""
        if not self._board.closing:
            self._stop((model.name,), "reload", effects)

    def _grant(self, ticket: int, view: ModelView, effects: list[Effect]) -> None:
        view.inflight += 1
        self._granted[ticket] = view
        effects.append(Grant(ticket, view.name))

    def _refuse(self, request: Request, reason: Refusal, effects: list[Effect], detail: str = "") -> None:
        del self._board.waiting[request.ticket]
        request.model.reserved -= 1
        effects.append(Refuse(request.ticket, reason, detail))

    def _refuse_queued(self, which: Callable[[Request], bool], reason: Refusal, effects: list[Effect]) -> None:
        refused = [request for request in self._queue if which(request)]
        for request in refused:
            self._queue.remove(request)
            self._refuse(request, reason, effects)
