"""The scheduler in a simulated world where everything may happen at any time. Read `tests.core.world` first.

No request is lost or granted twice; counts are right; models that must not live together never do; who is in the queue
has a reason; no idle time is lost; illegal events change nothing; and in the end everybody has an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import Arrived, Event, Expired, Left, Served, State, StateChanged, SwapEnded
from lswap.core.matrix import Matrix, MatrixSet, parse
from lswap.core.model import Group
from lswap.core.plan_group import GroupPolicy
from lswap.core.plan_matrix import MatrixPolicy
from lswap.core.policy import Policy
from lswap.core.scheduler import EventError, ModelRules
from tests.core.desk import Others
from tests.core.world import Process, Ticket, World

_NAMES = ("a", "b", "c", "d", "e")
_models = st.sampled_from(_NAMES)
_ALIVE = (State.STARTING, State.READY, State.SLEEPING, State.ASLEEP, State.WAKING)


def _when(condition: Callable[[Any], object]) -> Callable[[Any], Any]:
    return precondition(lambda machine: bool(condition(machine)))


class Anything(RuleBasedStateMachine):
    """Whatever can happen to a scheduler, in any order."""

    policy: Policy

    def allowed(self, alive: Sequence[str]) -> bool:
        """Whether these models may be alive together."""
        raise NotImplementedError

    @initialize(
        limits=st.dictionaries(_models, st.integers(1, 4), max_size=2),
        priorities=st.dictionaries(_models, st.integers(-2, 2), max_size=3),
        queue_limit=st.sampled_from((4, 1000)),
        sleepers=st.sets(_models),
    )
    def begin(self, limits: dict[str, int], priorities: dict[str, int], queue_limit: int, sleepers: set[str]) -> None:
        """A configuration."""
        rules = {name: ModelRules(limits.get(name, 0), priorities.get(name, 0)) for name in _NAMES}
        self.queue_limit = queue_limit
        self.wanted = dict.fromkeys(_NAMES, 0)
        self.world = World(rules, self.policy, queue_limit, self.allowed, sleepers)

    def _some(self, data: st.DataObject, things: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(things))

    def _tickets(self, stage: str) -> list[Ticket]:
        return self.world.stage(stage)

    def _processes(self, *states: State) -> list[Process]:
        return [process for process in self.world.processes.values() if process.state in states]

    @rule(model=_models, hasty=st.booleans(), stubborn=st.booleans(), short=st.booleans())
    def ask(self, model: str, hasty: bool, stubborn: bool, short: bool) -> None:
        """A client comes."""
        self.world.now += 1
        self.world.ask(model, hasty, stubborn, short)

    @_when(lambda self: self._tickets("waiting"))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A waiting client goes."""
        self.world.now += 1
        self.world.leave(self._some(data, self._tickets("waiting")))

    @_when(lambda self: self._tickets("granted"))
    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        """A granted request is over."""
        self.world.now += 1
        self.world.serve(self._some(data, self._tickets("granted")))

    @_when(lambda self: self._processes(State.STARTING))
    @rule(data=st.data(), error=st.sampled_from((None, None, None, "boom")))
    def finish_start(self, data: st.DataObject, error: str | None) -> None:
        """A start comes to its end."""
        self.world.now += 1
        self.world.finish_start(self._some(data, self._processes(State.STARTING)), error)

    @_when(lambda self: self._processes(State.STOPPING))
    @rule(data=st.data())
    def finish_stop(self, data: st.DataObject) -> None:
        """A process is gone."""
        self.world.now += 1
        self.world.finish_stop(self._some(data, self._processes(State.STOPPING)))

    @_when(lambda self: self._processes(State.SLEEPING))
    @rule(data=st.data(), works=st.sampled_from((True, True, True, False)))
    def finish_sleep(self, data: st.DataObject, works: bool) -> None:
        """A model is asleep, or will not be."""
        self.world.now += 1
        self.world.finish_sleep(self._some(data, self._processes(State.SLEEPING)), works)

    @_when(lambda self: self._processes(State.WAKING))
    @rule(data=st.data(), works=st.sampled_from((True, True, True, False)))
    def finish_wake(self, data: st.DataObject, works: bool) -> None:
        """A model is awake, or will not be."""
        self.world.now += 1
        self.world.finish_wake(self._some(data, self._processes(State.WAKING)), works)

    @_when(lambda self: self._processes(*_ALIVE))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A process ends by itself."""
        self.world.now += 1
        self.world.die(self._some(data, self._processes(*_ALIVE)))

    @rule(models=st.lists(_models, max_size=3, unique=True))
    def unload(self, models: list[str]) -> None:
        """Somebody unloads by hand."""
        self.world.unload(models)

    @_when(lambda self: self.world.armed)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """An idle time is over."""
        self.world.expire(self._some(data, sorted(self.world.armed)))

    @rule(data=st.data(), kinds=st.lists(st.sampled_from(("ask", "leave", "serve", "unload", "expire")), min_size=2))
    def all_at_once(self, data: st.DataObject, kinds: list[str]) -> None:
        """Several of these in one turn, in line before anything that follows from them."""
        world = self.world
        models = data.draw(st.sampled_from((_models, *[st.just(name) for name in _NAMES])))
        world.now += 1
        with world.turn():
            for kind in kinds:
                waiting, granted = world.stage("waiting"), world.stage("granted")
                if kind == "ask":
                    world.ask(data.draw(models))
                elif kind == "unload":
                    world.unload([data.draw(models)])
                elif kind == "leave" and waiting:
                    world.leave(self._some(data, waiting))
                elif kind == "serve" and granted:
                    world.serve(self._some(data, granted))
                elif kind == "expire" and world.armed:
                    world.expire(self._some(data, sorted(world.armed)))

    @rule(
        data=st.data(),
        limits=st.dictionaries(_models, st.integers(1, 4), max_size=2),
        priorities=st.dictionaries(_models, st.integers(-2, 2), max_size=3),
        gone=st.sets(_models, max_size=2),
        changed=st.dictionaries(_models, st.integers(0, 2), max_size=3),
    )
    def reload(
        self,
        data: st.DataObject,
        limits: dict[str, int],
        priorities: dict[str, int],
        gone: set[str],
        changed: dict[str, int],
    ) -> None:
        """Other limits and priorities; some models are changed (perhaps back), some are gone with their requests."""
        world = self.world
        waiting = [ticket for ticket in world.stage("waiting") if ticket.model in gone or data.draw(st.booleans())]
        leaving = waiting if data.draw(st.booleans()) else []
        queued = {row.ticket for row in world.scheduler.queued() if row.model in gone}
        rules = {name: ModelRules(limits.get(name, 0), priorities.get(name, 0)) for name in _NAMES if name not in gone}
        self.wanted = {**self.wanted, **changed}
        world.reload(rules, self.policy, self.queue_limit, self.wanted, leaving)
        assert all(world.tickets[number].stage in ("refused", "left") for number in queued)

    @rule(sure=st.integers(0, 9))
    def shut_down(self, sure: int) -> None:
        """The end, now and then."""
        if sure == 9:
            self.world.shut_down()

    @rule(data=st.data(), number=st.integers(1, 60))
    def ask_the_impossible(self, data: st.DataObject, number: int) -> None:
        """Events that are late, unknown or illegal."""
        world = self.world
        before = self._seen()
        ticket = world.tickets.get(number)
        live = ticket is not None and ticket.stage in ("waiting", "granted")
        unknown: list[Event] = [SwapEnded(0.0, 10_000, data.draw(st.none() | st.just("boom"))), Expired(0.0, "ghost")]
        unknown.append(StateChanged(0.0, "ghost", State.STOPPED))
        if not live:
            unknown += [Left(0.0, number), Served(0.0, number)]
        for event in unknown:
            assert world.scheduler.handle(event) == []
        if ticket is not None and live:
            illegal: list[Event] = [Arrived(0.0, number, ticket.model)]
            if ticket.stage == "waiting":
                illegal.append(Served(0.0, number))
            for event in illegal:
                try:
                    world.scheduler.handle(event)
                except EventError:
                    continue
                raise AssertionError(f"{event} is illegal")
        assert self._seen() == before

    def _seen(self) -> object:
        scheduler = self.world.scheduler
        counts = [(scheduler.inflight(name), scheduler.reserved(name), scheduler.plan(name)) for name in _NAMES]
        return counts, scheduler.waiting(), scheduler.queued(), scheduler.running()

    @rule(model=_models)
    def plan_and_ask(self, model: str) -> None:
        """What is planned is what happens."""
        scheduler = self.world.scheduler
        plan = scheduler.plan(model)
        ticket = self.world.ask(model)
        queued = {row.ticket for row in scheduler.queued()}
        assert self.world.decisions[ticket.number][0] == plan
        if plan.would == "serve":
            assert ticket.stage == "granted"
        elif plan.would == "refuse":
            assert ticket.stage == "refused"
        elif plan.would == "start":
            assert ticket.number not in queued

    @invariant()
    def all_is_well(self) -> None:
        """What holds between events."""
        self.world.check()

    def teardown(self) -> None:
        """Everything comes to its end: nobody is left, nothing is counted any more."""
        if not hasattr(self, "world"):
            return
        self.world.settle()
        self.world.check()
        assert not self.world.stage("waiting"), "somebody waits for good"
        assert not self.world.tasks, "a swap never ends"
        assert all(self.world.scheduler.reserved(name) == 0 for name in _NAMES)


class OneAtATime(Anything):
    """Every model excludes every other one."""

    policy = Others()

    def allowed(self, alive: Sequence[str]) -> bool:
        """One."""
        return len(alive) <= 1


class Groups(Anything):
    """Groups of every kind."""

    policy = GroupPolicy(
        {
            "duo": Group(id="duo", members=("a", "b")),
            "pack": Group(id="pack", swap=False, exclusive=False, members=("c", "d")),
            "keep": Group(id="keep", exclusive=False, persistent=True, members=("e",)),
        }
    )

    def allowed(self, alive: Sequence[str]) -> bool:
        """No two of which each evicts the other."""
        return not any(self._evicts(x, y) and self._evicts(y, x) for x in alive for y in alive)

    def _evicts(self, target: str, other: str) -> bool:
        return bool(self.policy.evict(target, [other]))


class Sets(Anything):
    """A matrix; `e` is in no set."""

    policy = MatrixPolicy(
        Matrix(
            sets=(
                MatrixSet("one", parse("a & c")),
                MatrixSet("two", parse("(b | d) & c")),
                MatrixSet("three", parse("a & d")),
            ),
            costs={"c": 3},
        )
    )
    _together = ({"a", "c"}, {"b", "c"}, {"d", "c"}, {"a", "d"})

    def allowed(self, alive: Sequence[str]) -> bool:
        """One, or what a set allows."""
        return len(alive) <= 1 or any(set(alive) <= choice for choice in self._together)


class SchedulerPropertyTests(SynchronousTestCase):
    """The same world under different policies."""

    def live(self, machine: type[Anything]) -> None:
        """Try many histories."""
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=80,
                stateful_step_count=40,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    def test_one_model_at_a_time(self) -> None:
        """Every model excludes every other one."""
        self.live(OneAtATime)

    def test_groups(self) -> None:
        """Groups of every kind."""
        self.live(Groups)

    def test_matrix(self) -> None:
        """Sets that overlap."""
        self.live(Sets)
