"""Sockets, ports and a reactor in memory, for tests.

The transports are Twisted's own, on sockets that are objects here (`MemorySocket`), so that buffers, half-closes and
resets are genuine. Who listens is anything with `accept`, `serve` and `silent`; read `tests.stand_in` for such a one.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from twisted.internet import error, tcp
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.posixbase import _DisconnectSelectableMixin
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.testing import FakeReactor

__all__ = ["LOCAL", "Listening", "MemoryPort", "MemoryReactor", "MemorySocket"]

#: Bytes that a socket takes before it says that it is full.
ROOM = 256 * 1024
LOCAL = ("127.0.0.1", 8080)


class Listening(Protocol):
    """Whoever can be connected to."""

    #: Whether connections are neither taken nor refused.
    silent: bool

    def accept(self, connection: MemorySocket) -> None:
        """Somebody connects."""

    def serve(self) -> bool:
        """Do what there is to do; whether there was anything."""


class MemorySocket:
    """One end of a connection. As much of a socket as Twisted's transports use, and nothing more."""

    def __init__(self, peername: tuple[str, int] = LOCAL) -> None:
        self.peer: MemorySocket
        self.inbox = bytearray()
        self.room = ROOM
        #: The other side sends no more; it has closed hard; this side has closed.
        self.eof = self.reset = self.closed = False
        self._shut = self._hard = False
        self._peername = peername

    @classmethod
    def pair(cls, peername: tuple[str, int] = LOCAL) -> tuple[MemorySocket, MemorySocket]:
        """Two ends; the first sees the second under this name."""
        one, other = cls(peername), cls()
        one.peer, other.peer = other, one
        return one, other

    @property
    def readable(self) -> bool:
        """Whether `recv` has something to say."""
        return bool(self.inbox) or self.eof or self.reset

    def recv(self, size: int, flags: int = 0) -> bytes:
        """See `socket.recv`; knows the flag MSG_PEEK."""
        if self.inbox:
            data = bytes(self.inbox[:size])
            if not flags & socket.MSG_PEEK:
                del self.inbox[:size]
            return data
        if self.reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        if self.eof:
            return b""
        raise BlockingIOError(errno.EWOULDBLOCK, "nothing there")

    def send(self, data: bytes) -> int:
        """See `socket.send`."""
        if self.closed or self._shut or self.peer.closed or self.reset:
            raise BrokenPipeError(errno.EPIPE, "nobody reads")
        taken = bytes(data[: max(0, self.peer.room - len(self.peer.inbox))])
        if not taken:
            raise BlockingIOError(errno.EWOULDBLOCK, "full")
        self.peer.inbox += taken
        return len(taken)

    def shutdown(self, how: int) -> None:
        """See `socket.shutdown`."""
        if how != socket.SHUT_RD:
            self._shut = True
            self.peer.eof = True

    def close(self) -> None:
        """See `socket.close`: with unread data, or if told to, the other side sees a reset."""
        if not self.closed:
            self.closed = True
            if self._hard or self.inbox:
                self.peer.reset = True
            self.peer.eof = True

    def setsockopt(self, level: int, option: int, value: object) -> None:
        """See `socket.setsockopt`; knows SO_LINGER."""
        if option == socket.SO_LINGER:
            self._hard = True

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def fileno(self) -> int:
        """It has no number."""
        return -1 if self.closed else 1 << 20

    def getpeername(self) -> tuple[str, int]:
        """See `socket.getpeername`."""
        return self._peername

    def getsockname(self) -> tuple[str, int]:
        """See `socket.getsockname`."""
        return LOCAL


class _Client(tcp.Connection):
    """The transport of an outgoing connection."""

    def __init__(self, ours: MemorySocket, protocol: Any, reactor: Any) -> None:
        super().__init__(cast(socket.socket, ours), protocol, reactor)
        self.connected = 1
        self.startReading()

    def getHost(self) -> IPv4Address:
        """Anything."""
        return IPv4Address("TCP", "127.0.0.1", 40_000)

    def getPeer(self) -> IPv4Address:
        """The name under which it was reached."""
        return IPv4Address("TCP", *self.socket.getpeername())


class _Connector:
    """One attempt to connect."""

    def __init__(self, reactor: MemoryReactor, address: tuple[str, int], factory: Any, timeout: float | None) -> None:
        self._reactor, self._address, self._factory = reactor, address, factory
        self._calls = [reactor.callLater(0, self._attempt)]
        if timeout is not None:
            self._calls.append(reactor.callLater(timeout, self._fail, error.TimeoutError()))

    def getDestination(self) -> IPv4Address:
        """Where to."""
        return IPv4Address("TCP", *self._address)

    def stopConnecting(self) -> None:
        """Give up."""
        self._fail(error.UserError())

    disconnect = stopConnecting

    def _over(self) -> None:
        for call in self._calls:
            if call.active():
                call.cancel()

    def _fail(self, why: Exception) -> None:
        self._over()
        self._factory.clientConnectionFailed(self, Failure(why))

    def _attempt(self) -> None:
        listener = self._reactor.listeners.get(self._address)
        if listener is None:
            self._fail(error.ConnectionRefusedError())
            return
        if listener.silent:
            return
        self._over()
        ours, theirs = MemorySocket.pair(self._address)
        protocol = self._factory.buildProtocol(self.getDestination())
        protocol.makeConnection(_Client(ours, protocol, self._reactor))
        listener.accept(theirs)


class MemoryPort:
    """A listening port that nobody can reach but a test."""

    def __init__(self, reactor: MemoryReactor, port: int, factory: Any, backlog: int, interface: str) -> None:
        self.port, self.factory, self.backlog, self.interface = port, factory, backlog, interface
        self.open = True
        factory.doStart()

    def getHost(self) -> IPv4Address:
        """Where it is."""
        return IPv4Address("TCP", self.interface, self.port)

    def startListening(self) -> None:
        """It does already."""

    def stopListening(self) -> Deferred[None] | None:
        """Close it."""
        if self.open:
            self.open = False
            self.factory.doStop()
        return None


class _Pool:
    """A thread pool that does everything at once."""

    def callInThreadWithCallback(self, told: Any, function: Any, *args: Any, **kwargs: Any) -> None:
        """See `twisted.python.threadpool.ThreadPool`."""
        try:
            result = function(*args, **kwargs)
        except Exception:
            told(False, Failure())
        else:
            told(True, result)


class MemoryReactor(_DisconnectSelectableMixin, FakeReactor):
    """A reactor whose sockets are objects. What `FakeReactor` has (time, processes, pipes) it has too."""

    _log = Logger()

    def __init__(self) -> None:
        super().__init__()
        #: Who can be reached by `connectTCP`.
        self.listeners: dict[tuple[str, int], Listening] = {}
        self.ports: list[MemoryPort] = []
        #: What `listenTCP` raises.
        self.listen_error: Exception | None = None
        self.running = False
        self.stops = 0
        self._sources: dict[Any, None] = {}
        self._sinks: dict[Any, None] = {}

    # -- what Twisted's transports ask for

    def addReader(self, reader: Any) -> None:
        """See `IReactorFDSet`."""
        if isinstance(getattr(reader, "socket", None), MemorySocket):
            self._sources[reader] = None
        else:
            super().addReader(reader)

    def removeReader(self, reader: Any) -> None:
        """See `IReactorFDSet`."""
        self._sources.pop(reader, None)
        super().removeReader(reader)

    def addWriter(self, writer: Any) -> None:
        """See `IReactorFDSet`."""
        self._sinks[writer] = None

    def removeWriter(self, writer: Any) -> None:
        """See `IReactorFDSet`."""
        self._sinks.pop(writer, None)

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float | None = 30, bindAddress: Any = None
    ) -> _Connector:
        """See `IReactorTCP`."""
        connector = _Connector(self, (host, port), factory, timeout)
        factory.doStart()
        factory.startedConnecting(connector)
        return connector

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> MemoryPort:
        """See `IReactorTCP`."""
        if self.listen_error is not None:
            raise self.listen_error
        self.ports.append(MemoryPort(self, port, factory, backlog, interface))
        return self.ports[-1]

    # -- what else is asked of a reactor

    def callFromThread(self, function: Callable[..., object], *args: object) -> None:
        """In the next turn."""
        self.callLater(0, function, *args)

    def callWhenRunning(self, function: Callable[..., object], *args: object) -> None:
        """In the next turn."""
        self.callLater(0, function, *args)

    def getThreadPool(self) -> _Pool:
        """No threads."""
        return _Pool()

    def stop(self) -> None:
        """See `IReactorCore`."""
        self.stops += 1
        if self.stops > 1:
            raise error.ReactorNotRunning("stopped already")

    # -- what a test does

    def turn(self, seconds: float = 0) -> None:
        """Let time pass; then everything that can happen now happens."""
        super().turn(seconds)
        for _ in range(10_000):
            busy = [self._move(sink, "doWrite", False) for sink in list(self._sinks)]
            busy += [self._move(source, "doRead", True) for source in list(self._sources) if self._ready(source)]
            busy += [stand_in.serve() for stand_in in list(self.listeners.values())]
            due = [call for call in self.getDelayedCalls() if call.getTime() <= self.seconds()]
            if not any(busy) and not due:
                return
            super().turn()
        raise AssertionError("this never comes to rest")

    @staticmethod
    def _ready(source: Any) -> bool:
        ours = getattr(source, "socket", None)
        return ours is not None and ours.readable

    def _move(self, selectable: Any, method: str, is_read: bool) -> bool:
        """One step of a transport, as a reactor takes it; whether anything moved."""
        if selectable not in (self._sources if is_read else self._sinks):
            return False
        ours: MemorySocket = selectable.socket
        before = (len(ours.inbox), len(ours.peer.inbox), ours.closed)
        try:
            why = getattr(selectable, method)()
        except Exception as problem:
            self._log.failure("a transport failed")
            why = problem
        if why:
            self._disconnectSelectable(selectable, why, is_read)
        return (
            bool(why)
            or before != (len(ours.inbox), len(ours.peer.inbox), ours.closed)
            or (not is_read and selectable not in self._sinks)
        )
