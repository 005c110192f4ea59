"""Figures of kept KV caches for `/metrics`: what was saved and restored, how long it took, what is kept, and why not.

`prometheus_client` is imported when somebody first asks. Source: what lswap adds, section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

__all__ = ["Figures", "KvFigures"]


class Figures:
    """Of one model since lswap started."""

    def __init__(self) -> None:
        self.saved_tokens = 0
        self.restored_tokens = 0
        #: By `save` and `restore`: how many, and seconds in all.
        self.seconds: dict[str, tuple[int, float]] = {}
        #: Bytes that are kept for the command that ran last.
        self.bytes = 0
        #: Why it is off; empty while it is on.
        self.off = ""

    def took(self, op: str, seconds: float) -> None:
        """One more save or restore."""
        count, total = self.seconds.get(op, (0, 0.0))
        self.seconds[op] = (count + 1, total + seconds)


class KvFigures:
    """Of all models that keep their caches."""

    def __init__(self) -> None:
        self._models: dict[str, Figures] = {}

    def of(self, model: str) -> Figures:
        """Those of a model."""
        return self._models.setdefault(model, Figures())

    def retain(self, models: Collection[str]) -> None:
        """Forget all other models."""
        self._models = {model: figures for model, figures in self._models.items() if model in models}

    def collect(self) -> Iterator[Any]:
        """For a registry of Prometheus."""
        from prometheus_client.core import (  # noqa: PLC0415 - when first asked
            CounterMetricFamily,
            GaugeMetricFamily,
            SummaryMetricFamily,
        )

        model = ["model"]
        saved = CounterMetricFamily("lswap_kv_saved_tokens", "Tokens of KV caches that were saved.", labels=model)
        restored = CounterMetricFamily("lswap_kv_restored_tokens", "Tokens that were restored.", labels=model)
        text = "Time of saves and restores, all slots of a model together."
        seconds = SummaryMetricFamily("lswap_kv_seconds", text, labels=[*model, "op"])
        kept = GaugeMetricFamily("lswap_kv_bytes", "Size of the KV caches that are kept.", labels=model)
        is_on = GaugeMetricFamily("lswap_kv_on", "1, or 0 for the reason that is told.", labels=[*model, "reason"])
        for name, figures in sorted(self._models.items()):
            saved.add_metric([name], figures.saved_tokens)
            restored.add_metric([name], figures.restored_tokens)
            for op, (count, total) in sorted(figures.seconds.items()):
                seconds.add_metric([name, op], count, total)
            kept.add_metric([name], figures.bytes)
            is_on.add_metric([name, figures.off], 0 if figures.off else 1)
        yield from (family for family in (saved, restored, seconds, kept, is_on) if family.samples)
