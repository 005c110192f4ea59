"""Process groups: sending them signals, and asking who of them is still alive.

Touches the kernel's process table and, on Linux, /proc. A zombie counts as gone: it holds no memory and no port.
Read `lswap.net.process` next: it decides what to send, and when.
"""

from __future__ import annotations

import os
from typing import Protocol

__all__ = ["Groups", "KernelGroups"]


class Groups(Protocol):
    """Questions and orders to process groups, each named by the pid of its first leader."""

    def signal(self, group: int, number: int) -> bool:
        """Send a signal to every member. False when there is no such group, or none of it may be signalled."""

    def living(self, group: int) -> list[int]:
        """The pids of the members that are not zombies; empty when the group is gone.

        To be asked only after the leader was reaped: orphans of the group that have become our own children are
        reaped on the way.
        """

    def members(self, group: int) -> list[int]:
        """The same at any time, without reaping."""


class KernelGroups:
    """The process groups of this machine."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._has_proc = os.path.exists(f"{proc}/self/stat")

    def signal(self, group: int, number: int) -> bool:
        """See `Groups.signal`."""
        try:
            os.killpg(_checked(group), number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def living(self, group: int) -> list[int]:
        """See `Groups.living`."""
        _reap(_checked(group))
        return self.members(group)

    def members(self, group: int) -> list[int]:
        """See `Groups.members`. Where there is no /proc: the group's own number, for whoever it is."""
        try:
            os.killpg(_checked(group), 0)
        except ProcessLookupError:
            return []
        except PermissionError:
            # On Linux: all that is left has another owner. Elsewhere: only zombies are left.
            if not self._has_proc:
                return []
        if not self._has_proc:
            return [group]
        # Asking the kernel for each pid's group is ten times cheaper than reading each pid's file.
        return [pid for pid in self._pids() if _group_of(pid) == group and self._alive(pid)]

    def _pids(self) -> list[int]:
        return [int(name) for name in os.listdir(self._proc) if name.isdecimal()]

    def _alive(self, pid: int) -> bool:
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                # The name in parentheses may hold anything, parentheses included.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return False
        # A process whose first thread has ended looks like a zombie, but the other threads still run.
        return fields[0] not in (b"Z", b"X") or int(fields[17]) > 1


def _checked(group: int) -> int:
    # The kernel takes 0 for our own group, and 1 for every process there is.
    if group <= 1:
        raise ValueError(f"no process group of a child: {group}")
    return group


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _reap(group: int) -> None:
    # Orphans become our children when lswap is the first process of a container, and nobody else would wait for them.
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
