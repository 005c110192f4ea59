"""What is really decided is logged, at debug, in the very shape of a plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.memory import MemoryLswap, config_of

MODELS = """
logLevel: debug
models:
  a: {cmd: "server --port ${PORT}", aliases: [also-a], concurrencyLimit: 2}
  b: {cmd: "server --port ${PORT}"}
  c: {cmd: "server --port ${PORT}"}
"""


class DecisionTests(SynchronousTestCase):
    """Three models that exclude each other."""

    def setUp(self) -> None:
        """Nothing runs, decisions are logged."""
        self.lswap = MemoryLswap(MODELS)
        self.lswap.router.explain(True)

    def ask(self, name: str) -> list[Any]:
        """What is logged of a request that comes now, after it was planned."""
        planned = json.loads(self.lswap.get(f"/api/plan?model={name}").body)
        with capturedLogs() as events:
            client = self.lswap.client()
            client.chat(name)
        taken = self.taken(events)
        self.assertEqual(taken[0], planned)
        return taken

    def taken(self, events: Sequence[dict[str, Any]]) -> list[Any]:
        """The decisions among these events."""
        found = [event for event in events if event.get("record")]
        self.assertEqual({event["log_level"] for event in found} - {LogLevel.debug}, set())
        return [json.loads(event["record"]) for event in found]

    def test_each_kind(self) -> None:
        """To start, to join, to wait, to refuse, to serve: the record says what the plan said."""
        self.lswap.models["a"].health = 503
        self.assertEqual(self.ask("a")[0]["would"], "start")
        self.assertEqual(self.ask("also-a")[0]["model"], "also-a")
        self.assertEqual(self.ask("a")[0]["refusal"], "concurrency limit")
        self.assertEqual(self.ask("b")[0]["waitsFor"], [{"model": "a", "inflight": 0}])
        self.lswap.models["a"].health = 200
        self.lswap.turn(1)
        self.assertEqual(self.ask("c")[0]["ahead"], 1)

    def test_served(self) -> None:
        """Also where nothing has to be done."""
        self.lswap.ready("b")
        self.assertEqual(self.ask("b")[0]["would"], "serve")

    def test_victims_with_reasons(self) -> None:
        """What is unloaded, and why."""
        self.lswap.ready("b")
        ((victim,),) = [record["unload"] for record in self.ask("c")]
        self.assertEqual((victim["model"], bool(victim["why"])), ("b", True))

    def test_after_waiting(self) -> None:
        """Who has waited is told again when it goes on; `ahead` counts those that came before it."""
        router = self.lswap.router
        held = router.acquire("a")
        self.lswap.turn()
        router.acquire("b")
        router.acquire("c")
        with capturedLogs() as events:
            self.successResultOf(held).release()
        (record,) = self.taken(events)
        self.assertEqual((record["model"], record["would"], record["ahead"]), ("b", "start", 0))
        self.assertEqual([victim["model"] for victim in record["unload"]], ["a"])

    def test_off(self) -> None:
        """Nothing is made up when nobody wants it."""
        self.lswap.router.explain(False)
        with capturedLogs() as events:
            self.lswap.ready("a")
        self.assertEqual(self.taken(events), [])

    def test_follows_the_log_level(self) -> None:
        """Also over reloads."""
        for level, wanted in (("info", False), ("debug", True), ("warn", False)):
            config = config_of(MODELS.replace("debug", level)).config
            assert config is not None
            self.lswap.service._take_over(config)
            self.assertEqual(self.lswap.scheduler.on_decision is not None, wanted)
