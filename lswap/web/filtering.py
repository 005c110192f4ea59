"""Carries out the edit of a request's body: small ones at once, large ones in slices of time.

The work is done in the reactor, not in a thread (the interpreter's lock would hold up the reactor all the same): after
3 ms the others have their turn. A 20 MB body with images takes some 20 to 60 ms in all, no step of it longer than
half a millisecond; a hostile one takes seconds, in steps of at most some milliseconds.
Read `lswap.core.edit_json` for the work itself.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Generator

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from lswap.core.edit_json import Edit, EditError, Parts, spliced
from lswap.net.body import Body
from lswap.web.answers import send_error
from lswap.web.request import Request

__all__ = ["edit_body"]

#: Seconds that the work may hold the reactor at a time, but for one step.
_SLICE = 0.003
_log = Logger()


def edit_body(clock: IReactorTime, request: Request, edit: Edit, then: Callable[[Body], None]) -> None:
    """Call `then` with the edited body, before this returns if it is small; answer with an error if it cannot be.

    Nothing is called when the client leaves before.
    """
    try:
        text = request.spool.view()
    except OSError as problem:
        _unreadable(request, problem)
        return
    _Slices(clock, request, text, edit, then).go_on()


def _unreadable(request: Request, problem: OSError) -> None:
    _log.error("cannot read the body of a request again: {problem}", problem=problem)
    send_error(request, 500, "could not read request body")


class _Slices:
    """One edit under way."""

    def __init__(
        self,
        clock: IReactorTime,
        request: Request,
        text: bytes | mmap.mmap,
        edit: Edit,
        then: Callable[[Body], None],
    ) -> None:
        self._clock = clock
        self._request = request
        self._text = text
        self._work: Generator[None, None, Parts] = spliced(text, edit)
        self._then = then

    def go_on(self) -> None:
        """Work for a while."""
        if self._request.over:
            self._close()
            return
        until = time.perf_counter() + _SLICE
        try:
            while True:
                next(self._work)
                if time.perf_counter() > until:
                    self._clock.callLater(0, self.go_on)
                    return
        except StopIteration as done:
            parts: Parts = done.value
        except EditError as problem:
            self._close()
            send_error(self._request, 400 if problem.by_client else 500, str(problem))
            return
        except Exception:
            self._close()
            _log.failure("internal error while editing the body of a request")
            send_error(self._request, 500, "internal error; the log has the details")
            return
        self._close()
        self._then(Body(self._request.spool, parts))

    def _close(self) -> None:
        self._work.close()
        if isinstance(self._text, mmap.mmap):
            self._text.close()
