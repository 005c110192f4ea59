"""A child with hooks and sleep in a world where everything may happen at any time.

Crash, unload, shutdown, reload, a client that leaves, a hook that fails, hangs or ignores SIGTERM: while any of the
hooks runs, or sleep, or wake. The order of a life is kept, nobody waits in vain, and nothing is left at the end.
"""

from __future__ import annotations

from collections.abc import Callable
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
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import State
from lswap.core.hooks import Cause, Reason
from lswap.core.model import HookAction, Hooks, Model, Sleep
from tests.service.child_case import ChildCase
from tests.stand_in import FakeGroup

EVENTS = ("on_will_start", "on_startup", "on_will_stop", "on_stopped")
WAYS = (Reason.SWAP, Reason.UNLOAD, Reason.TTL, Reason.RELOAD)


def config(abort: bool, cmd: str = "server", timeout: float = 30.0) -> dict[str, Any]:
    """Fields of a model all of whose hooks are commands, named for their events."""

    def action(word: str) -> tuple[HookAction, ...]:
        return (HookAction(words=(word,), timeout=timeout, on_error="abort" if abort else "continue"),)

    hooks = Hooks(**{event: action(event) for event in EVENTS})
    return {"cmd": cmd, "hooks": hooks, "sleep": Sleep(sleep=action("sleep"), wake=action("wake"), max_asleep=500.0)}


class Bench(ChildCase):
    """The child and all around it, without a test of its own."""

    def runTest(self) -> None:
        """Nothing."""


def when(condition: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Only if this is true of the machine."""
    return precondition(lambda machine: bool(condition(machine)))


class Anything(RuleBasedStateMachine):
    """Whatever can happen to a child, in any order."""

    @initialize(abort=st.booleans(), obeys=st.booleans(), ahead=st.integers(0, 3))
    def begin(self, abort: bool, obeys: bool, ahead: int) -> None:
        """A child that nobody wants yet, or that is on its way. `obeys`: hooks end when they are told to."""
        self.bench = Bench()
        self.bench.setUp()
        self.abort, self.obeys = abort, obeys
        self.bench.make(**config(abort))
        self.bench.processes.on_spawn = self.spawned
        self.waiting: list[Deferred[None]] = []
        self.clients: list[Deferred[None]] = []
        self.wrongs: list[str] = []
        self.shut = False
        #: The words of all commands since the life began.
        self.story: list[str] = []
        if ahead:
            self.ask(preload=False)
            self.go_on(ahead)

    # -- what is checked as it happens ------------------------------------------------

    def spawned(self, group: FakeGroup) -> None:
        """A command begins: it is its turn."""
        word = group.words[0]
        others = [one.words[0] for one in self.bench.processes.groups if one.there and one is not group]
        if word == "on_will_start":
            assert not self.story, f"a life begins within another: {self.story}"
        elif word == "server":
            assert self.story == ["on_will_start"], self.story
        elif word == "on_stopped":
            assert self.story[0] == "on_will_start", self.story
        else:
            assert word in ("sleep", "wake") or word not in self.story, f"{word} runs twice: {self.story}"
            assert "server" in self.story, self.story
        allowed = ["server"] if word not in ("on_will_start", "server", "on_stopped") else []
        assert set(others) <= set(allowed), f"{word} begins while there is {others}"
        if word == "on_will_stop":
            assert "on_startup" in self.story
            assert not self.bench.group.stops, "the signal comes before on_will_stop"
        self.story.append(word)
        if word == "on_stopped":
            self.story.clear()
        if word == "server":
            self.bench.server.began(group)
        else:
            group.obeys = self.obeys

    def watch(self, waiting: Deferred[None], right: Callable[[], bool], wrong: str) -> None:
        """Check something at the end of a wait; a failed start or a cancelled wait is none."""

        def check(_: None) -> None:
            if not right():
                self.wrongs.append(f"{wrong}: {self.bench.child.state}, {self.story}")

        self.waiting.append(waiting.addCallback(check).addErrback(lambda _: None))

    def is_ready(self) -> bool:
        """Whether a client may be let through."""
        return self.bench.child.state is State.READY and not [hook for hook in self.hooks() if hook.alive]

    def is_away(self) -> bool:
        """Whether its room is free, or was a moment ago."""
        return self.bench.child.state in (State.ASLEEP, State.WAKING) or not self.servers()

    def is_gone(self) -> bool:
        """Whether nothing is left of the process."""
        return not self.servers()

    def hooks(self) -> list[FakeGroup]:
        """Commands other than the server that run."""
        return [group for group in self.bench.processes.running if group.words[0] != "server"]

    def servers(self) -> list[FakeGroup]:
        """Processes of the model that run."""
        return [group for group in self.bench.processes.running if group.words[0] == "server"]

    # -- what people do -----------------------------------------------------------------

    @rule(preload=st.booleans())
    def ask(self, preload: bool) -> None:
        """Somebody wants it."""
        asked = self.bench.child.ensure_ready(Reason.PRELOAD if preload else Reason.REQUEST)
        self.clients.append(asked)
        self.watch(asked, self.is_ready, "somebody is let through")
        self.bench.reactor.turn()

    @when(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Somebody does not want it any more."""
        data.draw(st.sampled_from(self.clients)).cancel()

    @rule(reason=st.sampled_from(WAYS))
    def rest(self, reason: Reason) -> None:
        """It has to make room."""
        self.watch(self.bench.child.rest(Cause(reason)), self.is_away, "its room is not free")
        self.bench.reactor.turn()

    @rule(reason=st.sampled_from(WAYS))
    def stop(self, reason: Reason) -> None:
        """It has to end."""
        self.watch(self.bench.child.stop(Cause(reason)), self.is_gone, "something is left")
        self.bench.reactor.turn()

    @rule(sure=st.integers(0, 7))
    def shut_down(self, sure: int) -> None:
        """The end, now and then."""
        if sure == 7:
            self.shut = True
            self.watch(self.bench.child.shut(), self.is_gone, "something is left for good")
            self.bench.reactor.turn()

    @rule(other=st.booleans(), timeout=st.sampled_from((30.0, 5.0)))
    def reload(self, other: bool, timeout: float) -> None:
        """Another configuration, perhaps with another command."""
        fields = {name: getattr(self.bench.model, name) for name in Model.__struct_fields__ if name != "words"}
        fields |= config(self.abort, "server --other" if other else "server", timeout)
        self.bench.child.adopt(Model(**fields))
        self.bench.reactor.turn()

    # -- what processes do ----------------------------------------------------------------

    @when(lambda self: self.hooks())
    @rule(data=st.data(), code=st.sampled_from((0, 0, 0, 0, 1)))
    def end_hook(self, data: st.DataObject, code: int) -> None:
        """A hook ends."""
        data.draw(st.sampled_from(self.hooks())).end(code)
        self.bench.reactor.turn()

    @when(lambda self: self.hooks())
    @rule(times=st.integers(1, 4))
    def go_on(self, times: int) -> None:
        """All goes well for a while."""
        for _ in range(times):
            for hook in self.hooks():
                hook.end(0)
            self.bench.reactor.turn(1)

    @when(lambda self: self.servers())
    @rule(at_once=st.booleans())
    def die(self, at_once: bool) -> None:
        """The server ends by itself, or at last."""
        server = self.servers()[-1]
        server.exit(1)
        if at_once:
            server.vanish()
        self.bench.reactor.turn()

    @rule(status=st.sampled_from((200, 503)))
    def health(self, status: int) -> None:
        """What the server says from now on."""
        self.bench.server.health = status

    @rule(seconds=st.sampled_from((0.1, 1.0, 5.0, 31.0, 130.0)))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.bench.reactor.turn(seconds)

    # -- what holds at any time -------------------------------------------------------------

    @invariant()
    def all_is_well(self) -> None:
        """One process at most; a state that fits it; a server that ends while its last hook runs was not told to."""
        if not hasattr(self, "bench"):
            return
        child, servers = self.bench.child, self.servers()
        assert not self.wrongs, self.wrongs
        assert len(servers) <= 1
        if child.state in (State.READY, State.ASLEEP):
            assert servers
            assert not self.hooks(), "a hook goes on that nobody waits for"
        if servers:
            assert child.state not in (State.STOPPED, State.SHUTDOWN)
        running = [hook.words[0] for hook in self.hooks()]
        if "on_will_stop" in running and servers:
            assert not servers[0].stops, "the signal came before on_will_stop had ended"
        assert len(running) <= 1, running

    def teardown(self) -> None:
        """Everything comes to its end; nobody waits, nothing is left, no call is due."""
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        bench.server.health = 200
        for _ in range(60):
            for hook in self.hooks():
                hook.end(0)
            for server in self.servers():
                if server.stops and not server.alive:
                    server.vanish()
            bench.reactor.turn(1)
        assert all(waiting.called for waiting in self.waiting), "somebody waits for good"
        over = bench.child.shut()
        for _ in range(20):
            for hook in self.hooks():
                hook.end(0)
            for server in self.servers():
                if not server.alive:
                    server.vanish()
            bench.reactor.turn(1)
        assert over.called
        assert not bench.processes.running
        # Hooks that have taken too long since a shutdown are cut, the later ones with them.
        assert not self.story or self.shut, f"on_stopped did not run: {self.story}"
        assert bench.reactor.getDelayedCalls() == []
        assert not self.wrongs, self.wrongs


class ChildPropertyTests(SynchronousTestCase):
    """Many histories."""

    def test_anything(self) -> None:
        """In any order."""
        run_state_machine_as_test(
            Anything,
            settings=settings(
                max_examples=120,
                stateful_step_count=40,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
