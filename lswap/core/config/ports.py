"""Which number `${PORT}` gets in each model.

A model keeps the number that it had before a reload; the others get the lowest free ones, in the order of their IDs.
The number of a model that is gone stays free for once: its server may still be at work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["HIGHEST", "allocate"]

#: The last port there is.
HIGHEST = 65535


def allocate(models: Sequence[str], first: int, before: Mapping[str, int]) -> dict[str, int | None]:
    """A number for each model, in this order; None where there is none left."""
    numbers: dict[str, int | None] = {}
    here = set(models)
    taken = {number for model, number in before.items() if model not in here}
    for model in models:
        number = before.get(model, 0)
        if first <= number <= HIGHEST and number not in taken:
            numbers[model] = number
            taken.add(number)
    free = first
    for model in models:
        if model in numbers:
            continue
        while free in taken:
            free += 1
        numbers[model] = free if free <= HIGHEST else None
        free += 1
    return {model: numbers[model] for model in models}
