"""One HTTP call that lswap makes for itself: to a model's server, or to where a hook sends it.

Redirects are not followed. The answer is read to its end, as some servers do their work while they answer, and only its
beginning is kept. Source: what lswap adds, section 1.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

__all__ = ["KEPT", "errand"]

#: Bytes of an answer that are kept.
KEPT = 65536


def errand(
    client: HTTPClient, method: str, url: str, headers: Iterable[tuple[str, str]] = (), body: bytes | None = None
) -> Deferred[tuple[int, bytes]]:
    """Fires with the status and the beginning of the body once the answer is whole. Cancelling ends the call.

    Fails as the agent of `client` does, and when the answer is cut.
    """
    return Deferred.fromCoroutine(_call(client, method, url, headers, body))


async def _call(
    client: HTTPClient, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes | None
) -> tuple[int, bytes]:
    raw = Headers()
    for name, value in headers:
        raw.addRawHeader(name.encode("ascii"), value.encode("utf-8"))
    answer = await client.request(method, url, headers=raw, data=body, allow_redirects=False, unbuffered=True)
    return int(answer.code), await _whole(answer)


def _whole(answer: Any) -> Deferred[bytes]:
    taker = _Taker()
    answer.deliverBody(taker)
    return taker.over


class _Taker(Protocol):
    """Takes a body."""

    transport: Any

    def __init__(self) -> None:
        self.over: Deferred[bytes] = Deferred(lambda _: self.transport.abortConnection())
        self._kept = b""

    def dataReceived(self, data: bytes) -> None:
        if len(self._kept) < KEPT:
            self._kept = (self._kept + data)[:KEPT]

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        if self.over.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.over.callback(self._kept)
        else:
            self.over.errback(reason)
