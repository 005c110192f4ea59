"""Request bodies: in memory or in a file, spliced, written piece by piece, and what becomes of a disk that fails."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IPullProducer
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from lswap.net.body import MEMORY_LIMIT, Body, BodySender, Spool

PIECE = 65536


class Disk(io.BytesIO):
    """A file that takes and gives little at a time, and can fail."""

    def __init__(self, step: int = 1000, room: int = 1 << 30) -> None:
        super().__init__()
        self.step = step
        self.room = room
        self.broken = False

    def write(self, data: Any) -> int:
        """At most `step` bytes, while there is room."""
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        written = super().write(bytes(data[: min(self.step, self.room)]))
        self.room -= written
        return written

    def read(self, size: int | None = -1) -> bytes:
        """At most `step` bytes."""
        if self.broken:
            raise OSError(5, "Input/output error")
        return super().read(min(self.step, size if size is not None and size >= 0 else self.step))


class SpoolTestCase(SynchronousTestCase):
    """Spools, and a disk to put them on."""

    def disk(self, **how: int) -> Disk:
        """The disk that the next large body goes to."""
        disk = Disk(**how)
        self.patch(tempfile, "TemporaryFile", lambda **options: disk)
        return disk

    def spool(self, *pieces: bytes) -> Spool:
        """A spool with these bytes."""
        spool = Spool()
        self.addCleanup(spool.close)
        for piece in pieces:
            spool.write(piece)
        return spool


LARGE = bytes(range(256)) * 5000


class SpoolTests(SpoolTestCase):
    """`Spool`."""

    def test_small_bodies_stay_in_memory(self) -> None:
        """Up to the limit no file is made."""
        self.patch(tempfile, "TemporaryFile", None)
        spool = self.spool(b"ab", b"", b"cde" * 99, b"x" * (MEMORY_LIMIT - 299))
        self.assertEqual((spool.in_memory, spool.length), (True, MEMORY_LIMIT))
        self.assertEqual(spool.whole(), b"ab" + b"cde" * 99 + b"x" * (MEMORY_LIMIT - 299))
        self.assertEqual((spool.read(1, 3), spool.read(MEMORY_LIMIT - 1, 9)), (b"bcd", b"x"))
        self.assertEqual(self.spool().whole(), b"")

    def test_large_bodies_go_to_a_file_without_a_name(self) -> None:
        """Beyond the limit the body is in a file that no directory lists."""
        folder = self.mktemp()
        os.mkdir(folder)
        self.patch(tempfile, "tempdir", folder)
        spool = self.spool(LARGE[:1000], LARGE[1000:], b"end")
        self.assertEqual((spool.in_memory, spool.length), (False, len(LARGE) + 3))
        self.assertEqual(os.listdir(folder), [])
        self.assertEqual(b"".join(spool.pieces()), LARGE + b"end")
        self.assertEqual(max(map(len, spool.pieces())), PIECE)
        self.assertEqual(spool.read(len(LARGE) - 1, 99), LARGE[-1:] + b"end")

    def test_short_reads_and_writes(self) -> None:
        """A disk that takes and gives little at a time loses nothing."""
        self.disk()
        spool = self.spool(LARGE, b"end")
        self.assertEqual(spool.read(5, 300_000), (LARGE + b"end")[5:300_005])
        self.assertEqual(b"".join(spool.pieces()), LARGE + b"end")

    def test_full_disk(self) -> None:
        """A disk without room is an error of the write that needs it, at the limit or later."""
        self.disk(room=5000)
        spool = self.spool(b"x")
        with self.assertRaises(OSError):
            spool.write(LARGE)
        self.disk(room=len(LARGE) + 10)
        spool = self.spool(LARGE)
        with self.assertRaises(OSError):
            spool.write(b"y" * 11)
        spool.close()

    def test_disk_that_takes_nothing(self) -> None:
        """A disk that takes nothing, without an error, is one all the same: there is no endless loop."""
        self.disk(step=0)
        with self.assertRaises(OSError):
            self.spool(LARGE)

    def test_no_folder_for_files(self) -> None:
        """A file that cannot be made is an error of the write, too."""
        self.patch(tempfile, "tempdir", "/nonexistent")
        with self.assertRaises(OSError):
            self.spool(LARGE)

    def test_file_that_became_shorter(self) -> None:
        """Less than there should be is an error, never a shorter body."""
        disk = self.disk()
        spool = self.spool(LARGE)
        disk.truncate(70_000)
        with self.assertRaises(OSError):
            list(spool.pieces())

    def test_closed(self) -> None:
        """A closed spool gives nothing and can be closed again; its file is closed, too."""
        disk = self.disk()
        for spool in (self.spool(b"abc"), self.spool(LARGE)):
            spool.close()
            spool.close()
            with self.assertRaises(OSError):
                spool.read(0, 1)
            with self.assertRaises(OSError):
                list(Body(spool).pieces())
        self.assertTrue(disk.closed)


class BodyTests(SpoolTestCase):
    """`Body`."""

    def test_whole_spool(self) -> None:
        """Without parts the body is what was received, and can be sent again."""
        for pieces in ([b"abc", b"def"], [LARGE]):
            body = Body(self.spool(*pieces))
            self.assertEqual(body.length, len(b"".join(pieces)))
            for _ in range(2):
                self.assertEqual(b"".join(body.pieces()), b"".join(pieces))
        self.assertTrue(Body(self.spool(b"abc")).in_memory)
        self.assertFalse(Body(self.spool(LARGE)).in_memory)
        self.assertEqual(list(Body(self.spool()).pieces()), [])

    def test_pieces_of_a_file_are_small(self) -> None:
        """Of a file at most 64 KiB come at a time; in memory there is no need for it."""
        body = Body(self.spool(LARGE), [(0, 100_000), b"new" * 9, (100_005, len(LARGE))])
        pieces = list(body.pieces())
        self.assertEqual(b"".join(pieces), LARGE[:100_000] + b"new" * 9 + LARGE[100_005:])
        self.assertEqual(max(map(len, pieces)), PIECE)

    @given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)) | st.binary(max_size=3), max_size=6))
    def test_spliced(self, parts: list[bytes | tuple[int, int]]) -> None:
        """Parts come in order, and none of the pieces is empty, in memory and in a file."""
        content = bytes(range(97, 117))
        parts = [part if isinstance(part, bytes) else (min(part), max(part)) for part in parts]
        expected = b"".join(part if isinstance(part, bytes) else content[slice(*part)] for part in parts)
        for spool in (Spool(), Spool()):
            spool.write(content)
            body = Body(spool, parts)
            self.assertEqual(body.length, len(expected))
            pieces = list(body.pieces())
            self.assertEqual((b"".join(pieces), b"" in pieces), (expected, False))
            spool.write(LARGE)  # the second round is in a file
            self.assertEqual(b"".join(Body(spool, parts).pieces()), expected)
            spool.close()


class SenderTests(SpoolTestCase):
    """`BodySender`, asked by a transport."""

    def sender(self, body: Body) -> tuple[BodySender, list[Any]]:
        """A sender, and what comes of it."""
        events: list[Any] = []
        sender = BodySender(body, events.append, lambda: events.append("sent"), events.append)
        verifyObject(IPullProducer, sender)
        return sender, events

    def test_one_piece_each_time(self) -> None:
        """Each time one piece is written; asked once more after the last, it says so, once."""
        sender, events = self.sender(Body(self.spool(LARGE)))
        rounds = -(-len(LARGE) // PIECE)
        for number in range(rounds):
            sender.resumeProducing()
            self.assertEqual(len(events), number + 1)
        self.assertEqual(b"".join(events), LARGE)
        for _ in range(3):
            sender.resumeProducing()
        self.assertEqual(events[rounds:], ["sent"])

    def test_unreadable(self) -> None:
        """A piece that cannot be read ends it, once."""
        disk = self.disk(step=PIECE)
        sender, events = self.sender(Body(self.spool(LARGE)))
        sender.resumeProducing()
        disk.broken = True
        for _ in range(3):
            sender.resumeProducing()
        self.assertEqual(len(events), 2)
        self.assertIsInstance(events[1], OSError)

    def test_stopped(self) -> None:
        """After the transport's end nothing comes."""
        sender, events = self.sender(Body(self.spool(b"abc")))
        sender.stopProducing()
        sender.stopProducing()
        sender.resumeProducing()
        self.assertEqual(events, [])
