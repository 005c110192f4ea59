"""What has happened since the start, counted by labels: the families of `/metrics` that are lswap's own.

A family is one line of `FAMILIES`; whoever knows of something to count calls `Counters.add`, in any thread.
`lswap.web.exposition` shows them. Labels must come from the configuration, never from what a client wrote: each set of
values stays for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["FAMILIES", "Counters", "Family"]


class Family(msgspec.Struct, frozen=True):
    """One kind of counts, named without the ending `_total`."""

    text: str
    labels: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {
    "lswap_requests": Family("Requests to models, as activity lists them.", ("model", "key", "status")),
    "lswap_tokens": Family("Tokens that models told of.", ("model", "key", "kind")),
}


class Counters:
    """The counts of all families."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in FAMILIES}

    def add(self, family: str, labels: tuple[str, ...], amount: float = 1) -> None:
        """Count something; `labels` are the values in the order of the family's names."""
        if len(labels) != len(FAMILIES[family].labels):
            raise ValueError(f"{family} has the labels {FAMILIES[family].labels}, not {labels}")
        with self._lock:
            counts = self._counts[family]
            counts[labels] = counts.get(labels, 0) + amount

    def of(self, family: str) -> list[tuple[tuple[str, ...], float]]:
        """All counts of a family, with the values of their labels, in their order."""
        with self._lock:
            return sorted(self._counts[family].items())

    def collect(self) -> Iterator[Any]:
        """For a registry of Prometheus."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - when first asked

        for name, about in FAMILIES.items():
            counts = self.of(name)
            if not counts:
                continue
            family = CounterMetricFamily(name, about.text, labels=about.labels)
            for labels, count in counts:
                family.add_metric(labels, count)
            yield family
