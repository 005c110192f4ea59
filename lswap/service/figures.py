"""Figures of lswap's own work for `/metrics`: how long hooks, sleep and wake took, and what became of them.

`prometheus_client` is imported when somebody first asks. Source: what lswap adds, section 1.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from lswap.core.hooks import Doing

__all__ = ["HookFigures"]


class HookFigures:
    """Counts and sums of seconds, by model, event and outcome."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str], tuple[int, float]] = {}

    def note(self, doing: Doing) -> None:
        """Take note of something that is over; what goes on still does not count."""
        if doing.outcome is None or doing.seconds is None:
            return
        key = (doing.model, doing.event, doing.outcome.value)
        count, total = self._sums.get(key, (0, 0.0))
        self._sums[key] = (count + 1, total + doing.seconds)

    def retain(self, models: Collection[str]) -> None:
        """Forget all other models; for a reload, so that old names do not pile up."""
        self._sums = {key: value for key, value in self._sums.items() if key[0] in models}

    def collect(self) -> Iterator[Any]:
        """For a registry of Prometheus."""
        from prometheus_client.core import SummaryMetricFamily  # noqa: PLC0415 - when first asked

        if self._sums:
            text = "Time of actions at the events of a model's life, and of its sleep."
            family = SummaryMetricFamily("lswap_hook_seconds", text, labels=["model", "event", "outcome"])
            for key, (count, total) in sorted(self._sums.items()):
                family.add_metric(key, count_value=count, sum_value=total)
            yield family
