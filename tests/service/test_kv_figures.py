"""The figures of kept KV caches (`lswap.service.kv_figures`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.service.kv_figures import KvFigures
from lswap.web.exposition import exposition


class FiguresTests(SynchronousTestCase):
    """As Prometheus knows them."""

    def test_series(self) -> None:
        """Each by model."""
        figures = KvFigures()
        on = figures.of("on")
        on.saved_tokens, on.restored_tokens, on.bytes = 7, 5, 900
        on.took("save", 0.5)
        on.took("save", 1.0)
        figures.of("off").off = "a reason"
        text = exposition(figures).decode()
        for line in (
            'lswap_kv_saved_tokens_total{model="on"} 7.0',
            'lswap_kv_restored_tokens_total{model="on"} 5.0',
            'lswap_kv_seconds_count{model="on",op="save"} 2.0',
            'lswap_kv_seconds_sum{model="on",op="save"} 1.5',
            'lswap_kv_bytes{model="on"} 900.0',
            'lswap_kv_on{model="on",reason=""} 1.0',
            'lswap_kv_on{model="off",reason="a reason"} 0.0',
        ):
            self.assertIn(line + "\n", text)

    def test_models_that_are_gone(self) -> None:
        """Have no series; without any there is none at all."""
        figures = KvFigures()
        self.assertEqual(exposition(figures), b"")
        figures.of("a")
        figures.of("b")
        figures.retain({"b"})
        text = exposition(figures).decode()
        self.assertNotIn('"a"', text)
        self.assertIn('"b"', text)
