"""Request bodies: received into memory, or beyond a limit into a file without a name; sent as slices, never joined.

A body that is spliced (`lswap.core.rewrite`) is a list of slices of the received one with new bytes between them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

__all__ = ["MEMORY_LIMIT", "Body", "Spool"]

#: Bytes of a body that stay in memory.
MEMORY_LIMIT = 1 << 20
_PIECE = 65536


class Spool:
    """A body while it arrives. Files are unlinked from the start, so that nothing stays on the disk."""

    __slots__ = ("_file", "_pieces", "length")

    def __init__(self) -> None:
        self.length = 0
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        """Take the next bytes.

        @raise OSError: the disk is full or not writable.
        """
        self.length += len(data)
        if self._file is not None:
            _write_all(self._file, data)
            return
        self._pieces.append(data)
        if self.length > MEMORY_LIMIT:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
            for piece in self._pieces:
                _write_all(self._file, piece)
            self._pieces.clear()

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
        """Bytes from `start` on, `size` at most."""
        if self._file is None:
            return self.whole()[start : start + size]
        self._file.seek(start)
        return self._file.read(size)

    def pieces(self) -> Iterator[bytes]:
        """The body from its beginning in pieces of 64 KiB at most."""
        for start in range(0, self.length, _PIECE):
            yield self.read(start, _PIECE)

    def close(self) -> None:
        """Forget the body. May be called twice."""
        self._pieces = []
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


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

    def pieces(self) -> Iterator[bytes]:
        """The bytes to send, in pieces of 64 KiB at most where they come from a file."""
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
            elif self._spool.in_memory:
                yield self._spool.read(part[0], part[1] - part[0])
            else:
                for start in range(part[0], part[1], _PIECE):
                    yield self._spool.read(start, min(_PIECE, part[1] - start))
