"""KV caches kept across swaps: what all models have in common. One `KvRun` goes with each start of a model.

Knows which files are in use, which restores had no effect, and what was told; asks the disk in a thread, bounded in
time; drops what is too old or too much. Read `lswap.service.kv_run` next: save and restore. Source: what lswap adds,
section 2.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.hooks import HookEvent, Reason
from lswap.core.kv import Effect
from lswap.core.kv_command import is_llama_server, read_command
from lswap.core.model import Config, Model
from lswap.net import kv_files
from lswap.service.doings import Doings
from lswap.service.kv_figures import KvFigures
from lswap.service.kv_run import KvRun, words_of
from lswap.service.stages import Run

__all__ = ["KvCaches", "KvKeeper"]

#: Seconds that the disk may take for what is not the server's work.
_DISK_LIMIT = 10.0
#: Jobs that the disk may be late with before it is not asked any more: each of them holds a thread.
_LATE = 2
#: Seconds between two looks for what is too old.
_SWEEP = 3600.0
#: Warnings of one model that are remembered, so that they are told once.
_REMEMBERED = 50
_OF_A_SLOT = re.compile(r"slot \d+[ :]")
_NOT_ONE = "the command is no llama-server"


class KvCaches:
    """What all models have in common: what is in use, what was found out, and what was told."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        client: HTTPClient,
        in_thread: Callable[..., Deferred[Any]],
        environment: Mapping[str, str],
        now: Callable[[], float] = time.time,
    ) -> None:
        """@param now: seconds since the epoch."""
        self.clock = clock
        self.client = client
        self.now = now
        self.effect = Effect()
        #: By fingerprint: why it is off until lswap ends.
        self.off: dict[str, str] = {}
        #: By fingerprint: bytes for each token of a cache that was too large once.
        self.large: dict[str, float] = {}
        self.figures = KvFigures()
        self._in_thread = in_thread
        self._environment = environment
        self._late = 0
        self._warned: dict[str, set[str]] = {}
        self._in_use: dict[str, int] = {}
        self._config = Config()
        self._timer: IDelayedCall | None = None

    # -- life ------------------------------------------------------------------------

    def start(self, config: Config) -> None:
        """Look for what is too old, now and every hour."""
        self.use(config)
        self._timer = self.clock.callLater(0, self._sweep_all)

    def stop(self) -> None:
        """No more of that."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def use(self, config: Config) -> None:
        """Another configuration is in force; models that are gone are forgotten."""
        self._config = config
        self.figures.retain({model.id for model in config.models.values() if model.kv_cache.persist})
        self._warned = {model: told for model, told in self._warned.items() if model in config.models}

    async def open(self, model: Model, environment: Mapping[str, str], doings: Doings) -> KvRun | None:
        """Prepare a start of this model; None if it wants nothing.

        `environment` is that of its process; `doings` is told what goes on around it.
        """
        if not model.kv_cache.persist:
            return None
        run = KvRun(self, model, doings)
        if is_llama_server(model.words, model.kv_cache.engine):
            await run.open(read_command(model.words, environment))
        else:
            run.switch_off(_NOT_ONE)
        return run

    # -- for the runs ----------------------------------------------------------------

    def folder_of(self, model: Model) -> str:
        """Where the files of a model are, unless its command says otherwise."""
        return model.kv_cache.dir or kv_files.default_folder(self._environment)

    def aside(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Have the disk asked in a thread. Fails with TimeoutError when that takes too long; it then goes on alone."""
        waiter: Deferred[Any] = Deferred()
        if self._late >= _LATE:
            waiter.errback(TookTooLong(_DISK_LIMIT, "Deferred"))
            return waiter

        overdue = False

        def late(failure: Failure) -> Failure:
            nonlocal overdue
            if failure.check(TookTooLong):
                overdue = True
                self._late += 1
            return failure

        def told(result: Any) -> None:
            if not waiter.called:
                waiter.callback(result)
            elif overdue:
                self._late -= 1

        self._in_thread(function, *args).addBoth(told)
        return waiter.addTimeout(_DISK_LIMIT, self.clock).addErrback(late)

    def warn(self, model: str, text: str) -> None:
        """Tell a trouble; the same one again is not worth a warning, until `well`."""
        told = self._warned.setdefault(model, set())
        if text in told:
            self._log.info("{model}: kvCache: {text}", model=model, text=text)
            return
        if len(told) < _REMEMBERED:
            told.add(text)
        self._log.warn("{model}: kvCache: {text}", model=model, text=text)

    def well(self, model: str, slot: int) -> None:
        """A slot was saved or restored: what goes wrong with it now is news, and so is what concerns all."""
        told = self._warned.get(model, set())
        told -= {
            text for text in told if not _OF_A_SLOT.match(text) or text.startswith((f"slot {slot} ", f"slot {slot}:"))
        }

    def hold(self, place: kv_files.Place) -> None:
        """A process uses this place."""
        self._in_use[place.key] = self._in_use.get(place.key, 0) + 1

    def release(self, place: kv_files.Place) -> None:
        """It does not any more."""
        left = self._in_use.pop(place.key, 0) - 1
        if left > 0:
            self._in_use[place.key] = left

    async def sweep(self, folder: str, most: int | None) -> None:
        """Drop what is too old, and what is more than the quota."""
        ages = {model.id: model.kv_cache.max_age for model in self._config.models.values()}
        try:
            dropped = await self.aside(kv_files.sweep, folder, set(self._in_use), ages, most, self.now())
        except (OSError, TookTooLong) as problem:
            self._log.warn("kvCache: {folder} cannot be swept: {why}", folder=folder, why=words_of(problem))
            return
        for name in dropped:
            self._log.info("kvCache: dropped what was kept for {name}, to stay within maxBytes", name=name)

    def _sweep_all(self) -> None:
        self._timer = self.clock.callLater(_SWEEP, self._sweep_all)
        folders = set()
        for model in self._config.models.values():
            if model.kv_cache.persist and is_llama_server(model.words, model.kv_cache.engine):
                own = read_command(model.words, {}).save_path
                folders.add(os.path.abspath(own or self.folder_of(model)))
        for folder in sorted(folders):
            Deferred.fromCoroutine(self.sweep(folder, None)).addErrback(
                lambda failure: self._log.failure("internal error while old KV caches were looked for", failure)
            )


class KvKeeper:
    """Keeps the caches of one model: the work of its stages (`lswap.service.stages`), in the order of a life.

    Work never fails: the model goes on without.
    """

    _log = Logger()

    def __init__(self, caches: KvCaches, doings: Doings) -> None:
        self._caches = caches
        self._doings = doings
        #: What is kept for the process that there is; None for a model that wants nothing of it.
        self.current: KvRun | None = None

    async def open(self, run: Run, event: HookEvent) -> None:
        """Before the spawn, after the hooks, which may have put the model's file there."""
        self.current = None
        try:
            self.current = await self._caches.open(run.model, run.environment, self._doings)
        except CancelledError:
            raise
        except Exception:
            self._log.failure("{model}: kvCache: internal error before a start", model=run.model.id)
        if self.current is not None:
            run.words = list(self.current.words)

    async def restore(self, run: Run, event: HookEvent) -> None:
        """Before the first request, and before the hooks."""
        if self.current is not None and run.origin is not None:
            await self.current.restore(f"{run.origin}{run.origin.target(b'/').decode()}".rstrip("/"))

    async def save(self, run: Run, event: HookEvent) -> None:
        """Before the stop signal, and before the hooks."""
        if self.current is not None:
            await self.current.save(run.model)

    async def close(self, run: Run, event: HookEvent) -> None:
        """After the end, before the hooks."""
        kept, self.current = self.current, None
        if kept is not None:
            await kept.close(crashed=run.cause.reason is Reason.FAILED)
