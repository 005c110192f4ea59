"""The last bytes of something endless: a ring with a fixed capacity.

Decides which bytes are kept, nothing else; knows no lines and no readers. Read `lswap.service.logs` next.
"""

from __future__ import annotations

__all__ = ["Ring"]


class Ring:
    """Keeps the last `capacity` bytes that were appended.

    An append costs time in proportion to its own length, averaged over many; memory stays within about an eighth above
    the capacity, and a ring that was never used costs next to nothing.
    """

    __slots__ = ("_held", "capacity", "total")

    def __init__(self, capacity: int) -> None:
        """@param capacity: in bytes, at least 1.

        @raise ValueError: a capacity below 1.
        """
        if capacity < 1:
            raise ValueError(f"the capacity of a ring must be at least 1, not {capacity}")
        self.capacity = capacity
        #: Bytes ever appended, those that are gone by now included.
        self.total = 0
        self._held = bytearray()

    def append(self, data: bytes) -> None:
        """Add to the end; what no longer fits leaves at the front."""
        held = self._held
        self.total += len(data)
        excess = len(held) + len(data) - self.capacity
        if excess > 0:
            # A bytearray gives up its front without moving the rest; it is moved only once that waste is an eighth.
            del held[:excess]
        held += data if len(data) <= self.capacity else memoryview(data)[-self.capacity :]

    def content(self) -> bytes:
        """All that is kept, the oldest byte first."""
        return bytes(self._held)

    def clear(self) -> None:
        """Forget what is kept; `total` goes on."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)
