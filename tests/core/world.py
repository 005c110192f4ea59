"""A simulated router with simulated processes, for the property tests of the scheduler.

It carries out effects as the real ones do (`lswap.service.router`, `lswap.service.children`): stops and starts take
until somebody lets them end, everything else happens in the same turn, and what happens meanwhile waits in line. It
checks each effect against what it knows, and has the invariants that must hold between events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs

from lswap.core.effects import Effect, GiveUp, Grant, Idle, Refuse, Stop, Swap
from lswap.core.events import Arrived, Event, Expired, Left, Served, ShutDown, State, StateChanged, SwapEnded, Unload
from lswap.core.plan import Plan
from lswap.core.policy import Policy
from lswap.core.scheduler import ModelRules, Scheduler

__all__ = ["World"]

#: A process in one of these can be put to sleep, or is about to be.
_CAN_REST = (State.READY, State.SLEEPING, State.ASLEEP)


@attrs.define(eq=False)
class Ticket:
    """One request, and how far it came."""

    number: int
    model: str
    #: One of new, waiting, granted, served, refused, left.
    stage: str = "new"
    #: Its client does not stay: it is served in the turn of its grant.
    hasty: bool = False
    #: It asks again, once, in the turn of its refusal.
    stubborn: bool = False
    #: What its model was in the configurations that were in force since it came.
    seen: set[int] = attrs.Factory(set)


@attrs.define(eq=False)
class Process:
    """One model's owner and its process."""

    name: str
    state: State = State.STOPPED
    #: It sleeps rather than being stopped for others.
    sleeper: bool = False
    #: It fell asleep, and has not woken since.
    vacant: bool = False
    #: It is wanted again, while it falls asleep or stops.
    restart: bool = False
    #: What its model was in the configuration that it was started by.
    made: int = 0
    ready_waiters: list[Callable[[str | None], None]] = attrs.Factory(list)
    stop_waiters: list[Callable[[], None]] = attrs.Factory(list)
    rest_waiters: list[Callable[[], None]] = attrs.Factory(list)


@attrs.define(eq=False)
class Task:
    """A swap under way."""

    swap: Swap
    given_up: bool = False
    forgotten: bool = False


class World:
    """Everything around a scheduler."""

    def __init__(
        self,
        rules: Mapping[str, ModelRules],
        policy: Policy,
        queue_limit: int,
        allowed: Callable[[Sequence[str]], bool],
        sleepers: Collection[str] = (),
    ) -> None:
        """`allowed` says whether models may be alive together; `sleepers` can sleep."""
        self.scheduler = Scheduler(rules, policy, queue_limit)
        self.names = sorted(rules)
        self.allowed = allowed
        self.tickets: dict[int, Ticket] = {}
        self.processes = {name: Process(name, sleeper=name in sleepers) for name in self.names}
        self.tasks: dict[int, Task] = {}
        #: What each model is in the configuration in force, if it is in it.
        self.wanted: dict[str, int] = dict.fromkeys(self.names, 0)
        #: Models whose idle time runs.
        self.armed: set[str] = set()
        #: When they became ready or their last request ended.
        self.free_since: dict[str, float] = {}
        #: The decisions that were told of each ticket.
        self.decisions: dict[int, list[Plan]] = {}
        self.scheduler.on_decision = self._decided
        self.closing = False
        self.now = 0.0
        self._events: deque[Event] = deque()
        self._busy = False

    # -- what people and processes do ------------------------------------------------------------------------------

    def ask(self, model: str, hasty: bool = False, stubborn: bool = False, short: bool = False) -> Ticket:
        """A client comes; with `short` it takes the short way, if that is open to it."""
        ticket = Ticket(len(self.tickets) + 1, model, hasty=hasty, stubborn=stubborn)
        ticket.seen.add(self.wanted.get(model, -1))
        self.tickets[ticket.number] = ticket
        if short and not self._busy and self._at_once(ticket):
            self._move(ticket, "new", "waiting")
            with self.turn():
                self._granted(Grant(ticket.number, model))
        else:
            self.tell(Arrived(self.now, ticket.number, model))
        return ticket

    def _at_once(self, ticket: Ticket) -> bool:
        """Whether the scheduler grants it without a word, as it would have done with one."""
        expected = self.scheduler.plan(ticket.model)
        told, self.scheduler.on_decision = self.scheduler.on_decision, None
        granted = self.scheduler.grant_now(ticket.number, ticket.model)
        self.scheduler.on_decision = told
        assert granted == (expected.would == "serve"), "the short way leads elsewhere"
        if granted:
            self._decided(ticket.number, ticket.model, expected)
        return granted

    def leave(self, ticket: Ticket) -> None:
        """A waiting client goes."""
        self._move(ticket, "waiting", "left")
        self.tell(Left(self.now, ticket.number))

    def serve(self, ticket: Ticket) -> None:
        """A granted request is over."""
        self._move(ticket, "granted", "served")
        self.tell(Served(self.now, ticket.number))

    def unload(self, models: Sequence[str]) -> None:
        """Somebody unloads by hand."""
        self.tell(Unload(self.now, tuple(models)))

    def expire(self, model: str) -> None:
        """An idle time is over."""
        self.armed.remove(model)
        self.tell(Expired(self.now, model))

    def reload(
        self,
        rules: Mapping[str, ModelRules],
        policy: Policy,
        queue_limit: int,
        wanted: Mapping[str, int],
        leaving: Collection[Ticket],
    ) -> None:
        """Another configuration, in which each model is what `wanted` says; these requests are led elsewhere."""
        self.wanted = {name: wanted[name] for name in rules}
        for ticket in leaving:
            self._move(ticket, "waiting", "left")
        for ticket in self.stage("waiting"):
            ticket.seen.add(self.wanted.get(ticket.model, -1))
        outdated = {name for name in rules if self.outdated(name)}
        numbers = [ticket.number for ticket in leaving]
        with self.turn():
            for effect in self.scheduler.replace(rules, policy, queue_limit, outdated, numbers):
                self.carry_out(effect)

    def outdated(self, model: str) -> bool:
        """Whether the process that there is is not what the configuration describes."""
        process = self.processes[model]
        return process.state is not State.STOPPED and process.made != self.wanted.get(model)

    def shut_down(self) -> None:
        """The end of all processes."""
        self.closing = True
        self.tell(ShutDown(self.now))
        for process in self.processes.values():
            self._stop(process, lambda: None)

    def finish_start(self, process: Process, error: str | None) -> None:
        """A start comes to its end."""
        assert process.state is State.STARTING
        waiters, process.ready_waiters = process.ready_waiters, []
        self._set(process, State.READY if error is None else State.STOPPING)
        for waiter in waiters:
            waiter(error)

    def finish_stop(self, process: Process) -> None:
        """Nothing of a process is left."""
        assert process.state is State.STOPPING
        stopped, process.stop_waiters = process.stop_waiters, []
        if process.restart and not self.closing:
            process.restart = False
            self._spawn(process)
        else:
            self._set(process, State.STOPPED)
        for waiter in stopped:
            waiter()

    def finish_sleep(self, process: Process, works: bool) -> None:
        """It is asleep, or will not be and is stopped."""
        assert process.state is State.SLEEPING
        resting, process.rest_waiters = process.rest_waiters, []
        if not works:
            process.stop_waiters += resting
            self._set(process, State.STOPPING)
            return
        if process.restart and not self.closing:
            process.restart = False
            self._wake(process)
        else:
            self._set(process, State.ASLEEP)
        for waiter in resting:
            waiter()

    def finish_wake(self, process: Process, works: bool) -> None:
        """It is awake, or is started anew."""
        assert process.state is State.WAKING
        if works:
            waiters, process.ready_waiters = process.ready_waiters, []
            self._set(process, State.READY)
            for waiter in waiters:
                waiter(None)
        else:
            process.restart = True
            self._set(process, State.STOPPING)

    def die(self, process: Process) -> None:
        """A process ends by itself."""
        if process.state is State.STARTING:
            self.finish_start(process, "died")
        elif process.state is State.SLEEPING:
            self.finish_sleep(process, False)
        elif process.state is State.WAKING:
            self.finish_wake(process, False)
        else:
            self._set(process, State.STOPPING)

    def settle(self) -> None:
        """Let everything end that can."""
        moving = True
        while moving:
            moving = False
            for process in self.processes.values():
                if process.state is State.STARTING:
                    moving = True
                    self.finish_start(process, None)
                elif process.state is State.STOPPING:
                    moving = True
                    self.finish_stop(process)
                elif process.state is State.SLEEPING:
                    moving = True
                    self.finish_sleep(process, True)
                elif process.state is State.WAKING:
                    moving = True
                    self.finish_wake(process, True)
            for ticket in self.stage("granted"):
                moving = True
                self.serve(ticket)

    def stage(self, stage: str) -> list[Ticket]:
        """The tickets at this stage."""
        return [ticket for ticket in self.tickets.values() if ticket.stage == stage]

    def _decided(self, number: int, model: str, plan: Plan) -> None:
        assert self.tickets[number].model == model
        told = self.decisions.setdefault(number, [])
        assert not told or (told[-1].would == "wait" and plan.would in ("serve", "start")), "decided again"
        told.append(plan)

    # -- the router ------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Hand in an event; those that come from carrying out its effects wait in line."""
        with self.turn():
            self._events.append(event)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Whatever is told in one turn stands in line before all that follows from it."""
        if self._busy:
            yield
            return
        self._busy = True
        try:
            yield
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._busy = False

    def _handle(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self._move(self.tickets[event.ticket], "new", "waiting")
        elif isinstance(event, Unload):
            for task in self.tasks.values():
                task.forgotten = task.forgotten or task.swap.model in event.models
        busy = {name for name in self.names if self.scheduler.inflight(name)}
        effects = self.scheduler.handle(event)
        for name in self.names:
            came_up = isinstance(event, StateChanged) and event.model == name and event.state is State.READY
            if not self.scheduler.inflight(name) and (name in busy or came_up):
                self.free_since[name] = event.now
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        """Do what the scheduler asks for."""
        if isinstance(effect, Grant):
            self._granted(effect)
        elif isinstance(effect, Refuse):
            self._refused(effect)
        elif isinstance(effect, Swap):
            self._swap(effect)
        elif isinstance(effect, GiveUp):
            self._give_up(effect)
        elif isinstance(effect, Stop):
            for name in effect.models:
                assert effect.why != "ttl" or not self._live(name), "a model in use has expired"
                assert effect.why != "reload" or self.outdated(name), "stops what did not change"
                assert effect.why != "reload" or not self._granted_for(name), "a reload cuts requests"
                (self._rest if effect.why == "ttl" else self._stop)(self.processes[name], lambda: None)
        else:
            assert isinstance(effect, Idle)
            assert not self._live(effect.model), "a model in use is idle"
            assert effect.since == self.free_since[effect.model]
            self.armed.add(effect.model)

    def _granted(self, effect: Grant) -> None:
        ticket = self.tickets[effect.ticket]
        assert ticket.model == effect.model
        assert self.processes[ticket.model].state is State.READY, "granted a model that is not ready"
        assert self.processes[ticket.model].made in ticket.seen, "granted a process of an older configuration"
        if ticket.stage == "left":
            # The client left in this very turn: the answer to a grant that nobody takes.
            ticket.stage = "granted"
            self.serve(ticket)
            return
        self._move(ticket, "waiting", "granted")
        if ticket.hasty:
            self.serve(ticket)

    def _refused(self, effect: Refuse) -> None:
        ticket = self.tickets[effect.ticket]
        if ticket.stage == "left":
            return  # in this very turn
        self._move(ticket, "waiting", "refused")
        assert effect.detail != "aborted", "shares the fate of a swap that was given up"
        if ticket.stubborn:
            self.ask(ticket.model)

    def _swap(self, swap: Swap) -> None:
        assert swap.swap not in self.tasks
        assert swap.model not in swap.evict or self.outdated(swap.model)
        task = self.tasks[swap.swap] = Task(swap)
        begun = [plan for number, (*_, plan) in self.decisions.items() if self.tickets[number].model == swap.model]
        assert any(plan.would == "start" and [name for name, _ in plan.unload] == list(swap.evict) for plan in begun)
        left = len(swap.evict)
        if not left:
            self._bring_up(task)

        def gone() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._bring_up(task)

        for name in swap.evict:
            assert not self._granted_for(name), "evicts a busy model"
            self._rest(self.processes[name], gone)

    def _bring_up(self, task: Task) -> None:
        def end(error: str | None) -> None:
            del self.tasks[task.swap.swap]
            self.tell(SwapEnded(self.now, task.swap.swap, error))

        if task.given_up or self.closing:
            end("aborted")
        else:
            self._ensure_ready(self.processes[task.swap.model], end)

    def _give_up(self, effect: GiveUp) -> None:
        task = self.tasks[effect.swap]
        assert not task.given_up, "given up twice"
        task.given_up = True
        if task.forgotten or self.closing:
            return
        process = self.processes[task.swap.model]
        if process.state is State.SLEEPING:
            self._rest(process, lambda: None)
        elif process.state is State.STARTING or process.restart:
            self._stop(process, lambda: None)

    def _move(self, ticket: Ticket, before: str, after: str) -> None:
        assert ticket.stage == before, f"{ticket} cannot become {after}"
        ticket.stage = after

    # -- the owners of processes -----------------------------------------------------------------------------------

    def _ensure_ready(self, process: Process, waiter: Callable[[str | None], None]) -> None:
        if process.state is State.READY:
            waiter(None)
            return
        process.ready_waiters.append(waiter)
        if process.state in (State.STOPPING, State.SLEEPING):
            process.restart = True
        elif process.state is State.STOPPED:
            self._spawn(process)
        elif process.state is State.ASLEEP:
            self._wake(process)

    def _rest(self, process: Process, waiter: Callable[[], None]) -> None:
        if not process.sleeper or self.outdated(process.name) or process.state not in _CAN_REST:
            self._stop(process, waiter)
        elif process.state is State.ASLEEP:
            waiter()
        else:
            process.rest_waiters.append(waiter)
            process.restart = False
            waiters, process.ready_waiters = process.ready_waiters, []
            self._set(process, State.SLEEPING)
            for ready_waiter in waiters:
                ready_waiter("aborted")

    def _stop(self, process: Process, waiter: Callable[[], None]) -> None:
        if process.state is State.STOPPED:
            waiter()
            return
        process.stop_waiters += [waiter, *process.rest_waiters]
        process.rest_waiters = []
        process.restart = False
        waiters, process.ready_waiters = process.ready_waiters, []
        self._set(process, State.STOPPING)
        for ready_waiter in waiters:
            ready_waiter("aborted")

    def _spawn(self, process: Process) -> None:
        assert not self.closing
        assert process.name in self.wanted, "starts what the configuration does not have"
        process.made = self.wanted[process.name]
        self._set(process, State.STARTING)
        self._check_room()

    def _wake(self, process: Process) -> None:
        assert not self.closing
        self._set(process, State.WAKING)
        self._check_room()

    def _check_room(self) -> None:
        alive = [one.name for one in self.processes.values() if one.state is not State.STOPPED and not one.vacant]
        assert self.allowed(alive), f"{alive} are alive together"

    def _set(self, process: Process, state: State) -> None:
        if process.state is not state:
            process.vacant = state is State.ASLEEP or (process.vacant and state is State.STOPPING)
            process.state = state
            self.armed.discard(process.name)
            self.tell(StateChanged(self.now, process.name, state))

    def _live(self, model: str) -> bool:
        return any(ticket.model == model and ticket.stage in ("waiting", "granted") for ticket in self.tickets.values())

    def _granted_for(self, model: str) -> bool:
        return any(ticket.model == model for ticket in self.stage("granted"))

    # -- what holds between events ---------------------------------------------------------------------------------

    def check(self) -> None:
        """All invariants."""
        self._check_counts()
        self._check_queue()
        self._check_idle()

    def _check_counts(self) -> None:
        granted, waiting = self.stage("granted"), self.stage("waiting")
        assert self.scheduler.waiting() == len(waiting)
        for name in self.names:
            inflight = sum(ticket.model == name for ticket in granted)
            assert self.scheduler.inflight(name) == inflight
            assert self.scheduler.reserved(name) == inflight + sum(ticket.model == name for ticket in waiting)

    def _check_queue(self) -> None:
        """Who is in the queue has a reason to be, and knows its place."""
        rows = self.scheduler.queued()
        assert [row.position for row in rows] == list(range(1, len(rows) + 1))
        places = {row.ticket: row.position for row in rows}
        for number in self.tickets:
            assert self.scheduler.place(number) == places.get(number, 0)
        targets = {task.swap.model for task in self.tasks.values() if not task.forgotten}
        for row in rows:
            assert row.waits_for, f"{row} could go on"
            for name in row.waits_for:
                busy = self.scheduler.inflight(name) and self._takes_room(name)
                assert name in targets or busy, f"{row} waits for {name}, which is no reason"
            shut = self._given_up(row.model) or self.outdated(row.model)
            assert row.model not in targets or shut, f"{row} could join"

    def _takes_room(self, model: str) -> bool:
        tasks = [task for task in self.tasks.values() if task.swap.model == model]
        return bool(tasks) or self.processes[model].state is not State.STOPPED

    def _given_up(self, model: str) -> bool:
        return any(task.swap.model == model and task.given_up for task in self.tasks.values())

    def _check_idle(self) -> None:
        """No idle time is lost, or the model would stay for good; and what nobody may use any more does not stay."""
        targets = {task.swap.model for task in self.tasks.values() if not task.forgotten}
        for process in self.processes.values():
            if process.state is State.READY and process.name not in targets and self.outdated(process.name):
                assert self._granted_for(process.name) or self.closing, f"{process.name} stays after a reload"
            elif process.state is State.ASLEEP and process.name not in targets:
                assert not self.outdated(process.name) or self.closing, f"{process.name} sleeps on after a reload"
            elif process.state is State.READY and not self._live(process.name) and process.name not in targets:
                assert process.name in self.armed or self.closing, f"{process.name} stays for good"
