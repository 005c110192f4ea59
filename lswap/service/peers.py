"""The peers: other servers whose models are offered here. Their connections, and the way to each (direct or by proxy).

No queue, no limit, no state: a peer minds its own models. A reload keeps the connections of the peers that are reached
as before. Read `lswap.web.peer_forward` for the road of a request to one, `docs/peers.md` for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lswap.core.command import split
from lswap.core.magic import destination, listed, packets_for
from lswap.core.model import Config, Peer, Wake
from lswap.core.proxy_env import ProxyRules
from lswap.net.dial import Origin
from lswap.net.process import Processes
from lswap.net.proxy_dial import AbsoluteOrigin, ProxyEndpoint
from lswap.net.upstream import Upstream
from lswap.net.wake import CommandWaker, PacketWaker, Waker
from lswap.service.sleeper import CONNECT_LIMIT, UNHEARD_LIMIT, Bedroom, Sleeper

__all__ = ["PeerServer", "Peers"]


class PeerServer:
    """One peer, and the connections to it; `upstream` is None when there is no way, and `problem` says why."""

    __slots__ = ("peer", "problem", "proxy_authorization", "sleeper", "upstream")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.upstream: Upstream | None = None
        self.problem = ""
        #: Told with each request to a proxy that reads it.
        self.proxy_authorization: bytes | None = None
        #: The machine, when it may be asleep.
        self.sleeper: Sleeper | None = None

    def let_go(self) -> None:
        """Take no new requests on it; those under way end as they began, those that wait for it to wake up are told."""
        if self.sleeper is not None:
            self.sleeper.stop("its configuration has changed")


class Peers:
    """All peers of the configuration in force."""

    def __init__(
        self, reactor: Any, config: Config, environment: Mapping[str, str], processes: Processes | None = None
    ) -> None:
        """@param environment: where the variables of proxies are looked up, and what commands that wake peers get.

        @param processes: runs those commands.
        """
        self._reactor = reactor
        self._environment = environment
        self._processes = processes
        self._watching = False
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
            if old is not None and _reached_alike(old.peer, peer):
                del former[peer.id]
                old.peer = peer
                self._servers[peer.id] = old
            else:
                self._servers[peer.id] = self._reached(peer)
        if self._watching:
            self.watch()
        for old in former.values():
            old.let_go()
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
            timeouts.connect if peer.wake is None else min(timeouts.connect or CONNECT_LIMIT, CONNECT_LIMIT),
            timeouts.response_header,
            timeouts.tls_handshake,
            timeouts.idle_conn,
            through,
            timeouts.keepalive,
            0.0 if peer.wake is None else UNHEARD_LIMIT,
        )
        if peer.wake is not None:
            server.sleeper = self._sleeper(peer, peer.wake)
        return server

    def _sleeper(self, peer: Peer, wake: Wake) -> Sleeper:
        bedroom = Bedroom(url=peer.proxy, check_path=wake.check_endpoint, api_key=peer.api_key, timeout=wake.timeout)
        waker: Waker
        if wake.mac or self._processes is None:
            packets = packets_for(wake.mac, wake.password)
            waker = PacketWaker(self._reactor, packets, listed(wake.broadcast, destination))
        else:
            waker = CommandWaker(self._reactor, self._processes, split(wake.command), self._environment)
        return Sleeper(self._reactor, bedroom, waker)

    def watch(self) -> None:
        """Begin to watch the peers that may be asleep."""
        self._watching = True
        for server in self._servers.values():
            if server.sleeper is not None:
                server.sleeper.start()

    def shut_down(self) -> None:
        """Take no new requests, and let none wait for a peer to wake up."""
        self.ending = True
        for server in self._servers.values():
            if server.sleeper is not None:
                server.sleeper.stop()

    def close(self) -> None:
        """Close all connections; requests under way fail. May be called twice."""
        self.shut_down()
        for server in self._servers.values():
            if server.upstream is not None:
                server.upstream.close()
        for upstream in self._former:
            upstream.close()


def _reached_alike(old: Peer, new: Peer) -> bool:
    """Whether the way to a peer stays as it was."""
    if (old.proxy, old.timeouts, old.wake) != (new.proxy, new.timeouts, new.wake):
        return False
    return new.wake is None or old.api_key == new.api_key  # with which it is watched
