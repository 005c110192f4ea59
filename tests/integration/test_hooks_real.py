"""Hooks with real processes: a whole life, and what is left of them when lswap ends in one way or another."""

from __future__ import annotations

import pathlib
import signal
import sys
import tempfile

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running import LSWAP, Running, free_port, until

MODELS = """
startPort: {port}
models:
  a:
    cmd: {python} -m lswap.demo.echo_server --port ${{PORT}} --name a
    on_will_start: {{cmd: sh -c 'echo hello from the hook; echo will $LSWAP_REASON >> {ledger}'}}
    on_startup: {{http: {{GET: /health, GET: /v1/models}}}}
    on_will_stop: {{cmd: "{stop}", timeout: 300}}
    on_stopped: {{cmd: sh -c 'echo stopped $LSWAP_REASON$LSWAP_PID >> {ledger}'}}
"""


class HookTests(SynchronousTestCase):
    """One model with all four hooks."""

    def start(self, stop: str) -> None:
        """Start lswap, and have the model loaded; `stop` is the command before its end."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ledger = pathlib.Path(folder.name) / "ledger"
        config = pathlib.Path(folder.name) / "config.yaml"
        text = MODELS.format(port=free_port(2), python=sys.executable, ledger=self.ledger, stop=stop)
        config.write_text(text)
        self.lswap = Running([*LSWAP, "-c", str(config)])
        self.addCleanup(self.lswap.end)
        self.lswap.serving()
        messages = [{"role": "user", "content": "hi"}]
        status, body = self.lswap.ask("POST", "/v1/chat/completions", {"model": "a", "messages": messages})
        self.assertEqual(status, 200, body)

    def lines(self) -> list[str]:
        """What the hooks have written."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def test_a_whole_life(self) -> None:
        """Each once, with output in the model's log and times in the figures; SIGTERM ends it with its hooks."""
        self.start("true")
        self.lswap.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.lswap.wait(15), 0)
        self.assertEqual(self.lines(), ["will request", "stopped shutdown"])
        self.assertIn("on_startup: GET /health, GET /v1/models: ok", self.lswap.output)
        self.lswap.wait_alone(5)

    def stopping(self) -> None:
        """Have it stopping, with a hook that takes for ever."""
        self.start("sleep 4711")
        self.lswap.process.send_signal(signal.SIGTERM)
        until(lambda: self.lswap.family("4711"), 10, "the hook")

    def test_a_second_signal(self) -> None:
        """Cuts it short, and leaves nothing."""
        self.stopping()
        self.lswap.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.lswap.wait(10), 0)
        self.lswap.wait_alone(5)
        self.assertEqual(self.lines(), ["will request"])

    def test_killed(self) -> None:
        """The hook ends with lswap, as the model does."""
        self.stopping()
        self.lswap.process.kill()
        self.lswap.wait(10)
        self.lswap.wait_alone(10)
