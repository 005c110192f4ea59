"""The stages of a life in which more than the process itself is at work: `on_will_start`, `on_startup` and so on.

Each stage is a list of work, done in order, one after the other; `lswap.service.children` says when a stage begins and
waits for its end. Work is a coroutine function of the run and the event. At the start of a model it may raise
StartError, which fails the start; at its stop nothing that it raises can hold up the stop. It may be cancelled at any
time, and must then leave nothing behind but what `HookRunner.quiet` waits for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from lswap.core.hooks import Cause, HookEvent
from lswap.core.model import Model
from lswap.errors import StartError
from lswap.net.dial import Origin

__all__ = ["Run", "Stages", "Work"]

_STARTS = (HookEvent.WILL_START, HookEvent.STARTUP)


class Run:
    """One life of a process, from before its spawn until all that comes after its end is over."""

    __slots__ = ("cause", "ending", "environment", "model", "origin", "pid", "words")

    def __init__(self, model: Model, origin: Origin | None, environment: dict[str, str], cause: Cause) -> None:
        #: What the process is, or was, started for; another one of the same process after a reload.
        self.model = model
        #: Where its server listens; None for a proxy URL that leads nowhere.
        self.origin = origin
        #: What is spawned; work at `on_will_start` may add to it.
        self.words = list(model.words)
        self.environment = environment
        #: Why what goes on now goes on: the reason of the start, then of a sleep or wake, then of the end.
        self.cause = cause
        #: Whether its end has begun: from then on the cause stays.
        self.ending = False
        #: The leader of the process group, while there is one.
        self.pid: int | None = None


Work = Callable[[Run, HookEvent], Awaitable[None]]


class Stages:
    """Does the work of one stage at a time."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, work: Mapping[HookEvent, Sequence[Work]]) -> None:
        self._clock = clock
        self._work = work
        self._current: Deferred[None] | None = None
        self._cut = False
        #: Seconds that all stages together may take from here on; None is no limit.
        self._left: float | None = None
        self._began = 0.0
        self._timer: IDelayedCall | None = None

    def begin(self, event: HookEvent, run: Run) -> Deferred[None]:
        """Do the work of this event; fires when it is done. Cancelling ends what goes on.

        Fails, for the two events of a start only, with what the work raised.
        """
        return Deferred.fromCoroutine(self._do(event, run))

    async def _do(self, event: HookEvent, run: Run) -> None:
        self._cut = False
        self._arm()
        try:
            for work in self._work.get(event, ()):
                if not self._cut and self._left != 0:
                    await self._one(work, event, run)
                if self._cut or self._left == 0:
                    if event in _STARTS:
                        raise StartError("lswap is shutting down")
                    return
        finally:
            self._disarm()

    async def _one(self, work: Work, event: HookEvent, run: Run) -> None:
        current = self._current = Deferred.fromCoroutine(_as_coroutine(work, run, event))
        try:
            await current
        except CancelledError:
            if not self._cut:
                raise
        except Exception:
            if event in _STARTS:
                raise
            self._log.failure("{model}: internal error at {event}", model=run.model.id, event=event.value)
        finally:
            self._current = None

    def cut(self) -> None:
        """End the stage that goes on, if there is one: as if its work were done, or at a start as failed."""
        self._cut = True
        if self._current is not None:
            self._current.cancel()

    def limit(self, seconds: float) -> None:
        """From now on all stages together may take so many seconds; what is left then is cut. 0 cuts at once."""
        self._left = seconds if self._left is None else min(seconds, self._left)
        if self._left == 0:
            self.cut()
        elif self._current is not None:
            self._disarm()
            self._arm()

    def _arm(self) -> None:
        if self._left:
            self._began = self._clock.seconds()
            self._timer = self._clock.callLater(self._left, self._run_out)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._left = max(0.0, (self._left or 0.0) - (self._clock.seconds() - self._began))

    def _run_out(self) -> None:
        self._timer = None
        self._left = 0.0
        self.cut()


async def _as_coroutine(work: Work, run: Run, event: HookEvent) -> None:
    await work(run, event)
