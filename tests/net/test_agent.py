"""treq on our own client: what goes out, bodies in all framings, cancelling at every stage, takers that misbehave."""

from __future__ import annotations

import gzip
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone, ResponseFailed, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent, IBodyProducer, IResponse
from zope.interface import implementer
from zope.interface.verify import verifyObject

from lswap.errors import BadAnswer, ConnectFailed, UpstreamClosed
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.upstream import Upstream
from tests.net.wire import Net, Wire

URL = "http://127.0.0.1:9/x"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@implementer(IBodyProducer)
class Producer:
    """A body that is there at once, or in the pieces that a test gives."""

    def __init__(self, data: bytes, at_once: bool = True) -> None:
        self.length = len(data)
        self.data = data
        self.at_once = at_once
        self.consumer: Any = None
        self.done: Deferred[None] = Deferred()

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Produce."""
        self.consumer = consumer
        if self.at_once:
            consumer.write(self.data)
            return succeed(None)
        return self.done

    def stopProducing(self) -> None:
        """Not needed."""

    def pauseProducing(self) -> None:
        """Not needed."""

    def resumeProducing(self) -> None:
        """Not needed."""


class Taker(Protocol):
    """Takes a body; may break on what it gets."""

    transport: Any

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.reason: Failure | None = None
        self.on_data: Any = None

    def dataReceived(self, data: bytes) -> None:
        """Take a piece."""
        self.pieces.append(data)
        if self.on_data is not None:
            self.on_data()

    def connectionLost(self, reason: Failure = Failure(ResponseDone())) -> None:  # noqa: B008 - Twisted's signature
        """The end, which comes once."""
        assert self.reason is None
        self.reason = reason


class AgentTestCase(SynchronousTestCase):
    """treq and the bare agent, on connections that are made by hand."""

    def setUp(self) -> None:
        """A pool, an agent, a client."""
        self.net = Net()
        self.pools: dict[str, Upstream] = {}
        self.agent = UpstreamAgent(self.pool)
        self.client = HTTPClient(self.agent, data_to_body_producer=Producer)

    def pool(self, origin: Origin) -> Upstream:
        """The pool of an origin."""
        pool = self.pools.setdefault(str(origin), Upstream(self.net, origin))
        pool.keeps_open[False] = True  # this server has kept its word before
        return pool

    def tearDown(self) -> None:
        """Nothing is left when all is closed."""
        for pool in self.pools.values():
            pool.close()
        self.net.turn()
        self.assertEqual((self.net.timers, [pool._all for pool in self.pools.values() if pool._all]), (0, []))

    def ask(
        self, method: bytes = b"GET", url: bytes = URL.encode(), headers: Headers | None = None, body: Any = None
    ) -> Deferred[IResponse]:
        """A request of the bare agent, on a fresh connection; how it ends is up to the test, or nobody's business."""
        for pool in self.pools.values():
            pool.forget_idle()
        asked = self.agent.request(method, url, headers, body)
        self.addCleanup(asked.addErrback, lambda _: None)
        return asked

    def answered(self, *pieces: bytes) -> tuple[Any, Wire]:
        """The response to a request of the bare agent."""
        asked = self.ask()
        wire = self.net.accept()
        for piece in pieces:
            wire.say(piece)
        return self.successResultOf(asked), wire

    def delivered(self, *pieces: bytes) -> tuple[Taker, Wire]:
        """Somebody who takes the body of an answer, of which these pieces came."""
        response, wire = self.answered(*pieces)
        taker = Taker()
        response.deliverBody(taker)
        return taker, wire


class RequestTests(AgentTestCase):
    """What goes out."""

    def written(
        self, method: bytes, url: bytes, headers: Headers | None = None, body: bytes | None = None
    ) -> list[bytes]:
        """The lines of a request, and its body."""
        producer = Producer(body) if body is not None else None
        self.ask(method, url, headers, producer)
        return self.net.accept().take().split(b"\r\n")

    def test_interface(self) -> None:
        """It is an agent."""
        verifyObject(IAgent, self.agent)

    def test_get(self) -> None:
        """Target, host and headers, and no body."""
        lines = self.written(b"GET", b"http://127.0.0.1:9/a%2Fb?c=d", Headers({b"X-y": [b"1", b"2"]}))
        self.assertEqual(lines, [b"GET /a%2Fb?c=d HTTP/1.1", b"Host: 127.0.0.1:9", b"X-Y: 1", b"X-Y: 2", b"", b""])

    def test_targets(self) -> None:
        """The target is what the URL has between its host and its fragment."""
        for url, target in {
            b"http://h": b"/",
            b"http://h/": b"/",
            b"http://h?x=/y": b"/?x=/y",
            b"http://h/x?#y?z": b"/x?",
            b"http://user:pw@h/x//y?a://b": b"/x//y?a://b",
            b"http://[::1]:8/x": b"/x",
        }.items():
            self.assertEqual(self.written(b"GET", url)[0], b"GET " + target + b" HTTP/1.1", url)

    def test_host(self) -> None:
        """A host that the caller names counts."""
        lines = self.written(b"GET", b"http://user:pw@h:80/", Headers({b"host": [b"other"]}))
        self.assertEqual(lines[1:3], [b"Host: other", b""])
        self.assertEqual(self.written(b"GET", b"http://user:pw@h:80/")[1], b"Host: h:80")

    def test_body(self) -> None:
        """A body goes with its length, however the caller says it is framed."""
        headers = Headers({b"Content-Length": [b"7"], b"Transfer-Encoding": [b"chunked"]})
        for method in (b"POST", b"GET", b"DELETE"):
            lines = self.written(method, URL.encode(), headers, b"abc")
            self.assertEqual(lines[2:], [b"Content-Length: 3", b"", b"abc"])
        self.assertEqual(self.written(b"POST", URL.encode())[2:], [b"Content-Length: 0", b"", b""])

    def test_body_that_takes_its_time(self) -> None:
        """Nothing is sent before the body is whole."""
        producer = Producer(b"abcdef", at_once=False)
        asked = self.ask(b"POST", body=producer)
        producer.consumer.write(b"abc")
        self.assertEqual(self.net.tcpClients, [])
        producer.consumer.write(b"def")
        producer.done.callback(None)
        self.assertTrue(self.net.accept().take().endswith(b"Content-Length: 6\r\n\r\nabcdef"))
        self.assertNoResult(asked)

    def test_body_that_breaks(self) -> None:
        """A body that cannot be produced fails the request, and nothing is sent."""
        producer = Producer(b"abc", at_once=False)
        asked = self.ask(b"POST", body=producer)
        producer.done.errback(Failure(OSError("gone")))
        self.failureResultOf(asked, OSError)
        self.assertEqual(self.net.tcpClients, [])

    def test_what_can_be_no_request(self) -> None:
        """Nothing that could be read as two requests goes out."""
        for method, url in (
            (b"GET", b"http://h/a b"),
            (b"GET", b"http://h/\r\nX: y"),
            (b"GET", b"http://h/\xe9"),
            (b"G T", b"http://h/"),
            (b"GET\r\n", b"http://h/"),
            (b"", b"http://h/"),
            (b"GET", b"/x"),
            (b"GET", b"ftp://h/"),
            (b"GET", b"http://h:x/"),
        ):
            self.failureResultOf(self.ask(method, url), ValueError)
        self.written(b"GET", b"http://h/", Headers({b"X": [b"a\r\nY: b"]}))
        self.assertEqual(len(self.net.tcpClients), 1)


class AnswerTests(AgentTestCase):
    """What comes back."""

    def test_response(self) -> None:
        """Status, reason, version and headers are there with the head."""
        response, _ = self.answered(b"HTTP/1.0 299 Fine\r\nX-a: 1\r\nx-A: 2\r\n\r\n")
        verifyObject(IResponse, response)
        self.assertEqual((response.version, response.code, response.phrase), ((b"HTTP", 1, 0), 299, b"Fine"))
        self.assertEqual(response.headers.getRawHeaders(b"x-a"), [b"1", b"2"])
        self.assertEqual((response.request.method, response.request.absoluteURI), (b"GET", URL.encode()))
        self.assertIs(response.length, UNKNOWN_LENGTH)
        response.setPreviousResponse(response)
        self.assertIs(response.previousResponse, response)

    def test_lengths(self) -> None:
        """A known length is told, and no body is one of 0."""
        for data, length in ((OK, 5), (b"HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", 0), (STREAM, UNKNOWN_LENGTH)):
            response, _ = self.answered(data)
            self.assertEqual(response.length, length)

    def test_interim_answers(self) -> None:
        """Nobody here asks for them."""
        response, _ = self.answered(b"HTTP/1.1 103 Hi\r\n\r\n" + OK)
        self.assertEqual(response.code, 200)

    def test_framings(self) -> None:
        """The content comes, whatever the framing and the pieces are."""
        for pieces, end in (
            ([OK], False),
            ([OK[:-3], OK[-3:]], False),
            ([STREAM + b"2;x\r\nhe\r\n", b"3\r\nll", b"o\r\n0\r\n", b"\r\n"], False),
            ([b"HTTP/1.1 200 OK\r\n\r\nhe", b"llo"], True),
        ):
            response, wire = self.answered(pieces[0])
            taker = Taker()
            response.deliverBody(taker)
            for piece in pieces[1:]:
                wire.say(piece)
            if end:
                wire.end()
            self.assertEqual((b"".join(taker.pieces), b"" in taker.pieces), (b"hello", False))
            assert taker.reason is not None
            taker.reason.trap(ResponseDone)

    def test_held_back(self) -> None:
        """Until somebody wants the body, the server is not read; what came along is kept."""
        response, wire = self.answered(OK[:-2])
        self.assertTrue(wire.paused)
        taker = Taker()
        response.deliverBody(taker)
        self.assertEqual((taker.pieces, wire.paused), ([b"hel"], False))
        wire.say(b"lo")
        self.assertEqual(b"".join(taker.pieces), b"hello")

    def test_once(self) -> None:
        """A body cannot be given to two."""
        response, _ = self.answered(OK)
        response.deliverBody(Taker())
        with self.assertRaises(RuntimeError):
            response.deliverBody(Taker())

    def test_back_pressure(self) -> None:
        """The taker can hold the server back."""
        taker, wire = self.delivered(STREAM)
        verifyObject(IPushProducer, taker.transport)
        taker.transport.pauseProducing()
        self.assertTrue(wire.paused)
        taker.transport.resumeProducing()
        self.assertFalse(wire.paused)

    def test_failures(self) -> None:
        """Before the head the request fails, later the body does, each once."""
        asked = self.ask()
        self.net.refuse()
        self.net.turn()
        self.failureResultOf(asked, ConnectFailed)
        asked = self.ask()
        self.net.accept().say(b"garbage")
        self.failureResultOf(asked, BadAnswer)
        taker, wire = self.delivered(OK[:-2])
        wire.end()
        assert taker.reason is not None
        taker.reason.trap(UpstreamClosed)
        response, wire = self.answered(STREAM)
        wire._protocol.connectionLost(Failure(ConnectionAborted()))
        wire.connected = False
        taker = Taker()
        response.deliverBody(taker)
        assert taker.reason is not None
        taker.reason.trap(UpstreamClosed)

    def test_connection_serves_again(self) -> None:
        """A body that was read frees its connection."""
        taker, wire = self.delivered(OK)
        self.agent.request(b"GET", URL.encode()).addErrback(lambda _: None)
        self.assertEqual((len(self.net.tcpClients), b"".join(taker.pieces)), (1, b"hello"))
        self.assertFalse(wire.paused)


class GivingUpTests(AgentTestCase):
    """Who does not want to wait, or to read."""

    def test_cancel_while_the_body_is_produced(self) -> None:
        """Nothing is sent."""
        asked = self.ask(b"POST", body=Producer(b"abc", at_once=False))
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual(self.net.tcpClients, [])

    def test_cancel_while_dialing(self) -> None:
        """The attempt is given up."""
        asked = self.ask()
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertTrue(self.net.connectors[0].stoppedConnecting)

    def test_cancel_before_the_head(self) -> None:
        """The connection is closed."""
        for producer in (None, Producer(b"abc")):
            asked = self.ask(b"POST", body=producer)
            wire = self.net.accept()
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
            self.assertEqual(wire.closed, "abort")

    def test_lose_the_connection(self) -> None:
        """A taker may close it, by any of the usual names, and is told of the end in a turn of its own."""
        for name in ("loseConnection", "abortConnection", "stopProducing"):
            taker, wire = self.delivered(STREAM + b"1\r\na\r\n")
            getattr(taker.transport, name)()
            getattr(taker.transport, name)()
            self.assertEqual((wire.closed, taker.reason), ("abort", None))
            self.net.turn()
            assert taker.reason is not None
            taker.reason.trap(ConnectionAborted)

    def test_lose_the_connection_in_the_first_piece(self) -> None:
        """What had come along is not delivered any more."""
        response, _ = self.answered(STREAM + b"1\r\na\r\n1\r\nb\r\n")
        taker = Taker()
        taker.on_data = lambda: taker.transport.loseConnection()  # noqa: PLW0108 - there is no transport yet
        response.deliverBody(taker)
        self.net.turn()
        self.assertIsNotNone(taker.reason)

    def test_lose_the_connection_of_a_whole_answer(self) -> None:
        """The end is the proper one, told once, and the connection, another's by then, is left alone."""
        response, wire = self.answered(OK)
        taker = Taker()
        taker.on_data = lambda: taker.transport.loseConnection()  # noqa: PLW0108 - there is no transport yet
        response.deliverBody(taker)
        self.net.turn()
        assert taker.reason is not None
        taker.reason.trap(ResponseDone)
        self.assertIsNone(wire.closed)

    def test_taker_that_breaks(self) -> None:
        """A taker that raises costs its own answer: the connection is closed, and it is told."""
        taker, wire = self.delivered(STREAM)

        def fail() -> None:
            raise RuntimeError("broken taker")

        taker.on_data = fail
        wire.say(b"1\r\na\r\n1\r\nb\r\n")
        self.assertEqual(wire.closed, "abort")
        self.net.turn()
        assert taker.reason is not None
        taker.reason.trap(ResponseFailed)
        self.assertEqual(taker.pieces, [b"a"])

    def test_taker_that_breaks_at_the_end(self) -> None:
        """It is logged, and the connection serves again."""
        response, wire = self.answered(OK)
        taker = Taker()

        def broken(reason: Failure) -> None:
            raise RuntimeError("broken taker")

        self.patch(taker, "connectionLost", broken)
        response.deliverBody(taker)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIsNone(wire.closed)


class TreqTests(AgentTestCase):
    """treq itself."""

    def test_get(self) -> None:
        """A whole call."""
        asked = self.client.get(URL, params={"a": "b c"})
        wire = self.net.accept()
        self.assertTrue(wire.take().startswith(b"GET /x?a=b+c HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"))
        wire.say(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}')
        response = self.successResultOf(asked)
        self.assertEqual(response.code, 200)
        self.assertEqual(self.successResultOf(response.json()), {"a": 1})
        self.assertEqual(self.successResultOf(response.text()), '{"a":1}')

    def test_post(self) -> None:
        """A call with a JSON body."""
        asked = self.client.post(URL, json={"a": 1})
        wire = self.net.accept()
        self.assertTrue(wire.take().endswith(b'Content-Length: 7\r\n\r\n{"a":1}'))
        wire.say(b"HTTP/1.1 204 No\r\n\r\n")
        response = self.successResultOf(asked)
        self.assertEqual(self.successResultOf(response.content()), b"")

    def test_compressed(self) -> None:
        """treq asks for gzip, and reads it."""
        asked = self.client.get(URL)
        wire = self.net.accept()
        self.assertIn(b"Accept-Encoding: gzip\r\n", wire.take())
        data = gzip.compress(b"hello")
        wire.say(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        response = self.successResultOf(asked)
        self.assertEqual(self.successResultOf(response.content()), b"hello")

    def test_badly_compressed(self) -> None:
        """A body that is no gzip fails its reader, and nothing else."""
        asked = self.client.get(URL)
        self.net.accept().say(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello")
        response = self.successResultOf(asked)
        self.failureResultOf(response.content(), ResponseFailed)

    def test_redirect(self) -> None:
        """A redirect is followed, to another origin if need be."""
        asked = self.client.get(URL)
        self.net.accept().say(b"HTTP/1.1 302 x\r\nLocation: http://10.0.0.2/y\r\nContent-Length: 0\r\n\r\n")
        wire = self.net.accept()
        self.assertEqual((self.net.hosts, wire.take()[:6]), (["127.0.0.1", "10.0.0.2"], b"GET /y"))
        wire.say(OK)
        response = self.successResultOf(asked)
        self.assertEqual(len(response.history()), 1)
        self.assertEqual(self.successResultOf(response.content()), b"hello")

    def test_cut_body(self) -> None:
        """A cut body fails its reader."""
        asked = self.client.get(URL)
        wire = self.net.accept()
        wire.say(OK[:-2])
        content = self.successResultOf(asked).content()
        wire.end()
        self.failureResultOf(content, UpstreamClosed)

    def test_cancel(self) -> None:
        """A call that is given up closes its connection, and so does a body of Twisted's reader."""
        asked = self.client.get(URL)
        wire = self.net.accept()
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual(wire.closed, "abort")
        asked = self.client.get(URL, unbuffered=True)
        wire = self.net.accept()
        wire.say(STREAM)
        reading = readBody(self.successResultOf(asked))
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.assertEqual(wire.closed, "abort")

    def test_timeout(self) -> None:
        """treq's own limit works."""
        asked = self.client.get(URL, timeout=3, reactor=self.net)  # type: ignore[arg-type]
        wire = self.net.accept()
        self.net.advance(3)
        self.failureResultOf(asked)
        self.assertEqual(wire.closed, "abort")
