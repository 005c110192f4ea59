"""The peers: other servers whose models are offered here. Their connections, and the way to each (direct or by proxy).

No queue, no limit, no state: a peer minds its own models. A reload keeps the connections of the peers that are reached
as before. Read `lswap.web.peer_forward` for the road of a request to one, `docs/peers.md` for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lswap.core.model import Config, Peer
from lswap.core.proxy_env import ProxyRules
from lswap.net.dial import Origin
from lswap.net.proxy_dial import AbsoluteOrigin, ProxyEndpoint
from lswap.net.upstream import Upstream

__all__ = ["PeerServer", "Peers"]


class PeerServer:
    """One peer, and the connections to it; `upstream` is None when there is no way, and `problem` says why."""

    __slots__ = ("peer", "problem", "proxy_authorization", "upstream")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.upstream: Upstream | None = None
        self.problem = ""
        #: Told with each request to a proxy that reads it.
        self.proxy_authorization: bytes | None = None


class Peers:
    """All peers of the configuration in force."""

    def __init__(self, reactor: Any, config: Config, environment: Mapping[str, str]) -> None:
        """@param environment: where the variables of proxies are looked up."""
        self._reactor = reactor
        self._rules = ProxyRules(environment)
        #: Set at the end: no new requests.
        self.ending = False
        self._servers: dict[str, PeerServer] = {}
        #: Connections to peers that a reload has changed or removed, for the requests that still use them.
        self._former: list[Upstream] = []
        self.take_over(config)

    def get(self, peer_id: str) -> PeerServer | None:
        """The peer with this ID."""
        return self._servers.get(peer_id)

    def take_over(self, config: Config) -> None:
        """Go on by another configuration; requests under way end as they began."""
        former, self._servers = self._servers, {}
        self._former = [upstream for upstream in self._former if upstream.busy]
        for peer in config.peers.values():
            old = former.get(peer.id)
            if old is not None and (old.peer.proxy, old.peer.timeouts) == (peer.proxy, peer.timeouts):
                del former[peer.id]
                old.peer = peer
                self._servers[peer.id] = old
            else:
                self._servers[peer.id] = self._reached(peer)
        for old in former.values():
            if old.upstream is not None:
                old.upstream.forget_idle()
                self._former.append(old.upstream)

    def _reached(self, peer: Peer) -> PeerServer:
        server = PeerServer(peer)
        timeouts = peer.timeouts
        try:
            origin = Origin(peer.proxy)
            proxy = self._rules.proxy_for(origin.scheme, origin.host, origin.port)
        except ValueError as problem:
            server.problem = str(problem)
            return server
        through = None
        if proxy is not None:
            encrypted = origin.scheme == "https"
            through = ProxyEndpoint(self._reactor, proxy, timeouts.connect, origin if encrypted else None)
            if not encrypted:
                origin = AbsoluteOrigin(peer.proxy)
                server.proxy_authorization = proxy.authorization
        server.upstream = Upstream(
            self._reactor,
            origin,
            timeouts.connect,
            timeouts.response_header,
            timeouts.tls_handshake,
            timeouts.idle_conn,
            through,
            timeouts.keepalive,
        )
        return server

    def shut_down(self) -> None:
        """Take no new requests."""
        self.ending = True

    def close(self) -> None:
        """Close all connections; requests under way fail. May be called twice."""
        self.ending = True
        for server in self._servers.values():
            if server.upstream is not None:
                server.upstream.close()
        for upstream in self._former:
            upstream.close()
