"""What the service manager is told, and when (`lswap.net.supervisor`)."""

from __future__ import annotations

import os
import socket
import time

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from lswap.net.supervisor import BEAT, EXTENSION, Supervisor

EXTEND = f"EXTEND_TIMEOUT_USEC={round(EXTENSION * 1e6)}"


class SupervisorCase(SynchronousTestCase):
    """A manager that keeps what it is told; while it is `full`, it takes nothing."""

    watchdog = 0.0

    def setUp(self) -> None:
        """It wants to hear of us."""
        self.clock = Clock()
        self.heard: list[str] = []
        self.full = False
        self.supervisor = Supervisor(self.clock, self.take, self.watchdog)

    def take(self, data: bytes) -> bool:
        """One datagram."""
        if not self.full:
            self.heard.append(data.decode())
        return not self.full

    def new(self) -> list[str]:
        """What was heard since the last call."""
        heard, self.heard = self.heard, []
        return heard

    def pass_time(self, seconds: float) -> None:
        """In small steps."""
        for _ in range(round(seconds * 8)):
            self.clock.advance(0.125)


class LifeTests(SupervisorCase):
    """From the start to the end, without a watchdog."""

    def test_life(self) -> None:
        """Ready once, nothing to say while all is well, stopping once."""
        self.supervisor.begin()
        self.supervisor.ready()
        self.assertEqual(self.new(), ["READY=1"])
        self.pass_time(100)
        self.assertEqual(self.new(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.supervisor.stopping()
        self.supervisor.stopping()
        self.assertEqual(self.new(), [f"STOPPING=1\n{EXTEND}"])
        self.supervisor.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slow_start(self) -> None:
        """Time is asked for, again and again before the last grant is over."""
        self.supervisor.begin()
        self.supervisor.begin()
        self.pass_time(4 * BEAT + 1)
        self.assertEqual(self.new(), [EXTEND] * 4)
        self.assertLess(BEAT * 2, EXTENSION)

    def test_slow_end(self) -> None:
        """So it is at the end."""
        self.supervisor.ready()
        self.supervisor.stopping()
        self.new()
        self.pass_time(2 * BEAT + 1)
        self.assertEqual(self.new(), [EXTEND] * 2)
        self.supervisor.end()
        self.pass_time(100)
        self.supervisor.status("late")
        self.assertEqual(self.new(), [])

    def test_reload(self) -> None:
        """It begins at a time of the machine's clock, and is over."""
        self.supervisor.ready()
        self.new()
        before = time.monotonic_ns() // 1000
        self.supervisor.reloading()
        (told,) = self.new()
        first, _, at = told.partition("\nMONOTONIC_USEC=")
        self.assertEqual(first, "RELOADING=1")
        self.assertTrue(before <= int(at) <= time.monotonic_ns() // 1000, told)
        self.supervisor.reloaded()
        self.assertEqual(self.new(), ["READY=1"])

    def test_reload_at_the_wrong_time(self) -> None:
        """One before the service is ready does not make it so, and one that ends late does not take the end back."""
        self.supervisor.reloading()
        self.supervisor.reloaded()
        self.assertEqual(self.new(), [])
        self.supervisor.ready()
        self.supervisor.reloading()
        self.supervisor.stopping()
        self.new()
        self.supervisor.reloaded()
        self.supervisor.reloading()
        self.assertEqual(self.new(), [])

    def test_status(self) -> None:
        """One line, told when it changes; nothing in it can pass for another word."""
        self.supervisor.status("ready: a")
        self.supervisor.status("ready: a")
        self.supervisor.status("ready: a\nMAINPID=1\r\0")
        self.assertEqual(self.new(), ["STATUS=ready: a", "STATUS=ready: a MAINPID=1  "])
        self.supervisor.status("ä" * 1000)
        self.assertEqual(self.new(), ["STATUS=" + "ä" * 150])
        self.supervisor.status("\ud800")
        self.assertEqual(len(self.new()), 1)

    def test_manager_that_is_slow(self) -> None:
        """What has no room is sent later, in order; beats do not pile up, and no more than some words wait."""
        self.full = True
        self.supervisor.begin()
        self.supervisor.ready()
        self.pass_time(1)
        self.supervisor.status("one")
        self.full = False
        self.pass_time(0.25)
        self.assertEqual(self.new(), ["READY=1", "STATUS=one"])
        self.full = True
        for number in range(1000):
            self.supervisor.status(str(number))
        self.full = False
        self.pass_time(0.25)
        told = self.new()
        self.assertEqual((len(told), told[-1]), (64, "STATUS=999"))

    def test_end_while_it_is_slow(self) -> None:
        """Nothing is left."""
        self.full = True
        self.supervisor.ready()
        self.supervisor.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class WatchdogTests(SupervisorCase):
    """With a watchdog."""

    watchdog = 2.0

    def test_beats(self) -> None:
        """Twice as often as it wants, from the start to the end."""
        self.supervisor.begin()
        self.pass_time(1)
        self.assertEqual(self.new(), [f"WATCHDOG=1\n{EXTEND}"])
        self.supervisor.ready()
        self.new()
        self.pass_time(10)
        self.assertEqual(self.new(), ["WATCHDOG=1"] * 10)
        self.supervisor.stopping()
        self.new()
        self.pass_time(2)
        self.assertEqual(self.new(), [f"WATCHDOG=1\n{EXTEND}"] * 2)
        self.supervisor.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reactor_that_stands_still(self) -> None:
        """No beat makes up for a time in which nothing moved."""
        self.supervisor.begin()
        self.supervisor.ready()
        self.new()
        self.clock.advance(100)
        self.assertEqual(self.new(), ["WATCHDOG=1"])


class EnvironmentTests(SynchronousTestCase):
    """Who it is, as the environment says."""

    def setUp(self) -> None:
        """A socket that listens."""
        self.clock = Clock()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(5)
        self.addCleanup(self.socket.close)

    def supervisor(self, **environ: str) -> Supervisor:
        """The one of this environment; closed after the test."""
        found = Supervisor.of(environ, self.clock)
        self.assertEqual(environ, {})
        self.addCleanup(found.end)
        return found

    def test_abstract_socket(self) -> None:
        """An `@` stands for the byte 0."""
        self.socket.bind("")
        name = self.socket.getsockname()[1:].decode()
        self.supervisor(NOTIFY_SOCKET=f"@{name}").ready()
        self.assertEqual(self.socket.recv(1000), b"READY=1")

    def test_socket_in_the_file_system(self) -> None:
        """By its path."""
        path = f"/tmp/lswap-test-notify-{os.getpid()}"
        self.socket.bind(path)
        self.addCleanup(os.unlink, path)
        self.supervisor(NOTIFY_SOCKET=path).ready()
        self.assertEqual(self.socket.recv(1000), b"READY=1")

    def test_queue_that_is_full(self) -> None:
        """Does not block, and is tried again."""
        self.socket.bind("")
        supervisor = self.supervisor(NOTIFY_SOCKET="@" + self.socket.getsockname()[1:].decode())
        number = 0
        while not self.clock.getDelayedCalls():
            number += 1
            self.assertLess(number, 100_000)
            supervisor.status(str(number))
        for waiting in range(1, number + 1):
            self.assertEqual(self.socket.recv(1000), f"STATUS={waiting}".encode())
            self.clock.advance(0.1)

    def test_socket_that_is_gone(self) -> None:
        """Is told in the log, once, and is no fault."""
        supervisor = self.supervisor(NOTIFY_SOCKET="/nowhere/notify")
        with capturedLogs() as logged:
            supervisor.ready()
            supervisor.stopping()
        self.assertEqual(len(logged), 1)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_no_manager(self) -> None:
        """Nothing happens without one, or with an address that is none."""
        for environ in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "@"}, {"NOTIFY_SOCKET": "vsock:2:1234"}):
            supervisor = self.supervisor(**environ)
            for step in (supervisor.begin, supervisor.ready, supervisor.reloading, supervisor.stopping):
                step()
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_watchdog(self) -> None:
        """For this process, or for whoever has the variable; not for another process, and not for no time."""
        me, other = str(os.getpid()), str(os.getppid())
        for environ, expected in (
            ({"WATCHDOG_USEC": "3000000"}, 1.5),
            ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": me}, 1.5),
            ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": me}, BEAT),
            ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": other}, None),
            ({"WATCHDOG_USEC": "0"}, None),
            ({"WATCHDOG_USEC": "nonsense"}, None),
            ({}, None),
        ):
            self.socket.close()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.addCleanup(self.socket.close)
            self.socket.bind("")
            clock = self.clock = Clock()
            supervisor = self.supervisor(NOTIFY_SOCKET="@" + self.socket.getsockname()[1:].decode(), **environ)
            supervisor.begin()
            supervisor.ready()
            clock.advance(expected or BEAT)
            self.socket.setblocking(False)
            told = [self.socket.recv(100)]
            if expected:
                told.append(self.socket.recv(100))
            self.assertEqual(told, [b"READY=1", b"WATCHDOG=1"][: 1 + bool(expected)], environ)
            self.assertRaises(BlockingIOError, self.socket.recv, 100)
            supervisor.end()
