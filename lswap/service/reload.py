"""Reloads the configuration without a restart: one reload at a time, the newest content wins.

Reads and checks in a thread, then hands the new configuration over in one step. What is refused changes nothing.
`lswap.core.difference` says what a change means for running models, `lswap.app` has the parts that take it over.
Source: what lswap adds, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from lswap.core.config import Loaded, Problem
from lswap.core.difference import Difference
from lswap.core.model import Config

__all__ = ["Outcome", "Reloader"]

#: Seconds until a file that looks half-written is read once more.
_SECOND_LOOK = 1.0


class Outcome(msgspec.Struct, frozen=True):
    """What became of a reload: the difference that is in force now, or the problems that prevent it."""

    difference: Difference | None
    problems: tuple[Problem, ...] = ()


_ENDING = Outcome(None, (Problem("", 0, 0, "", "lswap is shutting down", ""),))


class Reloader:
    """Owns the reload under way, and those who wait for the next one."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        load: Callable[[], Loaded],
        take_over: Callable[[Config], Difference],
        told: Callable[[Outcome | None], object] = lambda outcome: None,
    ) -> None:
        """@param load: reads everything, in a thread.  @param take_over: makes a configuration the one in force.

        @param told: called with None when a reload begins, and then with what became of it.
        """
        self._reactor = reactor
        self._load = load
        self._take_over = take_over
        self._told = told
        self._running = False
        self._stopped = False
        #: Waiters of the reload that begins next.
        self._next: list[Deferred[Outcome]] = []
        self._patient = True

    def reload(self, patient: bool = False) -> Deferred[Outcome]:
        """Load what the sources say after this call; fires with what became of it.

        `patient`: a source that does not parse is read again after a second before it is reported, as it may be
        half-written. Requests that come during a reload share the one after it.
        """
        waiter: Deferred[Outcome] = Deferred()
        self._next.append(waiter)
        self._patient = patient if len(self._next) == 1 else self._patient and patient
        if self._stopped:
            self._tell_end()
        elif not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())
        return waiter

    def stop(self) -> None:
        """Take nothing over any more. Who waits for the next reload is told so; one under way ends by itself."""
        self._stopped = True
        self._tell_end()

    def _tell_end(self) -> None:
        waiters, self._next = self._next, []
        for waiter in waiters:
            waiter.callback(_ENDING)

    async def _run(self) -> None:
        while self._next:
            waiters, self._next = self._next, []
            patient = self._patient
            self._told(None)
            try:
                outcome = await self._once(patient)
            except Exception as problem:
                self._log.failure("internal error in a reload")
                outcome = Outcome(None, (Problem("", 0, 0, "", f"internal error: {problem}", ""),))
            self._told(outcome)
            for waiter in waiters:
                waiter.callback(outcome)
        self._running = False

    async def _once(self, patient: bool) -> Outcome:
        self._log.info("reloading configuration")
        loaded = await self._read()
        if loaded.config is None and patient and not self._stopped:
            await deferLater(self._reactor, _SECOND_LOOK, lambda: None)
            loaded = await self._read()
        if self._stopped:
            return _ENDING
        if loaded.config is None:
            for problem in loaded.problems:
                self._log.warn("failed to reload config: {problem}", problem=str(problem))
            return Outcome(None, loaded.problems)
        for warning in loaded.warnings:
            self._log.warn("{problem}", problem=str(warning))
        made = self._take_over(loaded.config)
        self._log.info(
            "configuration reloaded: {changed} changed, {added} added, {removed} removed, {kept} kept",
            changed=len(made.changed),
            added=len(made.added),
            removed=len(made.removed),
            kept=len(made.kept),
        )
        return Outcome(made)

    def _read(self) -> Deferred[Loaded]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._load)
