"""`twistd llamaswap` as a daemon of the classical kind: into the background, with a pid file, a log, another user."""

from __future__ import annotations

import os
import pathlib
import pwd
import signal
import socket
import stat
import tempfile
from collections.abc import Sequence
from unittest import skipUnless

from tests.integration.running import TWISTD, Running, until
from tests.integration.test_commands import SERVER, CommandCase, mask_of

#: For `--logger`: writes the text of each event to a file.
OBSERVER = """
from twisted.logger import FileLogObserver, formatEvent

def observer():
    return FileLogObserver(open("own.log", "a", buffering=1), lambda event: f"own: {formatEvent(event)}\\n")
"""


class DaemonCase(CommandCase):
    """Starts a daemon; the first process has ended when it is there."""

    def daemon(self, *options: str, flags: Sequence[str] = (), port: int | None = None) -> Running:
        """One with these options of twistd, that serves."""
        running = self.begun(*options, flags=flags, port=port)
        self.assertEqual(running.wait(15), 0, running.output)
        return running.serving()

    def begun(self, *options: str, flags: Sequence[str] = (), port: int | None = None) -> Running:
        """The same; nothing is known of it yet."""
        self.command = (*TWISTD, "--pidfile=d.pid", *options, "llamaswap")
        return self.start(*flags, port=port)

    @property
    def pid_file(self) -> pathlib.Path:
        """Where it is."""
        return self.folder / "d.pid"

    @property
    def pid(self) -> int:
        """Of the daemon, as its file says."""
        return int(self.pid_file.read_text())

    def log(self, name: str = "d.log") -> str:
        """What is in the log file."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def stop(self, running: Running) -> None:
        """SIGTERM; nothing is left soon."""
        os.kill(self.pid, signal.SIGTERM)
        running.wait_alone(5)
        self.assertFalse(self.pid_file.exists())


class DaemonTests(DaemonCase):
    """One of the same user."""

    def test_daemon(self) -> None:
        """It leaves a pid file, logs to twistd's file, serves, does not give models its own mask, and ends politely."""
        before = os.umask(0o022)
        try:
            running = self.daemon("--logfile=d.log")
        finally:
            os.umask(before)
        pid = self.pid
        self.assertIn(pid, running.family())
        self.assertNotEqual(pid, running.process.pid)
        self.use(running)
        self.assertEqual(mask_of(running.family(SERVER)[0]), 0o022)
        self.assertIn(f"127.0.0.1:{running.port}", self.log())
        self.stop(running)
        self.assertTrue(self.log().rstrip().endswith("Server Shut Down."), self.log())

    def test_session(self) -> None:
        """It has left the session that it was started in, so a terminal's end does not reach it."""
        running = self.daemon("--logfile=d.log")
        self.assertNotEqual(os.getsid(self.pid), running.process.pid)
        links = {os.readlink(f"/proc/{self.pid}/fd/{number}") for number in range(3)}
        self.assertEqual(links, {"/dev/null"})
        self.stop(running)

    def test_many_requests(self) -> None:
        """The reactor and its threads are the last process's: requests, a reload from disk, the end of a model."""
        running = self.daemon("--logfile=d.log")
        self.use(running)
        for _ in range(20):
            self.assertEqual(running.ask("GET", "/health")[0], 200)
        os.kill(self.pid, signal.SIGHUP)
        until(lambda: "configuration reloaded" in self.log(), 10, "the reload")
        self.assertEqual(running.ask("POST", "/api/models/unload")[0], 200)
        until(lambda: not running.family(SERVER), 10, "the end of the model")
        self.use(running)
        self.stop(running)

    def test_another_one_runs(self) -> None:
        """A second one with the same pid file does not start, and leaves the first alone."""
        running = self.daemon("--logfile=d.log")
        pid = self.pid
        other = self.begun("--logfile=d.log")
        self.assertEqual(other.wait(15), 1)
        self.assertIn("Another twistd server is running", other.output)
        self.assertEqual(self.pid, pid)
        self.stop(running)

    def test_stale_pid_file(self) -> None:
        """One of a process that is gone is replaced."""
        ended = Running(["true"], port=0)
        ended.wait(5)
        self.pid_file.write_text(str(ended.process.pid))
        running = self.daemon("--logfile=d.log")
        self.assertNotEqual(self.pid, ended.process.pid)
        self.stop(running)

    def test_mask(self) -> None:
        """twistd's own flag is for models too."""
        running = self.daemon("--logfile=d.log", "--umask=027")
        self.use(running)
        self.assertEqual(mask_of(running.family(SERVER)[0]), 0o027)
        self.assertEqual(stat.S_IMODE(self.pid_file.stat().st_mode), 0o640)
        self.stop(running)

    def test_rotation(self) -> None:
        """SIGUSR1 begins a new log file, as in other twistd programs."""
        running = self.daemon("--logfile=d.log")
        os.kill(self.pid, signal.SIGUSR1)
        until((self.folder / "d.log.1").exists, 5, "the old log")
        self.assertEqual(running.ask("GET", "/running")[0], 200)
        until(lambda: "/running" in self.log(), 5, "the new log")
        self.assertNotIn("/running", self.log("d.log.1"))
        self.stop(running)

    def test_own_logger(self) -> None:
        """`--logger` takes the events elsewhere."""
        (self.folder / "observing.py").write_text(OBSERVER)
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        self.patch(os, "environ", {**os.environ, "PYTHONPATH": path})
        running = self.daemon("--logger=observing.observer")
        until(lambda: "own: lswap listening" in self.log("own.log"), 5, "the log")
        self.use(running)
        self.stop(running)

    def test_syslog(self) -> None:
        """So does `--syslog`; what the system's log does with them is not seen here."""
        running = self.daemon("--syslog", "--prefix=lswap-test")
        self.use(running)
        self.stop(running)
        self.assertEqual([path.name for path in self.folder.glob("*.log*")], [])

    def test_bad_configuration(self) -> None:
        """All problems are told on the terminal, with exit code 1, before anything goes into the background."""
        (self.folder / "c.yaml").write_text("logToStdout: paper\n")
        running = self.begun("--logfile=d.log")
        self.assertEqual(running.wait(15), 1)
        self.assertTrue(running.output.startswith("c.yaml:1:"), running.output)
        self.assertTrue(running.output.endswith("failed to load config: 1 problem\n"), running.output)
        running.wait_alone(2)
        self.assertFalse(self.pid_file.exists())

    def test_port_in_use(self) -> None:
        """A daemon that cannot open its port says so before it is one: exit code 1, no pid file, no process."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            running = self.begun("--logfile=d.log", port=taken.getsockname()[1])
            self.assertEqual(running.wait(10), 1)
        self.assertIn("cannot listen", running.output)
        running.wait_alone(2)
        self.assertFalse(self.pid_file.exists())

    def test_other_folder(self) -> None:
        """With `--rundir`, the paths of all flags are still meant from where the command was given."""
        (self.folder / "run").mkdir()
        running = self.daemon("--logfile=d.log", "--rundir=run")
        self.assertEqual(os.readlink(f"/proc/{self.pid}/cwd"), str((self.folder / "run").resolve()))
        (self.folder / "c.yaml").write_text(self.config.replace("  a:", "  b:"))
        os.kill(self.pid, signal.SIGHUP)
        until(lambda: "configuration reloaded: 0 changed, 1 added" in self.log(), 10, self.log())
        self.assertEqual(list((self.folder / "run").iterdir()), [])
        self.stop(running)


@skipUnless(os.geteuid() == 0, "only root may become another user")
class OtherUserTests(DaemonCase):
    """One that root starts, and that becomes `nobody`."""

    def setUp(self) -> None:
        """In a folder that `nobody` may enter and write to, with the code readable."""
        super().setUp()
        self.nobody = pwd.getpwnam("nobody")
        folder = tempfile.TemporaryDirectory(prefix="lswap-test-", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chown(self.folder, self.nobody.pw_uid, self.nobody.pw_gid)
        # In words that need no Python, which may be out of reach for anybody else.
        (self.folder / "c.yaml").write_text(
            "models:\n  a:\n    cmd: sleep 1000\n    proxy: http://127.0.0.1:1\n    checkEndpoint: none\n"
        )

    def test_other_user(self) -> None:
        """The port is opened as root; afterwards it and its models are nobody, with no group of root's."""
        running = self.daemon("--logfile=d.log", "--uid=nobody", f"--gid={self.nobody.pw_gid}")
        self.assertEqual(running.ask("GET", "/upstream/a/")[0], 502)
        (model,) = running.family("sleep\0" + "1000")
        for pid in (self.pid, model):
            status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
            self.assertEqual(status["Uid"].split(), [str(self.nobody.pw_uid)] * 4, pid)
            self.assertEqual(status["Gid"].split(), [str(self.nobody.pw_gid)] * 4, pid)
            self.assertEqual(status["Groups"].split(), [str(self.nobody.pw_gid)], pid)
        os.kill(self.pid, signal.SIGHUP)
        until(lambda: "configuration reloaded" in self.log(), 10, "the reload")
        self.stop(running)
