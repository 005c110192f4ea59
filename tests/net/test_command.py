"""A command that does one thing (`lswap.net.command`), on a made-up machine."""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from lswap.errors import StartError
from lswap.net.command import GRACE, Command
from tests.net.processes import KILL, PROGRAM, TERM, ProcessCase


class CommandTests(ProcessCase):
    """From its start to the end of its group."""

    def setUp(self) -> None:
        """Nothing runs."""
        super().setUp()
        self.said: list[bytes] = []
        self.gone: list[Command] = []

    def run_it(self) -> Command:
        """Start one."""
        return Command(self.processes, [PROGRAM, "x"], {"A": "b"}, self.said.append, self.gone.append)

    def test_ends(self) -> None:
        """Its exit is told, then that nothing is left."""
        command = self.run_it()
        self.process.write_output(b"hello")
        self.reactor.turn()
        self.process.exit(3)
        self.assertEqual(self.successResultOf(command.over).code, 3)
        self.wait(1)
        self.assertEqual((self.said, self.gone), ([b"hello"], [command]))
        self.assert_clean()

    def test_leaves_a_child_behind(self) -> None:
        """The program has ended, so it is over; the child is ended after that."""
        command = self.run_it()
        self.process.children[99] = set()
        self.process.exit(0)
        self.assertEqual(self.successResultOf(command.over).code, 0)
        self.assertEqual(self.gone, [])
        self.wait(1)
        self.assertEqual(self.gone, [command])

    def test_cancelled(self) -> None:
        """TERM, two seconds, KILL; the exit is told to nobody."""
        command = self.run_it()
        self.process.ignores = {TERM}
        command.over.cancel()
        self.failureResultOf(command.over, CancelledError)
        self.wait(GRACE - 0.1)
        self.assertEqual(self.process.signals, [TERM])
        self.wait(0.2)
        self.assertEqual(self.process.signals, [TERM, KILL])
        self.wait(1)
        self.assertEqual(self.gone, [command])

    def test_killed(self) -> None:
        """At once."""
        command = self.run_it()
        command.kill()
        self.assertEqual(self.process.signals, [KILL])
        self.wait(1)
        self.assertEqual(self.successResultOf(command.over).signal, KILL)

    def test_cannot_be_started(self) -> None:
        """That is told at once."""
        with self.assertRaises(StartError):
            Command(self.processes, ["/nowhere/at-all"], {}, self.said.append, self.gone.append)
