"""What is kept of an answer (`lswap.core.kept`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.framing import chunk
from lswap.core.kept import HEAD, TAIL, Kept, Room


class KeptTests(SynchronousTestCase):
    """Whole and cut answers."""

    def test_whole(self) -> None:
        """All of it, without its framing."""
        room = Room(1 << 30)
        for chunked in (False, True):
            kept = Kept(room, 1 << 20, chunked)
            for data in (b"one", b"two"):
                kept.add(b"".join(chunk(data)) if chunked else data)
            if chunked:
                kept.add(b"0\r\n\r\n")
            self.assertEqual((kept.parts(), kept.cut), ((b"onetwo", b""), False))
            kept.release()
        self.assertEqual(room.used, 0)

    def test_cut(self) -> None:
        """Beyond its limit, both ends, exact also where chunks were cut by the pieces; memory stays bounded."""
        body = b"".join(b"%07d\n" % number for number in range(100_000))
        for chunked in (False, True):
            wire = (
                b"".join(b"".join(chunk(body[at : at + 999])) for at in range(0, len(body), 999)) if chunked else body
            )
            room = Room(1 << 30)
            kept = Kept(room, 200_000, chunked)
            for at in range(0, len(wire), 1013):
                kept.add(wire[at : at + 1013])
                self.assertLessEqual(room.used, 201_013)
            self.assertTrue(kept.cut)
            head, tail = kept.parts()
            self.assertEqual(head, body[:HEAD])
            self.assertTrue(body.endswith(tail))
            self.assertGreater(len(tail), TAIL // 2)

    def test_no_room(self) -> None:
        """When all answers together take too much, each keeps its ends only; a short one stays whole."""
        room = Room(TAIL * 2)
        short, long = Kept(room, 1 << 30, False), Kept(room, 1 << 30, False)
        short.add(b"x")
        for _ in range(1000):
            long.add(bytes(1000))
        self.assertTrue(long.cut)
        short.add(b"y")
        self.assertEqual(short.parts(), (b"xy", b""))
        self.assertLess(room.used, TAIL * 2 + 1000)
        short.release()
        long.release()
        self.assertEqual(room.used, 0)

    @given(st.lists(st.binary(max_size=50)), st.booleans())
    def test_broken_framing(self, pieces: list[bytes], chunked: bool) -> None:
        """Whatever comes, it can be read."""
        kept = Kept(Room(1 << 30), 1000, chunked)
        for piece in pieces:
            kept.add(piece)
        kept.parts()
