"""The image itself, run by podman or docker: who it runs as, what it answers, how it ends and what it leaves.

Only where `LSWAP_IMAGE` names one that was built, as `make test-image` does; `LSWAP_ENGINE` has the engine's words,
`LSWAP_RUN` more words for its `run`.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import uuid
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running import SLACK, Running, free_port, until

IMAGE = os.environ.get("LSWAP_IMAGE", "")
ENGINE = shlex.split(os.environ.get("LSWAP_ENGINE", "podman"))
RUN = shlex.split(os.environ.get("LSWAP_RUN", ""))

#: The model's server leaves an orphan behind, outside of its process group.
CONFIG = """
models:
  other:
    cmd: sh -c '(setsid sleep 1 &); exec python3 -m lswap.demo.echo_server --port ${PORT} --name other'
"""


class ImageTests(SynchronousTestCase):
    """A container of it, in the foreground."""

    def setUp(self) -> None:
        """Only where an image is named."""
        if not IMAGE:
            raise SkipTest("LSWAP_IMAGE names no image")
        self.name = f"lswap-test-{uuid.uuid4().hex}"

    def engine(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the engine, at its end."""
        return subprocess.run([*ENGINE, *words], capture_output=True, text=True, check=False, timeout=60 * SLACK)

    def inside(self, *words: str) -> str:
        """Standard output of a command in the container, which must end well."""
        done = self.engine("exec", self.name, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def started(self, *options: str) -> Running:
        """A container that serves; with these words for `run`, from which nothing may be written to its own files."""
        port = free_port()
        publish = ["-p", f"127.0.0.1:{port}:8080", "--read-only", "--tmpfs", "/tmp"]
        running = Running([*ENGINE, "run", "--rm", "--name", self.name, *RUN, *publish, *options, IMAGE], port=0)
        running.port = port
        self.addCleanup(running.end)
        self.addCleanup(self.engine, "rm", "--force", self.name)
        until(lambda: self.engine("exec", self.name, "lswap-healthcheck").returncode == 0, 30, "health")
        return running

    def processes(self) -> list[tuple[int, str, str]]:
        """Number, state and command of each process but that which looks."""
        look = 'for f in /proc/[0-9]*/stat; do read -r line <$f && echo "$line"; done'
        rows = [line.rpartition(") ") for line in self.inside("sh", "-c", look).splitlines()]
        found = [(int(head.split()[0]), rest.split()[0], head.partition("(")[2]) for head, _, rest in rows]
        return [(pid, state, name) for pid, state, name in found if name != "sh" or state != "R"]

    def chat(self, running: Running, model: str) -> bytes:
        """The answer of a model."""
        body = {"model": model, "messages": [{"role": "user", "content": "out of an image"}]}
        status, answer = running.ask("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        return answer

    def test_own_configuration(self) -> None:
        """With nothing but itself it answers; it is nobody of weight, and a stop is quick, in order and complete."""
        running = self.started()
        self.assertIn(b"out of an image", self.chat(running, "echo"))
        self.assertEqual(self.inside("id", "-u").strip(), "10001")
        self.assertEqual(self.processes()[0], (1, "S", "tini"))
        facts = json.loads(running.ask("GET", "/api/version")[1])
        self.assertNotEqual(facts["commit"], "unknown")
        # Twistd would want to write its list of plugins; here it reads it.
        self.assertIn("llamaswap", self.inside("twistd", "--help"))
        self.assertEqual(self.engine("stop", "--time", "20", self.name).returncode, 0)
        self.assertEqual(running.wait(20), 0, running.output)
        self.assertIn("shutdown complete", running.output)
        self.assertNotEqual(self.engine("container", "inspect", self.name).returncode, 0)

    def test_mounted_folder(self) -> None:
        """A folder over /etc/lswap; a changed file in it is seen, orphans are reaped, any user may run it."""
        folder = pathlib.Path(self.mktemp()).absolute()
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("models: {}\n")
        running = self.started("--user", "12345:12345", "-v", f"{folder}:/etc/lswap:ro")
        (folder / "new.yaml").write_text(CONFIG)
        (folder / "new.yaml").rename(folder / "config.yaml")
        until(lambda: b"other" in running.ask("GET", "/v1/models")[1], 20, "the new model")
        self.assertIn(b"out of an image", self.chat(running, "other"))
        until(lambda: not [row for row in self.processes() if row[2] == "sleep"], 20, "the end of the orphan")
        self.assertEqual([row for row in self.processes() if row[1] == "Z"], [])
        running.process.terminate()  # the engine passes it on
        self.assertEqual(running.wait(20), 0, running.output)
        self.assertNotEqual(self.engine("container", "inspect", self.name).returncode, 0)
