"""Starts commands and sees to it that they, and all that they start, end.

Touches processes. Each command leads a session and a process group of its own; what is promised about an end is
promised about the whole group. An end goes so: SIGTERM (or a stop command), the grace, SIGKILL. When the leader is
gone, whatever is left of its group gets SIGTERM, at most `DRAIN` seconds, and SIGKILL. Nothing here waits for ever.
What leaves its group on purpose (a daemon with a session of its own) is out of reach.

Decides nothing about models: read `lswap.service.children` next. Below: `lswap.net.leader` (one process),
`lswap.net.group` (who is alive), `lswap.net.output` (the pipe), `lswap.net.guard` (when lswap is killed).
Source: routing reference, sections 2.3, 2.5 and 2.6.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from lswap.errors import StartError
from lswap.net import leader as leading
from lswap.net import output as reading
from lswap.net.group import Groups, KernelGroups
from lswap.net.guard import Guard
from lswap.net.launcher import Launcher
from lswap.net.leader import Exit, Leader, launch

__all__ = ["DRAIN", "PIPE_WAIT", "POLL", "UNKILLABLE", "Exit", "Group", "Listener", "Processes", "Reactor"]

#: Seconds that the rest of a group has after its leader is gone, and a stop command after its whole group is.
DRAIN = 2.0
#: Seconds between two looks at a group whose leader is gone.
POLL = 0.02
#: Seconds that the pipe stays open after the group is gone, when something outside the group holds it.
PIPE_WAIT = 0.5
#: Seconds after SIGKILL when what still lives is given up: the kernel cannot end it.
UNKILLABLE = 10.0

#: Bytes of a stop command's error output that a warning may quote.
_TAIL = 2000


class Reactor(leading.Reactor, reading.Reactor, Protocol):
    """The parts of a reactor that are needed here."""


class Listener(Protocol):
    """Who is told about one group. The methods may call the group's; what they raise is logged and harms nothing."""

    def process_output(self, data: bytes) -> None:
        """What the process or a descendant wrote, as it came; standard output and error in their true order."""

    def process_exited(self, exit: Exit) -> None:
        """The leader is gone. Exactly once, after the output that it had written."""

    def process_gone(self) -> None:
        """The whole group is gone, the output is read, the stop command is over. Exactly once, as the last call."""


class Processes:
    """Starts commands. To be used from the reactor's thread only: the kernel ties their end to the thread's."""

    def __init__(
        self,
        reactor: Reactor,
        guard: Guard,
        groups: Groups | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        """Look, if `launcher` is not given, what this system has: some milliseconds, once in a process."""
        self._machine = _Machine(reactor, guard, groups or KernelGroups(), launcher or Launcher.of_this_system())

    def spawn(self, argv: Sequence[str], environment: Mapping[str, str], listener: Listener) -> Group:
        """Start `argv` with exactly this environment, in lswap's working directory, with nothing on standard input.

        The program is looked up on lswap's own PATH, not on that of `environment`.

        @raise StartError: it cannot be started. Later trouble shows as an exit, never before this has returned.
        """
        return _spawn(self._machine, argv, environment, listener)


class Group:
    """One spawned command, with everything it forks that stays in its process group. Made by `Processes.spawn`."""

    log = Logger()

    def __init__(
        self, machine: _Machine, leader: Leader, environment: Mapping[str, str], listener: Listener, pipe: int
    ) -> None:
        #: The leader's, and the number of the group.
        self.pid = leader.pid
        self._machine = machine
        self._leader = leader
        self._environment = environment
        self._listener = listener
        self._exit: Exit | None = None
        self._asked = self._terminated = self._killed = self._empty = self._gone = False
        self._stop_command: _StopCommand | None = None
        #: At first to send SIGKILL, then to give up.
        self._limit: IDelayedCall | None = None
        self._next_look: IDelayedCall | None = None
        self._patience: list[IDelayedCall] = []
        self._output = reading.Output(machine.reactor, pipe, listener.process_output, self._output_ended)

    def stop(self, grace: float, command: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Ask for the end: SIGTERM to the group, or `command` instead; SIGKILL to the group after `grace` seconds.

        A grace of 0 kills at once. A second call can only shorten the grace. The command runs in a group of its own,
        with `environment` or else that of the process; its failure is logged, with the end of its error output. If it
        cannot even be started, SIGTERM is sent. When the grace is over, or `DRAIN` seconds after the group is gone,
        a command that still runs is killed with all of its own group.
        """
        if self._empty or self._killed:
            return
        if not self._asked and self._exit is None and grace > 0:
            self._asked = True
            if not (command and self._run(command, self._environment if environment is None else environment)):
                self._terminate()
        self._kill_within(grace)

    def kill(self) -> None:
        """Send SIGKILL to the group now."""
        if self._empty or self._killed:
            return
        self._killed = True
        _cancel(self._limit)
        self._signal(signal.SIGKILL)
        if self._stop_command is not None:
            self._stop_command.kill()
        self._limit = self._machine.reactor.callLater(UNKILLABLE, self._give_up)

    def _kill_within(self, seconds: float) -> None:
        if self._killed or self._empty:
            return
        now = self._machine.reactor.seconds()
        if seconds <= 0:
            self.kill()
        elif self._limit is None:
            self._limit = self._machine.reactor.callLater(seconds, self.kill)
        elif self._limit.getTime() > now + seconds:
            self._limit.reset(seconds)

    def _terminate(self) -> None:
        self._terminated = True
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if not self._machine.groups.signal(self.pid, number):
            # In its first instant a process has no group of its own yet.
            self._leader.signal(number)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        try:
            self._stop_command = _StopCommand(self._machine, self.pid, command, environment, self._finish)
        except StartError as problem:
            self.log.warn("stop command of process {pid}: {problem}; sending SIGTERM", pid=self.pid, problem=problem)
            return False
        return True

    def _leader_exited(self, exit: Exit) -> None:
        if self._exit is not None:
            return
        self._exit = exit
        self._output.drain()
        self._tell(self._listener.process_exited, exit)
        if self._look():
            if not self._terminated and not self._killed:
                self._terminate()
            self._kill_within(DRAIN)

    def _look(self) -> bool:
        """See who is left after the leader. True when somebody is; then this looks again soon."""
        self._next_look = None
        if self._machine.groups.living(self.pid):
            self._next_look = self._machine.reactor.callLater(POLL, self._look)
            return True
        self._emptied()
        return False

    def _give_up(self) -> None:
        pids = self._machine.groups.members(self.pid)
        self.log.error(
            "process {pid}: still there {seconds:g} s after SIGKILL: {pids}; not waiting any longer",
            pid=self.pid,
            seconds=UNKILLABLE,
            pids=pids or [self.pid],
        )
        _cancel(self._next_look)
        self._next_look = None
        if self._exit is None:
            self._exit = Exit(code=None, signal=signal.SIGKILL)
            self._output.drain()
            self._tell(self._listener.process_exited, self._exit)
        self._emptied()

    def _emptied(self) -> None:
        """The group is gone. What may take a little longer: the stop command, and strangers that hold the pipe."""
        self._empty = True
        reactor = self._machine.reactor
        grace = DRAIN
        if self._limit is not None and self._limit.active():
            grace = min(grace, self._limit.getTime() - reactor.seconds())
            self._limit.cancel()
        self._machine.guard.ended(self.pid)
        self._output.drain()
        if self._output.open:
            self._patience.append(reactor.callLater(PIPE_WAIT, self._output.close))
        if self._stop_command is not None and not self._stop_command.over:
            self._patience.append(reactor.callLater(max(0.0, grace), self._stop_command.kill))
        self._finish()

    def _output_ended(self) -> None:
        if self._next_look is not None:
            # Whoever wrote last is probably gone altogether.
            self._next_look.reset(0)
        self._finish()

    def _finish(self) -> None:
        if self._gone or not self._empty or self._output.open:
            return
        if self._stop_command is not None and not self._stop_command.over:
            return
        self._gone = True
        for call in self._patience:
            _cancel(call)
        self._tell(self._listener.process_gone)

    def _tell(self, method: Callable[..., None], *details: object) -> None:
        try:
            method(*details)
        except Exception:
            self.log.failure("the end of process {pid} could not be told", pid=self.pid)


class _StopCommand:
    """A command that asks a process to end, with its own descendants. Says so in the log when it fails."""

    log = Logger()

    def __init__(
        self,
        machine: _Machine,
        target: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        ended: Callable[[], object],
    ) -> None:
        """Run it; `ended` is called once it is over.

        @raise StartError: it cannot be started.
        """
        #: Whether all of it is gone.
        self.over = False
        self._target = target
        self._program = command[0]
        self._ended = ended
        self._late = False
        self._tail = b""
        self._group = _spawn(machine, command, environment, self, quiet=True)

    def kill(self) -> None:
        """End it now: its time is over."""
        if not self.over:
            self._late = True
            self._group.kill()

    def process_output(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL:]

    def process_exited(self, exit: Exit) -> None:
        if exit.code == 0:
            return
        self.log.warn(
            "stop command {program} of process {pid} failed: {words}{tail}",
            program=self._program,
            pid=self._target,
            words="it was still running and has been killed" if self._late else exit.words,
            tail=": " + self._tail.decode("utf-8", "replace").strip() if self._tail.strip() else "",
        )

    def process_gone(self) -> None:
        self.over = True
        self._ended()


class _Machine(msgspec.Struct, frozen=True):
    """What every group needs of the outside."""

    reactor: Reactor
    guard: Guard
    groups: Groups
    launcher: Launcher


def _spawn(
    machine: _Machine, argv: Sequence[str], environment: Mapping[str, str], listener: Listener, quiet: bool = False
) -> Group:
    """As `Processes.spawn`; `quiet` throws standard output away."""
    leader, pipe = launch(machine.reactor, machine.launcher, argv, environment, machine.guard.began, quiet=quiet)
    group = Group(machine, leader, environment, listener, pipe)
    leader.listen(group._leader_exited)
    return group


def _cancel(call: IDelayedCall | None) -> None:
    if call is not None and call.active():
        call.cancel()
