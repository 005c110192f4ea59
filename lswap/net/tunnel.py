"""A tunnel: two connections whose bytes go to each other unread, once both sides have switched protocols (websockets).

Each side is the push producer of the other, so that one that does not read is not written to without end. The end of
one direction is passed on as such, for the last word of the other side is still to come. The tunnel is over when both
connections are gone. `lswap.net.connection` hands over the server's connection, `lswap.web.channel` the client's;
`lswap.web.tunnels` joins them. Source: routing reference, section 9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

__all__ = ["FLUSH_LIMIT", "HURRY", "LINGER", "Side", "Tunnel"]

#: Seconds of silence for which a tunnel stays when one direction has ended.
LINGER = 30.0
#: The same when the process behind the server's side is gone, or lswap is to end.
HURRY = 1.0
#: Seconds that a side gets to take what is left for it when the other one is gone.
FLUSH_LIMIT = 15.0


class Tunnel:
    """Two sides, `client` and `server`; `over` is called once, when both connections are gone."""

    def __init__(
        self, clock: IReactorTime, client: Any, server: Any, over: Callable[[], object], *, half: tuple[bool, bool]
    ) -> None:
        """`client` and `server` are transports. `half`: whether each can end one direction alone; TLS cannot."""
        self.clock = clock
        #: Bytes that came from the server.
        self.received = 0
        self.client = Side(self, client, half[0])
        self.server = Side(self, server, half[1])
        self.client.other, self.server.other = self.server, self.client
        self._tell: Callable[[], object] | None = over
        self._linger = LINGER
        self._timer: IDelayedCall | None = None

    def start(self, early: bytes) -> None:
        """Let the bytes flow; `early` came from the client before."""
        self.client.start()
        self.server.start()
        if early:
            self.client.data(early)

    def moved(self, side: Side, count: int) -> None:
        """Bytes came from a side."""
        if side is self.server:
            self.received += count
        if self._timer is not None:
            self._timer.reset(self._linger)

    def wait_for_end(self) -> None:
        """One direction is over: the other may take its time while something comes."""
        if self._timer is None:
            self._timer = self.clock.callLater(self._linger, self._waited)

    def hurry(self) -> None:
        """Do not wait for long any more: the end is near."""
        self._linger = HURRY
        if self._timer is not None:
            self._timer.reset(HURRY)
        else:
            self.wait_for_end()

    def _waited(self) -> None:
        self._timer = None
        self.close()

    def close(self, seconds: float = FLUSH_LIMIT) -> None:
        """Close both connections when they have taken what is left for them; by force after so many seconds."""
        self.server.close(seconds)
        self.client.close(seconds)

    def both_gone(self) -> None:
        """Both connections are gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()


@implementer(IPushProducer)
class Side:
    """One connection of a tunnel: takes the bytes that come from it (`lswap.net.call.Receiver`)."""

    def __init__(self, tunnel: Tunnel, transport: Any, half: bool) -> None:
        self.other: Side
        self._tunnel = tunnel
        self._transport = transport
        self._half = half
        #: It sends no more; it is told no more; its connection is gone.
        self.has_ended = self._told = self.gone = False
        self._closing = False
        self._force: IDelayedCall | None = None

    def start(self) -> None:
        """Whatever fed and held this connection before is over: the other side feeds it from now on."""
        self._transport.unregisterProducer()
        self._transport.registerProducer(self.other, True)
        self._transport.resumeProducing()

    # -- what comes from this connection ---------------------------------------------

    def data(self, data: bytes) -> None:
        """Bytes came: on with them."""
        if not self.other.deaf:
            self.other._transport.write(data)
        self._tunnel.moved(self, len(data))

    def ended(self) -> None:
        """This side sends no more."""
        if self.has_ended or self.gone:
            return
        self.has_ended = True
        if self.other.has_ended:
            self._tunnel.close()
        else:
            self._tunnel.wait_for_end()
            self.other.tell_end()

    def lost(self) -> None:
        """The connection is gone; the other side gets what was on its way, and no more."""
        if self.gone:
            return
        self.gone = True
        if self._force is not None:
            self._force.cancel()
            self._force = None
        if self.other.gone:
            self._tunnel.both_gone()
        else:
            self.other.close(FLUSH_LIMIT)

    def hurry(self) -> None:
        """What is behind this connection is gone."""
        self._tunnel.hurry()

    # -- what goes to this connection --------------------------------------------------

    @property
    def deaf(self) -> bool:
        """Whether nothing more can be sent to it."""
        return self._told or self._closing or self.gone

    def tell_end(self) -> None:
        """Nothing more will come for this side; it may still send."""
        if self.deaf:
            return
        self._told = True
        if self._half:
            self._transport.unregisterProducer()
            self._transport.loseWriteConnection()
        else:
            self.close(FLUSH_LIMIT)

    def close(self, seconds: float) -> None:
        """Close when what is left is taken; by force after so many seconds. A later call may only shorten the time."""
        if self.gone:
            return
        if self._force is None:
            self._force = self._tunnel.clock.callLater(seconds, self._abort)
        elif self._force.getTime() > self._tunnel.clock.seconds() + seconds:
            self._force.reset(seconds)
        if not self._closing:
            self._closing = True
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    def _abort(self) -> None:
        self._force = None
        self._transport.abortConnection()

    # -- as the producer of the other connection ------------------------------------

    def pauseProducing(self) -> None:
        """The other side is full: read no more from this one."""
        if not (self.has_ended or self._closing or self.gone):
            self._transport.pauseProducing()

    def resumeProducing(self) -> None:
        """The other side has room again."""
        if not (self.has_ended or self._closing or self.gone):
            self._transport.resumeProducing()

    def stopProducing(self) -> None:
        """The other side is gone; `lost` follows."""
