"""What wakes a machine (`lswap.net.wake`): packets and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.magic import Destination
from lswap.errors import StartError
from lswap.net.process import Processes
from lswap.net.wake import COMMAND_LIMIT, COMMAND_PAUSE, CommandWaker, PacketWaker
from tests.sleeping import FakeUdp
from tests.stand_in import FakeProcesses

HERE, THERE = Destination("10.0.0.255"), Destination("den", 7)


class WarningsCase(SynchronousTestCase):
    """Notes the warnings."""

    def setUp(self) -> None:
        """From now on."""
        self._events: Sequence[LogEvent] = self.enterContext(capturedLogs())

    @property
    def warnings(self) -> list[str]:
        """So far."""
        return [formatEvent(event) for event in self._events if event["log_level"] == LogLevel.warn]


class PacketTests(WarningsCase):
    """Packets."""

    def setUp(self) -> None:
        """A network."""
        super().setUp()
        self.udp = FakeUdp()

    def test_all_packets_to_all_places(self) -> None:
        """A name is looked up each time; one port serves all, and is closed at the end."""
        waker = PacketWaker(self.udp, [b"one", b"two"], [HERE, THERE])
        waker.wake()
        self.udp.names["den"] = "10.0.0.8"
        waker.wake()
        sent = [(b"one", ("10.0.0.255", 9)), (b"two", ("10.0.0.255", 9))]
        first, second = (("10.0.0.7", 7), ("10.0.0.8", 7))
        self.assertEqual(
            self.udp.sent, [*sent, (b"one", first), (b"two", first), *sent, (b"one", second), (b"two", second)]
        )
        self.assertEqual((self.udp.opened, self.udp.open), (1, 1))
        waker.close()
        waker.close()
        waker.wake()
        self.assertEqual(self.udp.open, 0)

    def test_everywhere(self) -> None:
        """Without a place, all that there are now."""
        places = [HERE]
        waker = PacketWaker(self.udp, [b"x"], everywhere=lambda: places)
        waker.wake()
        places.append(Destination("10.1.0.255"))
        waker.wake()
        self.assertEqual([address[0] for _, address in self.udp.sent], ["10.0.0.255", "10.0.0.255", "10.1.0.255"])

    def test_networks_that_cannot_be_listed(self) -> None:
        """No descriptor may be left: a warning, and the next time it is tried again."""
        problems: list[OSError] = [OSError(24, "Too many open files")]

        def everywhere() -> list[Destination]:
            if problems:
                raise problems.pop()
            return [HERE]

        waker = PacketWaker(self.udp, [b"x"], everywhere=everywhere)
        waker.wake()
        self.assertEqual(len(self.warnings), 1)
        waker.wake()
        self.assertEqual(len(self.udp.sent), 1)

    def test_a_failure_is_told_once(self) -> None:
        """And again after it has worked in between; the other places get theirs."""
        waker = PacketWaker(self.udp, [b"x"], [HERE, THERE])
        self.udp.errors["10.0.0.255"] = OSError(101, "Network is unreachable")
        for _ in range(3):
            waker.wake()
        self.assertEqual(len(self.udp.sent), 3)
        (warning,) = self.warnings
        self.assertIn("10.0.0.255:9", warning)
        self.assertIn("unreachable", warning)
        del self.udp.errors["10.0.0.255"]
        waker.wake()
        self.udp.errors["10.0.0.255"] = OSError(101, "Network is unreachable")
        waker.wake()
        self.assertEqual(len(self.warnings), 2)

    def test_a_name_that_nobody_knows(self) -> None:
        """A warning."""
        PacketWaker(self.udp, [b"x"], [Destination("nowhere")]).wake()
        self.assertEqual(len(self.warnings), 1)

    def test_no_port(self) -> None:
        """No descriptor may be left; the next time it is tried again."""
        waker = PacketWaker(self.udp, [b"x"], [HERE])
        self.udp.listen_error = CannotListenError("", 0, OSError(24, "Too many open files"))
        waker.wake()
        self.assertEqual(len(self.warnings), 1)
        self.udp.listen_error = None
        waker.wake()
        self.assertEqual(len(self.udp.sent), 1)


class CommandTests(WarningsCase):
    """Commands."""

    def setUp(self) -> None:
        """Made-up processes."""
        super().setUp()
        self.clock = Clock()
        self.processes = FakeProcesses(self.clock)
        self.waker = CommandWaker(
            self.clock, cast(Processes, self.processes), ["etherwake", "-i", "eth0"], {"PATH": "/bin"}
        )

    def test_one_at_a_time(self) -> None:
        """However often it is wanted; again when some time has passed since it began, and it has ended."""
        for _ in range(5):
            self.waker.wake()
        (group,) = self.processes.groups
        self.assertEqual((group.words, group.environment), (["etherwake", "-i", "eth0"], {"PATH": "/bin"}))
        group.end(0)
        self.waker.wake()
        self.clock.advance(COMMAND_PAUSE - 0.1)
        self.waker.wake()
        self.assertEqual(len(self.processes.groups), 1)
        self.clock.advance(0.1)
        self.waker.wake()
        self.assertEqual(len(self.processes.groups), 2)
        self.clock.advance(COMMAND_PAUSE)
        self.waker.wake()
        self.assertEqual(len(self.processes.groups), 2)
        self.assertEqual(self.warnings, [])

    def test_a_failure_is_told(self) -> None:
        """With the last words of the command."""
        self.waker.wake()
        self.processes.groups[0].say(b"no such interface\n")
        self.processes.groups[0].end(2)
        self.assertEqual(self.warnings, ["wake command etherwake failed: exit code 2: no such interface"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_it_may_hang(self) -> None:
        """It is ended then, and may be run again."""
        self.waker.wake()
        self.clock.advance(COMMAND_LIMIT)
        self.clock.advance(0)
        self.assertEqual(len(self.processes.groups[0].stops), 1)
        self.assertEqual(self.warnings, ["wake command etherwake failed: killed by signal 15"])
        self.waker.wake()
        self.assertEqual(len(self.processes.groups), 2)

    def test_it_cannot_be_started(self) -> None:
        """A warning; tried again later."""
        self.processes.error = StartError("failed to start command 'etherwake': not found")
        self.waker.wake()
        self.assertEqual(len(self.warnings), 1)
        self.clock.advance(COMMAND_PAUSE)
        self.waker.wake()
        self.assertEqual(len(self.processes.groups), 1)

    def test_the_end(self) -> None:
        """A command that runs is ended; twice is no matter."""
        self.waker.close()
        self.waker.wake()
        self.waker.close()
        self.waker.close()
        self.clock.advance(0)
        self.assertFalse(self.processes.running)
        self.assertEqual(self.clock.getDelayedCalls(), [])
