"""The peers of a configuration (`lswap.service.peers`): their connections, the way to them, reloads."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.magic import magic_packet
from lswap.core.model import Config, Peer, Timeouts, Wake
from lswap.errors import ConnectFailed, HostAsleep, UpstreamTimeout
from lswap.net.process import Processes
from lswap.net.upstream import Upstream
from lswap.service.peers import Peers
from lswap.service.sleeper import Sleeper
from tests.memory import FakeProcesses, StandIn
from tests.net.wire import Recorder, ask
from tests.sleeping import UdpReactor

PLACE = ("10.0.0.1", 80)
NEXT = ("10.0.0.2", 80)


def config_with(**peers: Peer) -> Config:
    """A configuration with these peers."""
    return Config(peers=peers)


def peer(url: str = "http://10.0.0.1", **timeouts: float) -> Peer:
    """A peer called p."""
    return Peer(id="p", proxy=url, models=("m",), timeouts=Timeouts(**timeouts))


class PeersCase(SynchronousTestCase):
    """One peer that listens."""

    def setUp(self) -> None:
        """It answers what the test says."""
        self.reactor = UdpReactor()
        self.server = StandIn("p", self.reactor, PLACE)
        self.server.listen()

    def peers(self, config: Config, **environment: str) -> Peers:
        """The peers, closed after the test."""
        peers = Peers(self.reactor, config, environment)
        self.addCleanup(peers.close)
        return peers

    def upstream(self, peers: Peers) -> Upstream:
        """The connections to p."""
        server = peers.get("p")
        assert server is not None and server.upstream is not None
        return server.upstream

    def ask(self, peers: Peers) -> Recorder:
        """Send a request to p."""
        recorder = ask(self.upstream(peers))
        self.reactor.turn()
        return recorder


class WayTests(PeersCase):
    """Directly, or by a proxy."""

    def test_directly(self) -> None:
        """Without a proxy the peer itself is asked; who is no peer is not known."""
        peers = self.peers(config_with(p=peer()))
        recorder = self.ask(peers)
        self.server.request.answer(200, b"here")
        self.reactor.turn()
        self.assertEqual(recorder.body, b"here")
        self.assertIsNone(peers.get("q"))

    def test_timeouts(self) -> None:
        """Those of the peer count: to connect, between probes, and for the head of the answer."""
        peers = self.peers(config_with(p=peer(connect=3, response_header=7, keepalive=5)))
        self.assertEqual(self.upstream(peers)._dialer._keepalive, 5)
        late = self.ask(peers)
        self.reactor.turn(6.9)
        self.assertIsNone(late.error)
        self.reactor.turn(0.1)
        self.assertIsInstance(late.error, UpstreamTimeout)
        self.server.silent = True
        unreached = self.ask(peers)
        self.reactor.turn(3)
        self.assertIsInstance(unreached.error, ConnectFailed)

    def test_proxy_for_http(self) -> None:
        """An http peer is asked for by its whole URL, and the proxy is told who asks."""
        environment = {"HTTP_PROXY": "http://x:y@10.0.0.1:80", "HTTPS_PROXY": "http://10.9.9.9"}
        peers = self.peers(config_with(p=peer("http://den.example:81/api")), **environment)
        self.assertEqual(self.upstream(peers).origin.target(b"/v1"), b"http://den.example:81/api/v1")
        self.ask(peers)
        self.assertEqual(len(self.server.requests), 1)
        server = peers.get("p")
        assert server is not None
        self.assertEqual(server.proxy_authorization, b"Basic eDp5")

    def test_proxy_for_https(self) -> None:
        """For an https peer the proxy is asked to connect."""
        peers = self.peers(config_with(p=peer("https://den.example/api")), HTTPS_PROXY="10.0.0.1:80")
        self.ask(peers)
        request = self.server.request
        self.assertEqual((request.method, request.target), ("CONNECT", "den.example:443"))
        self.assertEqual(self.upstream(peers).origin.target(b"/v1"), b"/api/v1")

    def test_exception(self) -> None:
        """A peer that NO_PROXY names is reached directly."""
        peers = self.peers(config_with(p=peer()), HTTP_PROXY="http://10.9.9.9", NO_PROXY="10.0.0.0/8")
        self.ask(peers)
        self.assertEqual(self.server.request.target, "/")

    def test_no_way(self) -> None:
        """A URL or a proxy that cannot be used is told, and costs the others nothing."""
        bad = {"HTTPS_PROXY": "socks5://secret@x"}
        peers = self.peers(
            config_with(p=peer(), q=Peer(id="q", proxy="https://den.example"), r=Peer(id="r", proxy="ftp://x")), **bad
        )
        for name, told in (("q", "HTTPS_PROXY"), ("r", "ftp://x")):
            server = peers.get(name)
            assert server is not None
            self.assertIsNone(server.upstream)
            self.assertIn(told, server.problem)
            self.assertNotIn("secret", server.problem)
        self.ask(peers)
        self.assertEqual(len(self.server.requests), 1)


class ReloadTests(PeersCase):
    """Another configuration."""

    def test_same_way(self) -> None:
        """A peer that is reached as before keeps its connections; what else is said of it counts at once."""
        peers = self.peers(config_with(p=Peer(id="p", proxy="http://10.0.0.1", models=("m",))))
        before = self.upstream(peers)
        peers.take_over(config_with(p=Peer(id="p", proxy="http://10.0.0.1", models=("n",), api_key="new")))
        server = peers.get("p")
        assert server is not None
        self.assertEqual(server.peer.api_key, "new")
        self.assertIs(self.upstream(peers), before)

    def test_other_way(self) -> None:
        """Requests under way end where they began, new ones go to the new place; what is unused is closed."""
        moved = StandIn("p", self.reactor, NEXT)
        moved.listen()
        peers = self.peers(config_with(p=peer()))
        under_way = self.ask(peers)
        unused = self.ask(peers)
        self.server.request.answer(200, b"x")
        self.reactor.turn()
        self.assertTrue(unused.whole)
        self.assertEqual(self.server.connections, 2)
        peers.take_over(config_with(p=peer("http://10.0.0.2")))
        self.reactor.turn()
        self.assertEqual(self.server.connections, 1)
        self.server.requests[0].answer(200, b"old")
        recorder = self.ask(peers)
        moved.request.answer(200, b"new")
        self.reactor.turn()
        self.assertEqual((under_way.body, recorder.body), (b"old", b"new"))

    def test_gone(self) -> None:
        """A peer that is no more there is not known; many reloads keep nothing of it."""
        peers = self.peers(config_with(p=peer()))
        self.ask(peers)
        self.server.request.answer()
        self.reactor.turn()
        for _ in range(3):
            peers.take_over(config_with())
            self.assertIsNone(peers.get("p"))
            peers.take_over(config_with(p=peer()))
        self.assertLess(len(peers._former), 2)

    def test_close(self) -> None:
        """The end closes everything, also what an earlier configuration has left."""
        peers = self.peers(config_with(p=peer()))
        old = self.ask(peers)
        peers.take_over(config_with(p=peer(connect=1)))
        new = self.ask(peers)
        peers.close()
        peers.close()
        self.reactor.turn()
        self.assertTrue(old.error is not None and new.error is not None)
        self.assertEqual(self.server.connections, 0)
        self.assertEqual(cast(list[object], self.reactor.getDelayedCalls()), [])


class WakeTests(PeersCase):
    """Peers that may be asleep."""

    def config(self, api_key: str = "", **wake: Any) -> Config:
        """One that listens on PLACE."""
        known = Wake(**({"mac": "ba:dc:0f:fe:e0:00", "broadcast": "10.0.0.255"} | wake))
        return config_with(p=Peer(id="p", proxy="http://10.0.0.1", models=("m",), api_key=api_key, wake=known))

    def sleeper(self, peers: Peers) -> Sleeper:
        """The machine of p."""
        server = peers.get("p")
        assert server is not None and server.sleeper is not None
        return server.sleeper

    def test_watched_from_the_start(self) -> None:
        """Not before; another peer is not watched."""
        peers = self.peers(self.config(check_endpoint="/check"))
        self.reactor.turn(1)
        self.assertEqual(self.server.requests, [])
        peers.watch()
        self.reactor.turn()
        self.assertEqual(self.server.request.target, "/check")
        self.assertIsNone(self.peers(config_with(p=peer())).get("p").sleeper)  # type: ignore[union-attr]

    def test_reload(self) -> None:
        """What is watched as before goes on; else those who wait are told, and it is watched anew."""
        peers = self.peers(self.config())
        peers.watch()
        before = self.sleeper(peers)
        peers.take_over(self.config())
        self.assertIs(self.sleeper(peers), before)
        waiting = before.when_awake()
        self.assertEqual(self.reactor.sent, [(magic_packet(bytes.fromhex("badc0ffee000")), ("10.0.0.255", 9))])
        for changed in (self.config(api_key="new"), self.config(timeout=5.0)):
            peers.take_over(changed)
            self.assertIsNot(self.sleeper(peers), before)
            before = self.sleeper(peers)
        problem = self.failureResultOf(waiting, HostAsleep).value
        self.assertEqual(str(problem), "the wait for the host was ended: its configuration has changed")
        self.server.requests.clear()
        self.reactor.turn(1)
        self.assertTrue(self.server.requests)
        waiting = self.sleeper(peers).when_awake()
        peers.take_over(config_with(p=peer()))
        self.failureResultOf(waiting, HostAsleep)

    def test_command(self) -> None:
        """In place of packets."""
        processes = FakeProcesses(self.reactor)
        config = self.config(mac="", command="ssh den 'wake up'")
        peers = Peers(self.reactor, config, {"A": "1"}, cast(Processes, processes))
        self.addCleanup(peers.close)
        peers.watch()
        waiting = self.sleeper(peers).when_awake()
        (group,) = processes.groups
        self.assertEqual((group.words, group.environment), (["ssh", "den", "wake up"], {"A": "1"}))
        group.end()
        peers.shut_down()
        self.failureResultOf(waiting, HostAsleep)

    def test_close(self) -> None:
        """Nothing is left."""
        peers = self.peers(self.config())
        peers.watch()
        waiting = self.sleeper(peers).when_awake()
        peers.close()
        peers.close()
        self.failureResultOf(waiting, HostAsleep)
        self.reactor.turn()
        self.assertEqual(cast(list[object], self.reactor.getDelayedCalls()), [])
