"""Endless answers: a log as it is written, and the end of all such answers at shutdown.

Speaks to one client a stream; decides what is said first and what a client that fell behind is told.
Read `lswap.web.outbox` for how much may wait, `lswap.service.logs` for where the data comes from.
Source: HTTP reference, section 10.3.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.web.http import Request

from lswap.net.stdout import DROPPED
from lswap.service.logs import Log
from lswap.web.outbox import Outbox

__all__ = ["LiveStreams", "stream_log"]

#: Bytes that may wait for one reader of a log.
_LIMIT = 256 * 1024
#: Seconds that a reader who is behind has, at shutdown, to take what waits for it.
_GRACE = 1.0


class LiveStreams:
    """Owns all open streams, so that a shutdown can end them: nobody who only reads along may hold it up."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        # A dict for its order.
        self._open: dict[Outbox, None] = {}
        self._ended = False

    def add(self, outbox: Outbox) -> None:
        """Own a stream until it is over. After `end_all` it is ended at once: send first what it begins with."""
        self._open[outbox] = None
        outbox.when_over().addCallback(lambda _: self._open.pop(outbox, None))
        if self._ended:
            self._end(outbox)

    def end_all(self) -> None:
        """End every stream properly; one whose client has not taken the rest after a second is cut off."""
        self._ended = True
        for outbox in tuple(self._open):
            self._end(outbox)

    def _end(self, outbox: Outbox) -> None:
        outbox.finish()
        if not outbox.closed:
            cut = self._clock.callLater(_GRACE, outbox.abort)
            outbox.when_over().addCallback(lambda _: cut.cancel() if cut.active() else None)

    def __len__(self) -> int:
        return len(self._open)


def stream_log(request: Request, log: Log, history: bool, streams: LiveStreams) -> Deferred[None]:
    """Answer with a log: headers at once, then its history if wanted, then each piece as it is written.

    A reader that falls behind by more than 256 KiB loses the oldest of that, and is told how much. HEAD gets the
    headers only.

    @return: fires when the answer is over, which the request is by then too; it may be cancelled without harm. A klein
        route returns it (klein then leaves the request alone), other resources say NOT_DONE_YET.
    """
    for name, value in (
        ("Content-Type", "text/plain"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Accel-Buffering", "no"),
    ):
        request.responseHeaders.setRawHeaders(name, [value])
    outbox = Outbox(request, _LIMIT, lambda dropped: DROPPED.format(dropped).encode())
    if outbox.closed:
        return succeed(None)
    request.write(b"")
    if request.method == b"HEAD":
        outbox.finish()
        return succeed(None)
    # Both before anything is sent: sending may itself cause a line of log.
    past = log.history() if history else b""
    unsubscribe = log.subscribe(outbox.send)
    outbox.when_over().addCallback(lambda _: unsubscribe())
    outbox.send(past)
    streams.add(outbox)
    return outbox.when_over()
