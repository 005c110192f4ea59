"""Figures of this machine: `/metrics` for Prometheus, `/api/performance` for the page, `/api/hardware`.

`lswap.web.exposition` makes the text for Prometheus. Source: HTTP reference, sections 10.4, 10.6 and 10.7.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.net.hardware import detect
from lswap.net.sensors import Sample
from lswap.service.monitor import Monitor
from lswap.web.activity import query_values, rfc3339
from lswap.web.answers import Fault, go_json, json_answer, prepare
from lswap.web.exposition import Figures, MachineFigures, exposition

__all__ = ["add_performance"]

_log = Logger()
#: Samples that are made into JSON in the reactor's thread.
_FEW = 100
#: Seconds that a client waits for what the machine is made of.
_PATIENCE = 10.0
_KIND = "text/plain; version=0.0.4; charset=utf-8"


def _after(query: list[tuple[str, str]]) -> datetime.datetime | None:
    """The time after which samples are asked for; None for all of them."""
    after = dict(reversed(query)).get("after")
    if after is None:
        return None
    moment = rfc3339(after)
    if moment is None:
        raise Fault(400, "invalid 'after' timestamp, use RFC3339 format")
    return moment


def _is_later(sample: Sample, moment: datetime.datetime | None) -> bool:
    taken = rfc3339(sample["timestamp"]) if moment is not None else None
    return moment is None or (taken is not None and taken > moment)


def _encoded(gpus: list[Sample] | None, system: list[Sample] | None) -> bytes:
    """The body. Sample by sample, so that a thread that does this does not keep the interpreter to itself for long."""

    def listed(samples: list[Sample] | None) -> bytes:
        return b"null" if samples is None else b"[" + b",".join(map(go_json, samples)) + b"]"

    return b'{"enabled":true,"gpu_stats":' + listed(gpus) + b',"sys_stats":' + listed(system) + b"}\n"


def add_performance(
    app: Klein,
    clock: IReactorTime,
    monitor: Monitor,
    in_thread: Callable[..., Deferred[Any]],
    others: Sequence[Figures],
) -> None:
    """Put the routes into the tree. `others` are shown in `/metrics` beside the machine's figures."""
    hardware: list[Deferred[Any]] = []

    def metrics(request: Any) -> bytes | Deferred[bytes]:
        if monitor.disabled:
            return prepare(request, 503, "text/plain; charset=utf-8", b"# performance monitor not available\n")

        def answer(_: None) -> bytes:
            system = monitor.system[-1] if monitor.system else None
            text = exposition(MachineFigures(system, monitor.gpus[-1] if monitor.gpus else []), *others)
            return prepare(request, 200, _KIND, text)

        return monitor.look().addCallback(answer)

    def performance(request: Any) -> bytes | Deferred[bytes]:
        if monitor.disabled:
            return json_answer(request, {"enabled": False}, 503)
        moment = _after(query_values(request))

        def answer(_: None) -> bytes | Deferred[bytes]:
            taken = [found for found in monitor.gpus if _is_later(found[0], moment)]  # all of one have the same time
            gpus = [{"vram_temp_c": 0, **gpu} for found in taken for gpu in found]
            system = [sample for sample in monitor.system if _is_later(sample, moment)]
            given = (gpus or None, system or None) if moment is None else (gpus, system)
            if len(gpus) + len(system) > _FEW:
                return in_thread(_encoded, *given).addCallback(shown, request)
            return shown(_encoded(*given), request)

        return monitor.look().addCallback(answer)

    def shown(body: bytes, request: Any) -> bytes:
        return prepare(request, 200, "application/json", body)

    def snapshot(request: Any) -> Deferred[bytes]:
        if not hardware:
            hardware.append(in_thread(detect).addErrback(failed))
        waiter: Deferred[Any] = Deferred()

        def tell(found: Any) -> Any:
            if found is None:
                hardware.clear()  # the next one may have more luck
            if not waiter.called:
                waiter.callback(found)
            return found

        hardware[0].addCallback(tell)
        waiter.addTimeout(_PATIENCE, clock, onTimeoutCancel=lambda *_: None)
        return waiter.addCallback(show, request)

    def failed(failure: Failure) -> None:
        _log.failure("the hardware of this machine cannot be told", failure)

    def show(found: Any, request: Any) -> bytes:
        if found is None:
            raise Fault(503, "hardware detection failed, or takes too long")
        return json_answer(request, found)

    for path, handler in (("/metrics", metrics), ("/api/performance", performance), ("/api/hardware", snapshot)):
        app.route(path, methods=["GET"], endpoint=f"performance {path}")(handler)
