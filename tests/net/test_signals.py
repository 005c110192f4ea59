"""Signals become calls in the reactor's thread (`lswap.net.signals`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from lswap.net import signals


class FakeReactor:
    """Keeps what it is asked to call."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.at_start: list[Callable[[], object]] = []

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """Keep the call for `turn`."""
        self.soon.append(lambda: callable(*args))

    def callWhenRunning(self, callable: Callable[..., object], *args: object) -> None:
        """Keep the call for `start`."""
        self.at_start.append(lambda: callable(*args))

    def turn(self) -> None:
        """One turn of the loop."""
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def start(self) -> None:
        """Begin to run, with signal handlers of its own, as Twisted's reactors do."""
        signal.signal(signal.SIGTERM, lambda *_: self.soon.append(lambda: None))
        for call in self.at_start:
            call()


class SignalTests(SynchronousTestCase):
    """The handlers, with real signals sent to this very process."""

    def setUp(self) -> None:
        """Install the handlers around a fake reactor."""
        self.reactor = FakeReactor()
        self.calls: list[str] = []
        self.before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
        self.remove = signals.install(
            self.reactor,
            lambda: self.calls.append("stop"),
            lambda: self.calls.append("again"),
            lambda: self.calls.append("hangup"),
        )
        self.addCleanup(self.remove)

    def send(self, number: signal.Signals) -> None:
        """Send the signal and let its handler run."""
        os.kill(os.getpid(), number)

    def test_nothing_runs_inside_the_handler(self) -> None:
        """The call waits for the reactor's next turn."""
        self.send(signal.SIGTERM)
        self.assertEqual(self.calls, [])
        self.reactor.turn()
        self.assertEqual(self.calls, ["stop"])

    def test_first_stop_is_polite_and_later_ones_are_not(self) -> None:
        """SIGTERM and SIGINT count together."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            self.send(number)
            self.reactor.turn()
        self.assertEqual(self.calls, ["stop", "again", "again"])

    def test_two_in_one_turn(self) -> None:
        """Two signals that are seen in one turn are still a first and a second."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGINT)
        self.reactor.turn()
        self.assertEqual(self.calls, ["stop", "again"])

    def test_hangup_is_no_stop(self) -> None:
        """SIGHUP calls its own, each time, and does not count as a wish to stop."""
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            self.send(number)
        self.reactor.turn()
        self.assertEqual(self.calls, ["hangup", "hangup", "stop", "hangup"])

    def test_handlers_win_over_those_of_the_reactor(self) -> None:
        """A reactor that sets its own handlers at its start is overruled."""
        self.reactor.start()
        self.send(signal.SIGTERM)
        self.reactor.turn()
        self.assertEqual(self.calls, ["stop"])

    def test_remove_puts_back_what_was_there(self) -> None:
        """After `remove`, also when the reactor starts only then, the former handlers are in force."""
        self.remove()
        for call in self.reactor.at_start:
            call()
        self.assertEqual([signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)], self.before)

    def test_interrupt_of_its_own(self) -> None:
        """Where SIGINT means something else it calls its own, as a first wish only; a second wish is a second one."""
        for first, second, told in (
            (signal.SIGINT, signal.SIGINT, ["interrupt", "again"]),
            (signal.SIGTERM, signal.SIGINT, ["stop", "again"]),
            (signal.SIGINT, signal.SIGTERM, ["interrupt", "again"]),
        ):
            self.remove()
            self.calls.clear()
            self.remove = signals.install(
                self.reactor,
                lambda: self.calls.append("stop"),
                lambda: self.calls.append("again"),
                lambda: self.calls.append("hangup"),
                lambda: self.calls.append("interrupt"),
            )
            for number in (first, second):
                self.send(number)
                self.reactor.turn()
            self.assertEqual(self.calls, told)
        self.remove()
