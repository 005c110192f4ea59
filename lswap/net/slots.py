"""Control calls to a llama-server about its slots: which there are, save one, restore one; and what the server is.

Touches the network through treq; every call is bounded in time, every answer in size. Nothing is decided here, and no
answer is understood: that is `lswap.core.kv_answers`. Source: llama.cpp, `tools/server/README.md`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from treq.client import HTTPClient
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IConsumer, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

from lswap.errors import BadAnswer, UpstreamClosed

__all__ = ["ASK_LIMIT", "Refusal", "Slots"]

#: Seconds that a question may take; a save or restore has its own bound.
ASK_LIMIT = 10.0
#: Bytes of an answer: older builds tell the whole prompt of each slot.
_LARGEST = 16 << 20


class Refusal(BadAnswer):
    """The server answered with another status than 200."""

    def __init__(self, call: str, status: int, body: bytes) -> None:
        text = body[:300].decode("utf-8", "replace").strip()
        super().__init__(f"{call} answered {status}{f': {text}' if text else ''}")
        self.status = status
        self.body = body


class Slots:
    """The slots of one server."""

    def __init__(self, clock: IReactorTime, client: HTTPClient, base: str, api_key: str = "") -> None:
        """@param base: URL of the server, without a slash at its end."""
        self._clock = clock
        self._client = client
        self._base = base
        self._headers: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def listed(self) -> Deferred[bytes]:
        """The answer to `GET /slots`. Fails with LswapError, Refusal among them, or TimeoutError."""
        return self._ask("GET", "/slots").addTimeout(ASK_LIMIT, self._clock)

    def props(self) -> Deferred[bytes]:
        """The answer to `GET /props`. Fails like `listed`."""
        return self._ask("GET", "/props").addTimeout(ASK_LIMIT, self._clock)

    def save(self, slot: int, name: str) -> Deferred[bytes]:
        """Have a slot written to this file in the server's folder. Unbounded; to be cancelled. Fails like `listed`."""
        return self._ask("POST", f"/slots/{slot}?action=save", name)

    def restore(self, slot: int, name: str) -> Deferred[bytes]:
        """Have a slot read from this file. Unbounded; to be cancelled. Fails like `listed`."""
        return self._ask("POST", f"/slots/{slot}?action=restore", name)

    def _ask(self, method: str, path: str, filename: str | None = None) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self._answer(method, path, filename))

    async def _answer(self, method: str, path: str, filename: str | None) -> bytes:
        data = None if filename is None else _Body(msgspec.json.encode({"filename": filename}))
        response: Any = await self._client.request(
            method, self._base + path, data=data, headers=self._headers, allow_redirects=False, unbuffered=True
        )
        reader = _Reader()
        response.deliverBody(reader)
        body = await reader.whole
        if response.code != 200:
            raise Refusal(f"{method} {path}", response.code, body)
        return body


@implementer(IBodyProducer)
class _Body:
    """A body that is there already. treq's own for bytes takes a turn of the installed reactor for it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """All at once."""
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Too late."""

    def resumeProducing(self) -> None:
        """Nothing is left."""

    def stopProducing(self) -> None:
        """Too late."""


class _Reader(Protocol):
    """Takes the whole body of an answer; one that is too long is cut off, as is one that nobody waits for any more."""

    transport: Any

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._room = _LARGEST
        self._unwanted = False
        self.whole: Deferred[bytes] = Deferred(self._leave)

    def _leave(self, _: Deferred[bytes]) -> None:
        self._unwanted = True
        self._cut()

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room >= 0:
            self._pieces.append(data)
        elif not self.whole.called:
            self.whole.errback(Failure(BadAnswer(f"the answer has more than {_LARGEST >> 20} MiB")))
            self._cut()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        if self.whole.called or self._unwanted:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._pieces))
        else:
            self.whole.errback(Failure(UpstreamClosed(f"the answer was cut: {reason.getErrorMessage()}")))
