"""What this machine is made of, found out once: architecture, system, CPU, memory, accelerators. Blocks; for a thread.

Source: HTTP reference, section 10.7. Figures that change are in `lswap.net.sensors`.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from typing import Any

from lswap import __version__
from lswap.net.sensors import lact_devices, nvidia

__all__ = ["detect"]

_MIB = 1 << 20
#: Set by systemd-nspawn, podman and others.
_IN_CONTAINER = "container"
_ARCHITECTURES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "armv7",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
_FAMILIES = {"linux": "linux", "darwin": "macos", "windows": "windows", "freebsd": "freebsd"}
_VENDORS = {"10DE": "NVIDIA", "1002": "AMD", "8086": "Intel"}
#: By NVIDIA's major and minor compute capability; a major alone stands for the rest of it.
_GENERATIONS = {
    "5": "Maxwell",
    "6": "Pascal",
    "7.5": "Turing",
    "7": "Volta",
    "8.9": "Ada Lovelace",
    "8": "Ampere",
    "9": "Hopper",
    "10": "Blackwell",
    "11": "Blackwell",
    "12": "Blackwell",
}
_MACHINES = (
    "KVM",
    "QEMU",
    "VMware",
    "VirtualBox",
    "Bochs",
    "HVM domU",
    "Virtual Machine",
    "Google Compute",
    "Firecracker",
)


def detect() -> dict[str, Any]:
    """The snapshot."""
    import psutil  # noqa: PLC0415 - not needed before somebody asks

    now = datetime.datetime.now(datetime.UTC).isoformat()
    facts = _cpu_facts()
    return {
        "schema_version": 1,
        "captured_at": now.replace("+00:00", "Z"),
        "capture": {
            "scope": "inference_host",
            "method": "detected",
            "detector": {"name": "lswap", "version": __version__},
        },
        "architecture": {
            "name": _ARCHITECTURES.get(platform.machine().lower(), "other"),
            "raw_name": platform.machine() or None,
        },
        "operating_system": _system(),
        "environment": _environment(facts),
        "cpu": {
            "vendor": facts.get("vendor_id"),
            "model": facts.get("model name"),
            "socket_count": int(facts["sockets"]) if facts.get("sockets") else None,
            "physical_core_count": psutil.cpu_count(logical=False),
            "logical_thread_count": psutil.cpu_count(),
        },
        "memory": {"capacity_bytes": psutil.virtual_memory().total},
        "accelerators": _from_nvidia() or _from_lact(),
    }


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _cpu_facts() -> dict[str, str]:
    """First values of /proc/cpuinfo, and the number of sockets."""
    facts: dict[str, str] = {}
    sockets = set()
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        name, value = name.strip(), value.strip()
        facts.setdefault(name, value)
        if name == "physical id":
            sockets.add(value)
    if sockets:
        facts["sockets"] = str(len(sockets))
    return facts


def _system() -> dict[str, Any]:
    raw = platform.system()
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    found: dict[str, Any] = {
        "family": _FAMILIES.get(raw.lower(), "other"),
        "name": release.get("NAME") or raw or None,
        "version": release.get("VERSION_ID"),
        "kernel": platform.release() or None,
    }
    if found["family"] == "other":
        found["raw_family"] = raw or sys.platform
    return found


def _environment(facts: dict[str, str]) -> dict[str, Any]:
    kind, name = "native", None
    if "microsoft" in platform.release().lower():
        kind, name = "wsl", "WSL"
    elif os.path.exists("/.dockerenv"):
        kind, name = "container", "docker"
    elif os.path.exists("/run/.containerenv"):
        kind, name = "container", "podman"
    elif "kubepods" in _read("/proc/1/cgroup") or os.environ.get(_IN_CONTAINER):
        kind, name = "container", os.environ.get(_IN_CONTAINER)
    else:
        product = (_read("/sys/class/dmi/id/sys_vendor") + " " + _read("/sys/class/dmi/id/product_name")).strip()
        if "hypervisor" in facts.get("flags", "").split() or any(word in product for word in _MACHINES):
            kind, name = "virtual_machine", " ".join(product.split()) or None
        elif sys.platform != "linux":
            kind = "unknown"
    return {"kind": kind, "name": name, "version": None}


def _accelerator(at: int, vendor: str | None, model: str | None, architecture: str | None, size: int | None) -> Any:
    return {
        "index": at,
        "kind": "gpu",
        "vendor": vendor,
        "model": model,
        "architecture": architecture,
        "memory": {"kind": "dedicated" if size else "unknown", "capacity_bytes": size},
        "driver": None,
        "power_limit_watts": None,
    }


def _from_nvidia() -> list[Any]:
    fields = ["index", "name", "memory.total", "driver_version", "power.limit", "compute_cap"]
    found = []
    for at, known in enumerate(nvidia(fields)):
        capability = known.get("compute_cap", "")
        generation = _GENERATIONS.get(capability) or _GENERATIONS.get(capability.partition(".")[0])
        size = _number(known.get("memory.total"))
        one = _accelerator(
            int(_number(known.get("index")) or at),
            "NVIDIA",
            known.get("name"),
            generation,
            int(size) * _MIB if size is not None else None,
        )
        if "driver_version" in known:
            one["driver"] = {"name": "NVIDIA", "version": known["driver_version"]}
        one["power_limit_watts"] = _number(known.get("power.limit"))
        found.append(one)
    return found


def _from_lact() -> list[Any]:
    found = []
    for at, (identity, name, stats) in enumerate(lact_devices()):
        memory = stats.get("vram") if isinstance(stats, dict) else None
        size = memory.get("total") if isinstance(memory, dict) else None
        vendor = _VENDORS.get(identity.partition(":")[0].upper())
        found.append(_accelerator(at, vendor, name or None, None, size if isinstance(size, int) else None))
    return found


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return int(value) if value is not None and value == int(value) else value
