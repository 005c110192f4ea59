"""TCP transports that send at once what the system takes, instead of in the next turn of the reactor.

Twisted's own put every write into a buffer and ask the reactor for a turn: two more system calls and 10 to 20 us for
each piece of an answer. Here a write goes to the socket first, and only what is left takes that way. Touches private
attributes of Twisted's transports, in this module alone. `lswap.net.reactor` makes them; TLS stands on top of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet import tcp
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST

__all__ = ["Connector", "Port"]

#: Bytes that are sent at once. Of more, the socket would take a part, and the rest would have to be copied.
_AT_ONCE = 65536
#: The class has annotations that its own mixins do not keep.
_Connection: Any = tcp.Connection


class _WriteThrough(_Connection):  # type: ignore[misc]
    """A connection whose `write` tries the socket first."""

    __slots__ = ()

    def doRead(self) -> Any:
        """Hand what has come to the protocol."""
        try:
            data = self.socket.recv(self.bufferSize)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def write(self, data: bytes) -> None:
        """Send `data`, or as much as possible of it; the rest in order, as the socket takes it.

        Not for a pull producer, which hears of its next turn only from the buffer. A broken connection is found in its
        own place: by the ordinary way, in the reactor's turn.
        """
        if (
            not self._tempDataBuffer
            and not self.dataBuffer
            and 0 < len(data) <= _AT_ONCE
            and self.connected
            and not self.disconnecting
            and not self._writeDisconnecting
            and not self._writeDisconnected
            and not self.TLS
            and (self.producer is None or self.streamingProducer)
        ):
            try:
                sent = self.socket.send(data)
            except OSError:
                pass
            else:
                if sent == len(data):
                    return
                data = data[sent:]
        super().write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send the pieces as one."""
        pieces = list(iovec)
        if sum(map(len, pieces)) <= _AT_ONCE:
            self.write(b"".join(pieces))
        else:
            super().writeSequence(pieces)


class _Server(_WriteThrough, tcp.Server):
    """The server's end of a connection."""


class _Client(_WriteThrough, tcp.Client):
    """The client's end of a connection."""


class Port(tcp.Port):
    """A listening port whose connections write through."""

    transport = _Server


class Connector(tcp.Connector):
    """Makes connections that write through."""

    def _makeTransport(self) -> tcp.Client:
        host, port, address, reactor = self.host, self.port, self.bindAddress, self.reactor
        return _Client(host, port, address, self, reactor)  # type: ignore[no-untyped-call]
