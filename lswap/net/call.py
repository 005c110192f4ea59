"""One request on its way to a model server, and who takes its answer.

Read `lswap.net.connection` next, which carries a call out. Promise: nothing reaches a sink before `Upstream.send` has
returned; then it is told of everything that comes back, and either of the end or of one failure, unless the call is
aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from lswap.core.framing import ResponseHead
from lswap.errors import UpstreamError
from lswap.net.body import Body

if TYPE_CHECKING:
    from lswap.net.connection import Connection

__all__ = ["Call", "Receiver", "Sink"]


class Sink(Protocol):
    """Takes one answer: `interim` any number of times, then `answer`, then `piece` until one of them says `last`.

    `failed` comes instead of what is missing, and is final. Nothing comes after `Call.abort`.
    """

    def interim(self, head: ResponseHead) -> None:
        """A 1xx answer other than 100 and 101."""

    def answer(self, head: ResponseHead, data: bytes, last: bool) -> None:
        """The head, with what of the body came along (raw, in the framing of `head.framing`)."""

    def piece(self, data: bytes, last: bool) -> None:
        """More of the body, raw; empty only if `last`."""

    def failed(self, error: UpstreamError) -> None:
        """There will be no (more of the) answer."""


class Receiver(Protocol):
    """Takes the bytes of a connection that has switched to another protocol."""

    def data(self, data: bytes) -> None:
        """Bytes came."""

    def ended(self) -> None:
        """The other side sends no more, but may still read."""

    def lost(self) -> None:
        """The connection is gone."""

    def hurry(self) -> None:
        """Whoever was behind the connection is gone: do not wait for long for anything."""


@implementer(IPushProducer)
class Call:
    """One request on its way. As a producer it pauses and resumes the answer.

    `head` is the request's, with the empty line, in pieces. `sink` is None once it is to hear no more.
    """

    __slots__ = (
        "body",
        "connection",
        "dialing",
        "head",
        "method",
        "paused",
        "repeated",
        "reused",
        "sink",
        "switched",
        "upgrade",
    )

    def __init__(self, method: bytes, head: Sequence[bytes], body: Body | None, sink: Sink) -> None:
        self.method = method
        self.head = head
        self.body = body
        self.sink: Sink | None = sink
        #: The connection that serves it, from the first byte of the request to the last one of the answer.
        self.connection: Connection | None = None
        #: The connection that is still being made.
        self.dialing: Deferred[Any] | None = None
        #: Whether the connection has served before.
        self.reused = False
        #: Whether this is its second attempt: a connection that had served before closed under the first.
        self.repeated = False
        #: Whether the taker of the answer is full.
        self.paused = False
        #: The protocols that the request asks to switch to, in lower case.
        self.upgrade: frozenset[bytes] = frozenset()
        #: Called instead of the sink when the server has switched to one of them: with the head, the bytes after it
        #: and the connection. Gives the one who takes the bytes from then on.
        self.switched: Callable[[ResponseHead, bytes, Connection], Receiver] | None = None

    def abort(self) -> None:
        """Give up: close the connection at once; the sink hears no more. May be called at any time, also twice."""
        self.sink = None
        if self.connection is not None:
            self.connection.drop()
        elif self.dialing is not None:
            self.dialing.cancel()

    def fail(self, error: UpstreamError) -> None:
        """Tell the sink that there will be no (more of the) answer, if it still listens; for those who carry it out."""
        sink, self.sink = self.sink, None
        if sink is not None:
            sink.failed(error)

    def pauseProducing(self) -> None:
        """The taker of the answer is full. An answer that has not begun is held back once its head is here."""
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resumeProducing(self) -> None:
        """The taker has room again."""
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    def stopProducing(self) -> None:
        """The taker is gone."""
        self.abort()
