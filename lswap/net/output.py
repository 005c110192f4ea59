"""Reads the pipe that a process and its descendants write to, so that none of them is ever held up by it.

Touches one file descriptor. Hands every piece on as it comes and keeps nothing.
Read `lswap.net.process` next.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.main import CONNECTION_DONE
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["Output", "Reactor"]

#: Bytes taken in one turn of the reactor: the size of a pipe. A chatty process must not starve the others.
_PIECE = 65536

#: Bytes taken at most by one `drain`: a pipe may have been enlarged, but somebody may also write for ever.
_DRAIN = 1 << 20


class Reactor(Protocol):
    """The part of a reactor that is needed here."""

    def addReader(self, reader: IReadDescriptor) -> object:
        """Watch a descriptor."""

    def removeReader(self, reader: IReadDescriptor) -> object:
        """Watch it no more."""


@implementer(IReadDescriptor)
class Output:
    """The reading end of a pipe, owned: it is closed at the end of the data, or by `close`."""

    log = Logger()

    def __init__(
        self, reactor: Reactor, descriptor: int, received: Callable[[bytes], object], ended: Callable[[], object]
    ) -> None:
        """Read `descriptor` from the next turn on.

        `received` is called with each piece, `ended` exactly once, when no more can come.
        """
        self._reactor = reactor
        self._descriptor = descriptor
        self._received = received
        self._ended = ended
        self._complained = False
        # Of our end only: for the process, writing stays as it is.
        os.set_blocking(descriptor, False)
        reactor.addReader(self)

    @property
    def open(self) -> bool:
        """Whether more may come."""
        return self._descriptor >= 0

    def drain(self) -> None:
        """Take at once what is in the pipe now, the end included."""
        taken = 0
        while self.open and taken < _DRAIN:
            data = self._read()
            if data is None:
                return
            if not data:
                self.close()
                return
            taken += len(data)
            self._hand_on(data)

    def close(self) -> None:
        """Stop reading and close the pipe, whoever still holds its other end. Safe twice."""
        if not self.open:
            return
        self._reactor.removeReader(self)
        os.close(self._descriptor)
        self._descriptor = -1
        self._ended()

    def doRead(self) -> Exception | None:  # type: ignore[override]
        """For the reactor: there is something to read."""
        data = self._read()
        if data:
            self._hand_on(data)
        elif data is not None:
            return CONNECTION_DONE
        return None

    def connectionLost(self, reason: Failure) -> None:
        """For the reactor: the other end is closed."""
        self.close()

    def fileno(self) -> int:
        """For the reactor: the descriptor, -1 once closed."""
        return self._descriptor

    def logPrefix(self) -> str:
        """For the reactor: a name in its log."""
        return "output"

    def _read(self) -> bytes | None:
        """Some bytes; none at the end of the data; None when there is nothing yet."""
        try:
            return os.read(self._descriptor, _PIECE)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def _hand_on(self, data: bytes) -> None:
        try:
            self._received(data)
        except Exception:
            # A fault of the one who listens must not hold up the one who writes. Said once: it may happen each time.
            if not self._complained:
                self._complained = True
                self.log.failure("output of a process could not be taken; later failures of the same are not logged")
