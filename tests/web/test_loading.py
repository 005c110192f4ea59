"""The loading stream: what a chat client sees while its model loads (`lswap.web.loading`)."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from twisted.trial.unittest import SynchronousTestCase

from lswap.web.loading import TICK, as_event, delta, error_events, wants_loading
from tests.memory import Answer, MemoryClient, MemoryLswap, config_of

MODELS = """
sendLoadingState: true
models:
  a: {cmd: "server --port ${PORT}", aliases: [x]}
  b: {cmd: "server --port ${PORT}"}
  quiet: {cmd: "server --port ${PORT}", sendLoadingState: false}
"""
EVENTS = [("Content-Type", "text/event-stream")]
JSON = [("Content-Type", "application/json")]
START = ["\u2501" * 5 + "\n", "llama-swap loading model: a\n"]
END = ["\u2501" * 5 + "\n", " \n"]


def texts(body: bytes) -> list[str]:
    """The pieces of text that a chat client shows while a model thinks."""
    found = []
    for event in body.decode().split("\n\n"):
        if event.startswith('data: {"choices":[{"delta":{"reasoning_content"'):
            found.append(json.loads(event.removeprefix("data: "))["choices"][0]["delta"]["reasoning_content"])
    return found


class LoadingCase(SynchronousTestCase):
    """Models that load until the test lets them."""

    def setUp(self) -> None:
        """Nobody runs."""
        self.lswap = MemoryLswap(MODELS)
        for model in self.lswap.models.values():
            model.health = None

    def ask(self, name: str = "a", path: str = "/v1/chat/completions", more: str = ', "stream": true',
            version: str = "1.1", headers: list[tuple[str, str]] | None = None) -> MemoryClient:  # fmt: skip
        """A chat client."""
        client = self.lswap.client()
        client.send("POST", path, f'{{"model": "{name}"{more}}}'.encode(), [*JSON, *(headers or [])], version)
        self.lswap.turn()
        return client

    def up(self, name: str = "a") -> None:
        """The model is ready."""
        self.lswap.models[name].health = 200
        self.lswap.models[name].checks[-1].answer(200)
        self.lswap.turn(1)

    def taken(self, client: MemoryClient) -> list[str]:
        """The texts that have come since the last call."""
        data = client.take()
        if data.startswith(b"HTTP/"):
            data = data.partition(b"\r\n\r\n")[2]
        return texts(re.sub(rb"(?:\A|\r\n)[0-9a-f]+\r\n", b"", data))

    def held(self) -> list[str]:
        """What is held for clients: a load for nobody may go on."""
        return [what for what in self.lswap.leftovers() if not what.startswith("swap")]


class StreamTests(LoadingCase):
    """From the head to the model's own words."""

    def test_whole(self) -> None:
        """Head, first words, signs of life, closing words, then the model's events in the same body."""
        client = self.ask()
        early = client.take()
        self.assertTrue(early.startswith(b"HTTP/1.1 200 OK\r\n"))
        client.received = early
        self.lswap.turn(TICK)
        self.up()
        self.lswap.models["a"].request.answer(200, b"data: hello\n\ndata: [DONE]\n\n", EVENTS)
        self.lswap.turn()
        answer = client.read()
        self.assertEqual((answer.status, answer.complete), (200, True))
        self.assertEqual(answer.header("Content-Type"), "text/event-stream")
        self.assertEqual(answer.header("X-Accel-Buffering"), "no")
        said = texts(answer.body)
        self.assertEqual((said[:2], said[-2:]), (START, END))
        self.assertRegex(said[-3], r"^Done! \(\d+\.\d\ds\)\n$")
        self.assertTrue(answer.body.endswith(b"data: hello\n\ndata: [DONE]\n\n"))
        self.assertEqual(self.lswap.leftovers(), [])

    def test_next_request(self) -> None:
        """The connection serves on."""
        client = self.ask()
        self.up()
        self.lswap.models["a"].request.answer(200, b"data: 1\n\n", EVENTS)
        client.read()
        client.chat("a")
        self.lswap.models["a"].request.answer(200, b"plain")
        self.assertEqual(client.read().body, b"plain")

    def test_signs_of_life(self) -> None:
        """One each 0.75 s: a remark first, then dots, and another remark after 5 to 9 seconds."""
        client = self.ask()
        self.taken(client)
        ticks = []
        for _ in range(100):
            self.lswap.turn(TICK)
            ticks.append(self.taken(client))
        remarks = [number for number, tick in enumerate(ticks) if tick != ["."]]
        self.assertEqual(remarks[0], 0)
        self.assertGreaterEqual(len(remarks), 3)
        for number in remarks:
            self.assertEqual((ticks[number][0], ticks[number][2], len(ticks[number])), ("\n", " ", 3))
        for before, after in pairwise(remarks):
            self.assertTrue(5 <= (after - before) * TICK <= 9.1, remarks)
        told = [ticks[number][1] for number in remarks]
        self.assertEqual(len(set(told)), len(told))

    def test_places_in_the_queue(self) -> None:
        """The newest one is told at the next tick, once."""
        self.lswap.models["b"].health = 200
        holder = self.ask("b")
        first = self.lswap.client()
        first.chat("a")
        second = self.ask("a")
        self.taken(second)
        self.lswap.turn(TICK)
        self.assertEqual(self.taken(second), ["\n", "Queue position: #2", " "])
        first.leave()
        self.lswap.turn(TICK)
        self.assertEqual(self.taken(second), ["\n", "Queue position: #1", " "])
        self.lswap.turn(TICK)
        self.assertEqual(self.taken(second), ["."])
        holder.leave()

    def test_http_1_0(self) -> None:
        """Without chunks; the connection ends with the answer."""
        client = self.ask(version="1.0")
        self.up()
        self.lswap.models["a"].request.answer(200, b"data: hello\n\n", EVENTS)
        self.lswap.turn()
        answer = client.read()
        self.assertIsNone(answer.header("Transfer-Encoding"))
        self.assertEqual((texts(answer.body)[:2], answer.complete), (START, True))
        self.assertTrue(answer.body.endswith(b"data: hello\n\n"))

    def test_coding(self) -> None:
        """The server is not asked for a coding: plain text went before."""
        self.ask(headers=[("Accept-Encoding", "gzip"), ("X-Other", "1")])
        self.up()
        request = self.lswap.models["a"].request
        self.assertEqual((request.header("Accept-Encoding"), request.header("X-Other")), (None, "1"))

    def test_client_does_not_read(self) -> None:
        """Nothing piles up for it: it misses the signs of life."""
        client = self.ask()
        client.socket.room = 0
        before = len(client.transport.dataBuffer) + len(client.socket.inbox)
        for _ in range(2000):
            self.lswap.turn(TICK)
            if self.lswap.models["a"].checks:
                self.lswap.models["a"].checks.clear()
        held = (
            len(client.transport.dataBuffer)
            + sum(map(len, client.transport._tempDataBuffer))
            + len(client.socket.inbox)
        )
        self.assertLess(held - before, 200_000)


class WhenTests(LoadingCase):
    """Who gets one."""

    def assert_none(self, client: MemoryClient) -> None:
        """Nothing has come."""
        self.assertEqual(client.take(), b"")

    def test_conditions(self) -> None:
        """Not without `stream`, not for other routes, not where the model does not want it."""
        self.assert_none(self.ask(more=""))
        self.assert_none(self.ask(more=', "stream": false'))
        self.assert_none(self.ask(path="/v1/completions"))
        self.assert_none(self.ask(path="/v/chat/completions"))
        self.assert_none(self.ask("quiet"))
        self.assertNotEqual(self.ask().take(), b"")

    def test_ready(self) -> None:
        """A ready model answers with its own status and headers."""
        self.lswap.models["a"].health = 200
        self.lswap.ready("a")
        client = self.ask()
        self.assert_none(client)
        self.lswap.models["a"].request.answer(418, b"tea")
        self.assertEqual(client.read().status, 418)

    def test_outdated(self) -> None:
        """One that runs by an older configuration has to be loaded: that is told."""
        self.lswap.models["a"].health = 200
        held = self.ask()
        config = config_of(MODELS.replace('a: {cmd: "server', 'a: {cmd: "server --new')).config
        assert config is not None
        self.lswap.service.fleet.take_over(config)
        self.assertEqual(self.taken(self.ask())[:2], START)
        held.leave()

    def test_refused(self) -> None:
        """Who is turned away gets an ordinary error with its status."""
        client = self.ask("nobody")
        self.assertEqual(client.read().status, 404)

    def test_paths(self) -> None:
        """Chat only."""
        self.assertTrue(wants_loading(b"/v1/chat/completions?x=y"))
        self.assertFalse(wants_loading(b"/chat/completions"))


class ErrorTests(LoadingCase):
    """Status 200 is out: an error is an event."""

    def ended(self, client: MemoryClient) -> tuple[Answer, dict[str, object]]:
        """The answer, and the error in its last events."""
        answer = client.read()
        self.assertTrue(answer.complete)
        *_, error, done, rest = answer.body.split(b"\n\n")
        self.assertEqual((done, rest), (b"data: [DONE]", b""))
        found: dict[str, object] = json.loads(error.removeprefix(b"data: "))["error"]
        self.assertEqual(texts(answer.body)[-2:], END)
        self.assertEqual(self.held(), [])
        return answer, found

    def test_start_fails(self) -> None:
        """The reason is told, and the connection serves on."""
        client = self.ask()
        self.lswap.models["a"].group.end(3)
        self.lswap.turn()
        _, error = self.ended(client)
        self.assertIn("exited prematurely", str(error["message"]))
        self.assertEqual(client.ask("GET", "/health").status, 200)

    def test_unloaded(self) -> None:
        """Somebody unloads the model."""
        client = self.ask()
        self.lswap.router.unload(("a",))
        self.lswap.turn()
        self.assertIn("unloaded", str(self.ended(client)[1]["message"]))

    def test_gone_by_a_reload(self) -> None:
        """The model is taken out of the configuration."""
        client = self.ask()
        config = config_of("models: {b: {cmd: 's ${PORT}'}}").config
        assert config is not None
        self.lswap.service.fleet.take_over(config)
        self.lswap.turn()
        self.assertIn("no router", str(self.ended(client)[1]["message"]))

    def test_answer_of_the_server(self) -> None:
        """An error of the model's server keeps its own words; so does JSON that is none."""
        for status, body, wanted in (
            (400, b'{"error": {"message": "too long", "code": 7}}', {"error": {"message": "too long", "code": 7}}),
            (200, b'{"choices": []}', {"choices": []}),
        ):
            client = self.ask()
            if "a" not in self.lswap.running() or self.lswap.running()["a"] != "ready":
                self.up()
            self.lswap.models["a"].request.answer(status, body, JSON)
            self.lswap.turn()
            answer = client.read()
            self.assertEqual(json.loads(answer.body.split(b"\n\n")[-3].removeprefix(b"data: ")), wanted)
            self.lswap.router.unload(("a",))
            self.lswap.turn()
            self.lswap.models["a"].health = None

    def test_client_leaves(self) -> None:
        """The wait ends with it, and nothing ticks on."""
        client = self.ask()
        client.leave()
        self.assertEqual((self.held(), client.gone), ([], True))

    def test_cancelled_by_hand(self) -> None:
        """Through the in-flight list."""
        client = self.ask()
        self.assertEqual(self.lswap.client().ask("POST", "/api/inflight/1/cancel").status, 200)
        self.assertIn("cancelled", str(self.ended(client)[1]["message"]))


class EventTests(SynchronousTestCase):
    """The shapes."""

    def test_delta(self) -> None:
        """No more members than that; characters of HTML are escaped as the reference escapes them."""
        wanted = b'data: {"choices":[{"delta":{"reasoning_content":"\\u003ca\\u003e\\u0026"}}]}\n\n'
        self.assertEqual(delta("<a>&"), wanted)

    def test_error(self) -> None:
        """An event with the error, and the end."""
        event, done, rest = error_events(500, "no", "why").split(b"\n\n")
        self.assertEqual(json.loads(event.removeprefix(b"data: "))["error"]["message"], "no")
        self.assertEqual((done, rest), (b"data: [DONE]", b""))

    def test_what_a_server_says(self) -> None:
        """JSON objects go on; anything else becomes an error, bounded; never an event that breaks the stream."""
        for status, body, wanted in (
            (500, b"plain\n\ntext", "plain\n\ntext"),
            (500, b'{"detail": "x"}', '{"detail": "x"}'),
            (200, b"[1]", "[1]"),
            (204, b"", "the model's server answered 204"),
            (500, b"\xff\xfe", "\ufffd\ufffd"),
            (500, b"[" * 100_000, "[" * 2000),
        ):
            event, done, rest = as_event(status, body).split(b"\n\n")
            self.assertEqual(json.loads(event.removeprefix(b"data: "))["error"]["message"], wanted)
            self.assertEqual((done, rest), (b"data: [DONE]", b""))
        self.assertEqual(as_event(400, b'{"error":\n\n"x"}'), b'data: {"error":"x"}\n\ndata: [DONE]\n\n')
