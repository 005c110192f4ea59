"""Tests for the stop commands of `lswap.net.process`, with made-up processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from twisted.logger import LogLevel, capturedLogs

from lswap.net.process import DRAIN, POLL, Group
from lswap.testing import FakeProcess
from tests.net.processes import KILL, PROGRAM, TERM, ProcessCase


class StopCommandTests(ProcessCase):
    """A command that asks for the end, in place of a signal."""

    def stop(self, grace: float = 10, environment: Mapping[str, str] | None = None) -> tuple[Group, FakeProcess]:
        """A process that ignores SIGTERM, and the stop command that runs for it."""
        group = self.spawn(environment={"MARK": "its own"})
        self.process.ignores = {TERM}
        group.stop(grace, [PROGRAM, "stop", "it"], environment)
        return group, self.reactor.processes[1]

    def warnings(self, logs: Sequence[Mapping[str, object]]) -> list[str]:
        """The texts of warnings."""
        from twisted.logger import formatEvent

        return [formatEvent(dict(event)) for event in logs if event["log_level"] is LogLevel.warn]

    def test_instead_of_the_signal(self) -> None:
        """The command runs, in a group of its own that the guard knows; no signal is sent."""
        group, command = self.stop()
        self.assertEqual(command.words[-3:], [PROGRAM, "stop", "it"])
        self.assertEqual(self.process.signals, [])
        self.assertEqual(self.told(), f"+{group.pid}\n+{command.number}\n")
        command.exit(0)
        self.process.exit(0)
        self.assertEqual((self.process.signals, self.witness.gone), ([], True))
        self.assertEqual(self.told(), f"-{command.number}\n-{group.pid}\n")
        self.assert_clean()

    def test_environment(self) -> None:
        """It has the environment of the process, unless another one is given."""
        self.assertEqual(self.stop()[1].environment, {"MARK": "its own"})
        self.rebuild()
        self.assertEqual(self.stop(environment={})[1].environment, {})

    def test_output(self) -> None:
        """Its standard output is thrown away; its standard error is not the process's output."""
        _, command = self.stop()
        self.assertEqual(os.fstat(command.descriptors[1]).st_rdev, os.stat(os.devnull).st_rdev)
        command.write_output(b"not of the process", descriptor=2)
        self.reactor.turn()
        self.assertEqual(self.witness.events, [])

    def test_second_stop(self) -> None:
        """A second stop runs no second command."""
        group, _ = self.stop()
        group.stop(5, [PROGRAM, "stop", "it"])
        self.assertEqual((len(self.reactor.processes), self.process.signals), (2, []))

    def test_failure(self) -> None:
        """A failure is a warning with the end of the error output; the grace goes on, no signal is added."""
        _, command = self.stop(grace=3)
        with capturedLogs() as logs:
            command.write_output(b"x" * 5000 + b"\nno such container\n", descriptor=2)
            command.exit(4)
        (text,) = self.warnings(logs)
        self.assertIn(f"stop command {PROGRAM} of process {self.process.number} failed: exit code 4: xx", text)
        self.assertTrue(text.endswith("x\nno such container"))
        self.assertLess(len(text), 2500)
        self.wait(2.9)
        self.assertEqual(self.process.signals, [])
        self.wait(0.2)
        self.assertEqual((self.process.signals, self.witness.gone), ([KILL], True))

    def test_success_is_not_enough(self) -> None:
        """A command that ends well without an effect: SIGKILL when the grace is over, and no warning."""
        _, command = self.stop(grace=3)
        with capturedLogs() as logs:
            command.exit(0)
        self.wait(3.1)
        self.assertEqual((self.process.signals, self.witness.gone, logs), ([KILL], True, []))
        self.assert_clean()

    def test_hanging(self) -> None:
        """A command that hangs is killed with its whole group when the grace is over, and that is a warning."""
        _, command = self.stop(grace=3)
        command.ignores = {TERM}
        command.children = {5002: {TERM}}
        with capturedLogs() as logs:
            self.wait(3.1)
        self.assertEqual((self.process.signals, command.signals, command.children), ([KILL], [KILL], {}))
        self.assertTrue(self.witness.gone)
        self.assertIn("still running", self.warnings(logs)[0])
        self.assert_clean()

    def test_command_may_finish(self) -> None:
        """A command whose process is gone may do what is left (remove a container); the end waits for it."""
        _, command = self.stop()
        self.process.exit(0)
        self.wait(DRAIN - 0.1)
        self.assertEqual((command.signals, self.witness.gone), ([], False))
        command.exit(0)
        self.assertEqual((command.signals, self.witness.gone), ([], True))
        self.assert_clean()

    def test_command_that_does_not_finish(self) -> None:
        """It has only the drain for that, however long the grace was."""
        _, command = self.stop(grace=60)
        self.process.exit(0)
        self.wait(DRAIN + 0.1)
        self.assertEqual((command.signals, self.witness.gone), ([KILL], True))
        self.assert_clean()

    def test_command_has_no_more_than_the_grace(self) -> None:
        """And no more than what is left of the grace."""
        _, command = self.stop(grace=3)
        self.wait(2.5)
        self.process.exit(0)
        self.wait(0.4)
        self.assertFalse(self.witness.gone)
        self.wait(0.2)
        self.assertEqual((command.signals, self.witness.gone), ([KILL], True))

    def test_children_after_a_command(self) -> None:
        """Children that the command did not reach get SIGTERM when their leader is gone."""
        _, command = self.stop()
        self.process.children = {5001: set()}
        command.exit(0)
        self.process.exit(0)
        self.assertEqual((self.process.signals, self.process.children), ([TERM], {}))
        self.wait(2 * POLL)
        self.assertTrue(self.witness.gone)

    def test_cannot_be_started(self) -> None:
        """A command that cannot be started is a warning, and SIGTERM takes its place."""
        group = self.spawn()
        with capturedLogs() as logs:
            group.stop(10, ["/nonexistent/stopper", "x"])
        self.assertEqual(self.process.signals, [TERM])
        self.assertIn("failed to start command '/nonexistent/stopper x'", self.warnings(logs)[0])
        self.reactor.turn()
        self.assertTrue(self.witness.gone)
        self.assert_clean()

    def test_kill_ends_the_command(self) -> None:
        """`kill` ends both."""
        group, command = self.stop()
        group.kill()
        self.reactor.turn()
        self.assertEqual((self.process.signals, command.signals, self.witness.gone), ([KILL], [KILL], True))
        self.assert_clean()
