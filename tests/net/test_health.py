"""Waiting until a model server is ready: how often, how long, and what a server can do in the meantime."""

from __future__ import annotations

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import StartError
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.health import POLL_LIMIT, pause_after, until_healthy
from lswap.net.upstream import Upstream
from tests.net.wire import Net, Wire, ask

URL = "http://127.0.0.1:9/health"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class PauseTests(SynchronousTestCase):
    """`pause_after`."""

    def test_pause(self) -> None:
        """A fiftieth of the time waited, within bounds."""
        for waited, pause in ((0, 0.025), (1, 0.025), (2, 0.04), (5, 0.1), (12.5, 0.25), (1000, 0.25)):
            self.assertAlmostEqual(pause_after(waited), pause)


class HealthTests(SynchronousTestCase):
    """`until_healthy`."""

    def setUp(self) -> None:
        """A pool and a client."""
        self.net = Net()
        self.upstream = Upstream(self.net, Origin(URL))
        self.upstream.keeps_open[False] = True  # this server has kept its word before
        self.client = HTTPClient(UpstreamAgent(lambda _: self.upstream))

    def tearDown(self) -> None:
        """Nothing is left when all is closed."""
        self.upstream.close()
        self.net.turn()
        self.assertEqual((self.net.timers, self.upstream._all), (0, set()))

    def wait(self, limit: float = 60.0) -> Deferred[None]:
        """Begin to ask."""
        return until_healthy(self.net, self.client, URL, limit)

    def refuse_until(self, end: float) -> None:
        """Refuse all connections up to this time."""
        self.net.refuse()
        while self.net.seconds() < end:
            attempts = len(self.net.tcpClients)
            self.net.advance(0.005)
            if len(self.net.tcpClients) > attempts:
                self.net.refuse()

    def test_healthy_at_once(self) -> None:
        """The first poll goes out in this turn, and 200 is enough."""
        waiting = self.wait()
        wire = self.net.accept()
        self.assertTrue(wire.take().startswith(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"))
        self.assertNoResult(waiting)
        wire.say(OK)
        self.assertIsNone(self.successResultOf(waiting))

    def test_connection_is_free_for_the_first_client(self) -> None:
        """The poll's connection serves on."""
        waiting = self.wait()
        wire = self.net.accept()
        wire.say(OK)
        self.successResultOf(waiting)
        wire.take()
        ask(self.upstream)
        self.assertTrue(wire.take())
        self.assertEqual(len(self.net.tcpClients), 1)

    def test_refused_at_first(self) -> None:
        """It is asked again soon, and seen soon after it is ready."""
        waiting = self.wait()
        self.refuse_until(1.0)
        self.assertNoResult(waiting)
        self.assertGreater(len(self.net.tcpClients), 30)
        attempts = len(self.net.tcpClients)
        while len(self.net.tcpClients) == attempts:
            self.net.advance(0.005)
        self.assertLess(self.net.seconds(), 1.04)
        self.net.accept().say(OK)
        self.successResultOf(waiting)

    def test_other_answers_do_not_count(self) -> None:
        """Only 200 is ready; not 204, not a redirect to somewhere that is."""
        waiting = self.wait()
        wire = self.net.accept()
        for status in (b"503 Loading", b"404 No", b"204 No", b"302 Found\r\nLocation: http://10.0.0.2/", b"500 x"):
            wire.take()
            wire.say(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
            self.assertNoResult(waiting)
            self.net.advance(0.1)
        self.assertTrue(wire.take())
        self.assertEqual(self.net.hosts, ["127.0.0.1"])
        wire.say(OK)
        self.successResultOf(waiting)

    def test_broken_answers(self) -> None:
        """A server that closes, resets, or speaks something else is asked again."""
        waiting = self.wait()
        for harm in (
            Wire.end,
            Wire.reset,
            lambda wire: wire.say(b"garbage"),
            lambda wire: wire.say(b"HTTP/1.1 200 OK\r\nbad\r\n\r\n"),
        ):
            harm(self.net.accept())
            self.net.advance(0.1)
        self.net.accept().say(OK)
        self.successResultOf(waiting)
        self.assertEqual(len(self.net.tcpClients), 5)

    def test_time_is_over(self) -> None:
        """At the limit the start has failed, and the text says what the server said last."""
        for listens, text in ((False, "refused: nothing listens there"), (True, "status 503")):
            begun = self.net.seconds()
            waiting = self.wait(2.0)
            if listens:
                wire = self.net.accept()
                while not waiting.called:
                    if wire.take():
                        wire.say(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n")
                    self.net.advance(0.005)
            else:
                self.refuse_until(1.99)
                self.net.advance(0.02)
            self.assertLess(self.net.seconds() - begun, 2.02)
            error = str(self.failureResultOf(waiting, StartError).value)
            self.assertIn("health check timed out after 2s: " + URL, error)
            self.assertIn(text, error)

    def test_silent_server(self) -> None:
        """A server that accepts and says nothing is asked again after a while, on a connection of its own."""
        waiting = self.wait()
        first = self.net.accept()
        self.net.advance(POLL_LIMIT)
        self.assertEqual(first.closed, "abort")
        self.net.advance(0.2)
        second = self.net.accept()
        second.say(b"HTTP/1.1 2")
        self.net.advance(POLL_LIMIT)
        self.net.advance(0.25)
        self.net.accept().say(OK)
        self.successResultOf(waiting)
        self.assertEqual(len(self.net.tcpClients), 3)

    def test_silent_server_at_the_end(self) -> None:
        """The last poll takes no longer than what is left."""
        waiting = self.wait(7.0)
        self.net.accept()
        self.net.pump([0.1] * 60)
        self.net.accept()
        self.net.pump([0.1] * 11)
        self.assertLess(self.net.seconds(), 7.2)
        error = str(self.failureResultOf(waiting, StartError).value)
        self.assertIn("no answer within", error)

    def test_body_without_end(self) -> None:
        """The head is enough: a body that never ends holds nobody up, and is cut off after a moment."""
        for goes_on in (False, True):
            waiting = self.wait()
            wire = self.net.accept()
            wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            self.successResultOf(waiting)
            for _ in range(50):
                if wire.closed is None and goes_on:
                    wire.say(b"400\r\n" + b"x" * 1024 + b"\r\n")
                    self.net.advance(0.001)
                elif wire.closed is None:
                    self.net.advance(0.1)
            if goes_on:
                wire.say(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            self.assertEqual(wire.closed, "abort")
            self.net.turn()

    def test_cancel(self) -> None:
        """Giving up ends the poll under way, at every stage, and nothing is asked any more."""
        for stage in range(4):
            waiting = self.wait()
            if stage == 1:
                self.net.accept()
            elif stage == 2:
                self.net.accept().say(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n")
            elif stage == 3:
                self.net.accept().say(b"HTTP/1.1 503 x\r\n\r\nend")
            waiting.cancel()
            self.failureResultOf(waiting, CancelledError)
            self.upstream.forget_idle()
            attempts = len(self.net.tcpClients)
            self.net.pump([0.5] * 20)
            self.assertEqual(len(self.net.tcpClients), attempts)
            self.assertEqual(self.upstream._all, set())

    def test_connections_do_not_pile_up(self) -> None:
        """However long it takes, a server that answers slowly has one connection at a time."""
        waiting = self.wait(600.0)
        for _ in range(20):
            self.net.accept()
            self.net.advance(POLL_LIMIT)
            self.net.turn()
            self.assertEqual(len(self.upstream._all), 0)
            self.net.advance(0.25)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
