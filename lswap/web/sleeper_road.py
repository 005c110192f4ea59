"""The road of a request to a machine that may be asleep: wait until it is awake, and then go on as others do.

Differs from `lswap.web.road` in the wait, and in what a failure means. No connection: the machine has fallen asleep
between the last look and the request; nothing was sent, so it is woken and waited for again, once. A refused one: it is
awake, and its server is not there. Anything else may have been processed, and is not repeated.
Read `lswap.service.sleeper` for the machine. Source: utilities reference, sections 1.4, 1.5 and 1.7.
"""

from __future__ import annotations

from typing import Any

from twisted.python.failure import Failure

from lswap.errors import ConnectFailed, HostAsleep, UpstreamError
from lswap.service.sleeper import Sleeper
from lswap.web.answers import send_error
from lswap.web.road import Road

__all__ = ["SleeperRoad"]


class SleeperRoad(Road):
    """One request on its way; a subclass says to what machine, and goes on when it is awake."""

    __slots__ = ("_woken_again",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._woken_again = False

    def _sleeper(self) -> Sleeper | None:
        """The machine; None for one that never sleeps."""
        raise NotImplementedError

    def _set_out(self) -> None:
        """The machine is awake: send the request."""
        raise NotImplementedError

    def _acquire(self) -> None:
        sleeper = self._sleeper()
        if sleeper is None:
            self._set_out()
            return
        waiting = sleeper.when_awake()
        self._waiting = waiting
        waiting.addCallbacks(self._awake, self._asleep)
        waiting.addErrback(self._broke)

    def _awake(self, _: bool) -> None:
        self._waiting = None
        self._set_out()

    def _asleep(self, failure: Failure) -> None:
        self._waiting = None
        problem = failure.value
        if isinstance(problem, HostAsleep):
            self._fail_asleep(str(problem), problem.retry_after)
        else:
            self._broke(failure)

    def _no_answer(self, error: UpstreamError) -> None:
        sleeper = self._sleeper()
        if sleeper is None:
            self._unanswered(error)
            return
        unreached = isinstance(error, ConnectFailed) and not error.refused
        if unreached and not self._woken_again:
            self._woken_again = True
            sleeper.vanished(str(error))
            self._acquire()
            return
        sleeper.doubt()
        if unreached or not sleeper.ready:
            asleep = HostAsleep(f"the host fell asleep: {error}")
            self._fail_asleep(str(asleep), asleep.retry_after)
        else:
            self._unanswered(error)

    def _unanswered(self, error: UpstreamError) -> None:
        """The machine is awake, and its server has not answered: tell the client."""
        super()._no_answer(error)

    def _fail_asleep(self, message: str, retry_after: int) -> None:
        """Let go, then answer in JSON: it is programs that are kept waiting."""
        if self._over:
            return
        self._exchange.status = 503
        self._note(message)
        self._let_go()
        send_error(self._request, 503, message, None, {"Retry-After": str(retry_after)}, always_json=True)
