"""Websockets (`lswap.net.tunnel`, `lswap.web.tunnels`): bytes both ways, every end of them, over genuine transports."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import State
from lswap.core.hooks import Cause, Reason
from lswap.net.tunnel import FLUSH_LIMIT, HURRY, LINGER, Tunnel
from tests.memory import MemoryLswap, MemorySocket, StandIn

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}", ttl: 5}
  b: {cmd: "server --port ${PORT}"}
  i: {cmd: "server --port ${PORT}", compat: {ignoreWebsockets: true}}
"""
UPGRADE = (
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nupgrade: WebSocket\r\nX-Mine: 1\r\n\r\n"


class TunnelCase(SynchronousTestCase):
    """A ready model, and a client."""

    def setUp(self) -> None:
        """Nothing is under way."""
        self.lswap = MemoryLswap(CONFIG)
        self.lswap.ready("a")
        self.client = self.lswap.client()

    @property
    def model(self) -> StandIn:
        """The server of model a."""
        return self.lswap.models["a"]

    def server(self, name: str = "a") -> MemorySocket:
        """The model server's end of the last connection."""
        return self.lswap.models[name].request._connection

    def ask(self, name: str = "a", path: str = "/v1/ws") -> None:
        """Ask for a websocket."""
        self.client.send("GET", f"/upstream/{name}{path}", headers=UPGRADE)

    def open(self, name: str = "a", path: str = "/v1/ws") -> MemorySocket:
        """Open a tunnel; the model server's end of it."""
        self.ask(name, path)
        self.lswap.models[name].request.write(AGREED)
        server = self.server(name)
        self.lswap.turn()
        self.assertIn(b" 101 ", self.client.take())
        # From now on its bytes are no requests.
        self.lswap.models[name]._connections.remove(server)
        return server

    def from_client(self, data: bytes) -> None:
        """The client sends."""
        self.client.raw(data)

    def from_server(self, server: MemorySocket, data: bytes) -> None:
        """The model server sends."""
        server.peer.inbox += data
        self.lswap.turn()

    def shut(self, socket: MemorySocket) -> None:
        """One side says that it sends no more."""
        socket.shutdown(1)
        self.lswap.turn()

    def assert_over(self) -> None:
        """Nothing is held any more."""
        self.lswap.turn()
        self.assertEqual(self.lswap.leftovers(), [])
        self.assertEqual(len(self.lswap.service._tunnels), 0)
        self.assertTrue(self.client.gone)

    def assert_open(self) -> None:
        """The request counts still."""
        self.assertEqual(len(self.lswap.inflight), 1)
        self.assertEqual(self.lswap.scheduler.inflight("a"), 1)


class OpeningTests(TunnelCase):
    """How a tunnel comes about, or does not."""

    def test_request(self) -> None:
        """The request arrives with what it asks for; the agreement comes back with its headers."""
        self.ask()
        request = self.model.request
        self.assertEqual((request.method, request.target), ("GET", "/v1/ws"))
        self.assertEqual(request.header("Connection"), "Upgrade")
        self.assertEqual(request.header("Upgrade"), "websocket")
        self.assertEqual(request.header("Sec-WebSocket-Key"), "dGhlIHNhbXBsZSBub25jZQ==")
        request.write(AGREED)
        self.lswap.turn()
        head = self.client.take().lower()
        self.assertTrue(head.startswith(b"http/1.1 101 switching protocols\r\n"), head)
        for line in (b"connection: upgrade\r\n", b"upgrade: websocket\r\n", b"x-mine: 1\r\n"):
            self.assertEqual(head.count(line), 1, head)
        self.assertTrue(head.endswith(b"\r\n\r\n"), head)
        self.assertNotIn(b"transfer-encoding", head)

    def test_bytes_that_came_with_the_heads(self) -> None:
        """Nothing is lost of what either side sent too early."""
        lines = "\r\n".join(["GET /upstream/a/ws HTTP/1.1", "Host: t", *(f"{n}: {v}" for n, v in UPGRADE)])
        self.client.raw(lines.encode() + b"\r\n\r\nearly")
        server = self.server()
        self.client.raw(b"bird")
        self.assertEqual(server.inbox, b"")
        self.model.request.write(AGREED + b"worm")
        self.lswap.turn()
        self.assertEqual(server.inbox, b"earlybird")
        self.assertTrue(self.client.take().endswith(b"\r\n\r\nworm"))

    def test_refusal(self) -> None:
        """Any other answer is an ordinary one, and the client's connection goes on."""
        self.ask()
        self.model.request.answer(426, b"no")
        self.assertEqual(self.client.read().body, b"no")
        self.ask()
        self.assertEqual(len(self.model.requests), 2)

    def test_other_protocol(self) -> None:
        """A server that switches to something else, or says to nothing, has not understood: 502."""
        for answer in (AGREED.replace(b"WebSocket", b"h2c"), b"HTTP/1.1 101 X\r\n\r\n"):
            self.ask()
            self.model.request.write(answer)
            self.lswap.turn()
            self.assertEqual(self.client.read().status, 502)
            self.assertTrue(self.model.request.aborted)

    def test_unasked(self) -> None:
        """A server that switches without having been asked to: 502. What is no websocket is not asked for."""
        for headers, version in (
            ((), "1.1"),
            ((("Connection", "upgrade"), ("Upgrade", "h2c")), "1.1"),
            (UPGRADE, "1.0"),
        ):
            client = self.lswap.client()
            client.send("GET", "/upstream/a/ws", headers=headers, version=version)
            self.assertIsNone(self.model.request.header("Upgrade"))
            self.model.request.write(AGREED)
            self.lswap.turn()
            self.assertEqual(client.read().status, 502)
            client.leave()

    def test_client_leaves_first(self) -> None:
        """A client that goes before the agreement leaves nothing behind."""
        self.ask()
        self.client.leave()
        self.assertTrue(self.model.request.aborted)
        self.assertEqual(self.lswap.leftovers(), [])


class FlowTests(TunnelCase):
    """What flows, and how much is kept."""

    def test_both_ways(self) -> None:
        """Bytes arrive as they were sent, whatever they look like."""
        server = self.open()
        for data in (b"\x81\x05hello", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 300):
            self.from_client(data)
            self.assertEqual(server.recv(1 << 20), data)
            self.from_server(server, data)
            self.assertEqual(self.client.take(), data)
        self.assertEqual(self.lswap.inflight._all.copy().pop().bytes_sent(), len(bytes(range(256)) * 300) + 7 + 18)

    def assert_bounded(self, sink: MemorySocket, send: Any, source: MemorySocket, take: Any) -> None:
        """What the taker does not take stays with the sender, but for one buffer; then all of it arrives."""
        sink.room = 1000
        total = 0
        for _ in range(64):
            send(b"x" * 65536)
            total += 65536
        # What lswap has taken in and not got rid of.
        kept = total - len(source.peer.inbox) - len(sink.inbox)
        self.assertLess(kept, 400_000)
        self.assertGreater(len(source.peer.inbox), total // 2)
        sink.room = 1 << 30
        got = 0
        while got < total:
            self.lswap.turn()
            piece = take()
            self.assertTrue(piece, got)
            got += len(piece)
        self.assertEqual(got, total)

    def test_slow_server(self) -> None:
        """A server that does not read is not written to without end."""
        server = self.open()
        self.assert_bounded(server, self.from_client, self.client.socket, lambda: server.recv(1 << 20))

    def test_slow_client(self) -> None:
        """A client that does not read is not written to without end."""
        server = self.open()
        self.assert_bounded(
            self.client.socket,
            lambda data: self.from_server(server, data),
            server,
            lambda: self.client.socket.recv(1 << 20),
        )


class EndTests(TunnelCase):
    """Every end, and what the other side sees of it."""

    def test_client_ends_first(self) -> None:
        """The server gets the last frame and the end, and may still answer; with its own end all is over."""
        server = self.open()
        self.client.socket.peer.inbox += b"bye"
        self.shut(self.client.socket)
        self.assertEqual((server.recv(100), server.eof), (b"bye", True))
        self.assertFalse(server.peer.closed)
        self.assert_open()
        self.from_server(server, b"bye bye")
        self.assertEqual(self.client.take(), b"bye bye")
        self.assert_open()
        server.close()
        self.assert_over()
        self.assertTrue(self.client.closed)
        self.assertFalse(self.client.socket.reset)

    def test_server_ends_first(self) -> None:
        """The client gets the last frame and the end, and may still answer; with its own end all is over."""
        server = self.open()
        server.peer.inbox += b"bye"
        self.shut(server)
        self.assertEqual(self.client.take(), b"bye")
        self.assertTrue(self.client.closed)
        self.assert_open()
        self.from_client(b"bye bye")
        self.assertEqual(server.recv(100), b"bye bye")
        self.assert_open()
        self.client.leave()
        self.assert_over()
        self.assertTrue(server.peer.closed)
        self.assertFalse(server.reset)

    def test_one_side_never_ends(self) -> None:
        """When one direction is over, the other is waited for while something comes, and not for ever."""
        for first in ("client", "server"):
            self.client = self.lswap.client()
            server = self.open()
            self.shut(self.client.socket if first == "client" else server)
            for _ in range(3):
                self.lswap.turn(LINGER - 1)
                if first == "client":
                    self.from_server(server, b"x")
                else:
                    self.from_client(b"x")
                self.assert_open()
            self.lswap.turn(LINGER)
            self.client.take()
            self.assert_over()

    def test_silence_is_no_end(self) -> None:
        """A tunnel with both directions open may be silent as long as it likes, and keeps its model."""
        server = self.open()
        self.lswap.turn(100_000)
        self.assert_open()
        self.from_client(b"still")
        self.assertEqual(server.recv(100), b"still")

    def test_client_vanishes(self) -> None:
        """A reset by the client: the server gets what was on its way, then the end."""
        server = self.open()
        server.room = 0
        self.from_client(b"last words")
        self.client.reset()
        self.assert_open()
        server.room = 1000
        self.assert_over()
        self.assertEqual((server.recv(100), server.eof), (b"last words", True))

    def test_server_vanishes(self) -> None:
        """A reset by the server: the client gets what was on its way, then the end."""
        server = self.open()
        self.client.socket.room = 0
        self.from_server(server, b"last words")
        server.setsockopt(0, 13, b"")
        server.close()
        self.lswap.turn()
        self.assert_open()
        self.client.socket.room = 1000
        self.assertEqual(self.client.take(), b"last words")
        self.assert_over()

    def test_nobody_takes_the_rest(self) -> None:
        """The side that is left gets a bounded time to take what is left for it."""
        server = self.open()
        server.room = 0
        self.from_client(b"last words")
        self.client.reset()
        self.lswap.turn(FLUSH_LIMIT - 1)
        self.assert_open()
        self.lswap.turn(1)
        self.assert_over()
        self.assertTrue(server.reset)

    def test_cancelled(self) -> None:
        """The API for cancelling requests ends a websocket as it ends any other."""
        self.client.send("GET", "/upstream/a/props", headers=UPGRADE)
        self.model.request.write(AGREED)
        self.lswap.turn()
        [entry] = self.lswap.inflight.snapshot(0)
        other = self.lswap.client()
        self.assertEqual(other.ask("POST", f"/api/inflight/{entry['id']}/cancel").status, 200)
        self.lswap.turn(HURRY)
        self.assert_over()


class ModelTests(TunnelCase):
    """What a websocket means for its model."""

    def test_keeps_its_model(self) -> None:
        """It is work: no idle end, no eviction while it is open; both after it."""
        self.open()
        self.lswap.turn(60)
        other = self.lswap.client()
        other.chat("b")
        self.lswap.turn(60)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.client.leave()
        self.model.shut()
        self.lswap.turn(LINGER)
        self.lswap.turn(LINGER)
        self.assertEqual(self.lswap.running(), {"b": "ready"})

    def test_end_of_the_model(self) -> None:
        """When the process is gone, a client that stays on is not waited for."""
        server = self.open()
        self.lswap.child("a").stop(Cause(Reason.UNLOAD))
        self.lswap.turn()
        self.shut(server)
        self.assertTrue(self.client.closed)
        self.lswap.turn(HURRY)
        self.assert_over()

    def test_ignored(self) -> None:
        """A websocket that its model ignores neither starts it nor waits for it, and is in no list."""
        self.client.send("GET", "/upstream/i/props", headers=UPGRADE)
        answer = self.client.read()
        error = json.loads(answer.body)["error"]
        self.assertEqual((answer.status, error["code"]), (409, "conflict"))
        self.assertEqual(error["message"], "model i is not loaded; ignored websocket requests cannot start it")
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.lswap.ready("i")
        server = self.open("i", "/props")  # a path that would be in the list
        self.assertEqual(self.lswap.inflight.snapshot(0), [])
        self.assertEqual(self.lswap.scheduler.inflight("i"), 0)
        self.from_client(b"hello")
        self.assertEqual(server.recv(100), b"hello")
        other = self.lswap.client()
        other.chat("b")
        self.lswap.turn(1)
        self.assertEqual(self.lswap.running(), {"b": "ready"})

    def test_ignored_while_it_ends(self) -> None:
        """A model that is about to go is not asked any more: what it would send is cut off anyway."""
        self.lswap.ready("i")
        self.lswap.models["i"].group.obeys = False
        self.lswap.router.unload(("i",))
        self.lswap.turn()
        self.assertEqual(self.lswap.child("i").state, State.STOPPING)
        self.client.send("GET", "/upstream/i/props", headers=UPGRADE)
        self.assertEqual(self.client.read().status, 409)

    def test_ignored_but_no_websocket(self) -> None:
        """Any other request to such a model is an ordinary one."""
        self.client.send("GET", "/upstream/i/ws")
        self.assertEqual(self.lswap.running(), {"i": "ready"})


class Transport(StringTransport):
    """As Twisted's own are: there need not be a producer to take away."""

    def unregisterProducer(self) -> None:
        """No producer any more."""
        self.producer = None


class EncryptedTests(SynchronousTestCase):
    """Connections that cannot end one direction alone."""

    def test_ends(self) -> None:
        """The end of one side closes the other, which still gets what was on its way; over is said once."""
        clock, client, server = Clock(), Transport(), Transport()
        said: list[str] = []
        tunnel = Tunnel(clock, client, server, lambda: said.append("over"), half=(False, False))
        tunnel.start(b"")
        tunnel.server.data(b"bye")
        tunnel.server.ended()
        self.assertEqual((client.value(), client.disconnecting, server.disconnecting), (b"bye", True, False))
        tunnel.client.lost()
        self.assertEqual((server.disconnecting, said), (True, []))
        tunnel.server.lost()
        tunnel.server.lost()
        self.assertEqual((said, clock.getDelayedCalls()), (["over"], []))


class ShutdownTests(TunnelCase):
    """The end of lswap."""

    def stop(self) -> Deferred[None]:
        """Stop the service."""
        self.lswap.service._guard.stop()
        self.lswap.service.put_signals_back = lambda: None  # type: ignore[method-assign]
        return self.lswap.service.stopService()

    def test_open_tunnels_are_closed(self) -> None:
        """They do not hold up the end: what is on its way is written, then both sides are closed."""
        server = self.open()
        self.from_server(server, b"last")
        ended = self.stop()
        self.assertEqual(self.client.take(), b"last")
        self.lswap.turn(HURRY)
        self.assert_over()
        self.assertTrue(server.eof)
        self.lswap.turn(HURRY)
        self.successResultOf(ended)

    def test_deaf_sides(self) -> None:
        """Also when neither side reads."""
        server = self.open()
        server.room = self.client.socket.room = 0
        self.from_client(b"x")
        self.from_server(server, b"x")
        ended = self.stop()
        self.lswap.turn(HURRY)
        self.assert_over()
        self.lswap.turn(HURRY)
        self.successResultOf(ended)

    def test_hurry_counts_for_all(self) -> None:
        """Also when one side is gone already, and the other one takes its time with the rest."""
        server = self.open()
        server.room = 0
        self.from_client(b"x")
        self.client.reset()
        self.stop()
        self.lswap.turn(HURRY)
        self.assert_over()

    def test_late_agreement(self) -> None:
        """A websocket that comes about while lswap ends is over at once."""
        self.ask()
        self.stop()
        self.model.request.write(AGREED)
        self.lswap.turn()
        self.lswap.turn(HURRY)
        self.assert_over()
