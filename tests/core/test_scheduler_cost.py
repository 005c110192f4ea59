"""What a request costs the scheduler does not depend on how many wait. Read `tests.core.crowd` first."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.core.crowd import CROWDS, Crowd
from tests.core.timing import best_time


def steps(work: Callable[[], object]) -> int:
    """Steps of the interpreter that some work takes: the same each time, however busy the machine is."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    collecting, before = gc.isenabled(), sys.gettrace()
    gc.disable()  # who watches it would be counted
    try:
        # What is only done once is done at first; also by Python itself, whose later versions then only begin to count.
        for _ in range(2):
            count = 0
            sys.settrace(trace)
            work()
            sys.settrace(before)
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return count


class CostTests(SynchronousTestCase):
    """10, 100 and 1,000 wait."""

    def test_steps_are_counted(self) -> None:
        """A loop over all is seen."""
        self.assertGreater(steps(lambda: [None for _ in range(1000)]), steps(lambda: [None for _ in range(10)]) + 990)

    def test_no_step_more_for_a_longer_queue(self) -> None:
        """The same steps for each, whatever happens to the request."""
        crowds = [Crowd(waiting) for waiting in CROWDS]
        for life in crowds[0].lives:
            counts = [steps(crowd.lives[life]) for crowd in crowds]
            self.assertEqual(counts, counts[:1] * len(counts), life)

    def test_no_hidden_search(self) -> None:
        """Nor does it take longer, as a search in C would: less than 3 times for 100 times as many, with bisection."""
        few, many = (Crowd(waiting).lives for waiting in (CROWDS[0], CROWDS[-1]))
        for life in few:
            bound = 3 * best_time(partial(_repeat, few[life]), 0.0)
            self.assertLess(best_time(partial(_repeat, many[life]), bound), bound, life)


def _repeat(work: Callable[[], None]) -> None:
    for _ in range(50):
        work()
