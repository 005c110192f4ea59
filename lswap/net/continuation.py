"""Continues an event stream that began before the model's server was asked: the sink of a call after a loading stream.

Status and headers are out already. A stream of events is handed on as `lswap.net.relay` does it; anything else, such as
an error of the server, is collected (bounded) and told as an event, because bare JSON would break the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lswap.core.framing import CHUNKED, ChunkFollower, ResponseHead, chunk
from lswap.errors import UpstreamError

if TYPE_CHECKING:
    from lswap.net.relay import Downstream

__all__ = ["Continuation"]

#: Bytes that are kept of an answer that is no stream of events.
_LIMIT = 1 << 20


class Continuation:
    """The sink. `over(error)` is called once, as by a relay; `begun` tells whether the server has answered.

    `as_event(status, body)` gives the whole rest of the stream for an answer that is none.
    """

    __slots__ = (
        "_as_event",
        "_client",
        "_decoder",
        "_kept",
        "_over",
        "_raw",
        "_size",
        "begun",
        "bytes",
        "on_head",
        "status",
        "tap",
    )

    def __init__(
        self,
        client: Downstream,
        over: Callable[[UpstreamError | None], None],
        as_event: Callable[[int, bytes], bytes],
    ) -> None:
        self._client = client
        self._over = over
        self._as_event = as_event
        self._decoder: ChunkFollower | None = None
        self._raw = False
        self._kept: list[bytes] | None = None
        self._size = 0
        #: False until the server answers: an error before that is the caller's to tell.
        self.begun = False
        self.status = 0
        self.bytes = 0
        self.on_head: Callable[[ResponseHead], None] | None = None
        #: Gets each piece of the body as it came, as of a relay.
        self.tap: Callable[[bytes], None] | None = None

    @property
    def payload(self) -> int:
        """Bytes of body handed on so far."""
        return self.bytes

    def interim(self, head: ResponseHead) -> None:
        """Too late for these."""

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """The head decides how to go on."""
        if self.on_head is not None:
            self.on_head(head)
        self.begun = True
        self.status = head.status
        kind = (head.value(b"content-type") or b"").lower()
        # Nobody asked for a coding, and in the middle of a body in plain text there can be none.
        plain = (head.value(b"content-encoding") or b"identity").lower() == b"identity"
        if not (200 <= head.status < 300 and b"text/event-stream" in kind and plain):
            self._kept = []
        self._raw = self._kept is None and head.framing == CHUNKED and self._client.http11
        if head.framing == CHUNKED and not self._raw:
            self._decoder = ChunkFollower()
        self.piece(data, last)

    def piece(self, data: bytes, last: bool) -> None:
        """More of the body."""
        self.bytes += len(data)
        if self.tap is not None and data:
            self.tap(data)
        if self._raw:
            if data:
                self._client.pass_on(data)
        else:
            for part in self._decoded(data):
                self._take(part)
            if last:
                self._close()
        if last:
            self._finish(None)

    def failed(self, error: UpstreamError) -> None:
        """Cut the stream, or leave it to the caller when the server never answered.

        Of an answer that was collected nothing is out yet: it is told as far as it came, and the stream ends well.
        """
        if self._kept is not None:
            self._close()
            self._finish(error)
            return
        if self.begun:
            self._client.take_from(None)
            self._client.cut(reset=not self._client.http11)
        self._over(error)

    def _close(self) -> None:
        """The last bytes of the body."""
        if self._kept is not None:
            self._send(self._as_event(self.status, b"".join(self._kept)))
        if self._client.http11:
            self._client.pass_on(b"0\r\n\r\n")

    def _finish(self, error: UpstreamError | None) -> None:
        self._client.take_from(None)
        # Let go first: with the end, the client's next request may begin, in this very turn.
        self._over(error)
        self._client.end()

    def _decoded(self, data: bytes) -> list[bytes]:
        if self._decoder is None:
            return [data] if data else []
        spans: list[bytes] = []
        if data:
            self._decoder.feed(data, spans)
        return spans

    def _take(self, part: bytes) -> None:
        if self._kept is None:
            self._send(part)
        elif self._size < _LIMIT:
            self._size += len(part)
            self._kept.append(part)

    def _send(self, data: bytes) -> None:
        if data:
            self._client.pass_on(b"".join(chunk(data)) if self._client.http11 else data)
