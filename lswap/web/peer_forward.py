"""The road of a request to a peer: without a queue, a lease or a swap; straight there, unless the peer has to be woken.

Differs from the road to a model (`lswap.web.road`) in where the request goes, in its headers
(`lswap.core.peer_request`) and in the words of a failure. Source: routing reference, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypedDict

from lswap.core.headers import Headers
from lswap.core.peer_request import peer_lines
from lswap.errors import UpstreamError
from lswap.net.dial import Origin
from lswap.service.peers import Peers, PeerServer
from lswap.service.sleeper import Sleeper
from lswap.web.road import Road
from lswap.web.sleeper_road import SleeperRoad

__all__ = ["PeerRoad", "ToPeer", "to_peer"]


class ToPeer(TypedDict, total=False):
    """What `Forwarder.forward` is told of a request to a peer."""

    road: Callable[..., Road]
    known_as: str


def to_peer(peers: Peers, peer: tuple[str, str] | None) -> ToPeer:
    """The way to a peer and its model, for `Forwarder.forward`; nothing where it is a local one."""
    return {"road": partial(PeerRoad, peers, peer[0]), "known_as": "/".join(peer)} if peer is not None else {}


class PeerRoad(SleeperRoad):
    """One request on its way to a peer."""

    __slots__ = ("_peers", "_server", "_where")

    def __init__(self, peers: Peers, where: str, *args: Any) -> None:
        super().__init__(*args)
        self._peers = peers
        self._where = where
        self._server: PeerServer | None = None

    def _acquire(self) -> None:
        server = self._server = self._peers.get(self._where)
        if self._peers.ending:
            self._fail(500, "peer proxy is shutting down")
        elif server is None:
            self._fail(404, "no peer found for requested model")
        elif server.upstream is None:
            self._fail(502, f"peer proxy error: peer {self._where}: {server.problem}")
        else:
            super()._acquire()

    def _sleeper(self) -> Sleeper | None:
        return self._server.sleeper if self._server is not None else None

    def _set_out(self) -> None:
        assert self._server is not None and self._server.upstream is not None
        self._send(self._server.upstream)

    def _header_lines(self, origin: Origin, headers: Headers, length: int | None) -> list[bytes]:
        assert self._server is not None
        lines = peer_lines(headers, origin.netloc, length, self._metered, self._server.peer.api_key)
        if self._server.proxy_authorization is not None:
            lines.append(b"Proxy-Authorization: " + self._server.proxy_authorization + b"\r\n")
        return lines

    def _unanswered(self, error: UpstreamError) -> None:
        self._fail(502, f"peer proxy error: peer {self._where}: {error}")
