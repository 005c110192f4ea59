"""The event loop around the scheduler: tells it what happened, carries out what it asks for.

`acquire(model)` gives a Deferred that fires with a lease; cancelling it leaves the queue in the same turn. Decisions
are all in `lswap.core.scheduler`; processes are all in `lswap.service.children`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.effects import Effect, GiveUp, Grant, Idle, Moved, Refusal, Refuse, Stop, Swap
from lswap.core.events import Arrived, Event, Expired, Left, Served, ShutDown, State, StateChanged, SwapEnded, Unload
from lswap.core.scheduler import Scheduler
from lswap.errors import LswapError
from lswap.service.children import Child

__all__ = ["Lease", "Refused", "Router"]


class Refused(LswapError):
    """The request gets no model; `reason` says why, the text is for the client."""

    def __init__(self, reason: Refusal, text: str) -> None:
        super().__init__(text)
        self.reason = reason


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


class _SwapTask:
    """One swap under way."""

    __slots__ = ("given_up", "swap")

    def __init__(self, swap: Swap) -> None:
        self.swap = swap
        self.given_up = False


class Router:
    """Owns the waiting requests and the swaps of all local models."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, scheduler: Scheduler, group: str = "group") -> None:
        self.clock = clock
        self._scheduler = scheduler
        self._name = group
        self.children: Mapping[str, Child] = {}
        self._waiting: dict[int, Deferred[Lease]] = {}
        self._events: deque[Event] = deque()
        self._busy = False
        self._tickets = 0
        self._swaps: dict[int, _SwapTask] = {}
        self._idle: dict[str, IDelayedCall] = {}

    # -- what others ask for ------------------------------------------------------

    def acquire(self, model: str) -> Deferred[Lease]:
        """Wait for a model. Fails with Refused. Cancelling leaves the queue at once."""
        self._tickets += 1
        ticket = self._tickets
        waiter: Deferred[Lease] = Deferred(lambda _: self._leave(ticket))
        self._waiting[ticket] = waiter
        self.tell(Arrived(now=self.clock.seconds(), ticket=ticket, model=model))
        return waiter

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
        ends = [child.shut() for child in self.children.values()]
        return gatherResults(ends, consumeErrors=True).addCallback(lambda _: None)

    def state_changed(self, model: str, state: State) -> None:
        """The owner of a model reports a new state."""
        self.tell(StateChanged(now=self.clock.seconds(), model=model, state=state))

    def _leave(self, ticket: int) -> None:
        if self._waiting.pop(ticket, None) is not None:
            self.tell(Left(now=self.clock.seconds(), ticket=ticket))

    # -- events in, effects out -----------------------------------------------------

    def tell(self, event: Event) -> None:
        """Give one event to the scheduler; events that come from carrying out its effects wait their turn."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
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
                waiter.errback(Failure())
            return
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
                waiter.callback(lease)
        elif isinstance(effect, Refuse):
            waiter = self._waiting.pop(effect.ticket, None)
            if waiter is not None:
                waiter.errback(Failure(self._refused(effect)))
        elif isinstance(effect, Swap):
            task = self._swaps[effect.swap] = _SwapTask(effect)
            Deferred.fromCoroutine(self._run(task)).addErrback(self._swap_broke, task)
        elif isinstance(effect, GiveUp):
            self._give_up(effect.swap)
        elif isinstance(effect, Stop):
            for model in effect.models:
                if model in self.children:
                    self.children[model].stop(effect.why)
        elif isinstance(effect, Idle):
            self._watch_idle(effect.model, effect.since)
        elif isinstance(effect, Moved):
            pass  # the loading stream will show it

    def _refused(self, refuse: Refuse) -> Refused:
        texts = {
            Refusal.UNKNOWN: "no local server found for requested model",
            Refusal.LIMIT: "Too many requests",
            Refusal.QUEUE_FULL: f"Too many requests: {self._scheduler.waiting()} are waiting for a model already",
            Refusal.UNLOADED: f"{self._name}: model unloaded",
            Refusal.SHUTTING_DOWN: f"{self._name} is shutting down",
        }
        return Refused(refuse.reason, texts.get(refuse.reason, refuse.detail))

    # -- swaps --------------------------------------------------------------------------

    async def _run(self, task: _SwapTask) -> None:
        swap = task.swap
        if swap.evict:
            self._log.info("{model}: makes room by stopping {evict}", model=swap.model, evict=", ".join(swap.evict))
        stops = [self.children[model].stop(f"swap, to make room for {swap.model}") for model in swap.evict]
        await gatherResults(stops, consumeErrors=True)
        error: str | None = None
        if task.given_up:
            error = "aborted: nobody waited for it any more"
        else:
            try:
                await self.children[swap.model].ensure_ready()
            except LswapError as problem:
                error = str(problem)
        del self._swaps[swap.swap]
        self.tell(SwapEnded(now=self.clock.seconds(), swap=swap.swap, error=error))

    def _swap_broke(self, failure: Failure, task: _SwapTask) -> None:
        """An internal fault costs the requests of this swap, and no more."""
        self._log.failure("internal error in the swap to {model}", failure, model=task.swap.model)
        self._swaps.pop(task.swap.swap, None)
        error = f"internal error: {failure.getErrorMessage()}"
        self.tell(SwapEnded(now=self.clock.seconds(), swap=task.swap.swap, error=error))

    def _give_up(self, number: int) -> None:
        task = self._swaps.get(number)
        if task is None or task.given_up:
            return
        task.given_up = True
        child = self.children[task.swap.model]
        if child.state in (State.STARTING, State.STOPPING):
            child.stop("nobody waits for it any more")

    # -- idle times ------------------------------------------------------------------------

    def _watch_idle(self, model: str, since: float) -> None:
        ttl = self.children[model].model.ttl
        if ttl <= 0:
            return
        due = since + ttl - self.clock.seconds()
        call = self._idle.get(model)
        if call is not None and call.active():
            call.reset(max(0.0, due))
        else:
            self._idle[model] = self.clock.callLater(max(0.0, due), self._expired, model)

    def _expired(self, model: str) -> None:
        del self._idle[model]
        self.tell(Expired(now=self.clock.seconds(), model=model))
