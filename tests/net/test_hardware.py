"""What the machine is made of (`lswap.net.hardware`)."""

from __future__ import annotations

import os
import platform
from typing import Any

from lswap.net import hardware
from lswap.net.hardware import detect
from tests.net.tools import ToolCase

CPU = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some CPU
physical id\t: 0
flags\t\t: fpu sse
processor\t: 1
physical id\t: 1
"""


class HardwareTests(ToolCase):
    """The record of `/api/hardware`."""

    def files(self, **contents: str) -> None:
        """Have these files, by the last part of their paths, and no others."""
        self.patch(hardware, "_read", lambda path: contents.get(path.rpartition("/")[2], ""))

    def test_shape(self) -> None:
        """All members, whatever this machine is; JSON can carry it."""
        found = detect()
        self.assertEqual(
            set(found),
            {
                *("schema_version", "captured_at", "capture", "architecture", "operating_system", "environment"),
                *("cpu", "memory", "accelerators"),
            },
        )
        self.assertEqual((found["schema_version"], found["accelerators"]), (1, []))
        self.assertRegex(found["captured_at"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
        self.assertEqual(found["capture"]["scope"], "inference_host")
        self.assertGreater(found["memory"]["capacity_bytes"], 0)
        self.assertIn(found["operating_system"]["family"], ("linux", "macos", "freebsd", "other"))

    def test_cpu(self) -> None:
        """Vendor and model of the first, and how many sockets there are."""
        self.files(cpuinfo=CPU)
        cpu = detect()["cpu"]
        self.assertEqual((cpu["vendor"], cpu["model"], cpu["socket_count"]), ("GenuineIntel", "Some CPU", 2))

    def test_unknown_is_null(self) -> None:
        """Never an empty text, and never 0."""
        self.files()
        cpu = detect()["cpu"]
        self.assertEqual((cpu["vendor"], cpu["model"], cpu["socket_count"]), (None, None, None))

    def test_architecture(self) -> None:
        """The usual names, and the one that the system has."""
        for raw, name in (("x86_64", "x86_64"), ("aarch64", "arm64"), ("AMD64", "x86_64"), ("sparc", "other")):
            self.patch(platform, "machine", lambda raw=raw: raw)
            self.assertEqual(detect()["architecture"], {"name": name, "raw_name": raw})

    def test_environment(self) -> None:
        """Bare metal, a container, a virtual machine, Windows."""
        self.patch(os.path, "exists", lambda path: False)
        self.environment.pop("container", None)
        self.patch(platform, "release", lambda: "6.1.0")

        def kind() -> Any:
            environment = detect()["environment"]
            return environment["kind"], environment["name"]

        self.files(cpuinfo=CPU)
        self.assertEqual(kind(), ("native", None))
        self.files(cpuinfo=CPU, cgroup="0::/kubepods/x")
        self.assertEqual(kind(), ("container", None))
        self.files(cpuinfo=CPU.replace("sse", "hypervisor"), sys_vendor="QEMU\n", product_name="Standard PC\n")
        self.assertEqual(kind(), ("virtual_machine", "QEMU Standard PC"))
        self.environment["container"] = "podman"
        self.assertEqual(kind(), ("container", "podman"))
        self.patch(os.path, "exists", lambda path: path == "/.dockerenv")
        self.assertEqual(kind(), ("container", "docker"))
        self.patch(platform, "release", lambda: "5.15-microsoft-standard-WSL2")
        self.assertEqual(kind(), ("wsl", "WSL"))

    def test_nvidia(self) -> None:
        """A card as nvidia-smi tells of it; what it does not know is null."""
        card = {"index": "0", "name": "RTX 4090", "memory.total": "24564", "driver_version": "550.1"}
        self.smi_says({**card, "power.limit": "450.00", "compute_cap": "8.9"}, {"name": "Other"})
        first, second = detect()["accelerators"]
        self.assertEqual(
            first,
            {
                "index": 0,
                "kind": "gpu",
                "vendor": "NVIDIA",
                "model": "RTX 4090",
                "architecture": "Ada Lovelace",
                "memory": {"kind": "dedicated", "capacity_bytes": 24564 << 20},
                "driver": {"name": "NVIDIA", "version": "550.1"},
                "power_limit_watts": 450,
            },
        )
        self.assertEqual((second["index"], second["architecture"], second["driver"]), (1, None, None))
        self.assertEqual(second["memory"], {"kind": "unknown", "capacity_bytes": None})
        self.assertIsNone(second["power_limit_watts"])

    def test_generations(self) -> None:
        """Minor versions where they count; one that is not known is null."""
        for capability, name in (("7.5", "Turing"), ("7.0", "Volta"), ("8.6", "Ampere"), ("12.0", "Blackwell")):
            self.smi_says({"index": "0", "compute_cap": capability})
            self.assertEqual(detect()["accelerators"][0]["architecture"], name)
        self.smi_says({"index": "0", "compute_cap": "99.1"})
        self.assertIsNone(detect()["accelerators"][0]["architecture"])

    def test_lact(self) -> None:
        """The vendor out of the ID; asked where there is no nvidia-smi."""
        devices = {"status": "ok", "data": [{"id": "1002:744C-1", "name": "Radeon"}]}
        self.lact(devices, {"status": "ok", "data": {"vram": {"total": 24 << 30}}})
        (card,) = detect()["accelerators"]
        self.assertEqual((card["vendor"], card["model"]), ("AMD", "Radeon"))
        self.assertEqual(card["memory"]["capacity_bytes"], 24 << 30)
