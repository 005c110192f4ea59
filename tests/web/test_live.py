"""Logs as endless answers, over genuine HTTP on a transport in memory."""

from __future__ import annotations

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import Request

from lswap.service.logs import HISTORY, Log
from lswap.web.live import LiveStreams, stream_log
from lswap.web.outbox import Outbox
from tests.web.test_outbox import Client


class LiveCase(SynchronousTestCase):
    """A log, and clients that read it."""

    def setUp(self) -> None:
        """No stream is open yet."""
        self.clock = Clock()
        self.streams = LiveStreams(self.clock)
        self.log = Log("test")
        self.ends: list[object] = []
        self.history = True

    def begin(self, request: Request) -> None:
        """Answer with the log."""
        stream_log(request, self.log, self.history, self.streams).addBoth(self.ends.append)

    def client(self, method: str = "GET", history: bool = True) -> Client:
        """A client that has asked for the log."""
        self.history = history
        return Client(self.begin, method)

    def stalled(self) -> Client:
        """A client that has stopped reading after a first piece."""
        client = self.client(history=False)
        client.stall()
        self.log.write(b"first ")
        return client


class StreamLogTests(LiveCase):
    """What a reader of a log gets."""

    def test_headers_come_at_once(self) -> None:
        """Also without a byte of log, a reader knows that it is connected; nothing on the way may buffer or guess."""
        for history in (True, False):
            client = self.client(history=history)
            self.assertTrue(client.head.startswith(b"HTTP/1.1 200 "), client.head)
            self.assertEqual(client.header("Content-Type"), "text/plain")
            self.assertEqual(client.header("Transfer-Encoding"), "chunked")
            self.assertEqual(client.header("X-Content-Type-Options"), "nosniff")
            self.assertEqual(client.header("X-Accel-Buffering"), "no")
            self.assertIsNone(client.header("Content-Length"))
            self.assertEqual(client.raw(), b"")

    def test_history_then_what_is_new(self) -> None:
        """A reader gets the history, then each piece in the turn it is written, raw, each once."""
        self.log.write(b"old\n")
        client = self.client()
        self.assertEqual(client.body(), b"old\n")
        self.log.write(b"\x1b[32mnew\xff ")
        self.assertEqual(client.body(), b"\x1b[32mnew\xff ")
        self.log.write(b"newer\r\n")
        self.assertEqual(client.body(), b"newer\r\n")

    def test_without_history(self) -> None:
        """A reader that wants no history gets only what is new."""
        self.log.write(b"old\n")
        client = self.client(history=False)
        self.log.write(b"new\n")
        self.assertEqual(client.body(), b"new\n")

    def test_head(self) -> None:
        """HEAD gets the headers, and the answer is over; the log has no reader then."""
        self.log.write(b"old\n")
        client = self.client("HEAD")
        self.assertEqual(client.header("Content-Type"), "text/plain")
        self.assertEqual((client.raw(), self.ends, self.log.watched, len(self.streams)), (b"", [None], False, 0))

    def test_line_that_is_logged_while_the_history_is_sent(self) -> None:
        """It comes after the history, and once."""
        self.log.write(b"old ")
        begin = self.begin

        def logging(request: Request) -> None:
            real = request.write

            def write(data: bytes) -> None:
                real(data)
                if data == b"old ":
                    self.log.write(b"new ")

            request.write = write  # type: ignore[method-assign]
            begin(request)

        self.assertEqual(Client(logging).body(), b"old new ")

    def test_readers_do_not_depend_on_each_other(self) -> None:
        """One reader that stalls and one that leaves do not keep a third from reading."""
        stalled, leaving, reading = self.stalled(), self.client(), self.client()
        leaving.leave()
        for _ in range(50):
            self.log.write(b"x" * 10_000)
        self.assertEqual(reading.body(), b"first " + b"x" * 500_000)
        self.assertEqual(stalled.body(), b"first ")

    def test_slow_reader_gets_all_while_there_is_room(self) -> None:
        """A reader that is behind by less than the limit loses nothing, the history included."""
        self.log.write(b"h" * HISTORY)
        client = self.client()
        client.stall()
        self.log.write(b"0 ")
        for i in range(1, 100):
            self.log.write(b"%d " % i)
        self.assertEqual(client.read(), b"h" * HISTORY + b"".join(b"%d " % i for i in range(100)))

    def test_reader_that_fell_behind_is_told_how_much_it_lost(self) -> None:
        """The oldest of what waits is dropped; a line in its place says how much; the newest is all there."""
        client = self.stalled()
        for i in range(1000):
            self.log.write(b"%0999d\n" % i)
        data = client.read()
        before, dropped, after = data.split("—".encode())
        self.assertEqual(before, b"first \n")
        self.assertTrue(after.startswith(b"\n"))
        count = int(dropped.removesuffix(b" bytes dropped "))
        self.assertEqual(count + len(after) - 1, 1_000_000)
        self.assertGreater(len(after), 200 * 1024)
        self.assertLess(len(after), 256 * 1024)
        self.assertTrue(after.endswith(b"%0999d\n" % 999))
        self.log.write(b"live")
        self.assertEqual(client.body(), b"live")

    def test_reader_that_leaves_is_forgotten(self) -> None:
        """When a client is gone, the log has no reader, the stream is not open, and the answer is over."""
        client = self.client()
        self.assertEqual((self.log.watched, len(self.streams), self.ends), (True, 1, []))
        client.leave()
        self.assertEqual((self.log.watched, len(self.streams), self.ends), (False, 0, [None]))
        client.raw()
        self.log.write(b"x")
        self.assertEqual(client.raw(), b"")

    def test_client_that_left_before_the_answer_began(self) -> None:
        """Nobody is left to read: the log gets no reader."""
        late: list[Request] = []
        client = Client(late.append)
        client.leave()
        self.successResultOf(stream_log(late[0], self.log, True, self.streams))
        self.assertEqual((self.log.watched, len(self.streams)), (False, 0))


class EndTests(LiveCase):
    """The end of all streams."""

    def test_end_all_ends_them_properly(self) -> None:
        """At shutdown each reader gets the end of its answer; the logs lose their readers."""
        clients = [self.client(), self.client()]
        self.log.write(b"last")
        self.streams.end_all()
        for client in clients:
            self.assertEqual(client.raw(), b"4\r\nlast\r\n0\r\n\r\n")
        self.assertEqual((len(self.streams), self.log.watched, self.ends), (0, False, [None, None]))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_end_all_without_a_stream(self) -> None:
        """With nothing open there is nothing to end, and ending twice is once."""
        self.streams.end_all()
        self.streams.end_all()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reader_that_is_behind_gets_the_rest_in_time(self) -> None:
        """A slow reader that reads on gets what waits for it, and the end."""
        client = self.stalled()
        self.log.write(b"rest")
        self.streams.end_all()
        self.clock.advance(0.5)
        client.transport.room = float("inf")
        assert client.transport.producer is not None
        client.transport.producer.resumeProducing()
        self.assertEqual(client.raw(), b"6\r\nfirst \r\n4\r\nrest\r\n0\r\n\r\n")
        self.assertEqual((self.ends, self.clock.getDelayedCalls()), ([None], []))
        self.assertFalse(client.transport.disconnecting)

    def test_reader_that_stalls_is_cut_off(self) -> None:
        """A client that never reads holds up the end by a second, not more."""
        client = self.stalled()
        self.log.write(b"rest")
        self.streams.end_all()
        self.clock.advance(0.9)
        self.assertFalse(client.transport.disconnected)
        self.clock.advance(0.2)
        self.assertTrue(client.transport.disconnected)
        client.leave()
        self.assertEqual((len(self.streams), self.log.watched, self.ends), (0, False, [None]))

    def test_reader_that_leaves_while_it_is_ended(self) -> None:
        """A stalled client that goes by itself leaves no timer behind."""
        client = self.stalled()
        self.log.write(b"rest")
        self.streams.end_all()
        client.leave()
        self.assertEqual((len(self.streams), self.clock.getDelayedCalls()), (0, []))

    def test_stream_that_comes_after_the_end(self) -> None:
        """A reader that comes during the shutdown gets the history and the end."""
        self.streams.end_all()
        self.log.write(b"old")
        client = self.client()
        self.assertEqual(client.raw(), b"3\r\nold\r\n0\r\n\r\n")
        self.assertFalse(self.log.watched)

    def test_other_kinds_of_streams(self) -> None:
        """Whatever is sent through an outbox can be owned, and is ended with the rest."""

        def begin(request: Request) -> None:
            outbox = Outbox(request, 1000, lambda dropped: b"")
            self.streams.add(outbox)
            outbox.send(b"event")

        client = Client(begin)
        self.streams.end_all()
        self.assertEqual(client.raw(), b"5\r\nevent\r\n0\r\n\r\n")
        self.assertEqual(len(self.streams), 0)


class KleinTests(LiveCase):
    """As the result of a klein route, which ends a request itself unless that has happened."""

    def client(self, method: str = "GET", history: bool = True) -> Client:
        """A client of a klein application."""
        app = Klein()

        @app.route("/", methods=["GET", "HEAD"])
        def root(request: Request) -> Deferred[None]:
            return stream_log(request, self.log, history, self.streams)

        resource = app.resource()
        return Client(resource.render, method)  # type: ignore[arg-type]

    def test_stream_goes_on_after_the_route_returned(self) -> None:
        """The answer stays open until it is ended, and is ended once."""
        self.log.write(b"old ")
        client = self.client()
        self.log.write(b"new ")
        self.assertEqual(client.body(), b"old new ")
        self.streams.end_all()
        self.assertEqual(client.raw(), b"0\r\n\r\n")
        self.assertEqual((self.flushLoggedErrors(), self.flushWarnings()), ([], []))

    def test_client_that_leaves(self) -> None:
        """The departure of the client, upon which klein cancels, is no error."""
        for stalls in (False, True):
            client = self.client()
            if stalls:
                client.stall()
            self.log.write(b"x")
            self.log.write(b"y")
            client.leave()
            self.assertEqual((self.log.watched, self.flushLoggedErrors(), self.flushWarnings()), (False, [], []))

    def test_head(self) -> None:
        """HEAD works there too."""
        client = self.client("HEAD")
        self.assertTrue(client.head.startswith(b"HTTP/1.1 200 "), client.head)
        self.assertEqual((client.raw(), self.flushLoggedErrors(), self.flushWarnings()), (b"", [], []))
