"""Sleep and wake of a child (`lswap.service.sleep`): vLLM's protocol, two actions, and every way to fail."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred

from lswap.core.events import State
from lswap.core.hooks import Cause, Outcome, Reason
from lswap.core.model import HookAction, Hooks, HttpCall, Model, Sleep, VllmSleep
from lswap.service.sleep import CONFIRM
from tests.service.child_case import UNLOAD, ChildCase
from tests.stand_in import FakeGroup, Served

SWAP = Cause(Reason.SWAP, "b")
PAIR = Sleep(
    sleep=(HookAction(calls=(HttpCall(method="POST", url="/s"),), timeout=60),),
    wake=(HookAction(calls=(HttpCall(method="POST", url="/w"),), timeout=60),),
)


class SleepCase(ChildCase):
    """A model that sleeps by two calls."""

    def setUp(self) -> None:
        """It is not there yet."""
        super().setUp()
        self.make(sleep=PAIR)

    @property
    def targets(self) -> list[str]:
        """What the server was asked for, in order."""
        return [request.target for request in self.server.requests]

    def answer(self, status: int = 200, body: bytes = b"") -> None:
        """The server answers the last request."""
        self.server.request.answer(status, body)
        self.reactor.turn()

    def resting(self) -> Deferred[None]:
        """Have it ready and told to make room: it is asked to sleep."""
        self.ready()
        room = self.child.rest(SWAP)
        self.reactor.turn()
        return room

    def asleep(self) -> None:
        """Have it asleep."""
        room = self.resting()
        self.answer()
        self.successResultOf(room)
        self.assertEqual(self.child.state, State.ASLEEP)

    def waking(self) -> Deferred[None]:
        """Have it asleep and wanted: it is asked to wake."""
        self.asleep()
        asked = self.child.ensure_ready()
        self.reactor.turn()
        return asked


class PairTests(SleepCase):
    """Two actions of the configuration."""

    def test_sleep_and_wake(self) -> None:
        """The process stays; its room is free when it is asleep, and it is ready when it answers again."""
        room = self.resting()
        self.assertNoResult(room)
        self.assertEqual((self.child.state, self.targets), (State.SLEEPING, ["/s"]))
        self.answer()
        self.successResultOf(room)
        self.assertEqual((self.child.state, self.child.pid), (State.ASLEEP, self.group.pid))
        checks = len(self.server.checks)
        asked = self.child.ensure_ready()
        self.reactor.turn()
        self.assertEqual((self.child.state, self.targets), (State.WAKING, ["/s", "/w"]))
        self.assertNoResult(asked)
        self.answer()
        self.successResultOf(asked)
        self.assertEqual(self.states, ["sleeping", "asleep", "waking", "ready"])
        self.assertEqual((len(self.server.groups), len(self.server.checks)), (1, checks + 1))
        self.assert_quiet()

    def test_not_ready_before_it_answers(self) -> None:
        """The health check follows the wake."""
        asked = self.waking()
        self.server.health = 503
        self.answer()
        self.assertNoResult(asked)
        self.server.health = 200
        self.reactor.turn(1)
        self.successResultOf(asked)

    def test_commands(self) -> None:
        """They know the model, the process and the reason."""
        self.make(sleep=Sleep(sleep=(HookAction(words=("zzz", "${PID}")),), wake=(HookAction(words=("up",)),)))
        self.ready()
        self.child.rest(SWAP)
        self.reactor.turn()
        hook = self.processes.groups[-1]
        self.assertEqual(hook.words, ["zzz", str(self.group.pid)])
        told = [hook.environment[f"LSWAP_{name}"] for name in ("EVENT", "REASON", "OTHER")]
        self.assertEqual(told, ["sleep", "swap", "b"])
        hook.end(0)
        self.child.ensure_ready(Reason.PRELOAD)
        self.reactor.turn()
        hook = self.processes.groups[-1]
        told = [hook.environment[f"LSWAP_{name}"] for name in ("EVENT", "REASON", "OTHER")]
        self.assertEqual(told, ["wake", "preload", ""])

    def test_wanted_while_it_falls_asleep(self) -> None:
        """It wakes as soon as it sleeps; its room counts as free in between, for those who waited for that."""
        room = self.resting()
        asked = self.child.ensure_ready()
        self.assertEqual(self.child.state, State.SLEEPING)
        self.answer()
        self.successResultOf(room)
        self.answer()
        self.successResultOf(asked)
        self.assertEqual(self.states, ["sleeping", "waking", "ready"])

    def test_not_wanted_after_all(self) -> None:
        """The last word counts."""
        self.resting()
        asked = self.child.ensure_ready()
        room = self.child.rest(SWAP)
        self.assertIn("aborted", self.why(asked))
        self.answer()
        self.successResultOf(room)
        self.assertEqual(self.child.state, State.ASLEEP)

    def test_at_rest_already(self) -> None:
        """Who sleeps or is not there makes no room."""
        self.successResultOf(self.child.rest(SWAP))
        self.asleep()
        self.successResultOf(self.child.rest(SWAP))
        self.assertEqual(self.targets, ["/s"])

    def test_one_that_cannot_sleep(self) -> None:
        """It is stopped."""
        self.make(sleep=None)
        self.ready()
        room = self.child.rest(SWAP)
        self.reactor.turn()
        self.successResultOf(room)
        self.assertEqual(self.states, ["stopping", "stopped"])

    def test_one_that_starts(self) -> None:
        """It is stopped: it has nothing to sleep with."""
        asked = self.start(health=503)
        room = self.child.rest(SWAP)
        self.assertIn("aborted", self.why(asked))
        self.reactor.turn()
        self.successResultOf(room)


class VllmTests(SleepCase):
    """vLLM's own protocol."""

    def setUp(self) -> None:
        """Level 1."""
        super().setUp()
        self.make(sleep=Sleep(vllm=VllmSleep(level=1)))

    def say(self, asleep: bool | None) -> None:
        """The server answers whether it sleeps."""
        self.assertEqual((self.server.request.method, self.server.request.target), ("GET", "/is_sleeping"))
        self.answer(200, json.dumps({"is_sleeping": asleep}).encode())

    def test_level_1(self) -> None:
        """Each call is confirmed; then the health check."""
        room = self.resting()
        self.assertEqual(self.targets, ["/sleep?level=1"])
        self.answer()
        self.say(False)
        self.assertNoResult(room)
        self.reactor.turn(0.3)
        self.say(True)
        self.successResultOf(room)
        asked = self.child.ensure_ready()
        self.reactor.turn()
        self.assertEqual(self.targets[-1], "/wake_up")
        self.answer()
        self.say(True)
        self.reactor.turn(0.3)
        self.assertNoResult(asked)
        self.say(False)
        self.successResultOf(asked)

    def test_level_2(self) -> None:
        """Weights, cache, prefixes, in their order."""
        self.make(sleep=Sleep(vllm=VllmSleep(level=2)))
        self.resting()
        self.answer()
        self.say(True)
        asked = self.child.ensure_ready()
        self.reactor.turn()
        for _ in range(4):
            self.answer()
        self.say(False)
        self.successResultOf(asked)
        self.assertEqual(
            self.targets[2:],
            [
                "/wake_up?tags=weights",
                "/collective_rpc",
                "/wake_up?tags=kv_cache",
                "/reset_prefix_cache",
                "/is_sleeping",
            ],
        )
        self.assertEqual(self.server.requests[3].body, b'{"method": "reload_weights"}')

    def test_never_confirmed(self) -> None:
        """After 30 s it counts as failed, whatever the server said; it is stopped."""
        room = self.resting()
        self.answer()
        kinds = [lambda r: r.answer(200, b'{"is_sleeping": false}'), lambda r: r.answer(404), lambda r: r.close()]
        for at in range(200):
            last: Served = self.server.request
            if last.target == "/is_sleeping" and not last.aborted:
                kinds[at % 3](last)
            if self.child.state is not State.SLEEPING:
                break
            self.reactor.turn(0.5)
        self.assertLess(abs(self.reactor.seconds() - CONFIRM), 2)
        self.assertIn(self.child.state, (State.STOPPING, State.STOPPED))
        self.reactor.turn(1)
        self.successResultOf(room)
        self.assertIn("not confirmed within 30 s", self.doings[-1].detail)

    def test_no_answer_at_all(self) -> None:
        """A question that hangs is asked again, and the time is the same."""
        room = self.resting()
        self.answer()
        for _ in range(29):
            self.reactor.turn(1)
        self.assertEqual(self.child.state, State.SLEEPING)
        for _ in range(3):
            self.reactor.turn(1)
        self.successResultOf(room)
        self.assertGreaterEqual(self.targets.count("/is_sleeping"), 5)


class FallBackTests(SleepCase):
    """Every failure leads to a stop, or to a new start."""

    def test_sleep_fails(self) -> None:
        """It is stopped, with its stop hooks, for the reason of the sleep; who waits for its room waits for that."""
        hooks = Hooks(on_will_stop=(HookAction(words=("will",)),), on_stopped=(HookAction(words=("stopped",)),))
        self.make(sleep=PAIR, hooks=hooks)
        room = self.resting()
        self.answer(500)
        self.assertNoResult(room)
        self.hook("will").end()
        self.reactor.turn()
        self.successResultOf(room)
        for word in ("will", "stopped"):
            told = self.hook(word).environment
            self.assertEqual((told["LSWAP_REASON"], told["LSWAP_OTHER"]), ("swap", "b"))

    def hook(self, word: str) -> FakeGroup:
        """The last command with this word."""
        return next(group for group in reversed(self.processes.groups) if group.words[0] == word)

    def test_sleep_hangs(self) -> None:
        """After its time."""
        room = self.resting()
        self.reactor.turn(59)
        self.assertNoResult(room)
        self.reactor.turn(1)
        self.reactor.turn()
        self.successResultOf(room)
        self.assertIs(self.doings[-1].outcome, Outcome.TIMEOUT)

    def test_sleep_fails_and_it_is_wanted(self) -> None:
        """It is started anew; who waited for it is served by that."""
        room = self.resting()
        asked = self.child.ensure_ready()
        self.answer(500)
        self.reactor.turn(1)
        self.successResultOf(room)
        self.successResultOf(asked)
        self.assertEqual(len(self.server.groups), 2)

    def test_wake_fails(self) -> None:
        """It is stopped and started anew; all who wait are served by the new process."""
        asked = self.waking()
        other = self.child.ensure_ready()
        self.answer(500)
        self.reactor.turn(1)
        self.successResultOf(asked)
        self.successResultOf(other)
        self.assertEqual(len(self.server.groups), 2)
        self.assertEqual(self.states[2:], ["waking", "stopping", "starting", "ready"])

    def test_wake_does_not_lead_to_health(self) -> None:
        """The same, after `healthCheckTimeout`."""
        self.make(sleep=PAIR, health_check_timeout=5.0)
        asked = self.waking()
        self.server.health = 503
        self.answer()
        for _ in range(20):
            self.reactor.turn(0.3)
        self.server.health = 200
        self.reactor.turn(1)
        self.reactor.turn(1)
        self.successResultOf(asked)
        self.assertEqual(len(self.server.groups), 2)

    def test_dies(self) -> None:
        """Asleep: it is stopped, and counts as no failure. In between: a failure, and a new start if it is wanted."""
        self.asleep()
        self.group.end(9)
        self.assertEqual(self.states[2:], ["stopping", "stopped"])
        self.setUp()
        room = self.resting()
        self.group.end(9)
        self.reactor.turn()
        self.successResultOf(room)
        self.assertEqual(self.child.state, State.STOPPED)
        self.setUp()
        asked = self.waking()
        self.group.end(9)
        self.reactor.turn(1)
        self.successResultOf(asked)
        self.assertEqual(len(self.server.groups), 2)

    def fall_asleep_in_vain(self) -> None:
        """Have it fall asleep in vain, once."""
        self.resting()
        self.answer(500)
        self.reactor.turn()

    def test_three_in_a_row(self) -> None:
        """Then it is stopped like any other, until a reload."""
        for _ in range(3):
            self.fall_asleep_in_vain()
        self.ready()
        self.child.rest(SWAP)
        self.reactor.turn()
        self.assertEqual((self.child.state, self.targets), (State.STOPPED, ["/s"] * 3))
        self.child.adopt(self.model)
        self.asleep()

    def test_success_in_between(self) -> None:
        """A whole night, with its morning, starts the count anew; a sleep without a wake does not."""
        self.fall_asleep_in_vain()
        self.fall_asleep_in_vain()
        asked = self.waking()
        self.answer()
        self.successResultOf(asked)
        self.child.stop(UNLOAD)
        self.reactor.turn()
        self.fall_asleep_in_vain()
        self.fall_asleep_in_vain()
        asked = self.waking()
        self.answer(500)
        self.reactor.turn(1)
        self.successResultOf(asked)
        self.child.rest(SWAP)
        self.reactor.turn()
        self.assertEqual(self.child.state, State.STOPPED)

    def test_internal_fault(self) -> None:
        """It is a failure like others."""
        self.ready()
        self.patch(self.child._hooks, "carry_out", None)
        room = self.child.rest(SWAP)
        self.reactor.turn()
        self.successResultOf(room)
        self.assertEqual(self.child.state, State.STOPPED)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)


class EndTests(SleepCase):
    """What ends a sleeping model."""

    def test_stop(self) -> None:
        """In each of the three states, with what goes on cut."""
        for prepare in (self.resting, self.asleep, self.waking):
            self.setUp()
            waiting = prepare()
            if prepare == self.waking and waiting is not None:
                waiting.addErrback(lambda _: None)
            gone = self.child.stop(UNLOAD)
            self.reactor.turn()
            self.successResultOf(gone)
            self.assertEqual(self.child.state, State.STOPPED)
            self.assertEqual(len(self.group.stops), 1)
            self.assert_quiet()

    def test_shut(self) -> None:
        """The same for good."""
        for prepare in (self.resting, self.asleep, self.waking):
            self.setUp()
            waiting = prepare()
            if prepare == self.waking and waiting is not None:
                waiting.addErrback(lambda _: None)
            over = self.child.shut()
            self.reactor.turn()
            self.successResultOf(over)
            self.assertEqual(self.child.state, State.SHUTDOWN)
            self.assert_quiet()

    def test_long_sleep(self) -> None:
        """`maxAsleep` counts from each falling asleep on; a wake ends it."""
        self.make(sleep=Sleep(sleep=PAIR.sleep, wake=PAIR.wake, max_asleep=10.0))
        asked = self.waking()
        self.answer()
        self.successResultOf(asked)
        self.reactor.turn(20)
        self.assertEqual(self.child.state, State.READY)
        self.child.rest(SWAP)
        self.reactor.turn()
        self.answer()
        self.reactor.turn(5)
        self.child.rest(SWAP)
        self.reactor.turn(4.9)
        self.assertEqual(self.child.state, State.ASLEEP)
        self.reactor.turn(0.1)
        self.reactor.turn()
        self.assertEqual(self.child.state, State.STOPPED)

    def test_reload(self) -> None:
        """Another limit counts at once; it is woken by what belongs to its sleep."""
        self.asleep()
        fields = {name: getattr(self.model, name) for name in Model.__struct_fields__ if name != "words"}
        other = Sleep(vllm=VllmSleep(level=2), max_asleep=100.0)
        self.assertFalse(self.child.adopt(Model(**(fields | {"sleep": other}))))
        self.reactor.turn(99)
        self.child.ensure_ready()
        self.reactor.turn()
        self.assertEqual(self.targets[-1], "/w")
        self.answer()
        self.assertEqual(self.child.state, State.READY)
        self.setUp()
        self.asleep()
        self.child.adopt(Model(**(fields | {"sleep": other})))
        self.child.adopt(Model(**(fields | {"sleep": None})))
        self.reactor.turn(200)
        self.assertEqual(self.child.state, State.ASLEEP)

    def test_outdated(self) -> None:
        """A process that is not what the configuration describes is stopped rather than put to sleep."""
        self.ready()
        fields = {name: getattr(self.model, name) for name in Model.__struct_fields__ if name != "words"}
        self.assertTrue(self.child.adopt(Model(**(fields | {"cmd": "server --other"}))))
        self.child.rest(SWAP)
        self.reactor.turn()
        self.assertEqual((self.child.state, self.targets), (State.STOPPED, []))
