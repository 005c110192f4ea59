"""Tests for `lswap.net.launcher`: what it makes of the tools that a system has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.launcher import Launcher, find_program


class LauncherTests(SynchronousTestCase):
    """Which words go before a command."""

    def setUp(self) -> None:
        """Have a folder that stands for the search path of a system."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def install(self, name: str, script: str) -> str:
        """Put a tool into it."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        path.chmod(0o755)
        return str(path)

    def look(self) -> list[str]:
        """The whole argument list of a command on that system."""
        return Launcher.look(str(self.folder)).words(["/bin/server", "x"])

    def test_all_there(self) -> None:
        """With both tools: a session, and a signal from the kernel when we end."""
        setsid, setpriv = self.install("setsid", "exit 1"), self.install("setpriv", '[ "$1" = --pdeathsig ]')
        self.assertEqual(self.look(), [setsid, setpriv, "--pdeathsig", "TERM", "--", "/bin/server", "x"])

    def test_that_survives(self) -> None:
        """For the guard, the kernel's signal is left out."""
        setsid = self.install("setsid", "exit 1")
        self.install("setpriv", "exit 0")
        launcher = Launcher.look(str(self.folder))
        self.assertEqual(launcher.words(["/bin/sh"], survives_us=True), [setsid, "/bin/sh"])

    def test_setpriv_that_does_not_know(self) -> None:
        """A `setpriv` that refuses the option, hangs on a signal, or cannot run is not used."""
        setsid = self.install("setsid", "exit 1")
        for script in ("echo unrecognized option >&2; exit 1", "kill -9 $$"):
            self.install("setpriv", script)
            self.assertEqual(self.look(), [setsid, "/bin/server", "x"])
        path = self.folder / "setpriv"
        path.write_text("#!/nonexistent\n", encoding="ascii")
        self.assertEqual(self.look(), [setsid, "/bin/server", "x"])

    def test_no_setpriv(self) -> None:
        """Without `setpriv` it is a session only."""
        setsid = self.install("setsid", "exit 1")
        self.assertEqual(self.look(), [setsid, "/bin/server", "x"])

    def test_nothing_there(self) -> None:
        """Without `setsid` our own Python makes the session, and keeps pid, words and environment."""
        words = self.look()
        self.assertEqual((words[0], words[-2:]), (sys.executable, ["/bin/server", "x"]))
        script = 'echo "$$ $(ps -o sid= -p $$ 2>/dev/null || cut -d" " -f6 /proc/$$/stat) $1|$MARK"'
        command = Launcher.without_setsid().words(["/bin/sh", "-c", script, "sh", "a  b"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "MARK": "m"}, text=True) as process:
            output, _ = process.communicate()
        self.assertEqual(output.split(), [str(process.pid), str(process.pid), "a", "b|m"])

    def test_this_system(self) -> None:
        """What was found on this system is looked up once."""
        self.assertIs(Launcher.of_this_system(), Launcher.of_this_system())
        if shutil.which("setsid"):
            self.assertEqual(Launcher.of_this_system().session, (shutil.which("setsid"),))


class FindProgramTests(SynchronousTestCase):
    """What a relative path means; the refusals are in `tests.net.test_leader`."""

    def test_relative_path(self) -> None:
        """A path with a slash counts from the working directory."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "server").write_text("#!/bin/sh\n", encoding="ascii")
        (folder / "server").chmod(0o755)
        self.assertEqual(find_program(f"{folder}/server"), str(Path.cwd() / folder / "server"))
        self.assertEqual(find_program(f"./{folder}/server"), str(Path.cwd() / folder / "server"))

    def test_interpreter_with_options(self) -> None:
        """Only the first word after the mark is the interpreter, with or without a space before it."""
        path = Path(self.mktemp()).absolute()
        for line in ("#!/bin/sh -e", "#! \t/bin/sh\t-e", "#!/usr/bin/env -S sh -e", "#!"):
            path.write_text(line + "\n", encoding="ascii")
            path.chmod(0o755)
            self.assertEqual(find_program(str(path)), str(path))

    def test_unusual_files(self) -> None:
        """A binary, an empty file and one that may be run but not read are left to the kernel."""
        path = Path(self.mktemp()).absolute()
        for content in (b"\x7fELF\x00\xff", b"", b"\xff" * 300):
            path.write_bytes(content)
            path.chmod(0o755)
            self.assertEqual(find_program(str(path)), str(path))
        path.chmod(0o111)
        self.assertEqual(find_program(str(path)), str(path))

    def test_carriage_return(self) -> None:
        """A script with the line ends of another system names an interpreter that is not there."""
        path = Path(self.mktemp()).absolute()
        path.write_bytes(b"#!/bin/sh\r\necho\r\n")
        path.chmod(0o755)
        problem = self.assertRaises(OSError, find_program, str(path))
        self.assertIn(r"'/bin/sh\r'", str(problem.strerror))
