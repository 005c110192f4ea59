"""The script that adds up the counts of all test commands (`tests/totals.py`)."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests import totals
from tests.totals import Counts, count


class CountTests(SynchronousTestCase):
    """Closing lines."""

    def test_trial(self) -> None:
        """Trial's closing line, in all its forms."""
        self.assertEqual(count(["PASSED (successes=7)"]), Counts(7, 0, 0))
        self.assertEqual(count(["PASSED (skips=2, successes=7)"]), Counts(7, 0, 2))
        self.assertEqual(count(["FAILED (skips=1, failures=1, errors=6, successes=38)\n"]), Counts(38, 7, 1))
        self.assertEqual(count(["PASSED (expectedFailures=1, successes=2)"]), Counts(3, 0, 0))
        self.assertEqual(count(["FAILED (unexpectedSuccesses=1, successes=2)"]), Counts(2, 1, 0))
        self.assertEqual(count(["PASSED"]), Counts(0, 0, 0))

    def test_conformance(self) -> None:
        """The last of several closing lines counts, as it has the sum of the others."""
        lines = [
            "3 passed, 0 failed, 1 skipped",
            "....",
            "4 passed, 2 failed, 0 skipped",
            "7 passed, 2 failed, 1 skipped",
        ]
        self.assertEqual(count(lines), Counts(7, 2, 1))
        self.assertEqual(count(["5 passed, 0 failed"]), Counts(5, 0, 0))

    def test_others(self) -> None:
        """Lines that only look alike do not count."""
        self.assertIsNone(count(["", "the 3 passed, 0 failed", "PASSED the ball", "x PASSED (successes=7)"]))

    def test_text(self) -> None:
        """The closing line of the whole."""
        self.assertEqual(str(Counts(3, 1)), "3 passed, 1 failed")
        self.assertEqual(str(Counts(3, 0).plus(Counts(1, 2, 4))), "4 passed, 2 failed, 4 skipped")


class MainTests(SynchronousTestCase):
    """The whole script, with small commands."""

    def run_them(self, *commands: str) -> tuple[int, list[str]]:
        """Exit code and lines of a run in a process of its own."""
        done = subprocess.run([sys.executable, totals.__file__, *commands], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_sum(self) -> None:
        """What the commands print is shown, and the last line has the sum."""
        code, lines = self.run_them("echo 'PASSED (successes=7)'", "echo '2 passed, 0 failed, 1 skipped'")
        self.assertEqual((code, lines[-1]), (0, "9 passed, 0 failed, 1 skipped"))
        self.assertIn("PASSED (successes=7)", lines)

    def test_failures_do_not_stop_the_rest(self) -> None:
        """A command that failed makes the whole fail, after all others ran."""
        code, lines = self.run_them("echo 'FAILED (failures=1, successes=2)'; exit 1", "echo '4 passed, 0 failed'")
        self.assertEqual((code, lines[-1]), (1, "6 passed, 1 failed"))

    def test_broken_command(self) -> None:
        """A command that ends badly, or without counts, counts as a failure."""
        for command in ("echo '4 passed, 0 failed'; exit 3", "true", "false"):
            code, lines = self.run_them("echo '4 passed, 0 failed'", command)
            self.assertEqual(code, 1, command)
            self.assertRegex(lines[-1], r"passed, 1 failed$")

    def test_no_test_at_all(self) -> None:
        """Where nothing was tested, nothing is well."""
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            self.assertEqual(totals.main([]), 1)
