"""The HTTP/1.1 client of the data path: one pool per model server, raw bytes in and out.

`lswap.net.connection` has the connections; `lswap.net.relay` is the sink of client requests, `lswap.net.agent` that of
control calls (treq).

Nothing is sent twice once a byte of it may have been processed: only a request without side effects that met a kept
connection which the server closed before any byte of an answer is sent once more, on a fresh connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from lswap.core.known_heads import AnswerHead, HeadMemory
from lswap.errors import ConnectFailed, UpstreamClosed, UpstreamError
from lswap.net.body import Body
from lswap.net.connection import IDLE_LIMIT, Call, Connection, Sink
from lswap.net.dial import Dialer, Origin

__all__ = ["SETTLE", "Upstream"]

#: Seconds after an answer in which a server closes its connection, if it does that without a word; by whether the
#: answer came in chunks. Of plain ones it is rare, and there are many of them.
SETTLE = {False: 0.02, True: 0.25}
#: Connections that may wait for that side by side; a few are enough to find out.
_SETTLING = 8


class Upstream:
    """The connections to one origin: newest first, unused ones for a few seconds, no limit on used ones."""

    def __init__(
        self,
        reactor: Any,
        origin: Origin,
        connect_timeout: float = 30.0,
        header_timeout: float = 0.0,
        tls_timeout: float = 10.0,
        idle_limit: float = 0.0,
        through: IStreamClientEndpoint | None = None,
        keepalive: float = 30.0,
        unheard_limit: float = 0.0,
    ) -> None:
        """All times in seconds, 0 is no limit.

        @param connect_timeout: to connect, for each address.
        @param header_timeout: from the end of a request to the head of its answer.
        @param tls_timeout: for the TLS handshake.
        @param idle_limit: how long an unused connection is kept; never longer than is safe (`IDLE_LIMIT`).
        @param through: what takes the place of the origin's own addresses (a proxy).
        @param keepalive: between TCP keep-alive probes; 0 leaves it to the system.
        @param unheard_limit: see `Dialer`.
        """
        self.clock = reactor
        self.origin = origin
        self.header_timeout = header_timeout
        self.tls_timeout = tls_timeout
        self.idle_limit = min(IDLE_LIMIT, idle_limit) if idle_limit > 0 else IDLE_LIMIT
        self._dialer = Dialer(reactor, origin, connect_timeout, through, keepalive, unheard_limit)
        self._factory = Factory.forProtocol(lambda: Connection(self))
        self._factory.noisy = False
        self._dialing: set[Call] = set()
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._sweep: IDelayedCall | None = None
        self._closed = False
        #: Heads of its answers, of late.
        self.heads: HeadMemory[AnswerHead] = HeadMemory()
        #: Whether this server keeps its connections open as it promises, by whether the answer before came in chunks.
        self.keeps_open = {False: False, True: False}

    def send(self, method: bytes, head: Sequence[bytes], body: Body | None, sink: Sink) -> Call:
        """Send one request; `head` is its head with the empty line, in pieces.

        The sink hears nothing before this has returned. After `close` every request fails.
        """
        call = Call(method, head, body, sink)
        settling: list[Connection] = []
        now = self.clock.seconds()
        while self._idle:
            connection = self._idle.pop()
            idle = now - connection.idle_since
            if not self.keeps_open[connection.streamed] and idle < SETTLE[connection.streamed]:
                settling.append(connection)
            elif idle < connection.idle_limit and connection.usable():
                self.keeps_open[connection.streamed] = True
                call.reused = True
                connection.start(call)
                break
            else:
                connection.drop()
        self._idle += reversed(settling)
        if call.connection is None:
            self.send_fresh(call)
        return call

    def send_fresh(self, call: Call) -> None:
        """Send the request of `call` on a new connection."""
        if self._closed:
            self._fail_soon(call, self._closing())
            return
        self._dialing.add(call)
        call.dialing = self._dialer.connect(self._factory)
        call.dialing.addCallbacks(self._dialed, self._not_dialed, callbackArgs=(call,), errbackArgs=(call,))

    def _dialed(self, connection: Connection, call: Call) -> None:
        self._dialing.discard(call)
        call.dialing = None
        self._all.add(connection)
        if call.sink is None:
            connection.drop()
        else:
            connection.start(call)

    def _not_dialed(self, failure: Failure, call: Call) -> None:
        self._dialing.discard(call)
        call.dialing = None
        error = failure.value
        if not isinstance(error, UpstreamError):
            error = ConnectFailed(f"no connection to {self.origin}: {failure.getErrorMessage()}")
        if call.repeated:
            # The first attempt may be what the server died of; nobody is to start it again for the same request.
            error = UpstreamClosed(
                "the model server closed the connection before it answered, and cannot be reached now"
            )
        self._fail_soon(call, error)

    def _fail_soon(self, call: Call, error: UpstreamError) -> None:
        """Fail in a turn of its own, as this may come before `send` has returned."""
        if call.sink is not None:
            self.clock.callLater(0, call.fail, error)

    def _closing(self) -> UpstreamClosed:
        return UpstreamClosed(f"the connections to {self.origin} are closed")

    # -- what the connections tell ------------------------------------------------

    def give_back(self, connection: Connection, streamed: bool) -> None:
        """A connection whose answer is whole; `streamed`: it came in chunks."""
        settles = not self.keeps_open[streamed]
        if self._closed or connection.idle_limit <= 0 or (settles and len(self._idle) >= _SETTLING):
            connection.close()
            return
        connection.idle_since = self.clock.seconds()
        connection.streamed = streamed
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self.clock.callLater(self.idle_limit, self._sweep_idle)

    def gone(self, connection: Connection) -> None:
        """A connection that is closed."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            if self.clock.seconds() - connection.idle_since < SETTLE[connection.streamed]:
                self.keeps_open[connection.streamed] = False

    def _sweep_idle(self) -> None:
        self._sweep = None
        now = self.clock.seconds()
        old = [c for c in self._idle if now - c.idle_since >= c.idle_limit]
        self._idle = [c for c in self._idle if now - c.idle_since < c.idle_limit]
        for connection in old:
            connection.close()
        if self._idle:
            self._sweep = self.clock.callLater(self.idle_limit, self._sweep_idle)

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._dialing) or len(self._all) > len(self._idle)

    def set_timeouts(self, connect_timeout: float, header_timeout: float, keepalive: float) -> None:
        """Other limits, from the next connection and the next request on."""
        self._dialer.set_timeout(connect_timeout, keepalive)
        self.header_timeout = header_timeout

    # -- the end -----------------------------------------------------------------------

    def forget_idle(self) -> None:
        """Close all unused connections: the server behind them is ending."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.drop()

    def server_gone(self) -> None:
        """The process behind the server is gone: nobody has to wait for its last word."""
        for connection in list(self._all):
            connection.server_gone()

    def close(self) -> None:
        """Close everything; calls under way fail. May be called twice."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.forget_idle()
        for call in list(self._dialing):
            dialing = call.dialing
            call.fail(self._closing())
            if dialing is not None:
                dialing.cancel()
        for connection in list(self._all):
            connection.fail(self._closing())
