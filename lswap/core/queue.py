"""The order in which requests wait, and the places that they are told. Decides nothing else.

Higher priority first, order of arrival within equal priority. Read `lswap.core.scheduler` next: it says who waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator

from lswap.core.board import Request
from lswap.core.effects import Moved

__all__ = ["Queue"]


class Queue:
    """Requests in the order in which they will be looked at."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        #: Places before this index are as they were last told.
        self._told = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def add(self, request: Request) -> None:
        """Put it behind everything of its own or a higher priority."""
        index = bisect_right(self._requests, -request.priority, key=_rank)
        self._requests.insert(index, request)
        self._told = min(self._told, index)

    def remove(self, request: Request) -> None:
        """Take one out, wherever it stands."""
        index = self._requests.index(request)
        del self._requests[index]
        self._told = min(self._told, index)

    def remove_all(self, requests: Collection[Request]) -> None:
        """Take several out in one pass."""
        if requests:
            gone = {request.ticket for request in requests}
            self._requests = [request for request in self._requests if request.ticket not in gone]
            self._told = 0

    def moves(self) -> list[Moved]:
        """The places that changed since the last call; 1 is the first place."""
        if self._told == len(self._requests):
            return []
        moved = []
        for place in range(self._told + 1, len(self._requests) + 1):
            request = self._requests[place - 1]
            if request.place != place:
                request.place = place
                moved.append(Moved(request.ticket, place))
        self._told = len(self._requests)
        return moved


def _rank(request: Request) -> int:
    return -request.priority
