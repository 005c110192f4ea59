"""The data path's client as an `IAgent`, so that treq runs on it: health checks, and all other control work.

Decodes chunked bodies and holds an answer back until somebody wants its body; none of that is on the road of client
requests (`lswap.net.relay`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IConsumer, IProtocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from lswap.core.framing import CHUNKED, LENGTH, ChunkFollower, ResponseHead
from lswap.errors import UpstreamError
from lswap.net.body import Body, Spool
from lswap.net.connection import Call
from lswap.net.dial import Origin
from lswap.net.upstream import Upstream

__all__ = ["UpstreamAgent"]


@implementer(IAgent)
class UpstreamAgent:
    """Sends requests through the pool that `pool_of` gives for their origin. Collects bodies before it sends them."""

    def __init__(self, pool_of: Callable[[Origin], Upstream]) -> None:
        self._pool_of = pool_of

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """Send one request; fires with its answer's head. Cancelling closes the connection."""
        try:
            origin = Origin(uri.decode("ascii"))
        except ValueError as problem:
            return fail(problem)
        if bodyProducer is None:
            return self._send(method, uri, origin, headers, Spool())
        spool = Spool()
        produced: Deferred[Any] = bodyProducer.startProducing(_Collector(spool))
        return produced.addCallback(lambda _: self._send(method, uri, origin, headers, spool))

    def _send(
        self, method: bytes, uri: bytes, origin: Origin, headers: Headers | None, spool: Spool
    ) -> Deferred[IResponse]:
        target = b"/" + uri.split(b"://", 1)[1].partition(b"/")[2]
        lines = [method, b" ", target, b" HTTP/1.1\r\n"]
        if headers is None or not headers.hasHeader(b"host"):
            lines.append(b"Host: " + origin.netloc + b"\r\n")
        for name, values in headers.getAllRawHeaders() if headers is not None else ():
            lines += [b"%s: %s\r\n" % (name, value) for value in values]
        if spool.length or method not in (b"GET", b"HEAD"):
            lines.append(b"Content-Length: %d\r\n" % spool.length)
        lines.append(b"\r\n")
        answer = _Answer(method, uri)
        answer.call = self._pool_of(origin).send(method, lines, Body(spool), answer)
        return answer.head_known


@implementer(IConsumer)
class _Collector:
    """Takes what a body producer makes."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        self._spool.write(data)


@implementer(IResponse)
class _Answer:
    """One answer, as a sink and as a Twisted response; paused until its body is asked for."""

    def __init__(self, method: bytes, uri: bytes) -> None:
        self.head_known: Deferred[IResponse] = Deferred(self._cancel)
        self.call: Call | None = None
        self.version = (b"HTTP", 1, 1)
        self.code = 0
        self.phrase = b""
        self.headers = Headers()
        self.length: Any = UNKNOWN_LENGTH
        self.previousResponse: IResponse | None = None
        self.request = _Asked(method, uri)
        self._follower: ChunkFollower | None = None
        self._taker: IProtocol | None = None
        self._kept: list[bytes] = []
        self._over: Failure | None = None

    def _cancel(self, _: Deferred[IResponse]) -> None:
        if self.call is not None:
            self.call.abort()

    # -- as a sink -----------------------------------------------------------

    def interim(self, head: ResponseHead) -> None:
        """Nobody here asks for these."""

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """The head: the Deferred of the request fires."""
        self.code, self.phrase = head.status, head.reason
        for name, value in head.headers:
            self.headers.addRawHeader(name, value)
        if head.framing == LENGTH:
            self.length = head.length
        if head.framing == CHUNKED:
            self._follower = ChunkFollower()
        if not last and self.call is not None:
            self.call.pauseProducing()
        self.piece(data, last)
        self.head_known.callback(self)

    def piece(self, data: bytes, last: bool) -> None:
        """A piece of the body, decoded if need be."""
        pieces = [data] if data else []
        if self._follower is not None and data:
            pieces = []
            self._follower.feed(data, pieces)
        for part in pieces:
            if self._taker is None:
                self._kept.append(part)
            else:
                self._taker.dataReceived(part)
        if last:
            self._finish(Failure(ResponseDone()))

    def failed(self, error: UpstreamError) -> None:
        """No (more of an) answer."""
        if not self.head_known.called:
            self.head_known.errback(Failure(error))
        else:
            self._finish(Failure(error))

    def _finish(self, reason: Failure) -> None:
        self._over = reason
        if self._taker is not None:
            taker, self._taker = self._taker, None
            taker.connectionLost(reason)

    # -- as a response ---------------------------------------------------------

    def deliverBody(self, protocol: IProtocol) -> None:
        """Give the body to `protocol`, from its beginning."""
        self._taker = protocol
        protocol.makeConnection(self.call)  # type: ignore[arg-type]
        kept, self._kept = self._kept, []
        for part in kept:
            protocol.dataReceived(part)
        if self._over is not None:
            self._finish(self._over)
        elif self.call is not None:
            self.call.resumeProducing()

    def setPreviousResponse(self, response: IResponse) -> None:
        """Remember the answer that led here."""
        self.previousResponse = response

    def discard(self) -> None:
        """The body is not wanted: let the connection go on or end."""
        if self._over is None and self.call is not None:
            self.call.abort()


class _Asked:
    """What treq wants to know of the request behind a response."""

    def __init__(self, method: bytes, uri: bytes) -> None:
        self.method = method
        self.absoluteURI = uri
        self.headers = Headers()
