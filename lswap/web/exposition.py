"""What `/metrics` shows: the newest sample of this machine, and the figures of lswap's parts, as Prometheus reads them.

`prometheus_client` is imported when somebody first asks. Source: HTTP reference, section 10.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from lswap.net.sensors import Sample

__all__ = ["Figures", "MachineFigures", "exposition"]

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


class Figures(Protocol):
    """Figures of a part of lswap."""

    def collect(self) -> Iterator[Any]:
        """Metric families, as `prometheus_client` knows them."""


class MachineFigures:
    """One sample of this machine, if there is one yet; figures that are not known have no series."""

    def __init__(self, system: Sample | None, gpus: list[Sample]) -> None:
        self._system = system
        self._gpus = gpus

    def collect(self) -> Iterator[Any]:
        """See `Figures`."""
        if self._system is not None:
            yield from _of_system(self._system)
        yield from _of_gpus(self._gpus)


def _of_system(system: Sample) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - when first asked

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


def _of_gpus(gpus: list[Sample]) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - when first asked

    for name, (key, scale, text) in _GPU.items():
        known = [gpu for gpu in gpus if key in gpu]
        if not known:
            continue
        family = GaugeMetricFamily(f"llamaswap_gpu_{name}", text)
        for gpu in known:
            shown = {"id": str(gpu["id"]), "name": gpu["name"], "uuid": gpu["uuid"]}
            if not gpu["uuid"]:
                del shown["uuid"]
            family.add_sample(family.name, shown, gpu[key] * scale)
        yield family


def exposition(*parts: Figures) -> bytes:
    """The text of these figures."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - when first asked

    registry = CollectorRegistry(auto_describe=False)
    for part in parts:
        registry.register(part)
    return generate_latest(registry)
