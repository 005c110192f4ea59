"""API keys at the door (`lswap.web.auth`, `lswap.web.channel`), and edited bodies (`lswap.web.filtering`)."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.memory import Answer, MemoryLswap

CONFIG = """
apiKeys:
  - all
  - {name: blue, key: some, models: [a], allow: [infer]}
  - {name: reader, key: read, allow: [read]}
  - {name: one, key: single, maxParallel: 1}
models:
  a: {cmd: "server --port ${PORT}", filters: {stripParams: t, setParams: {k: 1, m.x: 2}}}
  b: {cmd: "server --port ${PORT}"}
groups: {all: {swap: false, members: [a, b]}}
"""
JSON = ("Content-Type", "application/json")
CHAT = "/v1/chat/completions"


def bearer(key: str) -> tuple[str, str]:
    """A header with a key."""
    return ("Authorization", f"Bearer {key}")


class AuthCase(SynchronousTestCase):
    """Two ready models that answer everything."""

    def setUp(self) -> None:
        """They say who they are."""
        self.lswap = MemoryLswap(CONFIG)
        for name in ("a", "b"):
            client = self.lswap.client()
            client.chat(name, [bearer("all")])
            self.lswap.models[name].request.answer()
            self.lswap.turn()
            client.leave()
        for name, model in self.lswap.models.items():
            model.requests.clear()
            model.says = name.encode()
        self.client = self.lswap.client()

    def chat(self, model: str, *headers: tuple[str, str]) -> Answer:
        """Ask a model."""
        return self.client.ask("POST", CHAT, json.dumps({"model": model}).encode(), [JSON, *headers])

    def assert_forbidden(self, answer: Answer) -> None:
        """The answer is a 403 in the usual shape."""
        error = json.loads(answer.body)["error"]
        self.assertEqual(
            (answer.status, error["type"], error["code"]), (403, "authentication_error", "forbidden"), answer
        )


class DoorTests(AuthCase):
    """Who gets in."""

    def test_unauthorized(self) -> None:
        """Without a good key there is a 401 that asks for one, on a connection that stays open."""
        for headers in ([], [bearer("wrong")], [bearer("blue")], [bearer("wrong"), ("x-api-key", "all")]):
            answer = self.chat("a", *headers)
            self.assertEqual(answer.status, 401)
            self.assertEqual(answer.header("WWW-Authenticate"), 'Basic realm="llama-swap"')
            self.assertEqual(json.loads(answer.body)["error"]["code"], "unauthorized")
        self.assertEqual(self.lswap.models["a"].requests, [])
        self.assertEqual(self.chat("a", bearer("all")).status, 200)

    def test_open_paths(self) -> None:
        """Liveness, the way to the page, preflights, and what is no route need no key; everything else does."""
        for method, target, status in (
            ("GET", "/health", 200),
            ("GET", "/", 302),
            ("GET", "/ui", 307),
            ("GET", "/upstream", 302),
            ("OPTIONS", CHAT, 204),
            ("GET", "/nosuch", 404),
            ("DELETE", "/v1/models", 405),
            ("GET", "//running", 307),
            ("GET", "/running", 401),
            ("GET", "/r%75nning", 401),
            ("GET", "/unload", 401),
            ("GET", "/upstream/a/x", 401),
            ("GET", "/upstream/nosuch/x", 401),
            ("GET", "/ui/", 401),
            ("GET", "/v1/models/a", 401),
        ):
            self.assertEqual(self.client.ask(method, target).status, status, target)

    def test_every_route_is_guarded(self) -> None:
        """No route of the tree answers without a key but those that are meant to."""
        for rule in self.lswap.service._gate._app.url_map.iter_rules():
            if rule.rule in ("/", "/ui", "/upstream", "/health", "/wol-health", "/favicon.ico"):
                continue
            path = rule.rule.replace("<path:", "<").replace("<", "x").replace(">", "")
            for method in (rule.methods or {"GET", "POST"}) - {"OPTIONS"}:
                self.client.send(method, path)
                self.assertEqual(self.client.read().status, 401, f"{method} {path}")

    def test_refused_before_the_body(self) -> None:
        """A large body, or one that waits for a 100, is not read, nor asked for."""
        for header in (("Content-Length", "10000000"), ("Transfer-Encoding", "chunked")):
            client = self.lswap.client()
            client.send("POST", CHAT, b"", [JSON, header, ("Expect", "100-continue")])
            data = client.take()
            self.assertTrue(data.startswith(b"HTTP/1.1 401 Unauthorized\r\n"), data)
            self.assertIn(b"WWW-Authenticate: Basic", data)
        client = self.lswap.client()
        client.send("POST", CHAT, b"", [JSON, ("Content-Length", "2"), ("Expect", "100-continue"), bearer("all")])
        self.assertTrue(client.take().startswith(b"HTTP/1.1 100"))

    def test_key_stays_here(self) -> None:
        """Whatever header shows a key of ours does not go on; other credentials do."""
        self.chat("b", bearer("all"), ("X-Api-Key", "theirs"), ("X-Other", "1"))
        request = self.lswap.models["b"].request
        self.assertIsNone(request.header("Authorization"))
        self.assertEqual((request.header("X-Api-Key"), request.header("X-Other")), ("theirs", "1"))
        self.chat("b", bearer("all"), ("X-Api-Key", "read"))
        self.assertIsNone(self.lswap.models["b"].request.header("X-Api-Key"))


class RightsTests(AuthCase):
    """What a key is good for."""

    def test_models(self) -> None:
        """Another model is forbidden on every road, and not listed."""
        self.assertEqual(self.chat("a", bearer("some")).status, 200)
        self.assert_forbidden(self.chat("b", bearer("some")))
        for target in ("/upstream/b/x", "/upstream/b", "/props?model=b", "/v1/models/b"):
            self.assert_forbidden(self.client.ask("GET", target, b"", [bearer("some")]))
        self.assertEqual(self.lswap.models["b"].requests, [])
        listed = json.loads(self.client.ask("GET", "/v1/models", b"", [bearer("some")]).body)["data"]
        self.assertEqual([row["id"] for row in listed], ["a"])

    def test_rights(self) -> None:
        """A right that a key does not have is told; an escape in the path is no way around."""
        self.assert_forbidden(self.chat("a", bearer("read")))
        self.assertEqual(self.client.ask("GET", "/running", b"", [bearer("read")]).status, 200)
        for method, target in (("GET", "/unload"), ("GET", "/%75nload"), ("POST", "/api/models/unload")):
            self.assert_forbidden(self.client.ask(method, target, b"", [bearer("read")]))
        self.assert_forbidden(self.client.ask("GET", "/running", b"", [bearer("some")]))

    def test_most_at_once(self) -> None:
        """One more than a key may have is refused, until an answer is over or its client gone."""
        self.lswap.models["a"].says = None
        client = self.lswap.client()
        client.send("POST", CHAT, b'{"model":"a"}', [JSON, bearer("single")])
        answer = self.chat("b", bearer("single"))
        self.assertEqual((answer.status, answer.header("Retry-After")), (429, "1"))
        self.assertEqual(json.loads(answer.body)["error"]["type"], "rate_limit_error")
        self.assertEqual(self.chat("b", bearer("all")).status, 200)
        client.channel.transport.abortConnection()
        self.lswap.turn()
        self.assertEqual(self.chat("b", bearer("single")).status, 200)

    def test_name_in_the_exchange(self) -> None:
        """The key's name is known of a request, never the key."""
        self.lswap.models["a"].says = None
        self.client.send("POST", CHAT, b'{"model":"a"}', [JSON, bearer("some")])
        row = self.lswap.inflight.snapshot(0)[0]
        self.assertEqual(row["metadata"]["key"], "blue")
        self.assertNotIn("some", json.dumps(row))


class FilteredTests(AuthCase):
    """Bodies that are changed on their way."""

    def test_small_and_large(self) -> None:
        """A body in memory and one in a file are spliced alike."""
        for size in (10, 100_000, 3_000_000):
            body = b'{"model":"a" ,"t":1,"x":"' + b"y" * size + b'"}'
            self.assertEqual(self.client.ask("POST", CHAT, body, [JSON, bearer("all")]).status, 200)
            expected = body.replace(b',"t":1', b"")[:-1] + b',"k":1,"m":{"x":2}}'
            request = self.lswap.models["a"].request
            self.assertEqual(request.body, expected)
            self.assertEqual(request.header("Content-Length"), str(len(expected)))

    def test_error(self) -> None:
        """A parameter that has no place in a body is told."""
        answer = self.client.ask("POST", CHAT, b'{"model":"a","m":[1]}', [JSON, bearer("all")])
        self.assertEqual(answer.status, 500)
        self.assertEqual(json.loads(answer.body)["error"]["message"], "error setting parameter m.x in request")

    def test_client_leaves(self) -> None:
        """A client that is gone before its large body is edited costs nothing more."""
        body = b'{"model":"a","x":' + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}"
        self.client.send("POST", CHAT, body, [JSON, bearer("all")])
        self.client.channel.transport.abortConnection()
        self.lswap.turn()
        self.assertEqual(len(self.lswap.inflight), 0)
