"""One client connection: refuses what is malformed, too large or too slow, before any resource is asked.

Decides what a connection may take in time and size, and how it ends. Heads are read in `lswap.web.heads`, requests are
`lswap.web.request`, the factory is `lswap.web.site`. Sources: RFC 9110, RFC 9112, the key `limits:`.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IHalfCloseableProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import alsoProvides

from lswap.core.headers import Headers
from lswap.core.model import Limits
from lswap.net.call import Receiver
from lswap.web.answers import CHALLENGE, UNAUTHORIZED, error_body, reason
from lswap.web.heads import HeadReader
from lswap.web.request import Request

__all__ = ["Channel"]

#: Seconds that a client gets to take the rest of an answer that was broken off.
_CUT_LIMIT = 15.0
#: Seconds that a refused client gets to read the answer, while what it still sends is thrown away; and at the end of
#: lswap, those who only read along to take the rest.
_LINGER = 2.0
#: Bytes of a body that are read before a request without a good key is refused.
_SMALL = 65536
_CODES = {
    408: "request_timeout",
    413: "request_too_large",
    431: "request_head_too_large",
    507: "insufficient_storage",
}
_LATE_HEAD = "the request's head did not come within limits.headTimeout"


class _Phase(enum.Enum):
    """What a connection is doing."""

    #: It waits for its first request, or for the rest of its head.
    FRESH = enum.auto()
    #: It waits for another request.
    IDLE = enum.auto()
    #: A part of another head is there.
    HEAD = enum.auto()
    #: A head is complete, its body is not.
    BODY = enum.auto()
    #: A request is being answered: the only phase without a limit of time.
    WORK = enum.auto()
    #: The connection ends; nothing is read any more.
    CLOSING = enum.auto()


def _address(peer: Any) -> str:
    """Where a connection comes from; this machine for a socket of its file system, and IPv4 for a mapped address."""
    host: str = getattr(peer, "host", None) or "127.0.0.1"
    if host.startswith("::ffff:"):
        mapped = ipaddress.IPv6Address(host.partition("%")[0]).ipv4_mapped
        return str(mapped) if mapped is not None else host
    return host


class Channel(HeadReader):
    """One client connection."""

    factory: Any
    transport: Any
    _log = Logger()
    #: Whether the connection is encrypted.
    secure = False
    _phase = _Phase.FRESH
    _deadline: float | None = None
    _timer: IDelayedCall | None = None
    #: Runs from the moment the connection is to close, for clients that do not take what is left for them.
    _cut_timer: IDelayedCall | None = None
    #: Who takes the client's bytes once another protocol than HTTP is spoken.
    _receiver: Receiver | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is under way: its head is complete, its answer is not."""
        return self._phase in (_Phase.BODY, _Phase.WORK)

    @property
    def under_way(self) -> tuple[bytes, bytes]:
        """Method and target of the request whose body is being received."""
        return self._command, self._path

    def connectionMade(self) -> None:
        """Limits are those of the configuration in force now."""
        limits: Limits = self.factory.limits
        self.MAX_LENGTH = limits.request_head
        self.totalHeadersSize = limits.request_head
        self.timeOut = None
        self.secure = self.isSecure()
        self.ends = self.transport.getPeer(), self.transport.getHost()
        self.remote = _address(self.ends[0])
        super().connectionMade()
        self.factory.channels.add(self)
        self._allow(limits.head_timeout)

    def getPeer(self) -> Any:
        """The client's end of the connection, asked of the system once."""
        return self.ends[0]

    def getHost(self) -> Any:
        """Our end of the connection, asked of the system once."""
        return self.ends[1]

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._phase is _Phase.CLOSING:
            return
        if self._receiver is not None:
            self._receiver.data(data)
            return
        if self.line_mode and not data.isascii():
            self.lineReceived = self._odd_line
        try:
            if self.line_mode and not self._buffer and not self.paused:
                data = self._whole_head(data)
            if data:
                super().dataReceived(data)
        except Exception:
            self._broken()
            return
        if self.line_mode and b"\n\n" in self._buffer:
            # Twisted would wait for the line end that is one.
            self._respondToBadRequestAndDisconnect()
        self._note_progress()

    # -- heads -----------------------------------------------------------------

    def allHeadersReceived(self) -> None:
        """The head is complete: refuse what is wrong or too large before its body is read, or asked for by a 100."""
        request: Request = self.requests[-1]
        if not self._find_host(request):
            self._respondToBadRequestAndDisconnect()
        elif self._admit_head(request):
            self.persistent = self.checkPersistence(request, self._version)
            if self._version == b"HTTP/1.1" and (request.header(b"expect") or b"").lower() == b"100-continue":
                self._send100Continue()

    def _admit_head(self, request: Request) -> bool:
        """Refuse what nothing but the keys and the limits in force speak against."""
        limits: Limits = self.factory.limits
        if self._unwelcome(request):
            return False
        if self.length is not None and self.length > limits.request_body:
            self._too_large()
            return False
        self._phase = _Phase.BODY
        request.known_as(self._command, self._path, self._version)
        self._allow(limits.head_timeout)
        return True

    def _unwelcome(self, request: Request) -> bool:
        """Refuse a request without a good key before its body is read, or asked for by a 100.

        A small body that comes anyway is read all the same: then the connection can be kept.
        """
        refuses: Callable[[bytes, bytes, Headers], bool] | None = self.factory.refuses_early
        if refuses is None or (self.length is not None and self.length <= _SMALL and request.header(b"expect") is None):
            return False
        if not refuses(self._command, self._path.partition(b"?")[0], request.raw_headers):
            return False
        self.refuse(401, UNAUTHORIZED, CHALLENGE)
        return True

    # -- requests ----------------------------------------------------------------

    def allContentReceived(self) -> None:
        """The request is whole."""
        if not self.refused:
            self._phase = _Phase.WORK
            self._allow(None)
            super().allContentReceived()

    def requestDone(self, request: Request) -> None:
        """The answer is written; the next request may follow on this connection, or be here already."""
        if self._phase is _Phase.WORK:
            self._phase = _Phase.IDLE
            self._allow(self.factory.limits.idle_timeout)
        if self.factory.ending:
            self.persistent = False
            if request.endless:
                self._cut_timer = self.callLater(_LINGER, self._abort)
        super().requestDone(request)
        self._note_progress()

    # -- another protocol ----------------------------------------------------------

    def switch(self, receiver: Receiver) -> bytes:
        """The request under way has changed the protocol: from now on the client's bytes go to `receiver`.

        Gives those that have come already, after the request. The connection ends with its transport.
        """
        self._receiver = receiver
        alsoProvides(self, IHalfCloseableProtocol)
        pieces: list[bytes] = self._dataBuffer
        early = b"".join(pieces)
        pieces.clear()
        return early

    def readConnectionLost(self) -> None:
        """The client sends no more; only told once the protocol is another."""
        if self._receiver is not None:
            self._receiver.ended()

    def writeConnectionLost(self) -> None:
        """We said that we send no more, and the system has taken it."""

    # -- limits of time -----------------------------------------------------------

    def setTimeout(self, period: float | None) -> None:
        """Twisted's timer is not used."""

    def resetTimeout(self) -> None:
        """Twisted's timer is not used."""

    @property
    def _begun(self) -> bool:
        """Whether there is a part of a head, if no request is under way."""
        return bool(self.requests or self._buffer)

    def _note_progress(self) -> None:
        """Something came, or was worked off."""
        limits: Limits = self.factory.limits
        if self._phase is _Phase.BODY:
            self._allow(limits.head_timeout)
        elif self._phase is _Phase.IDLE and self._begun:
            self._phase = _Phase.HEAD
            self._allow(limits.head_timeout)
        elif self._phase is _Phase.HEAD and not self._begun:  # it was an empty line, of no meaning
            self._phase = _Phase.IDLE
            self._allow(limits.idle_timeout)

    def _allow(self, seconds: float | None) -> None:
        """Give the client so long from now; None is for ever. One delayed call serves a whole connection."""
        if seconds is None:
            self._deadline = None
            return
        self._deadline = self.factory.reactor.seconds() + seconds
        if self._timer is None:
            self._timer = self.callLater(seconds, self._look_at_clock)
        elif self._timer.getTime() > self._deadline:
            self._timer.reset(seconds)

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        left = self._deadline - self.factory.reactor.seconds()
        if left > 0:
            self._timer = self.callLater(left, self._look_at_clock)
        elif self._phase is _Phase.BODY:
            self.refuse(408, "nothing of the request's body came within limits.headTimeout")
        elif self._begun:
            self.refuse(408, _LATE_HEAD)
        else:
            self.close_soon()

    # -- ends --------------------------------------------------------------------------

    def _broken(self) -> None:
        """An internal fault outside of any resource costs this connection."""
        self._log.failure("internal error while reading from a client")
        if self._phase is _Phase.WORK:
            self._abort()
        else:
            self.refuse(500, "internal error; the log has the details")

    def refuse(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        """Answer with an error before the request is whole, and close; what still comes is not read."""
        if self._phase is _Phase.CLOSING:
            return
        self.refused = True
        accept = self.requests[-1].accepts() if self.requests else ""
        kind, body = error_body(accept, status, message, _CODES.get(status))
        lines = [
            b"HTTP/1.1 %d %b" % (status, reason(status)),
            b"Content-Type: %b" % kind.encode(),
            b"Content-Length: %d" % len(body),
            b"Date: " + self.factory.date(),
            # Whether there is an Origin may not be known yet.
            b"Access-Control-Allow-Origin: *",
            *(f"{name}: {value}".encode() for name, value in headers),
            b"Connection: close",
        ]
        is_head = bool(self.requests) and getattr(self, "_command", b"") == b"HEAD"
        self.transport.writeSequence([b"\r\n".join(lines), b"\r\n\r\n", b"" if is_head else body])
        if self.requests and hasattr(self, "_command"):  # else there was no request line
            request = self.requests[-1]
            request.known_as(self._command, self._path, self._version)
            request.startedWriting, request.code, request.sentLength = True, status, len(body)
            self.factory.log(request)
        self._close_within(_LINGER, half=True)

    def loseConnection(self) -> None:
        """Flush, then close; by force when the client has not taken what is left after `limits.idleTimeout`."""
        self._close_within(self.factory.limits.idle_timeout)

    def close_soon(self) -> None:
        """Flush, then close; by force when the client does not read."""
        self._close_within(_CUT_LIMIT)

    def close_if_idle(self) -> None:
        """Close the connection unless a request is under way."""
        if not self.busy:
            self.loseConnection()

    def _close_within(self, seconds: float, half: bool = False) -> None:
        """Read no more, flush, then close. With `half`, what the client still sends is thrown away in the meantime.

        Closing with unread data would send a reset, which can destroy an answer on its way.
        """
        self._phase = _Phase.CLOSING
        self._allow(None)
        self._buffer = b""
        if self._cut_timer is None:
            self._cut_timer = self.callLater(seconds, self._abort)
        half_close = getattr(self.transport, "loseWriteConnection", None)
        if half and half_close is not None and not self.secure:
            self._networkProducer.unregisterProducer()
            half_close()
        else:
            super().loseConnection()

    def _abort(self) -> None:
        self._phase = _Phase.CLOSING
        self._cut_timer = None
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:
        """The client is gone."""
        self._phase = _Phase.CLOSING
        self._deadline = None
        for timer in (self._timer, self._cut_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._timer = self._cut_timer = None
        super().connectionLost(reason)
        if self._receiver is not None:
            self._receiver.lost()
        self.factory.closed(self)
