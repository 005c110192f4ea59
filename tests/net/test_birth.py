"""Who a process is (`lswap.net.birth`)."""

from __future__ import annotations

import os
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.birth import birth_of


class BirthTests(SynchronousTestCase):
    """`birth_of`, of real processes."""

    def test_a_process_keeps_its_birth(self) -> None:
        """The same each time, and another for each process."""
        ours = birth_of(os.getpid())
        self.assertIsNotNone(ours)
        self.assertEqual(birth_of(os.getpid()), ours)
        self.assertNotEqual(birth_of(1), ours)

    def test_one_that_is_gone(self) -> None:
        """Neither a zombie nor an unused number has any."""
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        assert process.stdin is not None
        self.assertIsNotNone(birth_of(process.pid))
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertIsNone(birth_of(process.pid))
        process.wait()
        self.assertIsNone(birth_of(process.pid))

    def test_no_process(self) -> None:
        """Numbers that name none."""
        for number in (0, -1, 1 << 40):
            self.assertIsNone(birth_of(number))
