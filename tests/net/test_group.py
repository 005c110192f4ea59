"""Tests for `lswap.net.group`, with real processes that no test has to wait for longer than they take to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.group import Groups, KernelGroups

#: A leader with one child, which tells the child's pid; the child can be told apart by what it does with SIGTERM.
FAMILY = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""


class KernelGroupsTests(SynchronousTestCase):
    """Who of a group is alive, and who gets its signals."""

    def setUp(self) -> None:
        """Ask the real kernel."""
        self.groups: Groups = KernelGroups()

    def spawn(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start a leader of a group of its own, which is killed after the test."""
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)

        def end() -> None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

        self.addCleanup(end)
        return process

    def family(self) -> tuple[int, int, subprocess.Popen[bytes]]:
        """A leader and its child, which ignores SIGTERM."""
        process = self.spawn(sys.executable, "-S", "-c", FAMILY)
        assert process.stdout is not None
        return process.pid, int(process.stdout.readline()), process

    def test_one(self) -> None:
        """A group of one, alive and then gone."""
        process = self.spawn("sleep", "600")
        self.assertEqual(self.groups.members(process.pid), [process.pid])
        self.assertTrue(self.groups.signal(process.pid, signal.SIGTERM))
        self.assertEqual(process.wait(), -signal.SIGTERM)
        self.assertEqual(self.groups.members(process.pid), [])
        self.assertEqual(self.groups.living(process.pid), [])
        self.assertFalse(self.groups.signal(process.pid, signal.SIGTERM))

    def test_zombie_is_gone(self) -> None:
        """A process that has ended but was not waited for does not count."""
        process = self.spawn("true")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(process.pid, 0)
        self.assertEqual(self.groups.members(process.pid), [])

    def test_descendant_counts(self) -> None:
        """A group lives on in a child whose leader has ended; a signal reaches the whole group."""
        leader, child, process = self.family()
        self.assertEqual(sorted(self.groups.members(leader)), sorted([leader, child]))
        self.groups.signal(leader, signal.SIGTERM)
        process.wait()
        self.assertEqual(self.groups.living(leader), [child])
        self.groups.signal(leader, signal.SIGKILL)
        wait_until(lambda: not self.groups.living(leader))

    def test_name_that_looks_like_fields(self) -> None:
        """A process may call itself what it likes."""
        script = (
            "import ctypes, os, time; ctypes.CDLL(None).prctl(15, b') Z 1 (', 0, 0, 0);"
            "os.write(1, b'named\\n'); time.sleep(600)"
        )
        process = self.spawn(sys.executable, "-S", "-c", script)
        assert process.stdout is not None
        process.stdout.readline()
        self.assertEqual(Path(f"/proc/{process.pid}/comm").read_text(encoding="ascii"), ") Z 1 (\n")
        self.assertEqual(self.groups.members(process.pid), [process.pid])

    @skipUnless(sys.platform == "linux", "the C library's own thread calls")
    def test_first_thread_ended(self) -> None:
        """A process whose first thread has ended shows as a zombie, but lives."""
        script = (
            "import ctypes, os, threading, time\n"
            "def stay():\n"
            "    while 'Z' not in open(f'/proc/{os.getpid()}/stat').read(): time.sleep(0.005)\n"
            "    os.write(1, b'zombie\\n'); time.sleep(600)\n"
            "threading.Thread(target=stay).start()\n"
            "ctypes.CDLL(None).pthread_exit(None)\n"
        )
        process = self.spawn(sys.executable, "-S", "-c", script)
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), b"zombie\n")
        self.assertEqual(self.groups.members(process.pid), [process.pid])

    def test_our_own_orphans_are_reaped(self) -> None:
        """Where orphans become our children, as in a container, they are waited for; others' children are not."""
        script = (
            "import ctypes, os, subprocess, sys, time\n"
            "from lswap.net.group import KernelGroups\n"
            "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # orphans of the family come to us
            "other = subprocess.Popen(['true'])\n"
            "leader = subprocess.Popen(['sh', '-c', 'true & exit 3'], start_new_session=True)\n"
            "assert leader.wait() == 3\n"
            "os.waitid(os.P_PGID, leader.pid, os.WEXITED | os.WNOWAIT)\n"
            "os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)\n"
            "assert KernelGroups().living(leader.pid) == []\n"
            "try: os.killpg(leader.pid, 0)\n"
            "except ProcessLookupError: print('reaped', other.wait())\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
        )
        self.assertEqual((ran.stdout, ran.stderr), ("reaped 0\n", ""))

    def test_numbers_with_another_meaning(self) -> None:
        """No call may ever reach our own group (0) or everybody (1, -1)."""
        calls: list[Callable[[int], Any]] = [
            self.groups.living,
            self.groups.members,
            lambda group: self.groups.signal(group, 0),
        ]
        for call in calls:
            for group in (-1, 0, 1):
                self.assertRaises(ValueError, call, group)

    def test_without_proc(self) -> None:
        """Where there is no /proc, the kernel's word for the whole group has to do."""
        groups = KernelGroups(proc="/nonexistent")
        process = self.spawn("sleep", "600")
        self.assertEqual(groups.members(process.pid), [process.pid])
        process.kill()
        process.wait()
        self.assertEqual(groups.living(process.pid), [])


def wait_until(condition: Callable[[], bool]) -> None:
    """Look until it is so; fails after ten seconds."""
    import time

    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)
