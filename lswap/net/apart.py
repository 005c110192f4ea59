"""Runs what may never come back, such as a driver that hangs, in a thread of its own.

The reactor's pool is not for it: the end of lswap waits for the threads there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

__all__ = ["run_apart"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def run_apart(
    reactor: IReactorFromThreads, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> Deferred[_T]:
    """Call `function` in a new daemon thread; fires in the reactor's, with what it returned or raised."""
    answer: Deferred[_T] = Deferred()

    def tell(result: Any) -> None:
        if not answer.called:
            answer.callback(result)

    def work() -> None:
        result: Any
        try:
            result = function(*args, **kwargs)
        except Exception:
            result = Failure()
        reactor.callFromThread(tell, result)

    threading.Thread(target=work, name="lswap-apart", daemon=True).start()
    return answer
