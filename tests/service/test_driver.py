"""The driver of a child's machine (`lswap.service.driver`): turns, and work that is overtaken."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.child import Step
from lswap.core.events import State
from lswap.errors import StartError
from lswap.service.driver import Driver, Given

#: Steps that begin work.
WORK = (Step.PREPARE, Step.SPAWN, Step.WARM, Step.SLEEP, Step.WAKE, Step.PART, Step.CLEAR)


class DriverTests(SynchronousTestCase):
    """Inputs, steps and work."""

    def setUp(self) -> None:
        """A driver whose work a test ends, but for the steps that are done at once."""
        self.steps: list[Step] = []
        self.errors: list[str] = []
        self.work: list[Deferred[None]] = []
        self.at_once = {Step.PREPARE, Step.SPAWN, Step.WARM}
        self.when_changed: Callable[[State], object] = lambda before: None
        self.settled = 0
        self.when_cut: Exception = CancelledError()
        self.driver = Driver("a", self.changed, self.carry_out, self.settle)

    def changed(self, before: State) -> None:
        """There is another state."""
        self.when_changed(before)

    def settle(self) -> None:
        """No input is left."""
        self.settled += 1

    def carry_out(self, step: Step, given: Given) -> None:
        """Note a step, and begin its work."""
        self.steps.append(step)
        self.errors.append(str(given.error))
        if step in WORK:
            machine = self.driver.machine
            done = machine.healthy if step is Step.SPAWN else machine.done
            self.driver.begin(self.do(step), done, lambda failure: Given(StartError(failure.getErrorMessage())))

    async def do(self, step: Step) -> None:
        """The work of a step."""
        if step not in self.at_once:
            work: Deferred[None] = Deferred()
            self.work.append(work)
            try:
                await work
            except CancelledError:
                raise self.when_cut from None

    def test_work_that_is_done_at_once(self) -> None:
        """Its end is an input like others; all of a start may happen in one turn."""
        self.driver.tell(self.driver.machine.start)
        self.assertEqual(self.steps, [Step.PREPARE, Step.SPAWN, Step.WARM, Step.READY])
        self.assertEqual((self.driver.state, self.settled, self.driver.waits), (State.READY, 1, False))

    def test_work_that_fails(self) -> None:
        """The failure comes with the input."""
        self.at_once.discard(Step.SPAWN)
        self.driver.tell(self.driver.machine.start)
        self.work[0].errback(StartError("no port"))
        self.assertEqual(self.steps[2:], [Step.FAILED, Step.ABORT])
        self.assertEqual(self.errors[2], "no port")

    def test_work_that_is_overtaken_in_its_own_turn(self) -> None:
        """A stop stands in line before the end of the sleep: that end must not pass for the end of the stop hooks."""
        self.driver.tell(self.driver.machine.start)
        self.at_once = {Step.SLEEP}

        def against(before: State) -> None:
            if self.driver.state is State.SLEEPING:
                self.driver.tell(self.driver.machine.stop)

        self.when_changed = against
        self.driver.tell(self.driver.machine.rest)
        self.assertEqual(self.steps[4:], [Step.SLEEP, Step.PART])
        self.work[0].callback(None)
        self.assertEqual(self.steps[6:], [Step.END])

    def test_work_in_the_place_of_other_work(self) -> None:
        """The other is cancelled, and its end is not heard; an internal fault in it is logged."""
        for problem in (CancelledError(), StartError("x"), ValueError("a bug")):
            self.setUp()
            self.driver.tell(self.driver.machine.start)
            self.driver.tell(self.driver.machine.rest)
            self.when_cut = problem
            self.driver.tell(self.driver.machine.stop)
            self.assertEqual(self.steps[4:], [Step.SLEEP, Step.PART])
            self.assertTrue(self.driver.waits)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_dropped(self) -> None:
        """It is cancelled, and nothing follows."""
        self.driver.tell(self.driver.machine.start)
        self.driver.tell(self.driver.machine.rest)
        self.driver.drop()
        self.driver.drop()
        self.assertEqual((self.driver.waits, self.driver.state), (False, State.SLEEPING))
