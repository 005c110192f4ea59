"""Opens connections to model servers: resolves the host, tries all its addresses, says why it failed.

Read `lswap.net.upstream` next, which keeps the connections. A literal address and `localhost` need no resolver;
`localhost` is tried on both of its addresses, because a server may listen on one of them only.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from lswap.errors import ConnectFailed

__all__ = ["Dialer", "Origin"]

#: Seconds without a sign of life, and between two probes, after which the system asks whether the other end is there.
_KEEPALIVE = 30
#: Names of this machine that a server may be asked by.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Origin:
    """Where a model server listens: scheme, host and port of its URL, and the path that goes before each request's."""

    __slots__ = ("base", "host", "netloc", "port", "query", "scheme")

    def __init__(self, url: str) -> None:
        """Read `url`.

        @raise ValueError: it is no absolute http or https URL.
        """
        parts: SplitResult = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an absolute http or https URL")
        self.scheme = parts.scheme
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        #: What `Host` says: without user and password.
        self.netloc = _encoded(parts.netloc.rpartition("@")[2])
        #: Without a slash at its end.
        self.base = _encoded(parts.path.rstrip("/"))
        self.query = _encoded(parts.query)

    def target(self, target: bytes) -> bytes:
        """The request target for the server: our path before the client's, our query before the client's."""
        if self.base:
            target = self.base + target
        if self.query:
            path, _, query = target.partition(b"?")
            target = path + b"?" + self.query + (b"&" + query if query else b"")
        return target

    def same_server(self, other: Origin) -> bool:
        """Whether both lead to one server; all names of this machine are one."""
        same_host = self.host == other.host or {self.host, other.host} <= _LOOPBACK
        return same_host and (self.scheme, self.port) == (other.scheme, other.port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def _encoded(text: str) -> bytes:
    """A part of a URL as it may stand in a request line; what is escaped already stays."""
    return quote(text, safe="!#$%&'()*+,/:;=?@[]~").encode("ascii")


class Dialer:
    """Connects to one origin. Remembers which of the two addresses of `localhost` answered."""

    def __init__(
        self, reactor: Any, origin: Origin, timeout: float, through: IStreamClientEndpoint | None = None
    ) -> None:
        """`timeout` in seconds, for each address; 0 is no limit. `through` takes the place of all addresses."""
        self._reactor = reactor
        self._origin = origin
        self._timeout = timeout
        self._through = through
        self._endpoints: list[IStreamClientEndpoint] = []

    def set_timeout(self, timeout: float) -> None:
        """Another limit, from the next connection on."""
        if timeout != self._timeout:
            self._timeout = timeout
            self._endpoints = []

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """A connected protocol made by `factory`, or ConnectFailed. Cancelling gives up."""
        return Deferred.fromCoroutine(self._try_all(factory))

    async def _try_all(self, factory: IProtocolFactory) -> Any:
        failures: list[Exception] = []
        try:
            if not self._endpoints:
                self._endpoints = _endpoints(self._reactor, self._origin, self._timeout, self._through)
        except Exception as problem:
            failures.append(problem)  # a name that can be none, or no usable TLS
        for endpoint in list(self._endpoints):
            try:
                protocol: Any = await endpoint.connect(factory)
            except (CancelledError, error.ConnectingCancelledError):
                # Given up: the next address is not tried.
                raise CancelledError from None
            except Exception as problem:
                failures.append(problem)
                continue
            _set_up(protocol.transport)
            if endpoint in self._endpoints[1:]:  # it may be gone, if the limit was changed meanwhile
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
            return protocol
        raise _explain(self._origin, failures, self._timeout)


def _endpoints(
    reactor: Any, origin: Origin, timeout: float, through: IStreamClientEndpoint | None
) -> list[IStreamClientEndpoint]:
    limit: Any = timeout if timeout > 0 else None
    plain: list[Any]
    if through is not None:
        plain = [through]
    elif origin.host == "localhost":
        plain = [
            TCP4ClientEndpoint(reactor, "127.0.0.1", origin.port, limit),
            TCP6ClientEndpoint(reactor, "::1", origin.port, limit),
        ]
    else:
        try:
            kind = TCP6ClientEndpoint if ipaddress.ip_address(origin.host).version == 6 else TCP4ClientEndpoint
            plain = [kind(reactor, origin.host, origin.port, limit)]
        except ValueError:
            plain = [HostnameEndpoint(reactor, origin.host, origin.port, limit)]
    if origin.scheme == "https":
        plain = [_Encrypted(endpoint, origin.host) for endpoint in plain]
    return plain


@implementer(IStreamClientEndpoint)
class _Encrypted:
    """TLS over another endpoint, with the name in the certificate checked.

    As `twisted.internet.endpoints.wrapClientTLS`, which does not exist where OpenSSL came late (`lswap.net.lean`).
    """

    def __init__(self, plain: IStreamClientEndpoint, host: str) -> None:
        from twisted.internet.ssl import optionsForClientTLS  # noqa: PLC0415 - only where it is used
        from twisted.protocols.tls import TLSMemoryBIOFactory  # noqa: PLC0415

        self._plain = plain
        self._options = optionsForClientTLS(host)
        self._wrap = TLSMemoryBIOFactory

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Connect; the handshake follows with the first bytes."""
        connecting: Deferred[Any] = self._plain.connect(self._wrap(self._options, True, protocolFactory))
        return connecting.addCallback(self._connected)

    def _connected(self, wrapper: Any) -> Any:
        _set_up(wrapper.transport)
        return wrapper.wrappedProtocol


def _set_up(transport: Any) -> None:
    """Send what is written without waiting for more, and let the system find out when the other end has vanished.

    A machine that is switched off says no farewell; an answer from it would be waited for without end.
    """
    try:
        handle = transport.getHandle()
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, option):
                handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), _KEEPALIVE)
    except (AttributeError, OSError):
        pass  # not a socket of the network


def _explain(origin: Origin, failures: list[Exception], timeout: float) -> ConnectFailed:
    if any(isinstance(failure, error.ConnectionRefusedError) for failure in failures):
        return ConnectFailed(f"connection to {origin} refused: nothing listens there", refused=True)
    first = failures[0]
    if isinstance(first, error.TimeoutError):
        return ConnectFailed(f"no connection to {origin} within {timeout:g} s")
    return ConnectFailed(f"no connection to {origin}: {Failure(first).getErrorMessage()}")
