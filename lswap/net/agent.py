"""The data path's client as an `IAgent`, so that treq runs on it: health checks, and all other control work.

Decodes chunked bodies and holds an answer back until somebody wants its body; none of that is on the road of client
requests (`lswap.net.relay`). As with Twisted's own agent, a body that nobody asks for keeps its connection busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import AlreadyCalledError, Deferred, fail
from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import IConsumer, IProtocol, IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from lswap.core.framing import CHUNKED, LENGTH, NOTHING, ChunkFollower, ResponseHead
from lswap.errors import UpstreamError
from lswap.net.body import Body, Spool
from lswap.net.call import Call
from lswap.net.dial import Origin
from lswap.net.upstream import Upstream

__all__ = ["UpstreamAgent"]

_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Path and query of a URL, without what stands before and behind.
_TARGET = re.compile(rb"[^:/?#]+://[^/?#]*([^#]*)")
_NOT_IN_A_TARGET = re.compile(rb"[\x00-\x20\x7f-\xff]")
#: Headers that say how the body is framed, which is said here.
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


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
        """Send one request; fires with its answer's head. Cancelling closes the connection.

        Fails with UpstreamError, or with ValueError for what can be no request.
        """
        try:
            origin = Origin(uri.decode("ascii"))
            lines = _head(method, uri, origin, headers)
        except ValueError as problem:
            return fail(problem)
        spool = Spool()
        if bodyProducer is None:
            return self._send(method, uri, origin, lines, spool)
        produced: Deferred[Any] = bodyProducer.startProducing(_Collector(spool))
        return produced.addCallback(lambda _: self._send(method, uri, origin, lines, spool))

    def _send(self, method: bytes, uri: bytes, origin: Origin, lines: list[bytes], spool: Spool) -> Deferred[IResponse]:
        if spool.length or method not in (b"GET", b"HEAD"):
            lines.append(b"Content-Length: %d\r\n" % spool.length)
        lines.append(b"\r\n")
        upstream = self._pool_of(origin)
        answer = _Answer(method, uri, spool, upstream.clock)
        answer.call = upstream.send(method, lines, Body(spool), answer)
        return answer.head_known


def _head(method: bytes, uri: bytes, origin: Origin, headers: Headers | None) -> list[bytes]:
    """The lines of a request's head, but for the length of its body."""
    found = _TARGET.match(uri)
    target = found[1] if found is not None else b""
    if not target.startswith(b"/"):
        target = b"/" + target
    if _METHOD.fullmatch(method) is None or _NOT_IN_A_TARGET.search(target) is not None:
        raise ValueError(f"{method!r} {uri!r} can be no request")
    lines = [method, b" ", target, b" HTTP/1.1\r\n"]
    if headers is None or not headers.hasHeader(b"host"):
        lines.append(b"Host: " + origin.netloc + b"\r\n")
    for name, values in headers.getAllRawHeaders() if headers is not None else ():
        if name.lower() not in _FRAMING:
            lines += [b"%s: %s\r\n" % (name, value) for value in values]
    return lines


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

    _log = Logger()

    def __init__(self, method: bytes, uri: bytes, spool: Spool, clock: Any) -> None:
        self.head_known: Deferred[IResponse] = Deferred(self._cancel)
        self.call: Call | None = None
        self.version = (b"HTTP", 1, 1)
        self.code = 0
        self.phrase = b""
        self.headers = Headers()
        self.length: Any = UNKNOWN_LENGTH
        self.previousResponse: IResponse | None = None
        self.request = _Asked(method, uri)
        self._spool = spool
        self._clock = clock
        self._follower: ChunkFollower | None = None
        self._delivering = False
        self._given_up = False
        self._taker: IProtocol | None = None
        self._kept: list[bytes] = []
        self._over: Failure | None = None

    def _cancel(self, _: Deferred[IResponse]) -> None:
        self._spool.close()
        if self.call is not None:
            self.call.abort()

    # -- as a sink -----------------------------------------------------------

    def interim(self, head: ResponseHead) -> None:
        """Nobody here asks for these."""

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """The head: the Deferred of the request fires."""
        self.version = (b"HTTP", 1, 1 if head.http11 else 0)
        self.code, self.phrase = head.status, head.reason
        for name, value in head.headers:
            self.headers.addRawHeader(name, value)
        if head.framing in (LENGTH, NOTHING):
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
        if self._taker is None:
            self._kept += pieces
        else:
            self._deliver(pieces)
        if last:
            self._finish(Failure(ResponseDone()))

    def failed(self, error: UpstreamError) -> None:
        """No (more of an) answer."""
        if self.head_known.called:
            self._finish(Failure(error))
        else:
            self._spool.close()
            self.head_known.errback(Failure(error))

    def _deliver(self, pieces: list[bytes]) -> None:
        """Give pieces to the taker; one that breaks on them costs this answer, and nothing else."""
        for piece in pieces:
            if self._taker is None:
                return
            try:
                self._taker.dataReceived(piece)
            except Exception:
                self._over = Failure(ResponseFailed([Failure()], self))
                self.give_up(self._over)
                return

    def _finish(self, reason: Failure) -> None:
        """The body is over: proper end, or not."""
        self._spool.close()
        if self._over is None:
            self._over = reason
        if self._taker is not None:
            taker, self._taker = self._taker, None
            try:
                taker.connectionLost(self._over)
            except AlreadyCalledError:
                pass  # whoever waited for the body has cancelled that
            except Exception:
                self._log.failure("the taker of an answer failed at its end")

    def give_up(self, reason: Failure) -> None:
        """The body is not wanted any more: close the connection, and tell the taker in a turn of its own."""
        if not self._given_up:
            self._given_up = True
            if self.call is not None:
                self.call.abort()
            self._clock.callLater(0, self._finish, reason)

    # -- as a response ---------------------------------------------------------

    def deliverBody(self, protocol: IProtocol) -> None:
        """Give the body to `protocol`, from its beginning. May be called once."""
        if self._delivering:
            raise RuntimeError("the body of this answer was given to somebody already")
        self._delivering = True
        self._taker = protocol
        protocol.makeConnection(_Source(self))  # type: ignore[arg-type]
        kept, self._kept = self._kept, []
        self._deliver(kept)
        if self._over is not None:
            self._finish(self._over)
        elif self.call is not None:
            self.call.resumeProducing()

    def setPreviousResponse(self, response: IResponse) -> None:
        """Remember the answer that led here."""
        self.previousResponse = response


@implementer(IPushProducer)
class _Source:
    """Where a body comes from, as the transport of whoever takes it."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def pauseProducing(self) -> None:
        if self._answer.call is not None:
            self._answer.call.pauseProducing()

    def resumeProducing(self) -> None:
        if self._answer.call is not None:
            self._answer.call.resumeProducing()

    def stopProducing(self) -> None:
        self._answer.give_up(Failure(ConnectionAborted()))

    loseConnection = abortConnection = stopProducing


class _Asked:
    """What treq wants to know of the request behind a response."""

    def __init__(self, method: bytes, uri: bytes) -> None:
        self.method = method
        self.absoluteURI = uri
        self.headers = Headers()
