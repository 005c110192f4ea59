"""The road of a request (`lswap.web.road`): every end of it, at every stage, over genuine HTTP in memory."""

from __future__ import annotations

import json
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import ConnectFailed, UpstreamClosed
from lswap.net.body import Body
from lswap.net.connection import Call, Sink
from lswap.net.relay import Relay
from lswap.net.upstream import Upstream
from lswap.service.router import Lease
from lswap.web.request import Request
from tests.memory import Answer, MemoryClient, MemoryLswap, Served, StandIn

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}"}
  b: {cmd: "server --port ${PORT}", concurrencyLimit: 1}
"""


class ForwardCase(SynchronousTestCase):
    """Two models that exclude each other, and a client."""

    def setUp(self) -> None:
        """Nothing runs."""
        self.lswap = MemoryLswap(CONFIG)
        self.client = self.lswap.client()

    @property
    def model(self) -> StandIn:
        """The server of model a."""
        return self.lswap.models["a"]

    def error(self, client: MemoryClient | None = None) -> tuple[int, str, str]:
        """Status, code and message of the error that the client got."""
        answer = (client or self.client).read()
        self.assertTrue(answer.complete, answer)
        error = json.loads(answer.body)["error"]
        return answer.status, error["code"], error["message"]

    def assert_clean(self) -> None:
        """Nothing is held for anybody, and the model can be evicted."""
        self.lswap.turn()
        self.assertEqual(self.lswap.leftovers(), [])
        for model in self.lswap.models.values():
            model.health, model.listens, model.silent, model.says = 200, True, False, b"well"
            model.room = 1 << 30
            for group in model.groups:
                group.obeys = True
        for name in ("b", "a"):
            client = self.lswap.client()
            client.chat(name)
            for _ in range(40):
                self.lswap.turn(0.1)
            self.assertEqual(client.read().body, b"well")
            client.leave()
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.assertEqual(self.lswap.leftovers(), [])


class AnswerTests(ForwardCase):
    """The ordinary course of things."""

    def test_request_and_answer(self) -> None:
        """The request arrives with its headers and its body, the answer comes back with its own."""
        self.client.chat("a", [("X-Mine", "1"), ("Connection", "X-Hop"), ("X-Hop", "1"), ("Expect", "nothing")])
        request = self.model.request
        self.assertEqual(
            (request.method, request.target, request.version), ("POST", "/v1/chat/completions", "HTTP/1.1")
        )
        names = [name for name, _ in request.headers]
        self.assertEqual(names, ["Host", "Content-Type", "X-Mine", "X-Forwarded-For", "Content-Length"])
        self.assertEqual(request.body, b'{"model": "a"}')
        self.assertEqual(len(self.lswap.inflight), 1)
        request.answer(418, b"teapot", [("X-Theirs", "2"), ("Connection", "X-Hop"), ("X-Hop", "1")])
        self.lswap.turn()
        answer = self.client.read()
        self.assertEqual((answer.status, answer.body, answer.header("X-Theirs")), (418, b"teapot", "2"))
        self.assertEqual(answer.header("X-Hop"), None)
        self.assertFalse(self.client.closed)
        self.assert_clean()

    def test_piece_by_piece(self) -> None:
        """Each piece of an answer is there in the turn in which it came."""
        self.client.chat("a")
        request = self.model.request
        request.begin([("Content-Type", "text/event-stream")])
        for piece in (b"data: 1\n\n", b"data: 2\n\n"):
            request.chunk(piece)
            self.lswap.turn()
            self.assertTrue(self.client.take().endswith(piece + b"\r\n"))
        request.chunk(b"")
        self.lswap.turn()
        self.assertEqual(self.client.take(), b"0\r\n\r\n")
        self.assert_clean()

    def test_interim_answer(self) -> None:
        """Early hints are passed on, and the final status is the final one."""
        self.client.chat("a")
        self.model.request.write(b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n")
        self.lswap.turn()
        self.assertEqual(self.client.take(), b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n")
        self.model.request.answer(404)
        self.lswap.turn()
        self.assertEqual(self.client.read().status, 404)
        self.assert_clean()

    def test_cross_origin(self) -> None:
        """An answer of a model has exactly one permission too, whatever the model says, and none unasked."""
        for theirs in ([], [("Access-Control-Allow-Origin", "http://x")], [("access-control-allow-origin", "*")] * 2):
            self.client.chat("a", [("Origin", "http://a.example")])
            self.model.request.answer(200, b"", theirs)
            self.lswap.turn()
            self.assertEqual(self.client.read().all("Access-Control-Allow-Origin"), ["*"])
        self.client.chat("a")
        self.model.request.answer()
        self.lswap.turn()
        self.assertEqual(self.client.read().all("Access-Control-Allow-Origin"), [])

    def test_back_pressure(self) -> None:
        """A client that does not read stops the model's side; nothing piles up here, and all arrives in the end."""
        self.client.chat("a")
        request = self.model.request
        request.begin()
        for _ in range(40):
            request.chunk(b"x" * 100_000)
        self.lswap.turn()
        waiting = len(request._connection.peer.inbox)
        self.assertGreater(waiting, 3_000_000)
        request.chunk(b"")
        self.lswap.turn()
        self.assertEqual(len(self.client.read().body), 4_000_000)
        self.assert_clean()

    def test_list_of_requests(self) -> None:
        """While it goes on, the request is in the list, with what is known of the answer."""
        self.client.chat("a")
        self.assertEqual(self.lswap.inflight.snapshot(0)[0]["model"], "a")
        self.model.request.begin([("X-Theirs", "2")])
        self.model.request.chunk(b"12345")
        self.lswap.turn()
        row = self.lswap.inflight.snapshot(0)[0]
        self.assertEqual((row["resp_headers"]["X-Theirs"], row["resp_bytes"]), ("2", 5))
        self.model.request.chunk(b"")
        self.lswap.turn()
        self.assertEqual(self.lswap.inflight.snapshot(0), [])


class RefusalTests(ForwardCase):
    """Requests that get no model."""

    def test_limit(self) -> None:
        """429 with a time to wait, and always as JSON."""
        self.client.chat("b")
        other = self.lswap.client()
        other.chat("b", [("Accept", "text/plain")])
        answer = other.read()
        self.assertEqual((answer.status, answer.header("Retry-After")), (429, "1"))
        self.assertEqual(answer.header("Content-Type"), "application/json")
        error = json.loads(answer.body)["error"]
        self.assertEqual(
            (error["message"], error["type"], error["code"]),
            ("Too many requests", "rate_limit_error", "concurrency_limit"),
        )
        self.client.leave()
        self.assert_clean()

    def test_full_queue(self) -> None:
        """429 with a time to wait, and a code of its own."""
        self.lswap = MemoryLswap("limits: {queue: 1}\n" + CONFIG)
        self.model.health = 503
        first, second = self.lswap.client(), self.lswap.client()
        first.chat("a")
        second.chat("b")
        answer = second.read()
        self.assertEqual((answer.status, answer.header("Retry-After")), (429, "1"))
        self.assertEqual(json.loads(answer.body)["error"]["code"], "queue_full")
        first.leave()
        self.model.health = 200
        self.lswap.turn(1)
        self.assert_clean()

    def test_failed_start(self) -> None:
        """500 that says why, in the form that the client likes."""
        self.model.health = 503
        self.client.chat("a")
        self.model.group.say(b"out of memory")
        self.model.group.end(7)
        status, code, message = self.error()
        self.assertEqual((status, code), (500, "internal_error"))
        self.assertIn("exit code 7", message)
        self.assertIn("out of memory", message)
        self.model.health = 503
        self.client.chat("a", [("Accept", "text/plain")])
        self.model.group.end(7)
        self.assertTrue(self.client.read().body.startswith(b"llama-swap: upstream command exited"))
        self.assert_clean()

    def test_shutdown(self) -> None:
        """500, also for later requests."""
        self.model.health = 503
        self.client.chat("a")
        self.lswap.router.shut_down()
        self.lswap.turn()
        self.assertEqual(self.error(), (500, "internal_error", "group is shutting down"))
        self.client.chat("b")
        self.assertEqual(self.error()[0], 500)
        self.assertEqual(self.lswap.leftovers(), [])


class BrokenAnswerTests(ForwardCase):
    """Model servers that do not answer as they should."""

    def test_nothing_comes_back(self) -> None:
        """502 that names the model."""
        for break_off in (Served.close, lambda request: request.write(b"garbage\r\n\r\n")):
            self.client.chat("a")
            break_off(self.model.request)
            self.lswap.turn()
            status, code, message = self.error()
            self.assertEqual((status, code), (502, "bad_gateway"))
            self.assertIn("model a", message)
        self.assert_clean()

    def test_cut_in_the_middle(self) -> None:
        """What there was arrives, the answer is cut, and the next request is served."""
        self.client.chat("a")
        self.model.request.begin()
        self.model.request.chunk(b"half")
        self.model.request.close()
        self.lswap.turn()
        answer = self.client.read()
        self.assertEqual((answer.status, answer.body, answer.complete), (200, b"half", False))
        self.assertTrue(self.client.closed)
        self.assert_clean()

    def test_dies_in_the_middle(self) -> None:
        """The same when the whole process ends."""
        self.client.chat("a")
        self.model.request.begin()
        self.model.request.chunk(b"half")
        self.lswap.turn()
        self.model.group.end(None, 11)
        self.lswap.turn()
        self.assertEqual((self.client.read().complete, self.client.closed), (False, True))
        self.assert_clean()

    def test_dies_before_it_answers(self) -> None:
        """502; the request is not sent again, as it may have had an effect."""
        self.client.chat("a")
        self.model.group.end(None, 11)
        self.lswap.turn()
        self.assertEqual(self.error()[0], 502)
        self.assertEqual(len(self.model.requests), 1)
        self.assert_clean()

    def test_answers_before_it_has_all(self) -> None:
        """An answer that comes early is the answer."""
        self.model.room = 100_000
        self.client.send("POST", "/upstream/a/x", b"x" * 3_000_000)
        connection = self.model._connections[-1]
        connection.peer.inbox += b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"
        self.lswap.turn()
        self.assertEqual(self.client.read().status, 413)
        self.assert_clean()


class RefusedConnectionTests(ForwardCase):
    """A ready model whose port refuses connections."""

    def setUp(self) -> None:
        """It does so from now on; the connection that was kept is closed."""
        super().setUp()
        self.lswap.ready("a")
        self.model.shut()
        self.lswap.turn()

    def test_dead(self) -> None:
        """It is dead and nobody has noticed: it is started again, and the request is served."""
        self.client.chat("a")
        self.lswap.turn(0.2)
        self.model.group.end(1)
        self.lswap.turn()
        self.model.request.answer(200, b"again")
        self.lswap.turn()
        self.assertEqual(self.client.read().body, b"again")
        self.assertEqual(len(self.model.groups), 2)
        self.assert_clean()

    def test_dead_with_something_left(self) -> None:
        """The exit of the leader is enough to know; the new start waits until all of it is gone."""
        self.client.chat("a")
        self.model.group.obeys = False
        self.model.group.exit(1)
        self.lswap.turn(5)
        self.assertEqual(len(self.model.groups), 1)
        self.model.group.vanish()
        self.lswap.turn()
        self.model.request.answer(200, b"again")
        self.lswap.turn()
        self.assertEqual(self.client.read().body, b"again")
        self.assert_clean()

    def test_alive(self) -> None:
        """It lives, so it is 502, soon."""
        self.client.chat("a")
        self.lswap.turn(0.25)
        status, _, message = self.error()
        self.assertEqual(status, 502)
        self.assertIn("nothing listens there", message)
        self.model.listen()
        self.assert_clean()

    def test_refused_again(self) -> None:
        """A second refusal is final: nobody is kept waiting for ever."""
        self.lswap = MemoryLswap(CONFIG.replace('PORT}"}', 'PORT}", checkEndpoint: none}', 1))
        self.client = self.lswap.client()
        self.lswap.ready("a")
        self.model.shut()
        self.model.listens = False
        self.lswap.turn()
        self.client.chat("a")
        self.model.group.end(1)
        self.lswap.turn(10)
        self.assertEqual(self.error()[0], 502)
        self.assertEqual(len(self.model.groups), 2)
        self.model.listen()
        self.assert_clean()

    def test_client_leaves_meanwhile(self) -> None:
        """While the news of a death are awaited: nothing is started for it, and nothing is held."""
        self.client.chat("a")
        self.client.leave()
        self.assertEqual(self.lswap.leftovers(), [])
        self.model.group.end(1)
        self.lswap.turn(10)
        self.assertEqual(len(self.model.groups), 1)
        self.assert_clean()

    def test_client_leaves_after_the_death(self) -> None:
        """While the end of the dead one is awaited: nothing is held for it."""
        self.client.chat("a")
        self.model.group.obeys = False
        self.model.group.exit(1)
        self.client.leave()
        self.assertEqual([row for row in self.lswap.leftovers() if not row.startswith("swap")], [])
        self.model.group.vanish()
        self.assert_clean()

    def test_cancelled_meanwhile(self) -> None:
        """503, once."""
        self.client.chat("a")
        self.assertEqual(self.lswap.client().ask("POST", "/api/inflight/2/cancel").status, 200)
        self.assertEqual(self.error()[0], 503)
        self.lswap.turn(10)
        self.assertEqual(self.client.take(), b"")
        self.assertEqual(self.lswap.leftovers(), [])
        self.model.group.end(1)
        self.assert_clean()


class EndTests(ForwardCase):
    """Each way to end, at each stage of a request for model a."""

    #: Who holds model b meanwhile.
    holder: MemoryClient | None = None

    # -- the stages -------------------------------------------------------------

    def in_the_queue(self) -> None:
        """Model b is busy."""
        self.holder = self.lswap.client()
        self.holder.chat("b")
        self.client.chat("a")

    def while_the_victim_ends(self) -> None:
        """Model b was idle, and takes its time to go."""
        self.lswap.ready("b")
        self.lswap.models["b"].group.obeys = False
        self.client.chat("a")

    def while_it_loads(self) -> None:
        """Its health check does not pass yet."""
        self.model.health = 503
        self.client.chat("a")

    def while_it_connects(self) -> None:
        """The port neither takes nor refuses."""
        self.lswap.ready("a")
        for connection in self.model._connections:
            connection.close()
        self.model.silent = True
        self.client.chat("a")

    def before_the_answer(self) -> None:
        """The model works on it."""
        self.client.chat("a")

    def while_it_is_sent(self) -> None:
        """The model takes only a part of a large body."""
        self.model.room = 100_000
        self.client.send("POST", "/upstream/a/x", b"x" * 3_000_000)

    def in_the_answer(self) -> None:
        """A part of it has come."""
        self.client.chat("a")
        self.model.request.begin()
        self.model.request.chunk(b"half")
        self.lswap.turn()

    def in_a_stalled_answer(self) -> None:
        """The client does not read it."""
        self.client.chat("a")
        self.model.request.begin()
        for _ in range(20):
            self.model.request.chunk(b"x" * 100_000)
        self.lswap.turn()

    STAGES = (
        "in_the_queue",
        "while_the_victim_ends",
        "while_it_loads",
        "while_it_connects",
        "before_the_answer",
        "while_it_is_sent",
        "in_the_answer",
        "in_a_stalled_answer",
    )

    def each(self, end: Callable[[MemoryClient], object], look: Callable[[str], object]) -> None:
        """Bring a request to each stage, end it, look; then nothing may be held."""
        for stage in self.STAGES:
            self.setUp()
            self.holder = None
            getattr(self, stage)()
            self.assertEqual(len(self.lswap.inflight), 2 if self.holder else 1, stage)
            end(self.client)
            self.lswap.turn()
            look(stage)
            for served in self.model.requests:
                self.assertTrue(served.aborted, stage)
            if self.holder is not None:
                self.holder.leave()
            for model in self.lswap.models.values():
                for group in model.groups:
                    group.end()
            self.assert_clean()

    def test_client_leaves(self) -> None:
        """Nobody is told anything, and the model is free at once."""

        def look(stage: str) -> None:
            self.assertTrue(self.client.gone, stage)
            held = [row for row in self.lswap.leftovers() if not row.startswith(("b:", "in flight", "swap"))]
            self.assertEqual(held, [], stage)

        self.each(MemoryClient.leave, look)
        self.each(MemoryClient.reset, look)

    def test_cancelled_by_hand(self) -> None:
        """503, or a cut if the answer has begun."""

        def cancel(client: MemoryClient) -> None:
            for row in self.lswap.inflight.snapshot(0):
                if row["model"] == "a":
                    self.lswap.client().ask("POST", f"/api/inflight/{row['id']}/cancel")
            for exchange in list(self.lswap.inflight._all):
                if exchange.model == "a":
                    exchange.cancel()

        def look(stage: str) -> None:
            if stage in ("in_the_answer", "in_a_stalled_answer"):
                self.assert_cut(self.client.read())
            else:
                self.assertEqual(self.error(), (503, "service_unavailable", "the request was cancelled at the server"))

        self.each(cancel, look)

    def test_unloaded(self) -> None:
        """500 for those who waited, 502 for those who were served, or a cut if the answer has begun."""

        def look(stage: str) -> None:
            if stage in ("in_the_answer", "in_a_stalled_answer"):
                self.assert_cut(self.client.read())
            elif stage in ("in_the_queue", "while_the_victim_ends", "while_it_loads"):
                self.assertEqual(self.error(), (500, "internal_error", "group: model unloaded"), stage)
            elif stage == "while_it_connects":
                self.client.leave()
            else:
                self.assertEqual(self.error()[:2], (502, "bad_gateway"), stage)

        self.each(lambda client: self.lswap.router.unload(("a",)), look)

    def assert_cut(self, answer: Answer) -> None:
        """The client sees that it is not whole."""
        self.assertEqual((answer.status, answer.complete), (200, False))
        self.assertTrue(self.client.closed)


class FaultTests(ForwardCase):
    """Bugs of ours cost one request, and are logged with their traceback."""

    def broken(self, *args: object) -> None:
        """A bug."""
        raise RuntimeError("a bug")

    def test_on_the_way(self) -> None:
        """500; the lease is given back."""
        self.lswap.ready("a")
        self.patch(Upstream, "send", self.broken)
        self.client.chat("a")
        self.assertEqual(self.error(), (500, "internal_error", "internal error; the log has the details"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.lswap.leftovers(), [])

    def test_while_it_waits(self) -> None:
        """500."""

        def acquire(*args: object) -> Deferred[Lease]:
            failed: Deferred[Lease] = Deferred()
            failed.errback(RuntimeError("a bug"))
            return failed

        self.patch(self.lswap.router, "acquire", acquire)
        self.client.chat("a")
        self.assertEqual(self.error()[0], 500)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.lswap.leftovers(), [])

    def test_connection_that_fails_at_once(self) -> None:
        """A call that is over before its maker has it in hand is over all the same, once."""
        for error in (ConnectFailed("nobody there", refused=True), UpstreamClosed("gone")):

            def send(upstream: Upstream, method: bytes, head: list[bytes], body: Body, sink: Sink) -> Call:
                sink.failed(error)  # noqa: B023 - it runs in this round
                return Call(method, head, body, sink)

            self.setUp()
            self.lswap.ready("a")
            patch = self.patch(Upstream, "send", send)
            self.client.chat("a")
            self.lswap.turn(0.25)
            self.assertEqual(self.error()[:2], (502, "bad_gateway"))
            self.assertEqual(self.client.take(), b"")
            patch.restore()
            self.assert_clean()

    def test_in_the_answer(self) -> None:
        """A fault while an answer is handed on: 500 if nothing of it went out, else a cut; never a wait for ever."""
        for at, length, status in (("answer", 4, 500), ("answer", 8, 500), ("piece", 8, 200), ("_finish", 4, 200)):
            self.setUp()
            self.client.chat("a")
            patch = self.patch(Relay, at, self.broken)
            request = self.model.request
            request.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nhalf" % length)
            self.lswap.turn()
            request.write(b"rest")
            self.assertEqual(self.client.read().status, status, (at, length))
            self.assertEqual(self.client.closed, status == 200, (at, length))
            self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
            patch.restore()
            self.assert_clean()

    def test_after_the_answer(self) -> None:
        """A fault while everything is given back is logged, and the client is not kept waiting."""
        self.client.chat("a")
        self.patch(Request, "end", self.broken)
        self.model.request.answer(200, b"well")
        answer = self.client.read()
        self.assertEqual(answer.body, b"well")
        self.assertTrue(self.client.closed)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.lswap.leftovers(), [])


class KeptTests(SynchronousTestCase):
    """A model that is kept is in the way."""

    def test_conflict(self) -> None:
        """409 at once, with what can be done about it; the plan says the same, and by hand it goes."""
        lswap = MemoryLswap(CONFIG.replace("a: {", "a: {keep: true, "))
        lswap.ready("a")
        client = lswap.client()
        client.chat("b")
        answer = client.read()
        error = json.loads(answer.body)["error"]
        self.assertEqual((answer.status, error["code"]), (409, "would_evict_pinned"))
        self.assertIn("(a): unload it by hand", error["message"])
        self.assertEqual(json.loads(lswap.get("/api/plan?model=b").body)["would"], "refuse")
        lswap.client().ask("POST", "/api/models/unload/a")
        lswap.models["b"].health, lswap.models["b"].says = 200, b"well"
        client.chat("b")
        for _ in range(40):
            lswap.turn(0.1)
        self.assertEqual(client.read().body, b"well")
