"""Tests for `lswap.net.output`, over real pipes and a made-up reactor."""

from __future__ import annotations

import os
import select

from twisted.internet.interfaces import IReactorFDSet, IReactorProcess, IReactorTime, IReadDescriptor
from twisted.internet.main import CONNECTION_DONE
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from lswap.net.output import Output
from lswap.testing import FakeReactor


class OutputTests(SynchronousTestCase):
    """What a process writes is handed on as it comes."""

    def setUp(self) -> None:
        """Make a pipe and read it."""
        self.reactor = FakeReactor()
        self.pieces: list[bytes] = []
        self.ends = 0
        reading, self.writing = os.pipe()
        self.addCleanup(self.close_writing)
        self.output = Output(self.reactor, reading, self.received, self.ended)
        self.addCleanup(self.output.close)

    def received(self, data: bytes) -> None:
        """Keep a piece."""
        self.pieces.append(data)

    def ended(self) -> None:
        """Count an end."""
        self.ends += 1

    def close_writing(self) -> None:
        """Let the writer go, once."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def test_interfaces(self) -> None:
        """The reader is what a reactor expects, and so is the made-up reactor."""
        verifyObject(IReadDescriptor, self.output)
        for interface in (IReactorTime, IReactorProcess, IReactorFDSet):
            verifyObject(interface, self.reactor)

    def test_pieces_in_order(self) -> None:
        """Each turn hands on what was written by then."""
        os.write(self.writing, b"one\n")
        self.reactor.turn()
        os.write(self.writing, b"two")
        os.write(self.writing, b"\nthree\n")
        self.reactor.turn()
        self.assertEqual(self.pieces, [b"one\n", b"two\nthree\n"])

    def test_nothing_to_read(self) -> None:
        """A spurious wake-up is no end and no data."""
        self.assertIsNone(self.output.doRead())
        self.output.drain()
        self.assertEqual((self.pieces, self.ends), ([], 0))

    def test_bounded_turn(self) -> None:
        """One turn takes at most 64 KiB, also of an enlarged pipe."""
        fcntl_set_pipe_size(self.writing, 1 << 18)
        os.set_blocking(self.writing, False)
        written = os.write(self.writing, bytes(1 << 18))
        self.assertGreater(written, 65536)
        self.reactor.turn()
        self.assertEqual([len(piece) for piece in self.pieces], [65536])

    def test_writer_is_not_held_up(self) -> None:
        """After a turn there is room again for a writer that had filled the pipe."""
        os.set_blocking(self.writing, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(self.writing, bytes(4096))
        self.reactor.turn()
        self.assertEqual(os.write(self.writing, bytes(4096)), 4096)

    def test_writing_end_stays_blocking(self) -> None:
        """Only our end is non-blocking: programs do not expect their output to refuse them."""
        self.assertTrue(os.get_blocking(self.writing))
        self.assertFalse(os.get_blocking(self.output.fileno()))

    def test_end(self) -> None:
        """When the last writer has gone the pipe is closed, after its data, and the end is told once."""
        reading = self.output.fileno()
        os.write(self.writing, b"last")
        self.close_writing()
        self.reactor.turn()
        self.assertEqual((self.pieces, self.ends), ([b"last"], 0))
        self.reactor.turn()
        self.assertEqual((self.ends, self.output.open, self.output.fileno()), (1, False, -1))
        self.assertEqual(self.reactor.getReaders(), [])
        self.assertRaises(OSError, os.fstat, reading)
        self.output.close()
        self.output.drain()
        self.assertEqual(self.ends, 1)

    def test_reactor_says_the_end(self) -> None:
        """Some reactors tell the end without another read."""
        self.close_writing()
        self.output.connectionLost(Failure(CONNECTION_DONE))
        self.assertEqual((self.ends, self.reactor.getReaders()), (1, []))

    def test_close(self) -> None:
        """A pipe that somebody still holds can be closed; the holder is told by the kernel."""
        self.output.close()
        self.assertEqual(self.ends, 1)
        self.assertRaises(BrokenPipeError, os.write, self.writing, b"x")

    def test_drain(self) -> None:
        """All that is there is taken at once, the end included."""
        os.write(self.writing, b"a")
        self.output.drain()
        self.assertEqual((self.pieces, self.ends), ([b"a"], 0))
        os.write(self.writing, b"b")
        self.close_writing()
        self.output.drain()
        self.assertEqual((self.pieces, self.ends), ([b"a", b"b"], 1))

    def test_drain_is_bounded(self) -> None:
        """A writer that never pauses cannot keep `drain` busy for ever."""
        taken = 0

        def refill(data: bytes) -> None:
            nonlocal taken
            taken += len(data)
            self.assertLess(taken, 1 << 22)
            os.write(self.writing, bytes(65536))

        reading, self_writing = os.pipe()
        self.close_writing()
        self.writing = self_writing
        output = Output(self.reactor, reading, refill, self.ended)
        self.addCleanup(output.close)
        os.write(self.writing, bytes(65536))
        output.drain()
        self.assertGreaterEqual(taken, 1 << 20)
        self.assertTrue(output.open)

    def test_failing_listener(self) -> None:
        """A listener that raises is logged once and the pipe is read on."""
        calls: list[bytes] = []

        def refuse(data: bytes) -> None:
            calls.append(data)
            raise RuntimeError("no")

        reading, writing = os.pipe()
        self.addCleanup(os.close, writing)
        output = Output(self.reactor, reading, refuse, self.ended)
        self.addCleanup(output.close)
        for data in (b"1", b"2"):
            os.write(writing, data)
            self.reactor.turn()
        self.assertEqual(calls, [b"1", b"2"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(select.select([output.fileno()], [], [], 0)[0], [])


def fcntl_set_pipe_size(descriptor: int, size: int) -> None:
    """Enlarge a pipe."""
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size)
