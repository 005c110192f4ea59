"""The journal of a systemd unit (`lswap.vllm.journal`)."""

from __future__ import annotations

from typing import cast

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import StartError
from lswap.net.process import Processes
from lswap.testing import FakeReactor
from lswap.vllm.journal import Journal
from tests.stand_in import FakeProcesses


class JournalTests(SynchronousTestCase):
    """One unit."""

    def setUp(self) -> None:
        """Made-up processes."""
        self.reactor = FakeReactor()
        self.addCleanup(self.reactor.forget)
        self.processes = FakeProcesses(self.reactor)
        self.said = b""

    def journal(self, unit: str = "vllm.service") -> Journal:
        """Its journal."""

        def hear(data: bytes) -> None:
            self.said += data

        return Journal(self.reactor, unit, hear, cast(Processes, self.processes))

    def test_copied(self) -> None:
        """Its new lines; it ends with the wrapper, and so does the guard."""
        journal = self.journal()
        journal.start({"A": "1"})
        (group,) = self.processes.groups
        words = ["--user-unit=vllm.service", "--follow", "--lines=0", "--output=cat", "--no-pager"]
        self.assertEqual((group.words, group.environment), (["journalctl", *words], {"A": "1"}))
        group.say(b"a line\n")
        self.assertEqual(self.said, b"a line\n")
        ended = journal.end()
        self.assertNoResult(ended)
        self.reactor.advance(0)
        self.successResultOf(ended)
        self.assertFalse(self.processes.running)

    def test_no_unit(self) -> None:
        """Nothing is started."""
        journal = self.journal("")
        journal.start({})
        self.assertEqual((self.processes.groups, self.reactor.processes), ([], []))
        self.successResultOf(journal.end())

    def test_no_journalctl(self) -> None:
        """A warning."""
        self.processes.error = StartError("failed to start command 'journalctl': not found")
        journal = self.journal()
        with capturedLogs() as logs:
            journal.start({})
        self.assertEqual([event["log_format"] for event in logs], ["no journal: {problem}"])
        self.successResultOf(journal.end())

    def test_it_ends_by_itself(self) -> None:
        """A warning, and nothing to end later."""
        journal = self.journal()
        journal.start({})
        with capturedLogs() as logs:
            self.processes.groups[0].end(1)
        self.assertEqual([event["log_format"] for event in logs], ["journalctl has ended: {words}"])
        self.successResultOf(journal.end())
