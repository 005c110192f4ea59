"""The logs: lswap's own, each model's, all models', and the combined one that standard output shows as well.

Combines the rings and the line format of `core` with their readers and with `twisted.logger`. Decides what goes where.
One reactor thread writes and reads all of it; log events from other threads are handed over to that one.
Read `lswap.core.log_format` for the form of a line, `lswap.web.live` for who reads along.
Source: configuration reference, section 7.2; HTTP reference, sections 10.3 and 16.
"""

from __future__ import annotations

import string
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, globalLogPublisher
from zope.interface import implementer

from lswap.core.log_format import Level, LineFormat, level_of
from lswap.core.ring import Ring
from lswap.net.stdout import standard_output

__all__ = ["HISTORY", "Log", "Logs", "logs", "observer_factory"]

#: Bytes that each log keeps.
HISTORY = 100 * 1024
#: Lines from other threads that may wait for the reactor; the oldest go first.
_LATE_LINES = 256
#: Pieces that readers may cause to be written to a log while it serves them one piece, before they go without the rest.
_ECHOES = 100

_LEVELS = {
    LogLevel.debug: Level.DEBUG,
    LogLevel.info: Level.INFO,
    LogLevel.warn: Level.WARN,
    LogLevel.error: Level.ERROR,
    LogLevel.critical: Level.ERROR,
}

Reader = Callable[[bytes], None]


class Log:
    """One source: its last `HISTORY` bytes, and readers that get each piece as it is written.

    A reader sees the pieces in the order of their writing, each once, also those that a reader causes to be written.
    Taking the `history` and subscribing in one turn misses nothing and doubles nothing.
    """

    _log = Logger()

    def __init__(self, name: str = "") -> None:
        """@param name: for people, in messages about this log."""
        self.name = name
        self._ring = Ring(HISTORY)
        self._readers: dict[object, Reader] = {}
        #: Pieces not yet handed out, each with those who were there when it was written.
        self._pieces: deque[tuple[bytes, tuple[object, ...]]] = deque()
        self._serving = False

    def write(self, data: bytes) -> None:
        """Keep the data and hand it to every reader, in this turn."""
        self._ring.append(data)
        if not self._readers or not data:
            return
        self._pieces.append((data, tuple(self._readers)))
        if self._serving:
            return
        self._serving = True
        try:
            # Bounded, for a reader that writes about each piece to the log that it reads would never come to an end.
            for _ in range(_ECHOES):
                if not self._pieces:
                    break
                self._serve(*self._pieces.popleft())
        finally:
            self._pieces.clear()
            self._serving = False

    def _serve(self, data: bytes, keys: tuple[object, ...]) -> None:
        for key in keys:
            # An earlier reader may have sent this one away.
            reader = self._readers.get(key)
            if reader is None:
                continue
            try:
                reader(data)
            except Exception:
                self._readers.pop(key, None)
                self._log.failure("a reader of the log {name} failed and gets no more of it", name=self.name)

    def history(self) -> bytes:
        """The last bytes that were written, at most `HISTORY`."""
        return self._ring.content()

    def subscribe(self, reader: Reader) -> Callable[[], None]:
        """Hand every later piece to `reader`, which must not block. Returns what ends that; it may be called twice.

        A reader that raises gets no more; the writer does not notice.
        """
        key = object()
        self._readers[key] = reader

        def unsubscribe() -> None:
            self._readers.pop(key, None)

        return unsubscribe

    @property
    def watched(self) -> bool:
        """Whether anybody reads along."""
        return bool(self._readers)


class Logs:
    """All logs of the process.

    `proxy` has lswap's own lines, `upstream` the output of all models as it came, `combined` whichever of the two the
    mode sends to standard output.
    """

    _log = Logger()

    def __init__(self, stdout: Callable[[bytes], None], now: Callable[[], float] = time.time) -> None:
        """To be made in the thread where the reactor runs.

        @param stdout: takes what standard output shows; must not block.

        @param now: seconds since 1970.
        """
        self.proxy = Log("proxy")
        self.upstream = Log("upstream")
        self.combined = Log("combined")
        #: For `globalLogPublisher`; there is one, so that adding it twice has no effect.
        self.observer: ILogObserver = _Observer(self)
        self._models: dict[str, Log] = {}
        self._stdout = stdout
        self._now = now
        #: Whether `twistd` uses our observer as its own, and whether `attach` added it.
        self._in_use = self._attached = False
        self._thread = threading.get_ident()
        self._from_thread: Callable[[Callable[[], None]], object] | None = None
        self._late: deque[bytes] = deque(maxlen=_LATE_LINES)
        self.configure("info", "proxy", "")

    def configure(self, level: str, mode: str, time_format: str, line_format: str = "text") -> None:
        """Take over `logLevel`, `logToStdout`, `logTimeFormat` and `logFormat`, from the next line on.

        May be called as often as needed. Unknown words act as `info`, `proxy`, no time and `text`.
        """
        self._threshold = level_of(level)
        self._own_shown = mode not in ("upstream", "none")
        self._models_shown = mode in ("upstream", "both")
        self._format = LineFormat(time_format, line_format)

    def use_reactor(self, reactor: IReactorFromThreads) -> None:
        """Hand lines from other threads over at once; without it they wait for the next line of this thread.

        To be called in the thread where the reactor runs, after daemonising.
        """
        self._thread = threading.get_ident()
        self._from_thread = reactor.callFromThread

    @property
    def level(self) -> Level:
        """Own lines below this one are dropped; for callers whose message is costly to make."""
        return self._threshold

    def model(self, model_id: str) -> Log:
        """The log of one model; made on first use, and kept over restarts of the model."""
        found = self._models.get(model_id)
        if found is None:
            found = self._models[model_id] = Log(f"model {model_id}")
        return found

    def retain(self, model_ids: Collection[str]) -> None:
        """Forget the logs of all other models that nobody reads; for a reload, so that old names do not pile up."""
        self._models = {name: log for name, log in self._models.items() if name in model_ids or log.watched}

    def model_output(self, model_id: str, data: bytes) -> None:
        """Output of a model, unchanged: into its log, that of all models, and what the mode says."""
        self.model(model_id).write(data)
        self.upstream.write(data)
        if self._models_shown:
            self._show(data)

    def observe(self, event: LogEvent) -> None:
        """An event of `twisted.logger`: a line of lswap's own, if its level is wanted. Any thread; never raises."""
        level = _LEVELS.get(event.get("log_level"), Level.INFO)
        if level < self._threshold:
            return
        if level < Level.WARN and _is_chatter(event):
            level = Level.DEBUG
            if level < self._threshold:
                return
        message, detail = _texts(event)
        if not message and not detail:
            return
        line = self._format.line(level, message, event.get("log_time", 0.0), detail)
        if threading.get_ident() == self._thread:
            self._write_late()
            self._write_own(line)
        else:
            self._late.append(line)
            if self._from_thread is not None:
                self._from_thread(self._write_late)

    def info(self, message: str) -> None:
        """A ready-made line at info, at a quarter of the price of `twisted.logger`: for the line of each request.

        In the reactor's thread only. When `twistd` logs elsewhere, it goes there too.
        """
        if self._threshold > Level.INFO:
            return
        if self._in_use:
            self._write_own(self._format.line(Level.INFO, message, self._now()))
        else:
            # Not a field named `message`: an observer of the old kind (syslog) would empty it.
            self._log.info("{line}", line=message)

    def attach(self) -> None:
        """See the events also when `twistd` was given a log observer of its own (`--logfile`, `--logger`, `--syslog`).

        Has an effect only if `observer_factory` is not in use. Standard output stays silent then, also about models:
        `twistd` was told to log elsewhere. To be called once logging has begun, so in `startService` or later: before,
        events that `twistd` saved up would come twice.
        """
        if not self._in_use and not self._attached:
            self._attached = True
            globalLogPublisher.addObserver(self.observer)

    def detach(self) -> None:
        """Take back `attach`. What `twistd` uses as its own it also removes, at the very end."""
        if self._attached:
            self._attached = False
            globalLogPublisher.removeObserver(self.observer)

    def _write_own(self, line: bytes) -> None:
        self.proxy.write(line)
        if self._own_shown:
            self._show(line)

    def _write_late(self) -> None:
        while self._late:
            self._write_own(self._late.popleft())

    def _show(self, data: bytes) -> None:
        self.combined.write(data)
        if not self._attached:
            self._stdout(data)


@implementer(ILogObserver)
class _Observer:
    """`Logs.observe` as an object; a method cannot say that it provides an interface."""

    def __init__(self, owner: Logs) -> None:
        self._owner = owner

    def __call__(self, event: LogEvent) -> None:
        self._owner.observe(event)


_logs: Logs | None = None


def logs() -> Logs:
    """The logs of this process, on its standard output; made on first use."""
    global _logs  # noqa: PLW0603
    if _logs is None:
        _logs = Logs(standard_output().write)
    return _logs


def observer_factory() -> ILogObserver:
    """For `twistd --logger=lswap.service.logs.observer_factory`: the observer of `logs()`, with standard output."""
    ours = logs()
    ours._in_use = True
    return ours.observer


def _is_chatter(event: LogEvent) -> bool:
    """Whether an event is Twisted's word about itself (`Starting factory`, `Received SIGTERM`, `reactor class`)."""
    namespace = event.get("log_namespace")
    # The second is what all messages of the old `twisted.python.log` get.
    return isinstance(namespace, str) and (namespace.startswith("twisted.") or namespace == "log_legacy")


class _Formatter(string.Formatter):
    """Formats of `twisted.logger`: as `str.format`, and a field that ends in `()` is called."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value, first = super().get_field(field_name.removesuffix("()"), args, kwargs)
        return (value() if field_name.endswith("()") else value), first


_formatter = _Formatter()


def _texts(event: LogEvent) -> tuple[str, str]:
    """The message of an event, and its traceback or nothing."""
    failure = event.get("log_failure")
    if failure is None and event.get("log_namespace") == "log_legacy" and event.get("isError"):
        failure = event.get("failure")
        if failure is not None:
            # The old log puts message and traceback into one text.
            return _plain(event.get("why") or "Unhandled error"), _traceback(failure)
    message = _message(event)
    if failure is None:
        return message, ""
    return message or "Unhandled error", _traceback(failure)


def _message(event: LogEvent) -> str:
    template = event.get("log_format")
    if template is None:
        return ""
    try:
        if isinstance(template, bytes):
            template = template.decode()
        try:
            # Ten times as fast; it does not know calls, and fails on them.
            return str(template.format_map(event))
        except (AttributeError, LookupError, ValueError):
            return _formatter.vformat(template, (), event)
    except Exception as error:
        # The fields are left out: what is in them is anybody's guess, secrets included.
        return f"message that cannot be formatted ({type(error).__name__}): {_plain(template)}"


def _plain(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} without text ({type(error).__name__})>"


def _traceback(failure: Any) -> str:
    try:
        return str(failure.getTraceback())
    except Exception as error:
        return f"(no traceback: {type(error).__name__})"
