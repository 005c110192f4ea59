"""Puts one model's server to sleep and wakes it; gives it up after three failures in a row.

Every failure is told to the owner (`lswap.service.children`), who stops the process, or starts it anew. Read
`lswap.core.sleep` for the calls. Source: what lswap adds, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import CancelledError
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from lswap.core.hooks import HookEvent, Outcome
from lswap.core.model import HookAction, Model, Sleep
from lswap.core.sleep import IS_SLEEPING, is_sleeping, to_sleep, to_wake
from lswap.errors import LswapError, StartError
from lswap.net.errand import errand
from lswap.net.health import POLL_LIMIT, pause_after
from lswap.service.doings import Doings
from lswap.service.hooks import HookRunner
from lswap.service.stages import Run
from lswap.service.start import healthy
from lswap.service.tools import Tools

__all__ = ["CONFIRM", "ModelSleep", "SleepFailed"]

#: Seconds that vLLM has to say that it sleeps, or does not any more.
CONFIRM = 30.0
#: Failures in a row after which a model is stopped like any other.
_MOST = 3


class SleepFailed(LswapError):
    """It does not sleep, or did not wake; the text says why."""


class ModelSleep:
    """The sleep of one model."""

    _log = Logger()

    def __init__(self, tools: Tools, hooks: HookRunner, doings: Doings, enough: Callable[[], object]) -> None:
        """`enough` is called when it slept for as long as it may (`maxAsleep`)."""
        self._tools = tools
        self._hooks = hooks
        self._doings = doings
        self._enough = enough
        self._failures = 0
        #: Since when it sleeps, if it does.
        self._since: float | None = None
        self._limit: IDelayedCall | None = None
        #: By what the process was put to sleep: it is woken by the other half of that, also after a reload.
        self._by: Sleep | None = None

    def can(self, model: Model) -> bool:
        """Whether the model is put to sleep rather than stopped."""
        return model.sleep is not None and self._failures < _MOST

    def adopt(self, model: Model) -> None:
        """Another configuration is in force: failures are forgotten, and its limit counts."""
        self._failures = 0
        if self._since is not None:
            self._watch(model, self._since)

    def begun(self, model: Model) -> None:
        """It sleeps: from the first such report on, its time runs."""
        if self._since is None:
            self._since = self._tools.reactor.seconds()
            self._watch(model, self._since)

    def over(self) -> None:
        """It does not sleep any more."""
        self._since = None
        self._unwatch()

    def _watch(self, model: Model, since: float) -> None:
        self._unwatch()
        limit = model.sleep.max_asleep if model.sleep is not None else 0.0
        if limit > 0:
            due = max(0.0, since + limit - self._tools.reactor.seconds())
            self._limit = self._tools.reactor.callLater(due, self._slept_enough)

    def _unwatch(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()

    def _slept_enough(self) -> None:
        self._limit = None
        self._enough()

    async def fall_asleep(self, run: Run) -> None:
        """Put it to sleep.

        @raise SleepFailed: it does not sleep, or it is not known.
        """
        self._by = run.model.sleep
        assert self._by is not None  # `can` was asked
        await self._act(run, HookEvent.SLEEP, to_sleep(self._by))
        if self._by.vllm is not None:
            await self._confirm(run, HookEvent.SLEEP, asleep=True)

    async def wake(self, run: Run) -> None:
        """Wake it, and wait until it answers.

        @raise SleepFailed: it does not.
        """
        assert self._by is not None  # it sleeps
        await self._act(run, HookEvent.WAKE, to_wake(self._by, run.model.health_check_timeout))
        if self._by.vllm is not None:
            await self._confirm(run, HookEvent.WAKE, asleep=False)
        try:
            await healthy(self._tools, run)
        except StartError as problem:
            raise SleepFailed(str(problem)) from problem
        self._failures = 0

    def failed(self, model: str, what: HookEvent, why: str) -> None:
        """It failed, whatever the reason."""
        self._failures += 1
        then = "it is stopped instead" if what is HookEvent.SLEEP else "it is started anew"
        self._log.warn("{model}: {what} failed, {then}: {why}", model=model, what=what.value, then=then, why=why)
        if self._failures == _MOST:
            self._log.warn(
                "{model}: sleep is off until the configuration is reloaded: it failed {count} times in a row",
                model=model,
                count=_MOST,
            )

    async def _act(self, run: Run, event: HookEvent, actions: Sequence[HookAction]) -> None:
        for action in actions:
            problem = await self._hooks.carry_out(run, event, action)
            if problem:
                raise SleepFailed(problem)

    async def _confirm(self, run: Run, event: HookEvent, asleep: bool) -> None:
        """Ask until the server says so, for a time."""
        assert run.origin is not None  # its calls have reached it
        url = f"{run.origin}{run.origin.target(IS_SLEEPING.encode()).decode()}"
        clock = self._tools.reactor
        begun = clock.seconds()
        last = "nothing"
        self._doings.begin(run.model.id, event, f"GET {IS_SLEEPING}")
        try:
            while (waited := clock.seconds() - begun) < CONFIRM:
                asked = errand(self._tools.client, "GET", url)
                asked.addTimeout(min(POLL_LIMIT, CONFIRM - waited), clock)
                try:
                    status, answer = await asked
                except CancelledError:
                    raise
                except TookTooLong:
                    last = "no answer in time"
                except Exception as problem:
                    last = str(problem) or type(problem).__name__
                else:
                    if status == 200 and is_sleeping(answer) is asleep:
                        self._doings.end(Outcome.OK)
                        return
                    last = f"status {status}: {answer[:100].decode('utf-8', 'replace')}"
                await deferLater(clock, pause_after(waited), lambda: None)
        except BaseException:
            self._doings.end(Outcome.FAILED, "cut short")
            raise
        why = f"not confirmed within {CONFIRM:g} s: {IS_SLEEPING} last said: {last}"
        self._doings.end(Outcome.TIMEOUT, why)
        raise SleepFailed(why)
