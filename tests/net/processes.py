"""What the tests of `lswap.net.process` share: a made-up machine, and a listener that keeps everything."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.guard import Guard
from lswap.net.launcher import Launcher
from lswap.net.process import POLL, Exit, Group, Processes
from lswap.testing import FakeGroups, FakeProcess, FakeReactor

__all__ = ["KILL", "PROGRAM", "TERM", "ProcessCase", "Witness"]

KILL, TERM = signal.SIGKILL, signal.SIGTERM

#: A program that is on every machine where the tests run.
PROGRAM = sys.executable


class Witness:
    """A listener that keeps what it is told, and does what a test wants at the exit."""

    def __init__(self) -> None:
        self.events: list[bytes | Exit | str] = []
        self.at_exit: Callable[[], object] = lambda: None
        self.at_output: Callable[[], object] = lambda: None

    @property
    def exits(self) -> list[Exit]:
        """How often, and how, the leader was said to have ended."""
        return [event for event in self.events if isinstance(event, Exit)]

    @property
    def gone(self) -> bool:
        """Whether the end of everything was told."""
        return "gone" in self.events

    def process_output(self, data: bytes) -> None:
        """Note it."""
        self.events.append(data)
        self.at_output()

    def process_exited(self, exit: Exit) -> None:
        """Note it."""
        self.events.append(exit)
        self.at_exit()

    def process_gone(self) -> None:
        """Note it."""
        self.events.append("gone")


class ProcessCase(SynchronousTestCase):
    """A made-up machine and one process on it."""

    def setUp(self) -> None:
        """Build the machine."""
        self.build()

    def tearDown(self) -> None:
        """Close what the machine still holds."""
        self.guard.stop()
        self.watch.close_output()
        self.reactor.forget()

    def rebuild(self) -> None:
        """Have a new machine, in the middle of a test."""
        self.tearDown()
        self.build()

    def build(self) -> None:
        """Start with a machine where nothing runs but the guard."""
        self.reactor = FakeReactor()
        self.launcher = Launcher(["/usr/bin/setsid"], ["/usr/bin/setpriv", "--pdeathsig", "TERM", "--"])
        self.guard = Guard(self.reactor, self.launcher)
        self.guard.start()
        self.watch = self.reactor.processes.pop()
        self.groups = FakeGroups(self.reactor)
        self.processes = Processes(self.reactor, self.guard, self.groups, self.launcher)
        self.witness = Witness()

    def spawn(self, *words: str, environment: Mapping[str, str] | None = None) -> Group:
        """Spawn something."""
        return self.processes.spawn([PROGRAM, *words], environment or {"A": "b"}, self.witness)

    @property
    def process(self) -> FakeProcess:
        """The process that was spawned first."""
        return self.reactor.processes[0]

    def told(self) -> str:
        """What the guard was told since the last time."""
        os.set_blocking(self.watch.descriptors[0], False)
        try:
            return os.read(self.watch.descriptors[0], 65536).decode()
        except BlockingIOError:
            return ""

    def wait(self, seconds: float) -> None:
        """Let time pass in steps that are short enough for every timer in between."""
        self.reactor.pump([POLL / 4] * round(seconds / (POLL / 4)))
        self.reactor.turn()

    def assert_clean(self) -> None:
        """Nothing is watched or waited for any more."""
        self.assertEqual((self.reactor.getReaders(), self.reactor.getDelayedCalls()), ([], []))
