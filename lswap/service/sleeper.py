"""A machine that may be asleep: watches whether it is awake, wakes it when it is wanted, and knows who waits for it.

Combines the verdict (`lswap.core.vigil`), the looks at the machine (its health check, and its event stream, whose end
says at once what the next check would say later) and what wakes it (`lswap.net.wake`). Nothing here holds a request:
read `lswap.web.sleeper_road` for that. Used by `lswap-wol` and by peers with `wake`.
Source: utilities reference, sections 1.3, 1.4 and 1.7.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.model_parts import Hiding
from lswap.core.vigil import Vigil
from lswap.errors import HostAsleep
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.health import status_of
from lswap.net.upstream import Upstream
from lswap.net.wake import Waker

__all__ = ["CHECK_PATH", "CONNECT_LIMIT", "LOOK_LIMIT", "REPEAT", "UNHEARD_LIMIT", "Bedroom", "Sleeper"]

#: Answers 200 without a key where the machine runs lswap or llama-swap.
CHECK_PATH = "/wol-health"
#: Seconds that one look may take.
LOOK_LIMIT = 2.5
#: Seconds for a connection to one that is believed to be awake, for those who send it requests.
CONNECT_LIMIT = 5.0
#: Seconds for which a request that was sent may stay without the word of the machine's system that it came.
UNHEARD_LIMIT = 20.0
#: Seconds after which a machine that is still wanted is woken again.
REPEAT = 2.0
#: Times that a machine is woken within so many seconds, at most; each request is worth one, a crowd is not worth more.
_BURST = 10
#: Seconds between two looks above which a new wish is worth one in between.
_PATIENCE = 0.25
#: Requests that may wait for one machine.
_MOST = 1000


class Bedroom(Hiding, msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a machine that may be asleep."""

    hidden = frozenset({"api_key"})

    #: Where its server listens; what stands after host and port does not matter.
    url: str
    #: Path that answers 200 when the server is ready.
    check_path: str = CHECK_PATH
    #: Sent when it is looked at, and never otherwise.
    api_key: str = ""
    #: Seconds that a request may wait.
    timeout: float = 60.0


class Sleeper:
    """One machine. `start` begins to watch it; until then, and after `stop`, it counts as asleep."""

    _log = Logger()

    def __init__(self, reactor: Any, bedroom: Bedroom, waker: Waker) -> None:
        """Connections for looks are kept apart from those for requests, so that they cannot delay each other."""
        self._clock = reactor
        self._bedroom = bedroom
        self._waker = waker
        parts = urlsplit(bedroom.url)
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._pool = Upstream(reactor, Origin(self._base), LOOK_LIMIT)
        self._client = HTTPClient(UpstreamAgent(lambda _: self._pool))
        self._headers: dict[bytes | str, bytes | str] = (
            {"Authorization": f"Bearer {bedroom.api_key}"} if bedroom.api_key else {}
        )
        #: Other servers than lswap and llama-swap, whose health checks are elsewhere, have no such stream.
        self._has_events = bedroom.check_path == CHECK_PATH
        self._vigil = Vigil()
        #: Whether anything was said of its state.
        self._told = False
        self._watching = False
        self._look_under_way: Deferred[None] | None = None
        self._next_look: IDelayedCall | None = None
        self._opening: Deferred[None] | None = None
        self._stream: _Events | None = None
        #: Whether the event stream cannot be had, until the machine wakes up anew.
        self._no_stream = not self._has_events
        #: Whether the event stream has ended, and nothing was heard since.
        self._suspicious = False
        # A dict for its order.
        self._waiting: dict[_Waiter, None] = {}
        self._wanted_until = 0.0
        self._repeat: IDelayedCall | None = None
        self._wakes = 0

    @property
    def ready(self) -> bool:
        """Whether the machine is believed to be awake."""
        return self._vigil.ready

    @property
    def failures(self) -> int:
        """Looks in vain since it was last awake."""
        return self._vigil.failures

    @property
    def waiting(self) -> int:
        """How many wait for it."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to watch. Without effect while it does."""
        if not self._watching:
            self._watching = True
            self._look()

    def stop(self, why: str = "the proxy is stopping") -> None:
        """Watch no more; whoever waits is told so. May be called twice."""
        self._watching = False
        self._stop_timers()
        for deferred in (self._look_under_way, self._opening):
            if deferred is not None:
                deferred.cancel()
        self._drop_stream()
        self._pool.close()
        self._waker.close()
        for waiter in list(self._waiting):
            waiter.fail(HostAsleep(f"the wait for the host was ended: {why}"))

    def _stop_timers(self) -> None:
        for timer in (self._next_look, self._repeat):
            if timer is not None:
                timer.cancel()
        self._next_look = self._repeat = None

    # -- those who want it awake ---------------------------------------------------

    def when_awake(self) -> Deferred[bool]:
        """Fires when the machine is awake: with True if it had to be waited for. Wakes it, if need be.

        Fails with HostAsleep when the time is over, or too many wait. Cancelling ends the wait.
        """
        if self.ready:
            return succeed(False)
        waiter = _Waiter(self)
        if not self._watching:
            waiter.fail(HostAsleep("the host is not watched: the proxy is stopping"))
        elif len(self._waiting) >= _MOST:
            waiter.fail(HostAsleep(f"{_MOST} requests wait for the host to wake up already"))
        else:
            self._waiting[waiter] = None
            waiter.timer = self._clock.callLater(self._bedroom.timeout, self._too_late, waiter)
            self._rouse()
        return waiter.deferred

    def wake(self) -> None:
        """Wake the machine for somebody who does not wait here but asks again: wanted for as long as one who does."""
        if not self.ready and self._watching:
            self._wanted_until = self._clock.seconds() + self._bedroom.timeout
            self._rouse()

    def _too_late(self, waiter: _Waiter) -> None:
        waiter.timer = None
        waiter.fail(HostAsleep(f"the host did not wake up within {self._bedroom.timeout:g} s"))

    @property
    def _wanted(self) -> bool:
        return bool(self._waiting) or self._clock.seconds() < self._wanted_until

    def _rouse(self) -> None:
        """Somebody new wants it awake."""
        if self._repeat is None:
            self._wakes = 0
            self._repeat = self._clock.callLater(REPEAT, self._again)
        if self._wakes < _BURST:
            self._wakes += 1
            self._waker.wake()
        call = self._next_look
        if call is not None and call.getTime() - self._clock.seconds() > _PATIENCE:
            self._look()

    def _again(self) -> None:
        self._repeat = None
        if not self.ready and self._wanted:
            self._wakes = 1
            self._repeat = self._clock.callLater(REPEAT, self._again)
            self._waker.wake()

    # -- looks ------------------------------------------------------------------------

    def doubt(self) -> None:
        """A request has failed in a way that a sleeping machine might explain: look now."""
        if self._next_look is not None:
            self._look()

    def vanished(self, problem: str) -> None:
        """No connection to it came about, though it should be awake: it is asleep until it answers again."""
        self._note(problem, certain=True)
        self.doubt()

    def _look(self) -> None:
        """Ask its health check, unless that is under way."""
        if self._next_look is not None and self._next_look.active():
            self._next_look.cancel()
        self._next_look = None
        if self._look_under_way is None and self._watching:
            self._look_under_way = Deferred.fromCoroutine(self._ask())
            self._look_under_way.addErrback(self._broken)

    async def _ask(self) -> None:
        problem = ""
        try:
            url = self._base + self._bedroom.check_path
            status = await status_of(self._clock, self._client, url, LOOK_LIMIT, self._headers)
            if status != 200:
                problem = f"its health check says {status}"
        except CancelledError:
            raise
        except TookTooLong:
            problem = f"no answer within {LOOK_LIMIT:g} s"
        except Exception as error:
            problem = str(error) or type(error).__name__
        self._look_under_way = None
        if not self._watching:
            return
        self._note(problem, certain=self._suspicious)
        self._next_look = self._clock.callLater(self._vigil.pause(self._wanted), self._look)

    def _broken(self, failure: Failure) -> None:
        self._look_under_way = None
        if self._watching:
            self._log.failure("internal error while looking after {host}", failure, host=self._base)
            self._next_look = self._clock.callLater(LOOK_LIMIT, self._look)

    def _note(self, problem: str, certain: bool) -> None:
        """What a look has shown; no problem means that it is awake."""
        self._log.debug("{host}: {found}", host=self._base, found=problem or "awake")
        if problem:
            fell_asleep = self._vigil.missed(certain)
            if fell_asleep:
                self._drop_stream()  # nobody says farewell on it, and another one is to be had later
            if fell_asleep or not self._told:
                self._log.info("{host} is asleep, or does not answer: {problem}", host=self._base, problem=problem)
                self._told = True
            return
        if self._vigil.answered():
            self._log.info("{host} is awake", host=self._base)
            self._told = True
            self._no_stream = not self._has_events
            self._wanted_until = 0.0
        if not self._suspicious:
            self._follow()
        self._suspicious = False  # its stream is followed again after the next look, so not without a pause
        for waiter in list(self._waiting):
            waiter.succeed()

    # -- its event stream ----------------------------------------------------------------

    def _follow(self) -> None:
        if self._opening is None and self._stream is None and not self._no_stream:
            self._opening = Deferred.fromCoroutine(self._open_stream())
            self._opening.addErrback(lambda failure: failure.trap(CancelledError))

    async def _open_stream(self) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache", **self._headers}
        problem = ""
        answer: Any = None
        try:
            asked: Deferred[Any] = self._client.get(
                f"{self._base}/api/events", headers=headers, allow_redirects=False, unbuffered=True
            )
            answer = await asked.addTimeout(LOOK_LIMIT, self._clock)
        except CancelledError:
            raise
        except TookTooLong:
            problem = f"no answer within {LOOK_LIMIT:g} s"
        except Exception as error:
            problem = str(error) or type(error).__name__
        finally:
            self._opening = None
        stream = _Events(self._stream_ended)
        if answer is not None:
            if answer.code == 200:
                self._stream = stream
            else:
                problem = f"status {answer.code}"
            answer.deliverBody(stream)
        if problem:
            self._no_stream = True
            stream.end()
            self._log.info(
                "{host}: its events cannot be followed ({problem}), so only its health check tells that it fell asleep",
                host=self._base,
                problem=problem,
            )

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

    def _stream_ended(self, stream: _Events) -> None:
        if stream is not self._stream:
            return
        self._stream = None
        if self._watching:
            self._suspicious = True
            self.doubt()


class _Waiter:
    """One who waits."""

    def __init__(self, sleeper: Sleeper) -> None:
        self._sleeper = sleeper
        self.timer: IDelayedCall | None = None
        self.deferred: Deferred[bool] = Deferred(lambda _: self._leave())

    def succeed(self) -> None:
        """It is awake."""
        self._leave()
        self.deferred.callback(True)

    def fail(self, problem: HostAsleep) -> None:
        """It is not."""
        self._leave()
        self.deferred.errback(problem)

    def _leave(self) -> None:
        self._sleeper._waiting.pop(self, None)
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()


class _Events(Protocol):
    """Reads a stream of events for its end only."""

    transport: Any

    def __init__(self, ended: Any) -> None:
        self._ended = ended
        self._unwanted = False

    def connectionMade(self) -> None:
        if self._unwanted:
            self.transport.abortConnection()

    def end(self) -> None:
        """It is of no use any more."""
        self._unwanted = True
        if self.transport is not None:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - Twisted's signature
        self._ended(self)
