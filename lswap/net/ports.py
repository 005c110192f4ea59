"""Which process listens on a local port, for the error text when a port that should be free is not.

Touches /proc only, and much of it: tens of milliseconds on a busy machine, so call it in a thread. Where /proc does
not tell (another system, another user's process), the answer is less exact or None.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["holder_of"]

#: The state of a listening socket in the kernel's tables.
_LISTEN = "0A"


def holder_of(port: int, proc: str = "/proc") -> str | None:
    """Who listens on TCP `port`, of any local address: `python3 (pid 123)`, `a process of user id 33` or None."""
    listeners = dict(_listeners(port, proc))
    if not listeners:
        return None
    sockets = {f"socket:[{inode}]" for inode in listeners}
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdecimal()):
        if _holds(f"{proc}/{pid}/fd", sockets):
            return f"{_name(pid, proc)} (pid {pid})"
    return f"a process of user id {next(iter(listeners.values()))}"


def _listeners(port: int, proc: str) -> Iterator[tuple[str, str]]:
    """Inode and user of each socket that listens on the port."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/net/{table}", encoding="ascii", errors="replace") as file:
                rows = [line.split() for line in file]
        except OSError:
            continue
        for row in rows[1:]:
            # number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode
            if len(row) > 9 and row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port:
                yield row[9], row[7]


def _holds(folder: str, sockets: set[str]) -> bool:
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(f"{folder}/{descriptor}") in sockets:
                return True
        except OSError:
            continue
    return False


def _name(pid: int, proc: str) -> str:
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "process"
    except OSError:
        return "process"
