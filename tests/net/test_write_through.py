"""Connections that send at once: what goes to the socket, what to the buffer, and in which order."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from twisted.internet import abstract, tcp
from twisted.internet.protocol import Protocol
from twisted.trial.unittest import SynchronousTestCase

from lswap.net.write_through import Port

_LARGE = 1 << 20


class Asked:
    """A reactor that notes who wants a turn."""

    def __init__(self) -> None:
        self.writers: set[Any] = set()

    def addReader(self, reader: object) -> None:
        """Nobody reads here."""

    def removeReader(self, reader: object) -> None:
        """Nobody reads here."""

    def addWriter(self, writer: object) -> None:
        """A turn for writing."""
        self.writers.add(writer)

    def removeWriter(self, writer: object) -> None:
        """No more turns."""
        self.writers.discard(writer)


class Producer:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        """Full."""
        self.told.append("pause")

    def resumeProducing(self) -> None:
        """Room again."""
        self.told.append("resume")

    def stopProducing(self) -> None:
        """Gone."""
        self.told.append("stop")


class WriteThroughTests(SynchronousTestCase):
    """A connection over a pair of sockets."""

    def setUp(self) -> None:
        """One end is the transport's, the other one ours."""
        ours, self.other = socket.socketpair()
        self.addCleanup(self.other.close)
        self.addCleanup(ours.close)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        self.other.setblocking(False)
        self.reactor = Asked()
        kind: Any = Port.transport
        server = SimpleNamespace(_realPortNumber=1)
        self.transport: Any = kind(ours, Protocol(), ("127.0.0.1", 1), server, 0, self.reactor)
        self.transport.connected = 1

    def got(self) -> bytes:
        """What the other end has got by now."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self.other.recv(_LARGE)
            except BlockingIOError:
                return b"".join(pieces)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    def turn(self) -> None:
        """The reactor gives a turn to who wants one."""
        for writer in list(self.reactor.writers):
            writer.doWrite()

    def test_at_once(self) -> None:
        """A small piece is sent before the reactor gets its turn, which nobody asks for."""
        self.transport.write(b"one")
        self.transport.writeSequence([b" two", b" three"])
        self.assertEqual(self.got(), b"one two three")
        self.assertEqual(self.reactor.writers, set())

    def test_order(self) -> None:
        """What the socket does not take is sent in the reactor's turn, and everything after it behind it."""
        data = bytes(range(256)) * 200
        self.transport.write(data)
        self.assertEqual(self.reactor.writers, {self.transport})
        self.transport.write(b"end")
        got = self.got()
        self.assertLess(len(got), len(data))
        while self.reactor.writers:
            self.turn()
            got += self.got()
        self.assertEqual(got, data + b"end")
        self.transport.write(b"more")
        self.assertEqual(self.got(), b"more")

    def test_large(self) -> None:
        """A large piece goes to the buffer as a whole: no part of it is sent and the rest copied."""
        self.transport.write(bytes(_LARGE))
        self.assertEqual((self.got(), self.reactor.writers), (b"", {self.transport}))
        self.transport.writeSequence([bytes(_LARGE), b"x"])
        size = 0
        while self.reactor.writers:
            self.turn()
            size += len(self.got())
        self.assertEqual(size, 2 * _LARGE + 1)

    def test_back_pressure(self) -> None:
        """A push producer is paused when more waits than the buffer holds, and resumed when it is empty."""
        producer = Producer()
        self.transport.registerProducer(producer, True)
        piece = bytes(60000)
        while self.transport.bufferSize >= len(self.transport.dataBuffer) + self.transport._tempDataLen:
            self.assertEqual(producer.told, [])
            self.transport.write(piece)
        self.assertEqual(producer.told, ["pause"])
        while self.reactor.writers:
            self.turn()
            self.got()
        self.assertEqual(producer.told, ["pause", "resume"])

    def test_pull_producer(self) -> None:
        """One that writes only when asked is asked again in the reactor's turn."""
        producer = Producer()
        self.transport.registerProducer(producer, False)
        self.transport.write(b"piece")
        self.assertEqual((self.got(), self.reactor.writers), (b"", {self.transport}))
        self.turn()
        self.assertEqual((self.got(), producer.told), (b"piece", ["resume", "resume"]))

    def test_closing(self) -> None:
        """Nothing is sent once the connection is to close, or its sending side is closed."""
        self.transport.loseConnection()
        self.transport.write(b"late")
        self.assertEqual(self.got(), b"")

    def test_half_closed(self) -> None:
        """Nor after the farewell of the sending side."""
        self.transport.loseWriteConnection()
        self.turn()
        self.transport.write(b"late")
        self.assertEqual(self.got(), b"")

    def test_not_connected(self) -> None:
        """Nor before there is a connection, or after it."""
        self.transport.connected = 0
        self.transport.write(b"early")
        self.assertEqual(self.got(), b"")

    def test_broken(self) -> None:
        """A connection that is gone is noticed in the reactor's turn, not in the midst of who writes."""
        self.other.close()
        self.transport.write(b"x")
        self.assertEqual(self.reactor.writers, {self.transport})
        self.assertIsInstance(self.transport.doWrite(), Exception)

    def test_encrypted(self) -> None:
        """With TLS started on the connection itself, Twisted's own way is taken."""
        self.transport.TLS = True
        written: list[bytes] = []
        self.transport.protocol.write = written.append
        self.transport.write(b"secret")
        self.assertEqual((self.got(), written), (b"", [b"secret"]))

    def test_twisted_is_as_we_know_it(self) -> None:
        """The private parts of Twisted that this stands on."""
        self.assertEqual((abstract.FileDescriptor.dataBuffer, tcp.Connection.TLS), (b"", False))
        self.assertFalse(abstract.FileDescriptor._writeDisconnecting or abstract.FileDescriptor._writeDisconnected)
        self.assertEqual(self.transport._tempDataBuffer, [])
        self.transport.stopWriting()
        abstract.FileDescriptor.write(self.transport, b"x")
        self.assertTrue(self.transport._tempDataBuffer)
