"""A machine in memory that sleeps and wakes as a test says, and what wakes it, for tests of all that waits for one."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import DNSLookupError

from tests.stand_in import Served, StandIn
from tests.wires import MemoryReactor

__all__ = ["FakeUdp", "FakeWaker", "Host", "UdpReactor"]


class FakeWaker:
    """Counts."""

    def __init__(self) -> None:
        self.wakes = 0
        self.closed = False

    def wake(self) -> None:
        """See `lswap.net.wake.Waker`."""
        self.wakes += 1

    def close(self) -> None:
        """See `lswap.net.wake.Waker`."""
        self.closed = True


class Host(StandIn):
    """The server on it: answers its health check, keeps streams of events open, and notes all else."""

    #: What the health check says; None for nothing at all. The same for the events.
    check: int | None = 200
    events: int | None = 200
    check_path = "/wol-health"

    def sleep(self) -> None:
        """Fall asleep, as a machine does: nobody is told, nothing is answered any more."""
        self.silent = True

    def _received(self, request: Served) -> None:
        if self.silent:
            return
        if request.target == self.check_path:
            self.checks.append(request)
            if self.check is not None:
                request.answer(self.check)
        elif request.target == "/api/events" and request.header("Accept") == "text/event-stream":
            self.checks.append(request)
            if self.events == 200:
                request.begin([("Content-Type", "text/event-stream")])
                request.chunk(b"data: {}\n\n")
            elif self.events is not None:
                request.answer(self.events)
        else:
            super()._received(request)

    @property
    def streams(self) -> list[Served]:
        """Streams of events that were asked for."""
        return [request for request in self.checks if request.target == "/api/events"]


class FakeUdp:
    """As much of a reactor as packets need, and its one port."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, tuple[str, int]]] = []
        self.opened = self.open = 0
        self.may_broadcast = False
        #: What sending raises, by address.
        self.errors: dict[str, Exception] = {}
        self.listen_error: Exception | None = None
        self.names: dict[str, str] = {"den": "10.0.0.7"}

    def resolve(self, name: str) -> Deferred[str]:
        """See `IReactorCore`."""
        if name[0].isdigit():
            return succeed(name)
        return succeed(self.names[name]) if name in self.names else fail(DNSLookupError(name))

    def listenUDP(self, port: int, protocol: Any) -> FakeUdp:
        """See `IReactorUDP`."""
        if self.listen_error is not None:
            raise self.listen_error
        assert port == 0
        self.opened += 1
        self.open += 1
        protocol.transport = self
        protocol.startProtocol()
        return self

    def setBroadcastAllowed(self, enabled: bool) -> None:
        """See `IUDPTransport`."""
        self.may_broadcast = enabled

    def write(self, packet: bytes, address: tuple[str, int]) -> None:
        """See `IUDPTransport`."""
        assert self.may_broadcast
        if address[0] in self.errors:
            raise self.errors[address[0]]
        self.sent.append((packet, address))

    def stopListening(self) -> None:
        """See `IListeningPort`."""
        self.open -= 1


class UdpReactor(FakeUdp, MemoryReactor):
    """A whole reactor in memory, that has datagrams too."""

    def __init__(self) -> None:
        MemoryReactor.__init__(self)
        FakeUdp.__init__(self)
