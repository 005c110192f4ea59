"""The loop around the scheduler (`lswap.service.router`): leases, swaps, unloading, idle times, the end.

Everything is real but the processes and the sockets (`tests.memory`).
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Refusal
from lswap.core.events import Arrived, Event
from lswap.service.router import Lease, Refused, Router
from tests.memory import MemoryLswap, StandIn

MODELS = """
models:
  a: {cmd: "server --port ${PORT}", ttl: 60}
  b: {cmd: "server --port ${PORT}"}
  c: {cmd: "server --port ${PORT}", concurrencyLimit: 2}
"""
TOGETHER = "groups: {all: {swap: false, members: [a, b, c]}}\n" + MODELS


class RouterCase(SynchronousTestCase):
    """A router, its children, and a hand that asks for models."""

    def setUp(self) -> None:
        """One model at a time."""
        self.start(MODELS)

    def start(self, config: str) -> None:
        """Begin anew with another configuration."""
        self.lswap = MemoryLswap(config)
        self.router: Router = self.lswap.router
        self.models: dict[str, StandIn] = self.lswap.models

    def ask(self, model: str) -> Deferred[Lease]:
        """Ask for a model, and let what follows happen."""
        asked = self.router.acquire(model)
        self.lswap.turn()
        return asked

    def lease(self, model: str) -> Lease:
        """Ask for a model that is given at once."""
        return self.successResultOf(self.ask(model))

    def why(self, asked: Deferred[Lease]) -> Refused:
        """Why a request was refused."""
        refused = self.failureResultOf(asked, Refused).value
        assert isinstance(refused, Refused)
        return refused

    def load(self, *names: str) -> None:
        """Have these models ready and idle."""
        for name in names:
            self.lease(name).release()

    def assert_clean(self) -> None:
        """Nothing is held for anybody."""
        self.assertEqual(self.lswap.leftovers(), [])


class LeaseTests(RouterCase):
    """The right to use a model."""

    def test_starts_the_model(self) -> None:
        """Whoever asks for a model gets a lease when it is ready, with the owner of its process."""
        self.models["a"].health = 503
        asked = self.ask("a")
        self.assertNoResult(asked)
        self.models["a"].health = 200
        self.lswap.turn(1)
        lease = self.successResultOf(asked)
        self.assertIs(lease.child, self.lswap.child("a"))
        self.assertEqual(self.lswap.running(), {"a": "ready"})

    def test_released_once(self) -> None:
        """A second release does nothing, also when another request is granted by then."""
        first = self.lease("a")
        first.release()
        second = self.lease("a")
        first.release()
        self.assertEqual(self.lswap.scheduler.inflight("a"), 1)
        second.release()
        self.assert_clean()

    def test_running_model(self) -> None:
        """A lease of a running model is given before `acquire` returns."""
        self.load("a")
        self.successResultOf(self.router.acquire("a")).release()
        self.assertEqual(len(self.models["a"].groups), 1)

    def test_unknown_model(self) -> None:
        """It is refused."""
        refused = self.why(self.ask("nosuch"))
        self.assertEqual((refused.reason, str(refused)), (Refusal.UNKNOWN, "no local server found for requested model"))

    def test_limit(self) -> None:
        """Beyond `concurrencyLimit`, requests are refused; waiting ones count."""
        self.models["c"].health = 503
        asked = [self.ask("c") for _ in range(3)]
        self.assertEqual(self.why(asked[2]).reason, Refusal.LIMIT)
        self.models["c"].health = 200
        self.lswap.turn(1)
        for waiting in asked[:2]:
            self.successResultOf(waiting).release()
        self.lease("c").release()
        self.assert_clean()

    def test_queue_limit(self) -> None:
        """Beyond `limits.queue` waiting requests in all, more are refused; the text tells how many wait."""
        self.start("limits: {queue: 2}\n" + MODELS)
        held = self.lease("a")
        waiting = [self.ask("b"), self.ask("c")]
        refused = self.why(self.ask("b"))
        self.assertEqual(refused.reason, Refusal.QUEUE_FULL)
        self.assertIn("2 are waiting", str(refused))
        held.release()
        self.lswap.turn()
        self.successResultOf(waiting[0]).release()

    def test_failed_start(self) -> None:
        """All who waited for it are told why; the next request tries again."""
        self.models["a"].health = 503
        asked = [self.ask("a") for _ in range(3)]
        self.models["a"].group.exit(7)
        for waiting in asked:
            refused = self.why(waiting)
            self.assertEqual(refused.reason, Refusal.FAILED)
            self.assertIn("exit code 7", str(refused))
        self.models["a"].group.vanish()
        self.models["a"].health = 200
        self.lease("a").release()
        self.assert_clean()

    def test_start_that_fails_in_the_same_turn(self) -> None:
        """A refusal may come before `acquire` returns."""
        self.lswap.processes.error = OSError("a bug")
        asked = self.router.acquire("b")
        self.lswap.turn()
        self.assertEqual(self.why(asked).reason, Refusal.FAILED)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.assert_clean()


class SwapTests(RouterCase):
    """One model makes room for another."""

    def test_victim_goes_first(self) -> None:
        """The next model is not started before the process of the last one is gone."""
        self.load("a")
        self.models["a"].group.obeys = False
        asked = self.ask("b")
        self.assertEqual(self.lswap.running(), {"a": "stopping"})
        self.models["a"].group.exit()
        self.lswap.turn()
        self.assertEqual(self.models["b"].groups, [])
        self.models["a"].group.vanish()
        self.lswap.turn()
        self.successResultOf(asked).release()
        self.assertEqual(self.lswap.running(), {"b": "ready"})

    def test_busy_victim(self) -> None:
        """A model with a request under way stays until that is over."""
        held = self.lease("a")
        asked = self.ask("b")
        self.lswap.turn(100)
        self.assertNoResult(asked)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        held.release()
        self.lswap.turn()
        self.successResultOf(asked).release()
        self.assert_clean()

    def test_victim_that_dies_by_itself(self) -> None:
        """An end that nobody asked for makes room as well."""
        held = self.lease("a")
        asked = self.ask("b")
        self.models["a"].group.end(1)
        self.lswap.turn()
        self.successResultOf(asked).release()
        held.release()
        self.assert_clean()

    def test_internal_fault(self) -> None:
        """A bug in a swap is logged with its traceback, and costs the requests of that swap."""

        def broken(why: str) -> Deferred[None]:
            raise RuntimeError("a bug")

        self.load("a")
        self.patch(self.lswap.child("a"), "stop", broken)
        refused = self.why(self.ask("b"))
        self.assertEqual((refused.reason, str(refused)), (Refusal.FAILED, "internal error: a bug"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.lease("a").release()
        self.assert_clean()


class LeavingTests(RouterCase):
    """Who does not wait any more."""

    def test_in_the_queue(self) -> None:
        """Who leaves the queue is out of it in the same turn, and his model is never started."""
        held = self.lease("a")
        leaver, stayer = self.ask("b"), self.ask("c")
        leaver.cancel()
        self.failureResultOf(leaver, CancelledError)
        self.assertEqual(self.lswap.scheduler.waiting(), 1)
        held.release()
        self.lswap.turn()
        self.successResultOf(stayer).release()
        self.assertEqual(self.models["b"].groups, [])
        self.assert_clean()

    def test_during_the_load(self) -> None:
        """The load goes on, and the model is then idle."""
        self.models["a"].health = 503
        leaver = self.ask("a")
        leaver.cancel()
        self.failureResultOf(leaver, CancelledError)
        self.models["a"].health = 200
        self.lswap.turn(1)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.assert_clean()
        self.lswap.turn(60)
        self.assertEqual(self.lswap.running(), {})

    def test_load_that_is_in_the_way(self) -> None:
        """A load that nobody waits for gives way to a model that somebody waits for."""
        self.models["a"].health = 503
        leaver = self.ask("a")
        waiting = self.ask("b")
        self.assertNoResult(waiting)
        leaver.cancel()
        self.failureResultOf(leaver, CancelledError)
        self.lswap.turn()
        self.successResultOf(waiting).release()
        self.assertEqual(self.models["a"].checks[-1].aborted, True)
        self.assert_clean()

    def test_given_up_while_it_evicts(self) -> None:
        """A swap that is given up while its victim still ends does not start its model."""
        self.load("a")
        self.models["a"].group.obeys = False
        leaver = self.ask("b")
        waiting = self.ask("c")
        leaver.cancel()
        self.failureResultOf(leaver, CancelledError)
        self.models["a"].group.end()
        self.lswap.turn()
        self.successResultOf(waiting).release()
        self.assertEqual(self.models["b"].groups, [])
        self.assert_clean()

    def test_after_the_grant(self) -> None:
        """Then it is too late: the lease is there, and has to be released."""
        asked = self.router.acquire("a")
        self.lswap.turn()
        asked.cancel()
        lease = self.successResultOf(asked)
        self.assertEqual(self.lswap.scheduler.inflight("a"), 1)
        lease.release()
        self.assert_clean()

    def test_in_the_turn_of_the_grant(self) -> None:
        """Who is sent away by another's grant is not granted."""
        self.models["a"].health = 503
        first, second, third = self.ask("a"), self.ask("a"), self.ask("a")

        def go_on(lease: Lease) -> None:
            second.cancel()
            lease.release()

        first.addCallback(go_on)
        self.models["a"].health = 200
        self.lswap.turn(1)
        self.failureResultOf(second, CancelledError)
        self.successResultOf(third).release()
        self.assert_clean()


class UnloadTests(RouterCase):
    """Stopping by hand."""

    def unload(self, *names: str) -> Deferred[None]:
        """Ask for it, and let what follows happen."""
        done = self.router.unload(names)
        self.lswap.turn()
        return done

    def test_waits_for_the_end(self) -> None:
        """It is done when the processes are gone."""
        self.start(TOGETHER)
        self.load("a", "b", "c")
        self.models["a"].group.obeys = False
        done = self.unload("a", "b")
        self.assertNoResult(done)
        self.assertEqual(self.lswap.running(), {"a": "stopping", "c": "ready"})
        self.models["a"].group.end()
        self.successResultOf(done)

    def test_nothing_runs(self) -> None:
        """Then it is done at once; a model that does not exist does not matter."""
        self.successResultOf(self.router.unload(("a", "b", "nosuch")))
        self.successResultOf(self.router.unload(()))

    def test_waiting_requests(self) -> None:
        """Whoever waits for such a model is told, in the queue and during the load; others wait on."""
        self.start(MODELS)
        self.models["a"].health = 503
        loading, queued, other = self.ask("a"), self.ask("b"), self.ask("c")
        done = self.unload("a", "b")
        for asked in (loading, queued):
            refused = self.why(asked)
            self.assertEqual((refused.reason, str(refused)), (Refusal.UNLOADED, "group: model unloaded"))
        self.successResultOf(done)
        self.successResultOf(other).release()
        self.assertEqual(self.models["b"].groups, [])
        self.assert_clean()

    def test_request_under_way(self) -> None:
        """It is not waited for: its model ends under it."""
        held = self.lease("a")
        self.successResultOf(self.unload("a"))
        held.release()
        self.assert_clean()

    def test_asked_again_in_the_turn_of_the_refusal(self) -> None:
        """Who is refused, and asks again at once, is served by a new process; the unloading is done before that."""
        self.models["a"].health = 503
        again: list[Deferred[Lease]] = []
        self.ask("a").addErrback(lambda _: again.append(self.router.acquire("a")))
        self.models["a"].group.obeys = False
        done = self.unload("a")
        self.assertNoResult(done)
        self.assertNoResult(again[0])
        self.models["a"].health = 200
        self.models["a"].group.end()
        self.successResultOf(done)
        self.lswap.turn()
        self.successResultOf(again[0]).release()
        self.assertEqual(len(self.models["a"].groups), 2)
        self.assert_clean()

    def test_twice(self) -> None:
        """Both are done at the same end."""
        self.load("a")
        self.models["a"].group.obeys = False
        first, second = self.unload("a"), self.unload("a")
        self.models["a"].group.end()
        self.successResultOf(first)
        self.successResultOf(second)

    def test_target_of_a_swap_that_evicts(self) -> None:
        """A model that is unloaded before its start is not started behind anybody's back."""
        self.load("a")
        self.models["a"].group.obeys = False
        asked = self.ask("b")
        self.successResultOf(self.unload("b"))
        self.assertEqual(self.why(asked).reason, Refusal.UNLOADED)
        self.models["a"].group.end()
        self.lswap.turn()
        self.assertEqual(self.models["b"].groups, [])
        self.assertEqual(self.lswap.running(), {})
        self.assert_clean()

    def test_victim_of_a_swap(self) -> None:
        """The swap goes on with it."""
        self.load("a")
        self.models["a"].group.obeys = False
        asked = self.ask("b")
        done = self.unload("a")
        self.models["a"].group.end()
        self.lswap.turn()
        self.successResultOf(done)
        self.successResultOf(asked).release()


class IdleTests(RouterCase):
    """Unloading after `ttl` seconds without a request; model a has 60."""

    def test_unloaded(self) -> None:
        """The time runs from the end of the last request."""
        held = self.lease("a")
        self.lswap.turn(100)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        held.release()
        self.lswap.turn(59)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.lswap.turn(1)
        self.assertEqual(self.lswap.running(), {})

    def test_request_begins_the_time_anew(self) -> None:
        """Also when the timer of the time before is still there."""
        self.load("a")
        for _ in range(5):
            self.lswap.turn(40)
            self.load("a")
        self.assertEqual(len(self.models["a"].groups), 1)
        self.lswap.turn(60)
        self.assertEqual(self.lswap.running(), {})

    def test_busy_when_the_time_is_over(self) -> None:
        """A model that works is left alone, and has its whole time afterwards."""
        self.load("a")
        self.lswap.turn(50)
        held = self.lease("a")
        self.lswap.turn(50)
        held.release()
        self.lswap.turn(59)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.lswap.turn(1)
        self.assertEqual(self.lswap.running(), {})

    def test_from_readiness(self) -> None:
        """A model that was loaded for nobody has its whole time too."""
        self.models["a"].health = 503
        leaver = self.ask("a")
        leaver.cancel()
        self.failureResultOf(leaver, CancelledError)
        self.lswap.turn(59)
        self.models["a"].health = 200
        self.lswap.turn(1)
        self.lswap.turn(59)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.lswap.turn(1)
        self.assertEqual(self.lswap.running(), {})

    def test_without(self) -> None:
        """Model b has none, and stays."""
        self.load("b")
        self.lswap.turn(10_000)
        self.assertEqual(self.lswap.running(), {"b": "ready"})
        self.assertEqual(self.lswap.reactor.getDelayedCalls(), [])

    def test_request_while_it_ends(self) -> None:
        """It is answered by a new process."""
        self.load("a")
        self.models["a"].group.obeys = False
        self.lswap.turn(60)
        asked = self.ask("a")
        self.assertEqual(self.lswap.running(), {"a": "stopping"})
        self.models["a"].group.end()
        self.lswap.turn()
        self.successResultOf(asked).release()
        self.assertEqual(len(self.models["a"].groups), 2)


class EndTests(RouterCase):
    """The end of lswap."""

    def test_all_ends(self) -> None:
        """Who waits is told, the processes end, and later requests are refused."""
        self.start(TOGETHER)
        self.load("a", "b")
        self.models["c"].health = 503
        loading = self.ask("c")
        self.models["b"].group.obeys = False
        done = self.router.shut_down()
        refused = self.why(loading)
        self.assertEqual((refused.reason, str(refused)), (Refusal.SHUTTING_DOWN, "group is shutting down"))
        self.assertEqual(self.why(self.ask("a")).reason, Refusal.SHUTTING_DOWN)
        self.assertNoResult(done)
        self.models["b"].group.end()
        self.successResultOf(done)
        self.assertEqual(self.lswap.processes.running, [])
        self.lswap.turn(100)
        self.assertEqual(self.lswap.reactor.getDelayedCalls(), [])
        self.assert_clean()

    def test_in_the_middle_of_a_swap(self) -> None:
        """Its model is not started any more."""
        self.load("a")
        self.models["a"].group.obeys = False
        asked = self.ask("b")
        done = self.router.shut_down()
        self.assertEqual(self.why(asked).reason, Refusal.SHUTTING_DOWN)
        self.models["a"].group.end()
        self.lswap.turn()
        self.successResultOf(done)
        self.assertEqual(self.models["b"].groups, [])

    def test_twice(self) -> None:
        """It is the same end."""
        self.load("a")
        self.models["a"].group.obeys = False
        first, second = self.router.shut_down(), self.router.shut_down()
        self.models["a"].group.end()
        self.successResultOf(first)
        self.successResultOf(second)


class FaultTests(RouterCase):
    """Bugs of ours cost one request."""

    def test_scheduler_that_fails(self) -> None:
        """The request is answered with the fault, which is logged; the next one is served."""
        handle = self.lswap.scheduler.handle

        def broken(event: Event) -> object:
            if isinstance(event, Arrived):
                raise RuntimeError("a bug")
            return handle(event)

        patch = self.patch(self.lswap.scheduler, "handle", broken)
        self.failureResultOf(self.ask("a"), RuntimeError)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        patch.restore()
        self.lease("a").release()
        self.assert_clean()

    def test_effect_that_fails(self) -> None:
        """What comes after it is carried out all the same."""

        def broken(model: str, since: float) -> None:
            raise RuntimeError("a bug")

        self.patch(self.router, "_watch_idle", broken)
        held = self.lease("a")
        asked = self.ask("b")
        held.release()
        self.lswap.turn()
        self.successResultOf(asked).release()
        self.assertTrue(self.flushLoggedErrors(RuntimeError))
        self.assert_clean()
