"""The order in which requests wait. Decides nothing else.

Higher priority first, order of arrival within equal priority. What is done for one request takes as long with 1,000
waiting as with 10: requests are found by bisection, and a walk looks at the models that are waited for, not at all who
wait. Read `lswap.core.scheduler` next: it says who waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from itertools import count
from operator import attrgetter

from lswap.core.board import ModelView, Request

__all__ = ["Queue"]

_rank = attrgetter("rank")


class Queue:
    """Requests in the order in which they will be looked at."""

    def __init__(self) -> None:
        #: By rank, all of them and those of each model.
        self._requests: list[Request] = []
        self._of: dict[ModelView, list[Request]] = {}
        self._numbers = count()

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def add(self, request: Request) -> None:
        """Put it behind everything of its own or a higher priority."""
        request.queued = True
        request.rank = (-request.priority, next(self._numbers))
        for requests in (self._requests, self._of.setdefault(request.model, [])):
            requests.insert(_index(requests, request), request)

    def remove(self, request: Request) -> None:
        """Take one out, wherever it stands."""
        request.queued = False
        own = self._of[request.model]
        for requests in (self._requests, own):
            del requests[_index(requests, request)]
        if not own:
            del self._of[request.model]

    def place(self, request: Request) -> int:
        """Where it stands; 1 is the first place, 0 is none."""
        return _index(self._requests, request) + 1 if request.queued else 0

    def walk(self) -> Iterator[Request]:
        """Each request that may go on, in order. One that is not taken out holds up those of its model behind it."""
        heads = [(requests[0].rank, requests[0]) for requests in self._of.values()]
        heapify(heads)
        while heads:
            request = heads[0][1]
            yield request
            behind = self._of.get(request.model)
            if request.queued or behind is None:
                heappop(heads)
            else:
                heapreplace(heads, (behind[0].rank, behind[0]))


def _index(requests: list[Request], request: Request) -> int:
    return bisect_left(requests, request.rank, key=_rank)
