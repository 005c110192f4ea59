"""The two commands as real processes: starting, listening, signals, exit codes, the daemon."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import time

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running import LSWAP, TWISTD, Running, free_port, until

CONFIG = "models:\n  a:\n    cmd: python -m lswap.demo.echo_server --port ${PORT} --name a\n"
SERVER = "lswap.demo.echo_server"


class CommandCase(SynchronousTestCase):
    """Starts a command in a folder of its own, with a configuration in `c.yaml`."""

    command: tuple[str, ...] = LSWAP

    def setUp(self) -> None:
        """Make the folder."""
        self.folder = pathlib.Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.config = CONFIG + f"startPort: {free_port()}\n"
        (self.folder / "c.yaml").write_text(self.config)

    def start(self, *flags: str, port: int | None = None) -> Running:
        """The command with its configuration and these flags."""
        running = Running([*self.command, "-config", "c.yaml", *flags], cwd=self.folder, port=port)
        self.addCleanup(running.end)
        return running

    def serve(self) -> Running:
        """The same; it listens."""
        return self.start().serving()

    def use(self, running: Running) -> None:
        """Start its model."""
        status, _body = running.ask("POST", "/v1/chat/completions", {"model": "a", "messages": []})
        self.assertEqual(status, 200)
        self.assertEqual(len(running.family(SERVER)), 1)


class LswapTests(CommandCase):
    """`lswap`; the class below runs the same with `twistd -n`."""

    def test_polite_stop(self) -> None:
        """SIGTERM and SIGINT end it with 0, soon when it is idle, and with its models gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            running = self.serve()
            self.use(running)
            running.process.send_signal(number)
            self.assertEqual(running.wait(5), 0, running.output)
            running.wait_alone(1)

    def test_driver_that_hangs(self) -> None:
        """A tool of the GPU that never ends holds up neither an answer nor the end, and does not outlive it."""
        tool = self.folder / "bin" / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\nexec sleep 1000\n")
        tool.chmod(0o755)
        self.patch(os, "environ", {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"})
        running = self.serve()
        begun = time.monotonic()
        self.assertEqual(running.ask("GET", "/metrics")[0], 200)
        self.assertLess(time.monotonic() - begun, 2.5)
        until(lambda: running.family("sleep"), 5, "the tool")
        begun = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(5), 0, running.output)
        self.assertLess(time.monotonic() - begun, 1.5)
        running.wait_alone(1)

    def test_stop_before_the_first_request(self) -> None:
        """An idle one ends within a fraction of a second, also with a connection open that never sent anything."""
        running = self.serve()
        with socket.create_connection(("127.0.0.1", running.port)):
            began = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            self.assertEqual(running.wait(5), 0, running.output)
            # Measured at 0.1 s; the bound leaves room for a busy machine.
            self.assertLess(time.monotonic() - began, 2)

    def test_hangup_does_not_end_it(self) -> None:
        """SIGHUP, also the moment that the port opens, leaves it serving."""
        running = self.serve()
        os.kill(running.process.pid, signal.SIGHUP)
        self.assertEqual(running.ask("GET", "/health")[0], 200)
        os.kill(running.process.pid, signal.SIGHUP)
        self.assertEqual(running.ask("GET", "/health")[0], 200)
        self.assertIsNone(running.process.poll())

    def test_bad_configuration(self) -> None:
        """All problems are printed and nothing else; exit code 1."""
        (self.folder / "c.yaml").write_text(CONFIG + "    ttl: -7\nlogToStdout: paper\n")
        running = self.start()
        self.assertEqual(running.wait(10), 1)
        first, second, last = running.output.splitlines()
        self.assertTrue(first.startswith("c.yaml:4:"), first)
        self.assertTrue(second.startswith("c.yaml:5:"), second)
        self.assertEqual(last, "failed to load config: 2 problems")

    def test_words_that_are_no_flags(self) -> None:
        """Exit code 2, and the error comes before the help."""
        running = self.start("--no-such-flag")
        self.assertEqual(running.wait(10), 2)
        self.assertTrue(running.output.startswith("flag provided but not defined: -no-such-flag\n"), running.output)

    def test_port_in_use(self) -> None:
        """A port that is taken ends it with 1 and a text that says so, without a traceback."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            running = self.start(port=taken.getsockname()[1])
            self.assertEqual(running.wait(10), 1)
        self.assertIn("in use", running.output)
        self.assertEqual(running.output.count("lswap:"), 1, running.output)
        self.assertNotIn("Traceback", running.output)

    def test_address_that_is_none(self) -> None:
        """Something that is no address ends it with 1 and a text that repeats it, without a traceback."""
        for address in ("nonsense", "127.0.0.1:99999", "nowhere.invalid:80"):
            running = self.start("-listen", address, port=0)
            self.assertEqual(running.wait(10), 1, address)
            self.assertIn(address, running.output)
            self.assertNotIn("Traceback", running.output)

    def test_umask_of_models(self) -> None:
        """A model inherits the mask that lswap was started with."""
        before = os.umask(0o027)
        try:
            running = self.serve()
        finally:
            os.umask(before)
        self.use(running)
        self.assertEqual(mask_of(running.family(SERVER)[0]), 0o027)


class TwistdTests(LswapTests):
    """`twistd -n llamaswap`."""

    command = (*TWISTD, "-n", "--pidfile=", "llamaswap")


def mask_of(pid: int) -> int:
    """The file creation mask of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
