"""Threads for what may never come back (`lswap.net.apart`)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorFromThreads
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from lswap.net.apart import run_apart


@implementer(IReactorFromThreads)
class Calls:
    """Keeps the calls of other threads until the test runs them."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """See `IReactorFromThreads`."""
        self.waiting.put(lambda: callable(*args, **kwargs))

    def next(self) -> None:
        """Run the next one, once it is there."""
        self.waiting.get(timeout=30)()


class ApartTests(SynchronousTestCase):
    """What becomes of a call."""

    def test_result(self) -> None:
        """It comes from another thread, which does not hold up the end of the program, to the reactor's."""
        calls = Calls()
        answer = run_apart(calls, lambda one, two: (one + two, threading.current_thread()), 1, two=2)
        self.assertNoResult(answer)
        calls.next()
        total, thread = self.successResultOf(answer)
        self.assertEqual(total, 3)
        self.assertIsNot(thread, threading.current_thread())
        self.assertTrue(thread.daemon)

    def test_failure(self) -> None:
        """An error comes as one."""
        calls = Calls()
        answer = run_apart(calls, int, "x")
        calls.next()
        self.failureResultOf(answer, ValueError)

    def test_nobody_waits_any_more(self) -> None:
        """The result of a call that was cancelled goes nowhere."""
        calls = Calls()
        answer = run_apart(calls, int, "1")
        answer.addErrback(lambda failure: None)
        answer.cancel()
        calls.next()
