"""Figures of this machine: `/metrics` for Prometheus, `/api/performance` for the page, `/api/hardware`.

`prometheus_client` is imported when somebody first asks. Source: HTTP reference, sections 10.4, 10.6 and 10.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.net.hardware import detect
from lswap.net.sensors import Sample
from lswap.service.monitor import Monitor
from lswap.web.activity import query_values, rfc3339
from lswap.web.answers import Fault, json_answer, prepare

__all__ = ["Figures", "MachineFigures", "add_performance", "exposition"]

_log = Logger()
_KIND = "text/plain; version=0.0.4; charset=utf-8"
_MIB = 1 << 20
_SYSTEM = {
    "memory_total_bytes": ("mem_total_mb", "Memory of the machine."),
    "memory_used_bytes": ("mem_used_mb", "Memory in use."),
    "memory_free_bytes": ("mem_free_mb", "Memory that nothing uses."),
    "swap_total_bytes": ("swap_total_mb", "Swap space."),
    "swap_used_bytes": ("swap_used_mb", "Swap space in use."),
}
_GPU = {
    "temperature_celsius": ("temp_c", 1, "Temperature of the GPU."),
    "vram_temperature_celsius": ("vram_temp_c", 1, "Temperature of the GPU's memory."),
    "util_percent": ("gpu_util_pct", 1, "Load of the GPU."),
    "memory_util_percent": ("mem_util_pct", 1, "Share of the GPU's memory that is in use."),
    "memory_used_bytes": ("mem_used_mb", _MIB, "Memory of the GPU in use."),
    "memory_total_bytes": ("mem_total_mb", _MIB, "Memory of the GPU."),
    "fan_speed_percent": ("fan_speed_pct", 1, "Speed of the GPU's fan."),
    "power_draw_watts": ("power_draw_w", 1, "Power that the GPU draws."),
}


class MachineFigures:
    """One sample as Prometheus knows it; figures that are not known have no series."""

    def __init__(self, system: Sample, gpus: list[Sample]) -> None:
        self._system = system
        self._gpus = gpus

    def collect(self) -> Iterator[Any]:
        """For `generate_latest`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - when first asked

        system = self._system
        cores = GaugeMetricFamily("llamaswap_cpu_util_percent", "Load of each core.", labels=["core"])
        for at, load in enumerate(system["cpu_util_per_core"]):
            cores.add_metric([str(at)], load)
        yield cores
        for name, (key, text) in _SYSTEM.items():
            yield GaugeMetricFamily(f"llamaswap_{name}", text, value=system[key] * _MIB)
        loads = GaugeMetricFamily("llamaswap_load_average", "Load of the system.", labels=["interval"])
        for minutes in (1, 5, 15):
            loads.add_metric([f"{minutes}m"], system[f"load_avg_{minutes}"])
        yield loads
        if system["net_io"]:
            labels = ["interface", "direction"]
            network = CounterMetricFamily("llamaswap_network_bytes", "Bytes over each interface.", labels=labels)
            for found in system["net_io"]:
                network.add_metric([found["name"], "recv"], found["bytes_recv"])
                network.add_metric([found["name"], "sent"], found["bytes_sent"])
            yield network
        for name, (key, scale, text) in _GPU.items():
            known = [gpu for gpu in self._gpus if key in gpu]
            if not known:
                continue
            family = GaugeMetricFamily(f"llamaswap_gpu_{name}", text)
            for gpu in known:
                shown = {"id": str(gpu["id"]), "name": gpu["name"], "uuid": gpu["uuid"]}
                if not gpu["uuid"]:
                    del shown["uuid"]
                family.add_sample(family.name, shown, gpu[key] * scale)
            yield family


class Figures(Protocol):
    """Figures of another part of lswap."""

    def collect(self) -> Iterator[Any]:
        """Metric families, as `prometheus_client` knows them."""


def exposition(*parts: Figures) -> bytes:
    """The text of these figures."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - when first asked

    registry = CollectorRegistry(auto_describe=False)
    for part in parts:
        registry.register(part)
    return generate_latest(registry)


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


def add_performance(
    app: Klein, monitor: Monitor, in_thread: Callable[..., Deferred[Any]], others: Sequence[Figures] = ()
) -> None:
    """Put the routes into the tree. `others` are shown in `/metrics`, too."""
    hardware: list[Deferred[Any]] = []

    def metrics(request: Any) -> bytes | Deferred[bytes]:
        if monitor.disabled:
            return prepare(request, 503, "text/plain; charset=utf-8", b"# performance monitor not available\n")

        def answer(_: None) -> bytes:
            parts = list(others)
            if monitor.system:
                parts.insert(0, MachineFigures(monitor.system[-1], monitor.gpus[-1] if monitor.gpus else []))
            return prepare(request, 200, _KIND, exposition(*parts))

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
