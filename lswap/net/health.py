"""Asks a model server whether it is ready, again and again until it is or the time is over.

A poll is a control call (treq), not a client's request: it touches neither counts nor idle times. The owner of the
model (`lswap.service.children`) cancels the Deferred when the process dies or is stopped.
"""

from __future__ import annotations

from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from lswap.errors import StartError

__all__ = ["POLL_LIMIT", "pause_after", "until_healthy"]

#: Seconds that one poll may take; a server that accepts but does not answer is asked again.
POLL_LIMIT = 5.0


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
        try:
            last = await _once(clock, client, url, min(POLL_LIMIT, left))
        except CancelledError:
            raise
        except Exception as problem:
            last = str(problem) or type(problem).__name__
        else:
            if last == "200":
                return
            last = f"status {last}"
        await deferLater(clock, pause_after(clock.seconds() - begun), lambda: None)


async def _once(clock: IReactorTime, client: HTTPClient, url: str, limit: float) -> str:
    asked: Deferred[Any] = client.get(url, allow_redirects=False, unbuffered=True)
    asked.addTimeout(limit, clock)
    answer = await asked
    # The body is of no interest; reading it to its end frees the connection for the first client.
    body: Deferred[Any] = answer.content()
    body.addTimeout(limit, clock)
    await body
    return str(answer.code)
