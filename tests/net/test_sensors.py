"""Figures of the machine (`lswap.net.sensors`), out of tools that really run."""

from __future__ import annotations

import time
from typing import Any

from lswap.net import sensors
from lswap.net.sensors import gpus, nvidia, system
from tests.net.tools import ToolCase

CARD = {
    "index": "1",
    "name": "NVIDIA GeForce RTX 4090",
    "uuid": "GPU-1234",
    "temperature.gpu": "65",
    "utilization.gpu": "98",
    "memory.used": "6141",
    "memory.total": "24564",
    "fan.speed": "30",
    "power.draw": "310.55",
}
DEVICES = {"status": "ok", "data": [{"id": "1002:744C-1", "name": "Radeon"}]}


def ok(stats: Any) -> dict[str, Any]:
    """A daemon's answer."""
    return {"status": "ok", "data": stats}


class SystemTests(ToolCase):
    """This machine itself."""

    def test_sample(self) -> None:
        """All members of the record, plausible; the loopback interface is left out."""
        sample = system(first=True)
        self.assertEqual(
            set(sample),
            {
                *("timestamp", "cpu_util_per_core", "mem_total_mb", "mem_used_mb", "mem_free_mb", "swap_total_mb"),
                *("swap_used_mb", "load_avg_1", "load_avg_5", "load_avg_15", "net_io"),
            },
        )
        self.assertTrue(sample["cpu_util_per_core"])
        self.assertTrue(all(0 <= load <= 100 for load in sample["cpu_util_per_core"]))
        self.assertTrue(0 < sample["mem_used_mb"] < sample["mem_total_mb"])
        self.assertNotIn("lo", [one["name"] for one in sample["net_io"]])


class NvidiaTests(ToolCase):
    """nvidia-smi."""

    def test_figures(self) -> None:
        """Each in its unit; the share of memory is computed; cards come by number."""
        self.smi_says(CARD, {**CARD, "index": "0", "uuid": "GPU-0", "power.draw": "12.00"})
        first, second = gpus()
        timestamp = second.pop("timestamp")
        self.assertTrue(timestamp)
        self.assertEqual((first["id"], first["uuid"], first["power_draw_w"]), (0, "GPU-0", 12))
        self.assertEqual(
            second,
            {
                "id": 1,
                "name": CARD["name"],
                "uuid": "GPU-1234",
                "temp_c": 65,
                "gpu_util_pct": 98,
                "mem_used_mb": 6141,
                "mem_total_mb": 24564,
                "mem_util_pct": 25,
                "fan_speed_pct": 30,
                "power_draw_w": 310.55,
            },
        )

    def test_unknown_figures_are_absent(self) -> None:
        """Never 0; `[N/A]`, `[Not Supported]`, an error and nothing at all are the ways to say so."""
        unknown = {"temperature.gpu": "[Not Supported]", "fan.speed": "N/A", "power.draw": "ERR!", "memory.used": ""}
        self.smi_says({**CARD, **unknown, "utilization.gpu": "inf", "uuid": "[N/A]"})
        (card,) = gpus()
        self.assertEqual(set(card), {"timestamp", "id", "name", "uuid", "mem_total_mb"})
        self.assertEqual(card["uuid"], "")

    def test_zero_is_a_figure(self) -> None:
        """It is shown."""
        self.smi_says({**CARD, "utilization.gpu": "0", "memory.used": "0"})
        (card,) = gpus()
        self.assertEqual((card["gpu_util_pct"], card["mem_used_mb"], card["mem_util_pct"]), (0, 0, 0))

    def test_no_figures(self) -> None:
        """No such program, one that fails, one that cannot run, and one that says something else: no GPU, no error."""
        self.assertEqual(gpus(), [])
        for script in ("echo 'NVIDIA-SMI has failed'; exit 9", "echo 'No devices were found'", "kill -9 $$", ":"):
            self.smi(script)
            self.assertEqual(gpus(), [], script)
        (self.folder / "nvidia-smi").write_bytes(b"\x7fELF no program")
        self.assertEqual(gpus(), [])

    def test_bytes_that_are_no_text(self) -> None:
        """They do no harm."""
        self.smi(r"printf '0, \377name\n'")
        self.assertEqual(nvidia(["index", "name"]), [{"index": "0", "name": "\ufffdname"}])

    def test_hanging(self) -> None:
        """It is ended after a while, and there are no figures."""
        self.patch(sensors, "_SMI_TIMEOUT", 0.2)
        self.smi("exec sleep 1000")
        begun = time.monotonic()
        self.assertEqual(gpus(), [])
        self.assertLess(time.monotonic() - begun, 5)


class LactTests(ToolCase):
    """A LACT daemon."""

    def test_figures(self) -> None:
        """It is asked first; its sizes are bytes, its fan has 255 steps."""
        self.smi_says(CARD)
        stats = {
            "temps": {"edge": {"current": 41.0}, "mem": {"current": 55.5}},
            "busy_percent": 7,
            "power": {"average": None, "current": 21.25},
            "vram": {"used": 6 << 30, "total": 24 << 30},
            "fan": {"pwm_current": 51},
        }
        self.lact(DEVICES, ok(stats))
        (card,) = gpus()
        del card["timestamp"]
        self.assertEqual(
            card,
            {
                "id": 0,
                "name": "Radeon",
                "uuid": "1002:744C-1",
                "temp_c": 41,
                "vram_temp_c": 55.5,
                "gpu_util_pct": 7,
                "power_draw_w": 21.25,
                "mem_used_mb": 6144,
                "mem_total_mb": 24576,
                "mem_util_pct": 25,
                "fan_speed_pct": 20,
            },
        )

    def test_unknown_figures_are_absent(self) -> None:
        """Also where the daemon says null, something that is no figure, or nothing."""
        odd: list[Any] = [
            {},
            {"temps": None, "busy_percent": "7", "power": {"average": float("nan")}, "vram": {"used": True}, "fan": []},
            [],
        ]
        for stats in odd:
            self.lact(DEVICES, ok(stats))
            (card,) = gpus()
            self.assertEqual(set(card), {"timestamp", "id", "name", "uuid"}, stats)
            (self.folder / "lact").unlink()

    def test_no_daemon_to_speak_of(self) -> None:
        """One that refuses, breaks off, or speaks otherwise: nvidia-smi is asked instead."""
        self.smi_says(CARD)
        refusal = {"status": "error", "data": "no"}
        for answers, raw in (([refusal], None), ([DEVICES], None), ([0], b"no JSON\n"), ([0], b"[]\n"), ([], None)):
            self.lact(*answers, raw=raw)
            self.assertEqual([card["name"] for card in gpus()], [CARD["name"]], (answers, raw))
            (self.folder / "lact").unlink()

    def test_silent(self) -> None:
        """A daemon that never answers costs its time, and no more."""
        self.smi_says(CARD)
        self.lact(DEVICES, raw=b"")
        self.patch(sensors, "_LACT_TIMEOUT", 0.1)
        self.assertEqual([card["name"] for card in gpus()], [CARD["name"]])
