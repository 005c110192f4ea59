"""All open websockets: joins the client's connection to the server's, and ends them with lswap.

The road of a request (`lswap.web.road`) comes here when the model server has answered 101, and is told when both
connections are gone. Read `lswap.net.tunnel` for what happens in between.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from lswap.core.framing import ResponseHead
from lswap.core.headers import response_lines, upgrade_lines
from lswap.net.connection import Connection
from lswap.net.tunnel import HURRY, Tunnel
from lswap.web.request import Request

__all__ = ["Tunnels"]


class Tunnels:
    """The open ones. Once `end` was called, new ones are closed as soon as they come."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._open: set[Tunnel] = set()
        self._ending = False

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, request: Request, head: ResponseHead, data: bytes, server: Connection, over: Callable[[], None]
    ) -> Tunnel:
        """Pass the 101 on, and let the bytes flow; `data` came with the head. `over`: both connections are gone."""

        def gone() -> None:
            self._open.discard(tunnel)
            over()

        channel = request.channel
        halves = (not channel.secure, not server.encrypted)
        tunnel = Tunnel(self._clock, channel.transport, server.transport, gone, half=halves)
        self._open.add(tunnel)
        lines = [b"HTTP/1.1 101 %s\r\n" % head.reason]
        # A 101 has no body, so a length would only confuse (RFC 9110, section 8.6).
        lines += [
            line
            for line in response_lines(head, request.date(), request.cross_origin)
            if not line.lower().startswith(b"content-length:")
        ]
        lines += upgrade_lines(head.headers)
        lines += [b"\r\n", data]
        request.take_from(None)
        request.begin(101, lines)
        tunnel.received = len(data)
        tunnel.start(channel.switch(tunnel.client))
        if self._ending:
            tunnel.close(HURRY)
        return tunnel

    def end(self) -> None:
        """Close all: what is on its way is written, but nobody is waited for longer than a moment."""
        self._ending = True
        for tunnel in list(self._open):
            tunnel.close(HURRY)
