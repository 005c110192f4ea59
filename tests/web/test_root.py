"""The front of the tree (`lswap.web.root`): preflights, clean paths, what no route takes, and internal faults."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.model import Limits
from lswap.web.answers import Fault
from lswap.web.root import Front, new_app, on_fault
from lswap.web.site import Site
from tests.memory import Answer, MemoryClient, MemoryReactor

USUAL = "Content-Type, Authorization, Accept, X-Requested-With"


class Upstream(Resource):
    """What stands below `/upstream/`."""

    isLeaf = True

    def render(self, request: Any) -> Any:
        """Say the target."""
        request.write(b"upstream " + request.uri)
        request.finish()
        return NOT_DONE_YET


class FrontCase(SynchronousTestCase):
    """A small tree."""

    def setUp(self) -> None:
        """Some routes."""
        self.reactor = MemoryReactor()
        app = new_app()
        self.waiting: list[Deferred[bytes]] = []

        def wait(request: Any) -> Deferred[bytes]:
            self.waiting.append(Deferred())
            return self.waiting[-1]

        def half(request: Any) -> Any:
            request.write(b"half")
            return fail(RuntimeError("a bug"))

        routes: tuple[tuple[str, list[str], Any], ...] = (
            ("/ok", ["GET"], lambda request: b"fine"),
            ("/both", ["GET", "POST"], lambda request: b"fine"),
            ("/\u00e9", ["GET"], lambda request: b"accent"),
            ("/fault", ["GET"], lambda request: fail(Fault(409, "not now", "mine"))),
            ("/later", ["GET"], lambda request: succeed(b"later")),
            ("/wait", ["GET"], wait),
            ("/bug", ["GET"], lambda request: 1 / 0),
            ("/half", ["GET"], half),
        )
        for path, methods, handler in routes:
            app.route(path, methods=methods, endpoint=path)(handler)
        self.site = Site(self.reactor, Front(app, Upstream()), Limits(), on_fault)
        self.client = MemoryClient(self.reactor, self.site)

    def ask(self, target: str, method: str = "GET", **headers: str) -> Answer:
        """Ask on the one connection."""
        return self.client.ask(method, target, headers=[(n.replace("_", "-"), v) for n, v in headers.items()])


class RouteTests(FrontCase):
    """Who is asked for what."""

    def test_handlers(self) -> None:
        """Plain answers and later ones; GET routes answer HEAD with the same headers."""
        self.assertEqual(
            [self.ask(path).body for path in ("/ok", "/later", "/%C3%A9", "/\xc3\xa9")][:2], [b"fine", b"later"]
        )
        self.assertEqual(self.ask("/%C3%A9").body, b"accent")
        self.assertEqual(self.ask("/ok", "HEAD").status, 200)

    def test_nothing_there(self) -> None:
        """404 and 405 are plain text, with the methods that would do."""
        for target in ("/nosuch", "/ok/", "/OK", "/%FF", "/\xff", "/ok%00", "/ok%2F", "/%2Fok"):
            answer = self.ask(target)
            self.assertEqual((answer.status, answer.body), (404, b"404 page not found\n"), target)
            self.assertEqual(answer.header("Content-Type"), "text/plain; charset=utf-8")
        answer = self.ask("/ok", "POST")
        self.assertEqual((answer.status, answer.header("Allow")), (405, "GET, HEAD"))
        self.assertEqual(self.ask("/both", "DELETE").header("Allow"), "GET, HEAD, POST")
        self.assertEqual(self.ask("/ok", "BREW").status, 405)

    def test_odd_hosts(self) -> None:
        """No host, however odd, makes a difference."""
        for host in ("a..b", ".", "x" * 80, "[::1]:80", "1.2.3.4:x", "", "xn--", "a:b:c"):
            self.assertEqual(self.ask("/ok", Host=host).body, b"fine", host)

    def test_below_upstream(self) -> None:
        """There the target is nobody's business but the model's."""
        for target in ("/upstream/a//b/../c", "/upstream/%zz", "/upstream/\xff", "/upstream/", "/upstream//a?x//y"):
            self.assertEqual(self.ask(target).body, b"upstream " + target.encode("latin-1"))
        answer = self.ask("/upstream?x=1", "POST")
        self.assertEqual((answer.status, answer.header("Location")), (307, "/upstream/?x=1"))
        self.assertEqual(self.ask("/upstream").status, 404)

    def test_unclean_paths(self) -> None:
        """They are redirected to the clean one, with their query; escapes stay, and no other server is named."""
        for target, clean in (
            ("//ok", "/ok"),
            ("/x//y/./z?a=//b", "/x/y/z?a=//b"),
            ("/x/../ok", "/ok"),
            ("/../../ok", "/ok"),
            ("//", "/"),
            ("/./", "/"),
            ("/x/.", "/x/"),
            ("/x//", "/x/"),
            ("/a%2Fb//c%20d", "/a%2Fb/c%20d"),
            ("//evil.example/x", "/evil.example/x"),
            ("//\xc3\xa9", "/%C3%A9"),
            ('//"<>', "/%22%3C%3E"),
        ):
            answer = self.ask(target)
            self.assertEqual((answer.status, answer.header("Location")), (307, clean), target)
        for target in ("/.well-known/x", "/x/..y", "/..."):
            self.assertEqual(self.ask(target).status, 404)

    def test_malformed_targets(self) -> None:
        """Broken escapes, and what is no path: 400, and the connection goes on."""
        for target in ("/ok%", "/%zz", "/%2", "/ok%%20", "ok", "*"):
            answer = self.ask(target)
            self.assertEqual((answer.status, json.loads(answer.body)["error"]["code"]), (400, "bad_request"), target)
        self.assertEqual(self.ask("/ok?x=%zz;%").body, b"fine")


class PreflightTests(FrontCase):
    """Any OPTIONS request."""

    def test_answer(self) -> None:
        """It may go to any path, is answered here, has no body, and no length of one."""
        for target in ("/ok", "/nosuch", "/upstream/a/x", "*", "//x", "/%zz"):
            answer = self.ask(target, "OPTIONS", Origin="http://a.example")
            self.assertEqual((answer.status, answer.body), (204, b""), target)
            self.assertEqual(answer.all("Access-Control-Allow-Origin"), ["*"])
            self.assertEqual(answer.header("Access-Control-Allow-Methods"), "GET, POST, PUT, PATCH, DELETE, OPTIONS")
            self.assertEqual(answer.header("Access-Control-Max-Age"), "86400")
            self.assertEqual(answer.header("Access-Control-Allow-Headers"), USUAL)
            self.assertEqual(answer.all("Content-Length") + answer.all("Transfer-Encoding"), [])
        self.assertEqual(self.client.take(), b"")
        self.assertEqual(self.ask("/ok").body, b"fine")

    def test_headers_that_are_asked_for(self) -> None:
        """Names are allowed, everything else is left out."""
        for asked, allowed in (
            ("Content-Type, Authorization", "Content-Type, Authorization"),
            ("  X-Custom ,  Accept ", "X-Custom, Accept"),
            ("Valid, Bad Header", "Valid"),
            ("Bad@Header", ""),
            (",,", ""),
            ("", USUAL),
            ("   ", USUAL),
            ('x`|~, \xe9, a(b, "c"', "x`|~"),
        ):
            answer = self.ask("/ok", "OPTIONS", Access_Control_Request_Headers=asked)
            self.assertEqual(answer.header("Access-Control-Allow-Headers"), allowed, asked)

    def test_without_origin(self) -> None:
        """The answer is the same."""
        self.assertEqual(self.ask("/ok", "OPTIONS").all("Access-Control-Allow-Origin"), ["*"])


class CrossOriginTests(FrontCase):
    """To a request with an origin, every answer has one permission."""

    def test_every_answer(self) -> None:
        """Also errors, redirects and what klein makes."""
        for target in ("/ok", "/nosuch", "/fault", "/bug", "//ok", "/%zz", "/upstream/x", "/later"):
            answer = self.ask(target, Origin="null")
            self.assertEqual(answer.all("Access-Control-Allow-Origin"), ["*"], target)
            self.assertEqual(self.ask(target).all("Access-Control-Allow-Origin"), [], target)
        self.assertEqual(self.ask("/ok", "DELETE", Origin="x").all("Access-Control-Allow-Origin"), ["*"])
        self.flushLoggedErrors(ZeroDivisionError)


class FaultTests(FrontCase):
    """What goes wrong in a handler."""

    def test_on_purpose(self) -> None:
        """An error that a handler raises is answered with, in the client's form, and not logged."""
        answer = self.ask("/fault")
        self.assertEqual((answer.status, json.loads(answer.body)["error"]["code"]), (409, "mine"))
        self.assertEqual(self.ask("/fault", Accept="text/plain").body, b"llama-swap: not now")

    def test_bug(self) -> None:
        """500 with the traceback in the log and not in the answer; whatever the client likes; all else works on."""
        for accept, kind in (("", "application/json"), ("text/html", "text/html"), ("\xff", "application/json")):
            answer = self.ask("/bug", Accept=accept)
            self.assertEqual((answer.status, answer.header("Content-Type")), (500, kind))
            self.assertNotIn(b"division", answer.body)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.ask("/ok").body, b"fine")

    def test_bug_in_the_middle(self) -> None:
        """An answer that has begun is cut, never ended as if it were whole."""
        answer = self.ask("/half")
        self.assertEqual((answer.status, answer.body, answer.complete), (200, b"half", False))
        self.assertTrue(self.client.closed)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_client_that_leaves(self) -> None:
        """The handler's Deferred is cancelled; nothing of it is an error. A result that comes too late does no harm."""
        self.client.send("GET", "/wait")
        self.client.leave()
        self.assertTrue(self.waiting[0].called)
        stubborn = Deferred[bytes](lambda waiting: waiting.callback(b"too late"))
        self.client = MemoryClient(self.reactor, self.site)
        self.waiting_with(stubborn)
        self.client.leave()
        self.reactor.turn()

    def waiting_with(self, answer: Deferred[bytes]) -> None:
        """Ask for what takes its time, and have it answer by this."""
        self.client.send("GET", "/wait")
        self.waiting[-1].addCallback(lambda _: answer)
        self.waiting[-1].callback(b"")
