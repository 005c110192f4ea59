"""Drives the machine of a child: one input at a time, its steps carried out, and the one thing that it waits for.

Decides nothing. What is carried out may give further inputs; they wait their turn. The end of what the machine waits
for counts only as long as it still waits for that: what was cut short never speaks for what came after it.
Read `lswap.core.child` for the machine, `lswap.service.children` for what the steps are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.child import ChildInputs, Life, Step, new_child
from lswap.core.events import State
from lswap.core.hooks import Cause
from lswap.errors import LswapError, StartError

__all__ = ["Driver", "Given"]


class Given(msgspec.Struct, frozen=True):
    """What comes with an input."""

    #: What those who wait for readiness are told, should it end their wait.
    error: StartError = StartError("lswap is shutting down")
    #: Why, should it begin the end of the process, or its sleep; None for the reason that there is already.
    cause: Cause | None = None


class Driver:
    """One machine, and its driver."""

    _log = Logger()

    def __init__(
        self,
        name: str,
        changed: Callable[[State], None],
        carry_out: Callable[[Step, Given], None],
        settled: Callable[[], None],
    ) -> None:
        """@param changed: told of the state before, when it is another now, before anything is done about that.

        @param settled: called when no input is left.
        """
        self._name = name
        self._changed = changed
        self._carry_out = carry_out
        self._settled = settled
        self._life = Life()
        #: Its methods are the inputs; hand them to `tell`.
        self.machine: ChildInputs = new_child(self._life)
        self._inputs: deque[tuple[Callable[[], None], Given]] = deque()
        #: Whether an input is being worked off.
        self.busy = False
        self._task: Deferred[None] | None = None

    @property
    def state(self) -> State:
        """The state that others see."""
        return self._life.state

    @property
    def waits(self) -> bool:
        """Whether the machine waits for work that goes on."""
        return self._task is not None

    def tell(self, told: Callable[[], None], given: Given = Given()) -> None:  # noqa: B008 - it is frozen
        """Give one input to the machine and carry out what is due; inputs that come meanwhile wait their turn."""
        self._inputs.append((told, given))
        if self.busy:
            return
        self.busy = True
        try:
            while self._inputs:
                self._work_off(*self._inputs.popleft())
        finally:
            self.busy = False
        self._settled()

    def _work_off(self, told: Callable[[], None], given: Given) -> None:
        before = self._life.state
        told()
        steps = self._life.take()
        if self._life.state is not before:
            self._changed(before)
        for step in steps:
            self._carry_out(step, given)

    def begin(
        self, work: Coroutine[Any, Any, None], done: Callable[[], None], failed: Callable[[Failure], Given]
    ) -> None:
        """Begin what the machine waits for, in place of what went on before. Its end is an input, `done` or `failed`.

        `failed` makes of the failure what comes with that input.
        """
        self.drop()
        task = self._task = Deferred.fromCoroutine(work)

        def finish(told: Callable[[], None]) -> None:
            # Another input may have begun something else while this one waited its turn.
            if self._task is task:
                self._task = None
                told()

        def over(result: object) -> None:
            if self._task is not task:
                if isinstance(result, Failure) and not result.check(CancelledError, LswapError):
                    self._log.failure("{model}: internal error in what was cut short", result, model=self._name)
            elif isinstance(result, Failure):
                self.tell(partial(finish, self.machine.failed), failed(result))
            else:
                self.tell(partial(finish, done))

        task.addBoth(over)
        task.addErrback(lambda failure: self._log.failure("{model}: internal error", failure, model=self._name))

    def drop(self) -> None:
        """End what the machine waits for; nobody is told."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
