"""What may start a model and what may not: `/comfyui/...` (`lswap.web.comfyui`), and ignored paths of `/upstream`."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.memory import Answer, MemoryLswap

CONFIG = """
models:
  comfyui_auto: {cmd: "server --port ${PORT}"}
  a: {cmd: "server --port ${PORT}"}
"""


def error(answer: Answer) -> tuple[int, str]:
    """Status and message."""
    return answer.status, json.loads(answer.body)["error"]["message"]


class ComfyTests(SynchronousTestCase):
    """The way to the one model."""

    def setUp(self) -> None:
        """It is not loaded."""
        self.lswap = MemoryLswap(CONFIG)
        self.model = self.lswap.models["comfyui_auto"]
        self.model.says = b"page"
        self.client = self.lswap.client()

    def test_bare(self) -> None:
        """Without its slash it is redirected to it, with the query; the method stays where that matters."""
        for method, status in (("GET", 301), ("HEAD", 301), ("POST", 308)):
            answer = self.client.ask(method, "/comfyui?token=value")
            self.assertEqual((answer.status, answer.header("Location")), (status, "/comfyui/?token=value"))

    def test_only_the_root_starts_it(self) -> None:
        """Anything else is 409 until it is ready; then all passes, escapes and query as they were written."""
        refusal = (409, "model comfyui_auto is not loaded; only /comfyui/ can start it")
        self.assertEqual(error(self.client.ask("GET", "/comfyui/queue")), refusal)
        self.assertEqual(error(self.client.ask("POST", "/comfyui/prompt", b"{}")), refusal)
        self.assertEqual(self.lswap.running(), {})
        self.model.health = 503
        root = self.lswap.client()
        root.send("GET", "/comfyui/?token=value")
        self.assertEqual(error(self.client.ask("GET", "/comfyui/queue")), refusal)
        self.model.health = 200
        self.lswap.turn(1)
        self.assertEqual(root.read().body, b"page")
        self.assertEqual(self.model.request.target, "/?token=value")
        for rest in ("/queue", "/workflows%2Fexample.json", "/x%252F", "/%E2%9C%93%2F?q=1;2", "/assets/x.js"):
            self.assertEqual(self.client.ask("PUT", "/comfyui" + rest, b"x").body, b"page")
            self.assertEqual(self.model.request.target, rest)
        self.assertEqual(self.model.request.body, b"x")

    def test_no_list(self) -> None:
        """It is in no list of requests."""
        self.model.says = None
        self.client.send("GET", "/comfyui/")
        self.assertEqual(len(self.model.requests), 1)
        self.assertEqual(self.lswap.inflight.snapshot(0), [])

    def test_no_such_model(self) -> None:
        """An alias or a peer's model of that name does not count."""
        for config in (
            'models: {b: {cmd: "server --port ${PORT}", aliases: [comfyui_auto]}}',
            'peers: {p: {proxy: "http://10.0.0.1", models: [comfyui_auto]}}',
        ):
            for target in ("/comfyui/", "/comfyui/queue"):
                answer = MemoryLswap(config).get(target)
                self.assertEqual(error(answer), (404, "local model comfyui_auto not found"))

    def test_key(self) -> None:
        """It needs a key where there are keys, whatever the path looks like."""
        lswap = MemoryLswap(CONFIG + "apiKeys: [door]\n")
        for target in ("/comfyui/", "/comfyui/queue", "/comfyui/x%2Fy", "/comfyui"):
            self.assertEqual(lswap.get(target).status, 401, target)
        self.assertEqual(lswap.get("/comfyui/%2Fx").status, 404)
        self.assertEqual(lswap.running(), {})


class IgnoredPathTests(SynchronousTestCase):
    """`upstream.ignorePaths`."""

    def test_page_assets(self) -> None:
        """They do not start a model, and do not wait for one; they reach one that is ready."""
        lswap = MemoryLswap(CONFIG)
        model = lswap.models["a"]
        model.says = b"here"
        refusal = (409, "model a is not loaded; path matches upstream.ignorePaths")
        self.assertEqual(error(lswap.get("/upstream/a/static/x.js?v=1")), refusal)
        model.health = 503
        page = lswap.client()
        page.send("GET", "/upstream/a/static/")
        self.assertEqual(error(lswap.get("/upstream/a/static/x.js?v=1")), refusal)
        model.health = 200
        lswap.turn(1)
        self.assertEqual(page.read().body, b"here")
        self.assertEqual(lswap.get("/upstream/a/static/x.js?v=1").body, b"here")
