"""Asks a model server whether it is ready, again and again until it is or the time is over.

A poll is a control call (treq), not a client's request: it touches neither counts nor idle times. The owner of the
model (`lswap.service.children`) cancels the Deferred when the process dies or is stopped.
"""

from __future__ import annotations

from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from lswap.errors import StartError
from lswap.net.one_piece import OnePiece

__all__ = ["POLL_LIMIT", "pause_after", "status_of", "until_healthy"]

#: Seconds that one poll may take; a server that accepts but does not answer is asked again.
POLL_LIMIT = 5.0
#: Seconds and bytes that the body of a poll's answer may take; of no interest, but read, so that its connection is free
#: for the first client.
_REST_LIMIT = 1.0
_REST_SIZE = 65536


def pause_after(waited: float) -> float:
    """Seconds between two polls after `waited` seconds: a fiftieth of it, at least 25 ms, at most 250 ms."""
    return min(0.25, max(0.025, waited / 50.0))


def until_healthy(clock: IReactorTime, client: HTTPClient, url: str, limit: float) -> Deferred[None]:
    """Fires when `GET url` answers 200. The first poll goes out at once; only status 200 counts.

    Fails with StartError after `limit` seconds. Cancelling ends the poll under way.
    """
    return Deferred.fromCoroutine(_poll(clock, client, url, limit))


async def _poll(clock: IReactorTime, client: HTTPClient, url: str, limit: float) -> None:
    begun = clock.seconds()
    last = "no answer yet"
    while True:
        left = begun + limit - clock.seconds()
        if left <= 0:
            raise StartError(f"health check timed out after {limit:g}s: {url} last said: {last}")
        bound = min(POLL_LIMIT, left)
        try:
            status = await status_of(clock, client, url, bound)
        except CancelledError:
            raise
        except TookTooLong:
            last = f"no answer within {bound:g} s"
        except Exception as problem:
            last = str(problem) or type(problem).__name__
        else:
            if status == 200:
                return
            last = f"status {status}"
        waited = clock.seconds() - begun
        await deferLater(clock, max(0.0, min(pause_after(waited), limit - waited)), lambda: None)


async def status_of(
    clock: IReactorTime,
    client: HTTPClient,
    url: str,
    limit: float,
    headers: dict[bytes | str, bytes | str] | None = None,
    method: str = "GET",
    body: bytes | None = None,
) -> int:
    """The status of the answer to one small request, whose body is of no interest; within `limit` seconds.

    @raise twisted.internet.defer.TimeoutError: it took longer. Otherwise whatever treq says.
    """
    asked: Deferred[Any] = client.request(
        method,
        url,
        headers=headers,
        data=None if body is None else OnePiece(body),
        allow_redirects=False,
        unbuffered=True,
    )
    asked.addTimeout(limit, clock)
    answer = await asked
    answer.deliverBody(_Rest(clock))
    return int(answer.code)


class _Rest(Protocol):
    """Takes the body of an answer; one that goes on for too long is cut off with its connection."""

    transport: Any

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._left = _REST_SIZE
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self._timer = self._clock.callLater(_REST_LIMIT, self._cut)

    def dataReceived(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._stop_timer()
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        self._stop_timer()

    def _cut(self) -> None:
        self._timer = None
        self.transport.abortConnection()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
