"""One client connection (`lswap.web.channel`): heads, bodies, limits and ends, on genuine transports in memory."""

from __future__ import annotations

import json

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from lswap.net.body import Spool
from lswap.web.request import Request
from tests.memory import Answer, MemoryClient, MemoryLswap

CONFIG = """
limits: {requestHead: 2048, requestBody: 1000, headTimeout: 10, idleTimeout: 30}
models:
  a: {cmd: "server --port ${PORT}"}
"""
HOST = b"Host: h\r\n"
POST = b"POST /upstream/a/x HTTP/1.1\r\nHost: h\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"


class ChannelCase(SynchronousTestCase):
    """An lswap with narrow limits, whose model is ready, and one client."""

    def setUp(self) -> None:
        """The model answers everything."""
        self.lswap = MemoryLswap(CONFIG)
        self.lswap.ready("a")
        self.model = self.lswap.models["a"]
        self.model.says = b"hello"
        self.client = self.lswap.client()

    def fresh(self) -> MemoryClient:
        """Another client."""
        self.client = self.lswap.client()
        return self.client

    def assert_refused(self, status: int, client: MemoryClient | None = None) -> Answer:
        """The client has been told so, once, in the usual form, and its connection ends."""
        client = client or self.client
        answer = client.read()
        self.assertEqual((answer.status, answer.complete), (status, True), answer)
        self.assertEqual(answer.header("Content-Type"), "application/json")
        self.assertEqual(answer.header("Connection"), "close")
        self.assertEqual(answer.all("Access-Control-Allow-Origin"), ["*"])
        self.assertEqual(len(answer.all("Date")), 1)
        error = json.loads(answer.body)["error"]
        self.assertEqual((set(error), error["param"]), ({"message", "type", "param", "code"}, None))
        self.assertTrue(client.closed)
        self.assertEqual(client.take(), b"")
        return answer

    def assert_quiet(self) -> None:
        """No connection, timer or request is left."""
        self.lswap.turn(10)
        self.assertEqual(self.lswap.service.site.channels, set())
        self.assertEqual(self.lswap.reactor.getDelayedCalls(), [])
        self.assertEqual(self.lswap.leftovers(), [])


class HeadTests(ChannelCase):
    """What is a head, and what is not."""

    def test_in_pieces(self) -> None:
        """A request may come byte by byte; its headers arrive as they were written."""
        for byte in POST + b"x-CASE:  a  b \r\nContent-Length:2\r\n\r\nhi":
            self.client.raw(bytes([byte]))
        self.assertEqual(self.client.read().body, b"hello")
        self.assertIn(("x-CASE", "a  b"), self.model.request.headers)
        self.assertEqual(self.model.request.body, b"hi")

    def test_heads_that_two_servers_read_differently(self) -> None:
        """Two lengths, length and chunks, odd codings, bare line ends, NUL, space before the colon: 400 and close."""
        for head in (
            POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            POST + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
            POST + b"Transfer-Encoding: \r\n\r\n",
            POST + b"Content-Length: +1\r\n\r\nx",
            POST + b"Content-Length: -1\r\n\r\n",
            POST + b"Content-Length: 1, 1\r\n\r\nx",
            POST + b"Content-Length: 0x1\r\n\r\nx",
            POST + b"Content-Length: \xb2\r\n\r\nxx",
            POST + b"Content-Length:\r\n\r\n",
            b"POST /upstream/a/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            POST + b"Content-Length : 1\r\n\r\nx",
            POST + b"X Y: 1\r\n\r\n",
            POST + b": 1\r\n\r\n",
            POST + b"no colon\r\n\r\n",
            POST + b"X: a\rContent-Length: 5\r\n\r\n",
            POST + b"X: a\nContent-Length: 5\r\n\r\n",
            POST + b"X: a\0b\r\n\r\n",
            POST + b"X\0: b\r\n\r\n",
            POST + b"X: a\r\n b\0\r\n\r\n",
            b"POST /upstream/a/x HTTP/1.1\r\n Host: h\r\n\r\n",
            b"POST /upstream/a/x HTTP/1.1\nHost: h\r\n\r\n",
            b"POST /upstream/a/x HTTP/1.1\nHost: h\n\n",
            b"POST /upstream/a/x HTTP/1.1\r\nHost: h\n\n",
            b"POST /upstream/a/\0 HTTP/1.1\r\nHost: h\r\n\r\n",
            b"POST /upstream/a/\r HTTP/1.1\r\nHost: h\r\n\r\n",
        ):
            self.fresh().raw(head)
            self.assert_refused(400)
            self.client.leave()
        self.assertEqual(self.model.requests, [])
        self.assert_quiet()

    def test_no_requests_at_all(self) -> None:
        """Other protocols, other versions, broken request lines: 400 and close."""
        for text in (
            b"rubbish\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
            b"GET / x HTTP/1.1\r\n\r\n",
            b"GET / HTTP/2.0\r\n\r\n",
            b"GET / HTTP/1.2\r\n\r\n",
            b"GET / http/1.1\r\n\r\n",
            b"G@T / HTTP/1.1\r\n\r\n",
            b"G\xc9T / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\xe9\r\n\r\n",
            b"GET /\xe9 /x HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
        ):
            self.fresh().raw(text)
            self.assert_refused(400)
            self.client.leave()
        self.assert_quiet()

    def test_nothing_after_a_refusal_is_heard(self) -> None:
        """Neither in the same piece nor later; no request of it runs, and no 100 follows the error."""
        bad = POST + b"X : 1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi" + GET
        self.client.raw(bad)
        self.assert_refused(400)
        self.client.raw(GET)
        self.assertEqual(self.client.take(), b"")
        self.assertEqual(self.model.requests, [])

    def test_folded_header(self) -> None:
        """An old folded header goes on as one line."""
        self.client.raw(POST + b"X-Long: a\r\n\tb\r\n  c\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.client.read().status, 200)
        self.assertEqual(self.model.request.header("X-Long"), "a b c")

    def test_blank_line_before(self) -> None:
        """One is overlooked, as old clients send one after a body."""
        self.client.raw(b"\r\n" + GET)
        self.assertEqual(self.client.read().body, b"OK")

    def test_host(self) -> None:
        """HTTP/1.1 needs exactly one, and it must look like one; HTTP/1.0 needs none."""
        for lines in (b"", b"Host: a\r\nHost: b\r\n", b"Host: a b\r\n", b"Host: a/b\r\n", b"Host: a\xff\r\n"):
            self.fresh().raw(b"GET /health HTTP/1.1\r\n" + lines + b"\r\n")
            self.assert_refused(400)
        for lines in (b"Host:\r\n", b"Host: h:80\r\n", b"Host: [::1]:8080\r\n", b"Host: a..b_c\r\n", b"hOST: h\r\n"):
            self.fresh().raw(b"GET /health HTTP/1.1\r\n" + lines + b"\r\n")
            self.assertEqual(self.client.read().body, b"OK", lines)
        self.fresh().raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertEqual(self.client.read().body, b"OK")
        self.fresh().raw(b"GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n")
        self.assert_refused(400)

    def test_absolute_target(self) -> None:
        """Its host becomes the `Host` header, wherever that stood; user names in it are dropped."""
        for target, host, rest in (
            ("http://h/upstream/a/x%2Fy?q", "h", "/x%2Fy?q"),
            ("HTTPS://user:pw@H:81/upstream/a/http://z", "H:81", "/http://z"),
        ):
            self.client.send("GET", target, headers=[("X", "1"), ("Host", "other"), ("Y", "2")])
            self.assertEqual(self.client.read().status, 200)
            request = self.model.request
            self.assertEqual((request.target, request.header("Host")), (rest, host))
            self.assertEqual([name for name, _ in request.headers][:3], ["Host", "X", "Y"])
        for target, status in (("http://h", 302), ("http://h?x=1", 302), ("http://h/health", 200), ("http://", 400)):
            self.client.send("GET", target)
            self.assertEqual(self.client.read().status, status, target)
        self.fresh().send("GET", "http://h h/health")
        self.assert_refused(400)
        self.fresh().send("GET", "http://h^/health")
        self.assert_refused(400)

    def test_other_targets(self) -> None:
        """What is neither a path nor a URL is a malformed target; the connection stays."""
        for method, target in (("GET", "*"), ("CONNECT", "h:443"), ("GET", "health"), ("GET", "ftp://h/x")):
            self.client.send(method, target)
            answer = self.client.read()
            self.assertEqual((answer.status, answer.complete), (400, True), target)
            self.assertEqual(json.loads(answer.body)["error"]["code"], "bad_request")

    def test_bytes_beyond_ascii(self) -> None:
        """A target has them as the client wrote them, even when they come in pieces or on a kept connection."""
        for line in (b"GET /upstream/a/\xe9\xff?\xc3\xa9 HTTP/1.1\r\n", b"GET /upstream/a/\x80 HTTP/1.1\r\n"):
            self.client.raw(line[:18])
            self.client.raw(line[18:] + HOST + b"X-Latin: \xe9\r\n\r\n")
            self.assertEqual(self.client.read().status, 200)
            request = self.model.request
            self.assertEqual(request.target.encode("latin-1"), line.split(b" ")[1][len("/upstream/a") :])
            self.assertEqual(request.header("X-Latin"), "\xe9")


class HeadSizeTests(ChannelCase):
    """`limits.requestHead` is 2,048 bytes here."""

    def test_up_to_the_limit(self) -> None:
        """A head of that size passes."""
        self.client.raw(b"GET /health HTTP/1.1\r\nHost: h\r\nX: " + b"v" * 1980 + b"\r\n\r\n")
        self.assertEqual(self.client.read().body, b"OK")

    def test_beyond(self) -> None:
        """One header, many headers, the target, an unfinished line, in one piece or many: 431 and close."""
        for head in (
            b"GET /health HTTP/1.1\r\nHost: h\r\nX: " + b"v" * 2048,
            b"GET /health HTTP/1.1\r\nHost: h\r\n" + b"X: 1\r\n" * 700,
            b"GET /" + b"x" * 2048 + b" HTTP/1.1\r\n",
            b"\xff" * 3000,
        ):
            for size in (100, 10_000):
                self.fresh()
                for start in range(0, len(head), size):
                    self.client.raw(head[start : start + size])
                answer = self.assert_refused(431)
                self.assertEqual(json.loads(answer.body)["error"]["code"], "request_head_too_large")
                self.client.leave()
        self.assert_quiet()

    def test_usual_limit(self) -> None:
        """Without a limit of one's own, heads of 50 KB pass, and 10,000 headers are the most."""
        lswap = MemoryLswap("models: {}")
        client = lswap.client()
        client.raw(
            b"GET /health HTTP/1.1\r\nHost: h\r\nCookie: " + b"c" * 50_000 + b"\r\n" + b"X: 1\r\n" * 500 + b"\r\n"
        )
        self.assertEqual(client.read().body, b"OK")
        client.raw(b"GET /health HTTP/1.1\r\nHost: h\r\n" + b"X:1\r\n" * 10_001 + b"\r\n")
        self.assert_refused(431, client)


class BodyTests(ChannelCase):
    """`limits.requestBody` is 1,000 bytes here."""

    def test_up_to_the_limit(self) -> None:
        """Bodies of that size pass, with a length and in chunks."""
        self.client.raw(POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)
        self.assertEqual(self.client.read().status, 200)
        self.assertEqual(self.model.request.body, b"x" * 1000)
        self.client.raw(POST + b"Transfer-Encoding: CHUNKED\r\n\r\n1f4;x=y\r\n" + b"y" * 500)
        self.client.raw(b"\r\n1F4\r\n" + b"z" * 500 + b"\r\n0\r\nTrailer: 1\r\n\r\n")
        self.assertEqual(self.client.read().status, 200)
        self.assertEqual(self.model.request.body, b"y" * 500 + b"z" * 500)

    def test_announced_length(self) -> None:
        """413, before a byte of the body came."""
        for length in (b"1001", b"99999999999999999999", b"9" * 1900):
            self.fresh().raw(POST + b"Content-Length: " + length + b"\r\n\r\n")
            answer = self.assert_refused(413)
            self.assertEqual(json.loads(answer.body)["error"]["code"], "request_too_large")
            self.client.leave()
        self.assertEqual(self.model.requests, [])
        self.assert_quiet()

    def test_chunks(self) -> None:
        """413 as soon as it is too much, however it is cut; the rest is not kept."""
        for sizes in ((1001,), (600, 600), (999, 1, 1)):
            self.fresh().raw(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            for size in sizes:
                self.client.raw(b"%x\r\n%b\r\n" % (size, b"x" * size))
            self.assert_refused(413)
            self.client.leave()
        self.fresh().raw(
            POST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"64\r\n" + b"x" * 100 + b"\r\n") * 50 + b"0\r\n\r\n"
        )
        self.assert_refused(413)
        self.assertEqual(self.model.requests, [])

    def test_continue(self) -> None:
        """A client that waits for it is asked for the body, once; not by an older version."""
        self.client.raw(POST + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
        self.assertEqual(self.client.take(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.client.raw(b"hi")
        self.assertEqual(self.client.read().body, b"hello")
        self.assertIsNone(self.model.request.header("Expect"))
        self.fresh().raw(b"POST /upstream/a/x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        self.assertEqual(self.client.take(), b"")

    def test_no_continue_for_what_is_refused(self) -> None:
        """A client that waits for it and asks too much gets the error instead."""
        self.client.raw(POST + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
        self.assert_refused(413)

    def test_broken_chunks(self) -> None:
        """400 and close."""
        for chunks in (b"zz\r\n", b"-1\r\nx\r\n", b"1\r\nxyz\r\n", b"0x1\r\nx\r\n", b"1 \r\nx\r\n", b"\r\n", b"1\nx\n"):
            self.fresh().raw(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"1\r\nx\r\n0\r\n\r\n")
            self.assert_refused(400)
            self.client.leave()
        self.assertEqual(self.model.requests, [])
        self.assert_quiet()

    def test_client_that_breaks_off(self) -> None:
        """Nothing is started for it, and nothing stays."""
        self.client.raw(POST + b"Content-Length: 100\r\n\r\nxx")
        spool = self.client.channel.requests[0].spool
        self.client.leave()
        self.assertEqual(spool.whole(), b"")
        self.assertEqual(self.model.requests, [])
        self.assert_quiet()

    def test_disk_is_full(self) -> None:
        """507 and close; the reason is in the log."""

        def full(spool: Spool, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        self.patch(Spool, "write", full)
        with capturedLogs() as logged:
            self.client.raw(POST + b"Content-Length: 2\r\n\r\nhi")
        answer = self.assert_refused(507)
        self.assertEqual(json.loads(answer.body)["error"]["type"], "server_error")
        told = [str(event["problem"]) for event in logged if "problem" in event]
        self.assertEqual(told, ["[Errno 28] No space left on device"])


class RefusalTests(ChannelCase):
    """How a client is turned away."""

    def test_accept(self) -> None:
        """As far as the head is known, the error has the form that the client likes."""
        self.client.raw(POST + b"Accept: text/plain\r\nContent-Length: 1001\r\n\r\n")
        answer = self.client.read()
        self.assertEqual((answer.status, answer.header("Content-Type")), (413, "text/plain"))
        self.assertTrue(answer.body.startswith(b"llama-swap: "))
        self.fresh().raw(POST + b"Accept: \xff\r\nContent-Length: 1001\r\n\r\n")
        self.assert_refused(413)

    def test_head(self) -> None:
        """The refusal of a HEAD has no body."""
        self.client.expect("HEAD")
        self.client.raw(b"HEAD /health HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n")
        self.assertEqual(self.client.read().status, 413)
        self.assertEqual(self.client.take(), b"")

    def test_lingers(self) -> None:
        """The answer is not destroyed by a reset: what the client still sends is taken, and thrown away, for 2 s."""
        self.client.raw(POST + b"Content-Length: 5000\r\n\r\n")
        for _ in range(4):
            self.client.raw(b"x" * 500)
        self.assertFalse(self.client.gone)
        self.assert_refused(413)
        self.lswap.turn(1.5)
        self.assertFalse(self.client.gone)
        self.lswap.turn(0.5)
        self.assertTrue(self.client.gone)
        self.assert_quiet()

    def test_client_that_understands(self) -> None:
        """When it closes, the connection is gone at once."""
        self.client.raw(b"rubbish\r\n\r\n")
        self.assert_refused(400)
        self.client.leave()
        self.assert_quiet()

    def test_second_request_of_a_connection(self) -> None:
        """The first is answered, then comes the refusal."""
        self.client.raw(GET + b"rubbish\r\n\r\n")
        self.assertEqual(self.client.read().body, b"OK")
        self.assert_refused(400)

    def test_internal_fault(self) -> None:
        """A bug of ours outside of all resources: the traceback goes to the log, the client gets a 500."""

        def broken(request: Request, data: bytes) -> None:
            raise RuntimeError("a bug")

        self.patch(Request, "handleContentChunk", broken)
        self.client.raw(POST + b"Content-Length: 2\r\n\r\nhi")
        self.assert_refused(500)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.client.leave()
        self.assert_quiet()


class TimeTests(ChannelCase):
    """`limits.headTimeout` is 10 s here, `limits.idleTimeout` 30 s."""

    def test_client_that_sends_nothing(self) -> None:
        """It is closed without a word."""
        self.lswap.turn(9)
        self.assertFalse(self.client.closed)
        self.lswap.turn(1)
        self.assertTrue(self.client.gone)
        self.assertEqual(self.client.take(), b"")
        self.assert_quiet()

    def test_head_that_does_not_end(self) -> None:
        """However busily it trickles, from the connection's beginning on: 408 and close."""
        for text in (b"G", b"GET /x HTTP/1.1\r\nHost: h\r\n", b"GET /x HTTP/1.1\r\nHost: h\r\nX: "):
            self.fresh().raw(text)
            for _ in range(9):
                self.lswap.turn(1)
                self.client.raw(b"x" if not text.endswith(b"\n") else b"X: 1\r\n")
            self.assertEqual(self.client.take(), b"")
            self.lswap.turn(1)
            self.assert_refused(408)
            self.client.leave()
        self.assert_quiet()

    def test_kept_connection(self) -> None:
        """Without another request it is closed after the idle time, and not before."""
        for _ in range(3):
            self.client.raw(GET)
            self.assertEqual(self.client.read().body, b"OK")
            self.lswap.turn(29)
        self.assertFalse(self.client.closed)
        self.lswap.turn(1)
        self.assertTrue(self.client.gone)
        self.assertEqual(self.client.take(), b"")
        self.assert_quiet()

    def test_blank_line_on_a_kept_connection(self) -> None:
        """It is no beginning of a head."""
        self.client.raw(GET + b"\r\n")
        self.client.read()
        self.lswap.turn(29)
        self.assertFalse(self.client.closed)
        self.client.raw(GET)
        self.assertEqual(self.client.read().body, b"OK")

    def test_second_head_that_does_not_end(self) -> None:
        """Its time runs from its first byte: 408 and close."""
        self.client.raw(GET)
        self.client.read()
        self.lswap.turn(25)
        self.client.raw(b"GET /x")
        self.lswap.turn(9)
        self.assertEqual(self.client.take(), b"")
        self.lswap.turn(1)
        self.assert_refused(408)

    def test_second_head_that_came_with_the_first_request(self) -> None:
        """Its time runs from the end of the first answer."""
        self.model.says = None
        self.client.raw(POST + b"Content-Length: 0\r\n\r\n" + b"GET /x")
        self.lswap.turn(100)
        self.model.request.answer()
        self.lswap.turn()
        self.assertEqual(self.client.read().status, 200)
        self.lswap.turn(9)
        self.assertEqual(self.client.take(), b"")
        self.lswap.turn(1)
        self.assert_refused(408)

    def test_body_that_stops(self) -> None:
        """Without a byte of it for the head's time: 408 and close; a slow one passes."""
        self.client.raw(POST + b"Content-Length: 10\r\n\r\n")
        for _ in range(10):
            self.lswap.turn(9)
            self.client.raw(b"x")
        self.assertEqual(self.client.read().body, b"hello")
        self.client.raw(POST + b"Content-Length: 10\r\n\r\nx")
        self.lswap.turn(9)
        self.assertEqual(self.client.take(), b"")
        self.lswap.turn(1)
        self.assert_refused(408)

    def test_answer_that_takes_its_time(self) -> None:
        """While a request is answered there is no limit."""
        self.model.says = None
        self.client.chat("a")
        self.lswap.turn(10_000)
        self.model.request.begin()
        self.lswap.turn(10_000)
        self.model.request.chunk(b"x")
        self.model.request.chunk(b"")
        self.lswap.turn()
        self.assertEqual(self.client.read().body, b"x")
        self.lswap.turn(29)
        self.client.raw(GET)
        self.assertEqual(self.client.read().body, b"OK")

    def test_one_timer(self) -> None:
        """A connection has one timer at a time, however many requests it carries."""
        for _ in range(50):
            self.client.raw(GET)
            self.client.read()
        self.lswap.turn(5)
        self.assertEqual(len(self.lswap.reactor.getDelayedCalls()), 1)


class PipelineTests(ChannelCase):
    """Requests that do not wait for the answers before them."""

    def test_in_order(self) -> None:
        """They are answered in order, each after the one before."""
        self.model.says = None
        self.client.raw(POST + b"Content-Length: 1\r\n\r\n1" + POST + b"Content-Length: 1\r\n\r\n2" + GET)
        self.assertEqual([request.body for request in self.model.requests], [b"1"])
        self.model.request.answer(200, b"one")
        self.lswap.turn()
        self.assertEqual([request.body for request in self.model.requests], [b"1", b"2"])
        self.model.request.answer(200, b"two")
        self.lswap.turn()
        self.assertEqual([self.client.read().body for _ in range(3)], [b"one", b"two", b"OK"])

    def test_cut_anywhere(self) -> None:
        """It does not matter how the bytes are cut."""
        stream = (
            GET + POST + b"Content-Length: 2\r\n\r\nhi" + POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET
        )
        for size in (1, 2, 3, 7, 50, 61, 100, 1000):
            self.fresh()
            for start in range(0, len(stream), size):
                self.client.raw(stream[start : start + size])
            self.assertEqual([self.client.read().body for _ in range(4)], [b"OK", b"hello", b"hello", b"OK"], size)
            self.client.leave()
        self.assert_quiet()

    def test_more_than_is_taken_in_advance(self) -> None:
        """A client that sends much more is made to wait, and all of it is answered in the end."""
        self.model.says = None
        self.client.raw(POST + b"Content-Length: 0\r\n\r\n")
        for _ in range(100):
            self.client.socket.peer.inbox += POST + b"Content-Length: 900\r\n\r\n" + b"x" * 900
        self.lswap.turn()
        self.assertGreater(len(self.client.socket.peer.inbox), 10_000)
        self.model.request.answer()
        self.model.says = b"hello"
        self.lswap.turn()
        self.assertEqual(self.client.read().body, b"")
        self.assertEqual([self.client.read().body for _ in range(100)], [b"hello"] * 100)

    def test_slot_is_free_for_the_next(self) -> None:
        """The next request of a connection does not compete with the one before."""
        lswap = MemoryLswap(CONFIG.replace('PORT}"}', 'PORT}", concurrencyLimit: 1}'))
        lswap.models["a"].says = b"hello"
        client = lswap.client()
        client.raw((POST + b"Content-Length: 0\r\n\r\n") * 3)
        self.assertEqual([client.read().status for _ in range(3)], [200] * 3)
        lswap.processes.error = OSError("a bug")
        lswap.router.unload(("a",))
        lswap.turn()
        client.raw((POST + b"Content-Length: 0\r\n\r\n") * 3)
        self.assertEqual([client.read().status for _ in range(3)], [500, 200, 200])
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)


class EndTests(ChannelCase):
    """How connections end."""

    def test_close(self) -> None:
        """A client that says so is closed after its answer, and told so; what it still sends is not heard."""
        for text in (b"Connection: close\r\n", b"connection: x, CLOSE\r\n", b"Connection: x\r\nConnection: close\r\n"):
            self.fresh().raw(b"GET /health HTTP/1.1\r\nHost: h\r\n" + text + b"\r\n" + GET)
            answer = self.client.read()
            self.assertEqual((answer.body, answer.header("Connection")), (b"OK", "close"))
            self.assertTrue(self.client.closed)
            self.assertEqual(self.client.take(), b"")
        for text in (b"Connection: keep-alive\r\n", b"Connection: closed\r\n", b"X-Connection: close\r\n"):
            self.fresh().raw(b"GET /health HTTP/1.1\r\nHost: h\r\n" + text + b"\r\n" + GET)
            self.assertEqual([self.client.read().body for _ in range(2)], [b"OK", b"OK"])

    def test_old_version(self) -> None:
        """HTTP/1.0 gets an answer without chunks, and then the connection ends."""
        self.model.says = None
        self.client.chat("a")
        self.fresh().send("GET", "/upstream/a/x", version="1.0")
        request = self.model.request
        request.begin([("Content-Type", "text/x")])
        request.chunk(b"one ")
        request.chunk(b"two")
        request.chunk(b"")
        self.lswap.turn()
        answer = self.client.read()
        self.assertEqual((answer.body, answer.complete), (b"one two", True))
        self.assertEqual((answer.header("Transfer-Encoding"), answer.header("Connection")), (None, "close"))

    def test_client_that_takes_nothing_of_the_rest(self) -> None:
        """After a last answer it has the idle time; then it is cut."""
        self.client.socket.room = 10
        self.client.send("GET", "/health", headers=[("Connection", "close")])
        self.lswap.turn(29)
        self.assertFalse(self.client.gone)
        self.lswap.turn(1)
        self.assertTrue(self.client.gone)
        self.assert_quiet()

    def test_client_that_takes_nothing_of_a_cut_answer(self) -> None:
        """It has 15 s."""
        self.model.says = None
        self.client.socket.room = 10
        self.client.chat("a")
        self.model.request.begin()
        self.model.request.chunk(b"x")
        self.lswap.turn()
        self.model.request.close()
        self.lswap.turn()
        self.lswap.turn(14)
        self.assertFalse(self.client.gone)
        self.lswap.turn(1)
        self.assertTrue(self.client.gone)
        self.assert_quiet()

    def test_when_lswap_ends(self) -> None:
        """Idle connections and unfinished heads are closed at once; requests come to their end first."""
        self.model.says = None
        idle, used, partial, silent_body, busy = (self.lswap.client() for _ in range(5))
        used.raw(GET)
        used.read()
        partial.raw(b"GET /health HTTP/1.1\r\nHost: h\r\n")
        silent_body.raw(POST + b"Content-Length: 2\r\n\r\nh")
        busy.chat("a")
        self.lswap.service.site.close_idle()
        self.lswap.turn()
        for client in (idle, used, partial):
            self.assertTrue(client.gone)
        silent_body.raw(b"i")
        for request in self.model.requests:
            request.answer(200, b"bye")
        self.lswap.turn()
        for client in (silent_body, busy):
            self.assertEqual(client.read().body, b"bye")
            self.assertTrue(client.gone)
        self.client.leave()
        self.assert_quiet()

    def test_resets(self) -> None:
        """A client may reset its connection in any state."""
        for text in (b"", b"GET", POST + b"Content-Length: 5\r\n\r\nxx", b"rubbish\r\n\r\n", GET):
            self.fresh().raw(text)
            self.client.reset()
            self.assertTrue(self.client.gone)
        self.assert_quiet()


class SiteTests(ChannelCase):
    """What the connections share."""

    def test_date(self) -> None:
        """It is that of now."""
        site = self.lswap.service.site
        self.assertRegex(site.date(), rb"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")
        self.assertIs(site.date(), site.date())

    def test_when_empty(self) -> None:
        """It fires when the last connection is gone; at once if there is none."""
        site = self.lswap.service.site
        waiting = site.when_empty()
        other = self.lswap.client()
        self.client.leave()
        self.assertNoResult(waiting)
        other.leave()
        self.successResultOf(waiting)
        self.successResultOf(site.when_empty())

    def test_abort(self) -> None:
        """All are closed hard."""
        self.lswap.service.site.abort()
        self.lswap.turn()
        self.assertTrue(self.client.socket.reset)
        self.assert_quiet()
