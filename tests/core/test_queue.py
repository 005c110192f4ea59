"""The order of waiting, against the same said in the simplest way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.board import ModelView, Request
from lswap.core.queue import Queue

_MODELS = tuple([ModelView(name, None) for name in "abc"])
#: Model and priority of each that comes; which of them leave again.
_requests = st.lists(st.tuples(st.sampled_from(_MODELS), st.integers(-2, 2)), max_size=30)


def _filled(coming: list[tuple[ModelView, int]], leaving: set[int]) -> tuple[Queue, list[Request]]:
    """A queue, and its requests in the order in which they should stand."""
    queue = Queue()
    requests = [Request(ticket, model, priority, 0.0) for ticket, (model, priority) in enumerate(coming)]
    for request in requests:
        queue.add(request)
    for request in requests:
        if request.ticket in leaving:
            queue.remove(request)
    staying = [request for request in requests if request.ticket not in leaving]
    return queue, sorted(staying, key=lambda request: -request.priority)


class QueueTests(SynchronousTestCase):
    """Higher priority first, then who came first."""

    @given(coming=_requests, leaving=st.sets(st.integers(0, 29)))
    def test_order_and_places(self, coming: list[tuple[ModelView, int]], leaving: set[int]) -> None:
        """Whoever came and left; the places count from 1, and who is not in it has none."""
        queue, expected = _filled(coming, leaving)
        self.assertEqual(list(queue), expected)
        self.assertEqual([queue.place(request) for request in queue], list(range(1, len(expected) + 1)))
        self.assertEqual(queue.place(Request(99, _MODELS[0], 0, 0.0)), 0)

    @given(coming=_requests, leaving=st.sets(st.integers(0, 29)), data=st.data())
    def test_walk(self, coming: list[tuple[ModelView, int]], leaving: set[int], data: st.DataObject) -> None:
        """It shows all in order, but for those of a model of which an earlier one stays, and may be changed by it."""
        queue, expected = _filled(coming, leaving)
        stuck: set[ModelView] = set()
        kept: list[Request] = []
        walk = queue.walk()
        for request in expected:
            if request.model in stuck:
                kept.append(request)
                continue
            self.assertIs(next(walk), request)
            if data.draw(st.booleans()):
                queue.remove(request)
            else:
                stuck.add(request.model)
                kept.append(request)
        self.assertEqual(list(walk), [])
        self.assertEqual(list(queue), kept)
