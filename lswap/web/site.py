"""The HTTP server: all client connections, and what they share. Read `lswap.web.channel` and `.request` next."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.web import http, server
from twisted.web.resource import IResource

from lswap.core.headers import Headers
from lswap.core.known_heads import HeadMemory, RequestHead
from lswap.core.model import Limits
from lswap.web.channel import Channel
from lswap.web.request import Request

__all__ = ["Site"]

#: Twisted's class has no annotations.
_Base: Any = server.Site


class Site(_Base):  # type: ignore[misc]
    """All connections, and what they share."""

    noisy = False

    def __init__(self, reactor: Any, resource: IResource, limits: Limits, on_fault: Callable[[Request], None]) -> None:
        super().__init__(resource, requestFactory=Request, reactor=reactor, parsePOSTFormSubmission=False)
        self.protocol = Channel
        self.limits = limits
        self.on_fault = on_fault
        #: Whether the head (method, path, headers) of a request shows that no good key comes with it.
        self.refuses_early: Callable[[bytes, bytes, Headers], bool] | None = None
        #: Told of each request that is over.
        self.access_log: Callable[[Request], None] | None = None
        self.seconds: Callable[[], float] = reactor.seconds
        #: Heads of requests, as clients send the same one again and again.
        self.heads: HeadMemory[RequestHead] = HeadMemory()
        self.channels: set[Channel] = set()
        #: Set at the end: connections are not kept any more.
        self.ending = False
        self._until_empty: list[Deferred[None]] = []
        self._date = (0, b"")

    def date(self) -> bytes:
        """The value of a Date header, made once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, http.datetimeToString(now))
        return self._date[1]

    def log(self, request: Any) -> None:
        """A request is over: its line in the log. Twisted calls it at the proper end of an answer."""
        if self.access_log is not None:
            request.log_once(self.access_log)

    def acceptableProtocols(self) -> list[bytes]:
        """What TLS offers to clients. Twisted would add HTTP/2 where the package `h2` is, which `Channel` is not."""
        return [b"http/1.1"]

    def startFactory(self) -> None:
        """No access log of Twisted's, and none of its timers."""

    def stopFactory(self) -> None:
        """Nothing was started."""

    def closed(self, channel: Channel) -> None:
        """A connection is gone."""
        self.channels.discard(channel)
        if not self.channels:
            waiting, self._until_empty = self._until_empty, []
            for waiter in waiting:
                waiter.callback(None)

    def close_idle(self) -> None:
        """Close the connections that have no request under way, and the others after theirs."""
        self.ending = True
        for channel in list(self.channels):
            channel.close_if_idle()

    def when_empty(self) -> Deferred[None]:
        """Fires when there is no connection left; what was written to them is on its way then."""
        if not self.channels:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._until_empty.append(waiter)
        return waiter

    def abort(self) -> None:
        """Close all connections hard."""
        for channel in list(self.channels):
            channel.transport.abortConnection()
