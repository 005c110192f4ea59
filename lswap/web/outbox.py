"""What waits for a client that reads an endless answer: bounded, and the oldest goes first.

Touches one request: it is the push producer of its answer. Decides when to write, what to drop when the client reads
too slowly, and that nothing is written once the answer is over. Logs and events are sent through it.
Read `lswap.web.live` next: how an answer begins, and how all of them end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IPushProducer, ITCPTransport
from twisted.web.http import Request
from zope.interface import implementer

from lswap.net.stdout import PIECE

__all__ = ["Outbox"]

#: Bytes that are joined into one write once a client reads again.
_BATCH = 64 * 1024


@implementer(IPushProducer)
class Outbox:
    """Pieces on their way to one client, sent in order; each is sent whole or not at all.

    While the client keeps up, a piece is written in the turn it was sent in. Else it waits here, beside the one
    transport buffer that Twisted fills; when more than the limit waits, whole pieces are dropped, the oldest first.
    """

    def __init__(self, request: Request, limit_bytes: int, on_overflow: Callable[[int], bytes]) -> None:
        """Become the producer of the request's answer; status and headers may be set and sent before or after.

        @param limit_bytes: of what may wait, with what each waiting piece takes up beside its data.
        @param on_overflow: asked when the client reads again after pieces were dropped: given their total in bytes, it
            returns what to send in their place, before the pieces that are still there.
        """
        #: Whether there is no more to be written, from whichever side the end came.
        self.closed = False
        #: Bytes of data that wait.
        self.queued = 0
        self._request = request
        self._limit = limit_bytes
        self._on_overflow = on_overflow
        self._pieces: deque[bytes] = deque()
        self._dropped = 0
        self._paused = False
        self._writing = False
        self._finishing = False
        self._is_over = False
        self._waiters: list[Deferred[None]] = []
        if request.finished or request.channel is None:
            self.closed = self._is_over = True
        else:
            request.notifyFinish().addBoth(self._over)
            request.registerProducer(self, True)

    def send(self, data: bytes) -> None:
        """Send a piece now, or when the client has read what is before it. No effect once the end was asked for."""
        if self.closed or self._finishing or not data:
            return
        self._pieces.append(data)
        self.queued += len(data)
        self._flush()
        while self.queued + PIECE * len(self._pieces) > self._limit:
            oldest = len(self._pieces.popleft())
            self.queued -= oldest
            self._dropped += oldest

    def finish(self) -> None:
        """End the answer properly, once what waits is written. A client that never reads keeps it open: see `abort`."""
        self._finishing = True
        self._flush()

    def abort(self) -> None:
        """Cut the connection. What waits is lost, and the client can tell that the answer is not whole."""
        if not self.closed:
            self._close()
            self._request.unregisterProducer()
            cast(ITCPTransport, self._request.transport).abortConnection()

    def when_over(self) -> Deferred[None]:
        """Fires when the request is over too, whoever ended it; at once if it is. May be cancelled without harm."""
        if self._is_over:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def pauseProducing(self) -> None:
        """The client does not read fast enough."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The client has read what was written."""
        self._paused = False
        self._flush()

    def stopProducing(self) -> None:
        """The connection is being lost; the request will hear of it, and so `when_over`."""
        self._close()

    def _flush(self) -> None:
        """Write what may be written. Writing can pause, close, and send more, all before it returns."""
        if self._writing:
            return
        self._writing = True
        try:
            while not (self._paused or self.closed) and (self._pieces or self._dropped):
                self._request.write(self._next())
        finally:
            self._writing = False
        if self._finishing and not (self.closed or self._pieces or self._dropped):
            self._close()
            self._request.unregisterProducer()
            self._request.finish()

    def _next(self) -> bytes:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return self._on_overflow(dropped)
        data = self._pieces.popleft()
        if self._pieces:
            batch, size = [data], len(data)
            while self._pieces and size + len(self._pieces[0]) <= _BATCH:
                size += len(self._pieces[0])
                batch.append(self._pieces.popleft())
            data = b"".join(batch)
        self.queued -= len(data)
        return data

    def _close(self) -> None:
        self.closed = True
        self.queued = self._dropped = 0
        self._pieces.clear()

    def _over(self, result: object) -> None:
        """The request is over; a failure that comes with it only says that the client left, and ends here."""
        self._close()
        self._is_over = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)
