"""Hands one answer from a model server to one client, in the reactor turn it came in.

The framings of both sides decide how: bytes go on as they are where client and server agree, else the body is framed
anew. A cut answer is cut towards the client, never ended cleanly. Back pressure: the call is the producer of the
client's connection. `lswap.web.road` makes the pair, and is told once when all is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lswap.core.framing import CHUNKED, CLOSE, ChunkFollower, ResponseHead, chunk
from lswap.core.headers import interim_lines, response_lines
from lswap.errors import UpstreamError
from lswap.net.connection import Call

__all__ = ["Downstream", "Relay"]


class Downstream(Protocol):
    """The client's side of an answer: raw bytes, head included."""

    #: Whether the client speaks HTTP/1.1, and so understands chunks.
    http11: bool
    #: Whether the client's connection ends with this answer.
    closing: bool
    #: Whether the request came with an `Origin`.
    cross_origin: bool

    def date(self) -> bytes:
        """The value of a `Date` header for now."""

    def interim(self, data: bytes) -> None:
        """Write a whole 1xx answer."""

    def begin(self, status: int, data: Sequence[bytes]) -> None:
        """Write the head, and what there is of the body."""

    def pass_on(self, data: bytes) -> None:
        """Write raw bytes of the body."""

    def end(self) -> None:
        """The answer is whole."""

    def cut(self, reset: bool) -> None:
        """The answer is broken off: flush what was written, then close; with `reset`, close hard."""

    def take_from(self, producer: Call | None) -> None:
        """Pause and resume this producer as the client reads; None for no more."""


class Relay:
    """The sink of one call. `over(error)` is called once: None when the answer is whole, else why it is not.

    `begun` tells whether the client has got anything; an error before that is the caller's to answer.
    """

    __slots__ = (
        "_by_close",
        "_client",
        "_decoder",
        "_follower",
        "_over",
        "_wrap",
        "begun",
        "bytes",
        "on_head",
        "status",
        "tap",
    )

    def __init__(self, client: Downstream, over: Callable[[UpstreamError | None], None]) -> None:
        self._client = client
        self._over = over
        self._decoder: ChunkFollower | None = None
        self._follower: ChunkFollower | None = None
        self._wrap = False
        self._by_close = False
        self.begun = False
        self.status = 0
        #: Bytes of body handed on so far, framing included.
        self.bytes = 0
        #: Told of the head as it goes out.
        self.on_head: Callable[[ResponseHead], None] | None = None
        #: Gets each piece of the body as it came, framing included, after it was written. To be set in `on_head` at the
        #: latest.
        self.tap: Callable[[bytes], None] | None = None

    @property
    def payload(self) -> int:
        """Bytes of body handed on so far, without framing."""
        return self._follower.delivered if self._follower is not None else self.bytes

    def interim(self, head: ResponseHead) -> None:
        """Pass a 1xx answer on to a client that understands it."""
        if self._client.http11:
            status = b"HTTP/1.1 %d %s\r\n" % (head.status, head.reason)
            self._client.interim(b"".join([status, *interim_lines(head), b"\r\n"]))

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """Choose the framing, write the head and the first bytes."""
        client = self._client
        lines = [b"HTTP/1.1 %d %s\r\n" % (head.status, head.reason)]
        if head.known is not None:
            lines += head.known.lines(head.length, client.date(), client.cross_origin)
        else:
            lines += response_lines(head, client.date(), client.cross_origin)
        closing = client.closing
        self._by_close = not client.http11 and head.framing in (CHUNKED, CLOSE)
        if head.framing == CHUNKED:
            if client.http11:
                lines.append(b"Transfer-Encoding: chunked\r\n")
            else:
                self._decoder = ChunkFollower()
        elif head.framing == CLOSE and client.http11:
            self._wrap = True
            lines.append(b"Transfer-Encoding: chunked\r\n")
        if closing:
            lines.append(b"Connection: close\r\n")
        lines.append(b"\r\n")
        if self.on_head is not None:
            self.on_head(head)
        self.begun = True
        self._follower = head.follower
        self.status = head.status
        lines += self._framed(data, last)
        client.begin(head.status, lines)
        if self.tap is not None and data:
            self.tap(data)
        if last:
            self._finish()

    def piece(self, data: bytes, last: bool) -> None:
        """More of the body."""
        out = data
        if self._wrap or self._decoder is not None:
            out = b"".join(self._framed(data, last))
        else:
            self.bytes += len(data)
        if out:
            self._client.pass_on(out)
        if self.tap is not None and data:
            self.tap(data)
        if last:
            self._finish()

    def failed(self, error: UpstreamError) -> None:
        """Cut the answer, or leave it to the caller when none began."""
        if self.begun:
            self._client.take_from(None)
            # Only where the end of the connection means "whole" does a cut have to be a reset.
            self._client.cut(reset=self._by_close)
        self._over(error)

    def _framed(self, data: bytes, last: bool) -> Sequence[bytes]:
        self.bytes += len(data)
        if self._decoder is not None:
            spans: list[bytes] = []
            if data:
                self._decoder.feed(data, spans)
            return spans
        if self._wrap:
            pieces = list(chunk(data)) if data else []
            if last:
                pieces.append(b"0\r\n\r\n")
            return pieces
        return [data] if data else []

    def _finish(self) -> None:
        self._client.take_from(None)
        # Let go first: with the end, the client's next request may begin, in this very turn.
        self._over(None)
        self._client.end()
