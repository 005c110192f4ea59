"""The road of a request: wait for its model, send it there, relay the answer, and let go of everything once.

One `Road` a request. Whoever ends it (answer whole, upstream broken, client gone, cancelled by hand), the lease is
released and the exchange leaves the list exactly once. Who names the model is decided before
(`lswap.web.openai`, `lswap.web.upstream`).
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.effects import Refusal
from lswap.core.framing import ResponseHead
from lswap.core.headers import request_lines
from lswap.errors import ConnectFailed, UpstreamError
from lswap.net.body import Body
from lswap.net.connection import Call
from lswap.net.relay import Relay
from lswap.service.exchange import Exchange, InFlight
from lswap.service.router import Lease, Refused, Router
from lswap.web.answers import send_error
from lswap.web.request import Request

__all__ = ["Forwarder"]

#: Seconds that a refused connection waits for the news that its model server died.
_DEATH_NOTICE = 0.25
_STATUS = {Refusal.UNKNOWN: 404, Refusal.LIMIT: 429, Refusal.QUEUE_FULL: 429}
_CODE = {Refusal.LIMIT: "concurrency_limit", Refusal.QUEUE_FULL: "queue_full"}


class Forwarder:
    """Makes roads; has what all of them share."""

    def __init__(self, clock: IReactorTime, router: Router, inflight: InFlight) -> None:
        self.clock = clock
        self.router = router
        self.inflight = inflight

    def forward(
        self, request: Request, exchange: Exchange, target: bytes, body: Body | None, *, shown: bool, metered: bool
    ) -> None:
        """Send `request` to the model that `exchange` names, as `target` with `body`.

        `shown` puts it into the in-flight list; `metered` keeps out codings that could not be read here.
        """
        _Road(self, request, exchange, target, body, metered).start(shown)


class _Road:
    """One request on its way. States: waiting for a lease, waiting for a connection or an answer, answering, over."""

    __slots__ = (
        "_body",
        "_call",
        "_exchange",
        "_forwarder",
        "_lease",
        "_metered",
        "_over",
        "_relay",
        "_request",
        "_retried",
        "_target",
        "_waiting",
    )

    _log = Logger()

    def __init__(
        self,
        forwarder: Forwarder,
        request: Request,
        exchange: Exchange,
        target: bytes,
        body: Body | None,
        metered: bool,
    ) -> None:
        self._forwarder = forwarder
        self._request = request
        self._exchange = exchange
        self._target = target
        self._body = body
        self._metered = metered
        self._waiting: Deferred[Lease] | Deferred[bool] | None = None
        self._lease: Lease | None = None
        self._call: Call | None = None
        self._relay: Relay | None = None
        self._retried = False
        self._over = False

    def start(self, shown: bool) -> None:
        """Begin: from here on the client's departure is noticed."""
        self._exchange.cancel = self._cancelled
        self._exchange.bytes_sent = self._bytes
        self._forwarder.inflight.enter(self._exchange, shown)
        self._request.notifyFinish().addErrback(self._client_gone)
        self._acquire()

    def _acquire(self) -> None:
        waiting = self._forwarder.router.acquire(self._exchange.model)
        self._waiting = waiting
        waiting.addCallbacks(self._granted, self._refused)
        waiting.addErrback(self._broke)

    # -- the model ---------------------------------------------------------------

    def _granted(self, lease: Lease) -> None:
        self._waiting = None
        self._lease = lease
        upstream = lease.child.upstream
        if upstream is None:
            self._fail(502, f"model {self._exchange.model} has no usable proxy URL")
            return
        request = self._request
        origin = upstream.origin
        length: int | None = self._body.length if self._body is not None else None
        lines: list[bytes] = [request.method, b" ", origin.target(self._target), b" HTTP/1.1\r\n"]
        host = None if request.header(b"host") is not None else origin.netloc
        lines += request_lines(request.raw_headers, request.remote.encode(), length, self._metered, host)
        lines.append(b"\r\n")
        relay = Relay(request, self._answered)
        relay.on_head = self._head
        self._relay = relay
        call = upstream.send(request.method, lines, self._body, relay)
        if self._relay is relay and not self._over:  # else it has failed already
            self._call = call
            request.take_from(call)

    def _refused(self, failure: Failure) -> None:
        self._waiting = None
        refused = failure.value
        if not isinstance(refused, Refused):
            self._broke(failure)
            return
        status = _STATUS.get(refused.reason, 500)
        self._fail(status, str(refused), _CODE.get(refused.reason))

    # -- the answer -------------------------------------------------------------------

    def _head(self, head: ResponseHead) -> None:
        self._exchange.status = head.status
        self._exchange.answered = head.headers

    def _bytes(self) -> int:
        return self._relay.bytes if self._relay is not None else 0

    def _answered(self, error: UpstreamError | None) -> None:
        """The relay is over, with or without an answer."""
        relay = self._relay
        if error is None or relay is None or relay.begun:
            if error is not None:
                self._log.warn("{model}: an answer was cut: {error}", model=self._exchange.model, error=str(error))
            self._let_go()
            return
        self._request.take_from(None)
        self._call = self._relay = None
        if isinstance(error, ConnectFailed) and error.refused and not self._retried and self._lease is not None:
            # No byte was sent. If the server is dead and nobody has noticed yet, it is started again.
            self._retried = True
            vanished = self._lease.child.vanished(_DEATH_NOTICE)
            self._waiting = vanished
            vanished.addCallback(self._look_again, error)
            vanished.addErrback(self._broke)
            return
        self._no_answer(error)

    def _look_again(self, vanished: bool, error: UpstreamError) -> None:
        self._waiting = None
        if not vanished:
            self._no_answer(error)
            return
        self._release()
        self._acquire()

    # -- the end ------------------------------------------------------------------------

    def _no_answer(self, error: UpstreamError) -> None:
        self._fail(502, f"no answer from the server of model {self._exchange.model}: {error}")

    def _client_gone(self, _: Failure) -> None:
        self._let_go()

    def _cancelled(self) -> None:
        """Somebody ended the request by hand, or lswap ends."""
        if self._relay is not None and self._relay.begun:
            self._let_go()
            self._request.take_from(None)
            self._request.cut(reset=False)
        else:
            self._request.take_from(None)
            self._fail(503, "the request was cancelled at the server")

    def _broke(self, failure: Failure) -> None:
        """An internal fault costs this request, and no more."""
        if self._over:  # the end of a wait that nobody needs any more
            return
        self._log.failure("internal error on the way to {model}", failure, model=self._exchange.model)
        self._request.take_from(None)
        self._fail(500, "internal error; the log has the details")

    def _fail(self, status: int, message: str, code: str | None = None) -> None:
        """Let go, then answer with an error: nothing may be held while the client can ask again."""
        if self._over:
            return
        self._exchange.status = status
        self._let_go()
        limited = status == 429
        headers = {"Retry-After": "1"} if limited else None
        send_error(self._request, status, message, code, headers, always_json=limited)

    def _let_go(self) -> None:
        """End whatever goes on, and give everything back; once, whoever comes first."""
        if self._over:
            return
        self._over = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        call, self._call = self._call, None
        if call is not None:
            call.abort()
        self._release()
        self._exchange.cancel = None
        self._forwarder.inflight.leave(self._exchange)

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
