"""A walk through whatever can happen: the real lswap, from the client's bytes to the owners of processes.

`tests.core.test_scheduler_properties` has the same for the scheduler alone, far more often. Here are also the router,
the children, the road of a request and the reload; made up are processes, sockets and time (`tests.memory`).
Every request ends within its bound, nothing runs beside what excludes it, and in the end nothing is held.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Source, load
from lswap.core.plan import Plan
from lswap.core.policy import Policy
from lswap.service.children import Child
from lswap.service.fleet import policy_of
from lswap.service.router import Lease, Refused, Waiting
from tests.memory import MemoryClient, MemoryLswap
from tests.stand_in import FakeGroup, Served

NAMES = "abcd"
ROUTINGS = {
    "swap": "",
    "groups": "groups: {pair: {swap: false, members: [a, b]},"
    " side: {exclusive: false, persistent: true, members: [c]}}\n",
    "matrix": "matrix: {evict_costs: {c: 3}, sets: {one: a & c, two: (b | d) & c, three: a & d}}\n",
}
#: Seconds: the time that a start may take, and a stop; a leader's group after its end.
HEALTH, STOP, DRAIN = 15.0, 10.0, 2.0
#: The longest that a request may take from here on when those that are let through end: each model is stopped and
#: started twice (its own load fails, or is in the way of another), one after the other.
BOUND = len(NAMES) * 2 * (HEALTH + STOP + DRAIN)


class Walk(RuleBasedStateMachine):
    """What clients, processes, people and time do."""

    @initialize(routing=st.sampled_from(sorted(ROUTINGS)), queue=st.sampled_from((3, 1000)))
    def begin(self, routing: str, queue: int) -> None:
        """A configuration, and nothing runs."""
        self.routing, self.queue = routing, queue
        self.flags = dict.fromkeys(NAMES, 0)
        self.limits: dict[str, int] = {}
        self.lswap = MemoryLswap(self._text())
        self._begun = self.lswap.processes.on_spawn
        self.lswap.processes.on_spawn = self._spawned
        self.wrong: list[str] = []
        self.lswap.scheduler.on_decision = self._decided
        self.policies = [policy_of(self.lswap.service.config)]
        self.asked: list[Waiting] = []
        self.answers: dict[int, object] = {}
        self.leases: list[Lease] = []
        self.clients: list[MemoryClient] = []
        #: When a group was first seen to have to end.
        self.ending: dict[int, float] = {}

    def _text(self) -> str:
        lines = [
            ROUTINGS[self.routing],
            f"healthCheckTimeout: {HEALTH:.0f}\nlimits: {{queue: {self.queue}}}\nmodels:\n",
        ]
        for name in NAMES:
            more = f", concurrencyLimit: {self.limits[name]}" if name in self.limits else ""
            more += ", ttl: 20" if name in "ac" else ""
            lines.append(f"  {name}: {{cmd: 'server --port ${{PORT}} {self.flags[name]}'{more}}}\n")
        return "".join(lines)

    def _spawned(self, group: FakeGroup) -> None:
        """It may run beside all that does.

        What was decided before a reload is carried out after it: until no swap is under way, any two may run together
        that may by one of the configurations since.
        """
        self._begun(group)
        name = _model(group)
        others = sorted({_model(other) for other in self.lswap.processes.running} - {name})
        fits = not self.policies[-1].evict(name, others)
        if len(self.policies) > 1:
            fits = all(any(_together(policy, name, other) for policy in self.policies) for other in others)
        if not fits:
            self.wrong.append(f"{name} is started beside {others}")

    def _decided(self, ticket: int, name: str, plan: Plan) -> None:
        """What has work is not sent away."""
        busy = [victim for victim, _ in plan.unload if self.lswap.scheduler.inflight(victim)]
        if busy and plan.would == "start":
            self.wrong.append(f"{busy} have to go for {name}")

    # -- clients -------------------------------------------------------------------------------------------------------

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
    def acquire(self, names: list[str]) -> None:
        """Some ask for a lease, in one turn."""
        for name in names:
            self._acquire(name)

    def _acquire(self, name: str) -> None:
        number = len(self.asked)
        waiting: Waiting = self.lswap.router.acquire(name)
        self.asked.append(waiting)

        def granted(lease: Lease) -> None:
            assert number not in self.answers
            self.answers[number] = lease
            self.leases.append(lease)

        def refused(failure: Any) -> None:
            assert number not in self.answers
            failure.trap(Refused, CancelledError)
            self.answers[number] = failure

        waiting.addCallbacks(granted, refused)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """One that was let through is over."""
        if self.leases:
            self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1))).release()

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """One goes, whether it waits or not."""
        if self.asked:
            data.draw(st.sampled_from(self.asked)).cancel()

    @rule(name=st.sampled_from(NAMES))
    def chat(self, name: str) -> None:
        """A client speaks HTTP."""
        client = self.lswap.client()
        client.chat(name)
        self.clients.append(client)

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A model's server answers one request."""
        if served := self._served():
            self._answer(data.draw(st.sampled_from(served)))

    @rule(data=st.data(), hard=st.booleans())
    def hang_up(self, data: st.DataObject, hard: bool) -> None:
        """A client goes."""
        if self.clients:
            client = self.clients.pop(data.draw(st.integers(0, len(self.clients) - 1)))
            (client.reset if hard else client.leave)()

    def _served(self) -> list[Served]:
        found = [request for model in self.lswap.models.values() for request in model.requests]
        return [request for request in found if not request.aborted]

    def _answer(self, request: Served) -> None:
        request.answer(200, b"{}")
        for model in self.lswap.models.values():
            model.requests = [other for other in model.requests if other is not request]

    # -- processes -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), code=st.integers(0, 2), whole=st.booleans())
    def die(self, data: st.DataObject, code: int, whole: bool) -> None:
        """One ends by itself, with or without what it started."""
        if running := self.lswap.processes.running:
            group = data.draw(st.sampled_from(running))
            (group.end if whole else group.exit)(code)

    @rule(name=st.sampled_from(NAMES), health=st.sampled_from((200, 200, 503, None)))
    def health(self, name: str, health: int | None) -> None:
        """How it answers from now on."""
        self.lswap.models[name].health = health

    @rule(data=st.data())
    def stubborn(self, data: st.DataObject) -> None:
        """One does not obey, so that it has to be killed."""
        if running := self.lswap.processes.running:
            data.draw(st.sampled_from(running)).obeys = False

    # -- people and time -----------------------------------------------------------------------------------------------

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def unload(self, names: set[str]) -> None:
        """By hand."""
        self.lswap.router.unload(tuple(sorted(names)))

    @rule(
        routing=st.sampled_from(sorted(ROUTINGS)),
        queue=st.sampled_from((3, 1000)),
        changed=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1), max_size=2),
        limits=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2), max_size=1),
    )
    def reload(self, routing: str, queue: int, changed: dict[str, int], limits: dict[str, int]) -> None:
        """Another routing, other limits, other commands."""
        self.routing, self.queue, self.limits = routing, queue, limits
        self.flags |= changed
        children = self.lswap.service.fleet.children.values()
        ports = {child.model.id: child.model.port for child in children if child.model.port}
        config = load([Source("config.yaml", self._text().encode())], {}, ports).config
        assert config is not None
        self.policies.append(policy_of(config))
        self.lswap.service._take_over(config)

    @rule(seconds=st.sampled_from((0.0, 0.0, 0.05, 1.0, 12.0, 21.0)))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        end = self.lswap.reactor.seconds() + seconds
        self._turn(0)
        while self.lswap.reactor.seconds() < end:
            self._turn(min(1.0, end - self.lswap.reactor.seconds()))

    def _turn(self, seconds: float) -> None:
        """Let it pass; what has to end ends in its time."""
        self.lswap.turn(seconds)
        now = self.lswap.reactor.seconds()
        for group in self.lswap.processes.running:
            if group.stops or not group.alive:
                bound = max([grace for grace, *_ in group.stops], default=DRAIN) if group.alive else DRAIN
                if now >= self.ending.setdefault(group.pid, now) + bound:
                    group.end(None, 9)
        self.lswap.turn(0)
        if not self.lswap.router._swaps:
            del self.policies[:-1]

    # -- what holds ----------------------------------------------------------------------------------------------------

    @invariant()
    def counts_are_right(self) -> None:
        """Who waits for an answer waits at the scheduler; who has a lease is in flight."""
        if not hasattr(self, "lswap"):
            return
        assert not self.wrong, self.wrong
        scheduler = self.lswap.scheduler
        assert set(self.lswap.router._waiting) == set(scheduler._board.waiting)
        waiting = sum(number not in self.answers for number in range(len(self.asked)))
        assert waiting <= scheduler.waiting() <= waiting + len(self.clients)
        inflight = sum(scheduler.inflight(name) for name in NAMES)
        assert len(self.leases) <= inflight <= len(self.leases) + len(self.clients)

    def teardown(self) -> None:
        """All that were let through end: within the bound everybody has an answer, and then nothing is held."""
        if not hasattr(self, "lswap"):
            return
        for _ in range(int(BOUND)):
            self._end_what_can()
            self._pass(1.0)
            if self._still():
                break
        else:
            raise AssertionError(f"not over in {BOUND} s: {self.lswap.leftovers()}, {self.lswap.running()}")
        assert sorted(self.answers) == list(range(len(self.asked))), "somebody has no answer"
        for client in self.clients:
            assert client.take() or client.closed, "a client has no answer"
            client.leave()
        self._end_what_can()
        assert self.lswap.leftovers() == []
        assert set(self.lswap.running().values()) <= {"ready"}
        self._pass(20.0 + STOP + DRAIN + 1.0)
        assert not {"a", "c"} & set(self.lswap.running()), "an idle time was lost"
        ended: list[None] = []
        self.lswap.router.shut_down().addCallback(ended.append)
        self._pass(STOP + DRAIN + 1)
        assert ended == [None]
        assert self.lswap.processes.running == []
        assert not self.wrong, self.wrong

    def _end_what_can(self) -> None:
        while self.leases:
            self.leases.pop().release()
        for request in self._served():
            self._answer(request)
        self.lswap.turn()

    def _still(self) -> bool:
        router, states = self.lswap.router, self.lswap.running().values()
        return not (router._waiting or self.lswap.leftovers() or set(states) - {"ready"} or self._served())


def _together(policy: Policy, one: str, other: str) -> bool:
    """Whether two may run together, in whatever order they were started."""
    return not policy.evict(one, [other]) or not policy.evict(other, [one])


def _model(group: FakeGroup) -> str:
    listener = group.listener
    assert isinstance(listener, Child)
    return listener.model.id


class WalkTests(SynchronousTestCase):
    """Many walks."""

    def test_walks(self) -> None:
        """Each from a fresh start to the end of lswap."""
        run_state_machine_as_test(
            Walk,
            settings=settings(
                max_examples=40, stateful_step_count=40, database=None, suppress_health_check=list(HealthCheck)
            ),
        )
