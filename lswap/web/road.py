"""The road of a request: wait for its model, send it there, relay the answer, and let go of everything once.

One `Road` a request. Whoever ends it (answer whole, upstream broken, client gone, cancelled by hand), the lease is
released and the exchange leaves the list exactly once. `lswap.web.forward` makes them; who names the model is decided
before (`lswap.web.openai`, `lswap.web.upstream`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.access import may_use
from lswap.core.effects import Refusal
from lswap.core.events import State
from lswap.core.framing import ResponseHead
from lswap.core.headers import Headers, request_lines, upgrade_lines, upgrade_tokens
from lswap.errors import ConnectFailed, UpstreamError
from lswap.net.body import Body
from lswap.net.call import Sink
from lswap.net.connection import Call, Connection
from lswap.net.continuation import Continuation
from lswap.net.dial import Origin
from lswap.net.relay import Relay
from lswap.net.tunnel import HURRY, Side, Tunnel
from lswap.net.upstream import Upstream
from lswap.service.children import Child
from lswap.service.exchange import Exchange
from lswap.service.router import Lease, Refused
from lswap.web.answers import send_error
from lswap.web.loading import LoadingStream, as_event
from lswap.web.request import Request

if TYPE_CHECKING:
    from lswap.web.forward import Forwarder

__all__ = ["Road"]

#: Seconds that a refused connection waits for the news that its model server died.
_DEATH_NOTICE = 0.25
_STATUS = {Refusal.UNKNOWN: 404, Refusal.LIMIT: 429, Refusal.QUEUE_FULL: 429, Refusal.KEPT: 409, Refusal.HOOK: 502}
_CODE = {Refusal.LIMIT: "concurrency_limit", Refusal.QUEUE_FULL: "queue_full", Refusal.KEPT: "would_evict_pinned"}


class _Guarded:
    """A sink whose faults cost its own request, and not the connection that it hears from."""

    __slots__ = ("_broke", "_sink")

    def __init__(self, sink: Sink, broke: Callable[[Failure], object]) -> None:
        self._sink = sink
        self._broke = broke

    def interim(self, head: ResponseHead) -> None:
        """See `Sink`."""
        try:
            self._sink.interim(head)
        except Exception:
            self._broke(Failure())

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """See `Sink`."""
        try:
            self._sink.answer(head, data, last)
        except Exception:
            self._broke(Failure())

    def piece(self, data: bytes, last: bool) -> None:
        """See `Sink`."""
        try:
            self._sink.piece(data, last)
        except Exception:
            self._broke(Failure())

    def failed(self, error: UpstreamError) -> None:
        """See `Sink`."""
        try:
            self._sink.failed(error)
        except Exception:
            self._broke(Failure())


class Road:
    """One request on its way. States: waiting for a lease, waiting for a connection or an answer, answering, over."""

    __slots__ = (
        "_body",
        "_call",
        "_exchange",
        "_forwarder",
        "_lease",
        "_loading",
        "_meter",
        "_metered",
        "_on_over",
        "_over",
        "_relay",
        "_request",
        "_retried",
        "_target",
        "_tunnel",
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
        on_over: Callable[[], object] | None,
    ) -> None:
        self._forwarder = forwarder
        self._request = request
        self._exchange = exchange
        self._target = target
        self._body = body
        self._metered = metered
        self._meter = forwarder.meter(exchange, target, body) if metered else None
        self._on_over = on_over
        self._waiting: Deferred[Lease] | Deferred[bool] | None = None
        self._lease: Lease | None = None
        self._call: Call | None = None
        self._relay: Relay | Continuation | None = None
        self._tunnel: Tunnel | None = None
        self._loading: LoadingStream | None = None
        self._retried = False
        self._over = False

    def start(self, shown: bool, announced: bool) -> None:
        """Begin: from here on the client's departure is noticed."""
        ignored = self._ignored()
        shown = shown and ignored is None
        self._exchange.cancel = self._cancelled
        self._exchange.bytes_sent = self._bytes
        self._forwarder.inflight.enter(self._exchange, shown)
        self._request.on_gone = self._client_gone
        if ignored is not None:
            self._visit(ignored)
            return
        child = self._forwarder.router.children.get(self._exchange.model)
        if announced and child is not None and (child.state is not State.READY or child.outdated):
            self._loading = LoadingStream(self._forwarder.clock, self._request, self._exchange.model, self._event)
        self._acquire()
        if self._loading is not None and self._waiting is not None:
            self._loading.start()

    def _event(self) -> str:
        """What goes on around the process of the model that is waited for."""
        child = self._forwarder.router.children.get(self._exchange.model)
        return child.doing.event if child is not None and child.doing is not None else ""

    @property
    def _switches(self) -> bool:
        """Whether the request asks to become a websocket (HTTP/1.0 knows no such thing)."""
        return self._request.http11 and self._request.wants_websocket

    def _ignored(self) -> Child | None:
        """The model, if this is a websocket that it takes no notice of."""
        child = self._forwarder.router.children.get(self._exchange.model)
        wanted = child is not None and child.model.compat.ignore_websockets and self._switches
        return child if wanted else None

    def _visit(self, child: Child) -> None:
        """An ignored websocket: no lease, so that it neither starts its model nor keeps it."""
        on_over, self._on_over = self._on_over, None
        if on_over is not None:
            on_over()
        if child.state is not State.READY or child.upstream is None:
            self._fail(409, f"model {child.model.id} is not loaded; ignored websocket requests cannot start it")
        else:
            self._send(child.upstream)

    def _acquire(self) -> None:
        lease = self._forwarder.router.acquire_now(self._exchange.model)
        if lease is not None:
            try:
                self._granted(lease)
            except Exception:
                self._broke(Failure())
            return
        waiting = self._forwarder.router.acquire(self._exchange.model, self._exchange.requested)
        if self._loading is not None:
            self._loading.place = waiting.place
        self._waiting = waiting
        waiting.addCallbacks(self._granted, self._refused)
        waiting.addErrback(self._broke)

    # -- the model ---------------------------------------------------------------

    def _granted(self, lease: Lease) -> None:
        self._waiting = None
        self._lease = lease
        model = lease.child.model.id
        if model != self._exchange.model:  # a reload has led the name elsewhere
            self._exchange.model = model
            if not may_use(self._request.api_key, model):
                self._fail(403, f"this API key does not allow model {model}")
                return
        self._exchange.kv = lease.child.kv
        if self._meter is not None:
            self._meter.granted()
        upstream = lease.child.upstream
        if upstream is None:
            self._fail(502, f"model {self._exchange.model} has no usable proxy URL")
            return
        self._send(upstream)

    def _send(self, upstream: Upstream) -> None:
        """Send the request on a connection of this pool."""
        request = self._request
        length: int | None = self._body.length if self._body is not None else None
        lines: list[bytes] = [request.method, b" ", upstream.origin.target(self._target), b" HTTP/1.1\r\n"]
        headers = request.raw_headers
        relay: Relay | Continuation
        if self._loading is not None and self._loading.begun:
            self._loading.finish()
            relay = Continuation(request, self._answered, as_event)
            # Plain text went before it in the same body.
            headers = [header for header in headers if header[0].lower() != b"accept-encoding"]
        else:
            relay = Relay(request, self._answered)
        lines += self._header_lines(upstream.origin, headers, length)
        if self._switches:
            lines += upgrade_lines(headers)
        lines.append(b"\r\n")
        relay.on_head = self._head
        self._relay = relay
        call = upstream.send(request.method, lines, self._body, _Guarded(relay, self._broke))
        if self._relay is relay and not self._over:  # else it has failed already
            if self._switches:
                call.upgrade, call.switched = frozenset(upgrade_tokens(request.raw_headers)), self._switched
            self._call = call
            request.take_from(call)

    def _header_lines(self, origin: Origin, headers: Headers, length: int | None) -> list[bytes]:
        """These headers of the request as the server gets them."""
        request, metered = self._request, self._metered
        client = request.remote.encode()
        host = None if request.header(b"host") is not None else origin.netloc
        if request.head is None or headers is not request.raw_headers:
            return request_lines(headers, client, length, metered, host)
        lines = [request.head.lines(client, metered, host)]
        if length is not None:
            lines.append(b"Content-Length: %d\r\n" % length)
        return lines

    def _refused(self, failure: Failure) -> None:
        self._waiting = None
        refused = failure.value
        if not isinstance(refused, Refused):
            self._broke(failure)
            return
        status = _STATUS.get(refused.reason, 500)
        self._fail(status, str(refused), _CODE.get(refused.reason), refused.retry_after)

    # -- the answer -------------------------------------------------------------------

    def _switched(self, head: ResponseHead, data: bytes, server: Connection) -> Side:
        """The server has answered 101: from here on bytes flow both ways, until both connections are gone."""
        self._head(head)
        self._call = None
        self._tunnel = self._forwarder.tunnels.open(self._request, head, data, server, self._let_go)
        return self._tunnel.server

    def _head(self, head: ResponseHead) -> None:
        self._exchange.status = head.status
        self._exchange.answered = head.headers
        if self._meter is not None and self._relay is not None:
            self._relay.tap = self._meter.head(head)
        self._forwarder.inflight.answered(self._exchange)

    def _bytes(self) -> int:
        if self._tunnel is not None:
            return self._tunnel.received
        return self._relay.payload if self._relay is not None else 0

    def _answered(self, error: UpstreamError | None) -> None:
        """The relay is over, with or without an answer."""
        relay = self._relay
        if error is None or relay is None or relay.begun:
            if error is not None:
                self._log.warn("{model}: an answer was cut: {error}", model=self._exchange.model, error=str(error))
                self._note(str(error))
            self._let_go(complete=error is None)
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

    def _client_gone(self) -> None:
        if self._tunnel is None:  # else its end is told when the server's side is gone, too
            self._let_go()

    def _cancelled(self) -> None:
        """Somebody ended the request by hand, or lswap ends."""
        if self._tunnel is not None:
            self._tunnel.close(HURRY)
        elif self._relay is not None and self._relay.begun:
            self._let_go()
            self._request.take_from(None)
            self._request.cut(reset=False)
        else:
            self._request.take_from(None)
            self._fail(503, "the request was cancelled at the server")

    def _broke(self, failure: Failure) -> None:
        """An internal fault costs this request, and no more."""
        if self._over and failure.check(CancelledError):  # the end of a wait that nobody needs any more
            return
        self._log.failure("internal error on the way to {model}", failure, model=self._exchange.model)
        self._request.take_from(None)
        if self._over:
            self._request.cut(reset=False)
        else:
            self._fail(500, "internal error; the log has the details")

    def _fail(self, status: int, message: str, code: str | None = None, retry_after: int = 1) -> None:
        """Let go, then answer with an error: nothing may be held while the client can ask again."""
        if self._over:
            return
        self._exchange.status = status
        self._note(message)
        loading = self._loading
        if loading is not None and loading.begun:
            loading.finish()
            self._let_go()
            loading.fail(status, message, code)
            return
        self._let_go()
        limited = status == 429
        headers = {"Retry-After": str(retry_after)} if limited else None
        send_error(self._request, status, message, code, headers, always_json=limited)

    def _note(self, error: str) -> None:
        """Why there is no whole answer, for the row."""
        if self._meter is not None:
            self._meter.error = self._meter.error or error

    def _let_go(self, complete: bool = False) -> None:
        """End whatever goes on, and give everything back; once, whoever comes first."""
        if self._over:
            return
        self._over = True
        self._request.sentLength += self._bytes()
        if self._loading is not None:
            self._loading.stop()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        call, self._call = self._call, None
        if call is not None:
            call.abort()
        self._release()
        self._exchange.cancel = None
        self._forwarder.inflight.leave(self._exchange)
        meter, self._meter = self._meter, None
        if meter is not None:
            meter.end(complete)
        on_over, self._on_over = self._on_over, None
        if on_over is not None:
            on_over()
        # No circle of references stays: the collector would have to stop the reactor for all of them.
        self._request.on_gone = None
        sent, self._relay = self._bytes(), None
        self._exchange.bytes_sent = lambda: sent

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
