"""`POST /api/config/reload`, from the file to the answer (`lswap.web.admin`, `lswap.app`)."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.memory import MemoryLswap

A = "models:\n  a: {cmd: 'server --port ${PORT}', aliases: [x]}\n"
B = "  b: {cmd: 'server --port ${PORT}'}\n"


class ReloadTests(SynchronousTestCase):
    """A file, and a server that was started from it."""

    def setUp(self) -> None:
        """One model."""
        self.path = pathlib.Path(self.mktemp())
        self.path.write_text(A)
        self.lswap = MemoryLswap(A, path=str(self.path))

    def reload(self, text: str, status: int = 200) -> Any:
        """Write it anew, and load it."""
        self.path.write_text(text)
        answer = self.lswap.client().ask("POST", "/api/config/reload")
        self.assertEqual(answer.status, status, answer)
        return json.loads(answer.body)

    def listed(self) -> list[str]:
        """The IDs of all models."""
        return [row["id"] for row in json.loads(self.lswap.get("/v1/models").body)["data"]]

    def test_difference(self) -> None:
        """All IDs, each in one list; what is new can be asked for, what is gone cannot."""
        self.lswap.ready("a")
        wanted = {"changed": [], "added": ["b"], "removed": [], "kept": ["a"]}
        self.assertEqual(self.reload(A + B), wanted)
        self.assertEqual((self.listed(), self.lswap.running()), (["a", "b"], {"a": "ready"}))
        self.assertEqual(self.reload("models:\n" + B)["removed"], ["a"])
        client = self.lswap.client()
        client.chat("a")
        self.assertEqual((client.read().status, self.lswap.running()), (404, {}))

    def test_refused(self) -> None:
        """All problems with their places; everything is as before."""
        self.lswap.ready("a")
        error = self.reload("models:\n  a: {cmd: 'server ${PORT}', ttl: soon}\n  c: {}\n", 422)["error"]
        self.assertIn("failed to reload config", error["message"])
        self.assertEqual({problem["line"] for problem in error["problems"]}, {2, 3})
        for problem in error["problems"]:
            self.assertEqual(set(problem), {"file", "line", "column", "path", "message", "hint"})
        self.assertEqual((self.listed(), self.lswap.running()), (["a"], {"a": "ready"}))

    def test_no_file(self) -> None:
        """A file that cannot be read is a problem like others."""
        self.path.unlink()
        answer = self.lswap.client().ask("POST", "/api/config/reload")
        self.assertEqual(answer.status, 422)
        self.assertEqual(len(json.loads(answer.body)["error"]["problems"]), 1)

    def test_waiting_request(self) -> None:
        """A request whose name is gone is answered with 404; one in flight is answered by its model."""
        busy, waiting = self.lswap.client(), self.lswap.client()
        self.reload(A + B)
        busy.chat("a")
        waiting.chat("b")
        self.reload(A)
        self.assertEqual(waiting.read().status, 404)
        self.lswap.models["a"].request.answer(200, b"done")
        self.assertEqual(busy.read().body, b"done")
        self.assertEqual(self.lswap.leftovers(), [])

    def test_who_looks_on_does_not_notice(self) -> None:
        """Streams of events and logs go on, captures and rows stay, numbers of requests are not given twice."""
        events, log = self.lswap.client(), self.lswap.client()
        events.send("GET", "/api/events")
        log.send("GET", "/logs/stream")
        self.lswap.ready("a")
        self.reload(A + B)
        events.take()
        log.take()
        self.lswap.models["a"].says = b"{}"
        self.lswap.client().chat("a")
        self.lswap.turn()
        self.assertIn(rb"\"operation\":\"upsert\"", events.take())
        self.assertFalse(events.closed)
        self.lswap.logs.combined.write(b"still there\n")
        self.assertIn(b"still there", log.take())
        rows = json.loads(self.lswap.get("/api/metrics/activity").body)["data"]
        self.assertEqual([(row["id"], row["has_capture"]) for row in rows], [(2, True), (1, True)])
        waiting = self.lswap.client()
        self.lswap.models["a"].says = None
        waiting.chat("a")
        self.assertEqual([exchange.id for exchange in self.lswap.inflight.listed()], [3])

    def test_key_and_a_name_that_moved(self) -> None:
        """A request that waits is not led to a model that its key does not allow."""
        keys = "apiKeys: [{name: k, key: sk-one, models: [a, c]}, {name: admin, key: sk-all}]\n"
        models = "models:\n  a: {{cmd: 's ${{PORT}}', aliases: [{}]}}\n  b: {{cmd: 's ${{PORT}}', aliases: [{}]}}\n"
        rest = "  c: {cmd: 's ${PORT}'}\n"
        before, after = keys + models.format("x", "y") + rest, keys + models.format("y", "x") + rest
        self.path.write_text(before)
        self.lswap = MemoryLswap(before, path=str(self.path))
        mine, everything = [("Authorization", "Bearer sk-one")], [("Authorization", "Bearer sk-all")]
        busy, waiting = self.lswap.client(), self.lswap.client()
        busy.chat("c", mine)
        waiting.chat("x", mine)
        self.path.write_text(after)
        answer = self.lswap.client().ask("POST", "/api/config/reload", headers=everything)
        self.assertEqual(answer.status, 200)
        self.lswap.models["c"].request.answer(200, b"")
        self.lswap.turn()
        self.assertEqual(waiting.read().status, 403)
        self.assertEqual((self.lswap.leftovers(), self.lswap.models["b"].requests), ([], []))
        busy.leave()

    def test_while_stopping(self) -> None:
        """Whoever asks at the end of lswap is answered at once."""
        self.lswap.service.reloader.stop()
        error = self.reload(A + B, 422)["error"]
        self.assertIn("shutting down", error["problems"][0]["message"])

    def test_a_thousand_models(self) -> None:
        """One of a thousand changed: one process is touched."""
        models = "".join(
            f"  m{number}: {{cmd: 'server --port ${{PORT}}', cmdStop: 'kill ${{PID}}'}}\n" for number in range(1000)
        )
        text = f"groups: {{g: {{swap: false, members: [m1, m2, m3]}}}}\nmodels:\n{models}"
        self.path.write_text(text)
        self.lswap = MemoryLswap(text, path=str(self.path))
        self.lswap.ready("m1", "m2", "m3")
        answer = self.reload(text.replace("m2: {cmd: 'server", "m2: {cmd: 'other"))
        self.assertEqual((answer["changed"], len(answer["kept"])), (["m2"], 999))
        self.assertEqual(self.lswap.running(), {"m1": "ready", "m3": "ready"})
        self.assertEqual([len(self.lswap.models[name].groups[0].stops) for name in ("m1", "m2", "m3")], [0, 1, 0])
