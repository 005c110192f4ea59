"""The inference routes (`lswap.web.openai`): where they lead, and what of a request changes on the way."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.routes import GETS, POSTS, forwarded_path
from tests.memory import MemoryLswap, Served

CONFIG = """
models:
  a:
    cmd: server --port ${PORT}
    aliases: [also-a, "é/x"]
  b:
    cmd: server --port ${PORT}
    useModelName: 'org/real "b"'
groups: {all: {swap: false, members: [a, b]}}
"""
JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
PARTS = ("Content-Type", "multipart/form-data; boundary=cut")


def part(name: str, value: bytes, more: str = "") -> bytes:
    """One field of an upload."""
    return f'--cut\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


class OpenAICase(SynchronousTestCase):
    """Two ready models that answer everything."""

    def setUp(self) -> None:
        """They say who they are."""
        self.lswap = MemoryLswap(CONFIG)
        self.lswap.ready("a", "b")
        for name, model in self.lswap.models.items():
            model.says = name.encode()
        self.client = self.lswap.client()

    def sent(self, name: str, *args: object) -> Served:
        """Ask, with what `MemoryClient.ask` takes; what this model got."""
        model = self.lswap.models[name]
        before = len(model.requests)
        answer = self.client.ask(*args)  # type: ignore[arg-type]
        self.assertEqual((answer.status, answer.body), (200, name.encode()))
        self.assertEqual(len(model.requests), before + 1)
        return model.request

    def refused(self, *args: object) -> str:
        """Ask; the message of the 404."""
        answer = self.client.ask(*args)  # type: ignore[arg-type]
        error = json.loads(answer.body)["error"]
        self.assertEqual((answer.status, error["code"]), (404, "not_found"))
        message: str = error["message"]
        return message


class RouteTests(OpenAICase):
    """The table."""

    def test_posts(self) -> None:
        """Each leads to the model that the body names, with its body untouched."""
        body = b' {"n":1.0,\t"model" : "a" ,"x":{"model":"b"}}\r\n'
        for path in POSTS:
            request = self.sent("a", "POST", path + "?q=%zz;1", body, [JSON])
            self.assertEqual((request.method, request.body), ("POST", body))
            self.assertEqual(request.target, forwarded_path(path.encode()).decode() + "?q=%zz;1")

    def test_gets(self) -> None:
        """Each leads to the model that the query names, and so does its HEAD; the query stays."""
        for path in GETS:
            for method in ("GET", "HEAD"):
                self.client.send(method, f"{path}?x=1&model=a&autoload=false")
                answer = self.client.read()
                self.assertEqual((answer.status, answer.header("Content-Length")), (200, "1"))
                request = self.lswap.models["a"].request
                self.assertEqual((request.method, request.target), (method, f"{path}?x=1&model=a&autoload=false"))
                self.assertIsNone(request.header("Content-Length"))

    def test_other_methods(self) -> None:
        """They are told which would do."""
        both = set(GETS) & set(POSTS)
        for path in {*GETS, *POSTS}:
            allowed = "GET, HEAD, POST" if path in both else "POST" if path in POSTS else "GET, HEAD"
            answer = self.client.ask("DELETE", path)
            self.assertEqual((answer.status, answer.header("Allow")), (405, allowed), path)

    def test_absolute_target(self) -> None:
        """It is one of the routes too."""
        self.assertEqual(self.sent("a", "GET", "http://h/props?model=a").target, "/props?model=a")

    def test_in_the_list(self) -> None:
        """Each request is in the list of those under way, by the path that the client used and the model it means."""
        self.lswap.models["a"].says = None
        self.client.send("POST", "/v/chat/completions?x", b'{"model":"also-a"}', [JSON, ("X-Real-IP", "1.2.3.4")])
        row = self.lswap.inflight.snapshot(0)[0]
        self.assertEqual((row["model"], row["method"], row["req_path"]), ("a", "POST", "/v/chat/completions"))
        self.assertEqual(row["remote_ip"], "1.2.3.4")
        exchange = next(iter(self.lswap.inflight._all))
        self.assertEqual(exchange.requested, "also-a")


class NameTests(OpenAICase):
    """The model's name."""

    def test_where_it_stands(self) -> None:
        """JSON, both kinds of forms, the query; an alias is forwarded as it was written."""
        chat = "/v1/chat/completions"
        for target, body, header in (
            (chat, b'{"model":"a"}', JSON),
            (chat, b'{"model":"also-a"}', JSON),
            (chat, b'{"model":"\\u00e9/x"}', JSON),
            (chat, b"x=1&model=%61", FORM),
            (chat, part("file", b"\0\xff") + part("model", b"a") + b"--cut--\r\n", PARTS),
            (chat + "?model=a", b"anything", ("Content-Type", "text/plain")),
        ):
            request = self.sent("a", "POST", target, body, [header])
            self.assertEqual((request.target, request.body), (target, body))

    def test_no_name(self) -> None:
        """404, and nothing reaches a model."""
        for target, body, header in (
            ("/v1/chat/completions", b"", JSON),
            ("/v1/chat/completions", b'{"model":""}', JSON),
            ("/v1/chat/completions", b'{"model":["a"]}', JSON),
            ("/v1/chat/completions?model=a", b"{}", JSON),
            ("/v1/chat/completions", b"x=1", FORM),
        ):
            message = self.refused("POST", target, body, [header])
            self.assertIn("model", message)
        self.assertEqual(self.refused("GET", "/props"), "no model id could be identified")
        self.assertEqual(self.lswap.models["a"].requests, [])

    def test_unknown_name(self) -> None:
        """404, and the request is in no list."""
        self.assertEqual(self.refused("GET", "/props?model=nosuch"), "no router for requested model")
        body = b'{"model":"nosuch"}'
        self.assertEqual(self.refused("POST", "/v1/messages", body, [JSON]), "no router for requested model")
        self.lswap.models["a"].says = None
        self.client.chat("a")
        # The two that loaded the models were the only ones before.
        self.assertEqual([row["id"] for row in self.lswap.inflight.snapshot(0)], ["3"])


class RenameTests(OpenAICase):
    """`useModelName`, which model b has."""

    def test_json(self) -> None:
        """The value is replaced and no other byte, wherever it stands and however large the body is."""
        for before, after in (
            (b'{ "u":"\\u00e9", "model" : "', b'" , "n":1.0}'),
            (b'{"x":{"model":"b"},"model":"', b'","y":["model","b"]}'),
            (b'{"x":"' + b"y" * 100_000 + b'","model":"', b'"}'),
            (b'{"x":"' + b"y" * 1_200_000 + b'","model":"', b'","z":"' + b"z" * 100_000 + b'"}'),
        ):
            request = self.sent("b", "POST", "/v1/chat/completions", before + b"b" + after, [JSON])
            self.assertEqual(request.body, before + b'org/real \\"b\\"' + after)
            self.assertEqual(request.header("Content-Length"), str(len(request.body)))

    def test_chunked_request(self) -> None:
        """It has a length afterwards."""
        headers = [JSON, ("Transfer-Encoding", "chunked")]
        request = self.sent("b", "POST", "/v1/chat/completions", b'd\r\n{"model":"b"}\r\n0\r\n\r\n', headers)
        self.assertEqual(json.loads(request.body), {"model": 'org/real "b"'})
        self.assertEqual(request.header("Content-Length"), str(len(request.body)))
        self.assertIsNone(request.header("Transfer-Encoding"))

    def test_upload(self) -> None:
        """In a form with parts too; files and other fields stay."""
        file = part("file", b"\0\xff\r\nmodel", '; filename="b"')
        for large in (b"", part("pad", b"x" * 1_200_000)):
            body = file + part("model", b"b") + large + b"--cut--\r\n"
            request = self.sent("b", "POST", "/v1/audio/transcriptions", body, [PARTS])
            self.assertEqual(request.body, file + part("model", b'org/real "b"') + large + b"--cut--\r\n")

    def test_elsewhere(self) -> None:
        """A name in a query or in an URL-encoded form stays."""
        self.assertEqual(self.sent("b", "GET", "/props?model=b").target, "/props?model=b")
        self.assertEqual(self.sent("b", "POST", "/v1/embeddings", b"model=b", [FORM]).body, b"model=b")
        self.assertEqual(self.sent("b", "POST", "/v1/embeddings?model=b", b"x").body, b"x")


class HeaderTests(OpenAICase):
    """What changes in the head of a request."""

    def test_codings(self) -> None:
        """A POST asks for no coding that cannot be read here; a GET is left alone."""
        asked = ("Accept-Encoding", "br, gzip;q=0.5, zstd")
        self.assertEqual(
            self.sent("a", "POST", "/infill", b'{"model":"a"}', [JSON, asked]).header("Accept-Encoding"), "gzip;q=0.5"
        )
        self.assertEqual(self.sent("a", "GET", "/props?model=a", b"", [asked]).header("Accept-Encoding"), asked[1])

    def test_length(self) -> None:
        """A POST without a body has a length of 0, a GET has none."""
        self.assertEqual(self.sent("a", "POST", "/infill?model=a").header("Content-Length"), "0")
        self.assertIsNone(self.sent("a", "GET", "/props?model=a").header("Content-Length"))
        given = self.sent("a", "GET", "/props?model=a", b"", [("Content-Length", "0")])
        self.assertEqual(given.header("Content-Length"), "0")

    def test_client(self) -> None:
        """Its address is appended, its host stays."""
        request = self.sent("a", "GET", "/props?model=a", b"", [("Host", "h:1"), ("X-Forwarded-For", "1.2.3.4")])
        self.assertEqual((request.header("Host"), request.header("X-Forwarded-For")), ("h:1", "1.2.3.4, 192.0.2.7"))

    def test_client_without_host(self) -> None:
        """An old client gets one: that of the model's server."""
        self.client.raw(b"GET /props?model=a HTTP/1.0\r\n\r\n")
        self.assertEqual(self.client.read().body, b"a")
        request = self.lswap.models["a"].request
        self.assertEqual(request.header("Host"), f"localhost:{self.lswap.models['a'].address[1]}")
