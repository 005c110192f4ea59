"""Tests for `lswap.net.guard` with a made-up process; what its script does is in `tests.integration`."""

from __future__ import annotations

import errno
import os
import signal

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from lswap.net.guard import SCRIPT, Guard
from lswap.net.launcher import Launcher
from lswap.testing import FakeProcess, FakeReactor


class GuardTests(SynchronousTestCase):
    """The guard is informed of every group, whatever happens to it."""

    def setUp(self) -> None:
        """Have a guard that was not started yet."""
        self.reactor = FakeReactor()
        self.addCleanup(self.reactor.forget)
        self.guard = Guard(self.reactor, Launcher(["/usr/bin/setsid"], ["/usr/bin/setpriv"]))
        self.addCleanup(self.guard.stop)

    def process(self) -> FakeProcess:
        """The newest guard process."""
        return self.reactor.processes[-1]

    def told(self) -> str:
        """What the newest guard was told since the last time."""
        os.set_blocking(self.process().descriptors[0], False)
        try:
            return os.read(self.process().descriptors[0], 65536).decode()
        except BlockingIOError:
            return ""

    def pipe_is_closed(self) -> bool:
        """Whether the newest guard sees the end of its input."""
        try:
            return os.read(self.process().descriptors[0], 1) == b""
        except BlockingIOError:
            return False

    def test_spawned(self) -> None:
        """It is a shell in a session of its own that outlives us, with its input and the null device open, no more."""
        self.guard.start()
        process = self.process()
        self.assertEqual(process.words, ["/usr/bin/setsid", "/bin/sh", "-c", SCRIPT, "lswap-guard"])
        self.assertEqual(sorted(process.descriptors), [0, 1, 2])
        null = os.stat(os.devnull).st_rdev
        self.assertEqual([os.fstat(process.descriptors[number]).st_rdev for number in (1, 2)], [null, null])
        self.assertEqual(set(process.environment), {"PATH"})

    def test_not_before_start(self) -> None:
        """Nothing runs before `start`, and a second `start` starts no second one."""
        self.assertEqual(self.reactor.processes, [])
        self.guard.start()
        self.guard.start()
        self.assertEqual(len(self.reactor.processes), 1)

    def test_told_at_once(self) -> None:
        """Each beginning and end is in the pipe when the call returns."""
        self.guard.start()
        self.guard.began(1234)
        self.assertEqual(self.told(), "+1234\n")
        self.guard.began(99)
        self.guard.ended(1234)
        self.assertEqual(self.told(), "+99\n-1234\n")

    def test_unknown_end(self) -> None:
        """The end of a group that is not known is not told."""
        self.guard.start()
        self.guard.ended(5)
        self.guard.began(7)
        self.guard.ended(7)
        self.guard.ended(7)
        self.assertEqual(self.told(), "+7\n-7\n")

    def test_groups_before_start(self) -> None:
        """A guard that starts late is told of the groups that live by then."""
        self.guard.began(10)
        self.guard.began(11)
        self.guard.ended(10)
        self.guard.start()
        self.assertEqual(self.told(), "+11\n")

    def test_numbers_with_another_meaning(self) -> None:
        """The guard is never told a number that means everybody, or its own group."""
        self.guard.start()
        for group in (-1, 0, 1):
            self.assertRaises(ValueError, self.guard.began, group)
        self.assertEqual(self.told(), "")

    def test_farewell(self) -> None:
        """It is dismissed when no group is left."""
        self.guard.start()
        self.guard.began(10)
        self.guard.ended(10)
        self.guard.stop()
        self.assertEqual(self.told(), "+10\n-10\nbye\n")
        self.assertTrue(self.pipe_is_closed())

    def test_no_farewell_with_groups(self) -> None:
        """At a stop with groups that still live, the guard does its work."""
        self.guard.start()
        self.guard.began(10)
        self.guard.stop()
        self.assertEqual(self.told(), "+10\n")
        self.assertTrue(self.pipe_is_closed())

    def test_end_after_farewell(self) -> None:
        """A guard that was dismissed ends without a word and without a successor."""
        self.guard.start()
        self.guard.stop()
        with capturedLogs() as logs:
            self.process().exit(0)
        self.reactor.advance(10)
        self.assertEqual((logs, len(self.reactor.processes), self.reactor.getDelayedCalls()), ([], 1, []))

    def test_start_again(self) -> None:
        """After a stop it can be started again, even before the old one has ended."""
        self.guard.start()
        old = self.process()
        self.guard.stop()
        self.guard.start()
        self.assertEqual(len(self.reactor.processes), 2)
        old.exit(0)
        self.guard.began(3)
        self.assertEqual(self.told(), "+3\n")
        self.reactor.advance(5)
        self.assertEqual(len(self.reactor.processes), 2)

    def test_killed_guard(self) -> None:
        """A guard that ends unasked is replaced at once, with a warning, and the new one knows all groups."""
        self.guard.start()
        self.guard.began(10)
        self.guard.began(11)
        self.guard.ended(10)
        self.reactor.advance(60)
        with capturedLogs() as logs:
            self.process().exit(None, signal.SIGKILL)
        self.assertEqual([event["log_level"] for event in logs], [LogLevel.warn])
        self.guard.began(12)
        self.reactor.advance(0)
        self.assertEqual(len(self.reactor.processes), 2)
        self.assertEqual(self.told(), "+11\n+12\n")

    def test_killed_again_and_again(self) -> None:
        """Guards that die early are replaced once a second, not faster."""
        self.guard.start()
        for count in range(1, 4):
            self.process().exit(None, signal.SIGKILL)
            self.reactor.advance(0.99)
            self.assertEqual(len(self.reactor.processes), count)
            self.reactor.advance(0.02)
            self.assertEqual(len(self.reactor.processes), count + 1)

    def test_stop_while_being_replaced(self) -> None:
        """No successor comes after a stop."""
        self.guard.start()
        self.process().exit(1)
        self.guard.stop()
        self.reactor.advance(5)
        self.assertEqual(len(self.reactor.processes), 1)

    def test_gone_but_not_noticed(self) -> None:
        """Telling a guard that is gone does no harm, and the successor is told all the same."""
        self.guard.start()
        self.process().close_output()
        self.guard.began(10)
        self.process().exit(1)
        self.reactor.advance(1)
        self.assertEqual(self.told(), "+10\n")

    def test_guard_that_does_not_read(self) -> None:
        """One that has stopped reading is killed and replaced; we never wait for it."""
        self.guard.start()
        for group in range(2, 9_000):
            self.guard.began(group)
            self.guard.ended(group)
        self.assertEqual(self.process().signals, [signal.SIGKILL])
        self.guard.began(30_000)
        self.reactor.pump([0, 1, 0])
        self.assertEqual(len(self.reactor.processes), 2)
        self.assertEqual(self.told(), "+30000\n")

    def test_cannot_be_started(self) -> None:
        """When it cannot be started, that is an error in the log, and it is tried again."""
        self.guard.began(10)
        self.reactor.spawn_error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        with capturedLogs() as logs:
            self.guard.start()
        self.assertEqual([event["log_level"] for event in logs], [LogLevel.error])
        self.assertEqual(self.reactor.processes, [])
        self.reactor.advance(1)
        self.assertEqual(self.told(), "+10\n")

    def test_no_descriptor_is_left(self) -> None:
        """Neither a start, nor a failed one, nor an end leaves a descriptor behind."""
        before = os.listdir("/proc/self/fd")
        self.reactor.spawn_error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.guard.start()
        self.assertEqual(os.listdir("/proc/self/fd"), before)
        self.reactor.advance(1)
        self.process().exit(1)
        self.assertEqual(os.listdir("/proc/self/fd"), before)
        self.reactor.advance(1)
        self.guard.stop()
        self.process().close_output()
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_our_end_is_closed_in_others(self) -> None:
        """No program that is started later inherits our end of the pipe."""
        before = set(os.listdir("/proc/self/fd"))
        self.guard.start()
        ours = set(os.listdir("/proc/self/fd")) - before
        ours -= {str(descriptor) for descriptor in self.process().descriptors.values()}
        inherited = [name for name in ours if os.path.exists(f"/proc/self/fd/{name}") and os.get_inheritable(int(name))]
        self.assertEqual((len(ours), inherited), (1, []))

    def test_exit_inside_the_start(self) -> None:
        """A guard that has ended before its start returned is replaced too."""
        self.reactor.exits_at_once = True
        self.guard.start()
        self.reactor.exits_at_once = False
        self.guard.began(10)
        self.reactor.advance(1)
        self.assertEqual(self.told(), "+10\n")
