"""A service that is started, and ended by signals, as a command does it."""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

__all__ = ["Manager", "SignalCase"]

_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Manager:
    """A service manager that keeps what it is told, by a `Supervisor` that sends to it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def __call__(self, data: bytes) -> bool:
        """One datagram."""
        self.heard.append(data)
        return True


class SignalCase(SynchronousTestCase):
    """Signal handlers are put back after each test. `setUp` of a subclass makes `service` and `reactor`."""

    service: Any
    reactor: Any

    def setUp(self) -> None:
        """Note who hears of signals."""
        for number in _NUMBERS:
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.handlers = self.current_handlers()
        self.ended: Deferred[None] | None = None
        super().setUp()

    def current_handlers(self) -> list[Any]:
        """Who hears of signals."""
        return [signal.getsignal(number) for number in _NUMBERS]

    def start(self) -> None:
        """Start it as a command does."""
        self.service.privilegedStartService()
        self.service.startService()
        self.reactor.turn()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """A signal arrives; the first stop ends the service, as the reactor does."""
        stops = self.reactor.stops
        signal.raise_signal(number)
        self.reactor.turn()
        if self.reactor.stops > stops and self.ended is None:
            self.ended = self.service.stopService()
            self.reactor.turn()
