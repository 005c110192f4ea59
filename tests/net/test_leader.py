"""Tests for `lswap.net.leader` and `Processes.spawn`: how a command is started."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from twisted.internet.interfaces import IProcessTransport
from zope.interface.verify import verifyObject

from lswap.errors import StartError
from lswap.net.launcher import Launcher
from lswap.net.leader import Leader, launch_resident
from lswap.net.process import Exit
from tests.net.processes import PROGRAM, ProcessCase


class SpawnTests(ProcessCase):
    """How a command is started."""

    def test_fake(self) -> None:
        """The made-up process is what Twisted's are."""
        self.spawn()
        verifyObject(IProcessTransport, self.process)

    def test_words(self) -> None:
        """The command leads its own session, dies with us, and gets its words as they are."""
        group = self.spawn("two words", "$HOME", "")
        self.assertEqual(
            self.process.words,
            ["/usr/bin/setsid", "/usr/bin/setpriv", "--pdeathsig", "TERM", "--", PROGRAM, "two words", "$HOME", ""],
        )
        self.assertEqual(group.pid, self.process.number)

    def test_program_from_path(self) -> None:
        """A bare name is looked up on our own PATH, not on that of the environment it is given."""
        self.patch(os, "environ", {**os.environ, "PATH": os.path.dirname(PROGRAM)})
        self.processes.spawn([os.path.basename(PROGRAM)], {"PATH": "/nonexistent"}, self.witness)
        self.assertEqual(self.process.words[-1], PROGRAM)

    def test_environment(self) -> None:
        """The environment is the given one, whole and alone."""
        self.spawn(environment={"ONE": "1", "TWO": "a b=c"})
        self.assertEqual(self.process.environment, {"ONE": "1", "TWO": "a b=c"})

    def test_descriptors(self) -> None:
        """Input is empty; output and error are one pipe."""
        self.spawn()
        stats = {number: os.fstat(descriptor) for number, descriptor in self.process.descriptors.items()}
        self.assertEqual(sorted(stats), [0, 1, 2])
        self.assertEqual(stats[0].st_rdev, os.stat(os.devnull).st_rdev)
        self.assertEqual(stats[1].st_ino, stats[2].st_ino)

    def test_guard_is_told(self) -> None:
        """The guard knows the group when `spawn` returns, and forgets it when the group is gone."""
        group = self.spawn()
        self.assertEqual(self.told(), f"+{group.pid}\n")
        self.process.exit(0)
        self.assertEqual(self.told(), f"-{group.pid}\n")

    def refusal(self, *argv: str) -> str:
        """The text of the error at a start."""
        return str(self.assertRaises(StartError, self.processes.spawn, argv, {}, self.witness))

    def test_refusals(self) -> None:
        """What cannot be run is an error at once that names the command and the reason."""
        folder = Path(self.mktemp())
        folder.mkdir()
        plain, script = folder / "plain", folder / "script"
        plain.write_text("", encoding="ascii")
        script.write_text("#!/nonexistent/python -x\n", encoding="ascii")
        script.chmod(0o755)
        self.patch(os, "environ", {**os.environ, "PATH": str(folder.resolve())})
        here = folder.resolve()
        for argv, reason in [
            (["/nonexistent/x", "--port", "1"], "executable file not found: /nonexistent/x"),
            (["nonesuch-at-all"], "executable file not found in PATH: nonesuch-at-all"),
            ([str(plain)], f"permission denied: {plain} is not executable"),
            (["plain"], f"permission denied: {here}/plain is not executable"),
            ([str(folder), "a b"], f"permission denied: {folder} is a directory"),
            ([str(script)], f"executable file not found: '/nonexistent/python', the interpreter of {script}"),
            ([""], "the command is empty"),
            ([], "the command is empty"),
        ]:
            self.assertEqual(self.refusal(*argv), f"failed to start command '{' '.join(argv)}': {reason}")
        self.assertEqual(self.reactor.processes, [])

    def test_folders_on_path(self) -> None:
        """A folder, or a file without the right to run, does not hide a program further along the PATH."""
        first, second = Path(self.mktemp()), Path(self.mktemp())
        for folder in (first, second):
            folder.mkdir()
        (first / "a").mkdir()
        (first / "b").write_text("", encoding="ascii")
        for name in "ab":
            (second / name).write_text("#!/bin/sh\n", encoding="ascii")
            (second / name).chmod(0o755)
        self.patch(os, "environ", {**os.environ, "PATH": f"{first}:{second}"})
        for name in "ab":
            self.processes.spawn([name], {}, self.witness)
            self.assertEqual(self.reactor.processes[-1].words[-1], str(second.resolve() / name))

    def test_system_errors(self) -> None:
        """What the system refuses is an error of the same form, and leaves no descriptor behind."""
        before = os.listdir("/proc/self/fd")
        for error, reason in [
            (OSError(errno.E2BIG, os.strerror(errno.E2BIG)), "Argument list too long"),
            (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "Resource temporarily unavailable"),
            (ValueError("embedded null byte"), "embedded null byte"),
        ]:
            self.reactor.spawn_error = error
            self.assertEqual(self.refusal(PROGRAM, "-x"), f"failed to start command '{PROGRAM} -x': {reason}")
        self.assertEqual(os.listdir("/proc/self/fd"), before)
        self.assertEqual(self.told(), "")
        self.assert_clean()

    def test_descriptors_are_closed(self) -> None:
        """A whole life leaves no descriptor behind."""
        before = os.listdir("/proc/self/fd")
        self.spawn()
        self.process.exit(0)
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_exit_before_spawn_returns(self) -> None:
        """An early exit is told after `spawn` has returned, so that the caller knows its group."""
        self.reactor.exits_at_once = True
        group = self.spawn()
        self.assertEqual(self.witness.events, [])
        self.reactor.turn()
        self.assertEqual(self.witness.events, [Exit(code=3, signal=None), "gone"])
        self.assertEqual(self.told(), f"+{group.pid}\n-{group.pid}\n")
        self.assert_clean()


class ResidentTests(ProcessCase):
    """What is started to stay (`launch_resident`)."""

    def launch(self, *argv: str) -> Leader:
        """Start it, writing to a file."""
        with open(self.mktemp(), "wb") as file:
            self.inode = os.fstat(file.fileno()).st_ino
            return launch_resident(self.reactor, Launcher.look(), argv, {"ONE": "1"}, file.fileno())

    def test_words(self) -> None:
        """It leads its own session, and nothing ties it to us."""
        leader = self.launch(PROGRAM, "a b")
        self.assertEqual(self.process.words, ["/usr/bin/setsid", PROGRAM, "a b"])
        self.assertEqual(self.process.environment, {"ONE": "1"})
        self.assertEqual(leader.pid, self.process.number)

    def test_descriptors(self) -> None:
        """Input is empty; output and error are the file, and there is nothing else."""
        self.launch(PROGRAM)
        stats = {number: os.fstat(descriptor) for number, descriptor in self.process.descriptors.items()}
        self.assertEqual(sorted(stats), [0, 1, 2])
        self.assertEqual(stats[0].st_rdev, os.stat(os.devnull).st_rdev)
        self.assertEqual([stats[1].st_ino, stats[2].st_ino], [self.inode, self.inode])

    def test_exit(self) -> None:
        """It is told, also when nobody listened yet."""
        leader = self.launch(PROGRAM)
        self.process.exit(3)
        exits: list[Exit] = []
        leader.listen(exits.append)
        self.reactor.turn()
        self.assertEqual(exits, [Exit(code=3, signal=None)])

    def test_refusal(self) -> None:
        """What cannot be run is an error at once, with its name."""
        error = self.assertRaises(StartError, self.launch, "/nonexistent/vllm", "serve")
        self.assertIn("failed to start command '/nonexistent/vllm serve'", str(error))
