"""What goes on around one model's process right now: which hook, save, restore, sleep or wake, and for how long.

Tells it to the model's log, to lswap's own, and to whoever watches (event stream, figures). Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from lswap.core.hooks import Doing, HookEvent, Outcome
from lswap.service.logs import Logs

__all__ = ["Doings"]


class Doings:
    """One at a time: each `begin` is followed by its `end`."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, logs: Logs, told: Callable[[Doing], None]) -> None:
        self._clock = clock
        self._logs = logs
        self._told = told
        #: What goes on now.
        self.current: Doing | None = None

    def begin(self, model: str, event: HookEvent, action: str) -> None:
        """Something begins."""
        self.current = Doing(model, event.value, action, self._clock.seconds())
        self._tell(self.current, "...")

    def end(self, outcome: Outcome, detail: str = "", *, warned: bool = False) -> None:
        """It is over; `detail` says what went wrong. `warned`: there was a warning of it already, so this is none."""
        begun, self.current = self.current, None
        if begun is None:
            return
        seconds = self._clock.seconds() - begun.since
        done = msgspec.structs.replace(begun, seconds=seconds, outcome=outcome, detail=detail)
        words = f"ok after {seconds:.2f} s" if outcome is Outcome.OK else f"failed after {seconds:.2f} s: {detail}"
        write = self._log.info if outcome is Outcome.OK or warned else self._log.warn
        write(
            "{model}: {event}: {action}: {words}", model=done.model, event=done.event, action=done.action, words=words
        )
        self._tell(done, words)

    def _tell(self, doing: Doing, words: str) -> None:
        self._logs.model_output(doing.model, _line(doing.event, f"{doing.action}: {words}"))
        try:
            self._told(doing)
        except Exception:
            self._log.failure("{model}: {event} could not be told", model=doing.model, event=doing.event)


def _line(event: str, text: str) -> bytes:
    return f"[{event}] {' '.join(text.split())}\n".encode("utf-8", "replace")
