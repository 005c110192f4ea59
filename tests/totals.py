"""Runs test commands one after the other, shows what they print, and ends with one line that adds up their counts.

    python tests/totals.py 'COMMAND' 'COMMAND' ...

Each command runs in a shell, also when one before it failed. The exit code is 0 if every command ended with 0 and at
least one test passed. Knows the closing lines of trial and of the conformance cases. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Counts", "count", "main"]

_TRIAL = re.compile(r"^(?:PASSED|FAILED)(?: \((?P<parts>.*)\))?$")
_PLAIN = re.compile(r"^(?P<passed>\d+) passed, (?P<failed>\d+) failed(?:, (?P<skipped>\d+) skipped)?$")
#: Trial's words; an expected failure is a success, a success that was not expected is none.
_WORDS = {"successes": "passed", "expectedFailures": "passed", "skips": "skipped"}


class Counts(NamedTuple):
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        """The plain closing line."""
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def count(lines: Iterable[str]) -> Counts | None:
    """The counts of the last closing line among these; None without one. (Parts of a parallel run print their own.)"""
    found = None
    for line in lines:
        text = line.strip()
        if trial := _TRIAL.match(text):
            sums = {"passed": 0, "failed": 0, "skipped": 0}
            for part in (trial["parts"] or "").split(", "):
                word, _, number = part.partition("=")
                if number.isdigit():
                    sums[_WORDS.get(word, "failed")] += int(number)
            found = Counts(**sums)
        elif plain := _PLAIN.match(text):
            found = Counts(int(plain["passed"]), int(plain["failed"]), int(plain["skipped"] or 0))
    return found


def main(commands: Sequence[str]) -> int:
    """Run the commands; the exit code."""
    total, good = Counts(), True
    for command in commands:
        print(f"+ {command}", flush=True)
        kept: list[str] = []
        with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            for data in process.stdout:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
                kept.append(data.decode(errors="replace"))
        counts = count(kept)
        if counts is None:
            print(f"(no counts; exit code {process.returncode})")
            good = False
        else:
            total = total.plus(counts)
        good = good and process.returncode == 0
    if total.failed == 0 and not good:
        total = total._replace(failed=1)  # something broke that no test stands for
    print(total, flush=True)
    return 0 if good and total.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
