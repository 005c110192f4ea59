"""A request that keeps what the client wrote, and can be answered raw.

Keeps the headers as they came, spools the body, finds the model's name in it, and is the client's side of a relay
(`lswap.net.relay.Downstream`). `lswap.web.channel` makes it, the tree in `lswap.web.root` answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.http_headers import Headers as HeaderMap

from lswap.core.find_model import Found, ModelFinder, find_quickly
from lswap.core.headers import Headers, is_upgrade
from lswap.core.known_heads import RequestHead, with_length
from lswap.core.model import ApiKey
from lswap.core.routes import is_model_route
from lswap.net.body import Spool
from lswap.net.connection import Call

__all__ = ["Request"]

#: A body beyond this size is searched for the model's name while it arrives.
_SMALL = 65536
#: Twisted's class has no annotations.
_Base: Any = server.Request


class Request(_Base):  # type: ignore[misc]
    """One request. `raw_headers` has its headers in order and spelling, `spool` its body."""

    defaultContentType = None
    _log = Logger()

    #: What is known of the head beyond this request; None where it is not what came.
    head: RequestHead | None = None
    #: The client's key, once it was let in; None while no keys are configured.
    api_key: ApiKey | None = None
    #: Called when the client is gone before the answer is whole; for the one who serves the request.
    on_gone: Callable[[], object] | None = None
    http11 = True
    closing = False
    cross_origin = False
    #: The answer has no end of its own: a client that reads it too slowly is not waited for.
    endless = False
    #: The answer was broken off: nothing more is written, and the connection closes.
    broken = False
    producer: Any = None
    queued = False
    _parsed: HeaderMap | None = None
    _own: HeaderMap | None = None
    _parts: list[bytes] | None = None
    _logged = False
    _known = False
    _finder: ModelFinder | None = None
    _searched = False

    def __init__(self, channel: Any, queued: object = False) -> None:
        """Sets up what Twisted's constructors do, less what most requests never need."""
        self.channel = channel
        self.transport = channel.transport
        self.client, self.host = channel.ends
        self.notifications: list[Deferred[None]] = []
        self.cookies: list[bytes] = []
        self._adapterCache: dict[Any, Any] = {}
        self.raw_headers: Headers = []
        #: The first value of each header by its name in lower case.
        self.first_values: dict[bytes, bytes] = {}
        #: The address of the client's end of the connection.
        self.remote: str = channel.remote
        self.spool = Spool()
        self.content: Any = self.spool
        #: When its first line came; seconds of the clock of `Site`.
        self.began_at: float = channel.factory.seconds()

    # -- headers -----------------------------------------------------------------

    @property
    def requestHeaders(self) -> HeaderMap:
        """The headers as Twisted knows them; made when somebody asks, as the hot road does not."""
        if self._parsed is None:
            self._parsed = HeaderMap()
            for name, value in self.raw_headers:
                self._parsed.addRawHeader(name, value)
        return self._parsed

    @property
    def responseHeaders(self) -> HeaderMap:
        """The headers of an answer of our own; what is relayed has none of these."""
        if self._own is None:
            self._own = HeaderMap()
        return self._own

    @responseHeaders.setter
    def responseHeaders(self, value: HeaderMap) -> None:
        self._own = value

    def take_head(self, head: RequestHead, length: int) -> None:
        """The headers of a head that was read before, with this length; -1 is none."""
        self.head = head
        self.raw_headers = with_length(head.headers, head.place, length)
        self.first_values = head.firsts
        if length >= 0:
            self.first_values = {**head.firsts, b"content-length": b"%d" % length}

    def set_headers(self, headers: Headers) -> None:
        """These in place of all."""
        self.head = None
        self.raw_headers = headers
        self.first_values = {name.lower(): value for name, value in reversed(headers)}
        self._parsed = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header; `name` in lower case."""
        return self.first_values.get(name)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header; `name` in lower case."""
        if name not in self.first_values:
            return []
        return [value for header, value in self.raw_headers if header.lower() == name]

    @property
    def wants_websocket(self) -> bool:
        """Whether the request asks to become a websocket."""
        return b"upgrade" in self.first_values and is_upgrade(self.raw_headers)

    @property
    def postpath(self) -> list[bytes]:
        """The parts of the path without their escapes, for klein; made when it asks, as the hot road does not."""
        if self._parts is None:
            self._parts = [unquote_to_bytes(part) for part in self.path[1:].split(b"/")]
        return self._parts

    @postpath.setter
    def postpath(self, value: list[bytes]) -> None:
        self._parts = value

    # -- what the channel does ---------------------------------------------------

    def gotLength(self, length: int | None) -> None:
        """The head is complete. The body goes to the spool, which exists already."""

    def parseCookies(self) -> None:
        """Cookies are for the model server."""

    def handleContentChunk(self, data: bytes) -> None:
        """Take a piece of the body."""
        if self.channel.refused:
            return
        if self.spool.length + len(data) > self.channel.factory.limits.request_body:
            self.channel.refuse(413, "request body is larger than limits.requestBody")
            return
        try:
            self.spool.write(data)
        except OSError as problem:
            self._log.error("cannot store the body of a request: {problem}", problem=problem)
            self.channel.refuse(507, "the server has no room for the body of this request")
            return
        if self.spool.length > _SMALL:
            self._search(data)

    def _search(self, data: bytes) -> None:
        """Look for the model's name in a large body while it arrives, so that it need not be read again."""
        if not self._searched:
            self._searched = True
            method, target = self.channel.under_way
            path, _, query = target.partition(b"?")
            if is_model_route(method, path) or path.startswith(b"/upstream/"):  # there a peer's name may change
                self._finder = ModelFinder(method, query, self._content_type())
                for piece in self.spool.pieces():
                    self._finder.feed(piece)
        elif self._finder is not None:
            self._finder.feed(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """The request is whole; `path` is its target, never an absolute one."""
        self.method, self.uri, self.clientproto = command, path, version
        self.path = self.uri.partition(b"?")[0]
        self.args: dict[bytes, list[bytes]] = {}
        self.http11 = version == b"HTTP/1.1"
        self.closing = not self.channel.persistent
        self.cross_origin = self.header(b"origin") is not None
        self.process()

    def process(self) -> None:
        """Give the request to the tree."""
        site = self.channel.factory
        self.site = site
        self.prepath: list[bytes] = []
        try:
            self.render(site.resource)
        except Exception:
            self.processingFailed(Failure())

    def processingFailed(self, reason: Failure) -> Failure:
        """An internal fault: its traceback to the log, an error to the client; a begun answer is cut."""
        self._log.failure("internal error while answering {method} {path}", reason, method=self.method, path=self.path)
        if not self.over:
            self.site.on_fault(self)
        return reason

    @property
    def over(self) -> bool:
        """Whether there is nothing more to be said: the answer is whole or broken off, or the client is gone."""
        return bool(self.finished or self._disconnected or self.broken)

    def write(self, data: bytes) -> None:
        """Write a piece of an answer of our own; before the first, the headers that all of them have."""
        if self.broken or self._disconnected:
            return
        if not self.startedWriting:
            self.setHeader(b"Date", self.date())
            if self.cross_origin and not self.responseHeaders.hasHeader(b"access-control-allow-origin"):
                self.setHeader(b"Access-Control-Allow-Origin", b"*")
            if self.closing:
                self.setHeader(b"Connection", b"close")
        super().write(data)

    def finish(self) -> None:
        """The answer is whole. One that was broken off stays so, whoever still wants to end it."""
        if not self.broken:
            super().finish()

    def isSecure(self) -> bool:
        """Whether the connection is encrypted."""
        return bool(self.channel is not None and self.channel.secure)

    def getRequestHostname(self) -> bytes:
        """What klein asks for; no route of ours depends on the host, and some are odd."""
        return b"lswap"

    # -- what a relay does ---------------------------------------------------------

    def date(self) -> bytes:
        """The value of a Date header for now."""
        return self.channel.factory.date()  # type: ignore[no-any-return]

    def interim(self, data: bytes) -> None:
        """Write a 1xx answer."""
        if not self._disconnected:
            self.channel.write(data)

    def begin(self, status: int, data: Sequence[bytes]) -> None:
        """Write a raw head and what there is of the body."""
        self.startedWriting = True
        self.code = status
        if not self._disconnected:
            self.channel.writeSequence(data)

    def pass_on(self, data: bytes) -> None:
        """Write raw bytes of the body."""
        if not self._disconnected:
            self.transport.write(data)

    def end(self) -> None:
        """A raw answer is whole."""
        if not self.over:
            self.finish()

    def cut(self, reset: bool) -> None:
        """Break the answer off so that the client sees it; flush first what was written, unless `reset`."""
        if self.over:
            return
        self.broken = True
        if reset:
            self.channel.transport.abortConnection()
        else:
            self.channel.close_soon()

    def take_from(self, producer: Call | None) -> None:
        """The producer to pause and resume as the client reads."""
        if producer is not None:
            if not self.over:
                self.registerProducer(producer, True)
        elif self.producer is not None:
            if self._disconnected:
                self.producer = None
            else:
                self.unregisterProducer()

    def connectionLost(self, reason: Failure) -> None:
        """The client is gone."""
        self.producer = None
        factory = self.channel.factory
        super().connectionLost(reason)
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()
        # After those who serve the request have heard of it, and said what they had sent.
        factory.log(self)

    # -- for the log --------------------------------------------------------------------

    def known_as(self, command: bytes, target: bytes, version: bytes) -> None:
        """The head is here, or as much of it as there will be."""
        self.method, self.uri, self.clientproto = command, target, version
        self._known = True

    def log_once(self, write: Callable[[Request], None]) -> None:
        """Call `write` the first time only, and not for a request whose head never came."""
        if self._known and not self._logged:
            self._logged = True
            write(self)

    # -- for resources ----------------------------------------------------------------

    def named_model(self) -> Found | None:
        """The model that this request names, if it does."""
        finder = self._finder
        if finder is None:
            small = self.spool.in_memory and self.spool.length <= _SMALL
            found = find_quickly(self.method, self._content_type(), self.spool.whole()) if small else None
            if found is not None:
                return found
            finder = ModelFinder(self.method, self.uri.partition(b"?")[2], self._content_type())
            if finder.reads_body and self.spool.in_memory:
                return finder.find(self.spool.whole())
            if finder.reads_body:
                for piece in self.spool.pieces():
                    finder.feed(piece)
        return finder.find(None)

    def _content_type(self) -> bytes:
        return self.header(b"content-type") or b""

    @property
    def shown_remote(self) -> str:
        """The client's address for people: what a proxy in front says it is, else the connection's."""
        for name in (b"x-forwarded-for", b"x-real-ip"):
            if name in self.first_values:
                first = self.first_values[name].partition(b",")[0].strip()
                if first:
                    return first.decode("utf-8", "replace")
        return self.remote

    def accepts(self) -> str:
        """The `Accept` header, in lower case."""
        return b", ".join(self.values(b"accept")).decode("latin-1").lower()
