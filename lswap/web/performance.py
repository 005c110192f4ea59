"""Figures of this machine: `/metrics` for Prometheus, `/api/performance` for the page, `/api/hardware`.

`lswap.web.exposition` makes the text for Prometheus. Source: HTTP reference, sections 10.4, 10.6 and 10.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.net.hardware import detect
from lswap.net.sensors import Sample
from lswap.service.counters import Counters
from lswap.service.monitor import Monitor
from lswap.web.activity import query_values, rfc3339
from lswap.web.answers import Fault, json_answer, prepare
from lswap.web.exposition import exposition

__all__ = ["add_performance"]

_log = Logger()
_KIND = "text/plain; version=0.0.4; charset=utf-8"


def _later(samples: list[Sample], query: list[tuple[str, str]]) -> list[Sample] | None:
    """The samples that a query asks for; None if there are none, and it did not ask for later ones."""
    after = dict(reversed(query)).get("after")
    if after is None:
        return samples or None
    moment = rfc3339(after)
    if moment is None:
        raise Fault(400, "invalid 'after' timestamp, use RFC3339 format")
    kept = []
    for sample in samples:
        taken = rfc3339(sample["timestamp"])
        if taken is not None and taken > moment:
            kept.append(sample)
    return kept


def add_performance(app: Klein, monitor: Monitor, counters: Counters, in_thread: Callable[..., Deferred[Any]]) -> None:
    """Put the routes into the tree."""
    hardware: list[Deferred[Any]] = []

    def metrics(request: Any) -> bytes | Deferred[bytes]:
        if monitor.disabled:
            return prepare(request, 503, "text/plain; charset=utf-8", b"# performance monitor not available\n")

        def answer(_: None) -> bytes:
            system = monitor.system[-1] if monitor.system else None
            text = exposition(system, monitor.gpus[-1] if monitor.gpus else [], counters)
            return prepare(request, 200, _KIND, text)

        return monitor.look().addCallback(answer)

    def performance(request: Any) -> bytes | Deferred[bytes]:
        if monitor.disabled:
            return json_answer(request, {"enabled": False}, 503)
        query = query_values(request)
        _later([], query)  # what is wrong is told at once

        def answer(_: None) -> bytes:
            gpus = [{"vram_temp_c": 0, **gpu} for found in monitor.gpus for gpu in found]
            shown = {
                "enabled": True,
                "gpu_stats": _later(gpus, query),
                "sys_stats": _later(list(monitor.system), query),
            }
            return json_answer(request, shown)

        return monitor.look().addCallback(answer)

    def snapshot(request: Any) -> Deferred[bytes]:
        if not hardware:
            hardware.append(in_thread(detect).addErrback(failed))
        waiter: Deferred[Any] = Deferred()

        def tell(found: Any) -> Any:
            if not waiter.called:
                waiter.callback(found)
            return found

        hardware[0].addCallback(tell)
        return waiter.addCallback(show, request)

    def failed(failure: Failure) -> None:
        _log.failure("the hardware of this machine cannot be told", failure)

    def show(found: Any, request: Any) -> bytes:
        if found is None:
            raise Fault(503, "hardware detection failed")
        return json_answer(request, found)

    for path, handler in (("/metrics", metrics), ("/api/performance", performance), ("/api/hardware", snapshot)):
        app.route(path, methods=["GET"], endpoint=f"performance {path}")(handler)
