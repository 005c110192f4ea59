"""Copies the journal of a systemd user unit, in which a daemon that is such a unit tells what it does.

Touches one process, `journalctl`, which ends with the wrapper, however that ends. Source: utilities reference,
sections 2.1 and 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from lswap.errors import StartError
from lswap.net.guard import Guard
from lswap.net.process import Exit, Group, Processes

__all__ = ["Journal"]

#: Seconds from SIGTERM to SIGKILL.
_GRACE = 1.0


class Journal:
    """The lines of one unit from now on; of none, when `unit` is empty."""

    _log = Logger()

    def __init__(
        self, reactor: Any, unit: str, received: Callable[[bytes], object], processes: Processes | None = None
    ) -> None:
        """@param processes: in place of those of this machine."""
        self._reactor = reactor
        self._processes = processes
        self._unit = unit
        self._received = received
        self._guard: Guard | None = None
        self._group: Group | None = None
        self._ending: Deferred[None] | None = None

    def start(self, environment: Mapping[str, str]) -> None:
        """Begin to copy. That it cannot be done is only a warning."""
        if not self._unit:
            return
        words = ("journalctl", f"--user-unit={self._unit}", "--follow", "--lines=0", "--output=cat", "--no-pager")
        self._guard = Guard(self._reactor)
        self._guard.start()
        try:
            processes = self._processes or Processes(self._reactor, self._guard)
            self._group = processes.spawn(words, environment, self)
        except StartError as problem:
            self._log.warn("no journal: {problem}", problem=str(problem))

    def end(self) -> Deferred[None]:
        """End it; fires when it is gone."""
        self._ending = Deferred()
        if self._group is not None:
            self._group.stop(_GRACE)
        else:
            self.process_gone()
        return self._ending

    # -- what the process tells ------------------------------------------------

    def process_output(self, data: bytes) -> None:
        """Lines of the unit."""
        self._received(data)

    def process_exited(self, exit: Exit) -> None:
        """It has ended."""
        if self._ending is None:
            self._log.warn("journalctl has ended: {words}", words=exit.words)

    def process_gone(self) -> None:
        """Nothing of it is left."""
        self._group = None
        if self._ending is not None:
            guard, self._guard = self._guard, None
            if guard is not None:
                guard.stop()
            self._ending.callback(None)
