"""The event loop around the scheduler: tells it what happened, carries out what it asks for.

`acquire(model)` gives a Deferred that fires with a lease; cancelling it leaves the queue in the same turn. Decisions
are all in `lswap.core.scheduler`; processes are all in `lswap.service.children`.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.effects import Effect, GiveUp, Grant, Idle, Refusal, Refuse, Stop, Swap
from lswap.core.events import Arrived, Event, Expired, Left, Served, ShutDown, State, StateChanged, SwapEnded, Unload
from lswap.core.hooks import Cause, Reason
from lswap.core.plan import Plan, Queued, as_record
from lswap.core.policy import Policy
from lswap.core.scheduler import ModelRules, Scheduler
from lswap.errors import HookError, LswapError
from lswap.service.children import Child

__all__ = ["Lease", "Refused", "Router", "Waiting"]

#: How much the newest wait counts in the usual one.
_WEIGHT = 0.2
#: Seconds after which a client may come back in any case.
_LONGEST = 120


class Refused(LswapError):
    """The request gets no model, for `reason`; the text is for the client, who may ask again in `retry_after` s."""

    def __init__(self, reason: Refusal, text: str, retry_after: int = 1) -> None:
        super().__init__(text)
        self.reason = reason
        self.retry_after = retry_after


class Lease:
    """The right to use a ready model. `release` it exactly when the request is over; a second call does nothing."""

    __slots__ = ("_router", "child", "ticket")

    def __init__(self, router: Router, ticket: int, child: Child) -> None:
        self._router: Router | None = router
        self.ticket = ticket
        self.child = child

    def release(self) -> None:
        """The request is over, whichever way."""
        router, self._router = self._router, None
        if router is not None:
            router.tell(Served(now=router.clock.seconds(), ticket=self.ticket))


class Waiting(Deferred[Lease]):
    """A lease to come; cancel it when its client leaves."""

    def __init__(self, router: Router, ticket: int) -> None:
        super().__init__(lambda _: router.leave(ticket))
        self._router = router
        self._ticket = ticket

    def place(self) -> int:
        """Where the request stands in the queue now: 1 is the first, 0 is not in it (any more)."""
        return self._router.place(self._ticket)


class _Waiter:
    """One request that waits: who is told, for which model, and under which name it was asked for."""

    __slots__ = ("deferred", "model", "name", "reason", "since")

    def __init__(self, deferred: Deferred[Lease], model: str, name: str, since: float, reason: Reason) -> None:
        self.deferred = deferred
        self.model = model
        self.name = name
        #: Why it wants the model.
        self.reason = reason
        #: When it came.
        self.since = since


class _SwapTask:
    """One swap under way."""

    __slots__ = ("child", "given_up", "swap")

    def __init__(self, swap: Swap, child: Child) -> None:
        self.swap = swap
        self.child = child
        self.given_up = False


class Router:
    """Owns the waiting requests and the swaps of all local models."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, scheduler: Scheduler, group: str = "group") -> None:
        self.clock = clock
        self._scheduler = scheduler
        self.name = group
        self.children: Mapping[str, Child] = {}
        self._waiting: dict[int, _Waiter] = {}
        self._events: deque[Event] = deque()
        #: Effects from outside of an event that came while one was being worked off.
        self._later: list[Effect] = []
        self._busy = False
        self._tickets = 0
        self._swaps: dict[int, _SwapTask] = {}
        self._idle: dict[str, IDelayedCall] = {}
        self._idle_since: dict[str, float] = {}
        #: Seconds that requests which had to wait have waited of late.
        self._usual_wait = 1.0

    # -- what others ask for ------------------------------------------------------

    def acquire(self, model: str, name: str = "", reason: Reason = Reason.REQUEST) -> Waiting:
        """Wait for a model. Fails with Refused. Cancelling leaves the queue at once.

        `name` is what the client called it: after a reload a request that still waits goes where that name leads then.
        `reason` is told to the hooks of a start.
        """
        self._tickets += 1
        ticket = self._tickets
        waiter = Waiting(self, ticket)
        now = self.clock.seconds()
        self._waiting[ticket] = _Waiter(waiter, model, name or model, now, reason)
        self.tell(Arrived(now=now, ticket=ticket, model=model))
        return waiter

    def acquire_now(self, model: str) -> Lease | None:
        """A lease of a model that serves at once; else None, and nothing has changed: see `acquire`."""
        if self._busy or not self._scheduler.grant_now(self._tickets + 1, model):
            return None
        self._tickets += 1
        return Lease(self, self._tickets, self.children[model])

    def replace(
        self,
        rules: Mapping[str, ModelRules],
        policy: Policy,
        queue_limit: int,
        outdated: Collection[str],
        resolve: Callable[[str], str | None],
    ) -> None:
        """Go on by another configuration. Requests that wait follow their names; one that is gone is refused."""
        leading = {ticket: resolve(waiter.name) for ticket, waiter in self._waiting.items()}
        leaving = [ticket for ticket, model in leading.items() if model != self._waiting[ticket].model]
        self._do(self._scheduler.replace(rules, policy, queue_limit, outdated, leaving))
        for ticket in leaving:
            waiter, model = self._waiting.get(ticket), leading[ticket]
            if waiter is None:  # its client left meanwhile
                continue
            if model is None:
                del self._waiting[ticket]
                waiter.deferred.errback(Failure(Refused(Refusal.UNKNOWN, "no router for requested model")))
            else:
                waiter.model = model
                self.tell(Arrived(now=waiter.since, ticket=ticket, model=model))
        for model, since in list(self._idle_since.items()):
            self._watch_idle(model, since)

    def plan(self, model: str) -> Plan:
        """What would happen to a request for `model` that came now. Changes nothing."""
        return self._scheduler.plan(model)

    def record(self, name: str, model: str, plan: Plan) -> dict[str, Any]:
        """A plan for a request for `model`, which the client calls `name`, as it is shown and logged."""
        child = self.children.get(model)
        return as_record(name, child.state.value if child is not None else State.STOPPED.value, plan)

    def explain(self, wanted: bool) -> None:
        """Whether each decision is logged, at debug; it costs each request as much as all of the scheduler."""
        self._scheduler.on_decision = self._log_decision if wanted else None

    def queued(self) -> tuple[Queued, ...]:
        """The waiting requests, in the order of the queue."""
        return self._scheduler.queued()

    def unload(self, models: tuple[str, ...]) -> Deferred[None]:
        """Stop these models, whatever they do. Fires when their processes are gone.

        A request that comes meanwhile starts its model anew, and is not waited for.
        """
        # Asked for before anything is told: a client that is refused now may ask again in the same turn.
        ends = [self.children[model].when_gone() for model in models if model in self.children]
        self.tell(Unload(now=self.clock.seconds(), models=models))
        return gatherResults(ends, consumeErrors=True).addCallback(lambda _: None)

    def shut_down(self) -> Deferred[None]:
        """Refuse all that wait, end all processes for good. Fires when they are gone."""
        self.tell(ShutDown(now=self.clock.seconds()))
        for call in self._idle.values():
            call.cancel()
        self._idle.clear()
        ends = [child.shut() for child in list(self.children.values())]
        return gatherResults(ends, consumeErrors=True).addCallback(lambda _: None)

    def state_changed(self, model: str, state: State) -> None:
        """The owner of a model reports a new state."""
        if state is not State.READY:
            self._idle_since.pop(model, None)
        self.tell(StateChanged(now=self.clock.seconds(), model=model, state=state))

    def place(self, ticket: int) -> int:
        """Where a request stands in the queue now: 1 is the first, 0 is not in it."""
        return self._scheduler.place(ticket)

    def leave(self, ticket: int) -> None:
        """The client of a request is gone. No effect when that has had its answer."""
        if self._waiting.pop(ticket, None) is not None:
            self.tell(Left(now=self.clock.seconds(), ticket=ticket))

    def _log_decision(self, ticket: int, model: str, plan: Plan) -> None:
        waiter = self._waiting.get(ticket)
        record = self.record(waiter.name if waiter is not None else model, model, plan)
        self._log.debug("request {ticket}: {record}", ticket=ticket, record=json.dumps(record, ensure_ascii=False))

    # -- events in, effects out -----------------------------------------------------

    def tell(self, event: Event) -> None:
        """Give one event to the scheduler; events that come from carrying out its effects wait their turn."""
        self._events.append(event)
        self._do([])

    def _do(self, effects: list[Effect]) -> None:
        """Carry out these effects, then whatever events there are."""
        if self._busy:
            self._later += effects
            return
        self._busy = True
        try:
            self._carry_out_all(effects)
            while self._events or self._later:
                later, self._later = self._later, []
                self._carry_out_all(later)
                if self._events:
                    self._work_off(self._events.popleft())
        finally:
            self._busy = False

    def _work_off(self, event: Event) -> None:
        """Handle one event. An internal fault is logged and costs what the event is about, and no more."""
        try:
            effects = self._scheduler.handle(event)
        except Exception:
            self._log.failure("internal error: {event} could not be handled", event=event)
            waiter = self._waiting.pop(event.ticket, None) if isinstance(event, Arrived) else None
            if waiter is not None:
                waiter.deferred.errback(Failure())
            return
        self._carry_out_all(effects)

    def _carry_out_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception:
                self._log.failure("internal error: {effect} could not be carried out", effect=effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Grant):
            waiter = self._waiting.pop(effect.ticket, None)
            lease = Lease(self, effect.ticket, self.children[effect.model])
            if waiter is None:
                lease.release()
            else:
                waited = self.clock.seconds() - waiter.since
                if waited > 0:
                    self._usual_wait += _WEIGHT * (waited - self._usual_wait)
                waiter.deferred.callback(lease)
        elif isinstance(effect, Refuse):
            waiter = self._waiting.pop(effect.ticket, None)
            if waiter is not None:
                waiter.deferred.errback(Failure(self._refused(effect)))
        elif isinstance(effect, Swap):
            task = self._swaps[effect.swap] = _SwapTask(effect, self.children[effect.model])
            Deferred.fromCoroutine(self._run(task)).addErrback(self._swap_broke, task)
        elif isinstance(effect, GiveUp):
            self._give_up(effect.swap, Cause(Reason(effect.why)))
        elif isinstance(effect, Stop):
            cause = Cause(Reason(effect.why))
            for model in effect.models:
                child = self.children.get(model)
                if child is not None:
                    (child.rest if cause.reason is Reason.TTL else child.stop)(cause)
        elif isinstance(effect, Idle):
            self._watch_idle(effect.model, effect.since)

    def _refused(self, refuse: Refuse) -> Refused:
        texts = {
            Refusal.UNKNOWN: "no local server found for requested model",
            Refusal.LIMIT: "Too many requests",
            Refusal.QUEUE_FULL: f"Too many requests: {self._scheduler.waiting()} are waiting for a model already",
            Refusal.KEPT: f"there is no room without unloading what is kept ({refuse.detail}): unload it by hand",
            Refusal.UNLOADED: f"{self.name}: model unloaded",
            Refusal.SHUTTING_DOWN: f"{self.name} is shutting down",
        }
        retry_after = min(_LONGEST, max(1, math.ceil(self._usual_wait))) if refuse.reason is Refusal.QUEUE_FULL else 1
        return Refused(refuse.reason, texts.get(refuse.reason, refuse.detail), retry_after)

    # -- swaps --------------------------------------------------------------------------

    async def _run(self, task: _SwapTask) -> None:
        swap = task.swap
        if swap.evict:
            self._log.info("{model}: makes room, instead of {evict}", model=swap.model, evict=", ".join(swap.evict))
        # A model that goes for itself was changed by a reload.
        other, itself = Cause(Reason.SWAP, swap.model), Cause(Reason.RELOAD)
        rooms = [self.children[model].rest(itself if model == swap.model else other) for model in swap.evict]
        await gatherResults(rooms, consumeErrors=True)
        error: str | None = None
        hook = False
        if task.given_up:
            error = "aborted: nobody waited for it any more"
        else:
            try:
                await task.child.ensure_ready(self._reason_for(swap.model))
            except LswapError as problem:
                error, hook = str(problem), isinstance(problem, HookError)
        del self._swaps[swap.swap]
        self.tell(SwapEnded(now=self.clock.seconds(), swap=swap.swap, error=error, hook=hook))

    def _reason_for(self, model: str) -> Reason:
        """Why a model is loaded: for a client, unless nobody but a preload waits for it."""
        reasons = [waiter.reason for waiter in self._waiting.values() if waiter.model == model]
        return Reason.PRELOAD if reasons and Reason.REQUEST not in reasons else Reason.REQUEST

    def _swap_broke(self, failure: Failure, task: _SwapTask) -> None:
        """An internal fault costs the requests of this swap, and no more."""
        self._log.failure("internal error in the swap to {model}", failure, model=task.swap.model)
        self._swaps.pop(task.swap.swap, None)
        error = f"internal error: {failure.getErrorMessage()}"
        self.tell(SwapEnded(now=self.clock.seconds(), swap=task.swap.swap, error=error))

    def _give_up(self, number: int, cause: Cause) -> None:
        task = self._swaps.get(number)
        if task is None or task.given_up:
            return
        task.given_up = True
        # What wakes is left alone: it is up soon, and can be put to sleep again.
        if task.child.state in (State.STARTING, State.STOPPING):
            task.child.stop(cause)
        elif task.child.state is State.SLEEPING:
            task.child.rest(cause)

    # -- idle times ------------------------------------------------------------------------

    def _watch_idle(self, model: str, since: float) -> None:
        """Let the idle time of a model run from `since`; its end is looked at anew when the configuration changes."""
        self._idle_since[model] = since
        child = self.children.get(model)
        ttl = child.model.ttl if child is not None else 0.0
        call = self._idle.get(model)
        if ttl <= 0:
            if call is not None:
                call.cancel()
                del self._idle[model]
            return
        due = max(0.0, since + ttl - self.clock.seconds())
        if call is not None and call.active():
            call.reset(due)
        else:
            self._idle[model] = self.clock.callLater(due, self._expired, model)

    def _expired(self, model: str) -> None:
        del self._idle[model]
        self.tell(Expired(now=self.clock.seconds(), model=model))
