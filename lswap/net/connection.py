"""One connection of the data path to a model server, which serves one call at a time.

It parses the head of an answer once, follows the framing of its body without decoding it, and hands each piece to a
sink in the reactor turn it came in. Back pressure is the caller's: a `Call` is the push producer of whoever takes the
answer. `lswap.net.upstream` keeps the connections; read it next.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IHalfCloseableProtocol, IHandshakeListener
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from lswap.core.framing import CHUNKED, CLOSE, END_OF_HEAD, LENGTH, NOTHING, ChunkFollower, ResponseHead
from lswap.core.headers import upgrade_tokens
from lswap.core.known_heads import read_answer
from lswap.errors import BadAnswer, ConnectFailed, UpstreamClosed, UpstreamError, UpstreamTimeout
from lswap.net.body import BodySender
from lswap.net.call import Call, Receiver, Sink

if TYPE_CHECKING:
    from lswap.net.upstream import Upstream

__all__ = ["IDLE_LIMIT", "Call", "Connection", "Sink"]

#: Seconds that an unused connection is kept; common servers close theirs after 5.
IDLE_LIMIT = 4.0
_HEAD_LIMIT = 1 << 20
#: 1xx answers before the one that counts. They are not held back, so their number has an end.
_INTERIM_LIMIT = 100
#: A request's body up to this size is written together with the head. Of a longer one it is noted when the system has
#: taken all of it: a connection does not serve again while something of an earlier request waits in it.
_SMALL_BODY = 16384
#: Look at what is there, and do not wait for it.
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT
_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})


@implementer(IHandshakeListener)
class Connection(Protocol):
    """One connection to a model server; serves one call at a time."""

    transport: Any

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._call: Call | None = None
        self._head: ResponseHead | None = None
        self._buffer = b""
        self._heard = False  # whether any byte of an answer came
        self._interims = 0
        self._left = 0
        self._follower: ChunkFollower | None = None
        self._sender: BodySender | None = None
        self._paused = False
        self._timer: IDelayedCall | None = None
        self._secure = upstream.origin.scheme != "https"
        self._handshake: IDelayedCall | None = None
        self._ending = False
        self._receiver: Receiver | None = None  # of a connection that has switched to another protocol
        self.lost = False
        #: When this connection became unused; seconds of the reactor's clock.
        self.idle_since = 0.0
        #: Seconds that it may then be kept.
        self.idle_limit = 0.0
        #: Whether the answer before that came in chunks.
        self.streamed = False

    def connectionMade(self) -> None:
        """The connection is open; over TLS nothing is sent before the handshake has ended, which is bounded."""
        if not self.encrypted:
            # Without what the endpoint has put between: it costs each piece, and would take the end of one direction
            # of a switched connection for that of both.
            self.transport.protocol = self
        if not self._secure and self._upstream.tls_timeout > 0:
            self._handshake = self._upstream.clock.callLater(self._upstream.tls_timeout, self._no_handshake)

    def handshakeCompleted(self) -> None:
        """The other end is whom we asked for."""
        self._secure = True
        self._stop_handshake_timer()

    # -- what the pool and the call do ---------------------------------------

    def usable(self) -> bool:
        """Whether an unused connection is still open and silent; costs one system call."""
        if self.lost or self._ending:
            return False
        if self._upstream.origin.scheme == "https":
            return True
        try:
            self.transport.getHandle().recv(1, _PEEK)
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
        self._heard = False
        self._interims = 0
        body = call.body
        if body is not None and (body.length > _SMALL_BODY or not body.in_memory):
            self.transport.writeSequence(call.head)
            self._sender = BodySender(body, self.transport.write, self._body_sent, self._body_unreadable)
            self.transport.registerProducer(self._sender, False)
            return
        try:
            pieces = body.gathered() if body is not None else []
        except OSError as problem:
            self._body_unreadable(problem)
            return
        self.transport.writeSequence([*call.head, *pieces])
        self._await_answer()

    def pause(self) -> None:
        """Stop reading; without effect before an answer begins, whose head tells what follows."""
        if self._head is not None and not self._paused and not self.lost:
            self._paused = True
            self.transport.pauseProducing()

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self.lost:
            self._paused = False
            self.transport.resumeProducing()

    def drop(self) -> None:
        """Close at once and tell nobody."""
        self._ending = True
        self._detach()
        if not self.lost:
            self.transport.abortConnection()

    def close(self) -> None:
        """Close a connection that is not used."""
        self._ending = True
        if self.lost:
            return
        if self._upstream.origin.scheme == "https":
            self.transport.abortConnection()  # a proper end would wait for the other side's farewell, without a bound
        else:
            self.transport.loseConnection()

    def fail(self, error: UpstreamError) -> None:
        """Close at once; the call under way fails."""
        call = self._call
        self.drop()
        if call is not None:
            call.fail(error)

    # -- what the network does ------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Bytes of an answer, or of none (then the server is out of step, and the connection ends)."""
        call, head = self._call, self._head
        if call is None:
            if self._receiver is not None:
                self._receiver.data(data)
            else:
                self.drop()
            return
        try:
            if head is None:
                self._heard = True
                self._head_data(data)
            else:
                self._body_data(call, head, data)
        except BadAnswer as problem:
            self.fail(problem)

    def _head_data(self, data: bytes) -> None:
        searched = max(0, len(self._buffer) - 3)
        data = self._buffer + data if self._buffer else data
        while True:
            call = self._call
            if call is None:
                return
            end = END_OF_HEAD.search(data, searched)
            if end is None:
                if len(data) > _HEAD_LIMIT:
                    raise BadAnswer("the head of the answer is longer than 1 MiB")
                if not data.startswith(b"HTTP/1.") and not b"HTTP/1.".startswith(data[:7]):
                    raise BadAnswer(f"the answer does not begin like HTTP/1.x: {data[:60]!r}")
                self._buffer = data
                return
            head = read_answer(self._upstream.heads, data, end.start(), call.method)
            data, searched = data[end.end() :], 0
            if head.status == 101:
                self._switch(call, head, data)
                return
            if head.status >= 200:
                break
            self._interims += 1
            if self._interims > _INTERIM_LIMIT:
                raise BadAnswer(f"more than {_INTERIM_LIMIT} interim answers came before the answer")
            if head.status != 100 and call.sink is not None:
                call.sink.interim(head)
        self._buffer = b""
        self._stop_timer()
        self._begin_body(call, head, data)

    def _switch(self, call: Call, head: ResponseHead, data: bytes) -> None:
        """The server speaks another protocol from here on; the connection serves no other call."""
        switched, named = call.switched, upgrade_tokens(head.headers)
        if switched is None or not call.upgrade:
            raise BadAnswer("the model server switched protocols without being asked to")
        if not named or not named <= call.upgrade:
            raise BadAnswer(f"the model server switched to {b', '.join(sorted(named))[:60]!r}, which was not asked for")
        call.sink = None
        self._detach()
        if not self.encrypted:
            alsoProvides(self, IHalfCloseableProtocol)
        self._receiver = switched(head, data, self)

    @property
    def encrypted(self) -> bool:
        """Whether it is one of TLS."""
        return self._upstream.origin.scheme == "https"

    def server_gone(self) -> None:
        """The process behind the server's side is gone; what it has sent may still be under way."""
        if self._receiver is not None:
            self._receiver.hurry()

    def readConnectionLost(self) -> None:
        """The other side of a switched connection sends no more."""
        if self._receiver is not None:
            self._receiver.ended()

    def writeConnectionLost(self) -> None:
        """We said that we send no more, and the system has taken it."""

    def _begin_body(self, call: Call, head: ResponseHead, data: bytes) -> None:
        self._head = head
        if head.framing == CHUNKED:
            self._follower = head.follower = ChunkFollower()
        elif head.framing == LENGTH:
            self._left = head.length
        data, last = self._measure(head, data)
        sink = call.sink
        if last:
            self._release(call, head)
        elif call.paused:
            self.pause()
        if sink is not None:
            sink.answer(head, data, last)

    def _body_data(self, call: Call, head: ResponseHead, data: bytes) -> None:
        data, last = self._measure(head, data)
        sink = call.sink
        if last:
            self._release(call, head)
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
            end = self._follower.feed(data)
            if end < 0:
                return data, False
        if end < len(data):  # bytes beyond the answer: the server is out of step
            head.keep_alive = False
            return data[:end], True
        return data, True

    def _release(self, call: Call, head: ResponseHead) -> None:
        """The answer is whole: back to the pool, or away with it."""
        call.sink = None
        self.resume()
        whole = self._sender is None
        self._detach()
        if not whole:  # an early answer: nobody waits for the rest of the body
            self.drop()
        elif head.keep_alive:
            told = head.value(b"keep-alive")
            limit = self._upstream.idle_limit
            self.idle_limit = limit if told is None else min(limit, _promised(told) - 1.0)
            self._upstream.give_back(self, head.framing == CHUNKED)
        else:
            self.close()

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
        self._buffer = b""

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        """The connection is gone; for an answer that ends with its connection that is its proper end."""
        self.lost = True
        call, head = self._call, self._head
        self._stop_handshake_timer()
        self._detach()
        self._upstream.gone(self)
        if self._receiver is not None:
            self._receiver.lost()
        if call is None:
            return
        done = reason.check(ConnectionDone) is not None
        if head is not None:
            if head.framing == CLOSE and done:
                sink, call.sink = call.sink, None
                if sink is not None:
                    sink.piece(b"", True)
            else:
                call.fail(UpstreamClosed("the model server closed the connection in the middle of its answer"))
        elif not self._secure:
            origin = self._upstream.origin
            call.fail(ConnectFailed(f"no secure connection to {origin}: {reason.getErrorMessage()}"))
        elif call.reused and not self._heard and call.method in _SAFE and call.sink is not None:
            call.reused, call.repeated = False, True
            self._upstream.send_fresh(call)
        else:
            how = "closed" if done else "reset"
            call.fail(UpstreamClosed(f"the model server {how} the connection before it answered"))

    # -- the request's body ------------------------------------------------------

    def _body_sent(self) -> None:
        """The system has taken the whole body."""
        if self._sender is not None:
            self._sender = None
            if not self.lost:
                self.transport.unregisterProducer()
            self._await_answer()

    def _body_unreadable(self, problem: Exception) -> None:
        """The body cannot be read back: the request cannot be completed."""
        call = self._call
        self.drop()
        if call is not None:  # in a turn of its own, as this may come before `send` has returned
            error = UpstreamClosed(f"the request's body could not be read back: {problem}")
            self._upstream.clock.callLater(0, call.fail, error)

    # -- time -----------------------------------------------------------------

    def _await_answer(self) -> None:
        """The request is written: from now on the head of the answer is due."""
        if self._upstream.header_timeout > 0 and self._call is not None and self._head is None:
            self._timer = self._upstream.clock.callLater(self._upstream.header_timeout, self._no_answer)

    def _no_answer(self) -> None:
        self._timer = None
        self.fail(UpstreamTimeout(f"{self._upstream.origin} sent no answer within {self._upstream.header_timeout:g} s"))

    def _no_handshake(self) -> None:
        self._handshake = None
        limit = self._upstream.tls_timeout
        self.fail(ConnectFailed(f"no secure connection to {self._upstream.origin} within {limit:g} s"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_handshake_timer(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None


def _promised(keep_alive: bytes) -> float:
    """Seconds that a `Keep-Alive: timeout=N` promises; without limit when it says none."""
    for item in keep_alive.split(b","):
        name, _, value = item.strip().partition(b"=")
        if name.strip().lower() == b"timeout" and value.strip().isdigit():
            return float(value)
    return float("inf")
