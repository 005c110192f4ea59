"""When a client that was turned away may come back: what the router has measured (`lswap.service.router`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Refusal
from lswap.service.router import Refused
from tests.memory import MemoryLswap

CONFIG = """
limits: {queue: 1}
models:
  a: {cmd: "server --port ${PORT}"}
  b: {cmd: "server --port ${PORT}"}
"""


class RetryAfterTests(SynchronousTestCase):
    """One model at a time, and room for one that waits."""

    def setUp(self) -> None:
        """A model that is busy."""
        self.lswap = MemoryLswap(CONFIG)
        first = self.lswap.router.acquire("a")
        self.lswap.turn()
        self.busy = self.successResultOf(first)

    def refused(self, model: str) -> Refused:
        """One more request for this model, when the queue is full."""
        asked = self.lswap.router.acquire(model)
        self.lswap.turn()
        refused = self.failureResultOf(asked, Refused).value
        assert isinstance(refused, Refused)
        return refused

    def test_the_queue_is_told(self) -> None:
        """The error says how many wait, and when to come back."""
        waiting = self.lswap.router.acquire("b")
        refused = self.refused("b")
        self.assertNoResult(waiting)
        self.assertIs(refused.reason, Refusal.QUEUE_FULL)
        self.assertIn("1 are waiting", str(refused))
        self.assertGreaterEqual(refused.retry_after, 1)

    def test_long_waits_make_for_a_long_pause(self) -> None:
        """After requests that waited for long, clients are sent away for longer than before."""
        waiting = self.lswap.router.acquire("b")
        before = self.refused("b").retry_after
        self.lswap.turn(200)
        self.busy.release()
        self.lswap.turn()
        lease = self.successResultOf(waiting)
        another = self.lswap.router.acquire("a")
        after = self.refused("a").retry_after
        self.assertNoResult(another)
        self.assertGreater(after, before)
        self.assertLessEqual(after, 120)
        lease.release()
