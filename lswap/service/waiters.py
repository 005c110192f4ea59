"""Those who wait for one and the same thing: each has a Deferred of its own, and may leave alone."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from lswap.errors import StartError

__all__ = ["Waiters"]


class Waiters:
    """Those who wait; each may be cancelled, which only ends its own wait."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Deferred[None]] = []

    def add(self) -> Deferred[None]:
        """One more."""
        waiter: Deferred[None] = Deferred(self._leave)
        self._waiting.append(waiter)
        return waiter

    def _leave(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def fire(self, error: StartError | None = None) -> None:
        """Let all go on, those excepted who come meanwhile."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.called:  # cancelled by one that went on before
                continue
            if error is None:
                waiter.callback(None)
            else:
                waiter.errback(Failure(type(error)(str(error))))
