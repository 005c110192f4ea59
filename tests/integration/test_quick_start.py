"""The page `docs/start.md` is run as a reader would: its file is written, its commands typed, their output compared."""

from __future__ import annotations

import doctest
import os
import pathlib
import re
import shutil
import subprocess
import sys

from twisted.trial.unittest import TestCase

from tests.integration.running import Running, free_port, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/start.md"
SERVER = re.compile(r"lswap -c (\S+) -listen 127\.0\.0\.1:8080")
BIN = pathlib.Path(sys.executable).parent


def steps(page: str) -> list[tuple[str, str]]:
    """Each command of the transcripts with what the page says that it prints."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            found.append((command, printed))
    return found


class QuickStartTests(TestCase):
    """docs/start.md."""

    if not shutil.which("curl"):
        skip = "there is no curl"

    def setUp(self) -> None:
        """A folder with the page's file, and a port."""
        self.folder = pathlib.Path(self.mktemp())
        self.folder.mkdir()
        self.page = PAGE.read_text()
        ((name, text),) = re.findall(r"^<!-- file: (\S+) -->\n```yaml\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)
        self.port, self.first = free_port(), free_port(2)
        # Beside other tests the models have ports of their own.
        (self.folder / name).write_text(f"{text}startPort: {self.first}\n")

    def type(self, command: str) -> str:
        """What a terminal shows of a command; `lswap` is the one of this checkout, and the port the free one."""
        environ = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_PROXY": "*"}
        command = command.replace("lswap plan", f"lswap plan -url http://127.0.0.1:{self.port}")
        command = re.sub(r"^lswap\b", f"{sys.executable} -m lswap", command).replace(":8080", f":{self.port}")
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
        return done.stdout

    def start(self, config: str) -> Running:
        """The server, once it listens and has said so."""
        running = Running([sys.executable, "-m", "lswap", "-c", config], self.folder, self.port)
        self.addCleanup(running.end)
        running.serving()
        until(lambda: running.output, 5, "the first line of the log")
        return running

    def test_transcripts(self) -> None:
        """Every command prints what the page says, `...` standing for anything; the server leaves nothing behind."""
        running: Running | None = None
        same = doctest.OutputChecker().check_output
        told = steps(self.page)
        self.assertGreater(len(told), 5)
        for command, printed in told:
            if server := SERVER.fullmatch(command):
                running = self.start(server[1])
                said = running.output
            else:
                said = self.type(command)
            said = said.rstrip("\n").replace(f":{self.port}", ":8080") + "\n"
            self.assertTrue(same(printed, said, doctest.ELLIPSIS), f"{command}\n{said}\ninstead of\n{printed}")
        assert running is not None
        (lines,) = re.findall(r"^```text\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)
        running.process.terminate()
        self.assertEqual(running.wait(20), 0)
        said = re.sub(r"\d\.\d\d s", "1.13 s", running.output).replace(f":{self.first}", ":5800")
        for line in lines.splitlines():
            self.assertIn(line, said)
        running.wait_alone(5)
