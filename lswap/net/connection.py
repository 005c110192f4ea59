"""One connection of the data path to a model server, and one request on it.

A connection parses the head of an answer once, follows the framing of its body without decoding it, and hands each
piece to a sink in the reactor turn it came in. Back pressure is the caller's: a `Call` is the push producer of whoever
takes the answer. `lswap.net.upstream` keeps the connections; read it next.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPullProducer, IPushProducer
from twisted.internet.protocol import Protocol as WireProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from lswap.core.framing import CHUNKED, CLOSE, END_OF_HEAD, LENGTH, NOTHING, ChunkFollower, ResponseHead, parse_head
from lswap.errors import BadAnswer, UpstreamClosed, UpstreamError, UpstreamTimeout
from lswap.net.body import Body

if TYPE_CHECKING:
    from lswap.net.upstream import Upstream

__all__ = ["IDLE_LIMIT", "Call", "Connection", "Sink"]

#: Seconds that an unused connection is kept; common servers close theirs after 5.
IDLE_LIMIT = 4.0
_HEAD_LIMIT = 1 << 20
_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Sink(Protocol):
    """Takes one answer: `interim` any number of times, then `answer`, then `piece` until one says `last`.

    `failed` comes instead of what is missing, and is final. Nothing comes after `Call.abort`.
    """

    def interim(self, head: ResponseHead) -> None:
        """A 1xx answer other than 100 and 101."""

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """The head, with what of the body came along (raw, in the framing of `head.framing`)."""

    def piece(self, data: bytes, last: bool) -> None:
        """More of the body, raw; empty only if `last`."""

    def failed(self, error: UpstreamError) -> None:
        """There will be no (more of the) answer."""


@implementer(IPushProducer)
class Call:
    """One request on its way. As a producer it pauses and resumes the answer."""

    __slots__ = ("body", "connection", "dialing", "head", "method", "reused", "sink")

    def __init__(self, method: bytes, head: Sequence[bytes], body: Body | None, sink: Sink) -> None:
        self.method = method
        self.head = head
        self.body = body
        self.sink: Sink | None = sink
        self.connection: Connection | None = None
        self.dialing: Deferred[Any] | None = None
        self.reused = False

    def abort(self) -> None:
        """Give up: close the connection at once; the sink hears no more. May be called at any time, also twice."""
        self.sink = None
        if self.connection is not None:
            self.connection.drop()
        elif self.dialing is not None:
            self.dialing.cancel()

    def pauseProducing(self) -> None:
        """The taker of the answer is full."""
        if self.connection is not None:
            self.connection.pause()

    def resumeProducing(self) -> None:
        """The taker has room again."""
        if self.connection is not None:
            self.connection.resume()

    def stopProducing(self) -> None:
        """The taker is gone."""
        self.abort()


class Connection(WireProtocol):
    """One connection to a model server; serves one call at a time."""

    transport: Any

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._call: Call | None = None
        self._head: ResponseHead | None = None
        self._buffer = b""
        self._left = 0
        self._follower: ChunkFollower | None = None
        self._sender: _BodySender | None = None
        self._paused = False
        self._timer: IDelayedCall | None = None
        self.lost = False
        #: When this connection became unused; seconds of the reactor's clock.
        self.idle_since = 0.0
        self.idle_limit = IDLE_LIMIT

    # -- what the pool and the call do ---------------------------------------

    def usable(self) -> bool:
        """Whether an unused connection is still open and silent; costs one system call."""
        if self.lost or self._upstream.origin.scheme == "https":
            return not self.lost
        try:
            self.transport.getHandle().recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def start(self, call: Call) -> None:
        """Send the request of `call`; its sink hears of everything that comes back."""
        call.connection = self
        self._call = call
        self._head = None
        self._buffer = b""
        body = call.body
        if body is None or body.length == 0:
            self.transport.writeSequence(call.head)
        elif body.in_memory:
            self.transport.writeSequence([*call.head, *body.pieces()])
        else:
            self.transport.writeSequence(call.head)
            self._sender = _BodySender(self, body)
            self.transport.registerProducer(self._sender, False)
        if self._upstream.header_timeout > 0:
            self._timer = self._upstream.clock.callLater(self._upstream.header_timeout, self._no_answer)

    def pause(self) -> None:
        """Stop reading."""
        if not self._paused and not self.lost:
            self._paused = True
            self.transport.pauseProducing()

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self.lost:
            self._paused = False
            self.transport.resumeProducing()

    def drop(self) -> None:
        """Close at once and tell nobody."""
        self._detach()
        if not self.lost:
            self.transport.abortConnection()

    def body_sent(self, error: UpstreamError | None) -> None:
        """The sender of a large body is done, or could not read it."""
        if self._sender is not None:
            self._sender = None
            if not self.lost:
                self.transport.unregisterProducer()
        if error is not None:
            self._fail(error)

    # -- what the network does ------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Bytes of an answer, or of none (then the server is out of step, and the connection ends)."""
        if self._call is None:
            self.drop()
            return
        try:
            if self._head is None:
                self._head_data(data)
            else:
                self._body_data(data)
        except BadAnswer as problem:
            self._fail(problem)

    def _head_data(self, data: bytes) -> None:
        searched = max(0, len(self._buffer) - 3)
        data = self._buffer + data if self._buffer else data
        while True:
            end = END_OF_HEAD.search(data, searched)
            if end is None:
                if len(data) > _HEAD_LIMIT:
                    raise BadAnswer("the head of the answer is longer than 1 MiB")
                if not data.startswith(b"HTTP/1.") and not b"HTTP/1.".startswith(data[:7]):
                    raise BadAnswer(f"the answer does not begin like HTTP/1.x: {data[:60]!r}")
                self._buffer = data
                return
            call = self._call
            if call is None:
                return
            head = parse_head(data[: end.start()], call.method)
            data, searched = data[end.end() :], 0
            if head.status == 101:
                raise BadAnswer("the model server switched protocols without being asked to")
            if head.status >= 200:
                break
            if head.status != 100 and call.sink is not None:
                call.sink.interim(head)
        self._buffer = b""
        self._stop_timer()
        self._begin_body(call, head, data)

    def _begin_body(self, call: Call, head: ResponseHead, data: bytes) -> None:
        self._head = head
        if head.framing == CHUNKED:
            self._follower = ChunkFollower()
        elif head.framing == LENGTH:
            self._left = head.length
        data, last = self._measure(head, data)
        sink = call.sink
        if last:
            self._release(head)
        if sink is not None:
            sink.answer(head, data, last)

    def _body_data(self, data: bytes) -> None:
        call, head = self._call, self._head
        assert call is not None and head is not None
        data, last = self._measure(head, data)
        sink = call.sink
        if last:
            self._release(head)
        if sink is not None:
            sink.piece(data, last)

    def _measure(self, head: ResponseHead, data: bytes) -> tuple[bytes, bool]:
        """What of `data` belongs to the body, and whether the body ends there."""
        if head.framing == CLOSE:
            return data, False
        if head.framing == NOTHING:
            end = 0
        elif head.framing == LENGTH:
            self._left -= len(data)
            if self._left > 0:
                return data, False
            end = len(data) + self._left
        else:
            assert self._follower is not None
            if not data:
                return data, False
            end = self._follower.feed(data)
            if end < 0:
                return data, False
        if end < len(data):  # bytes beyond the answer: the server is out of step
            head.keep_alive = False
            return data[:end], True
        return data, True

    def _release(self, head: ResponseHead) -> None:
        """The answer is whole: back to the pool, or away with it."""
        self.resume()
        whole = self._sender is None
        self._detach()
        if whole and head.keep_alive and not self.lost:
            told = head.value(b"keep-alive")
            self.idle_limit = IDLE_LIMIT if told is None else min(IDLE_LIMIT, _promised(told) - 1.0)
            self._upstream.give_back(self)
        elif whole:
            self.transport.loseConnection()
        else:
            self.transport.abortConnection()

    def _detach(self) -> None:
        self._stop_timer()
        if self._sender is not None:
            self._sender.stopProducing()
            self._sender = None
            if not self.lost:
                self.transport.unregisterProducer()
        if self._call is not None:
            self._call.connection = None
            self._call = None
        self._follower = None
        self._head = None

    def _fail(self, error: UpstreamError) -> None:
        call = self._call
        self.drop()
        if call is not None and call.sink is not None:
            call.sink.failed(error)

    def _no_answer(self) -> None:
        self._timer = None
        self._fail(
            UpstreamTimeout(f"{self._upstream.origin} sent no answer within {self._upstream.header_timeout:g} s")
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        """The connection is gone; for an answer that ends with its connection that is its proper end."""
        self.lost = True
        call, head, begun = self._call, self._head, bool(self._buffer)
        self._detach()
        self._upstream.gone(self)
        if call is None or call.sink is None:
            return
        if head is not None:
            if head.framing == CLOSE and reason.check(ConnectionDone):
                call.sink.piece(b"", True)
            else:
                call.sink.failed(UpstreamClosed("the model server closed the connection in the middle of its answer"))
        elif call.reused and not begun and call.method in _SAFE:
            call.reused = False
            self._upstream.send_fresh(call)
        else:
            how = "reset" if not reason.check(ConnectionDone) else "closed"
            call.sink.failed(UpstreamClosed(f"the model server {how} the connection before it answered"))


def _promised(keep_alive: bytes) -> float:
    """Seconds that a `Keep-Alive: timeout=N` promises; our own limit when it says none."""
    for item in keep_alive.split(b","):
        name, _, value = item.strip().partition(b"=")
        if name.lower() == b"timeout" and value.isdigit():
            return float(value)
    return IDLE_LIMIT + 1.0


@implementer(IPullProducer)
class _BodySender:
    """Writes a body that is in a file, piece by piece, as the connection takes it."""

    __slots__ = ("_connection", "_pieces")

    def __init__(self, connection: Connection, body: Body) -> None:
        self._connection: Connection | None = connection
        self._pieces = body.pieces()

    def resumeProducing(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            piece = next(self._pieces, None)
        except (OSError, ValueError) as problem:
            self._connection = None
            connection.body_sent(UpstreamClosed(f"the request's body could not be read back: {problem}"))
            return
        if piece is None:
            self._connection = None
            connection.body_sent(None)
        else:
            connection.transport.write(piece)

    def stopProducing(self) -> None:
        self._connection = None
