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

from lswap.errors import UpstreamClosed
from lswap.net.one_piece import OnePiece

__all__ = ["KEPT", "errand"]

#: Bytes of an answer that are kept.
KEPT = 65536


def errand(
    client: HTTPClient,
    method: str,
    url: str,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    kept: int = KEPT,
) -> Deferred[tuple[int, bytes]]:
    """Fires with the status and the beginning of the body once the answer is whole. Cancelling ends the call.

    Fails as the agent of `client` does, and with UpstreamClosed when the answer is cut.
    """
    return Deferred.fromCoroutine(_call(client, method, url, headers, body, kept))


async def _call(
    client: HTTPClient, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes | None, kept: int
) -> tuple[int, bytes]:
    raw = Headers()
    for name, value in headers:
        raw.addRawHeader(name.encode("ascii"), value.encode("utf-8"))
    data = None if body is None else OnePiece(body)
    answer: Any = await client.request(method, url, headers=raw, data=data, allow_redirects=False, unbuffered=True)
    taker = _Taker(kept)
    answer.deliverBody(taker)
    return int(answer.code), await taker.over


class _Taker(Protocol):
    """Takes a body."""

    transport: Any

    def __init__(self, kept: int) -> None:
        self.over: Deferred[bytes] = Deferred(lambda _: self.transport.abortConnection())
        self._most = kept
        self._size = 0
        self._pieces: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        room = self._most - self._size
        if room > 0:
            self._pieces.append(data[:room])
        self._size += len(data)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        if self.over.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.over.callback(b"".join(self._pieces))
        else:
            self.over.errback(Failure(UpstreamClosed(f"the answer was cut: {reason.getErrorMessage()}")))
