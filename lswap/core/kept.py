"""What is kept of an answer while it passes, to be read after its end: all of it up to a limit, else its two ends.

Keeps pieces as they came, framing included, and decodes nothing before the end, but what has to go because the answer
is too long. Read `lswap.core.usage` next: what is then read out of it.
"""

from __future__ import annotations

from collections import deque

from lswap.core.framing import ChunkFollower
from lswap.errors import BadAnswer

__all__ = ["Kept", "Room"]

#: Bytes that are kept of the beginning and of the end of an answer that is too long to be kept whole.
HEAD = 16 * 1024
TAIL = 128 * 1024


class Room:
    """The bytes that all answers under way may take up together; beyond it each is cut to its ends."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Kept:
    """The bytes of one answer. `add` is all that happens while it passes."""

    __slots__ = ("_follower", "_head", "_limit", "_pieces", "_room", "_size", "chunked", "cut")

    def __init__(self, room: Room, limit: int, chunked: bool) -> None:
        """@param limit: bytes up to which it is kept whole.  @param chunked: whether its pieces have that framing."""
        self._room = room
        self._limit = max(limit, TAIL)
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._head = bytearray()
        self._follower: ChunkFollower | None = None
        self.chunked = chunked
        #: Whether something in its middle was let go.
        self.cut = False

    def add(self, data: bytes) -> None:
        """The next piece."""
        self._pieces.append(data)
        size = len(data)
        self._size += size
        self._room.used += size
        if self._size > self._limit or (self._room.used > self._room.limit and self._size > TAIL):
            self._shrink()

    def _shrink(self) -> None:
        if not self.cut:
            self.cut = True
            self._limit = TAIL
            if self.chunked:
                self._follower = ChunkFollower()
        while self._size > TAIL and len(self._pieces) > 1:
            piece = self._pieces.popleft()
            self._size -= len(piece)
            self._room.used -= len(piece)
            if self._follower is not None:
                self._decode(piece)
            elif len(self._head) < HEAD:
                self._head += piece[: HEAD - len(self._head)]

    def _decode(self, piece: bytes) -> None:
        """Follow the framing over what goes, so that the rest can be decoded."""
        spans: list[bytes] = []
        assert self._follower is not None
        self._follower.feed(piece, spans)
        for span in spans:
            if len(self._head) < HEAD:
                self._head += span[: HEAD - len(self._head)]

    def release(self) -> None:
        """Give the room back: nothing more is added. What is kept stays readable."""
        self._room.used -= self._size
        self._size = 0

    def parts(self) -> tuple[bytes, bytes]:
        """Without framing: the whole and nothing, or the beginning and the end if it is `cut`. May take a while."""
        pieces = b"".join(self._pieces)
        if self.chunked:
            spans: list[bytes] = []
            try:
                (self._follower or ChunkFollower()).feed(pieces, spans)
            except BadAnswer:
                pass  # the relay has seen it too, and cut the answer there
            pieces = b"".join(spans)
        return (bytes(self._head), pieces) if self.cut else (pieces, b"")
