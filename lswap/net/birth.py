"""Who a process is: its number comes again, its birth does not.

Touches /proc. To be kept in files, and compared later by another process.
"""

from __future__ import annotations

__all__ = ["birth_of"]


def birth_of(pid: int) -> str | None:
    """A text that no other process has, not even after a restart of the machine; None for one that is gone.

    A zombie is gone: it holds nothing any more.
    """
    if pid <= 0:
        return None
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, parentheses included.
            fields = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return f"{boot}:{fields[19].decode('ascii')}"
