"""`/api/plan` and `/api/queue` (`lswap.web.plan`)."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.memory import MemoryClient, MemoryLswap

MODELS = """
models:
  a: {cmd: "server --port ${PORT}", aliases: [also-a]}
  org/b: {cmd: "server --port ${PORT}", concurrencyLimit: 1}
  c: {cmd: "server --port ${PORT}"}
"""


class PlanCase(SynchronousTestCase):
    """Three models that exclude each other."""

    def setUp(self) -> None:
        """Nothing runs."""
        self.lswap = MemoryLswap(MODELS)

    def plan(self, query: str, status: int = 200) -> Any:
        """The answer."""
        answer = self.lswap.get(f"/api/plan?{query}")
        self.assertEqual(answer.status, status)
        return json.loads(answer.body)

    def busy(self, name: str) -> MemoryClient:
        """A client whose request this model is at."""
        client = self.lswap.client()
        client.chat(name)
        return client


class PlanTests(PlanCase):
    """What would happen; nothing does."""

    def test_stopped(self) -> None:
        """It would be started at once; and is not."""
        wanted = {"model": "a", "state": "stopped", "would": "start", "unload": [], "waitsFor": [], "ahead": 0}
        self.assertEqual(self.plan("model=a"), wanted)
        self.lswap.turn(5)
        self.assertEqual((self.lswap.running(), self.lswap.leftovers()), ({}, []))

    def test_ready(self) -> None:
        """It would be let through; by an alias as well, and with an escaped name."""
        self.lswap.ready("a")
        found = self.plan("x=y&model=also%2Da")
        self.assertEqual((found["model"], found["state"], found["would"]), ("also-a", "ready", "serve"))
        self.assertEqual(self.plan("model=org/b")["would"], self.plan("model=org%2Fb")["would"])

    def test_unload(self) -> None:
        """An idle model would go, for a reason."""
        self.lswap.ready("a")
        (row,) = self.plan("model=c")["unload"]
        self.assertEqual(row["model"], "a")
        self.assertTrue(row["why"])

    def test_wait(self) -> None:
        """A busy one is waited for; those who came before are counted."""
        self.busy("a")
        self.busy("c")
        found = self.plan("model=org/b")
        self.assertEqual(
            (found["would"], found["waitsFor"], found["ahead"]), ("wait", [{"model": "a", "inflight": 1}], 1)
        )

    def test_refuse(self) -> None:
        """The reason is told."""
        self.busy("org/b")
        found = self.plan("model=org/b")
        self.assertEqual((found["would"], found["refusal"]), ("refuse", "concurrency limit"))

    def test_bad_questions(self) -> None:
        """A name that nobody has, and none at all."""
        self.assertEqual(self.plan("model=nobody", 404)["error"]["message"], "model not found")
        for query in ("", "model=", "other=a"):
            self.assertIn("/api/plan?model=", self.plan(query, 400)["error"]["message"])


class QueueTests(PlanCase):
    """Who waits."""

    def queue(self) -> Any:
        """The rows."""
        return json.loads(self.lswap.get("/api/queue").body)["queue"]

    def test_queue(self) -> None:
        """In order, with places, ages and reasons; who leaves is not in it any more."""
        self.assertEqual(self.queue(), [])
        self.busy("a")
        leaver = self.busy("c")
        self.lswap.turn(2)
        self.busy("org/b")
        self.lswap.turn(1.5)
        wanted = [
            {"model": "c", "position": 1, "age": 3.5, "waitsFor": ["a"]},
            {"model": "org/b", "position": 2, "age": 1.5, "waitsFor": ["a"]},
        ]
        self.assertEqual(self.queue(), wanted)
        leaver.leave()
        self.assertEqual([row["position"] for row in self.queue()], [1])
