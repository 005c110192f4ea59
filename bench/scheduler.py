#!/usr/bin/env python3
"""What one request costs the scheduler while 10, 100 and 1,000 others wait: microseconds of computing, and their ratio.

No server is started. Within one run the ratio should be 1, give or take the noise and a bisection's two steps in ten;
tests/core/test_scheduler_cost.py counts the interpreter's steps instead, which must be the same.
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from tests.core.crowd import CROWDS, Crowd

ROUNDS, TIMES = 30, 300


def main() -> None:
    crowds = [Crowd(waiting).lives for waiting in CROWDS]
    print("waiting:".ljust(32) + "".join(f"{waiting:>9}" for waiting in CROWDS) + "    ratio")
    for life in crowds[0]:
        rounds: list[list[float]] = [[] for _ in CROWDS]
        for _ in range(ROUNDS):  # side by side, so that a busy machine is busy for all
            for lives, costs in zip(crowds, rounds):
                work = lives[life]
                before = time.thread_time()
                for _ in range(TIMES):
                    work()
                costs.append((time.thread_time() - before) / TIMES * 1e6)
        best = [min(costs) for costs in rounds]
        ratio = statistics.median(many / few for few, many in zip(rounds[0], rounds[-1]))
        print(life.ljust(32) + "".join(f"{cost:>9.1f}" for cost in best) + f"{ratio:>9.2f}")


if __name__ == "__main__":
    main()
