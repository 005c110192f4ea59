"""What clients and operators see of hooks and sleep: answers, `/running`, events, figures, the loading stream."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.hooks import Reason
from lswap.service.figures import HookFigures
from lswap.web.loading import TICK
from lswap.web.performance import exposition
from tests.memory import MemoryClient, MemoryLswap, config_of
from tests.service.test_fleet import model, models
from tests.stand_in import FakeGroup

HOOKS = "on_will_start: {cmd: will, onError: abort}, on_startup: {cmd: up}, on_will_stop: {cmd: part}, "
A = model("a", HOOKS + "on_stopped: {cmd: gone}, sendLoadingState: true")
SLEEPY = model("a", "sleep: {sleep: {cmd: zzz}, wake: {cmd: rise}, maxAsleep: 1h}, ttl: 60")


class HookCase(SynchronousTestCase):
    """lswap, and commands that a test ends."""

    def start(self, *lines: str) -> None:
        """Begin."""
        self.lswap = MemoryLswap(models(*lines))
        self.told: list[dict[str, Any]] = []
        self.lswap.service.bus.subscribe(lambda kind, data: self.told.append(data) if kind == "hook" else None)

    def ask(self, name: str, stream: bool = False) -> MemoryClient:
        """A client."""
        client = self.lswap.client()
        body = json.dumps({"model": name, "stream": stream}).encode()
        client.send("POST", "/v1/chat/completions", body, [("Content-Type", "application/json")])
        self.lswap.turn()
        return client

    def hook(self, word: str) -> FakeGroup:
        """The last command with this word."""
        found = [group for group in self.lswap.processes.groups if group.words[0] == word]
        self.assertTrue(found, word)
        return found[-1]

    def end(self, word: str, code: int = 0) -> None:
        """It ends."""
        self.hook(word).end(code)
        self.lswap.turn()

    def served(self, name: str) -> None:
        """Load a model and have a request served."""
        client = self.ask(name)
        self.lswap.models[name].says = b"{}"
        for request in self.lswap.models[name].requests:
            request.answer(200, b"{}")
        self.lswap.turn()
        self.assertEqual(client.read().status, 200)
        client.leave()

    def running(self) -> list[dict[str, Any]]:
        """What `/running` says."""
        rows: list[dict[str, Any]] = json.loads(self.lswap.get("/running").body)["running"]
        return rows


class HookTests(HookCase):
    """Hooks."""

    def test_aborted_start(self) -> None:
        """502, with event, action and what went wrong; the next request tries again."""
        self.start(A)
        client = self.ask("a")
        self.end("will", 7)
        answer = client.read()
        self.assertEqual(answer.status, 502)
        self.assertEqual(json.loads(answer.body)["error"]["message"], "on_will_start: cmd will: exit code 7")
        self.end("gone")
        self.ask("a")
        self.assertEqual(len([group for group in self.lswap.processes.groups if group.words[0] == "will"]), 2)

    def test_client_that_leaves(self) -> None:
        """Another one is served by the same start."""
        self.start(A)
        leaver = self.ask("a")
        self.end("will")
        leaver.leave()
        stayer = self.ask("a")
        self.end("up")
        self.lswap.models["a"].request.answer(200, b"{}")
        self.lswap.turn()
        self.assertEqual(stayer.read().status, 200)
        self.assertEqual(len(self.lswap.models["a"].groups), 1)

    def test_running(self) -> None:
        """What goes on, and for how long; nothing of the kind when nothing does."""
        self.start(A)
        self.ask("a")
        self.lswap.turn(1.5)
        (row,) = self.running()
        self.assertEqual(row["state"], "starting")
        self.assertEqual(row["doing"], {"event": "on_will_start", "action": "cmd will", "seconds": 1.5})
        self.end("will")
        self.end("up")
        (row,) = self.running()
        self.assertNotIn("doing", row)

    def test_events(self) -> None:
        """At the beginning, and with time and outcome at the end."""
        self.start(A)
        self.ask("a")
        begun = {"model": "a", "event": "on_will_start", "action": "cmd will"}
        self.assertEqual(self.told, [begun])
        self.lswap.turn(2)
        self.end("will", 1)
        self.assertEqual(self.told[1], begun | {"seconds": 2.0, "outcome": "failed"})

    def test_loading_stream(self) -> None:
        """The client is told each event by its name, once."""
        self.start(A)
        client = self.ask("a", stream=True)
        self.lswap.turn(TICK)
        self.lswap.turn(TICK)
        said = client.take().decode()
        self.assertEqual(said.count("on_will_start"), 1)
        self.end("will")
        self.lswap.turn(TICK)
        self.assertIn("on_startup", client.take().decode())

    def test_figures(self) -> None:
        """By model, event and outcome; a model that a reload removed is forgotten."""
        self.start(A)
        figures = self.lswap.service._hook_figures
        self.assertEqual(exposition(figures), b"")
        self.ask("a")
        self.lswap.turn(2)
        self.end("will")
        text = exposition(figures).decode()
        labels = '{event="on_will_start",model="a",outcome="ok"}'
        self.assertIn(f"lswap_hook_seconds_count{labels} 1.0", text)
        self.assertIn(f"lswap_hook_seconds_sum{labels} 2.0", text)
        figures.retain(["b"])
        self.assertEqual(exposition(figures), b"")
        self.assertEqual(list(HookFigures().collect()), [])

    def test_reason_of_a_start(self) -> None:
        """A preload, unless a client waits as well by the time it begins."""
        for clients, reason in ((0, "preload"), (1, "request")):
            self.start(A, model("b"))
            busy = self.ask("b")
            self.lswap.router.acquire("a", reason=Reason.PRELOAD)
            for _ in range(clients):
                self.ask("a")
            self.lswap.models["b"].request.answer(200, b"{}")
            self.lswap.turn()
            busy.read()
            self.assertEqual(self.hook("will").environment["LSWAP_REASON"], reason)

    def reason(self) -> str:
        """What on_stopped was told."""
        return self.hook("gone").environment["LSWAP_REASON"]

    def test_reason_of_an_end(self) -> None:
        """Whoever ended it, also while it was loading; one that a reload changed goes for itself."""
        self.start(A)
        self.ask("a")
        self.lswap.router.unload(("a",))
        self.lswap.turn()
        self.assertEqual(self.reason(), "unload")
        self.start(A)
        self.ask("a")
        self.lswap.router.shut_down()
        self.lswap.turn()
        self.assertEqual(self.reason(), "shutdown")
        self.start(A, model("b"))
        self.ask("a").leave()
        self.ask("b")
        self.assertEqual(self.reason(), "swap")
        self.start(A)
        self.ask("a")
        self.end("will")
        self.end("up")
        changed = config_of(models(A.replace("--name", "--new --name"))).config
        assert changed is not None
        self.lswap.service.fleet.take_over(changed)
        self.ask("a")
        self.lswap.models["a"].request.answer(200, b"{}")
        self.lswap.turn()
        self.assertEqual(self.hook("part").environment["LSWAP_REASON"], "reload")
        self.assertEqual(self.hook("part").environment["LSWAP_OTHER"], "")


class SleepTests(HookCase):
    """Sleep."""

    def test_eviction_and_back(self) -> None:
        """The other waits until it sleeps; it wakes for the next request, with the same process."""
        self.start(SLEEPY, model("b"))
        self.served("a")
        other = self.ask("b")
        self.assertEqual([row["state"] for row in self.running()], ["sleeping"])
        self.assertEqual(self.running()[0]["doing"]["event"], "sleep")
        self.assertEqual(self.hook("zzz").environment["LSWAP_OTHER"], "b")
        self.assertEqual(self.lswap.models["b"].groups, [])
        self.end("zzz")
        self.lswap.models["b"].request.answer(200, b"{}")
        self.lswap.turn()
        self.assertEqual(other.read().status, 200)
        self.assertEqual([(row["model"], row["state"]) for row in self.running()], [("a", "asleep"), ("b", "ready")])
        back = self.ask("a")
        self.assertEqual(self.lswap.running(), {"a": "waking"})
        self.end("rise")
        self.assertEqual(back.read().status, 200)
        self.assertEqual(len(self.lswap.models["a"].groups), 1)

    def test_idle_time(self) -> None:
        """It falls asleep, and stays so."""
        self.start(SLEEPY)
        self.served("a")
        self.lswap.turn(60)
        self.assertEqual(self.hook("zzz").environment["LSWAP_REASON"], "ttl")
        self.end("zzz")
        self.lswap.turn(1000)
        self.assertEqual(self.lswap.running(), {"a": "asleep"})

    def test_unload_by_hand(self) -> None:
        """It is stopped."""
        self.start(SLEEPY)
        self.served("a")
        client = self.lswap.client()
        client.send("POST", "/api/models/unload/a")
        self.lswap.turn()
        self.assertEqual(client.read().status, 200)
        self.assertEqual(self.lswap.running(), {})

    def test_wake_that_nobody_waits_for(self) -> None:
        """It goes on, and the model is put to sleep again for the next one."""
        self.start(SLEEPY, model("b"))
        self.served("a")
        other = self.ask("b")
        self.end("zzz")
        self.lswap.models["b"].request.answer(200, b"{}")
        self.lswap.turn()
        other.read()
        leaver = self.ask("a")
        self.ask("b")
        leaver.leave()
        self.lswap.turn()
        self.assertEqual(self.lswap.running(), {"a": "waking"})
        self.end("rise")
        self.end("zzz")
        self.assertEqual(self.lswap.running(), {"a": "asleep", "b": "ready"})
        self.assertEqual(len(self.lswap.models["a"].groups), 1)

    def test_listing(self) -> None:
        """Asleep it has no memory to speak of, so it does not count as loaded."""
        self.start(SLEEPY)
        self.served("a")
        self.lswap.turn(60)
        status = self.lswap.service.fleet.children["a"].state.value
        self.assertEqual((status, self.status()), ("sleeping", "loaded"))
        self.end("zzz")
        self.assertEqual(self.status(), "unloaded")

    def status(self) -> str:
        """What `/v1/models` says of it."""
        (record,) = json.loads(self.lswap.get("/v1/models").body)["data"]
        return str(record["status"]["value"])
