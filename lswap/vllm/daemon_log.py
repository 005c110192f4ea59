"""Reads along what a daemon writes to its log file, for as long as a wrapper is there.

Touches that file. A daemon that outlives its wrapper can hold no pipe of it, so it writes to a file; the file is kept
small here: once read, it is emptied, which is safe as the daemon appends to it.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["LARGEST", "DaemonLog", "open_for_daemon"]

#: Bytes of the file beyond which it is emptied.
LARGEST = 16 << 20
#: Seconds between two looks.
_PAUSE = 0.1
#: Bytes that one look reads at most; a chatty daemon must not starve the requests.
_PIECE = 65536


def open_for_daemon(path: pathlib.Path) -> int:
    """The file, emptied, as a descriptor for the daemon's output.

    @raise OSError: it cannot be written.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)


class DaemonLog:
    """Follows one file from its end, whether or not it exists yet."""

    def __init__(self, clock: IReactorTime, path: pathlib.Path, received: Callable[[bytes], object]) -> None:
        self._clock = clock
        self._path = path
        self._received = received
        self._at = 0
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Begin with what is written from now on."""
        try:
            self._at = self._path.stat().st_size
        except OSError:
            self._at = 0
        if self._timer is None:
            self._timer = self._clock.callLater(_PAUSE, self._look)

    def rewind(self) -> None:
        """The file was emptied for a new daemon: go on at its beginning."""
        self._at = 0

    def stop(self) -> None:
        """Read what is there, and no more. May be called twice."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            while self._read() == _PIECE:
                pass

    def _look(self) -> None:
        full = self._read() == _PIECE
        self._timer = self._clock.callLater(0 if full else _PAUSE, self._look)

    def _read(self) -> int:
        """Hand on the next piece; its length."""
        try:
            file = os.open(self._path, os.O_RDWR)
        except OSError:
            return 0
        try:
            size = os.fstat(file).st_size
            if size < self._at:
                self._at = 0  # it was emptied
            data = os.pread(file, _PIECE, self._at) if size > self._at else b""
            self._at += len(data)
            if self._at > LARGEST and self._at >= size:
                os.ftruncate(file, 0)
                self._at = 0
        except OSError:
            return 0
        finally:
            os.close(file)
        if data:
            self._received(data)
        return len(data)
