"""What waits for a slow client, over genuine HTTP on a transport in memory."""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site
from zope.interface.verify import verifyObject

from lswap.net.stdout import PIECE
from lswap.web.outbox import Outbox

__all__ = ["Client"]


class Transport(StringTransport):
    """Has a buffer of a size: past that it tells its producer to pause, as a socket does while nobody reads."""

    room: float = float("inf")

    def write(self, data: bytes) -> None:
        """Take all, then say that it was too much."""
        super().write(data)
        if len(self.value()) > self.room and self.producer is not None:
            self.producer.pauseProducing()

    def writeSequence(self, data: list[bytes]) -> None:
        """The same for several pieces."""
        self.write(b"".join(data))


class Client:
    """Asks a site for `/` and reads the answer, or does not."""

    def __init__(self, render: Callable[[Request], object], method: str = "GET", version: str = "1.1") -> None:
        """@param render: gets the request."""

        class Root(Resource):
            isLeaf = True

            def render(self, request: Request) -> int:
                render(request)
                return NOT_DONE_YET

        site = Site(Root(), reactor=Clock())
        self.transport = Transport()
        self.channel = site.buildProtocol(None)
        self.version = version
        self.channel.makeConnection(self.transport)
        self.head = b""
        self.ask(method)

    def ask(self, method: str) -> None:
        """Send a request, and read the head of the answer if there is one."""
        self.channel.dataReceived(f"{method} / HTTP/{self.version}\r\nHost: test\r\n\r\n".encode())
        self.head, _, rest = self.transport.value().partition(b"\r\n\r\n")
        self.transport.clear()
        self.transport.io.write(rest)

    def header(self, name: str) -> str | None:
        """One header of the answer."""
        found = re.search(rf"(?im)^{name}: *(.*?)\r?$".encode(), self.head)
        return found.group(1).decode() if found else None

    def raw(self) -> bytes:
        """What the transport has now; it is taken out, and nobody is told."""
        data: bytes = self.transport.value()
        self.transport.clear()
        return data

    def body(self) -> bytes:
        """The pieces of body that the transport has now, their chunk marks removed; it is taken out."""
        rest, body = self.raw(), b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return body

    def stall(self, room: int = 0) -> None:
        """Read no more; `room` is what the transport takes before it says so."""
        self.transport.room = room

    def read(self) -> bytes:
        """Read what the transport has, and let it take more, until nothing more comes."""
        data, self.transport.room = b"", 100_000
        while True:
            data += self.body()
            if self.transport.producer is not None:
                self.transport.producer.resumeProducing()
            if not self.transport.value():
                break
        self.transport.room = float("inf")
        return data

    def leave(self) -> None:
        """Lose the connection the way a socket does: the producer hears of it first."""
        if self.transport.producer is not None:
            self.transport.producer.stopProducing()
        self.channel.connectionLost(Failure(ConnectionLost()))


class OutboxTests(SynchronousTestCase):
    """One client, one outbox with room for 1,000 bytes."""

    def setUp(self) -> None:
        """An answer under way."""
        self.overflows: list[int] = []
        self.client = Client(self.begin)

    def begin(self, request: Request) -> None:
        """Answer through an outbox."""
        self.request = request
        self.outbox = Outbox(request, 1000, self.overflow)
        request.write(b"")

    def overflow(self, dropped: int) -> bytes:
        """Say what was lost."""
        self.overflows.append(dropped)
        return b"<%d lost>" % dropped

    def stall(self) -> None:
        """Let the client read no more; one piece is in the transport."""
        self.client.stall()
        self.outbox.send(b"first ")
        self.assertEqual(self.client.transport.value(), b"6\r\nfirst \r\n")

    def test_is_a_push_producer(self) -> None:
        """The outbox keeps the promises of the interface."""
        verifyObject(IPushProducer, self.outbox)

    def test_piece_is_written_at_once(self) -> None:
        """While the client keeps up, each piece is a chunk of its own, written in the same turn."""
        self.outbox.send(b"one")
        self.assertEqual(self.client.raw(), b"3\r\none\r\n")
        self.outbox.send(b"")
        self.assertEqual(self.client.raw(), b"", "an empty chunk would end the answer")
        self.outbox.send(b"two")
        self.assertEqual((self.client.raw(), self.outbox.queued), (b"3\r\ntwo\r\n", 0))

    def test_pieces_wait_for_a_slow_client(self) -> None:
        """Nothing is written while the client does not read; then all follows, in order."""
        self.stall()
        for i in range(5):
            self.outbox.send(b"%d " % i)
        self.assertEqual((self.outbox.queued, len(self.client.transport.value())), (10, len(b"6\r\nfirst \r\n")))
        self.assertEqual(self.client.read(), b"first 0 1 2 3 4 ")
        self.assertEqual((self.outbox.queued, self.overflows), (0, []))
        self.outbox.send(b"live")
        self.assertEqual(self.client.body(), b"live")

    def test_pause_in_the_middle_of_what_waited(self) -> None:
        """A client that reads a little and stalls again gets no more than it can take."""
        self.outbox._limit = 1_000_000
        self.stall()
        for i in range(10):
            self.outbox.send(b"%d" % i * 50_000)
        self.client.body()
        self.client.stall(60_000)
        assert self.client.transport.producer is not None
        self.client.transport.producer.resumeProducing()
        self.assertEqual(self.client.body(), b"0" * 50_000 + b"1" * 50_000)
        self.assertEqual(self.outbox.queued, 400_000)
        self.assertEqual(self.client.read(), b"".join(b"%d" % i * 50_000 for i in range(2, 10)))

    def test_oldest_is_dropped_and_the_client_is_told(self) -> None:
        """When more waits than there is room for, the oldest pieces go, and a word about them comes instead."""
        self.stall()
        for i in range(20):
            self.outbox.send(b"%099d " % i)
        kept = 1000 // (100 + PIECE)
        self.assertEqual((self.outbox.queued, self.overflows), (100 * kept, []))
        wanted = b"".join(b"%099d " % i for i in range(20 - kept, 20))
        self.assertEqual(self.client.read(), b"first <%d lost>" % (100 * (20 - kept)) + wanted)
        self.assertEqual(self.overflows, [100 * (20 - kept)])

    def test_second_overflow_is_counted_anew(self) -> None:
        """Each time the client reads again, it is told of what was lost since the last time."""
        for _ in range(2):
            self.stall()
            self.outbox.send(b"x" * 900)
            self.outbox.send(b"y" * 900)
            self.assertEqual(self.client.read(), b"first <900 lost>" + b"y" * 900)
        self.assertEqual(self.overflows, [900, 900])

    def test_exactly_full_loses_nothing(self) -> None:
        """The limit itself still fits."""
        self.stall()
        self.outbox.send(b"x" * (1000 - PIECE))
        self.assertEqual(self.client.read(), b"first " + b"x" * (1000 - PIECE))
        self.stall()
        self.outbox.send(b"x" * (1001 - PIECE))
        self.assertEqual(self.client.read(), b"first <%d lost>" % (1001 - PIECE))

    def test_tiny_pieces_take_room_too(self) -> None:
        """A thousand pieces of a byte take more memory than a thousand bytes, and count so."""
        self.stall()
        for _ in range(1000):
            self.outbox.send(b".")
        self.assertLess(self.outbox.queued, 1000 // PIECE + 1)

    def test_large_piece_for_a_client_that_keeps_up(self) -> None:
        """The limit is for what waits: a larger piece passes, if nothing is in its way."""
        self.outbox.send(b"x" * 5000)
        self.assertEqual(self.client.body(), b"x" * 5000)

    def test_finish_ends_the_answer(self) -> None:
        """A finished answer has its end on the wire, and takes nothing more."""
        over = self.outbox.when_over()
        self.outbox.send(b"last")
        self.assertNoResult(over)
        self.outbox.finish()
        self.outbox.send(b"too late")
        self.outbox.finish()
        self.assertEqual(self.client.raw(), b"4\r\nlast\r\n0\r\n\r\n")
        self.assertTrue(self.outbox.closed)
        self.successResultOf(over)
        self.successResultOf(self.outbox.when_over())

    def test_connection_lives_on_after_the_end(self) -> None:
        """After a finished answer the connection takes the next request, with an outbox of its own."""
        self.outbox.finish()
        self.client.raw()
        self.client.ask("GET")
        self.outbox.send(b"second answer")
        self.assertEqual(self.client.body(), b"second answer")

    def test_finish_waits_for_a_slow_client(self) -> None:
        """What waits is written before the end; a word about what was lost is, too."""
        self.stall()
        self.outbox.send(b"x" * 900)
        self.outbox.send(b"y" * 900)
        self.outbox.finish()
        self.outbox.send(b"too late")
        self.assertFalse(self.outbox.closed)
        self.client.transport.clear()
        self.client.transport.room = float("inf")
        assert self.client.transport.producer is not None
        self.client.transport.producer.resumeProducing()
        self.assertEqual(self.client.raw(), b"a\r\n<900 lost>\r\n384\r\n" + b"y" * 900 + b"\r\n0\r\n\r\n")
        self.assertTrue(self.outbox.closed)

    def test_finish_tells_of_a_loss_when_nothing_else_waits(self) -> None:
        """The end of an answer does not come before the word about what was lost."""
        self.stall()
        self.outbox.send(b"x" * 2000)
        self.outbox.finish()
        self.assertFalse(self.outbox.closed)
        self.assertEqual(self.client.read(), b"first <2000 lost>")
        self.assertTrue(self.outbox.closed)

    def test_finish_within_finish(self) -> None:
        """An answer whose end causes another wish to end it (by a line of log) ends once."""
        calls: list[Request] = []

        def log(request: Request) -> None:
            calls.append(request)
            self.outbox.finish()
            self.outbox.send(b"line about the end")

        self.request.channel.factory.log = log
        self.outbox.finish()
        self.assertEqual((self.client.raw(), calls), (b"0\r\n\r\n", [self.request]))
        self.assertEqual((self.flushWarnings(), self.flushLoggedErrors()), ([], []))

    def test_connection_that_is_lost_without_a_word_to_the_producer(self) -> None:
        """Not every transport tells its producer of the end; the request's word is enough."""
        self.stall()
        self.outbox.send(b"waits")
        self.client.channel.connectionLost(Failure(ConnectionLost()))
        self.assertEqual((self.outbox.closed, self.outbox.queued), (True, 0))
        self.successResultOf(self.outbox.when_over())

    def test_client_that_leaves(self) -> None:
        """Nothing is written to a client that is gone, nothing is kept for it, and the end is known once."""
        ends: list[object] = []
        self.outbox.when_over().addCallback(ends.append)
        self.stall()
        self.outbox.send(b"waits")
        self.client.leave()
        self.assertEqual((self.outbox.closed, self.outbox.queued, ends), (True, 0, [None]))
        self.client.raw()
        self.outbox.send(b"more")
        self.outbox.resumeProducing()
        self.outbox.stopProducing()
        self.outbox.finish()
        self.outbox.abort()
        self.assertEqual((self.client.raw(), ends), (b"", [None]))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_over_is_said_after_the_request_is_over(self) -> None:
        """When the connection is lost, whoever waits hears of it once the request is out of use, not before."""
        states: list[object] = []
        self.outbox.when_over().addCallback(lambda _: states.append(self.request.channel))
        self.client.leave()
        self.assertEqual(states, [None])

    def test_waiting_for_the_end_may_be_cancelled(self) -> None:
        """One who does not wait any more disturbs neither the answer nor the others who wait."""
        over, other = self.outbox.when_over(), self.outbox.when_over()
        over.addErrback(lambda failure: None)
        over.cancel()
        self.outbox.send(b"x")
        self.assertEqual(self.client.body(), b"x")
        self.outbox.finish()
        self.successResultOf(other)

    def test_abort_cuts_the_connection(self) -> None:
        """A client that is cut off gets no proper end, so that it can tell."""
        over = self.outbox.when_over()
        self.stall()
        self.client.raw()
        self.outbox.send(b"waits")
        self.outbox.abort()
        self.assertTrue(self.client.transport.disconnected)
        self.assertEqual((self.client.raw(), self.outbox.closed), (b"", True))
        self.assertNoResult(over)
        self.client.leave()
        self.successResultOf(over)

    def test_outbox_for_a_client_that_left_before(self) -> None:
        """An outbox that comes too late is closed from the start."""
        late: list[Request] = []
        client = Client(late.append)
        client.leave()
        outbox = Outbox(late[0], 1000, self.overflow)
        outbox.send(b"x")
        outbox.finish()
        outbox.abort()
        self.assertTrue(outbox.closed)
        self.successResultOf(outbox.when_over())

    def test_outbox_for_an_answer_that_is_over(self) -> None:
        """The same when the request was finished by somebody else."""
        self.outbox.finish()
        outbox = Outbox(self.request, 1000, self.overflow)
        outbox.send(b"x")
        self.assertTrue(outbox.closed)
        self.successResultOf(outbox.when_over())

    def test_sending_while_a_piece_is_written(self) -> None:
        """A piece sent from within the writing of another comes after it."""
        real = self.client.transport.write
        more = [b"inner"]

        def write(data: bytes) -> None:
            if more:
                self.outbox.send(more.pop())
            real(data)

        self.patch(self.client.transport, "write", write)
        self.outbox.send(b"outer ")
        self.assertEqual(self.client.body(), b"outer inner")

    def test_http_1_0(self) -> None:
        """A client without chunks gets the bytes as they are, and the close of the connection as the end."""
        client = Client(self.begin, version="1.0")
        self.outbox.send(b"one")
        self.outbox.finish()
        self.assertEqual(client.raw(), b"one")
        self.assertTrue(client.transport.disconnecting)
