"""`lswap-vllm sleep`, `status`, `stop` and `serve --dry-run` (`lswap.vllm.commands`), in memory."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred

from lswap.net.birth import birth_of
from lswap.vllm import commands
from lswap.vllm.state import Record, ServerState
from tests.vllm.vllm_case import URL, VllmCase


class CommandCase(VllmCase):
    """A command, and what it prints."""

    def run_command(
        self, command: Callable[..., Coroutine[Any, Any, int]], seconds: float = 0.0, **settings: Any
    ) -> tuple[int, str]:
        """Exit code and output."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            work = command(self.reactor, self.settings(listen=settings.pop("listen", ""), **settings))
            done = Deferred.fromCoroutine(work)
            self.pass_time(max(seconds, 0.05))
        code = self.successResultOf(done)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        return code, printed.getvalue()

    @property
    def state(self) -> ServerState:
        """The files of the server."""
        return ServerState(pathlib.Path(self.folder), URL)

    def process(self) -> subprocess.Popen[bytes]:
        """Some process that leads a session of its own and ends on SIGTERM."""
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)

        def end() -> None:
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def known(self, process: subprocess.Popen[bytes]) -> None:
        """Write it down as the daemon."""
        self.state.write_record(Record(pid=process.pid, birth=birth_of(process.pid) or "", words=("vllm", "a b")))


class SleepTests(CommandCase):
    """`sleep`."""

    def test_sleep(self) -> None:
        """The level goes into the query, and is remembered."""
        self.vllm.listen()
        self.assertEqual(self.run_command(commands.sleep, sleep_level=2), (0, ""))
        self.assertEqual((self.vllm.calls, self.state.level), (["POST /sleep?level=2"], 2))

    def test_asleep_already(self) -> None:
        """Not again; that is a success, and the wrapper ends."""
        self.vllm.listen()
        self.vllm.asleep = True
        process = self.process()
        code, _ = self.run_command(commands.sleep, stop_pid=process.pid)
        self.assertEqual((code, self.vllm.calls), (0, []))
        self.assertEqual(process.wait(10), -signal.SIGTERM)

    def test_failure(self) -> None:
        """The wrapper is left alone."""
        process = self.process()
        code, said = self.run_command(commands.sleep, stop_pid=process.pid)
        self.assertEqual(code, 1)
        self.assertIn("the server was not put to sleep: POST /sleep?level=1: connection to", said)
        self.vllm.listen()
        self.vllm.statuses["/sleep"] = 500
        code, said = self.run_command(commands.sleep, stop_pid=process.pid)
        self.assertEqual(code, 1)
        self.assertIn("status 500", said)
        self.assertIsNone(process.poll())

    def test_no_answer(self) -> None:
        """Bounded in time."""
        self.vllm.listen()
        self.vllm.statuses["/sleep"] = None
        code, said = self.run_command(commands.sleep, 61)
        self.assertEqual(code, 1)
        self.assertIn("no answer within 60 s", said)

    def test_no_such_process(self) -> None:
        """An error, though the server sleeps."""
        self.vllm.listen()
        process = self.process()
        process.kill()
        process.wait()
        code, said = self.run_command(commands.sleep, stop_pid=process.pid)
        self.assertEqual((code, self.vllm.asleep), (1, True))
        self.assertIn(f"SIGTERM to process {process.pid}: No such process", said)


class StatusTests(CommandCase):
    """`status`."""

    def test_nothing(self) -> None:
        """1 when nobody answers."""
        code, said = self.run_command(commands.status)
        self.assertEqual(code, 1)
        self.assertIn(f"url:     {URL}\nhealth:  connection to", said)
        self.assertIn("\ndaemon:  none is known\n", said)

    def test_all(self) -> None:
        """What is known."""
        process = self.process()
        self.known(process)
        self.vllm.listen()
        code, said = self.run_command(commands.status)
        self.assertEqual(code, 0)
        self.assertIn(f"health:  ready\nsleeps:  no\ndaemon:  process {process.pid}: vllm 'a b'\n", said)
        self.vllm.asleep = True
        process.communicate()
        _, said = self.run_command(commands.status)
        self.assertIn(f"sleeps:  yes\ndaemon:  process {process.pid}, which has ended: ", said)
        self.vllm.tells = False
        self.assertIn("sleeps:  it does not say\n", self.run_command(commands.status)[1])


class StopTests(CommandCase):
    """`stop`; `FakeGroups` knows nothing of these processes, so the real ones of this machine are asked."""

    def test_stop(self) -> None:
        """SIGTERM to the group, and it is forgotten; a second time there is none."""
        process = self.process()
        self.known(process)
        code, said = self.stop(process)
        self.assertEqual(code, 0)
        self.assertIn(f"process {process.pid} has ended", said)
        self.assertEqual(process.wait(10), -signal.SIGTERM)
        self.assertIsNone(self.state.record())
        code, said = self.run_command(commands.stop)
        self.assertEqual(code, 0)
        self.assertIn("no daemon of ours runs", said)

    def test_one_that_does_not_obey(self) -> None:
        """SIGKILL after the grace."""
        process = subprocess.Popen(
            ["sh", "-c", "trap '' TERM; echo; cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        self.known(process)
        self.assertEqual(self.stop(process, grace=0.1)[0], 0)
        self.assertEqual(process.wait(10), -signal.SIGKILL)

    def stop(self, process: subprocess.Popen[bytes], **settings: Any) -> tuple[int, str]:
        """Run it; the made-up clock goes on whenever the real process has had its time."""
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            done = Deferred.fromCoroutine(commands.stop(self.reactor, self.settings(**settings)))
            codes: list[int] = []
            done.addCallback(codes.append)
            while not codes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
                self.pass_time(0.1)
        return codes[0], printed.getvalue()

    def test_a_server_of_somebody_else(self) -> None:
        """It is left alone, and named."""
        self.vllm.listen()
        code, said = self.run_command(commands.stop)
        self.assertEqual(code, 1)
        self.assertIn("was not started here", said)

    def test_a_foreign_pid(self) -> None:
        """A number that was given anew is nobody to be killed."""
        process = self.process()
        self.state.write_record(Record(pid=process.pid, birth="other:1"))
        self.assertEqual(self.run_command(commands.stop)[0], 0)
        self.assertIsNone(process.poll())

    def test_during_a_start(self) -> None:
        """Whoever starts it goes first."""
        lock = self.state.acting
        lock.take()
        code, said = self.run_command(commands.stop, 11)
        lock.release()
        self.assertEqual(code, 1)
        self.assertIn("end that first", said)


class DryRunTests(CommandCase):
    """`serve --dry-run`."""

    def test_nothing_is_done(self) -> None:
        """It tells what would be."""
        code, said = self.run_command(commands.dry_run, listen=":9000")
        self.assertEqual(code, 0)
        self.assertIn("  start /bin/sh serve\n", said)
        self.assertIn("listen on :9000\n", said)
        self.assertEqual((self.reactor.processes, self.reactor.ports), ([], []))
        self.assertIsNone(self.state.record())

    def test_a_server_that_is_there(self) -> None:
        """Used, woken, or waited for."""
        self.vllm.listen()
        self.assertIn("use the server as it is\n", self.run_command(commands.dry_run)[1])
        self.vllm.asleep = True
        self.assertIn("wake the server\n", self.run_command(commands.dry_run)[1])
        self.vllm.shut()
        self.state.write_record(Record(pid=os.getpid(), birth=birth_of(os.getpid()) or ""))
        self.assertIn(f"wait for process {os.getpid()}", self.run_command(commands.dry_run)[1])
        self.assertEqual(self.vllm.calls, [])
