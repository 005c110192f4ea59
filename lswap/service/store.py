"""Activity, written and read in one thread of its own: nobody who answers requests ever waits for a disk.

Decides what happens when the database cannot be written: rows wait, bounded, and are tried again; a warning says so.
Read `lswap.service.database` for the table, `lswap.service.recorder` for where rows come from.
Source: HTTP reference, section 14.1, and its warts 18 and 34.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.service.database import Database, Row, StoreError

__all__ = ["Prepare", "Store"]

_log = Logger()
_T = TypeVar("_T")
#: Makes a row, in the thread of the store, and what `stored` then gets beside its ID.
Prepare = Callable[[], tuple[Row, Any]]

#: Requests whose rows may wait to be made, and rows that may wait for a database that cannot be written.
_WAITING = 10_000
#: Rows of one transaction.
_AT_ONCE = 100
#: Seconds that the thread waits for more rows after one came, unless somebody waits for an answer.
_GATHER = 0.2
#: Seconds until another attempt, doubled up to the second figure.
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: Seconds that the end of lswap waits for rows on their way.
_LAST_WORDS = 2.0


#: A row, and who is told its ID.
_Late = tuple[Row, Callable[[int], object]]


def _tell(ids: Sequence[int], batch: Sequence[_Late]) -> None:
    for number, (_, stored) in zip(ids, batch, strict=True):
        try:
            stored(number)
        except Exception:
            _log.failure("internal error after activity was stored")


class _Worker:
    """What happens in the thread. Its first job makes it; it has the database, and the rows that wait."""

    def __init__(self, back: Callable[[Callable[[], object]], object]) -> None:
        """@param back: calls something in the reactor's thread."""
        self._back = back
        self._path: str | None = None
        self._keep = 1000
        self._base: Database | None = None
        self._late: deque[_Late] = deque()
        self._pause = 0.0
        self._failing = False
        self._lost = 0

    def use(self, path: str | None, keep: int) -> None:
        """From now on another database, if it is another one."""
        if self._base is not None and (path, keep) != (self._path, self._keep):
            if path == self._path and path is None:
                self._base.keep(keep)
            elif path != self._path:
                self.flush()
                self._close()
        self._path, self._keep = path, keep

    def database(self) -> Database:
        """The open database.

        @raise StoreError: it cannot be opened.
        """
        if self._base is None:
            self._base = Database(self._path, self._keep)
        return self._base

    def add(self, row: Row, stored: Callable[[int], object]) -> None:
        """A row; it is written with the next `flush`, and `stored` is then called in the reactor's thread."""
        self._late.append((row, stored))
        if len(self._late) > _WAITING:
            self._late.popleft()
            self._lost += 1

    @property
    def late(self) -> int:
        """Rows that wait."""
        return len(self._late)

    def flush(self) -> float:
        """Write what waits; seconds until it should be tried again, 0 when nothing waits."""
        while self._late:
            batch = [self._late[at] for at in range(min(_AT_ONCE, len(self._late)))]
            try:
                ids = self.database().add([row for row, _ in batch])
            except StoreError as problem:
                return self._failed(problem)
            except Exception:
                self._forget(batch)  # one of them is to blame, and would be for ever
                raise
            self._forget(batch)
            self._back(partial(_tell, ids, batch))
        if self._failing:
            self._failing = False
            lost, self._lost = self._lost, 0
            _log.info("activity is stored again; {lost} rows were lost", lost=lost)
        self._pause = 0.0
        return 0.0

    def _forget(self, batch: list[_Late]) -> None:
        for _ in batch:
            self._late.popleft()

    def _failed(self, problem: StoreError) -> float:
        if not self._failing and self._pause >= _PAUSE * 4:  # a short lock is nobody's business
            self._failing = True
            _log.warn(
                "activity cannot be stored ({problem}); {late} rows wait, up to {most}",
                problem=str(problem),
                late=len(self._late),
                most=_WAITING,
            )
        self._pause = min(max(_PAUSE, self._pause * 2), _LONGEST_PAUSE)
        return self._pause

    def close(self) -> None:
        """The last attempt, then the end."""
        if self._late and self.flush():
            _log.warn("{late} rows of activity are lost: they could not be stored", late=len(self._late))
        self._close()

    def _close(self) -> None:
        base, self._base = self._base, None
        if base is not None:
            base.close()


_Job = Callable[[_Worker], None]


class Store:
    """The reactor's side. The thread begins with the first job."""

    def __init__(self, reactor: IReactorFromThreads, path: str | None, keep: int, *, threaded: bool = True) -> None:
        """@param keep: newest rows that one in memory keeps.  @param threaded: False does all at once, for tests."""
        self._reactor = reactor
        self._threaded = threaded
        self._worker = _Worker(self._back)
        self._worker.use(path, _kept(keep))
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        #: Set when somebody waits for what was given.
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._full = False

    def use(self, path: str | None, keep: int) -> None:
        """Another configuration; the rows stay if the path does."""
        self._give(lambda worker: worker.use(path, _kept(keep)))

    def add(self, prepare: Prepare, stored: Callable[[int, Any], None]) -> None:
        """Make a row and store it; `stored` is called in the reactor's thread, once it can be read."""
        if self._jobs.qsize() >= _WAITING:
            if not self._full:
                self._full = True
                _log.warn("the store of activity is too slow: rows are lost")
            return
        self._full = False

        def job(worker: _Worker) -> None:
            row, more = prepare()
            worker.add(row, lambda number: stored(number, more))

        self._give(job)

    def ask(self, question: Callable[[Database], _T]) -> Deferred[_T]:
        """What `question` gets out of the database. Fails with StoreError."""
        return self.run(lambda worker: question(worker.database()), flush=True)

    def aside(self, work: Callable[[], _T]) -> Deferred[_T]:
        """Do something that takes a while in this thread, too."""
        return self.run(lambda _: work(), flush=False)

    def run(self, work: Callable[[_Worker], _T], *, flush: bool) -> Deferred[_T]:
        """Run `work` after all that was given before; with `flush` what waits is written first, if it can be."""
        answer: Deferred[_T] = Deferred()

        def job(worker: _Worker) -> None:
            try:
                if flush:
                    worker.flush()
                result: Any = work(worker)
            except Exception:
                result = Failure()
            self._back(lambda: None if answer.called else answer.callback(result))

        self._give(job)
        self._hurry.set()
        return answer

    def stop(self) -> Deferred[None]:
        """Write what waits, bounded in time, and end the thread. What is given later is done by nobody."""
        if self._ended:
            return succeed(None)
        self._ended = True
        if self._thread is None:
            if not self._threaded:
                self._worker.close()
            return succeed(None)
        done: Deferred[None] = Deferred()

        def finished() -> None:
            if not done.called:
                done.callback(None)

        def last(worker: _Worker) -> None:
            worker.close()
            self._back(finished)

        self._jobs.put(last)
        self._jobs.put(None)
        self._hurry.set()
        timer: Any = self._reactor.callLater(_LAST_WORDS, finished)  # type: ignore[attr-defined]
        return done.addCallback(lambda _: timer.cancel() if timer.active() else None)

    # -- the thread ----------------------------------------------------------------

    def _give(self, job: _Job) -> None:
        if self._ended:
            return
        if not self._threaded:
            self._do(job)
            self._worker.flush()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="lswap-store", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _back(self, call: Callable[[], object]) -> None:
        if self._threaded:
            self._reactor.callFromThread(call)
        else:
            call()

    def _do(self, job: _Job) -> None:
        try:
            job(self._worker)
        except Exception:
            _log.failure("internal error in the store of activity")

    def _work(self) -> None:
        due: float | None = None  # when to try again what waits
        while True:
            try:
                job = self._jobs.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = self._flush()
                continue
            # Rows are gathered: one transaction is much cheaper than many, and so is waking up once. Each time this
            # thread runs it takes the interpreter from the reactor, in the middle of somebody's stream.
            if job is not None:
                self._hurry.wait(_GATHER)
                self._hurry.clear()
            while job is not None:
                self._do(job)
                if self._worker.late >= _AT_ONCE:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            if job is None:
                return
            if due is None or time.monotonic() >= due:
                due = self._flush()

    def _flush(self) -> float | None:
        try:
            pause = self._worker.flush()
        except Exception:
            _log.failure("internal error in the store of activity")
            pause = _PAUSE
        return time.monotonic() + pause if pause else None


def _kept(keep: int) -> int:
    return keep if keep > 0 else 1000
