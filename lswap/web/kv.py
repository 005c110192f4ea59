"""The figures of kept KV caches for Prometheus. Read `lswap.service.kv` for where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lswap.service.kv import Figures

__all__ = ["KvCollector"]


class KvCollector:
    """Collects the figures of all models that keep their caches."""

    def __init__(self, figures: Callable[[], Mapping[str, Figures]]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        """For `generate_latest`."""
        from prometheus_client.core import (  # noqa: PLC0415 - when first asked
            CounterMetricFamily,
            GaugeMetricFamily,
            SummaryMetricFamily,
        )

        model = ["model"]
        saved = CounterMetricFamily("lswap_kv_saved_tokens", "Tokens of KV caches that were saved.", labels=model)
        restored = CounterMetricFamily("lswap_kv_restored_tokens", "Tokens that were restored.", labels=model)
        seconds = SummaryMetricFamily(
            "lswap_kv_seconds", "Time that saves and restores of a model's slots took.", labels=[*model, "op"]
        )
        kept = GaugeMetricFamily("lswap_kv_bytes", "Size of the KV caches that are kept.", labels=model)
        is_on = GaugeMetricFamily("lswap_kv_on", "1, or 0 for the reason that is told.", labels=[*model, "reason"])
        for name, figures in sorted(self._figures().items()):
            saved.add_metric([name], figures.saved_tokens)
            restored.add_metric([name], figures.restored_tokens)
            for op, (count, total) in sorted(figures.seconds.items()):
                seconds.add_metric([name, op], count, total)
            kept.add_metric([name], figures.bytes)
            is_on.add_metric([name, figures.off], 0 if figures.off else 1)
        for family in (saved, restored, seconds, kept, is_on):
            if family.samples:
                yield family
