#!/usr/bin/env python3
"""What one request costs the scheduler while 10, 100 and 1,000 others wait: microseconds of computing, and their ratio.
And what one question costs a matrix of 60 models and 200 sets (2 ms at most are wanted), by how many models run.

No server is started. Within one run the ratio should be 1, give or take the noise and a bisection's two steps in ten;
tests/core/test_scheduler_cost.py counts the interpreter's steps instead, which must be the same.
"""

import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lswap.core.matrix import Matrix, MatrixSet, parse
from lswap.core.plan_matrix import MatrixPolicy
from tests.core.crowd import CROWDS, Crowd

ROUNDS, TIMES = 30, 300


def waiting() -> None:
    crowds = [Crowd(count).lives for count in CROWDS]
    print("waiting, us:".ljust(32) + "".join(f"{count:>9}" for count in CROWDS) + "    ratio")
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


def matrix() -> None:
    dice = random.Random(1)
    models = [f"m{number}" for number in range(60)]
    running = (1, 5, 12, 30, 59)
    print("\nmatrix, running, ms:".ljust(33) + "".join(f"{count:>9}" for count in running))
    for factors, wide in ((12, 1), (5, 4), (6, 10), (20, 20)):
        texts = [" & ".join(f"({' | '.join(dice.sample(models, wide))})" for _ in range(factors)) for _ in range(200)]
        sets = tuple([MatrixSet(f"s{at}", parse(text)) for at, text in enumerate(texts)])
        policy = MatrixPolicy(Matrix(sets=sets, costs={}))
        line = f"{factors} factors of {wide}".ljust(32)
        for count in running:
            costs = []
            for _ in range(ROUNDS):
                target, *others = dice.sample(models, count + 1)
                before = time.thread_time()
                policy.evict(target, sorted(others))
                costs.append((time.thread_time() - before) * 1e3)
            line += f"{statistics.median(costs):>9.2f}"
        print(line)


def main() -> None:
    waiting()
    matrix()


if __name__ == "__main__":
    main()
