"""Figures of the machine and counts of requests: `/metrics`, `/api/performance`, and when samples are taken."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.app import LswapService
from lswap.core.model_parts import Performance
from lswap.service.counters import FAMILIES, Counters
from lswap.web import performance
from lswap.web.exposition import MachineFigures, exposition
from tests.memory import MemoryLswap

CONFIG = """
apiKeys: [all, {name: team-blue, key: blue}]
models:
  a: {cmd: "server --port ${PORT}", aliases: [other]}
peers:
  far: {proxy: "http://127.0.0.1:9", models: [b]}
"""
USAGE = b'{"usage": {"prompt_tokens": 12, "completion_tokens": 7}}'
SYSTEM = {
    "timestamp": "2026-01-01T00:00:00Z",
    "cpu_util_per_core": [10.5],
    **dict.fromkeys(("mem_total_mb", "mem_used_mb", "mem_free_mb", "swap_total_mb", "swap_used_mb"), 8192),
    **dict.fromkeys(("load_avg_1", "load_avg_5", "load_avg_15"), 1.5),
    "net_io": [],
}
KEY = [("Authorization", "Bearer all")]


class MetricsCase(SynchronousTestCase):
    """A model, a peer, two keys and a client."""

    def setUp(self) -> None:
        """Nothing was asked."""
        self.lswap = MemoryLswap(CONFIG)
        self.client = self.lswap.client()

    def get(self, target: str) -> Any:
        """The JSON of an answer."""
        return json.loads(self.lswap.get(target, KEY).body)

    def watch(self, reader: Any = lambda first: (SYSTEM, [])) -> None:
        """Have samples taken by `reader`."""
        self.lswap.service.monitor._reader = reader
        self.lswap.service.monitor.configure(Performance())


class ExpositionTests(SynchronousTestCase):
    """The text for Prometheus."""

    def test_series(self) -> None:
        """Known figures in the units of Prometheus; unknown ones have no series."""
        gpus = [{"id": 0, "name": 'a"b', "uuid": "", "temp_c": 65}]
        text = exposition(MachineFigures(SYSTEM, gpus), Counters()).decode()
        self.assertIn('llamaswap_cpu_util_percent{core="0"} 10.5\n', text)
        self.assertIn('llamaswap_gpu_temperature_celsius{id="0",name="a\\"b"} 65', text)
        self.assertNotIn("power_draw", text)
        self.assertNotIn("network", text)
        self.assertNotIn("lswap_requests", text)

    def test_counters(self) -> None:
        """Each set of labels has its series, quoted; without a sample they are all there is."""
        counters = Counters()
        for _ in range(2):
            counters.add("lswap_requests", ("a", 'b"\n', "200"))
        counters.add("lswap_tokens", ("a", "", "input"), 12)
        text = exposition(MachineFigures(None, []), counters).decode()
        self.assertIn('lswap_requests_total{key="b\\"\\n",model="a",status="200"} 2.0\n', text)
        self.assertIn('lswap_tokens_total{key="",kind="input",model="a"} 12.0\n', text)
        self.assertIn("# TYPE lswap_requests_total counter\n", text)
        self.assertNotIn("llamaswap_", text)

    def test_wrong_labels(self) -> None:
        """What does not fit its family is refused, and leaves no trace."""
        counters = Counters()
        self.assertRaises(ValueError, counters.add, "lswap_requests", ("a",))
        self.assertEqual([counters.of(family) for family in FAMILIES], [[]] * len(FAMILIES))


class CountTests(MetricsCase):
    """What of requests is counted, and by what."""

    def ask(self, key: str, model: str = "a", status: int = 200) -> None:
        """A request with this key that the model answers."""
        self.client.chat(model, [("X-Api-Key", key)])
        served = self.lswap.models["a"].requests
        if served:
            served.pop().answer(status, USAGE, [("Content-Type", "application/json")])
            self.lswap.turn()
        self.client.read()

    def lines(self) -> list[str]:
        """The series of lswap's own families."""
        self.watch()
        lines = self.lswap.get("/metrics", KEY).body.decode().splitlines()
        return [line for line in lines if line.startswith("lswap_")]

    def test_keys_have_names(self) -> None:
        """Requests and tokens are told by model, status and the name of the key; a key itself is never told."""
        self.ask("blue")
        self.ask("blue", "other")
        self.ask("all", status=500)
        lines = self.lines()
        self.assertEqual(
            lines,
            [
                'lswap_requests_total{key="",model="a",status="500"} 1.0',
                'lswap_requests_total{key="team-blue",model="a",status="200"} 2.0',
                'lswap_tokens_total{key="team-blue",kind="input",model="a"} 24.0',
                'lswap_tokens_total{key="team-blue",kind="output",model="a"} 14.0',
            ],
        )

    def test_made_up_names_are_no_labels(self) -> None:
        """However many models a client makes up, there is one series for them."""
        for number in range(3):
            self.ask("all", f"no-{number}")
        self.assertEqual(self.lines(), ['lswap_requests_total{key="",model="",status="404"} 3.0'])

    def test_peers_are_known(self) -> None:
        """A peer's model counts under the name that activity has."""
        self.ask("all", "far/b")
        self.lswap.turn()
        self.assertEqual(self.lines(), ['lswap_requests_total{key="",model="far/b",status="502"} 1.0'])


class PerformanceTests(MetricsCase):
    """Figures of the machine."""

    def test_only_while_somebody_looks(self) -> None:
        """One sample a period; none long after the last look."""
        taken: list[bool] = []

        def read(first: bool) -> Any:
            taken.append(first)
            return {"timestamp": "2026-01-01T00:00:00Z"}, []

        self.watch(read)
        self.assertEqual(taken, [])
        shown = self.get("/api/performance")
        self.assertEqual((shown["enabled"], len(shown["sys_stats"]), shown["gpu_stats"]), (True, 1, None))
        for _ in range(4):
            self.lswap.turn(5)
        self.assertEqual(taken, [True, False, False, False, False])
        self.assertEqual(self.get("/api/performance?after=2026-01-01T00:00:00Z")["sys_stats"], [])
        for _ in range(200):
            self.lswap.turn(5)
        self.assertLess(len(taken), 45)
        self.assertIn("after", self.get("/api/performance?after=x")["error"]["message"])

    def test_sample_that_never_comes(self) -> None:
        """The first one to look waits a moment, others not at all; nobody asks a driver that hangs twice."""
        asked: list[Deferred[Any]] = []

        def never(*_: Any) -> Deferred[Any]:
            asked.append(Deferred())
            return asked[-1]

        self.lswap.service.monitor._in_thread = never
        self.watch()
        self.client.send("GET", "/metrics", headers=KEY)
        self.lswap.turn(1)
        self.assertEqual(self.client.take(), b"")
        self.lswap.turn(1)
        self.assertEqual(self.client.read().status, 200)
        self.lswap.turn(60)
        self.assertEqual(self.client.ask("GET", "/metrics", headers=KEY).status, 200)
        self.assertEqual(len(asked), 1)

    def test_many_samples(self) -> None:
        """An hour of a large machine is one JSON text like any other, and made in a thread."""
        gpus = [{"timestamp": SYSTEM["timestamp"], "id": at, "name": "<X>", "uuid": ""} for at in range(8)]
        self.watch(lambda first: (SYSTEM, gpus))
        threads: list[str] = []
        pool = self.lswap.reactor.getThreadPool()
        inner = type(pool).callInThreadWithCallback

        def counted(pool: Any, told: Any, function: Any, *args: Any, **more: Any) -> None:
            threads.append(function.__name__)
            inner(pool, told, function, *args, **more)

        self.patch(type(pool), "callInThreadWithCallback", counted)
        for _ in range(13):
            found = self.get("/api/performance")
            self.lswap.turn(5)
        self.assertEqual((len(found["sys_stats"]), len(found["gpu_stats"])), (13, 104))
        self.assertEqual(found["gpu_stats"][-1], {"vram_temp_c": 0, **gpus[-1]})
        self.assertEqual(threads.count("_encoded"), 2)  # of 108 and 117 samples
        found = self.get("/api/performance?after=2026-01-01T00:00:00Z")
        self.assertEqual((found["sys_stats"], found["gpu_stats"]), ([], []))

    def test_hardware_that_cannot_be_told(self) -> None:
        """An error, at once or after a while; never an answer that does not come."""
        self.patch(performance, "detect", lambda: 1 / 0)
        self.assertEqual(self.lswap.get("/api/hardware", KEY).status, 503)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(performance, "detect", lambda: {"cpu": 1})
        self.assertEqual(self.get("/api/hardware"), {"cpu": 1})
        self.patch(performance, "detect", lambda: {"cpu": 2})
        self.assertEqual(self.get("/api/hardware"), {"cpu": 1})
        self.patch(LswapService, "_in_thread", lambda *_: Deferred())
        lswap = MemoryLswap(CONFIG)
        client = lswap.client()
        client.send("GET", "/api/hardware", headers=KEY)
        lswap.turn(9)
        self.assertEqual(client.take(), b"")
        lswap.turn(2)
        self.assertEqual(client.read().status, 503)

    def test_switched_off(self) -> None:
        """503."""
        self.assertEqual(self.get("/api/performance"), {"enabled": False})
        self.assertEqual(self.lswap.get("/metrics", KEY).status, 503)
