"""The pool: which connection serves, how long it is kept, what is sent twice, and how all of it ends."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import ConnectFailed, UpstreamClosed
from lswap.net.body import Body, Spool
from lswap.net.connection import IDLE_LIMIT
from lswap.net.dial import Origin
from lswap.net.upstream import SETTLE, Upstream
from tests.net.wire import Net, Recorder, Wire, ask

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


class PoolTestCase(SynchronousTestCase):
    """A pool whose connections are made by hand."""

    def setUp(self) -> None:
        """A reactor and a pool."""
        self.net = Net()
        self.upstream = Upstream(self.net, Origin("http://127.0.0.1:9"))
        self.upstream.keeps_open[False] = True  # this server has kept its word before

    def tearDown(self) -> None:
        """Nothing may be left when all is closed: no connection, no delayed call."""
        self.upstream.close()
        self.net.turn()
        self.assertEqual((self.upstream._all, self.upstream._dialing, self.net.timers), (set(), set(), 0))

    def served(self, answer: bytes = OK) -> Wire:
        """A connection that has served one request."""
        sink = ask(self.upstream)
        wire = self.net.accept()
        wire.say(answer)
        self.assertTrue(sink.whole)
        wire.take()
        return wire


class AfterStreamTests(PoolTestCase):
    """Some servers close their connection right after an answer, above all one in chunks, and promise to keep it."""

    def asked(self, wire: Wire) -> bool:
        """Send a request; whether it went out on this connection."""
        ask(self.upstream, b"POST")
        return bool(wire.take())

    def test_not_at_once(self) -> None:
        """Until it is known what this server does, the next request has a connection of its own."""
        wire = self.served(CHUNKS)
        self.assertFalse(self.asked(wire))
        self.assertEqual(len(self.net.tcpClients), 2)

    def test_one_that_keeps_its_word(self) -> None:
        """Once a connection was still open a little later, they serve again at once."""
        wire = self.served(CHUNKS)
        self.net.advance(SETTLE[True])
        self.assertTrue(self.asked(wire))
        wire.say(CHUNKS)
        self.assertTrue(self.asked(wire))

    def test_one_that_never_does(self) -> None:
        """No request is sent on such a connection; what has closed leaves nothing behind."""
        for _ in range(3):
            wire = self.served(CHUNKS)
            self.assertFalse(self.asked(wire))
            wire.end()
            self.assertEqual(self.upstream._idle, [])

    def test_one_that_changes_its_mind(self) -> None:
        """An early end takes the trust back."""
        wire = self.served(CHUNKS)
        self.net.advance(SETTLE[True])
        self.assertTrue(self.asked(wire))
        wire.say(CHUNKS)
        wire.end()
        wire = self.served(CHUNKS)
        self.assertFalse(self.asked(wire))

    def test_a_few_are_enough(self) -> None:
        """Many short answers before anything is known leave a few connections, not one each."""
        wires = [self.served(CHUNKS) for _ in range(20)]
        self.net.turn()
        self.assertEqual(sum(wire.alive for wire in wires), 8)
        self.net.advance(SETTLE[True])
        ask(self.upstream)
        self.assertEqual(len(self.net.tcpClients), 20)

    def test_others_serve_meanwhile(self) -> None:
        """A connection that may serve is found behind one that may not yet."""
        ask(self.upstream)
        ask(self.upstream)
        plain, streamed = self.net.accept(0), self.net.accept(1)
        plain.say(OK)
        streamed.say(CHUNKS)
        plain.take()
        self.assertTrue(self.asked(plain))
        self.net.advance(SETTLE[True])
        streamed.take()
        self.assertTrue(self.asked(streamed))

    def test_plain_answers(self) -> None:
        """It is the same with those; what a server does after one kind says nothing of the other."""
        self.assertTrue(self.asked(self.served()))
        self.upstream.keeps_open[False] = False
        self.assertFalse(self.asked(self.served()))


class ReuseTests(PoolTestCase):
    """Connections that serve again."""

    def test_one_after_the_other(self) -> None:
        """A hundred requests, one after the other, need one connection."""
        wire = self.served()
        for _ in range(99):
            sink = ask(self.upstream)
            self.assertEqual(wire.take(), b"GET / HTTP/1.1\r\n\r\n")
            wire.say(OK)
            self.assertTrue(sink.whole)
        self.assertEqual(len(self.net.tcpClients), 1)

    def test_side_by_side(self) -> None:
        """Requests that run at the same time have a connection each; all of them serve again."""
        sinks = [ask(self.upstream) for _ in range(5)]
        wires = [self.net.accept(number) for number in range(5)]
        for wire in wires:
            wire.say(OK)
        self.assertTrue(all(sink.whole for sink in sinks))
        for _ in range(5):
            ask(self.upstream)
        self.assertEqual(len(self.net.tcpClients), 5)

    def test_newest_first(self) -> None:
        """The connection that served last serves first, so that the others can grow old."""
        ask(self.upstream)
        ask(self.upstream)
        first, second = self.net.accept(0), self.net.accept(1)
        second.say(OK)
        first.say(OK)
        first.take()
        second.take()
        ask(self.upstream)
        self.assertTrue(first.take())
        self.assertFalse(second.take())

    def test_from_inside(self) -> None:
        """The end of one answer may begin the next request, on the same connection."""
        upstream = self.upstream

        class Chain(Recorder):
            """Asks again at the end."""

            def answer(self, head: object, data: bytes, last: bool) -> None:
                """The whole answer."""
                super().answer(head, data, last)  # type: ignore[arg-type]
                following.append(ask(upstream))

        following: list[Recorder] = []
        ask(upstream, sink=Chain())
        wire = self.net.accept()
        wire.take()
        wire.say(OK)
        self.assertEqual(wire.take(), b"GET / HTTP/1.1\r\n\r\n")
        wire.say(OK)
        self.assertTrue(following[0].whole)
        self.assertEqual(len(self.net.tcpClients), 1)


class AgeTests(PoolTestCase):
    """Connections that nobody uses."""

    def test_limit(self) -> None:
        """A connection is used again within the limit, and not beyond it."""
        wire = self.served()
        self.net.advance(IDLE_LIMIT - 0.1)
        ask(self.upstream)
        self.assertTrue(wire.take())
        wire.say(OK)
        self.net.advance(IDLE_LIMIT + 0.1)
        self.assertFalse(wire.alive)
        ask(self.upstream)
        self.assertEqual(len(self.net.tcpClients), 2)

    def test_sweep(self) -> None:
        """Unused connections are closed by themselves, soon after the limit, and then nothing ticks any more."""
        self.served()
        self.net.advance(3)
        ask(self.upstream)
        ask(self.upstream)
        other = self.net.accept()
        other.say(OK)
        self.net.pump([1.0] * 10)
        self.assertFalse(other.alive)
        self.assertEqual(self.net.timers, 0)

    def test_promise_of_the_server(self) -> None:
        """A server that keeps connections for a shorter time is believed, with a second in reserve."""
        wire = self.served(OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=3\r\n\r\n"))
        self.net.advance(1.9)
        ask(self.upstream)
        self.assertTrue(wire.take())
        wire.say(OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=3\r\n\r\n"))
        self.net.advance(2.05)
        ask(self.upstream)
        self.assertEqual((wire.closed, len(self.net.tcpClients)), ("abort", 2))

    def test_longer_promise(self) -> None:
        """A longer promise changes nothing: there is no need to keep connections for long."""
        self.served(OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=600\r\n\r\n"))
        self.net.advance(IDLE_LIMIT + 0.1)
        ask(self.upstream)
        self.assertEqual(len(self.net.tcpClients), 2)

    def test_configured_limit(self) -> None:
        """The limit can be made shorter, not longer."""
        for configured, kept in ((1.0, 1.0), (90.0, IDLE_LIMIT), (0.0, IDLE_LIMIT)):
            self.assertEqual(Upstream(self.net, Origin("http://h"), idle_limit=configured).idle_limit, kept)

    def test_closed_by_the_server(self) -> None:
        """A connection that the server closes leaves the pool at once."""
        self.served().end()
        self.assertEqual(self.upstream._idle, [])
        ask(self.upstream)
        self.assertEqual(len(self.net.tcpClients), 2)

    def test_forget(self) -> None:
        """Unused connections can be closed at once; used ones stay."""
        ask(self.upstream)
        busy = self.net.accept()
        idle = self.served()
        self.upstream.forget_idle()
        self.assertEqual((idle.closed, busy.closed), ("abort", None))
        self.net.turn()
        busy.say(OK)


class RetryTests(PoolTestCase):
    """What is sent twice, and what is not."""

    def test_safe_request_on_a_kept_connection(self) -> None:
        """A kept connection that the server closes, before a byte of an answer, costs a safe request nothing."""
        for method in (b"GET", b"HEAD", b"OPTIONS"):
            for how in ("end", "reset"):
                wire = self.served()
                sink = ask(self.upstream, method)
                getattr(wire, how)()
                self.assertFalse(sink.over)
                again = self.net.accept()
                self.assertTrue(again.take().startswith(method))
                again.say(OK.replace(b"ok", b"" if method == b"HEAD" else b"ok"))
                self.assertTrue(sink.whole)
                self.upstream.forget_idle()
                self.net.turn()

    def test_once_only(self) -> None:
        """The fresh connection is the last attempt."""
        wire = self.served()
        sink = ask(self.upstream)
        wire.end()
        self.net.accept().end()
        self.assertIsInstance(sink.error, UpstreamClosed)
        self.assertEqual(len(self.net.tcpClients), 2)

    def test_refused_afterwards(self) -> None:
        """A server that is gone by then may have died of the request: that is no mere failure to connect."""
        wire = self.served()
        sink = ask(self.upstream)
        wire.end()
        self.net.refuse()
        self.net.turn()
        self.assertIsInstance(sink.error, UpstreamClosed)

    def test_others_are_not_repeated(self) -> None:
        """A request with effects, a fresh connection, an answer that had begun: all these fail."""
        spool = Spool()
        spool.write(b"x")
        for method in (b"POST", b"PUT", b"DELETE", b"PATCH"):
            wire = self.served()
            sink = ask(self.upstream, method, Body(spool))
            wire.end()
            self.assertIsInstance(sink.error, UpstreamClosed, method)
        for heard in (b"H", b"HTTP/1.1 103 Hi\r\n\r\n", b"HTTP/1.1 100 Go\r\n\r\n"):
            wire = self.served()
            sink = ask(self.upstream)
            wire.say(heard)
            wire.end()
            self.assertIsInstance(sink.error, UpstreamClosed, heard)
        sink = ask(self.upstream)
        self.net.accept().end()
        self.assertIsInstance(sink.error, UpstreamClosed)

    def test_aborted_request_is_not_repeated(self) -> None:
        """Nobody waits for it."""
        wire = self.served()
        sink = ask(self.upstream)
        assert sink.call is not None
        sink.call.abort()
        wire.end()
        self.net.turn()
        self.assertEqual(len(self.net.tcpClients), 1)

    def test_abort_of_the_second_attempt(self) -> None:
        """The second attempt can be given up like the first."""
        wire = self.served()
        sink = ask(self.upstream)
        wire.end()
        assert sink.call is not None
        sink.call.abort()
        self.assertTrue(self.net.connectors[1].stoppedConnecting)
        self.net.turn()
        self.assertFalse(sink.over)


class DialTests(PoolTestCase):
    """Connections that do not come about."""

    def test_refused(self) -> None:
        """The sink is told once, with the reason."""
        sink = ask(self.upstream)
        self.net.refuse()
        self.net.turn()
        assert isinstance(sink.error, ConnectFailed)
        self.assertTrue(sink.error.refused)

    def test_never_before_send_returns(self) -> None:
        """An address that can be none fails at once, and still not before `send` has returned."""
        for url in ("http://" + "x" * 300, "https://" + "x" * 300):
            upstream = Upstream(self.net, Origin(url))
            sink = ask(upstream)
            self.assertFalse(sink.over)
            self.net.turn()
            self.assertIsInstance(sink.error, ConnectFailed, url)

    def test_late_connection(self) -> None:
        """A connection that comes about although nobody waits any more is closed."""
        sink = ask(self.upstream)
        assert sink.call is not None
        call, sink.call.dialing = sink.call, None
        call.abort()
        wire = self.net.accept()
        self.assertEqual((wire.take(), wire.closed), (b"", "abort"))


class CloseTests(PoolTestCase):
    """The end of the pool."""

    def test_everything_ends(self) -> None:
        """Calls at every stage fail, once, and unused connections are closed."""
        sinks = [ask(self.upstream) for _ in range(4)]
        wires = [self.net.accept(number) for number in range(3)]
        wires[1].say(OK[:-1])
        wires[2].say(OK)
        self.upstream.close()
        self.upstream.close()
        self.assertEqual([wire.closed for wire in wires], ["abort"] * 3)
        self.net.turn()
        self.assertEqual([type(sink.error) for sink in sinks if not sink.whole], [UpstreamClosed] * 3)
        self.assertTrue(sinks[2].whole)
        self.assertTrue(self.net.connectors[3].stoppedConnecting)

    def test_requests_afterwards(self) -> None:
        """Whatever is asked of a closed pool fails, in a turn of its own."""
        self.upstream.close()
        sink = ask(self.upstream)
        self.assertFalse(sink.over)
        self.net.turn()
        self.assertIsInstance(sink.error, UpstreamClosed)
        self.assertEqual(self.net.tcpClients, [])

    def test_requests_from_inside(self) -> None:
        """A sink that asks again when it fails gets no connection either."""
        upstream = self.upstream

        class Stubborn(Recorder):
            """Asks again."""

            def failed(self, error: object) -> None:
                """Ask again."""
                again.append(ask(upstream))

        again: list[Recorder] = []
        for _ in range(2):
            ask(upstream, sink=Stubborn())
        self.net.accept(0)
        upstream.close()
        self.net.turn()
        self.assertEqual([type(sink.error) for sink in again], [UpstreamClosed] * 2)
        self.assertEqual(len(self.net.tcpClients), 2)

    def test_answer_in_the_last_moment(self) -> None:
        """A safe request is not sent again on a pool that is closed."""
        wire = self.served()
        sink = ask(self.upstream)
        self.upstream.close()
        self.net.turn()
        self.assertIsInstance(sink.error, UpstreamClosed)
        self.assertEqual((wire.alive, len(self.net.tcpClients)), (False, 1))
