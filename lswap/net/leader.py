"""One process that leads a group: started with the right words and descriptors, heard of when it exits.

Touches the reactor's `spawnProcess`. Knows nothing of groups: read `lswap.net.process` next, which ends them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IDelayedCall, IProcessProtocol, IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from lswap.errors import StartError
from lswap.net.launcher import Launcher, find_program

__all__ = ["Exit", "Leader", "Reactor", "launch", "launch_resident"]


class Reactor(Protocol):
    """The part of a reactor that is needed here."""

    def seconds(self) -> float:
        """The time, in seconds of a clock that does not jump."""

    def callLater(self, delay: float, callable: Callable[..., object], *args: object) -> IDelayedCall:
        """Call after so many seconds."""

    def spawnProcess(
        self,
        processProtocol: IProcessProtocol,
        executable: str,
        args: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        childFDs: Mapping[int, int | str] | None = None,
    ) -> IProcessTransport:
        """Start a process."""


class Exit(msgspec.Struct, frozen=True):
    """How a leader ended: one of the two numbers is set."""

    code: int | None
    signal: int | None

    @property
    def words(self) -> str:
        """For a user: `exit code 17`, `killed by signal 9`."""
        return f"exit code {self.code}" if self.signal is None else f"killed by signal {self.signal}"


class Leader(ProcessProtocol):
    """Hears from the reactor about the process; keeps an early exit until somebody listens."""

    def __init__(self, reactor: Reactor, began: Callable[[int], object]) -> None:
        #: Set once it runs, and for good.
        self.pid = 0
        self._reactor = reactor
        self._began = began
        self._exit: Exit | None = None
        self._listener: Callable[[Exit], object] | None = None

    def listen(self, exited: Callable[[Exit], object]) -> None:
        """Have the exit told, once; never before this has returned."""
        self._listener = exited
        if self._exit is not None:
            self._reactor.callLater(0, exited, self._exit)

    def signal(self, number: int) -> None:
        """Send a signal to this process alone, if it is there."""
        try:
            if self.transport is not None:
                self.transport.signalProcess(number)
        except (ProcessExitedAlready, OSError):
            pass

    def connectionMade(self) -> None:
        """For the reactor: it runs."""
        assert self.transport is not None
        self.pid = self.transport.pid
        self._began(self.pid)

    def processExited(self, reason: Failure) -> None:
        """For the reactor: it is gone."""
        status = reason.value
        if isinstance(status, ProcessTerminated):
            self._exit = Exit(code=status.exitCode, signal=status.signal)
        else:
            self._exit = Exit(code=0, signal=None)
        if self._listener is not None:
            self._listener(self._exit)


def launch(
    reactor: Reactor,
    launcher: Launcher,
    argv: Sequence[str],
    environment: Mapping[str, str],
    began: Callable[[int], object],
    *,
    quiet: bool = False,
) -> tuple[Leader, int]:
    """Start `argv`; returns the leader, and the reading end of the pipe for its output, which the caller owns.

    `began` is called with the pid before anything else can happen. Standard output and error share the pipe; `quiet`
    throws standard output away.

    @raise StartError: it cannot be started; the text names the command.
    """
    with _explained(argv):
        words = launcher.words([find_program(argv[0] if argv else ""), *argv[1:]])
        leader = Leader(reactor, began)
        return leader, _spawn(reactor, leader, words, environment, quiet)


def launch_resident(
    reactor: Reactor, launcher: Launcher, argv: Sequence[str], environment: Mapping[str, str], output: int
) -> Leader:
    """Start `argv` as something that outlives lswap, whatever ends it; it writes to the descriptor `output`.

    It shares nothing with lswap: neither session nor group nor any pipe. Nobody ends it if the caller does not.

    @raise StartError: it cannot be started; the text names the command.
    """
    with _explained(argv):
        words = launcher.words([find_program(argv[0] if argv else ""), *argv[1:]], survives_us=True)
        leader = Leader(reactor, lambda pid: None)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            reactor.spawnProcess(leader, words[0], words, environment, childFDs={0: null, 1: output, 2: output})
        finally:
            os.close(null)
        return leader


@contextmanager
def _explained(argv: Sequence[str]) -> Iterator[None]:
    """Say of a failure what could not be started."""
    try:
        yield
    except (OSError, ValueError) as problem:
        # ValueError: a NUL in a word, or a name of the environment that is none.
        reason = (isinstance(problem, OSError) and problem.strerror) or str(problem)
        raise StartError(f"failed to start command '{' '.join(argv)}': {reason}") from problem


def _spawn(reactor: Reactor, leader: Leader, words: Sequence[str], environment: Mapping[str, str], quiet: bool) -> int:
    # All three are close-on-exec: each process gets its own copies, and none of another's.
    ours, theirs = os.pipe()
    try:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            childFDs = {0: null, 1: null if quiet else theirs, 2: theirs}
            reactor.spawnProcess(leader, words[0], words, environment, childFDs=childFDs)
        finally:
            os.close(null)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return ours
