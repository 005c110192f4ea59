"""How long a piece of computing takes, on a machine that may be busy with something else."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["best_time"]


def best_time(work: Callable[[], object], enough: float) -> float:
    """Seconds of computing that `work` takes: the best of up to 30 tries, or the first below `enough`."""
    best = float("inf")
    for _ in range(30):
        before = time.thread_time()
        work()
        best = min(best, time.thread_time() - before)
        if best < enough:
            break
    return best
