"""Reads the figures of this machine: CPU, memory, network by psutil; GPUs by a LACT daemon or by nvidia-smi.

Everything here blocks, and is to be called in a thread. What is not known is left out of a record. Nothing is imported,
run or opened before somebody asks. Read `lswap.service.monitor` next: when that is.
Source: HTTP reference, section 10.6.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import shutil
import socket
import subprocess
from typing import Any

from lswap.net.launcher import Launcher

__all__ = ["Sample", "gpus", "lact_devices", "nvidia", "system"]

Sample = dict[str, Any]

_MIB = 1 << 20
_SMI_TIMEOUT = 3.0
_LACT = "/run/lactd.sock"
_LACT_TIMEOUT = 1.0
_LACT_LIMIT = 4 << 20
_SMI_FIELDS = {
    "index": "id",
    "name": "name",
    "uuid": "uuid",
    "temperature.gpu": "temp_c",
    "utilization.gpu": "gpu_util_pct",
    "memory.used": "mem_used_mb",
    "memory.total": "mem_total_mb",
    "fan.speed": "fan_speed_pct",
    "power.draw": "power_draw_w",
}


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat()


def system(first: bool) -> Sample:
    """One sample of the system. The `first` one takes a tenth of a second, to have a span for the CPU's load."""
    import psutil  # noqa: PLC0415 - not needed before somebody looks

    cores = psutil.cpu_percent(interval=0.1 if first else None, percpu=True)
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    load = psutil.getloadavg()
    networks = psutil.net_io_counters(pernic=True)
    return {
        "timestamp": _now(),
        "cpu_util_per_core": list(cores),
        "mem_total_mb": memory.total // _MIB,
        "mem_used_mb": (memory.total - memory.available) // _MIB,
        "mem_free_mb": memory.free // _MIB,
        "swap_total_mb": swap.total // _MIB,
        "swap_used_mb": swap.used // _MIB,
        "load_avg_1": load[0],
        "load_avg_5": load[1],
        "load_avg_15": load[2],
        "net_io": [
            {"name": name, "bytes_recv": found.bytes_recv, "bytes_sent": found.bytes_sent}
            for name, found in sorted(networks.items())
            if name != "lo"
        ],
    }


def gpus() -> list[Sample]:
    """One sample of each GPU, by its number; none when nothing here knows of any."""
    found = _from_lact() or _from_nvidia()
    now = _now()
    for sample in found:
        used, total = sample.get("mem_used_mb"), sample.get("mem_total_mb")
        if used is not None and total:
            sample["mem_util_pct"] = _short(used * 100 / total)
        sample["timestamp"] = now
    return sorted(found, key=lambda sample: int(sample["id"]))


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(value, 3)


# -- nvidia-smi ---------------------------------------------------------------------


def nvidia(fields: list[str]) -> list[dict[str, str]]:
    """What nvidia-smi says of each GPU; a field that it does not know of one is left out. Empty if there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    # It hangs when its driver does, and must not outlive us then.
    words = [
        *Launcher.of_this_system().dies_with_us,
        program,
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SMI_TIMEOUT, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    if done.returncode:
        return []
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        values = [value.strip() for value in line.split(", ")]
        if len(values) == len(fields):
            known = {name: value for name, value in zip(fields, values, strict=True) if _is_known(value)}
            found.append(known)
    return found


def _is_known(value: str) -> bool:
    return bool(value) and not value.startswith("[") and value.upper() not in ("N/A", "ERR!")


def _from_nvidia() -> list[Sample]:
    samples = []
    for at, known in enumerate(nvidia(list(_SMI_FIELDS))):
        sample: Sample = {"id": at, "name": "", "uuid": ""}
        for field, key in _SMI_FIELDS.items():
            if field not in known:
                continue
            if key in ("name", "uuid"):
                sample[key] = known[field]
            else:
                try:
                    figure = float(known[field])
                except ValueError:
                    continue
                if math.isfinite(figure):
                    sample[key] = _short(figure)
        samples.append(sample)
    return samples


# -- LACT ---------------------------------------------------------------------------


def lact_devices() -> list[tuple[str, str, dict[str, Any]]]:
    """ID, name and figures of each device that a LACT daemon knows; empty if there is no such daemon."""
    path = os.environ.get("LACT_DAEMON_SOCKET_PATH", _LACT)
    if not path or not os.path.exists(path):
        return []
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_LACT_TIMEOUT)
            link.connect(path)
            with link.makefile("rwb") as lines:
                devices = _asked(lines, {"command": "list_devices"})
                return [
                    (
                        str(device["id"]),
                        str(device.get("name") or ""),
                        _asked(lines, {"command": "device_stats", "args": {"id": device["id"]}}),
                    )
                    for device in devices
                ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _asked(lines: Any, question: dict[str, Any]) -> Any:
    lines.write(json.dumps(question).encode() + b"\n")
    lines.flush()
    answer = json.loads(lines.readline(_LACT_LIMIT))
    if _dig(answer, "status") != "ok":
        raise ValueError("the daemon refuses")
    return answer["data"]


def _from_lact() -> list[Sample]:
    samples = []
    for at, (uuid, name, stats) in enumerate(lact_devices()):
        sample: Sample = {"id": at, "name": name, "uuid": uuid}
        temps = _dig(stats, "temps")
        figures = {
            "temp_c": _first(_dig(temps, "edge", "current"), _dig(temps, "GPU", "current")),
            "vram_temp_c": _first(_dig(temps, "mem", "current"), _dig(temps, "VRAM", "current")),
            "gpu_util_pct": _first(_dig(stats, "busy_percent")),
            "power_draw_w": _first(_dig(stats, "power", "average") or None, _dig(stats, "power", "current")),
        }
        for key, place in (("mem_used_mb", "used"), ("mem_total_mb", "total")):
            size = _first(_dig(stats, "vram", place))
            figures[key] = size // _MIB if size is not None else None
        speed = _first(_dig(stats, "fan", "pwm_current"))
        figures["fan_speed_pct"] = speed * 100 / 255 if speed is not None else None
        sample.update((key, _short(value)) for key, value in figures.items() if value is not None)
        samples.append(sample)
    return samples


def _dig(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _first(*values: Any) -> float | None:
    """The first one that is a figure."""
    return next((value for value in values if type(value) in (int, float) and math.isfinite(value)), None)
