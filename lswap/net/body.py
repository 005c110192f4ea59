"""Request bodies: received into memory, or beyond a limit into a file without a name; sent as slices, never joined.

A body that is spliced (`lswap.core.rewrite`) is a list of slices of the received one with new bytes between them.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from twisted.internet.interfaces import IPullProducer
from zope.interface import implementer

__all__ = ["MEMORY_LIMIT", "Body", "BodySender", "Spool"]

#: Bytes of a body that stay in memory.
MEMORY_LIMIT = 1 << 20
_PIECE = 65536


class Spool:
    """A body while it arrives. Files are unlinked from the start, so that nothing stays on the disk."""

    __slots__ = ("_closed", "_file", "_pieces", "length")

    def __init__(self) -> None:
        #: Bytes so far.
        self.length = 0
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._closed = False

    def write(self, data: bytes) -> None:
        """Take the next bytes.

        @raise OSError: the disk is full or not writable; the spool is of no use any more, but to be closed.
        """
        self.length += len(data)
        if self._file is not None:
            _write_all(self._file, data)
            return
        self._pieces.append(data)
        if self.length > MEMORY_LIMIT:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                _write_all(self._file, piece)

    @property
    def in_memory(self) -> bool:
        """Whether the body stands in memory."""
        return self._file is None

    def whole(self) -> bytes:
        """The body as one piece; only for one that is in memory."""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    def read(self, start: int, size: int) -> bytes:
        """Bytes from `start` on: `size` of them, or up to the end of the body.

        @raise OSError: the file cannot be read, or has become shorter, or the spool is closed.
        """
        if self._closed:
            raise OSError("the body is closed")
        if self._file is None:
            return self.whole()[start : start + size]
        left = min(size, self.length - start)
        parts: list[bytes] = []
        self._file.seek(start)
        while left > 0:
            part = self._file.read(left)
            if not part:
                raise OSError("the file of the body has become shorter")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self) -> bytes | mmap.mmap:
        """The body as one text, which stands in memory or in the mapped file; for a body that is not empty.

        @raise OSError: the file cannot be mapped, or the spool is closed.
        """
        if self._closed:
            raise OSError("the body is closed")
        if self._file is None:
            return self.whole()
        return mmap.mmap(self._file.fileno(), self.length, access=mmap.ACCESS_READ)

    def pieces(self) -> Iterator[bytes]:
        """The body from its beginning in pieces of 64 KiB at most."""
        for start in range(0, self.length, _PIECE):
            yield self.read(start, _PIECE)

    def close(self) -> None:
        """Forget the body. May be called twice."""
        self._closed = True
        self._pieces = []
        if self._file is not None:
            self._file.close()


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = file.write(view)
        if not written:
            raise OSError("the file of the body takes no more")
        view = view[written:]


class Body:
    """What is sent upstream: bytes, and slices (start, end) of a spool, in order. May be sent more than once."""

    __slots__ = ("_parts", "_spool", "length")

    def __init__(self, spool: Spool, parts: list[bytes | tuple[int, int]] | None = None) -> None:
        self._spool = spool
        self._parts = [(0, spool.length)] if parts is None else parts
        self.length = sum(len(part) if isinstance(part, bytes) else part[1] - part[0] for part in self._parts)

    @property
    def in_memory(self) -> bool:
        """Whether the whole body can be written at once."""
        return self._spool.in_memory

    def gathered(self) -> list[bytes]:
        """All of a body that is `in_memory`, in pieces.

        @raise OSError: the spool is closed.
        """
        return [
            part if isinstance(part, bytes) else self._spool.read(part[0], part[1] - part[0]) for part in self._parts
        ]

    def pieces(self) -> Iterator[bytes]:
        """The bytes to send, none of them empty, in pieces of 64 KiB at most where they come from a file.

        @raise OSError: see `Spool.read`.
        """
        for part in self._parts:
            if isinstance(part, bytes):
                if part:
                    yield part
                continue
            start, end = part
            step = end - start if self._spool.in_memory else _PIECE
            for place in range(start, end, max(1, step)):
                yield self._spool.read(place, min(step, end - place))


@implementer(IPullProducer)
class BodySender:
    """Writes a body piece by piece, as a transport asks for it.

    When the transport asks for more after the last piece, all of it is with the system: `sent` is called. Else, if a
    piece cannot be read, `unreadable`. Neither after `stopProducing`.
    """

    __slots__ = ("_pieces", "_sent", "_unreadable", "_write")

    def __init__(
        self,
        body: Body,
        write: Callable[[bytes], None],
        sent: Callable[[], None],
        unreadable: Callable[[OSError], None],
    ) -> None:
        self._pieces: Iterator[bytes] | None = body.pieces()
        self._write = write
        self._sent = sent
        self._unreadable = unreadable

    def resumeProducing(self) -> None:
        """Write the next piece."""
        if self._pieces is None:
            return
        try:
            piece = next(self._pieces, None)
        except OSError as problem:
            self._pieces = None
            self._unreadable(problem)
            return
        if piece is None:
            self._pieces = None
            self._sent()
        else:
            self._write(piece)

    def stopProducing(self) -> None:
        """Write no more."""
        self._pieces = None
