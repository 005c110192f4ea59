"""Signals: a polite stop, a second one that means at once, and a hangup that means reload.

Touches the process-wide signal handlers; decides nothing about what a stop is. The reactor's own handlers would let
`twistd` end with the signal's status, die of a hangup and ignore a second wish to stop.
Read `lswap.app` next: it says what follows each signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

__all__ = ["Reactor", "install"]


class Reactor(Protocol):
    """The part of a reactor that is needed here."""

    def callFromThread(self, callable: Callable[..., object], *args: object) -> object:
        """Call in the reactor's thread, in its next turn; safe inside a signal handler."""

    def callWhenRunning(self, callable: Callable[..., object], *args: object) -> object:
        """Call once the reactor runs."""


def install(
    reactor: Reactor,
    on_stop: Callable[[], object],
    on_stop_again: Callable[[], object],
    on_hangup: Callable[[], object],
    on_interrupt: Callable[[], object] | None = None,
) -> Callable[[], None]:
    """Call `on_stop` at the first SIGTERM or SIGINT, `on_stop_again` at each later one, `on_hangup` at each SIGHUP.

    With `on_interrupt` that is called instead, when the first one is SIGINT.

    The callables run in the reactor's thread, never inside the signal handler. To be called from the main thread, after
    daemonising and before the port is open, so that no client can see a server that would die of a hangup.
    Returns a callable that puts back what was there before.
    """
    stopping = False

    def stop(first: Callable[[], object]) -> None:
        nonlocal stopping
        if stopping:
            on_stop_again()
        else:
            stopping = True
            first()

    def handler(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            reactor.callFromThread(on_hangup)
        else:
            reactor.callFromThread(stop, on_interrupt or on_stop if number == signal.SIGINT else on_stop)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    installed = True

    def put() -> None:
        if installed:
            for number in numbers:
                signal.signal(number, handler)

    def remove() -> None:
        nonlocal installed
        installed = False
        for number, previous in before:
            # None stands for a handler that Python did not set; it cannot be put back.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)

    put()
    # Starting to run, the reactor sets handlers of its own.
    reactor.callWhenRunning(put)
    return remove
