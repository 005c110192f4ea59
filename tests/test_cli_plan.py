"""`lswap plan` (`lswap.cli_plan`), against a small server on a port that the system chose."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap import cli
from lswap.cli_plan import tell
from tests.test_tap import Outcome

PLAN = {
    "model": "b",
    "state": "stopped",
    "would": "wait",
    "unload": [{"model": "a", "why": "it cannot run beside 'b'"}],
    "waitsFor": [{"model": "a", "inflight": 2}],
    "ahead": 1,
}


class PlanTests(SynchronousTestCase):
    """From the words to the answer."""

    def setUp(self) -> None:
        """A server that answers with `answer`."""
        self.answer: tuple[int, bytes] = (200, json.dumps(PLAN).encode())
        self.seen: list[tuple[str, str | None]] = []
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Note the request, and answer."""
                test.seen.append((self.path, self.headers["Authorization"]))
                status, body = test.answer
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.patch(os, "environ", {key: value for key, value in os.environ.items() if key != "LSWAP_API_KEY"})

    def plan(self, *words: str) -> Outcome:
        """What the command says."""
        return Outcome(lambda: cli.main(["plan", *words]))

    def test_words(self) -> None:
        """A plan in words, and what was asked for."""
        done = self.plan("b/ü", "-url", self.url)
        self.assertEqual((done.value, done.err), (0, ""))
        wanted = (
            "b is stopped. A request would have to wait.\n"
            "  stops a: it cannot run beside 'b'\n"
            "  waits for a: 2 requests in flight\n"
            "  1 waiting request came earlier\n"
        )
        self.assertEqual((done.out, self.seen), (wanted, [("/api/plan?model=b%2F%C3%BC", None)]))

    def test_json(self) -> None:
        """As it came."""
        done = self.plan("-json", "-url", self.url, "b")
        self.assertEqual((done.value, json.loads(done.out)), (0, PLAN))

    def test_key(self) -> None:
        """From the flag, else from the environment; a folder before the path stays."""
        os.environ["LSWAP_API_KEY"] = "sk-env"
        self.plan("b", "-url", self.url + "/lswap/", "-key", "sk-flag")
        self.plan("b", "-url", self.url)
        wanted = [("/lswap/api/plan?model=b", "Bearer sk-flag"), ("/api/plan?model=b", "Bearer sk-env")]
        self.assertEqual(self.seen, wanted)

    def test_refusals(self) -> None:
        """The server's own words, in whatever shape; 1."""
        for status, body, wanted in (
            (404, b'{"error": {"message": "model not found"}}', "b: model not found"),
            (403, b'{"error": "no"}', "b: no"),
            (500, b"<html>", f"b: {self.url} answered 500"),
            (200, b"<html>", "is it lswap?"),
            (200, b"[1]", "is it lswap?"),
        ):
            self.answer = status, body
            done = self.plan("b", "-url", self.url)
            self.assertEqual((done.value, done.out), (1, ""))
            self.assertIn(wanted, done.err)

    def test_no_server(self) -> None:
        """Nobody there, or no address at all; a key is never shown."""
        for url in ("http://127.0.0.1:1", "ftp://x", "http://", "http://x:y", "http://[", "http://127.0.0.1:1/ ü"):
            done = self.plan("b", "-url", url, "-key", "sk-sécret")
            self.assertEqual((done.value, done.out), (1, ""), url)
            self.assertNotIn("cret", done.err)

    def test_usage(self) -> None:
        """Without a model, with a flag that is none, with a word too many; and help."""
        for words in ((), ("-json",), ("b", "-nope"), ("b", "c"), ("-url", "x")):
            self.assertEqual(self.plan(*words).value, 2, words)
        done = self.plan("-help")
        self.assertEqual(done.value, 0)
        self.assertIn("Usage: lswap plan MODEL [flags]", done.out)

    def test_each_kind(self) -> None:
        """Each thing that may happen has its words."""
        for would, wanted in (
            ("serve", "let through at once"),
            ("start", "loaded at once"),
            ("refuse", "turned away: queue full"),
            ("later", "would: later"),
        ):
            self.assertIn(wanted, tell({"model": "a", "state": "ready", "would": would, "refusal": "queue full"}))
        waits = {"model": "a", "would": "wait", "waitsFor": [{"model": "b", "inflight": 0}], "ahead": 2}
        self.assertIn("  waits for b: it is being loaded\n  2 waiting requests came earlier", tell(waits))
