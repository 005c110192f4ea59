"""Standard output that never makes the reactor wait, whoever reads it, or does not.

Touches a file descriptor, from a thread of its own: a terminal or a pipe whose reader stalls blocks its writer, and
there is no asynchronous write for all that standard output may be. Decides what is lost when the reader stalls: the
newest, with a line that says how much. Read `lswap.service.logs` next: what is written here.
"""

from __future__ import annotations

import atexit
import errno
import os
import select
import sys
import threading
import weakref
from collections import deque

__all__ = ["DROPPED", "LIMIT", "PIECE", "Stdout", "standard_output"]

#: Bytes that may wait, `PIECE` for each of them included; as many again may be on their way out.
LIMIT = 1 << 20
#: Seconds between two writes of a busy writer: waking the thread for each line would cost more than the line.
_PAUSE = 0.01
#: Seconds until the next try after an error such as a full disk.
_RETRY = 1.0
#: Bytes that a waiting piece takes up beside its data.
PIECE = 48
#: What stands for lost bytes, here and in the streams of logs; to be encoded in UTF-8.
DROPPED = "\n— {} bytes dropped —\n"


class Stdout:
    """Writes to a file descriptor in the background, in order.

    The thread starts with the first write, so that it lives in the process that writes: after a fork, the child begins
    anew, and what waited is left to the parent. A reader that went away is survived: from then on all is thrown away.
    Other errors (a full disk) lose what was to be written, and count it.
    """

    def __init__(self, fd: int, limit: int = LIMIT) -> None:
        """@param fd: stays the caller's; it is neither closed nor made non-blocking.

        @param limit: bytes that what waits may take up.
        """
        self._fd = fd
        self._limit = limit
        self._reset()
        # The lock may be held by the thread at the moment of a fork, and the child has no thread to release it.
        me = weakref.ref(self)

        def begin_anew() -> None:
            here = me()
            if here is not None:
                here._reset()

        os.register_at_fork(after_in_child=begin_anew)

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting: deque[bytes] = deque()
        #: Bytes that `_waiting` takes up.
        self._size = 0
        #: Bytes lost since the last word about it.
        self._lost = 0
        self._closed = False
        self._broken = False

    def write(self, data: bytes) -> None:
        """Write soon; returns at once and never raises. After `close`, or when too much waits, the data is lost."""
        with self._changed:
            if self._closed or self._broken or not data:
                return
            size = self._size + len(data) + PIECE
            # What comes after a loss is lost too until room is made, so that nothing overtakes the word about it.
            if self._lost or size > self._limit:
                self._lost += len(data)
                return
            self._waiting.append(data)
            self._size = size
            if self._thread is None:
                self._begin()
            else:
                self._changed.notify()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # No more threads for now, or the interpreter is going down: the next write tries again.
            self._thread = None
        else:
            atexit.register(self.close)

    def close(self, timeout: float = 1.0) -> None:
        """Write what waits and stop; blocks for at most `timeout` seconds. Again: no effect. Called at exit anyway."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        self._hurry.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            atexit.unregister(self.close)

    def _run(self) -> None:
        """The thread: take all that waits, write it, pause, until closed and empty."""
        changed, hurry = self._changed, self._hurry
        #: Bytes lost before what waits now, and not told yet.
        owed = 0
        while True:
            with changed:
                while not (self._waiting or self._lost or owed):
                    if self._closed:
                        return
                    changed.wait()
                data = b"".join(self._waiting)
                self._waiting.clear()
                lost, self._lost, self._size = self._lost, 0, 0
            try:
                stuck = owed > 0 and self._write(DROPPED.format(owed).encode()) > 0
                unwritten = len(data) if stuck else self._write(data)
            except OSError:
                with changed:
                    self._broken = True
                    self._waiting.clear()
                return
            owed = (owed if stuck else 0) + unwritten + lost
            failed = stuck or unwritten > 0
            if failed and self._closed:
                return
            hurry.wait(_RETRY if failed else _PAUSE)

    def _write(self, data: bytes) -> int:
        """Write, however long it takes; returns how many bytes could not be written.

        @raise OSError: nobody will ever read again.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                # Somebody who shares the terminal or the pipe made it non-blocking.
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EBADF):
                    raise
                break
        return len(rest)


_standard_output: Stdout | None = None


def standard_output() -> Stdout:
    """The one writer for the standard output that the process was started with.

    `sys.stdout` is not that one under `twistd`, which puts its log there.
    """
    global _standard_output  # noqa: PLW0603
    if _standard_output is None:
        try:
            fd = sys.__stdout__.fileno() if sys.__stdout__ is not None else -1
        except (OSError, ValueError):
            fd = -1
        _standard_output = Stdout(fd)
    return _standard_output
