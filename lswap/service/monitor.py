"""Samples of system and GPUs, of the last hour: taken in a thread, and only while somebody looks or a model runs.

Decides when to sample; `lswap.net.sensors` does, `lswap.web.performance` shows. Source: HTTP reference, sections 10.4
and 10.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.model import Performance
from lswap.net import sensors
from lswap.net.sensors import Sample

__all__ = ["Monitor", "read"]

#: Seconds of history.
_HISTORY = 3600
#: Seconds that somebody counts as looking after a look; scrapers come once a minute.
_INTEREST = 150.0
#: Seconds that a look waits for a fresh sample.
_PATIENCE = 1.5


def read(first: bool) -> tuple[Sample, list[Sample]]:
    """One sample of everything; blocks."""
    return sensors.system(first), sensors.gpus()


class Monitor:
    """Has the samples."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        in_thread: Callable[..., Deferred[Any]],
        active: Callable[[], bool],
        settings: Performance,
        reader: Callable[[bool], tuple[Sample, list[Sample]]] = read,
    ) -> None:
        """@param active: whether any model has a process."""
        self._clock = clock
        self._in_thread = in_thread
        self._active = active
        self._reader = reader
        self.system: deque[Sample] = deque()
        #: By the sample they belong to, all GPUs of one in one list.
        self.gpus: deque[list[Sample]] = deque()
        self._timer: IDelayedCall | None = None
        self._reading = False
        self._looked = float("-inf")
        self._taken = float("-inf")
        self._waiting: list[Deferred[None]] = []
        self._stopped = False
        self.configure(settings)

    def configure(self, settings: Performance) -> None:
        """Take over the key `performance`."""
        self.disabled = settings.disabled
        self.every = settings.every
        most = max(1, int(_HISTORY / settings.every))
        self.system = deque(self.system, most)
        self.gpus = deque(self.gpus, most)
        if self.disabled:
            self.system.clear()
            self.gpus.clear()
        else:
            self.wake()

    def wake(self) -> None:
        """Something may have begun that is worth watching."""
        if self._wanted() and self._timer is None and not self._reading:
            left = self._taken + self.every - self._clock.seconds()
            if left <= 0:
                self._sample()
            else:
                self._timer = self._clock.callLater(left, self._sample)

    def look(self) -> Deferred[None]:
        """Somebody wants to see the samples; fires when the newest one is fresh, or after a short while."""
        self._looked = self._clock.seconds()
        self.wake()
        if not self._reading or self._clock.seconds() - self._taken >= _PATIENCE:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._waiting.append(waiter)
        enough = self._clock.callLater(_PATIENCE, self._tell, waiter)

        def tidy(result: Any) -> Any:
            if enough.active():
                enough.cancel()
            return result

        return waiter.addBoth(tidy)

    def _tell(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        if not waiter.called:
            waiter.callback(None)

    def stop(self) -> None:
        """No more samples."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wanted(self) -> bool:
        if self.disabled or self._stopped:
            return False
        return self._active() or self._clock.seconds() - self._looked < _INTEREST

    def _sample(self) -> None:
        self._timer = None
        if not self._wanted():
            return
        self._reading = True
        first = self._taken == float("-inf")
        self._taken = self._clock.seconds()
        self._in_thread(self._reader, first).addCallbacks(self._keep, self._failed).addBoth(self._go_on)

    def _keep(self, found: tuple[Sample, list[Sample]]) -> None:
        system, gpus = found
        if not self.disabled:
            self.system.append(system)
            if gpus:
                self.gpus.append(gpus)

    def _failed(self, failure: Failure) -> None:
        self._log.warn("no figures of this machine: {problem}", problem=failure.getErrorMessage())

    def _go_on(self, _: object) -> None:
        self._reading = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)
        if self._wanted() and self._timer is None:
            left = self._taken + self.every - self._clock.seconds()
            self._timer = self._clock.callLater(max(0.0, left), self._sample)
