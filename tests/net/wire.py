"""In-memory connections for the tests of the data path: a reactor that connects by hand, strict transports, a sink.

The transports behave as Twisted's do: a pull producer is asked at once and after each flush, a connection is lost in a
later turn than it was closed in, and what makes no sense (pausing after the end, two producers) raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from lswap.core.framing import ResponseHead
from lswap.errors import UpstreamError
from lswap.net.body import Body
from lswap.net.call import Call
from lswap.net.upstream import Upstream

__all__ = ["Net", "Recorder", "Wire", "ask"]


class _Handle:
    """The socket below a wire, as far as it is asked."""

    def __init__(self) -> None:
        #: What `recv` gives or raises.
        self.waiting: bytes | Exception = BlockingIOError()
        self.options: list[tuple[int, int, int]] = []

    def recv(self, size: int, flags: int) -> bytes:
        """For the code under test: look at what waits."""
        if isinstance(self.waiting, Exception):
            raise self.waiting
        return self.waiting[:size]

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """For the code under test: note it."""
        self.options.append((level, option, value))


class Wire(StringTransport):
    """Our end of a connection, and the hand at its other end."""

    def __init__(self, net: Net, protocol: Any) -> None:
        super().__init__()
        self._net = net
        self._protocol = protocol
        self.handle = _Handle()
        #: How the code under test closed it: "lose", "abort", or not yet.
        self.closed: str | None = None
        self._end: IDelayedCall | None = None
        protocol.makeConnection(self)

    # -- the hand at the other end --------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return bool(self.connected)

    @property
    def paused(self) -> bool:
        """Whether the code under test reads no more."""
        return bool(self.producerState != "producing")

    def take(self) -> bytes:
        """What was written since the last time."""
        data: bytes = self.value()
        self.clear()
        return data

    def flush(self) -> bool:
        """The system takes what was written; a producer that can be pulled is asked for more. False without one."""
        if self.producer is None or self.streaming:
            return False
        self.producer.resumeProducing()
        return True

    def say(self, data: bytes) -> None:
        """The server sends."""
        assert self.alive and self.closed is None, "nobody is there to hear it"
        assert not self.paused, "nobody reads"
        self._protocol.dataReceived(data)

    def end(self) -> None:
        """The server closes."""
        self._lost(ConnectionDone())

    def reset(self) -> None:
        """The server resets the connection."""
        self._lost(ConnectionLost())

    def _lost(self, reason: Exception) -> None:
        if self._end is not None and self._end.active():
            self._end.cancel()
        if self.connected:
            self.connected = False
            if self.producer is not None:
                self.producer.stopProducing()
                self.producer = None
            self._protocol.connectionLost(Failure(reason))

    # -- what the code under test does ------------------------------------------

    def getHandle(self) -> _Handle:
        """The socket."""
        return self.handle

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As a transport does it."""
        super().registerProducer(producer, streaming)
        if not streaming:
            producer.resumeProducing()

    def loseConnection(self) -> None:
        """Close properly."""
        assert self.connected, "it is closed already"
        if self.closed is None:
            self.closed = "lose"
            self.disconnecting = True
            self._end = self._net.callLater(0, self._lost, connectionDone.value)

    def abortConnection(self) -> None:
        """Close hard."""
        assert self.connected, "it is closed already"
        if self.closed != "abort":
            if self._end is not None:
                self._end.cancel()
            self.closed = "abort"
            self.disconnecting = True
            self._end = self._net.callLater(0, self._lost, ConnectionAborted())


class Net(MemoryReactorClock):
    """A reactor whose connections are made by hand. Attempts are numbered in the order in which they were made."""

    def accept(self, number: int = -1) -> Wire:
        """Let an attempt succeed."""
        factory = self.tcpClients[number][2]
        return Wire(self, factory.buildProtocol(None))

    def refuse(self, number: int = -1, error: Exception | None = None) -> None:
        """Let an attempt fail."""
        reason = Failure(error if error is not None else ConnectionRefusedError())
        self.tcpClients[number][2].clientConnectionFailed(self.connectors[number], reason)

    def turn(self) -> None:
        """Let what is due now happen, and what comes of it."""
        for _ in range(4):
            self.advance(0)

    @property
    def hosts(self) -> list[str]:
        """Where the attempts went."""
        return [attempt[0] for attempt in self.tcpClients]

    @property
    def timers(self) -> int:
        """How many delayed calls wait."""
        return len(self.getDelayedCalls())


class Recorder:
    """A sink that notes what it is told. Checks the order: one answer, nothing after the end, no empty pieces."""

    def __init__(self) -> None:
        self.interims: list[int] = []
        self.head: ResponseHead | None = None
        self.pieces: list[bytes] = []
        self.whole = False
        self.error: UpstreamError | None = None
        #: The call, for those that pause or abort from inside.
        self.call: Call | None = None
        self.pause_on: Sequence[str] = ()
        self.abort_on: Sequence[str] = ()

    @property
    def over(self) -> bool:
        """Whether the end was told."""
        return self.whole or self.error is not None

    @property
    def body(self) -> bytes:
        """What came of the body."""
        return b"".join(self.pieces)

    def interim(self, head: ResponseHead) -> None:
        """See `lswap.net.call.Sink`."""
        assert not self.over and self.head is None
        self.interims.append(head.status)
        self._act("interim")

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """See `lswap.net.call.Sink`."""
        assert not self.over and self.head is None
        self.head = head
        if data:
            self.pieces.append(data)
        self.whole = last
        self._act("answer")

    def piece(self, data: bytes, last: bool) -> None:
        """See `lswap.net.call.Sink`."""
        assert not self.over and self.head is not None
        assert data or last
        if data:
            self.pieces.append(data)
        self.whole = last
        self._act("piece")

    def failed(self, error: UpstreamError) -> None:
        """See `lswap.net.call.Sink`."""
        assert not self.over
        assert isinstance(error, UpstreamError)
        self.error = error

    def _act(self, event: str) -> None:
        if self.call is not None and event in self.pause_on:
            self.call.pauseProducing()
        if self.call is not None and event in self.abort_on:
            self.call.abort()


def ask(upstream: Upstream, method: bytes = b"GET", body: Body | None = None, sink: Recorder | None = None) -> Recorder:
    """Send a request; its sink, which knows the call."""
    sink = sink if sink is not None else Recorder()
    head = [method, b" / HTTP/1.1\r\n", b"Content-Length: %d\r\n" % body.length if body is not None else b"", b"\r\n"]
    sink.call = upstream.send(method, head, body, sink)
    return sink
