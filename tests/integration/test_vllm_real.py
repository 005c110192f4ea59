"""`lswap-vllm` with real processes: a daemon that outlives its wrapper, is found again, and is ended."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.birth import birth_of
from tests.integration.running import Running, free_port, until

VLLM = (sys.executable, "-m", "lswap.vllm")
#: As much of vLLM as matters: port, health check, sleep mode.
DAEMON = """
import http.server, json, os, sys
asleep = False

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        global asleep
        path = self.path.partition("?")[0]
        if path in ("/sleep", "/wake_up"):
            asleep = path == "/sleep"
        body = json.dumps({"is_sleeping": asleep, "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        print("asked for", self.path, flush=True)

print("daemon", os.getpid(), os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class VllmTests(SynchronousTestCase):
    """One server."""

    def setUp(self) -> None:
        """It does not run."""
        self.folder = pathlib.Path(self.mktemp()).resolve()
        self.folder.mkdir(mode=0o700)
        (self.folder / "daemon.py").write_text(DAEMON)
        self.vllm = free_port()
        self.common = ("--vllm-url", f"http://127.0.0.1:{self.vllm}", "--state-dir", str(self.folder))
        self.addCleanup(self.ask, "stop")

    def ask(self, command: str, *flags: str) -> tuple[int, str]:
        """Exit code and output of a small command."""
        words = [*VLLM, command, *self.common, *flags]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def serve(self, *flags: str, daemon: Sequence[str] = ()) -> Running:
        """A wrapper, not yet serving."""
        port = free_port()
        own = ("serve", *self.common, "--listen", f"127.0.0.1:{port}", *flags, "--")
        words = daemon or (sys.executable, str(self.folder / "daemon.py"), str(self.vllm))
        running = Running([*VLLM, *own, *words], self.folder, 0)
        running.port = port
        self.addCleanup(running.end)
        return running

    def pid(self) -> int:
        """That of the daemon, as `status` tells it."""
        code, said = self.ask("status")
        self.assertEqual(code, 0, said)
        return int(said.partition("process ")[2].partition(":")[0])

    def test_a_wrapper_that_was_killed(self) -> None:
        """The daemon stays, in a session of its own; the next wrapper uses it; `stop` ends it."""
        first = self.serve().serving()
        pid = self.pid()
        until(lambda: f"daemon {pid} True True" in first.output, 5, "the words of the daemon")
        os.killpg(first.process.pid, signal.SIGKILL)
        first.wait(5)
        self.assertIsNotNone(birth_of(pid))
        second = self.serve().serving()
        self.assertEqual(self.pid(), pid)
        second.ask("GET", "/v1/models")
        until(lambda: "asked for /v1/models" in second.output, 5, "the words of the daemon")
        second.process.terminate()
        self.assertEqual(second.wait(10), 0)
        self.assertIn("sleeps:  yes", self.ask("status")[1])
        self.assertEqual(self.ask("stop")[0], 0)
        until(lambda: birth_of(pid) is None, 5, "the end of the daemon")
        self.assertEqual(self.ask("status")[0], 1)

    def test_a_wrapper_that_was_killed_during_the_start(self) -> None:
        """The daemon is found by its record, and no second one is started."""
        script = f"import time, runpy, sys; time.sleep(3); sys.argv[1:] = ['{self.vllm}']; runpy.run_path('daemon.py')"
        words = (sys.executable, "-c", script)
        first = self.serve(daemon=words)
        until(lambda: "started the daemon as process " in first.output, 15, "the daemon")
        first.process.kill()
        first.wait(5)
        second = self.serve(daemon=words).serving(20)
        self.assertIn("was started before, and is waited for", second.output)
        self.assertNotIn("started the daemon as process", second.output)
        second.process.send_signal(signal.SIGINT)
        self.assertEqual(second.wait(10), 0)
        self.assertIn("sleeps:  no", self.ask("status")[1])

    def test_stopped_during_the_start(self) -> None:
        """SIGTERM: nothing is left."""
        running = self.serve(daemon=(sys.executable, "-c", "import time; time.sleep(60)"))
        until(lambda: "started the daemon as process " in running.output, 15, "the daemon")
        pid = int(running.output.partition("started the daemon as process ")[2].partition(":")[0])
        running.process.terminate()
        self.assertEqual(running.wait(10), 0)
        self.assertIsNone(birth_of(pid))

    def test_dry_run(self) -> None:
        """Nothing is started."""
        running = self.serve("--dry-run")
        self.assertEqual(running.wait(15), 0)
        self.assertIn(f"daemon.py {self.vllm}\n", running.output)
        self.assertEqual(self.ask("status")[0], 1)
