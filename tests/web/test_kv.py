"""What a whole lswap shows of kept KV caches: `/running`, and the check of answers. In memory, with real files."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.web.exposition import exposition
from tests.memory import MemoryLswap, config_of
from tests.slot_server import SlotServer
from tests.stand_in import Served


class KvCase(SynchronousTestCase):
    """`a` keeps its caches, `b` is in its way."""

    def setUp(self) -> None:
        """Nothing was saved yet."""
        self.folder = pathlib.Path(self.mktemp()).resolve()
        self.lswap = MemoryLswap(
            "models:\n"
            "  a:\n"
            "    cmd: llama-server --port ${PORT}\n"
            f"    kvCache: {{persist: true, dir: {self.folder}, minTokens: 1}}\n"
            "  b: {cmd: 'server --port ${PORT}'}\n"
        )
        self.client = self.lswap.client()
        self.server = SlotServer(self.lswap.models["a"])
        self.server.others = self.answer
        self.cached: int | None = 0
        self.streamed = False

    def answer(self, request: Served) -> None:
        """What the model says."""
        timings = {"prompt_n": 5, "predicted_n": 5, **({} if self.cached is None else {"cache_n": self.cached})}
        body = json.dumps({"choices": [], "timings": timings}).encode()
        if self.streamed:
            request.answer(200, b"data: " + body + b"\n\ndata: [DONE]\n\n", [("Content-Type", "text/event-stream")])
        else:
            request.answer(200, body, [("Content-Type", "application/json")])

    def turn(self) -> None:
        """Let the server work until there is nothing to do."""
        for _ in range(6):
            self.lswap.turn(0.1)
            folders = list(self.folder.glob("*"))
            self.server.folder = str(folders[0]) if folders else ""
            while self.server.work():
                self.lswap.turn()

    def use(self) -> None:
        """A request for `a`, after which its slot holds something."""
        self.client.send("POST", "/v1/chat/completions", b'{"model": "a"}', [("Content-Type", "application/json")])
        self.turn()
        self.assertEqual(self.client.read().status, 200)
        self.server.slots[0] = 100

    def away(self) -> None:
        """`a` is unloaded."""
        self.client.send("POST", "/api/models/unload/a")
        self.turn()
        self.assertEqual(self.client.read().status, 200)

    def shown(self) -> dict[str, Any]:
        """What `/running` says."""
        (row,) = json.loads(self.client.ask("GET", "/running").body)["running"]
        found: dict[str, Any] = row
        return found


class RunningTests(KvCase):
    """State and reason."""

    def test_on_then_off(self) -> None:
        """Two restores without effect switch it off; the reason is told."""
        self.use()
        self.assertEqual(self.shown()["kvCache"], {"state": "on", "reason": ""})
        for streamed in (False, True):
            self.away()
            self.assertEqual(self.server.calls[-1], "save 0")
            self.streamed = streamed
            self.use()
            self.assertEqual(self.server.calls[-1], "restore 0")
        shown = self.shown()["kvCache"]
        self.assertEqual(shown["state"], "off")
        self.assertIn("two restores", shown["reason"])

    def test_answers_that_tell_nothing(self) -> None:
        """Say nothing against it."""
        self.use()
        self.cached = None
        for _ in range(3):
            self.away()
            self.use()
        self.assertEqual(self.shown()["kvCache"]["state"], "on")

    def test_reload_that_switches_it_off(self) -> None:
        """Nothing is saved any more, and the figures are gone."""
        self.use()
        self.assertIn("lswap_kv", exposition(self.lswap.service.kv.figures).decode())
        config = config_of("models: {a: {cmd: 'llama-server --port ${PORT}'}}").config
        assert config is not None
        self.lswap.service._take_over(config)
        self.assertEqual(exposition(self.lswap.service.kv.figures), b"")
        self.away()
        self.assertNotIn("save 0", self.server.calls)

    def test_models_without(self) -> None:
        """Have no such member."""
        self.lswap.ready("b")
        self.assertNotIn("kvCache", self.shown())
