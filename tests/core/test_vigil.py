"""Whether a machine is awake (`lswap.core.vigil`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.vigil import HEARTBEAT, Vigil


class VigilTests(SynchronousTestCase):
    """Answers and misses."""

    def test_begins_asleep(self) -> None:
        """Nothing is known at first, and the first answer is news."""
        vigil = Vigil()
        self.assertFalse(vigil.ready)
        self.assertTrue(vigil.answered())
        self.assertFalse(vigil.answered())
        self.assertTrue(vigil.ready)

    def test_one_miss_is_bad_luck(self) -> None:
        """An awake machine is asleep after two misses in a row; an answer between them makes good for the first."""
        vigil = Vigil()
        vigil.answered()
        self.assertFalse(vigil.missed())
        vigil.answered()
        self.assertFalse(vigil.missed())
        self.assertEqual((vigil.ready, vigil.failures), (True, 0))
        self.assertTrue(vigil.missed())
        self.assertEqual((vigil.ready, vigil.failures), (False, 1))
        self.assertFalse(vigil.missed())
        self.assertEqual(vigil.failures, 2)

    def test_one_miss_with_another_sign(self) -> None:
        """The end of its event stream and one miss are enough."""
        vigil = Vigil()
        vigil.answered()
        self.assertTrue(vigil.missed(certain=True))
        self.assertEqual((vigil.ready, vigil.failures), (False, 1))

    def test_failures_begin_anew(self) -> None:
        """An answer sets the count back."""
        vigil = Vigil()
        for _ in range(3):
            vigil.missed()
        self.assertEqual(vigil.failures, 3)
        vigil.answered()
        self.assertEqual(vigil.failures, 0)

    def test_a_frozen_machine_is_noticed_within_10_s(self) -> None:
        """Two looks that take their whole time, with the pauses before them."""
        vigil = Vigil()
        vigil.answered()
        limit = 3.0
        first = vigil.pause(False)
        vigil.missed()
        self.assertEqual(first, HEARTBEAT)
        self.assertLess(first + limit + vigil.pause(False) + limit, 10)

    def test_pauses(self) -> None:
        """Rarer and rarer while nobody waits, up to 10 s; often while somebody does, and from there again."""
        vigil = Vigil()
        pauses = []
        for _ in range(10):
            vigil.missed()
            pauses.append(vigil.pause(False))
        self.assertEqual(pauses, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10])
        vigil.missed()
        self.assertEqual(vigil.pause(True), 0.25)
        vigil.missed()
        self.assertEqual(vigil.pause(False), 0.1)
        for _ in range(2000):
            vigil.missed()
            vigil.pause(False)
        self.assertEqual(vigil.pause(False), 10)
