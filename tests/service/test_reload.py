"""One reload at a time, the newest content wins (`lswap.service.reload`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Loaded, Problem
from lswap.core.difference import Difference
from lswap.core.model import Config
from lswap.service.reload import Outcome, Reloader
from tests.memory import config_of

NOTHING = Difference((), (), (), ())
BROKEN = Loaded(None, (Problem("config.yaml", 3, 5, "models", "no", ""),))


class Threads:
    """A thread pool whose work is done when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def callInThreadWithCallback(self, on_result: Any, function: Any) -> None:
        """For `deferToThreadPool`."""

        def run() -> None:
            try:
                result = function()
            except Exception as problem:
                on_result(False, Failure(problem))
            else:
                on_result(True, result)

        self.work.append(run)

    def do(self) -> None:
        """The oldest piece of work."""
        self.work.pop(0)()


class ThreadClock(Clock):
    """A clock with such a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = Threads()

    def getThreadPool(self) -> Threads:
        """For `deferToThreadPool`."""
        return self.threads

    def callFromThread(self, function: Any, *args: Any) -> None:
        """For `deferToThreadPool`."""
        function(*args)


class ReloaderTests(SynchronousTestCase):
    """What is loaded, when, and who is told."""

    def setUp(self) -> None:
        """A configuration that a reload finds, and a reloader."""
        self.clock = ThreadClock()
        self.good = config_of("models: {}")
        self.found: Loaded | Exception = self.good
        self.loads = 0
        self.taken: list[Config] = []
        self.made: Difference | Exception = Difference(("a",), (), (), ("b",))
        self.told: list[Outcome | None] = []
        self.reloader = Reloader(self.clock, self._load, self._take_over, self.told.append)

    def _load(self) -> Loaded:
        self.loads += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def _take_over(self, config: Config) -> Difference:
        self.taken.append(config)
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def outcome(self, waiter: Deferred[Outcome]) -> Outcome:
        """What it was told."""
        return self.successResultOf(waiter)

    def test_takes_over(self) -> None:
        """Reads in a thread, takes over in the reactor's, tells the difference."""
        waiter = self.reloader.reload()
        self.assertNoResult(waiter)
        self.assertEqual(self.loads, 0)
        self.clock.threads.do()
        self.assertEqual(self.outcome(waiter), Outcome(Difference(("a",), (), (), ("b",))))
        self.assertEqual(self.taken, [self.good.config])

    def test_is_told(self) -> None:
        """Its begin, and its outcome before those who wait hear of it; each reload by itself, failures too."""
        outcomes = []
        waiter = self.reloader.reload()
        self.assertEqual(self.told, [None])
        waiter.addCallback(lambda outcome: outcomes.append((outcome, list(self.told))))
        self.reloader.reload()
        self.found = BROKEN
        self.clock.threads.do()
        self.assertEqual(outcomes, [(Outcome(None, BROKEN.problems), [None, Outcome(None, BROKEN.problems)])])
        self.found = ZeroDivisionError()
        self.clock.threads.do()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIsNone(self.told[2])
        assert self.told[3] is not None
        self.assertEqual(len(self.told[3].problems), 1)

    def test_problems(self) -> None:
        """What is wrong is told, and nothing is taken over."""
        self.found = BROKEN
        waiter = self.reloader.reload()
        self.clock.threads.do()
        self.assertEqual(self.outcome(waiter), Outcome(None, BROKEN.problems))
        self.assertEqual((self.taken, self.clock.getDelayedCalls()), ([], []))

    def test_once_more(self) -> None:
        """Whoever comes during a reload gets the one after it, all together; it reads what there is then."""
        first = self.reloader.reload()
        second, third = self.reloader.reload(), self.reloader.reload()
        self.clock.threads.do()
        self.outcome(first)
        self.assertNoResult(second)
        self.found = BROKEN
        self.clock.threads.do()
        self.assertEqual(self.outcome(second), Outcome(None, BROKEN.problems))
        self.assertEqual(self.outcome(third), Outcome(None, BROKEN.problems))
        self.assertEqual((self.loads, self.clock.threads.work), (2, []))

    def test_in_the_turn_of_the_answer(self) -> None:
        """A reload that is asked for in the turn of another's end is one of its own."""
        again: list[Deferred[Outcome]] = []
        self.reloader.reload().addCallback(lambda _: again.append(self.reloader.reload()))
        self.clock.threads.do()
        self.clock.threads.do()
        self.outcome(again[0])
        self.assertEqual(self.loads, 2)

    def test_half_written(self) -> None:
        """A patient reload looks again after a second before it tells of a problem."""
        self.found = BROKEN
        waiter = self.reloader.reload(patient=True)
        self.clock.threads.do()
        self.clock.advance(0.9)
        self.assertEqual(self.clock.threads.work, [])
        self.found = self.good
        self.clock.advance(0.2)
        self.clock.threads.do()
        self.assertIsNotNone(self.outcome(waiter).difference)
        self.assertEqual(self.loads, 2)

    def test_broken_for_good(self) -> None:
        """It looks twice, no more."""
        self.found = BROKEN
        waiter = self.reloader.reload(patient=True)
        self.clock.threads.do()
        self.clock.advance(1)
        self.clock.threads.do()
        self.assertEqual(self.outcome(waiter).problems, BROKEN.problems)
        self.assertEqual((self.loads, self.clock.threads.work), (2, []))

    def test_impatient_company(self) -> None:
        """Where one of those who share a reload wants its answer at once, all get it at once."""
        self.reloader.reload()
        patient, impatient = self.reloader.reload(patient=True), self.reloader.reload()
        self.clock.threads.do()
        self.found = BROKEN
        self.clock.threads.do()
        self.assertEqual(self.outcome(patient), self.outcome(impatient))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_internal_errors(self) -> None:
        """A fault of ours in either half is told, logged, and does not stick."""
        for half in ("load", "take over"):
            self.found = RuntimeError("boom") if half == "load" else self.good
            self.made = RuntimeError("boom") if half == "take over" else NOTHING
            waiter = self.reloader.reload()
            self.clock.threads.do()
            self.assertIn("boom", self.outcome(waiter).problems[0].message)
            self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.made = NOTHING
        waiter = self.reloader.reload()
        self.clock.threads.do()
        self.assertEqual(self.outcome(waiter), Outcome(NOTHING))

    def test_waiter_leaves(self) -> None:
        """One that is cancelled costs the others nothing."""
        leaver, other = self.reloader.reload(), self.reloader.reload()
        leaver.addErrback(lambda _: None)
        leaver.cancel()
        self.clock.threads.do()
        self.clock.threads.do()
        self.outcome(other)

    def test_stop_during_a_reload(self) -> None:
        """At the end of lswap nothing is taken over, and nobody waits for it in vain."""
        waiters = [self.reloader.reload(), self.reloader.reload()]
        self.reloader.stop()
        self.clock.threads.do()
        waiters.append(self.reloader.reload())
        for waiter in waiters:
            self.assertIn("shutting down", self.outcome(waiter).problems[0].message)
        self.assertEqual((self.taken, self.loads, self.clock.threads.work), ([], 1, []))

    def test_stop_between_two_looks(self) -> None:
        """Nor is there a problem to report then."""
        self.found = BROKEN
        waiter = self.reloader.reload(patient=True)
        self.clock.threads.do()
        self.reloader.stop()
        self.clock.advance(1)
        self.clock.threads.do()
        self.assertIn("shutting down", self.outcome(waiter).problems[0].message)
