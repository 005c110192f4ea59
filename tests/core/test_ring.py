"""The ring that keeps the last bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.ring import Ring


class RingTests(SynchronousTestCase):
    """What a ring keeps, and what it forgets."""

    def test_new_ring_is_empty(self) -> None:
        """A ring begins with nothing, and counts from nothing."""
        ring = Ring(10)
        self.assertEqual((ring.content(), len(ring), ring.total), (b"", 0, 0))

    def test_keeps_everything_that_fits(self) -> None:
        """Up to its capacity a ring loses nothing."""
        ring = Ring(10)
        ring.append(b"hello")
        ring.append(b"world")
        self.assertEqual(ring.content(), b"helloworld")

    def test_oldest_bytes_leave_first(self) -> None:
        """Past its capacity a ring drops from the front, byte by byte."""
        ring = Ring(10)
        for piece in (b"hello", b"world", b"12345"):
            ring.append(piece)
        self.assertEqual(ring.content(), b"world12345")
        ring.append(b"x")
        self.assertEqual(ring.content(), b"orld12345x")

    def test_piece_larger_than_the_ring(self) -> None:
        """Of a piece that does not fit, the end is kept and all before it is gone."""
        ring = Ring(10)
        ring.append(b"before")
        ring.append(b"0123456789abcdef")
        self.assertEqual(ring.content(), b"6789abcdef")

    def test_total_counts_what_is_gone_too(self) -> None:
        """The total is of all bytes ever appended."""
        ring = Ring(4)
        ring.append(b"abc")
        ring.append(b"")
        ring.append(b"defghij")
        self.assertEqual((ring.total, len(ring)), (10, 4))

    def test_cleared_ring_works_on(self) -> None:
        """Clearing forgets the content, not the total."""
        ring = Ring(4)
        ring.append(b"abc")
        ring.clear()
        self.assertEqual(ring.content(), b"")
        ring.append(b"de")
        self.assertEqual((ring.content(), ring.total), (b"de", 5))

    def test_content_is_a_copy(self) -> None:
        """What was taken out does not change with the ring."""
        ring = Ring(4)
        ring.append(b"abcd")
        content = ring.content()
        ring.append(b"ef")
        self.assertEqual(content, b"abcd")

    def test_capacity_must_be_positive(self) -> None:
        """A ring that could hold nothing is a mistake."""
        self.assertRaises(ValueError, Ring, 0)

    @given(st.integers(1, 20), st.lists(st.binary(max_size=30)))
    def test_content_is_the_end_of_all(self, capacity: int, pieces: list[bytes]) -> None:
        """After every append, the content is the last `capacity` bytes of everything."""
        ring = Ring(capacity)
        everything = b""
        for piece in pieces:
            ring.append(piece)
            everything += piece
            self.assertEqual(ring.content(), everything[-capacity:])
            self.assertEqual((len(ring), ring.total), (min(len(everything), capacity), len(everything)))

    def test_memory_stays_near_the_capacity(self) -> None:
        """However much passes through, a ring does not grow."""
        ring = Ring(10_000)
        most = 0
        for _ in range(2_000):
            ring.append(b"x" * 97)
            most = max(most, ring._held.__sizeof__())
        self.assertLess(most, 12_500)
