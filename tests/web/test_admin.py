"""lswap's own routes (`lswap.web.admin`), over genuine HTTP in memory."""

from __future__ import annotations

import json
import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap import __version__
from tests.memory import MemoryClient, MemoryLswap

CONFIG = """
models:
  b: {cmd: "server --port ${PORT}", name: Bee, description: about, ttl: 300}
  a: {cmd: "server --port ${PORT}", aliases: [also-a, "x/y"]}
  org/m: {cmd: "server --port ${PORT}"}
  hidden: {cmd: "server --port ${PORT}", unlisted: true}
groups: {all: {swap: false, members: [a, b, org/m, hidden]}}
"""


class AdminCase(SynchronousTestCase):
    """Some models, none of which runs, and a client."""

    def setUp(self) -> None:
        """All of them can run side by side."""
        self.lswap = MemoryLswap(CONFIG)
        self.client = self.lswap.client()

    def json(self, target: str, method: str = "GET", body: bytes = b"") -> Any:
        """Ask for JSON of a 200."""
        answer = self.client.ask(method, target, body)
        self.assertEqual((answer.status, answer.header("Content-Type")), (200, "application/json"), answer)
        return json.loads(answer.body)

    def error(self, status: int, target: str, method: str = "GET", body: bytes = b"") -> str:
        """Ask for something that is refused; the message."""
        answer = self.client.ask(method, target, body)
        self.assertEqual((answer.status, answer.header("Content-Type")), (status, "application/json"), answer)
        message: str = json.loads(answer.body)["error"]["message"]
        return message


class SmallTests(AdminCase):
    """Liveness, version, redirects, the page."""

    def test_alive(self) -> None:
        """Whatever the models do."""
        for target in ("/health", "/wol-health", "/health?x=1"):
            answer = self.client.ask("GET", target)
            self.assertEqual((answer.status, answer.body), (200, b"OK"))
            self.assertEqual(answer.header("Content-Type"), "text/plain; charset=utf-8")
            self.client.send("HEAD", target)
            answer = self.client.read()
            self.assertEqual((answer.status, answer.header("Content-Length")), (200, "2"))

    def test_version(self) -> None:
        """Three texts."""
        found = self.json("/api/version")
        self.assertEqual(set(found), {"version", "commit", "build_date"})
        self.assertEqual(found["version"], __version__)

    def test_redirects(self) -> None:
        """To the page."""
        for target, status, location in (
            ("/", 302, "/ui"),
            ("/ui", 307, "/ui/"),
            ("/upstream", 302, "/ui/models"),
            ("/logs", 302, "/ui/"),
        ):
            answer = self.client.ask("GET", target, headers=[("Accept", "text/html")])
            self.assertEqual((answer.status, answer.header("Location")), (status, location))

    def test_page(self) -> None:
        """There is one, for all its routes; files are not there."""
        for target in ("/ui/", "/ui/models", "/ui/a/b"):
            answer = self.client.ask("GET", target)
            self.assertEqual((answer.status, answer.header("Content-Type")), (200, "text/html; charset=utf-8"))
        self.assertEqual(self.error(404, "/ui/missing.js"), "no such file")

    def test_profiles(self) -> None:
        """There are none, and none can be chosen but none."""
        self.assertEqual(self.json("/api/profiles"), {"active": None, "profiles": []})
        for body in (b'{"name": null}', b'{"name": ""}', b'{"name": "", "more": 1}'):
            self.assertEqual(self.json("/api/profiles/active", "PUT", body), {"active": None})
        for status, body, message in (
            (404, b'{"name": "x"}', 'profile "x" not found'),
            (400, b"{}", "profile name is required"),
            (400, b'{"name": 1}', "profile name must be a string or null"),
            (400, b"[]", "invalid profile request"),
            (400, b"", "invalid profile request"),
            (400, b"\xff", "invalid profile request"),
            (400, b" " * 2_000_000, "invalid profile request"),
        ):
            self.assertEqual(self.error(status, "/api/profiles/active", "PUT", body), message)


class ListTests(AdminCase):
    """Which models there are, and which run."""

    def test_models(self) -> None:
        """All but the hidden ones, in the order of their bytes."""
        self.lswap.ready("a")
        before = int(time.time())
        for target in ("/v1/models", "/models"):
            found = self.json(target)
            self.assertEqual(found["object"], "list")
            self.assertEqual([row["id"] for row in found["data"]], ["a", "b", "org/m"])
            first, second, _ = found["data"]
            self.assertGreaterEqual(first.pop("created"), before)
            second.pop("created")
            self.assertEqual(
                first,
                {
                    "id": "a",
                    "object": "model",
                    "owned_by": "llama-swap",
                    "meta": {"llamaswap": {"type": "model", "aliases": ["also-a", "x/y"]}},
                    "status": {"value": "loaded"},
                },
            )
            self.assertEqual((second["name"], second["description"]), ("Bee", "about"))
            self.assertEqual(second["status"], {"value": "unloaded"})

    def test_one_model(self) -> None:
        """By ID or alias, with slashes too; hidden ones are found."""
        for name, found in (
            ("a", "a"),
            ("also-a", "a"),
            ("x/y", "a"),
            ("x%2Fy", "a"),
            ("org/m", "org/m"),
            ("hidden",) * 2,
        ):
            self.assertEqual(self.json("/v1/models/" + name)["id"], found)
        self.assertEqual(self.error(404, "/v1/models/nosuch"), "model not found")

    def test_running(self) -> None:
        """The processes, sorted, with all fields."""
        self.assertEqual(self.json("/running"), {"running": []})
        self.lswap.models["a"].health = 503
        starting = self.lswap.client()
        starting.chat("a")
        self.lswap.ready("b")
        first, second = self.json("/running")["running"]
        port = self.lswap.models["b"].address[1]
        self.assertEqual(
            second,
            {
                "model": "b",
                "state": "ready",
                "cmd": f"server --port {port}",
                "proxy": f"http://localhost:{port}",
                "ttl": 300,
                "name": "Bee",
                "description": "about",
            },
        )
        self.assertEqual((first["model"], first["state"], first["ttl"]), ("a", "starting", 0))
        self.lswap.models["b"].group.obeys = False
        self.lswap.router.unload(("b",))
        self.assertEqual([row["state"] for row in self.json("/running")["running"]], ["starting", "stopping"])


class UnloadTests(AdminCase):
    """Stopping models by hand."""

    def setUp(self) -> None:
        """Two run, and one of them takes its time to end."""
        super().setUp()
        self.lswap.ready("a", "b")
        self.slow = self.lswap.models["a"].group
        self.slow.obeys = False

    def answer_after(self, client: MemoryClient) -> bytes:
        """The answer comes when the slow one is gone, and not before."""
        self.assertEqual(client.take(), b"")
        self.slow.end()
        answer = client.read()
        self.assertEqual(answer.status, 200)
        return answer.body

    def test_all(self) -> None:
        """Both calls stop everything and wait for it."""
        for method, target, body in (("GET", "/unload", b"OK"), ("POST", "/api/models/unload", b'{"msg":"ok"}\n')):
            self.setUp()
            self.client.send(method, target)
            self.assertEqual(self.lswap.running(), {"a": "stopping"})
            self.assertEqual(self.answer_after(self.client), body)
            self.assertEqual(self.lswap.running(), {})

    def test_one(self) -> None:
        """By ID or alias, with slashes too; the others run on."""
        for name in ("a", "also-a", "x/y", "x%2Fy"):
            self.setUp()
            self.client.send("POST", "/api/models/unload/" + name)
            self.assertEqual(self.answer_after(self.client), b"OK")
            self.assertEqual(self.lswap.running(), {"b": "ready"})

    def test_unknown(self) -> None:
        """404."""
        for name in ("nosuch", "a/b", "org"):
            self.assertEqual(self.error(404, "/api/models/unload/" + name, "POST"), "model not found")
        self.assertEqual(self.lswap.running(), {"a": "ready", "b": "ready"})

    def test_nothing_runs(self) -> None:
        """It is done at once."""
        self.slow.end()
        self.lswap.models["b"].group.end()
        self.assertEqual(self.client.ask("GET", "/unload").body, b"OK")
        self.assertEqual(self.client.ask("POST", "/api/models/unload/org/m").body, b"OK")

    def test_client_leaves(self) -> None:
        """The stop goes on, whoever asked for it; others who wait for it are answered."""
        other = self.lswap.client()
        other.send("POST", "/api/models/unload/a")
        self.client.send("GET", "/unload")
        self.client.leave()
        self.assertEqual(self.lswap.running(), {"a": "stopping"})
        self.assertEqual(self.answer_after(other), b"OK")
        self.assertEqual(self.lswap.running(), {})

    def test_internal_fault(self) -> None:
        """500 with the traceback in the log; there too when the client has left."""
        work: list[Deferred[None]] = []

        def unload(models: tuple[str, ...]) -> Deferred[None]:
            work.append(Deferred())
            return work[-1]

        self.patch(self.lswap.router, "unload", unload)
        self.client.send("GET", "/unload")
        work[0].errback(RuntimeError("a bug"))
        self.assertEqual(self.client.read().status, 500)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.client.send("GET", "/unload")
        self.client.leave()
        work[1].errback(RuntimeError("a bug"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class LogTests(AdminCase):
    """The logs."""

    def test_history(self) -> None:
        """The combined one, as it is."""
        self.lswap.logs.combined.write(b"one\n\xff")
        answer = self.client.ask("GET", "/logs")
        self.assertEqual((answer.body, answer.header("Content-Type")), (b"one\n\xff", "text/plain"))

    def test_streams(self) -> None:
        """Each by its name, the history first unless it is not wanted; reserved words before models."""
        logs = self.lswap.logs
        for log in (logs.combined, logs.proxy, logs.upstream, logs.model("a"), logs.model("org/m")):
            log.write(b"old " + log.name.encode())
        for target, log, history in (
            ("/logs/stream", logs.combined, True),
            ("/logs/stream?no-history", logs.combined, False),
            ("/logs/stream?x&no-history=0", logs.combined, False),
            ("/logs/stream?nohistory", logs.combined, True),
            ("/logs/stream/proxy", logs.proxy, True),
            ("/logs/stream/upstream", logs.upstream, True),
            ("/logs/stream/also-a", logs.model("a"), True),
            ("/logs/stream/org/m", logs.model("org/m"), True),
            ("/logs/stream/org%2Fm/more/segments", logs.model("org/m"), True),
        ):
            client = self.lswap.client()
            client.send("GET", target)
            log.write(b"new")
            answer = client.read()
            self.assertEqual(answer.body, (b"old " + log.name.encode() if history else b"") + b"new", target)
            client.leave()
            self.assertFalse(log.watched)
            log._ring.clear()
            log.write(b"old " + log.name.encode())

    def test_unknown(self) -> None:
        """400."""
        message = "invalid logger. Use 'proxy', 'upstream' or a model's ID"
        for name in ("nosuch", "combined", "proxy/x"):
            self.assertEqual(self.error(400, "/logs/stream/" + name), message)


class CancelTests(AdminCase):
    """Ending a request by hand."""

    def test_cancel(self) -> None:
        """It is ended, and gone from the list."""
        client = self.lswap.client()
        client.chat("a")
        self.assertEqual(self.json("/api/inflight/1/cancel", "POST"), {"msg": "ok"})
        self.assertEqual(client.read().status, 503)
        self.assertTrue(self.lswap.models["a"].request.aborted)
        self.assertEqual(self.error(404, "/api/inflight/1/cancel", "POST"), "inflight request not found")

    def test_unknown(self) -> None:
        """404, whatever the number looks like."""
        for number in ("1", "0", "x", "-1", "1" * 100, "%D9%A1"):
            message = self.error(404, f"/api/inflight/{number}/cancel", "POST")
            self.assertEqual(message, "inflight request not found")
