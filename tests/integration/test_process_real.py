"""Real processes under `lswap.net.process` and the guard: whole families, and what is left of them.

Each test waits for a condition, never for a time; `within` bounds the wait.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.task import deferLater
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import TestCase

from lswap.net import process as module
from lswap.net.group import KernelGroups
from lswap.net.guard import SCRIPT, Guard
from lswap.net.launcher import Launcher
from lswap.net.process import Exit, Group, Processes

T = TypeVar("T")

#: Says its pid when SIGTERM can do nothing to it any more, and stays.
STUBBORN = "trap '' TERM; echo stubborn $$; while :; do sleep 600 >/dev/null 2>&1; done"

#: Runs Processes and Guard on the words of its command line, tells the pid, and then only waits.
PARENT = """
import os, sys
from twisted.internet import reactor
from lswap.net.guard import Guard
from lswap.net.process import Processes

class Printer:
    def process_output(self, data): os.write(1, data)
    def process_exited(self, exit): print("exited", exit.words, flush=True)
    def process_gone(self): print("gone", flush=True)

def begin():
    guard = Guard(reactor)
    guard.start()
    print("guard", guard._process.transport.pid, flush=True)
    print("leader", Processes(reactor, guard).spawn(sys.argv[1:], os.environ, Printer()).pid, flush=True)

reactor.callWhenRunning(begin)
reactor.run()
"""


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        masks = dict(line.split(":", 1) for line in file)
    return bool(int(masks["SigIgn"], 16) >> (number - 1) & 1)


def read(path: Path) -> str:
    """What a file holds."""
    return path.read_text(encoding="ascii")


def fifo(path: str) -> Path:
    """A named pipe, on which a script can wait for the test."""
    os.mkfifo(path)
    return Path(path).absolute()


class Witness:
    """A listener that keeps everything and lets a test wait for it."""

    def __init__(self) -> None:
        self.output = b""
        self.pieces: list[int] = []
        self.exit: Exit | None = None
        self.gone = False

    def process_output(self, data: bytes) -> None:
        """Keep it."""
        self.output = (self.output + data)[-100_000:]
        self.pieces.append(len(data))

    def process_exited(self, exit: Exit) -> None:
        """Keep it."""
        assert self.exit is None and not self.gone
        self.exit = exit

    def process_gone(self) -> None:
        """Keep it."""
        assert self.exit is not None and not self.gone
        self.gone = True

    def number(self, word: str) -> int | None:
        """The number that was printed after a word."""
        words = self.output.decode().split()
        return int(words[words.index(word) + 1]) if word in words[:-1] else None


class RealCase(TestCase):
    """The real reactor, a real guard, and a clean end."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        """Start the guard."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        # Only a reactor that runs hears of the end of processes, and has all its own descriptors.
        await deferLater(self.reactor, 0)
        self.guard = Guard(self.reactor)
        self.guard.start()
        self.processes = Processes(self.reactor, self.guard)
        self.begun: list[tuple[Group, Witness]] = []

    async def tearDown(self) -> None:  # type: ignore[override]
        """End what is left, and see that the guard has gone as well."""
        for group, witness in self.begun:
            group.kill()
            await self.within(10, lambda witness=witness: witness.gone)  # type: ignore[misc]
        pid = self.guard_pid()
        self.guard.stop()
        await self.within(10, lambda: not alive(pid))

    def guard_pid(self) -> int:
        """The pid of the guard; 0 for none."""
        process = self.guard._process
        return process.transport.pid if process is not None and process.transport is not None else 0

    async def within(self, seconds: float, condition: Callable[[], T]) -> T:
        """Look again and again until the condition holds; its value."""
        limit = self.reactor.seconds() + seconds
        while not (value := condition()):
            self.assertLess(self.reactor.seconds(), limit, "it did not happen in time")
            await deferLater(self.reactor, 0.01)
        return value

    def spawn(self, *argv: str) -> tuple[Group, Witness]:
        """Spawn something with our own environment."""
        witness = Witness()
        group = self.processes.spawn(argv, os.environ, witness)
        self.begun.append((group, witness))
        return group, witness

    def sh(self, script: str, *arguments: str) -> tuple[Group, Witness]:
        """Spawn a shell script."""
        return self.spawn("sh", "-c", script, "sh", *arguments)

    async def number(self, witness: Witness, word: str) -> int:
        """The number that a process prints after a word."""
        found = await self.within(10, lambda: witness.number(word))
        assert found is not None
        return found


class SpawnTests(RealCase):
    """What a started process finds."""

    async def test_surroundings(self) -> None:
        """Its own session and group, an empty input, our working directory and umask, three descriptors."""
        script = (
            "import os, sys; mask = os.umask(0);"
            "print(os.getpid(), os.getpgid(0), os.getsid(0), os.getppid(), os.getcwd(), oct(mask), sys.stdin.read(),"
            " sorted(fd for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')))"
        )
        group, witness = self.spawn(sys.executable, "-S", "-c", script)
        await self.within(10, lambda: witness.gone)
        mask = os.umask(0)
        os.umask(mask)
        pid, us, here = group.pid, os.getpid(), os.getcwd()
        expected = f"{pid} {pid} {pid} {us} {here} {oct(mask)}  ['0', '1', '2']\n"
        self.assertEqual((witness.output.decode(), witness.exit), (expected, Exit(code=0, signal=None)))

    async def test_no_ignored_signals(self) -> None:
        """What Python ignores (SIGPIPE) is not ignored in a model, and nothing is blocked."""
        _, witness = self.spawn("grep", "^Sig[IB]", "/proc/self/status")
        await self.within(10, lambda: witness.gone)
        masks = [int(line.split()[1], 16) for line in witness.output.decode().splitlines()]
        # The numbers above 31 belong to the C library and to whoever started the tests.
        self.assertEqual([mask & 0x7FFFFFFF for mask in masks], [0, 0])

    async def test_order(self) -> None:
        """Output and error keep their order, also the words just before the exit."""
        _, witness = self.sh("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done; exit 17")
        await self.within(10, lambda: witness.gone)
        self.assertEqual(
            (witness.output.decode(), witness.exit),
            ("".join(f"out {i}\nerr {i}\n" for i in range(1, 6)), Exit(code=17, signal=None)),
        )

    async def test_fork_as_well_as_posix_spawn(self) -> None:
        """Both ways in which Twisted starts processes are right, and twenty of them leave no descriptor behind."""
        for forked in (False, True):
            if forked:
                self.reactor._neverUseSpawn = True
                self.addCleanup(delattr, self.reactor, "_neverUseSpawn")
            before = len(os.listdir("/proc/self/fd"))
            started = [self.sh("echo to $1; ls /proc/self/fd | wc -l", str(count)) for count in range(20)]
            for count, (_, witness) in enumerate(started):
                await self.within(20, lambda witness=witness: witness.gone)  # type: ignore[misc]
                # The fourth one is the folder that `ls` reads.
                self.assertEqual(witness.output.split(), [b"to", str(count).encode(), b"4"])
            self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    async def test_shim(self) -> None:
        """Where there is no `setsid`, a process still leads its own session."""
        launcher = Launcher.without_setsid()
        self.processes = Processes(self.reactor, self.guard, launcher=launcher)
        group, witness = self.sh("echo it $$; exec sleep 600")
        self.assertEqual(await self.number(witness, "it"), group.pid)
        self.assertEqual((os.getpgid(group.pid), os.getsid(group.pid)), (group.pid, group.pid))
        group.stop(5)
        await self.within(5, lambda: witness.gone)
        self.assertEqual(witness.exit, Exit(code=None, signal=signal.SIGTERM))

    async def test_chatty_process(self) -> None:
        """A process that never stops writing is neither held up nor does it keep others waiting."""
        _, chatty = self.spawn("yes")
        await self.within(10, lambda: sum(chatty.pieces) > 1 << 20)
        _, quiet = self.sh("echo hello")
        await self.within(10, lambda: quiet.gone)
        self.assertEqual(quiet.output, b"hello\n")
        seen = sum(chatty.pieces)
        await self.within(10, lambda: sum(chatty.pieces) > seen + (1 << 20))
        self.assertLessEqual(max(chatty.pieces), 65536)


class EndTests(RealCase):
    """Whole families come to an end."""

    async def test_stop(self) -> None:
        """SIGTERM ends a plain process, and everything is told at once."""
        group, witness = self.spawn("sleep", "600")
        group.stop(10)
        await self.within(5, lambda: witness.gone)
        self.assertEqual(witness.exit, Exit(code=None, signal=signal.SIGTERM))
        self.assertFalse(alive(group.pid))

    async def test_kill_in_the_first_instant(self) -> None:
        """Also a process that has hardly begun can be ended."""
        started = [self.spawn("sleep", "600") for _ in range(10)]
        for group, _ in started:
            group.kill()
        for _, witness in started:
            await self.within(5, lambda witness=witness: witness.gone)  # type: ignore[misc]
            self.assertEqual(witness.exit, Exit(code=None, signal=signal.SIGKILL))

    async def test_shell_that_waits_for_a_background_process(self) -> None:
        """A server behind a shell ends with it."""
        group, witness = self.sh("sleep 600 & echo child $!; wait")
        child = await self.number(witness, "child")
        group.stop(10)
        await self.within(5, lambda: witness.gone)
        self.assertFalse(alive(child))

    async def test_child_that_ignores_sigterm(self) -> None:
        """A child that ignores SIGTERM does not outlive a leader that does not."""
        self.patch(module, "DRAIN", 0.2)
        group, witness = self.sh('sh -c "$1" & exec sleep 600', STUBBORN)
        child = await self.number(witness, "stubborn")
        group.stop(10)
        await self.within(5, lambda: witness.exit)
        self.assertTrue(alive(child))
        await self.within(5, lambda: witness.gone)
        self.assertFalse(alive(child))

    async def test_leader_that_leaves_its_children(self) -> None:
        """A leader that ends by itself leaves no child, not even a stubborn one; its own exit is told first."""
        self.patch(module, "DRAIN", 0.2)
        path = fifo(self.mktemp())
        _, witness = self.sh('sh -c "$1" & read line < "$2"; exit 5', STUBBORN, str(path))
        child = await self.number(witness, "stubborn")
        path.write_text("go\n", encoding="ascii")
        await self.within(5, lambda: witness.exit)
        self.assertEqual(witness.exit, Exit(code=5, signal=None))
        await self.within(5, lambda: witness.gone)
        self.assertFalse(alive(child))

    async def test_leader_killed_from_outside(self) -> None:
        """The same when somebody kills the leader."""
        group, witness = self.sh("sleep 600 & echo child $!; wait")
        child = await self.number(witness, "child")
        os.kill(group.pid, signal.SIGKILL)
        await self.within(5, lambda: witness.gone)
        self.assertEqual(witness.exit, Exit(code=None, signal=signal.SIGKILL))
        self.assertFalse(alive(child))

    async def test_stubborn_leader(self) -> None:
        """SIGKILL when the grace is over, for all."""
        group, witness = self.sh(STUBBORN)
        await self.number(witness, "stubborn")
        group.stop(0.2)
        await self.within(5, lambda: witness.gone)
        self.assertEqual(witness.exit, Exit(code=None, signal=signal.SIGKILL))
        self.assertEqual(KernelGroups().members(group.pid), [])

    async def test_daemon_that_holds_the_pipe(self) -> None:
        """What has left for a session of its own delays the end by no more than half a second or so."""
        group, witness = self.sh('setsid sh -c "$1" & exec sleep 600', "echo daemon $$; exec sleep 600")
        daemon = await self.number(witness, "daemon")
        self.addCleanup(os.kill, daemon, signal.SIGKILL)
        group.stop(10)
        await self.within(5, lambda: witness.exit)
        self.assertFalse(witness.gone)
        await self.within(2, lambda: witness.gone)
        self.assertTrue(alive(daemon))

    async def test_stop_command(self) -> None:
        """A stop command ends the process in its own way, and may still do something afterwards."""
        group, witness = self.sh("trap 'echo asked; exit 3' INT; echo up $$; while :; do sleep 0.01; done")
        await self.number(witness, "up")
        path = Path(self.mktemp())
        group.stop(10, ["sh", "-c", f"kill -INT $1; sleep 0.2; echo done > {path}", "sh", str(group.pid)])
        await self.within(5, lambda: witness.gone)
        self.assertEqual(witness.exit, Exit(code=3, signal=None))
        self.assertEqual(read(path), "done\n")

    async def test_stop_command_that_hangs(self) -> None:
        """A stop command that hangs ends with its process, its descendants included."""
        group, witness = self.spawn("sleep", "600")
        path = Path(self.mktemp())
        with capturedLogs() as logs:
            group.stop(0.5, ["sh", "-c", f"sleep 600 & echo $! > {path}; wait"])
            await self.within(5, lambda: witness.gone)
        self.assertFalse(alive(int(read(path))))
        self.assertIn("sh", [event.get("program") for event in logs if event["log_level"] is LogLevel.warn])


class GuardTests(RealCase):
    """What is left when lswap itself is killed."""

    def parent(self, *argv: str) -> subprocess.Popen[str]:
        """A program that runs a command as lswap does."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *argv],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

        def end() -> None:
            parent.kill()
            parent.wait()
            assert parent.stdout is not None
            parent.stdout.close()

        self.addCleanup(end)
        return parent

    def numbers(self, parent: subprocess.Popen[str], *words: str) -> list[int]:
        """The numbers that it, or its command, prints after these words."""
        found: dict[str, int] = {}
        assert parent.stdout is not None
        while not all(word in found for word in words):
            line = parent.stdout.readline()
            self.assertTrue(line, "it ended early")
            word, _, number = line.partition(" ")
            if number.strip().isdecimal():
                found[word] = int(number)
        return [found[word] for word in words]

    async def test_killed(self) -> None:
        """SIGKILL of the parent ends the leader, a stubborn grandchild behind a shell, and then the guard."""
        parent = self.parent("sh", "-c", 'sh -c "$1" & wait', "sh", STUBBORN)
        pids = self.numbers(parent, "guard", "leader", "stubborn")
        self.assertEqual([alive(pid) for pid in pids], [True] * 3)
        os.killpg(parent.pid, signal.SIGKILL)
        for pid in pids:
            await self.within(5, lambda pid=pid: not alive(pid))  # type: ignore[misc]

    async def test_leader_is_told_at_once(self) -> None:
        """The kernel itself sends SIGTERM to the leader, even without a guard."""
        parent = self.parent("sh", "-c", "trap 'exit 0' TERM; echo up 1; while :; do sleep 0.01; done")
        guard, leader, _ = self.numbers(parent, "guard", "leader", "up")
        os.kill(guard, signal.SIGSTOP)
        self.addCleanup(os.kill, guard, signal.SIGKILL)
        parent.kill()
        await self.within(5, lambda: not alive(leader))

    async def test_guard_ignores_polite_signals(self) -> None:
        """What ends a whole session politely does not end the guard."""
        pid = self.guard_pid()
        await self.within(5, lambda: ignores(pid, signal.SIGTERM))
        group, witness = self.spawn("sleep", "600")
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(pid, number)
        group.stop(5)
        await self.within(5, lambda: witness.gone)
        self.assertEqual((self.guard_pid(), alive(pid)), (pid, True))

    async def test_guard_is_replaced(self) -> None:
        """A guard that is killed has a successor, and nothing else notices."""
        first = self.guard_pid()
        _, witness = self.spawn("sleep", "600")
        with capturedLogs() as logs:
            os.kill(first, signal.SIGKILL)
            second = await self.within(5, lambda: self.guard_pid() not in (0, first) and self.guard_pid())
        self.assertTrue(alive(int(second)))
        self.assertIn(LogLevel.warn, [event["log_level"] for event in logs])
        self.assertIsNone(witness.exit)

    async def test_guard_has_nothing_open(self) -> None:
        """The guard holds nothing but its input and the null device: no port, no pipe of a model."""
        pid = self.guard_pid()
        # Before it has become a shell, the dynamic linker may have something open.
        await self.within(5, lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/bin/sh\0"))
        folder = Path(f"/proc/{pid}/fd")
        await self.within(5, lambda: sorted(path.name for path in folder.iterdir()) == ["0", "1", "2"])
        links = {name: str((folder / name).readlink()) for name in "012"}
        self.assertEqual((links.pop("0")[:5], links), ("pipe:", {"1": "/dev/null", "2": "/dev/null"}))

    def script_in(self, shell: str) -> Callable[[], None]:
        """Run the guard's script on a group that it should end, one to kill and one to spare; returns the check."""
        leaders: list[subprocess.Popen[str]] = []
        tidy = "trap 'sleep 0.3; exit 7' TERM; echo 1; while :; do sleep 0.01; done"
        for script in (tidy, STUBBORN, "echo 1; exec sleep 600"):
            leader = subprocess.Popen(
                ["sh", "-c", script],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            leaders.append(leader)
            self.addCleanup(finish, leader)
            assert leader.stdout is not None
            leader.stdout.readline()
        polite, stubborn, spared = (leader.pid for leader in leaders)
        orders = f"+{spared}\n+{polite} later words\n-7\n+{stubborn}\nnonsense\n-{spared}\n+"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        guard: subprocess.Popen[str] = subprocess.Popen([*shell.split(), "-c", SCRIPT], text=True, **pipes)  # type: ignore[call-overload]
        assert guard.stdin is not None
        guard.stdin.write(orders)
        guard.stdin.flush()
        guard.stdin.close()
        guard.stdin = None

        def check() -> None:
            # Not its error output: BusyBox complains of the `--` that dash needs, and obeys all the same.
            self.assertEqual(guard.communicate(timeout=20)[0], "")
            self.assertEqual(leaders[0].wait(5), 7)
            self.assertEqual(leaders[1].wait(5), -signal.SIGKILL)
            self.assertIsNone(leaders[2].poll())

        return check

    def test_script_in_each_shell(self) -> None:
        """The script does the same in every shell that may be /bin/sh here; half a line is no order."""
        shells = ("sh", "dash", "bash", "bash --posix", "busybox sh", "ksh", "mksh", "yash")
        for check in [self.script_in(shell) for shell in shells if shutil.which(shell.split()[0])]:
            check()

    def test_script_after_a_farewell(self) -> None:
        """After a farewell nothing is touched."""
        leader = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(finish, leader)
        ran = subprocess.run(["sh", "-c", SCRIPT], input=f"+{leader.pid}\nbye\n", text=True, check=False, timeout=20)
        self.assertEqual((ran.returncode, leader.poll()), (0, None))


def finish(process: subprocess.Popen[str]) -> None:
    """End a process group of a test."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
