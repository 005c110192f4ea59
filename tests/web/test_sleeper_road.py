"""The road to a machine that may be asleep (`lswap.web.sleeper_road`), as `lswap-wol` and peers take it."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from lswap.service.sleeper import CONNECT_LIMIT
from tests.memory import MemoryClient, MemoryLswap
from tests.sleeping import FakeWaker, Host
from tests.wol.wol_case import WolCase

JSON = [("Content-Type", "application/json")]


def error_of(client: MemoryClient) -> tuple[int, str]:
    """Status and message of the error that a client got, in JSON whatever it likes."""
    answer = client.read()
    assert answer.complete and answer.header("Content-Type") == "application/json", answer
    return answer.status, json.loads(answer.body)["error"]["message"]


class HoldTests(WolCase):
    """Requests that wait."""

    def held(self, method: str = "POST", target: str = "/v1/chat/completions", body: bytes = b"{}") -> MemoryClient:
        """A request that waits."""
        client = self.client()
        client.send(method, target, body, [("X-Mine", "1"), ("Accept", "text/html"), *JSON])
        self.assertEqual(client.take(), b"")
        return client

    def test_passed_on_when_the_host_is_awake(self) -> None:
        """As it came, once."""
        client = self.held(target="/v1/a%2Fb?x=1", body=b'{"model": "a"}')
        self.host.says = b"answer"
        self.awake()
        self.assertEqual(client.read().body, b"answer")
        (request,) = self.host.requests
        self.assertEqual(
            (request.method, request.target, request.body), ("POST", "/base/v1/a%2Fb?x=1", b'{"model": "a"}')
        )
        self.assertEqual((request.header("Host"), request.header("X-Mine")), ("test", "1"))
        self.assertEqual(request.header("X-Forwarded-For"), "192.0.2.7")
        self.assertIsNone(request.header("Authorization"))
        self.assert_clean()

    def test_a_large_body_waits_on_the_disk(self) -> None:
        """Beyond a mebibyte it is not kept in memory, and arrives whole."""
        body = bytes(range(256)) * 12_000
        client = self.held(body=body)
        (channel,) = self.service.site.channels
        self.assertFalse(channel.requests[0].spool.in_memory)
        self.host.says = b"thanks"
        self.awake()
        self.assertEqual(client.read().body, b"thanks")
        self.assertEqual(self.host.request.body, body)

    def test_too_late(self) -> None:
        """An error that clients understand, and try again."""
        client = self.held()
        self.pass_time(19.9)
        self.assertEqual(client.take(), b"")
        self.pass_time(0.2)
        self.reactor.turn()
        answer = client.read()
        self.assertEqual((answer.status, answer.header("Retry-After")), (503, "5"))
        error = json.loads(answer.body)["error"]
        self.assertEqual(
            (error["message"], error["code"]), ("the host did not wake up within 20 s", "service_unavailable")
        )
        self.assertEqual(self.host.requests, [])
        self.assert_clean()

    def test_a_caller_that_left_is_not_passed_on(self) -> None:
        """Whether it closed properly or not, and with a body or without."""
        for client in (self.held(), self.held("GET", body=b"")):
            client.leave()
        self.held().reset()
        stays = self.held("GET", "/v1/models", b"")
        self.assertEqual(self.service.host.waiting, 1)
        self.host.says = b""
        self.awake()
        self.assertEqual(stays.read().status, 200)
        self.assertEqual([request.target for request in self.host.requests], ["/base/v1/models"])
        self.assert_clean()

    def test_websockets(self) -> None:
        """They wait as others do, and then bytes flow both ways."""
        client = self.client()
        client.send("GET", "/ws", headers=[("Connection", "Upgrade"), ("Upgrade", "websocket")])
        self.awake()
        self.reactor.turn()
        request = self.host.request
        self.assertEqual(request.header("Upgrade"), "websocket")
        request.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
        head, _, data = client.take().partition(b"\r\n\r\n")
        self.assertIn(b" 101 ", head)
        self.assertEqual(data, b"hello")
        client.raw(b"hi")
        self.assertEqual(bytes(request._connection.inbox), b"hi")
        request.close()
        client.leave()
        self.pass_time(1)
        self.assert_clean()

    def test_the_end_of_the_proxy(self) -> None:
        """Those who wait are told, rather than cut off."""
        client = self.held()
        self.service.stopping()
        self.assertEqual(error_of(client), (503, "the wait for the host was ended: the proxy is stopping"))
        self.assert_clean()


class FellAsleepTests(WolCase):
    """Between the last look and the request."""

    def send(self, method: str = "POST") -> MemoryClient:
        """Send a request to a host that seems awake."""
        client = self.client()
        client.send(method, "/v1/x", b"{}" if method == "POST" else b"", JSON)
        return client

    def test_no_connection(self) -> None:
        """Nothing was sent, so it is woken and waited for, and the request is served."""
        self.awake()
        self.host.sleep()
        client = self.send()
        self.pass_time(CONNECT_LIMIT + 0.1)
        self.assertEqual(self.service.host.waiting, 1)
        self.assertGreaterEqual(self.waker.wakes, 1)
        self.host.silent, self.host.says = False, b"late"
        self.pass_time(3)
        self.assertEqual(client.read().body, b"late")
        self.assertEqual(len(self.host.requests), 1)
        self.assert_clean()

    def test_no_connection_twice(self) -> None:
        """Woken once; then the client is told, and may try again."""
        self.awake()
        self.host.sleep()
        client = self.send()
        self.pass_time(CONNECT_LIMIT + 0.1)
        self.service.host._note("", certain=False)  # it answers a look, and falls asleep in the same moment
        self.pass_time(CONNECT_LIMIT + 0.1)
        status, message = error_of(client)
        self.assertEqual(status, 503)
        self.assertIn("the host fell asleep: no connection", message)
        self.assert_clean()

    def test_refused(self) -> None:
        """The machine is awake, and its server is not there: no packet helps."""
        self.awake()
        self.host._reactor.listeners.pop(self.host.address)
        client = self.send()
        status, message = error_of(client)
        self.assertEqual(status, 502)
        self.assertIn("refused", message)
        self.assertEqual(self.waker.wakes, 0)
        self.assert_clean()

    def test_a_connection_that_ends_before_the_answer(self) -> None:
        """The request may have been processed: it is not repeated. 502 from a host that is awake."""
        self.awake()
        client = self.send()
        self.host.request.close()
        self.assertEqual(error_of(client)[0], 502)
        self.assertEqual(len(self.host.requests), 1)
        self.assert_clean()

    def test_asleep_before_the_answer(self) -> None:
        """503 from one that has fallen asleep meanwhile."""
        self.awake()
        client = self.send()
        request = self.host.request
        self.host.sleep()
        self.pass_time(10)
        self.assertFalse(self.service.host.ready)
        request.close()
        status, message = error_of(client)
        self.assertEqual(status, 503)
        self.assertIn("the host fell asleep", message)
        self.assertEqual(len(self.host.requests), 1)
        self.assert_clean()

    def test_an_answer_that_breaks_off_is_cut(self) -> None:
        """It never looks complete."""
        self.awake()
        client = self.send()
        self.host.request.begin()
        self.host.request.chunk(b"half")
        self.reactor.turn()
        self.host.request.close()
        answer = client.read()
        self.assertEqual((answer.body, answer.complete, client.closed), (b"half", False, True))
        self.assert_clean()

    def test_a_client_that_leaves_a_running_answer(self) -> None:
        """The host hears of it at once."""
        self.awake()
        client = self.send()
        self.host.request.begin()
        self.reactor.turn()
        client.leave()
        self.reactor.turn()
        self.assertTrue(self.host.request.aborted)
        self.assert_clean()


PEER = """
peers:
  den:
    proxy: http://10.0.0.1:8080/base
    models: [m]
    apiKey: key-of-den
    wake: {mac: ba:dc:0f:fe:e0:00, timeout: 20}
  hut: {proxy: "http://10.0.0.2", models: [n]}
"""


class PeerTests(SynchronousTestCase):
    """A peer on a machine that sleeps, beside one that does not."""

    def setUp(self) -> None:
        """It is down."""
        self.lswap = MemoryLswap(PEER)
        self.host = Host("den", self.lswap.reactor, ("10.0.0.1", 8080))
        server = self.lswap.service.peers.get("den")
        assert server is not None and server.sleeper is not None
        self.sleeper = server.sleeper
        self.waker = FakeWaker()
        self.sleeper._waker = self.waker
        self.lswap.service.peers.watch()
        self.lswap.turn()
        self.addCleanup(self.lswap.service.peers.close)

    def test_woken_by_a_request(self) -> None:
        """The request waits, and goes on with the peer's name and key."""
        client = self.lswap.client()
        client.chat("den/m")
        self.assertEqual((client.take(), self.waker.wakes), (b"", 1))
        self.assertEqual(len(self.lswap.inflight), 1)
        self.host.says = b"hello"
        self.host.listen()
        for _ in range(10):
            self.lswap.turn(0.1)
        self.assertEqual(client.read().body, b"hello")
        self.assertEqual(self.host.request.target, "/base/v1/chat/completions")
        self.assertEqual(self.host.request.body, b'{"model": "m"}')
        self.assertEqual(self.host.request.header("Authorization"), "Bearer key-of-den")
        self.assertEqual(self.lswap.leftovers(), [])

    def test_too_late(self) -> None:
        """503, and the request is over."""
        client = self.lswap.client()
        client.chat("den/m")
        self.lswap.turn(20)
        self.assertEqual(error_of(client), (503, "the host did not wake up within 20 s"))
        self.assertEqual(self.lswap.leftovers(), [])

    def test_cancelled_by_hand(self) -> None:
        """As any request that waits."""
        client = self.lswap.client()
        client.chat("den/m")
        self.lswap.inflight.cancel_all()
        self.assertEqual(client.read().status, 503)
        self.assertEqual(self.sleeper.waiting, 0)

    def test_failures_of_one_that_is_awake(self) -> None:
        """Told as those of any peer."""
        self.host.listen()
        self.sleeper.doubt()
        self.lswap.turn()
        client = self.lswap.client()
        client.chat("den/m")
        self.host.request.close()
        status, message = error_of(client)
        self.assertEqual(status, 502)
        self.assertTrue(message.startswith("peer proxy error: peer den: "), message)

    def test_the_other_peer_never_waits(self) -> None:
        """One without `wake` fails at once."""
        client = self.lswap.client()
        client.chat("hut/n")
        self.assertEqual(client.read().status, 502)
