"""The road to a peer (`lswap.web.peer_forward`): names, headers, failures, beside local models."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.memory import MemoryClient, MemoryLswap, StandIn

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}"}
  local: {cmd: "server --port ${PORT}"}
peers:
  p: {proxy: "http://10.0.0.1/base", models: [m, org/deep, local, both], timeouts: {responseHeader: 5}}
  q: {proxy: "http://10.0.0.2", models: [both, only], apiKey: secret-of-q}
"""
JSON = [("Content-Type", "application/json")]


class PeerCase(SynchronousTestCase):
    """Two peers that answer everything with their names, and a client."""

    def setUp(self) -> None:
        """They listen."""
        self.lswap = MemoryLswap(CONFIG)
        self.p = StandIn("p", self.lswap.reactor, ("10.0.0.1", 80))
        self.q = StandIn("q", self.lswap.reactor, ("10.0.0.2", 80))
        for server in (self.p, self.q):
            server.says = server.name.encode()
            server.listen()
        self.client = self.lswap.client()

    def error(self, client: MemoryClient | None = None) -> tuple[int, str]:
        """Status and message of the error that the client got."""
        answer = (client or self.client).read()
        self.assertTrue(answer.complete, answer)
        return answer.status, json.loads(answer.body)["error"]["message"]

    def assert_clean(self) -> None:
        """Nothing is held for anybody."""
        self.lswap.turn()
        self.assertEqual(self.lswap.leftovers(), [])


class NameTests(PeerCase):
    """Whom a name means, and what the peer is asked for."""

    def test_names(self) -> None:
        """Qualified, or bare where it is clear; a local model wins; the peer gets its own name."""
        for name, peer, own in (
            ("m", "p", "m"),
            ("p/m", "p", "m"),
            ("org/deep", "p", "org/deep"),
            ("p/org/deep", "p", "org/deep"),
            ("p/local", "p", "local"),
            ("q/both", "q", "both"),
            ("only", "q", "only"),
        ):
            self.client.chat(name)
            self.assertEqual(self.client.read().body.decode(), peer, name)
            request = (self.p if peer == "p" else self.q).request
            self.assertEqual(request.body, json.dumps({"model": own}).encode())
        self.lswap.models["local"].says = b"here"
        self.client.chat("local")
        self.lswap.turn(1)
        self.assertEqual(self.client.read().body, b"here")

    def test_unknown(self) -> None:
        """What no peer has, or two of them, is no model."""
        for name in ("both", "p/nosuch", "p", "r/m", "deep"):
            self.client.chat(name)
            self.assertEqual(self.error(), (404, "no router for requested model"))
        self.assertEqual(self.p.requests + self.q.requests, [])

    def test_only_the_name_changes(self) -> None:
        """In JSON, forms and queries; every other byte stays."""
        boundary = "multipart/form-data; boundary=x"
        form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--x--\r\n'
        urlencoded = "application/x-www-form-urlencoded"
        for kind, before, after in (
            ("application/json", b'{ "x":1.50, "model" : "p/m","y":[ ]}', b'{ "x":1.50, "model" : "m","y":[ ]}'),
            (boundary, form % b"p/m", form % b"m"),
            (urlencoded, b"a=1;2&model=p%2Fm&b=%zz", b"a=1;2&model=m&b=%zz"),
        ):
            self.client.ask("POST", "/v1/audio/transcriptions", before, [("Content-Type", kind)])
            self.assertEqual(self.p.request.body, after)
            self.assertEqual(self.p.request.header("Content-Length"), str(len(after)))
        self.client.ask("GET", "/v1/audio/voices?x=%20;&model=p%2Fm&y")
        self.assertEqual(self.p.request.target, "/base/v1/audio/voices?x=%20;&model=m&y")

    def test_large_body(self) -> None:
        """Also in a body that is kept in a file."""
        padding = b"x" * 3_000_000
        self.client.ask("POST", "/v1/chat/completions", b'{"model":"p/m","p":"%b"}' % padding, JSON)
        self.assertEqual(self.p.request.body, b'{"model":"m","p":"%b"}' % padding)
        self.client.ask("POST", "/upstream/p/m/v1/x", b'{"model":"p/m","p":"%b"}' % padding, JSON)
        self.assertEqual(self.p.request.body, b'{"model":"m","p":"%b"}' % padding)

    def test_upstream(self) -> None:
        """Below `/upstream` the name changes where the request repeats the one of its path, and nowhere else."""
        for target, before, there, after in (
            ("p/m/x?y=1", b'{"model":"p/m"}', "/base/x?y=1", b'{"model":"m"}'),
            ("p/m/x", b'{"model":"m"}', "/base/x", b'{"model":"m"}'),
            ("p%2Fm/x%2Fy", b'{"model":"other"}', "/base/x%2Fy", b'{"model":"other"}'),
            ("m/x?model=p/m", b"", "/base/x?model=p/m", b""),
            ("p/m/a.js?model=p%2Fm", b"", "/base/a.js?model=m", b""),
            ("p/org/deep/", b"", "/base/", b""),
        ):
            method = "POST" if before else "GET"
            self.client.ask(method, "/upstream/" + target, before, JSON if before else [])
            self.assertEqual((self.p.request.target, self.p.request.body), (there, after))
        answer = self.client.ask("GET", "/upstream/p/m?x")
        self.assertEqual((answer.status, answer.header("Location")), (301, "/upstream/p/m/?x"))
        self.assertEqual(self.client.ask("GET", "/upstream/both/x").status, 404)


class HeaderTests(PeerCase):
    """What the peer learns."""

    def test_host_and_way(self) -> None:
        """Its own host; nothing of the way so far, and nothing is added to it."""
        way = [("Host", "door.example"), ("X-Forwarded-For", "1"), ("X-Forwarded-Host", "h"), ("Forwarded", "for=1")]
        self.client.chat(
            "m", [*way, ("X-Forwarded-Proto", "https"), ("Connection", "X-Hop"), ("X-Hop", "1"), ("X", "y")]
        )
        request = self.p.request
        self.assertEqual(request.target, "/base/v1/chat/completions")
        names = [name for name, _ in request.headers]
        self.assertEqual(names, ["Host", "Content-Type", "X", "Content-Length"])
        self.assertEqual(request.header("Host"), "10.0.0.1")

    def test_keys(self) -> None:
        """The peer's key takes the place of the client's; without one those go through, and none is added."""
        mine = [("Authorization", "Bearer mine"), ("x-api-key", "mine")]
        for name, server, sent, got in (
            ("only", self.q, mine, ["Bearer secret-of-q", "secret-of-q"]),
            ("only", self.q, [], ["Bearer secret-of-q", "secret-of-q"]),
            ("m", self.p, mine, ["Bearer mine", "mine"]),
            ("m", self.p, [], []),
        ):
            self.client.chat(name, sent)
            self.client.read()
            keys = [v for n, v in server.request.headers if n.lower() in ("authorization", "x-api-key")]
            self.assertEqual(keys, got)

    def test_answer(self) -> None:
        """The answer comes back as it is; a stream forbids buffering to proxies in front."""
        self.p.says = None
        self.client.chat("m")
        self.p.request.answer(418, b"teapot", [("X-Theirs", "1"), ("Content-Type", "text/event-stream")])
        answer = self.client.read()
        self.assertEqual((answer.status, answer.body, answer.header("X-Theirs")), (418, b"teapot", "1"))
        self.assertEqual(answer.header("X-Accel-Buffering"), "no")

    def test_websocket(self) -> None:
        """A websocket reaches the peer, and counts until it is closed."""
        self.p.says = None
        self.client.send("GET", "/upstream/p/m/ws", headers=[("Connection", "upgrade"), ("Upgrade", "websocket")])
        request = self.p.request
        self.assertEqual((request.header("Connection"), request.header("Host")), ("Upgrade", "10.0.0.1"))
        request.write(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhi")
        self.lswap.turn()
        self.assertTrue(self.client.take().endswith(b"\r\n\r\nhi"))
        self.assertEqual(len(self.lswap.inflight), 1)
        request.close()
        self.client.leave()
        self.assert_clean()


class FailureTests(PeerCase):
    """What goes wrong is told with the peer's name, and nothing is left."""

    def ask(self) -> tuple[int, str]:
        """Ask p for m; the error."""
        self.client.chat("m")
        self.lswap.turn(6)
        return self.error()

    def test_not_there(self) -> None:
        """Nobody listens: 502 at once; when it is back, it is reached again."""
        self.p.shut()
        self.client.chat("m")
        status, message = self.error()
        self.assertEqual(status, 502)
        self.assertTrue(message.startswith("peer proxy error: peer p: "), message)
        self.assertIn("refused", message)
        self.p.listen()
        self.client.chat("m")
        self.assertEqual(self.client.read().body, b"p")
        self.assert_clean()

    def test_no_answer(self) -> None:
        """Too late, closed, or no HTTP: 502."""
        self.p.says = None
        status, message = self.ask()
        self.assertEqual((status, "within 5 s" in message), (502, True), message)
        self.assertTrue(self.p.request.aborted)
        for said in (b"", b"SSH-2.0\r\n\r\n"):
            self.client.chat("m")
            self.p.request.write(said)
            self.p.request.close()
            self.lswap.turn()
            status, message = self.error()
            self.assertEqual(status, 502)
            self.assertTrue(message.startswith("peer proxy error: peer p: "), message)
        self.assert_clean()

    def test_cut(self) -> None:
        """An answer that the peer breaks off is cut."""
        self.p.says = None
        self.client.chat("m")
        self.p.request.begin()
        self.p.request.chunk(b"half")
        self.p.request.close()
        self.lswap.turn()
        answer = self.client.read()
        self.assertEqual((answer.body, answer.complete, self.client.closed), (b"half", False, True))
        self.assert_clean()

    def test_client_leaves(self) -> None:
        """The peer hears of it at once."""
        self.p.says = None
        self.client.chat("m")
        self.client.leave()
        self.assertTrue(self.p.request.aborted)
        self.assert_clean()

    def test_end_of_lswap(self) -> None:
        """Once the end has come, new requests are told so."""
        self.lswap.service.peers.shut_down()
        self.client.chat("m")
        self.assertEqual(self.error(), (500, "peer proxy is shutting down"))

    def test_peer_gone_by_reload(self) -> None:
        """A peer without a usable address is told as such."""
        lswap = MemoryLswap('peers: {p: {proxy: "ftp://10.0.0.1", models: [m]}}')
        client = lswap.client()
        client.chat("m")
        status, message = self.error(client)
        self.assertEqual(status, 502)
        self.assertTrue(message.startswith("peer proxy error: peer p: "), message)


class BesideTests(PeerCase):
    """Peers and local models do not touch each other."""

    def test_no_queue(self) -> None:
        """A swap under way does not hold a request to a peer, nor the other way round; there is no limit."""
        self.p.says = None
        self.lswap.models["a"].health = 503
        self.lswap.models["a"].says = b"a"
        waiting = self.lswap.client()
        waiting.chat("a")
        clients = [self.lswap.client() for _ in range(30)]
        for client in clients:
            client.chat("m")
        self.assertEqual(len(self.p.requests), 30)
        self.lswap.models["a"].health = 200
        self.lswap.turn(1)
        self.assertEqual(waiting.read().body, b"a")
        for request in self.p.requests:
            request.answer(200, b"p")
        self.assertEqual([client.read().body for client in clients], [b"p"] * 30)
        self.assert_clean()

    def test_list_of_requests(self) -> None:
        """It is in the list like any other, by the name that the client used, and can be cancelled there."""
        self.p.says = None
        self.client.chat("p/m")
        [row] = self.lswap.inflight.snapshot(0)
        self.assertEqual((row["model"], row["req_path"]), ("p/m", "/v1/chat/completions"))
        self.lswap.client().ask("POST", f"/api/inflight/{row['id']}/cancel")
        self.assertEqual(self.error()[0], 503)
        self.assertTrue(self.p.request.aborted)
        self.assert_clean()
