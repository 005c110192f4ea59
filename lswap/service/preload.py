"""Loads the models of `hooks.on_startup.preload`: one after the other, without a request of their own.

A preload is done when its model is ready. It never evicts what an earlier one of the same list loaded: the later one is
left out, with a warning. Runs at the start and after each reload; read `lswap.service.router` next.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.events import State
from lswap.core.hooks import Reason
from lswap.service.fleet import Fleet
from lswap.service.router import Refused

__all__ = ["Preloader"]


class Preloader:
    """Owns the preload under way."""

    _log = Logger()

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Load what the configuration in force names and what does not run; an earlier round goes no further."""
        self.stop()
        names = self._fleet.config.preload
        if names:
            self._running = Deferred.fromCoroutine(self._load(names))
            self._running.addErrback(self._failed)

    def stop(self) -> None:
        """Load no more. A load under way goes on as any that nobody waits for."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    async def _load(self, names: Sequence[str]) -> None:
        loaded: set[str] = set()
        for name in dict.fromkeys(names):
            child = self._fleet.children.get(name)
            if child is None:
                continue
            if child.state is not State.READY or child.outdated:
                victims = [victim for victim, _ in self._fleet.router.plan(name).unload if victim in loaded]
                if victims:
                    self._log.warn(
                        "{model} is not preloaded: it would evict {victims}, which was preloaded before it",
                        model=name,
                        victims=", ".join(victims),
                    )
                    continue
                try:
                    lease = await self._fleet.router.acquire(name, reason=Reason.PRELOAD)
                except Refused as refused:
                    self._log.warn("{model} could not be preloaded: {why}", model=name, why=str(refused))
                    continue
                lease.release()
                self._log.info("{model} is preloaded", model=name)
            loaded.add(name)
        self._running = None

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("internal error while preloading", failure)
