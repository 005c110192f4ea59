"""Handing an answer on: which framing the client gets, what a cut looks like, and that the end is told once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.framing import ChunkFollower, ResponseHead
from lswap.errors import UpstreamClosed, UpstreamError
from lswap.net.call import Call
from lswap.net.dial import Origin
from lswap.net.relay import Downstream, Relay
from lswap.net.upstream import Upstream
from tests.net.wire import Net, Wire


class Client:
    """The client's side: notes what is written and how it ends. Full after `room` bytes, if that is set."""

    def __init__(self, http11: bool = True, closing: bool = False, cross_origin: bool = False) -> None:
        self.http11 = http11
        self.closing = closing
        self.cross_origin = cross_origin
        self.interims = b""
        self.written: list[bytes] = []
        self.status = 0
        self.end_is: list[str] = []
        self.producer: Call | None = None
        self.room = 1 << 30

    @property
    def data(self) -> bytes:
        """All that was written."""
        return b"".join(self.written)

    @property
    def head(self) -> list[bytes]:
        """The lines of the head."""
        return self.data.partition(b"\r\n\r\n")[0].split(b"\r\n")

    @property
    def body(self) -> bytes:
        """What follows the head."""
        return self.data.partition(b"\r\n\r\n")[2]

    def date(self) -> bytes:
        """See `lswap.net.relay.Downstream`."""
        return b"now"

    def interim(self, data: bytes) -> None:
        """See `lswap.net.relay.Downstream`."""
        assert not self.written
        self.interims += data

    def begin(self, status: int, data: Sequence[bytes]) -> None:
        """See `lswap.net.relay.Downstream`."""
        assert not self.written
        self.status = status
        self._write(b"".join(data))

    def pass_on(self, data: bytes) -> None:
        """See `lswap.net.relay.Downstream`."""
        assert self.written and data
        self._write(data)

    def _write(self, data: bytes) -> None:
        assert not self.end_is
        self.written.append(data)
        if self.producer is not None and len(self.data) > self.room:
            self.producer.pauseProducing()

    def end(self) -> None:
        """See `lswap.net.relay.Downstream`."""
        assert self.producer is None, "a producer is still registered"
        self.end_is.append("end")

    def cut(self, reset: bool) -> None:
        """See `lswap.net.relay.Downstream`."""
        assert self.producer is None, "a producer is still registered"
        self.end_is.append("reset" if reset else "cut")

    def take_from(self, producer: Call | None) -> None:
        """See `lswap.net.relay.Downstream`."""
        assert (self.producer is None) != (producer is None) or producer is None
        self.producer = producer


class RelayTestCase(SynchronousTestCase):
    """A pool, a client, and a relay between them."""

    def relayed(self, client: Client, method: bytes = b"GET") -> Wire:
        """A request of this client; the hand at the model server's end."""
        down: Downstream = client
        self.net = Net()
        self.ends: list[UpstreamError | None] = []
        self.heads: list[ResponseHead] = []
        self.relay = Relay(down, self.ends.append)
        self.relay.on_head = self.heads.append
        self.upstream = Upstream(self.net, Origin("http://127.0.0.1:9"))
        call = self.upstream.send(method, [method, b" / HTTP/1.1\r\n\r\n"], None, self.relay)
        client.take_from(call)
        return self.net.accept()

    def answered(self, client: Client, *pieces: bytes, method: bytes = b"GET", end: bool = False) -> Client:
        """A client that got this answer, in these pieces."""
        wire = self.relayed(client, method)
        for piece in pieces:
            wire.say(piece)
        if end:
            wire.end()
        return client


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n"
UNSIZED = b"HTTP/1.1 200 Fine\r\nX: y\r\n\r\n"


class FramingTests(RelayTestCase):
    """Whole answers."""

    def assert_whole(self, client: Client, head: list[bytes], body: bytes) -> None:
        """The client got this, and the end was told once."""
        self.assertEqual((client.head, client.body), (head, body))
        self.assertEqual((client.end_is, self.ends), (["end"], [None]))

    def test_known_length(self) -> None:
        """Bytes go on as they are, in the turn and the pieces in which they came."""
        client = self.answered(Client(), SIZED + b"he", b"l", b"lo")
        head = [b"HTTP/1.1 200 OK", b"Content-Length: 5", b"X: y", b"Date: now"]
        self.assert_whole(client, head, b"hello")
        self.assertEqual(client.written[1:], [b"l", b"lo"])
        self.assertEqual((client.status, self.relay.status, self.relay.bytes), (200, 200, 5))
        self.assertEqual([head.status for head in self.heads], [200])
        self.assert_whole(
            self.answered(Client(http11=False, closing=True), SIZED + b"hello"), [*head, b"Connection: close"], b"hello"
        )

    def test_chunks(self) -> None:
        """Chunks go on raw, with extensions and trailers."""
        raw = [b"2;x\r\nhe\r\n", b"3\r\nllo\r\n0\r\nA: b\r\n\r\n"]
        client = self.answered(Client(), CHUNKED + raw[0], raw[1])
        head = [b"HTTP/1.1 200 OK", b"X: y", b"Date: now", b"Transfer-Encoding: chunked"]
        self.assert_whole(client, head, b"".join(raw))
        self.assertEqual(self.relay.bytes, len(b"".join(raw)))

    def test_chunks_for_an_old_client(self) -> None:
        """A client that does not understand chunks gets what is in them, until its connection ends."""
        client = self.answered(
            Client(http11=False, closing=True), CHUNKED, b"2;x\r\nhe\r\n", b"3\r\nll", b"o\r\n", b"0\r\nA: b\r\n\r\n"
        )
        head = [b"HTTP/1.1 200 OK", b"X: y", b"Date: now", b"Connection: close"]
        self.assert_whole(client, head, b"hello")
        self.assertEqual(client.written[1:], [b"he", b"ll", b"o"])

    def test_end_by_close(self) -> None:
        """An answer that ends with its connection is put into chunks, so that the client sees its end."""
        client = self.answered(Client(), UNSIZED + b"he", b"llo", end=True)
        head = [b"HTTP/1.1 200 Fine", b"X: y", b"Date: now", b"Transfer-Encoding: chunked"]
        self.assert_whole(client, head, b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
        client = self.answered(Client(), UNSIZED, end=True)
        self.assert_whole(client, head, b"0\r\n\r\n")

    def test_end_by_close_for_an_old_client(self) -> None:
        """An old client knows such answers."""
        client = self.answered(Client(http11=False, closing=True), UNSIZED + b"he", b"llo", end=True)
        self.assert_whole(client, [b"HTTP/1.1 200 Fine", b"X: y", b"Date: now", b"Connection: close"], b"hello")

    def test_no_body(self) -> None:
        """Answers without a body get no framing, and HEAD keeps the length of its GET."""
        for http11 in (True, False):
            client = self.answered(Client(http11), b"HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n")
            self.assert_whole(client, [b"HTTP/1.1 204 No", b"Date: now"], b"")
            client = self.answered(Client(http11), b"HTTP/1.1 304 Not\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.assert_whole(client, [b"HTTP/1.1 304 Not", b"ETag: x", b"Date: now"], b"")
            client = self.answered(Client(http11), SIZED, method=b"HEAD")
            self.assert_whole(client, [b"HTTP/1.1 200 OK", b"Content-Length: 5", b"X: y", b"Date: now"], b"")

    def test_closing_client(self) -> None:
        """A client whose connection ends afterwards is told so, and still gets chunks."""
        client = self.answered(Client(closing=True), CHUNKED + b"0\r\n\r\n")
        self.assertEqual(client.head[-2:], [b"Transfer-Encoding: chunked", b"Connection: close"])

    def test_cross_origin(self) -> None:
        """A request with an origin gets the one header that it needs."""
        client = self.answered(
            Client(cross_origin=True), b"HTTP/1.1 204 No\r\naccess-control-allow-origin: null\r\n\r\n"
        )
        self.assertEqual(client.head[1:], [b"Date: now", b"Access-Control-Allow-Origin: *"])

    def test_interim(self) -> None:
        """1xx answers go to those who understand them, without anything about framing."""
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
        client = self.answered(Client(), hints + SIZED + b"hello")
        self.assertEqual(client.interims, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        self.assertTrue(client.body.endswith(b"hello"))
        client = self.answered(Client(http11=False), hints + SIZED + b"hello")
        self.assertEqual((client.interims, client.body), (b"", b"hello"))

    @given(st.binary(max_size=200), st.lists(st.integers(1, 60), max_size=5), st.booleans(), st.booleans())
    def test_content_stays(self, content: bytes, sizes: list[int], http11: bool, by_close: bool) -> None:
        """Whatever the framings and the pieces are, the client reads the content that was sent."""
        pieces, rest = [], content
        for size in sizes:
            pieces.append(rest[:size])
            rest = rest[size:]
        pieces = [piece for piece in [*pieces, rest] if piece]
        if by_close:
            client = self.answered(Client(http11, not http11), UNSIZED, *pieces, end=True)
        else:
            framed = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
            client = self.answered(Client(http11, not http11), CHUNKED, *framed, b"0\r\n\r\n")
        spans = [client.body]
        if http11:
            spans = []
            self.assertEqual(ChunkFollower().feed(client.body, spans), len(client.body))
        self.assertEqual((b"".join(spans), client.end_is), (content, ["end"]))


class CutTests(RelayTestCase):
    """Answers that break off."""

    def test_before_the_head(self) -> None:
        """Nothing is written: what to say is up to others."""
        for data in (b"", b"HTTP/1.1 2", b"garbage", b"HTTP/1.1 103 Hi\r\n\r\n"):
            client = Client()
            wire = self.relayed(client)
            if data:
                wire.say(data)
            wire.end()
            self.assertFalse(self.relay.begun)
            self.assertEqual((client.written, client.end_is, len(self.ends), self.relay.status), ([], [], 1, 0))

    def test_in_the_body(self) -> None:
        """What came is flushed, and the end is missing: no terminator, or short of the length."""
        for head, body in ((SIZED, b"hel"), (CHUNKED, b"3\r\nhel\r\n"), (UNSIZED, b"hel")):
            client = Client()
            wire = self.relayed(client)
            wire.say(head + body)
            wire.reset()
            self.assertTrue(self.relay.begun)
            self.assertIn(b"hel", client.body)
            self.assertNotIn(b"0\r\n\r\n", client.body)
            self.assertEqual(client.end_is, ["cut"])
            self.assertEqual([type(error) for error in self.ends], [UpstreamClosed])

    def test_in_the_body_for_an_old_client(self) -> None:
        """A client that would take the end of the connection for the end of the answer gets a reset."""
        for head, body, end in (
            (SIZED, b"hel", "cut"),
            (CHUNKED, b"3\r\nhel\r\n", "reset"),
            (UNSIZED, b"hel", "reset"),
        ):
            client = Client(http11=False, closing=True)
            wire = self.relayed(client)
            wire.say(head + body)
            wire.reset()
            self.assertEqual((client.body, client.end_is), (b"hel", [end]))

    def test_broken_chunks(self) -> None:
        """Broken framing is a cut, and nothing of the broken piece goes on."""
        for http11 in (True, False):
            client = self.answered(Client(http11), CHUNKED + b"1\r\na\r\n", b"zz\r\n")
            self.assertNotIn(b"zz", client.body)
            self.assertEqual((client.end_is, len(self.ends)), (["cut" if http11 else "reset"], 1))


class BackPressureTests(RelayTestCase):
    """A client that reads slowly."""

    def test_slow_client(self) -> None:
        """The write that fills the client stops the model, until the client has read."""
        client = Client()
        client.room = 200
        wire = self.relayed(client)
        wire.say(CHUNKED)
        self.assertFalse(wire.paused)
        wire.say(b"c8\r\n" + b"x" * 200 + b"\r\n")
        self.assertTrue(wire.paused)
        assert client.producer is not None
        client.producer.resumeProducing()
        wire.say(b"0\r\n\r\n")
        self.assertEqual((self.ends, wire.paused), ([None], False))

    def test_client_that_leaves(self) -> None:
        """The model's connection is closed at once, and nothing more is told."""
        client = Client()
        wire = self.relayed(client)
        wire.say(CHUNKED)
        assert client.producer is not None
        client.producer.stopProducing()
        self.assertEqual(wire.closed, "abort")
        self.net.turn()
        self.assertEqual((client.end_is, self.ends), ([], []))

    def test_order_of_the_end(self) -> None:
        """All is let go of before the answer ends, as the client's next request may begin with that."""
        client = Client()
        order: list[str] = []
        relay = Relay(client, lambda _: order.append("over"))
        self.patch(client, "end", lambda: order.append("end"))
        net = Net()
        Upstream(net, Origin("http://127.0.0.1:9")).send(b"GET", [b"x"], None, relay)
        net.accept().say(SIZED + b"hello")
        self.assertEqual(order, ["over", "end"])
