"""The image's first process without an image: in a namespace of its own, it reaps what model servers leave behind.

Runs the words of `docker/Containerfile` with the lswap of this checkout. `test_image` is about an image that was built.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from unittest import SkipTest

import yaml
from twisted.trial.unittest import SynchronousTestCase

import lswap
from lswap.app import DRAIN_LIMIT
from lswap.net.config_files import load_files
from tests.integration.running import LSWAP, Running, free_port, until

DOCKER = pathlib.Path(lswap.__file__).parents[1] / "docker"

#: Before a command that is to be the first process of a namespace.
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

#: The model's server leaves two processes behind as orphans: one in its own group, and one that has left it.
CONFIG = """
models:
  echo:
    cmd: >
      sh -c '(sleep 611 &); (setsid sleep 612 &); exec {python} -m lswap.demo.echo_server --port ${{PORT}} --name echo'
"""
ORPHANS = ("sleep 611", "sleep 612")

ASKED = {"model": "echo", "messages": [{"role": "user", "content": "from a container"}]}


def last_words(name: str, file: str) -> list[str]:
    """Those of the last such instruction of a Containerfile, which has them as a list."""
    lines = [line for line in (DOCKER / file).read_text().splitlines() if line.startswith(f"{name} ")]
    words: list[str] = json.loads(lines[-1].partition(" ")[2])
    return words


def children(parent: int) -> dict[int, str]:
    """The processes that have this parent, with their command lines; empty for a zombie."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").rstrip()
            except OSError:
                continue
    return found


def healthy(url: str) -> subprocess.CompletedProcess[str]:
    """What the image's health check says of lswap at an address."""
    env = {**os.environ, "LSWAP_HEALTH_URL": url, "http_proxy": "http://127.0.0.1:1"}
    command = [sys.executable, "-IS", str(DOCKER / "healthcheck")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


class DockerFolderTestCase(SynchronousTestCase):
    """An installed package has no such folder."""

    def setUp(self) -> None:
        """Look for it."""
        if not DOCKER.exists():
            raise SkipTest("no checkout")


class FirstProcessTests(DockerFolderTestCase):
    """As process 1."""

    def started(self) -> tuple[Running, int, int]:
        """It serves; with the first process of the namespace, and lswap below that."""
        words = last_words("ENTRYPOINT", "Containerfile")
        for program in ("unshare", words[0]):
            if shutil.which(program) is None:
                raise SkipTest(f"no {program}")
        if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
            raise SkipTest("no namespaces here")
        folder = pathlib.Path(self.mktemp()).absolute()
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(CONFIG.format(python=sys.executable))
        self.assertEqual(words.pop(), "lswap")
        running = Running([*UNSHARE, *words, *LSWAP, "-config", "config.yaml"], cwd=folder)
        self.addCleanup(running.end)
        running.serving()
        (first,) = children(running.process.pid)
        (ours,) = children(first)
        return running, first, ours

    def test_orphans(self) -> None:
        """Orphans of a model are reaped, in its group or not; a stop in order leaves none that still run."""
        running, first, ours = self.started()
        self.assertEqual(running.ask("POST", "/v1/chat/completions", ASKED)[0], 200)
        until(lambda: set(ORPHANS) <= set(children(first).values()), 10, "the orphans")
        for pid, command in children(first).items():
            if command in ORPHANS:
                os.kill(pid, signal.SIGKILL)
        until(lambda: set(children(first)) == {ours}, 10, "the end of the orphans, zombies too")
        self.assertEqual(running.ask("GET", "/unload")[0], 200)
        self.assertEqual(running.ask("POST", "/v1/chat/completions", ASKED)[0], 200)
        until(lambda: set(ORPHANS) <= set(children(first).values()), 10, "new orphans")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(running.wait(15), 0)
        self.assertIn("shutdown complete", running.output)
        running.wait_alone(5)

    def test_killed(self) -> None:
        """The end of lswap is the end of the container, whatever else runs in it; the exit code tells of the signal."""
        running, first, ours = self.started()
        self.assertEqual(running.ask("POST", "/v1/chat/completions", ASKED)[0], 200)
        os.kill(ours, signal.SIGKILL)
        self.assertEqual(running.wait(15), 128 + signal.SIGKILL)
        running.wait_alone(5)
        self.assertEqual(children(first), {})


class FileTests(DockerFolderTestCase):
    """What is copied into the images."""

    def test_health_check(self) -> None:
        """It believes an answer of 200 alone, and uses no proxy."""
        port = free_port()
        away = healthy(f"http://127.0.0.1:{port}/health")
        self.assertEqual((away.returncode, "Traceback" in away.stderr), (1, False), away.stderr)
        config = pathlib.Path(self.mktemp()).absolute()
        config.write_text("models: {}\napiKeys: [sesame]\n")
        running = Running([*LSWAP, "-config", str(config)], port=port)
        self.addCleanup(running.end)
        running.serving()
        here = healthy(f"http://127.0.0.1:{port}/health")
        self.assertEqual((here.returncode, here.stderr), (0, ""))
        self.assertIn("answers 401", healthy(f"http://127.0.0.1:{port}/v1/models").stderr)

    def test_configurations(self) -> None:
        """Those that the images start with are good, and are where the command looks for them."""
        for path in DOCKER.glob("config*.yaml"):
            loaded = load_files(str(path), None, {})
            self.assertEqual((loaded.problems, loaded.warnings), ((), ()), path.name)
        target = last_words("CMD", "Containerfile")[1]
        self.assertIn(f"COPY docker/${{CONFIG}} {target}\n", (DOCKER / "Containerfile").read_text())

    def test_compose(self) -> None:
        """What the example mounts are folders that the image has, and a stop has time for all that lswap does."""
        service = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]["lswap"]
        made = (DOCKER / "Containerfile").read_text()
        for volume in service["volumes"]:
            self.assertRegex(made, rf"install -d [^&]*{volume.split(':')[1]}\b")
        self.assertGreater(int(service["stop_grace_period"].removesuffix("s")), DRAIN_LIMIT)

    def test_what_is_sent(self) -> None:
        """All that is copied into the image is let through to the builder."""
        sent = [line[1:] for line in (DOCKER.parent / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
        copied = [
            line.split()[1:-1] for line in (DOCKER / "Containerfile").read_text().splitlines() if line[:5] == "COPY "
        ]
        names = [name for words in copied if not words[0].startswith("--from=") for name in words]
        configs = [f"docker/{path.name}" for path in DOCKER.glob("config*.yaml")]
        self.assertEqual(set(names) - {"docker/${CONFIG}"} | set(configs), set(sent))
