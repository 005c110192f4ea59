"""The lean reactor: dispatch of events, faults of readers, and connections of the kind that writes through."""

from __future__ import annotations

import socket
from typing import Any
from unittest import skipUnless

from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase

try:
    from lswap.net.epoll import LeanReactor
except ImportError:  # not on this system
    LeanReactor = None  # type: ignore[misc, assignment]


class Reader:
    """One end of a pair of sockets; takes what comes, or breaks."""

    def __init__(self, reactor: Any, broken: BaseException | None = None) -> None:
        self.socket, self.other = socket.socketpair()
        self.taken: list[bytes] = []
        self.lost: list[object] = []
        self.broken = broken
        self._reactor = reactor
        self.before: Any = None
        reactor.addReader(self)

    def fileno(self) -> int:
        """For the reactor."""
        return self.socket.fileno()

    def logPrefix(self) -> str:
        """For the reactor."""
        return "reader"

    def doRead(self) -> None:
        """For the reactor."""
        self.taken.append(self.socket.recv(100))
        if self.before is not None:
            self.before()
        if self.broken is not None:
            raise self.broken

    def connectionLost(self, reason: object) -> None:
        """For the reactor."""
        self.lost.append(reason)
        self.close()

    def close(self) -> None:
        """Both ends."""
        self._reactor.removeReader(self)
        self.socket.close()
        self.other.close()


@skipUnless(LeanReactor is not None, "this system has no epoll")
class LeanReactorTests(SynchronousTestCase):
    """A reactor of our own, turned by hand and not installed."""

    def setUp(self) -> None:
        """One that is not the process's."""
        self.reactor: Any = LeanReactor()
        self.addCleanup(self._clean)

    def _clean(self) -> None:
        for selectable in self.reactor.removeAll():
            if isinstance(selectable, Reader):
                selectable.close()
        self.reactor.disconnectAll()
        self.reactor._poller.close()

    def test_reads(self) -> None:
        """What has something to read is asked to read it, all in one turn."""
        readers = [Reader(self.reactor) for _ in range(3)]
        for number in (0, 2):
            readers[number].other.send(b"x")
        self.reactor.doIteration(0)
        self.assertEqual([reader.taken for reader in readers], [[b"x"], [], [b"x"]])

    def test_faults(self) -> None:
        """A reader that breaks is logged and disconnected; the others have their turn."""
        fault = RuntimeError("boom")
        broken, other = Reader(self.reactor, fault), Reader(self.reactor)
        for reader in (broken, other):
            reader.other.send(b"x")
        self.reactor.doIteration(0)
        self.assertEqual(self.flushLoggedErrors(RuntimeError)[0].value, fault)
        self.assertEqual((len(broken.lost), other.taken), (1, [b"x"]))

    def test_closed_in_the_same_turn(self) -> None:
        """A descriptor that an earlier event of the turn has closed is passed over."""
        readers = [Reader(self.reactor), Reader(self.reactor)]
        readers[0].before, readers[1].before = readers[1].close, readers[0].close
        for reader in readers:
            reader.other.send(b"x")
        self.reactor.doIteration(0)
        self.assertEqual(sorted(len(reader.taken) for reader in readers), [0, 1])

    def test_end(self) -> None:
        """The other end's farewell is told in Twisted's way."""
        reader = Reader(self.reactor)
        reader.other.close()
        reader.doRead = lambda: ConnectionError("end")  # type: ignore[method-assign, assignment]
        self.reactor.doIteration(0)
        self.assertEqual(len(reader.lost), 1)

    def test_connections_write_through(self) -> None:
        """Both ends of a connection, without a turn between the write and the bytes on the wire."""
        served: list[Protocol] = []
        accepting = Factory.forProtocol(lambda: served.append(Protocol()) or served[-1])  # type: ignore[func-returns-value]
        port = self.reactor.listenTCP(0, accepting, interface="127.0.0.1")
        asked: list[Any] = []
        endpoint = TCP4ClientEndpoint(self.reactor, "127.0.0.1", port.getHost().port)
        endpoint.connect(Factory.forProtocol(Protocol)).addCallback(asked.append)
        while not (served and asked):
            self.reactor.runUntilCurrent()
            self.reactor.doIteration(0.1)
        for one, other in ((served[0], asked[0]), (asked[0], served[0])):
            one.transport.write(b"now")  # type: ignore[union-attr]
            self.assertEqual(other.transport.getHandle().recv(100), b"now")  # type: ignore[union-attr]
            self.assertNotIn(one.transport, self.reactor.getWriters())
