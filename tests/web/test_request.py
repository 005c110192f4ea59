"""One request (`lswap.web.request`): what it keeps of what the client wrote, and how it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.address import UNIXAddress
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.model import Limits
from lswap.net.body import MEMORY_LIMIT
from lswap.web.request import Request
from lswap.web.root import on_fault
from lswap.web.site import Site
from tests.memory import MemoryClient, MemoryReactor

FORM = "application/x-www-form-urlencoded"


class Root(Resource):
    """Hands every request to a test."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Any] = []
        self.answer: Callable[[Any], Any] = lambda request: NOT_DONE_YET

    def render(self, request: Any) -> Any:
        """Whatever the method is."""
        self.requests.append(request)
        return self.answer(request)


class RequestCase(SynchronousTestCase):
    """A site whose only resource is a test."""

    def setUp(self) -> None:
        """Nobody has asked anything."""
        self.reactor = MemoryReactor()
        self.root = Root()
        self.site = Site(self.reactor, self.root, Limits(), on_fault)
        self.client = MemoryClient(self.reactor, self.site)

    def request(self, *args: Any, address: tuple[str, int] = ("192.0.2.7", 50_000), **kwargs: Any) -> Any:
        """A request of a new client, before it is answered."""
        self.client = MemoryClient(self.reactor, self.site, address)
        self.client.send(*args, **kwargs)
        return self.root.requests[-1]


class HeaderTests(RequestCase):
    """What the client wrote."""

    def test_kept_as_written(self) -> None:
        """Names, order, repetition, bytes beyond ASCII."""
        headers = [("x-one", "1"), ("HOST", "h"), ("X-ONE", "2"), ("X-Latin", "\xe9"), ("X-Empty", "")]
        request = self.request("GET", "/", headers=headers)
        kept = [(name.decode(), value.decode("latin-1")) for name, value in request.raw_headers]
        self.assertEqual(kept, headers)
        self.assertEqual((request.header(b"x-one"), request.values(b"x-one")), (b"1", [b"1", b"2"]))
        self.assertEqual((request.header(b"none"), request.values(b"none")), (None, []))

    def test_as_twisted_knows_them(self) -> None:
        """Resources of others find them where they expect them, bytes beyond ASCII too."""
        request = self.request("GET", "/", headers=[("x-one", "1"), ("X-One", "\xff")])
        self.assertEqual(request.requestHeaders.getRawHeaders(b"X-One"), [b"1", b"\xff"])
        self.assertEqual(request.getHeader(b"host"), b"test")

    def test_target(self) -> None:
        """It is kept byte for byte; the path is decoded for the tree only."""
        request = self.request("GET", "/a%2Fb/%E9?x=%2F&y#z")
        self.assertEqual((request.uri, request.path), (b"/a%2Fb/%E9?x=%2F&y#z", b"/a%2Fb/%E9"))
        self.assertEqual(request.postpath, [b"a/b", b"\xe9"])
        self.assertEqual((request.prepath, request.args), ([], {}))

    def test_accept(self) -> None:
        """In lower case, all of them, whatever bytes are in it."""
        for headers, found in (
            ([], ""),
            ([("Accept", "Text/HTML, */*")], "text/html, */*"),
            ([("Accept", "a/b"), ("accept", "C/d")], "a/b, c/d"),
            ([("Accept", "\xff")], "\xff"),
        ):
            self.assertEqual(self.request("GET", "/", headers=headers).accepts(), found)

    def test_remote(self) -> None:
        """The address of the connection; IPv4 ones in IPv6 form are shown as what they are."""
        for host, remote in (
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::ffff:c000:207", "192.0.2.7"),
            ("fe80::1%eth0", "fe80::1%eth0"),
        ):
            self.assertEqual(self.request("GET", "/", address=(host, 5)).remote, remote)

    def test_remote_of_a_unix_socket(self) -> None:
        """It is this machine."""
        self.patch(tcp.Server, "getPeer", lambda transport: UNIXAddress(None))
        self.assertEqual(self.request("GET", "/").remote, "127.0.0.1")

    def test_shown_remote(self) -> None:
        """For people, what a proxy in front says counts more; empty words and odd bytes do no harm."""
        for headers, shown in (
            ([], "192.0.2.7"),
            ([("X-Forwarded-For", "1.2.3.4, 5.6.7.8")], "1.2.3.4"),
            ([("X-Real-IP", "1.2.3.4")], "1.2.3.4"),
            ([("X-Real-IP", "9.9.9.9"), ("X-Forwarded-For", " 1.2.3.4 ")], "1.2.3.4"),
            ([("X-Forwarded-For", " , 1.2.3.4"), ("X-Real-IP", "9.9.9.9")], "9.9.9.9"),
            ([("X-Forwarded-For", "")], "192.0.2.7"),
            ([("X-Forwarded-For", "\xff")], "\ufffd"),
        ):
            request = self.request("GET", "/", headers=headers)
            self.assertEqual((request.shown_remote, request.remote), (shown, "192.0.2.7"), headers)

    def test_klein_is_not_bothered(self) -> None:
        """Hosts that klein would stumble over do not reach it."""
        for host in ("a..b", "x" * 70, "[::1]:80", "", "."):
            self.assertEqual(self.request("GET", "/", headers=[("Host", host)]).getRequestHostname(), b"lswap")
        self.assertFalse(self.root.requests[-1].isSecure())


class BodyTests(RequestCase):
    """The body, and the model's name in it."""

    def test_small(self) -> None:
        """It stays in memory, and is not touched."""
        request = self.request("POST", "/x", b"a=%zz\0\xff", [("Content-Type", FORM)])
        self.assertTrue(request.spool.in_memory)
        self.assertEqual((request.spool.whole(), request.args), (b"a=%zz\0\xff", {}))

    def test_large(self) -> None:
        """Beyond 1 MiB it is in a file without a name, which is closed with the answer."""
        body = b"x" * (MEMORY_LIMIT + 1)
        request = self.request("POST", "/x", body)
        self.assertFalse(request.spool.in_memory)
        self.assertEqual(b"".join(request.spool.pieces()), body)
        file = request.spool._file
        request.finish()
        self.assertTrue(file.closed)

    def test_closed_with_the_connection(self) -> None:
        """A client that leaves leaves no file behind."""
        request = self.request("POST", "/x", b"x" * (MEMORY_LIMIT + 1))
        file = request.spool._file
        self.client.leave()
        self.assertTrue(file.closed)

    def test_named_model(self) -> None:
        """The finder of models is asked with what it needs."""
        for method, target, body, kind, name in (
            ("POST", "/v1/chat/completions", b'{"model": "a"}', "application/json", "a"),
            ("POST", "/v1/chat/completions", b"model=a", FORM, "a"),
            ("POST", "/v1/chat/completions?model=b", b'{"model": "a"}', "text/plain", "b"),
            ("GET", "/props?model=b", b"", "", "b"),
            ("POST", "/v1/chat/completions", b'{"model": ""}', "application/json", None),
            ("POST", "/v1/chat/completions", b"", "application/json", None),
            ("GET", "/props", b"", "", None),
        ):
            found = self.request(method, target, body, [("Content-Type", kind)] if kind else []).named_model()
            self.assertEqual(found.name if found is not None else None, name, (target, body))

    def test_large_body_is_read_while_it_arrives(self) -> None:
        """The name is found wherever it stands, however the body is cut, in memory and in a file."""
        for size in (70_000, 300_000, MEMORY_LIMIT + 100_000):
            padding = json.dumps({"messages": "x" * size}).encode()[1:-1]
            for body in (b'{"model": "a", ' + padding + b"}", b"{" + padding + b', "model": "a"}'):
                self.client = MemoryClient(self.reactor, self.site)
                head = f"Host: h\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                self.client.raw(f"POST http://h/v1/chat/completions HTTP/1.1\r\n{head}".encode())
                for start in range(0, len(body), 60_000):
                    self.client.raw(body[start : start + 60_000])
                request = self.root.requests[-1]
                self.assertIsNotNone(request._finder)
                found = request.named_model()
                self.assertEqual(found.name, "a")
                start, end = found.span
                self.assertEqual(body[start:end], b'"a"')

    def test_large_body_for_elsewhere(self) -> None:
        """A body that names no model is not searched."""
        request = self.request("POST", "/api/x", b'{"x": 1}' * 20_000, [("Content-Type", "application/json")])
        self.assertIsNone(request._finder)


class AnswerTests(RequestCase):
    """Answers of our own."""

    def answer(self, body: bytes, **kwargs: Any) -> Any:
        """Ask, and be answered with this."""
        self.root.answer = lambda request: body
        self.request("GET", "/", **kwargs)
        return self.client.read()

    def test_headers_of_every_answer(self) -> None:
        """A date, no name of a software, no type that nobody set."""
        answer = self.answer(b"hi")
        self.assertEqual({name for name, _ in answer.headers}, {"Date", "Content-Length"})
        self.assertEqual((answer.body, answer.complete), (b"hi", True))

    def test_cross_origin(self) -> None:
        """To a request with an origin there is exactly one permission, whatever else is set."""
        self.assertIsNone(self.answer(b"hi").header("Access-Control-Allow-Origin"))
        for origin in ("http://a.example", "null", "", "\xff"):
            answer = self.answer(b"hi", headers=[("Origin", origin)])
            self.assertEqual(answer.all("Access-Control-Allow-Origin"), ["*"])

    def test_internal_fault(self) -> None:
        """The traceback goes to the log, a 500 to the client, in the form that it likes; the connection goes on."""

        def broken(request: Request) -> Any:
            raise RuntimeError("a bug")

        self.root.answer = broken
        self.request("GET", "/", headers=[("Accept", "\xff, text/plain"), ("Origin", "http://a")])
        answer = self.client.read()
        self.assertEqual((answer.status, answer.header("Content-Type")), (500, "text/plain"))
        self.assertEqual(answer.all("Access-Control-Allow-Origin"), ["*"])
        self.assertNotIn(b"bug", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.root.answer = lambda request: b"hi"
        self.assertEqual(self.client.ask("GET", "/").body, b"hi")

    def test_internal_fault_in_the_middle(self) -> None:
        """An answer that has begun is cut: what there was arrives, and the client can tell that it is not all."""

        def broken(request: Request) -> Any:
            request.write(b"half")
            raise RuntimeError("a bug")

        self.root.answer = broken
        self.request("GET", "/")
        answer = self.client.read()
        self.assertEqual((answer.status, answer.body, answer.complete), (200, b"half", False))
        self.assertTrue(self.client.closed)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_internal_fault_when_all_is_over(self) -> None:
        """Then there is nothing to say any more, but to the log."""

        def broken(request: Request) -> Any:
            request.write(b"all")
            request.finish()
            raise RuntimeError("a bug")

        self.root.answer = broken
        self.request("GET", "/")
        self.assertEqual(self.client.read().body, b"all")
        self.root.answer = lambda request: NOT_DONE_YET
        self.client.send("GET", "/")
        request = self.root.requests[-1]
        self.client.leave()
        self.assertTrue(request.over)
        request.processingFailed(self.flushLoggedErrors(RuntimeError)[0])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class RelayTests(RequestCase):
    """The client's side of a relay."""

    def test_raw(self) -> None:
        """What is written raw arrives as it is, and the connection goes on after the end."""
        request = self.request("GET", "/")
        self.assertEqual((request.http11, request.closing, request.cross_origin), (True, False, False))
        request.interim(b"HTTP/1.1 103 X\r\n\r\n")
        request.begin(200, [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", b"hi"])
        request.pass_on(b"ho")
        self.assertFalse(request.over)
        request.end()
        self.assertTrue(request.over)
        self.reactor.turn()
        self.assertEqual(self.client.take(), b"HTTP/1.1 103 X\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhiho")
        self.assertFalse(self.client.closed)

    def test_what_the_client_understands(self) -> None:
        """Version, end of the connection and origin are told to the relay."""
        request = self.request("GET", "/", version="1.0", headers=[("Origin", "x")])
        self.assertEqual((request.http11, request.closing, request.cross_origin), (False, True, True))
        request = self.request("GET", "/", headers=[("Connection", "close")])
        self.assertEqual((request.http11, request.closing), (True, True))

    def test_cut(self) -> None:
        """What was written arrives, then the connection ends; whoever still wants to write or end is not heard."""
        request = self.request("GET", "/")
        request.begin(200, [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"])
        request.cut(reset=False)
        self.assertTrue(request.over)
        request.write(b"more")
        request.end()
        request.finish()
        request.cut(reset=True)
        self.reactor.turn()
        answer = self.client.read()
        self.assertEqual((answer.body, answer.complete), (b"hi", False))
        self.assertEqual(self.client.take(), b"")
        self.assertTrue(self.client.socket.eof and not self.client.socket.reset)

    def test_cut_hard(self) -> None:
        """With a reset, where an ordinary end would mean that the answer is whole."""
        request = self.request("GET", "/", version="1.0")
        request.begin(200, [b"HTTP/1.1 200 OK\r\n\r\nhi"])
        self.reactor.turn()
        request.cut(reset=True)
        self.reactor.turn()
        self.assertTrue(self.client.socket.reset)

    def test_after_the_client_left(self) -> None:
        """Nothing of it does any harm."""
        request = self.request("GET", "/")
        self.client.leave()
        self.assertTrue(request.over)
        request.interim(b"HTTP/1.1 103 X\r\n\r\n")
        request.begin(200, [b"x"])
        request.pass_on(b"x")
        request.write(b"x")
        request.end()
        request.cut(reset=False)
        request.take_from(Producer())
        request.take_from(None)

    def test_write_before_anything_after_the_client_left(self) -> None:
        """A resource that has not noticed may answer as if nothing were."""
        request = self.request("GET", "/")
        self.client.leave()
        request.setResponseCode(500)
        request.write(b"error")

    def test_back_pressure(self) -> None:
        """The producer stops while the client does not read, and goes on when it does."""
        request = self.request("GET", "/")
        producer = Producer()
        request.take_from(producer)
        request.begin(200, [b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"])
        request.pass_on(b"x" * 1_000_000)
        self.reactor.turn()
        self.assertEqual(producer.told, ["pause"])
        self.client.take()
        self.assertEqual(producer.told, ["pause", "resume"])
        request.take_from(None)
        request.pass_on(b"x" * 2_000_000)
        self.client.take()
        request.end()
        self.assertEqual(producer.told, ["pause", "resume"])

    def test_producer_of_a_client_that_leaves(self) -> None:
        """It is told."""
        request = self.request("GET", "/")
        producer = Producer()
        request.take_from(producer)
        self.client.leave()
        self.assertEqual(producer.told, ["stop"])
        request.take_from(None)


class Producer:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        """See `IPushProducer`."""
        self.told.append("pause")

    def resumeProducing(self) -> None:
        """See `IPushProducer`."""
        self.told.append("resume")

    def stopProducing(self) -> None:
        """See `IPushProducer`."""
        self.told.append("stop")
