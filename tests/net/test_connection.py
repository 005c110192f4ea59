"""One connection: answers in all framings and pieces, aborts at every stage, back pressure, and large bodies."""

from __future__ import annotations

import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IPushProducer
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from lswap.core.framing import CHUNKED, CLOSE, LENGTH, NOTHING
from lswap.errors import BadAnswer, ConnectFailed, UpstreamClosed, UpstreamTimeout
from lswap.net.body import Body, Spool
from lswap.net.dial import Origin
from lswap.net.upstream import SETTLE, Upstream
from tests.net.wire import Net, Recorder, Wire, ask

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def body(data: bytes) -> Body:
    """A body of these bytes."""
    spool = Spool()
    spool.write(data)
    return Body(spool)


class ConnectionTestCase(SynchronousTestCase):
    """A pool whose connections are made by hand."""

    header_timeout = 0.0

    def setUp(self) -> None:
        """A reactor and a pool."""
        self.net = Net()
        self.upstream = Upstream(self.net, Origin("http://127.0.0.1:9"), header_timeout=self.header_timeout)
        self.upstream.keeps_open[False] = True  # this server has kept its word before

    def tearDown(self) -> None:
        """Nothing may be left when all is closed: no connection, no delayed call."""
        self.upstream.close()
        self.net.turn()
        self.assertEqual((self.upstream._all, self.net.timers), (set(), 0))

    def asked(
        self, method: bytes = b"GET", data: Body | None = None, sink: Recorder | None = None
    ) -> tuple[Recorder, Wire]:
        """A request on a fresh connection, which has been written."""
        recorder = ask(self.upstream, method, data, sink)
        wire = self.net.accept()
        return recorder, wire

    def assert_kept(self, wire: Wire) -> None:
        """The connection is in the pool, and serves again; after an answer in chunks a little later."""
        self.net.advance(SETTLE[True])
        self.assertTrue(wire.alive)
        wire.take()
        again = ask(self.upstream)
        self.assertEqual(wire.take(), b"GET / HTTP/1.1\r\n\r\n")
        wire.say(OK)
        self.assertEqual((again.body, again.whole), (b"hello", True))

    def assert_gone(self, wire: Wire) -> None:
        """The connection is closed, and does not serve again."""
        attempts = len(self.net.tcpClients)
        again = ask(self.upstream)
        self.assertEqual(len(self.net.tcpClients), attempts + 1)
        assert again.call is not None
        again.call.abort()
        self.net.turn()
        self.assertFalse(wire.alive)


class AnswerTests(ConnectionTestCase):
    """What comes back."""

    def test_request_is_written(self) -> None:
        """Head and body go out as they are, together."""
        _, wire = self.asked(b"POST", body(b"abc"))
        self.assertEqual(wire.take(), b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")

    def test_answer_of_known_length(self) -> None:
        """Head and body come in the turn in which they came; the connection serves again."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        assert sink.head is not None
        self.assertEqual((sink.head.framing, sink.body, sink.whole), (LENGTH, b"he", False))
        wire.say(b"llo")
        self.assertEqual((sink.pieces, sink.whole), ([b"he", b"llo"], True))
        self.assert_kept(wire)

    def test_answer_in_chunks(self) -> None:
        """Chunks are passed on raw, extensions and trailers with them."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert sink.head is not None
        self.assertEqual((sink.head.framing, sink.pieces), (CHUNKED, []))
        wire.say(b"2;x=y\r\nhi\r\n")
        wire.say(b"0\r\nX: y\r\n\r")
        self.assertFalse(sink.whole)
        wire.say(b"\n")
        self.assertEqual((sink.body, sink.whole), (b"2;x=y\r\nhi\r\n0\r\nX: y\r\n\r\n", True))
        self.assert_kept(wire)

    def test_answer_that_ends_with_its_connection(self) -> None:
        """The end of the connection is the end of the answer, if it is a proper one."""
        for old in (b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n"):
            sink, wire = self.asked()
            wire.say(old + b"hello")
            assert sink.head is not None
            self.assertEqual((sink.head.framing, sink.body, sink.over), (CLOSE, b"hello", False))
            wire.end()
            self.assertEqual((sink.body, sink.whole), (b"hello", True))
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 200 OK\r\n\r\nhello")
        wire.reset()
        self.assertIsInstance(sink.error, UpstreamClosed)

    def test_answers_without_a_body(self) -> None:
        """Nothing follows 204, 304 and the answer to HEAD, whatever their heads say."""
        for method, status in ((b"GET", b"204 No"), (b"GET", b"304 Not"), (b"HEAD", b"200 OK"), (b"POST", b"204 No")):
            sink, wire = self.asked(method)
            wire.say(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n")
            assert sink.head is not None
            self.assertEqual((sink.head.framing, sink.body, sink.whole), (NOTHING, b"", True))
            self.assert_kept(wire)
            self.upstream.forget_idle()

    def test_empty_answer(self) -> None:
        """A length of 0, and chunks without content, are whole with the head."""
        for head in (b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
            sink, wire = self.asked()
            wire.say(b"HTTP/1.1 200 OK\r\n" + head)
            self.assertTrue(sink.whole)
            self.assert_kept(wire)
            self.upstream.forget_idle()

    @given(
        st.sampled_from(
            [
                OK,
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nA: "
                b"b\r\n\r\n",
                b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Go\n\nHTTP/1.1 404 No\nContent-Length: 2\n\nno",
                b"HTTP/1.1 204 No\r\n\r\n",
            ]
        ),
        st.data(),
    )
    def test_any_pieces(self, answer: bytes, data: st.DataObject) -> None:
        """An answer is the same in whatever pieces it comes, down to single bytes."""
        results = []
        for cuts in ([], data.draw(st.lists(st.integers(0, len(answer)), max_size=6)), range(len(answer))):
            sink, wire = self.asked()
            start = 0
            for cut in [*sorted(cuts), len(answer)]:
                if cut > start:
                    self.assertFalse(sink.over)
                    wire.say(answer[start:cut])
                    start = cut
            assert sink.head is not None
            results.append((sink.interims, sink.head.status, sink.head.headers, sink.body, sink.whole))
            self.assert_kept(wire)
            self.upstream.forget_idle()
            self.net.turn()
        self.assertTrue(results[0][-1])
        self.assertEqual(results, [results[0]] * 3)

    def test_interim_answers(self) -> None:
        """1xx answers come before the one that counts; 100 is nobody's business."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n")
        wire.say(b"HTTP/1.1 103 Hints\r\nContent-Length: 5\r\n\r\n" + OK)
        self.assertEqual((sink.interims, sink.body, sink.whole), ([102, 103], b"hello", True))
        self.assert_kept(wire)

    def test_endless_interim_answers(self) -> None:
        """They are passed on without being held back, so their number has a limit."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 102 Wait\r\n\r\n" * 100)
        self.assertFalse(sink.over)
        wire.say(b"HTTP/1.1 102 Wait\r\n\r\n" * 1000)
        self.assertEqual(len(sink.interims), 100)
        self.assertIsInstance(sink.error, BadAnswer)
        self.assert_gone(wire)

    def test_keep_alive(self) -> None:
        """The server's word counts, for both versions of HTTP."""
        length = b"Content-Length: 5\r\n"
        for head, kept in (
            (b"HTTP/1.1 200 OK\r\n", True),
            (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", False),
            (b"HTTP/1.0 200 OK\r\n", False),
            (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
            (b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\n", True),
            (b"HTTP/1.1 200 OK\r\nKeep-Alive: max=9, timeout = 1\r\n", False),
            (b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\n", False),
            (b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=x, 9\r\n", True),
        ):
            sink, wire = self.asked()
            wire.say(head + length + b"\r\nhello")
            self.assertEqual((sink.body, sink.whole), (b"hello", True))
            if kept:
                self.assert_kept(wire)
            else:
                self.assert_gone(wire)
                self.assertEqual(wire.closed, "lose")
            self.upstream.forget_idle()


class BrokenAnswerTests(ConnectionTestCase):
    """What comes back and is no answer, or not all of one."""

    def assert_failed(self, sink: Recorder, kind: type[Exception], wire: Wire) -> None:
        """The sink was told once, and the connection is gone."""
        self.assertIsInstance(sink.error, kind)
        self.net.turn()
        self.assertFalse(wire.alive)
        self.assert_gone(wire)

    def test_no_http(self) -> None:
        """What does not begin like an answer is noticed with its first bytes."""
        for data in (b"garbage", b"<", b"HTTP/2.0 200 OK\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 2x0\r\n\r\n", b"HTTQ"):
            sink, wire = self.asked()
            wire.say(data)
            self.assert_failed(sink, BadAnswer, wire)

    def test_bad_heads(self) -> None:
        """A head that is not understood is no answer: nothing of it reaches the sink."""
        for line in (
            b"no colon",
            b"Content-Length: x",
            b"Content-Length: 1\r\nContent-Length: 2",
            b"Transfer-Encoding: gzip",
        ):
            sink, wire = self.asked()
            wire.say(b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n")
            self.assert_failed(sink, BadAnswer, wire)
            self.assertIsNone(sink.head)

    def test_switched_protocols(self) -> None:
        """101 was not asked for."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n")
        self.assert_failed(sink, BadAnswer, wire)

    def test_endless_head(self) -> None:
        """A head without an end is given up at 1 MiB."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(16):
            self.assertFalse(sink.over)
            wire.say(b"y" * 65536)
        self.assert_failed(sink, BadAnswer, wire)

    def test_long_head(self) -> None:
        """A head of 900 KB is fine."""
        sink, wire = self.asked()
        wire.say(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(9):
            wire.say(b"y" * 100_000)
        wire.say(b"\r\nContent-Length: 0\r\n\r\n")
        assert sink.head is not None
        self.assertEqual((len(sink.head.headers[0][1]), sink.whole), (900_000, True))

    def test_bad_chunks(self) -> None:
        """Broken framing ends the call: with the head nothing was told, later the answer is cut."""
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        sink, wire = self.asked()
        wire.say(head + b"zz\r\n")
        self.assertIsNone(sink.head)
        self.assert_failed(sink, BadAnswer, wire)
        sink, wire = self.asked()
        wire.say(head + b"2\r\nhi\r\n")
        wire.say(b"2\r\nhix")
        self.assertEqual(sink.body, b"2\r\nhi\r\n")
        self.assert_failed(sink, BadAnswer, wire)

    def test_closed_before_the_answer(self) -> None:
        """An answer that never comes, or only in part, or only an interim one."""
        for data in (b"", b"HTTP", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 102 Wait\r\n\r\n"):
            for how in ("end", "reset"):
                sink, wire = self.asked(b"POST")
                if data:
                    wire.say(data)
                getattr(wire, how)()
                self.assert_failed(sink, UpstreamClosed, wire)

    def test_closed_in_the_middle(self) -> None:
        """An answer shorter than announced, or whose chunks do not end, fails after what came."""
        for head in (b"Content-Length: 9\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"):
            for how in ("end", "reset"):
                sink, wire = self.asked()
                wire.say(b"HTTP/1.1 200 OK\r\n" + head + b"hello")
                getattr(wire, how)()
                self.assertTrue(sink.body.endswith(b"hello"))
                self.assert_failed(sink, UpstreamClosed, wire)

    def test_bytes_beyond_the_answer(self) -> None:
        """A server that says more than announced is out of step: its answer counts, its connection does not."""
        for method, head in (
            (b"GET", b"Content-Length: 5\r\n\r\nhello"),
            (b"GET", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            (b"HEAD", b"Content-Length: 5\r\n\r\n"),
        ):
            for split in (True, False):
                sink, wire = self.asked(method)
                wire.say(b"HTTP/1.1 200 OK\r\n" + head + (b"" if split else b"HTTP/1.1 200 OK\r\n"))
                self.assertEqual((sink.body, sink.whole), (head.partition(b"\r\n\r\n")[2], True))
                if split:
                    wire.say(b"x")
                self.assert_gone(wire)

    def test_bytes_on_an_unused_connection(self) -> None:
        """It is not used again, not even in the turn in which it is being closed."""
        sink, wire = self.asked()
        wire.say(OK)
        wire.say(b"HTTP/1.1 408 Timeout\r\n\r\n")
        ask(self.upstream)
        self.assertEqual((sink.whole, len(self.net.tcpClients)), (True, 2))


class AbortTests(ConnectionTestCase):
    """Giving up, at every stage."""

    def abort(self, sink: Recorder) -> None:
        """Abort, twice, and through the producer's door."""
        assert sink.call is not None
        sink.call.abort()
        sink.call.stopProducing()
        sink.call.pauseProducing()
        sink.call.resumeProducing()

    def test_while_dialing(self) -> None:
        """The attempt is given up."""
        sink = ask(self.upstream)
        self.abort(sink)
        self.net.turn()
        self.assertTrue(self.net.connectors[0].stoppedConnecting)
        self.assertFalse(sink.over)

    def test_before_the_answer(self) -> None:
        """The connection is closed hard, so that the server notices at once."""
        for data in (b"", b"HTTP/1.1 2", b"HTTP/1.1 102 Wait\r\n\r\n"):
            sink, wire = self.asked()
            if data:
                wire.say(data)
            self.abort(sink)
            self.assertEqual(wire.closed, "abort")
            self.net.turn()
            self.assertFalse(sink.over or wire.alive)

    def test_in_the_body(self) -> None:
        """Nothing more comes, whatever the connection still brings."""
        for head in (b"Content-Length: 9\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n", b"\r\n"):
            sink, wire = self.asked()
            wire.say(b"HTTP/1.1 200 OK\r\n" + head + b"hel")
            pieces = list(sink.pieces)
            self.abort(sink)
            self.net.turn()
            self.assertEqual((sink.pieces, sink.over, wire.closed), (pieces, False, "abort"))

    def test_after_the_end(self) -> None:
        """An answer that is whole cannot be given up: the connection is another's by then."""
        sink, wire = self.asked()
        wire.say(OK)
        other = ask(self.upstream)
        self.abort(sink)
        wire.say(OK)
        self.assertEqual((other.body, other.whole, wire.closed), (b"hello", True, None))

    def test_after_a_failure(self) -> None:
        """A call that failed can be given up without effect."""
        sink, wire = self.asked()
        wire.reset()
        self.abort(sink)
        self.assertIsInstance(sink.error, UpstreamClosed)

    def test_from_inside(self) -> None:
        """The sink may give up in whatever it is told, and hears nothing more."""
        stream = (
            b"HTTP/1.1 103 Hi\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            b"1\r\nb\r\n",
        )
        for number, event in enumerate(("interim", "answer", "piece")):
            sink = Recorder()
            sink.abort_on = [event]
            _, wire = self.asked(sink=sink)
            for data in stream[: number + 1]:
                wire.say(data)
            self.assertEqual(wire.closed, "abort")
            self.net.turn()
            self.assertEqual((len(sink.interims), len(sink.pieces), sink.over), (1, number, False))

    def test_from_inside_with_more_at_hand(self) -> None:
        """What came along with the interim answer goes with it."""
        sink = Recorder()
        sink.abort_on = ["interim"]
        _, wire = self.asked(sink=sink)
        wire.say(b"HTTP/1.1 103 Hi\r\n\r\nHTTP/1.1 103 Hi\r\n\r\n" + OK)
        self.net.turn()
        self.assertEqual((sink.interims, sink.head, wire.alive), ([103], None, False))

    def test_from_inside_at_the_end(self) -> None:
        """Giving up in the last piece changes nothing."""
        sink = Recorder()
        sink.abort_on = ["answer"]
        _, wire = self.asked(sink=sink)
        wire.say(OK)
        self.assertTrue(sink.whole)
        self.assert_kept(wire)


class BackPressureTests(ConnectionTestCase):
    """A taker that is full."""

    def test_pause_and_resume(self) -> None:
        """The server is not read while the taker is full."""
        sink, wire = self.asked()
        wire.say(OK[:-2])
        assert sink.call is not None
        verifyObject(IPushProducer, sink.call)
        for _ in range(2):
            sink.call.pauseProducing()
            sink.call.pauseProducing()
            self.assertTrue(wire.paused)
            sink.call.resumeProducing()
            sink.call.resumeProducing()
            self.assertFalse(wire.paused)
        wire.say(b"lo")
        self.assertTrue(sink.whole)
        self.assert_kept(wire)

    def test_pause_from_inside(self) -> None:
        """The write of a piece may be the one that fills the taker."""
        sink = Recorder()
        sink.pause_on = ["answer", "piece"]
        _, wire = self.asked(sink=sink)
        wire.say(OK[:-4])
        self.assertTrue(wire.paused)
        assert sink.call is not None
        sink.call.resumeProducing()
        wire.say(b"el")
        self.assertTrue(wire.paused)

    def test_pause_in_the_last_piece(self) -> None:
        """A connection never goes back paused, even if the last write filled the taker."""
        for pieces in ([OK], [OK[:-2], OK[-2:]]):
            sink = Recorder()
            sink.pause_on = ["answer", "piece"]
            _, wire = self.asked(sink=sink)
            for piece in pieces:
                wire.say(piece)
                if wire.paused and sink.call is not None:
                    sink.call.resumeProducing()
            self.assertTrue(sink.whole)
            self.assertFalse(wire.paused)
            self.assert_kept(wire)
            self.upstream.forget_idle()

    def test_paused_transport_that_goes_on(self) -> None:
        """Over TLS data can come while paused; when the answer ends so, the connection goes back reading."""
        sink, wire = self.asked()
        wire.say(OK[:-2])
        assert sink.call is not None
        sink.call.pauseProducing()
        wire._protocol.dataReceived(b"lo")
        self.assertTrue(sink.whole)
        self.assertFalse(wire.paused)
        self.assert_kept(wire)

    def test_pause_before_the_answer(self) -> None:
        """A taker that is full beforehand does not keep the head from being noticed; what follows is held back."""
        for early in (True, False):
            sink = ask(self.upstream)
            assert sink.call is not None
            if early:
                sink.call.pauseProducing()
            wire = self.net.accept()
            if not early:
                sink.call.pauseProducing()
            self.assertFalse(wire.paused)
            wire.say(b"HTTP/1.1 103 Hi\r\n\r\n" + OK[:-2])
            self.assertEqual((sink.body, wire.paused), (b"hel", True))
            sink.call.resumeProducing()
            wire.say(b"lo")
            self.assertTrue(sink.whole)
            self.upstream.forget_idle()

    def test_resume_before_the_answer(self) -> None:
        """A taker that has room again in time holds nothing back."""
        sink = ask(self.upstream)
        assert sink.call is not None
        sink.call.pauseProducing()
        wire = self.net.accept()
        sink.call.resumeProducing()
        wire.say(OK[:-2])
        self.assertFalse(wire.paused)

    def test_pause_after_the_end(self) -> None:
        """A call that is over does not hold the next one back."""
        sink, wire = self.asked()
        wire.say(OK)
        other = ask(self.upstream)
        assert sink.call is not None
        sink.call.pauseProducing()
        wire.say(OK)
        self.assertTrue(other.whole)

    def test_end_while_paused(self) -> None:
        """A connection that breaks while paused fails the call, and resuming afterwards has no effect."""
        sink, wire = self.asked()
        wire.say(OK[:-2])
        assert sink.call is not None
        sink.call.pauseProducing()
        wire.reset()
        sink.call.resumeProducing()
        self.assertIsInstance(sink.error, UpstreamClosed)


class LargeBodyTests(ConnectionTestCase):
    """Bodies that are written as the system takes them."""

    def test_body_in_a_file(self) -> None:
        """Piece by piece, and the connection serves again when all of it was taken."""
        data = bytes(range(256)) * 6000
        sink, wire = self.asked(b"POST", body(data))
        sizes = []
        written = b""
        while wire.producer is not None:
            piece = wire.take()
            sizes.append(len(piece))
            written += piece
            wire.flush()
        self.assertTrue(written.endswith(b"\r\n\r\n" + data))
        self.assertLess(max(sizes), 66_000)
        wire.say(OK)
        self.assertTrue(sink.whole)
        self.assert_kept(wire)

    def test_body_in_memory(self) -> None:
        """At once, but it is noted when the system has taken it."""
        sink, wire = self.asked(b"POST", body(b"x" * 500_000))
        self.assertTrue(wire.take().endswith(b"x" * 500_000))
        self.assertIsNotNone(wire.producer)
        self.assertTrue(wire.flush())
        self.assertIsNone(wire.producer)
        wire.say(OK)
        self.assertTrue(sink.whole)
        self.assert_kept(wire)

    def test_spliced_body_with_an_empty_end(self) -> None:
        """An empty part does not stop the writing: nothing would wake it again."""
        spool = Spool()
        spool.write(b"x" * 50_000)
        data = Body(spool, [(0, 0), b"a", (7, 7), (5, 50_000), b"", (50_000, 50_000)])
        _, wire = self.asked(b"POST", data)
        rounds = 0
        while wire.flush():
            rounds += 1
            self.assertLess(rounds, 9)
        self.assertTrue(wire.take().endswith(b"\r\n\r\na" + b"x" * 49_995))

    def test_early_answer(self) -> None:
        """An answer that comes before the body was taken counts; the connection does not."""
        for size in (100_000, 2_000_000):
            sink, wire = self.asked(b"POST", body(b"x" * size))
            wire.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nhello")
            self.assertEqual((sink.body, sink.whole, wire.closed), (b"hello", True, "abort"))
            self.assertIsNone(wire.producer)
            self.assert_gone(wire)

    def test_answer_that_begins_early(self) -> None:
        """An answer may run while the body is still being taken."""
        sink, wire = self.asked(b"POST", body(b"x" * 2_000_000))
        wire.say(OK[:-2])
        while wire.flush():
            pass
        wire.say(b"lo")
        self.assertTrue(sink.whole)
        self.assert_kept(wire)

    def test_server_closes_during_the_body(self) -> None:
        """The call fails once, and nothing is written any more."""
        for how in ("end", "reset"):
            sink, wire = self.asked(b"POST", body(b"x" * 2_000_000))
            wire.flush()
            getattr(wire, how)()
            self.assertIsInstance(sink.error, UpstreamClosed)
            self.net.turn()

    def test_abort_during_the_body(self) -> None:
        """Nothing is written any more."""
        sink, wire = self.asked(b"POST", body(b"x" * 2_000_000))
        assert sink.call is not None
        sink.call.abort()
        self.assertEqual((wire.closed, wire.producer), ("abort", None))

    def test_body_that_cannot_be_read(self) -> None:
        """The call fails, but never before `send` has returned: on a fresh connection, a kept one, at once or later."""
        for size, rounds in ((100, 0), (100_000, 0), (2_000_000, 0), (2_000_000, 2)):
            for kept in (False, True):
                if kept:
                    _, wire = self.asked()
                    wire.say(OK)
                spool = Spool()
                spool.write(b"x" * size)
                data = Body(spool)
                if not rounds:
                    spool.close()
                sink = ask(self.upstream, b"POST", data)
                self.assertFalse(sink.over)
                if not kept:
                    wire = self.net.accept()
                for _ in range(rounds):
                    wire.flush()
                spool.close()
                wire.flush()
                self.net.turn()
                self.assertIsInstance(sink.error, UpstreamClosed)
                self.assertEqual(wire.closed, "abort")

    def test_abort_while_the_failure_is_on_its_way(self) -> None:
        """A sink that gave up hears of no failure either."""
        spool = Spool()
        spool.write(b"x" * 100)
        data = Body(spool)
        spool.close()
        sink, _ = self.asked(b"POST", data)
        assert sink.call is not None
        sink.call.abort()
        self.net.turn()
        self.assertFalse(sink.over)


class TimeTests(ConnectionTestCase):
    """The limit for the head of an answer."""

    header_timeout = 60.0

    def test_no_answer(self) -> None:
        """A server that says nothing in time, or too little, fails the call."""
        for data in (b"", b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1"):
            sink, wire = self.asked()
            self.net.advance(59)
            if data:
                wire.say(data)
            self.assertFalse(sink.over)
            self.net.advance(1)
            self.assertIsInstance(sink.error, UpstreamTimeout)
            self.assertEqual(wire.closed, "abort")
            self.net.turn()

    def test_slow_body(self) -> None:
        """The limit ends with the head."""
        sink, wire = self.asked()
        wire.say(OK[:-2])
        self.net.advance(9999)
        wire.say(b"lo")
        self.assertTrue(sink.whole)
        self.assertIsNone(sink.error)

    def test_limit_begins_with_the_end_of_the_request(self) -> None:
        """A large body that is taken slowly does not count."""
        sink, wire = self.asked(b"POST", body(b"x" * 2_000_000))
        while wire.producer is not None:
            self.net.advance(50)
            wire.flush()
        self.net.advance(59)
        self.assertFalse(sink.over)
        self.net.advance(1)
        self.assertIsInstance(sink.error, UpstreamTimeout)

    def test_answer_before_the_end_of_the_request(self) -> None:
        """An answer that has begun has no limit, also when the body ends later."""
        sink, wire = self.asked(b"POST", body(b"x" * 2_000_000))
        wire.say(OK[:-2])
        while wire.flush():
            pass
        self.net.advance(100)
        wire.say(b"lo")
        self.assertTrue(sink.whole)

    def test_limits_do_not_outlive_their_call(self) -> None:
        """A connection that serves again has a fresh limit."""
        _, wire = self.asked()
        self.net.advance(59)
        wire.say(OK)
        self.net.advance(2)
        sink = ask(self.upstream)
        wire.take()
        self.net.advance(59)
        self.assertFalse(sink.over)
        wire.say(OK)
        self.assertTrue(sink.whole)


class HandshakeTests(SynchronousTestCase):
    """TLS: what happens before the first byte of a request is sent. (The encryption itself is left out here.)"""

    def setUp(self) -> None:
        """A pool whose connections want a handshake."""
        self.net = Net()
        self.upstream = Upstream(self.net, Origin("https://127.0.0.1:9"), tls_timeout=10.0)
        self.sink = Recorder()
        self.call = self.upstream.send(b"GET", [b"GET / HTTP/1.1\r\n\r\n"], None, self.sink)
        self.assertIsNotNone(self.call.dialing)
        assert self.call.dialing is not None
        connection: Any = self.upstream._factory.buildProtocol(None)
        self.wire = Wire(self.net, connection)
        self.upstream._dialed(connection, self.call)
        self.connection = connection

    def test_no_handshake(self) -> None:
        """A server that accepts and says nothing is a connection that did not come about."""
        self.net.advance(10)
        self.assertIsInstance(self.sink.error, ConnectFailed)
        self.assertEqual(self.wire.closed, "abort")

    def test_failed_handshake(self) -> None:
        """So is one that shows a wrong certificate."""
        self.wire.reset()
        assert self.sink.error is not None
        self.assertIsInstance(self.sink.error, ConnectFailed)
        self.assertIn("no secure connection to https://127.0.0.1:9", str(self.sink.error))
        self.net.advance(99)

    def test_handshake(self) -> None:
        """Afterwards all is as without."""
        self.connection.handshakeCompleted()
        self.net.advance(99)
        self.wire.say(OK)
        self.assertTrue(self.sink.whole)
        self.assertTrue(self.connection.usable())
        self.wire.reset()
        self.assertFalse(self.connection.usable())

    def test_no_polite_end(self) -> None:
        """A connection is closed hard, because a proper end would wait for the other side."""
        self.connection.handshakeCompleted()
        self.wire.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual((self.sink.whole, self.wire.closed), (True, "abort"))


class SilenceTests(ConnectionTestCase):
    """`Connection.usable`: whether a kept connection is still open, asked just before it is used."""

    def test_usable(self) -> None:
        """It is, while nothing waits to be read."""
        _, wire = self.asked()
        wire.say(OK)
        self.assert_kept(wire)

    def test_end_that_was_not_noticed_yet(self) -> None:
        """Not if the server has closed it, or broken it, or said something; then the next one is tried."""
        waiting: list[bytes | Exception] = [b"", b"HTTP/1.1 408 x", ConnectionResetError(), OSError()]
        wires = []
        sinks = [ask(self.upstream) for _ in range(len(waiting) + 1)]
        for number in range(len(sinks)):
            wires.append(self.net.accept(number))
        for wire in wires:
            wire.say(OK)
            wire.take()
        for wire, state in zip(wires[1:], waiting, strict=True):
            wire.handle.waiting = state
        ask(self.upstream)
        self.assertEqual([wire.closed for wire in wires], [None, *["abort"] * len(waiting)])
        self.assertTrue(wires[0].take())

    def test_peeking_takes_nothing(self) -> None:
        """It looks without taking, and does not wait."""
        flags = []

        def recv(size: int, flag: int) -> bytes:
            flags.append(flag)
            raise BlockingIOError

        _, wire = self.asked()
        wire.say(OK)
        self.patch(wire.handle, "recv", recv)
        ask(self.upstream)
        self.assertEqual(flags, [socket.MSG_PEEK | socket.MSG_DONTWAIT])
