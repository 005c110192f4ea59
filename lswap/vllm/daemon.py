"""The daemon: a server that is started to stay, and found again by later wrappers.

Touches processes and its files (`lswap.vllm.state`). Decides how it ends when it has to. It leads a session of its own
and holds nothing of the wrapper (`lswap.net.leader.launch_resident`), so only its process group reaches all of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.task import deferLater
from twisted.logger import Logger

from lswap.errors import StartError
from lswap.net.birth import birth_of
from lswap.net.group import Groups, KernelGroups
from lswap.net.launcher import Launcher
from lswap.net.leader import Exit, launch_resident
from lswap.vllm.daemon_log import open_for_daemon
from lswap.vllm.state import Record, ServerState

__all__ = ["DEV_MODE", "Daemon", "end_group"]

#: Without it vLLM has no calls for its sleep mode.
DEV_MODE = "VLLM_SERVER_DEV_MODE"
#: Seconds between two looks at a group that is to end, and from SIGKILL until it is not waited for any more.
_POLL, _UNKILLABLE = 0.05, 5.0


class Daemon:
    """A daemon that this process has started."""

    _log = Logger()

    def __init__(self, reactor: Any, state: ServerState, groups: Groups | None = None) -> None:
        self._reactor = reactor
        self._state = state
        self._groups = groups or KernelGroups()
        #: Its pid, and number of its group; 0 before `start`.
        self.pid = 0
        #: How it ended; None while it runs.
        self.exit: Exit | None = None
        #: Told when it has ended.
        self.on_exit: Callable[[Exit], object] = lambda exit: None

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it, and write down who it is. It is collected when it ends.

        @raise StartError: it cannot be started.
        """
        try:
            output = open_for_daemon(self._state.log)
        except OSError as problem:
            raise StartError(f"cannot write the daemon's log {self._state.log}: {problem.strerror}") from problem
        try:
            leader = launch_resident(
                self._reactor, Launcher.of_this_system(), words, {DEV_MODE: "1", **environment}, output
            )
        finally:
            os.close(output)
        self.pid = leader.pid
        self._state.write_record(Record(pid=leader.pid, birth=birth_of(leader.pid) or "", words=tuple(words)))
        leader.listen(self._exited)
        # Its arguments may hold a key.
        self._log.info("started the daemon as process {pid}: {program}", pid=leader.pid, program=words[0])

    def _exited(self, exit: Exit) -> None:
        self.exit = exit
        self._log.info("the daemon, process {pid}, has ended: {words}", pid=self.pid, words=exit.words)
        self.on_exit(exit)

    async def end(self, pid: int, grace: float) -> None:
        """End a daemon, with all of its group, and forget it: this one, or one that the record names.

        Bounded in time; one that cannot be ended is told.
        """
        self._state.forget()
        if not await end_group(self._reactor, self._groups, pid, grace):
            self._log.error("process {pid} cannot be ended", pid=pid)


async def end_group(clock: Any, groups: Groups, group: int, grace: float) -> bool:
    """SIGTERM to a group, SIGKILL after `grace` seconds; whether it is gone. Bounded in time."""
    groups.signal(group, signal.SIGTERM)
    if await _gone(clock, groups, group, grace):
        return True
    groups.signal(group, signal.SIGKILL)
    return await _gone(clock, groups, group, _UNKILLABLE)


async def _gone(clock: Any, groups: Groups, group: int, seconds: float) -> bool:
    end = clock.seconds() + seconds
    while groups.members(group):
        if clock.seconds() >= end:
            return False
        await deferLater(clock, _POLL, lambda: None)
    return True
