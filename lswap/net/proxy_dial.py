"""Reaches a server through an HTTP proxy: by CONNECT for https, in absolute form for http.

`lswap.core.proxy_env` decides when. Both give what `lswap.net.upstream` needs for a pool: an origin and an endpoint
that takes the place of the server's own addresses.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from lswap.core.framing import END_OF_HEAD, parse_head
from lswap.core.proxy_env import Proxy
from lswap.errors import BadAnswer, ConnectFailed
from lswap.net.dial import Dialer, Origin

__all__ = ["AbsoluteOrigin", "ProxyEndpoint"]

#: Bytes that the proxy's answer to CONNECT may have.
_HEAD_LIMIT = 65536


class AbsoluteOrigin(Origin):
    """An http server that is asked for by its whole URL, as a proxy reads the request (RFC 9112, section 3.2.2)."""

    __slots__ = ()

    def target(self, target: bytes) -> bytes:
        """The request target for the proxy."""
        return b"http://" + self.netloc + super().target(target)


@implementer(IStreamClientEndpoint)
class ProxyEndpoint:
    """Connects to a proxy; with `origin`, has it connect on to that one first."""

    def __init__(self, reactor: Any, proxy: Proxy, timeout: float, origin: Origin | None) -> None:
        """@param timeout: in seconds, to connect to the proxy, and again for its answer; 0 is no limit."""
        self._reactor = reactor
        self._timeout = timeout
        self._authorization = proxy.authorization
        self._place = Origin(proxy.url)
        self._dialer = Dialer(reactor, self._place, timeout)
        self._origin = origin

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """See `IStreamClientEndpoint`; fails with ConnectFailed."""
        if self._origin is None:
            return self._dialer.connect(protocolFactory)
        return Deferred.fromCoroutine(self._connect_on(protocolFactory, self._origin))

    async def _connect_on(self, factory: IProtocolFactory, origin: Origin) -> IProtocol:
        made = Factory.forProtocol(lambda: _Asking(self._reactor, self._place, self._timeout, factory))
        made.noisy = False
        host = origin.host.encode("ascii" if origin.host.isascii() else "idna")
        there = b"%b:%d" % (b"[%b]" % host if b":" in host else host, origin.port)
        asking: _Asking = await self._dialer.connect(made)
        return await asking.ask(there, self._authorization)


class _Asking(Protocol):
    """Asks a proxy for a connection, then stands between it and whoever speaks over it."""

    transport: Any

    def __init__(self, reactor: Any, place: Origin, timeout: float, factory: IProtocolFactory) -> None:
        self._reactor = reactor
        self._place = place
        self._timeout = timeout
        self._factory = factory
        self._buffer = b""
        self._inner: IProtocol | None = None
        self._agreed: Deferred[IProtocol] = Deferred(lambda _: self.transport.abortConnection())
        self._timer: IDelayedCall | None = None

    def ask(self, there: bytes, authorization: bytes | None) -> Deferred[IProtocol]:
        """Fires with the protocol made for the connection beyond the proxy, to this host and port."""
        lines = [b"CONNECT " + there + b" HTTP/1.1\r\nHost: " + there + b"\r\n"]
        if authorization is not None:
            lines.append(b"Proxy-Authorization: " + authorization + b"\r\n")
        if self._timeout > 0:
            self._timer = self._reactor.callLater(self._timeout, self._too_late)
        self.transport.writeSequence([*lines, b"\r\n"])
        return self._agreed

    def dataReceived(self, data: bytes) -> None:
        """The proxy's answer, then bytes of whoever is behind it."""
        if self._inner is not None:
            self._inner.dataReceived(data)
            return
        self._buffer += data
        end = END_OF_HEAD.search(self._buffer)
        if end is None:
            if len(self._buffer) > _HEAD_LIMIT:
                self._fail("its answer to CONNECT is too long")
            return
        try:
            head = parse_head(self._buffer[: end.start()], b"CONNECT")
        except BadAnswer as problem:
            self._fail(str(problem))
            return
        rest, self._buffer = self._buffer[end.end() :], b""
        if 100 <= head.status < 200:
            self.dataReceived(rest)
        elif 200 <= head.status < 300:
            self._go_on(rest)
        else:
            self._fail(f"it answered CONNECT with {head.status} {head.reason.decode('latin-1')}".rstrip())

    def _go_on(self, rest: bytes) -> None:
        self._stop_timer()
        inner = self._factory.buildProtocol(self.transport.getPeer())
        if inner is None:
            self._fail("nobody takes the connection")
            return
        self._inner = inner
        inner.makeConnection(self.transport)
        self._agreed.callback(inner)
        if rest:
            inner.dataReceived(rest)

    def _too_late(self) -> None:
        self._timer = None
        self._fail(f"it did not answer CONNECT within {self._timeout:g} s")

    def _fail(self, why: str) -> None:
        self._stop_timer()
        if not self._agreed.called:
            self._agreed.errback(Failure(ConnectFailed(f"no connection through the proxy {self._place}: {why}")))
        self.transport.abortConnection()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone."""
        self._stop_timer()
        if self._inner is not None:
            self._inner.connectionLost(reason)
        elif not self._agreed.called:
            self._fail("it closed the connection")
