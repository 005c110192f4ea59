"""The body of a call that lswap makes for itself, in one piece.

treq's own way with bytes takes turns of the process's reactor, and asks it for the time.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

__all__ = ["OnePiece"]


@implementer(IBodyProducer)
class OnePiece:
    """Writes its data when it is asked to begin."""

    def __init__(self, data: bytes) -> None:
        self.length = len(data)
        self._data = data

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """See `IBodyProducer`."""
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """It is over already."""

    def resumeProducing(self) -> None:
        """It is over already."""

    def stopProducing(self) -> None:
        """It is over already."""
