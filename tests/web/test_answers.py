"""Answers that lswap makes itself (`lswap.web.answers`): JSON, errors and the form that a client likes."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.web import answers
from lswap.web.answers import error_body, error_value, go_json, reason
from tests.web.test_request import RequestCase

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class ErrorTests(SynchronousTestCase):
    """The envelope of an error."""

    def test_envelope(self) -> None:
        """Its keys stand in this order, there is no line end, and nothing else."""
        kind, body = error_body("", 404, "model not found")
        self.assertEqual(kind, "application/json")
        self.assertEqual(
            body,
            b'{"src":"llama-swap","error":{"message":"model not found","type":"invalid_request_error",'
            b'"param":null,"code":"not_found"}}',
        )

    def test_types_and_codes(self) -> None:
        """Each status has its own; a code of one's own replaces only the code."""
        for status, kind, code in (
            (400, "invalid_request_error", "bad_request"),
            (401, "authentication_error", "unauthorized"),
            (403, "authentication_error", "forbidden"),
            (404, "invalid_request_error", "not_found"),
            (409, "invalid_request_error", "conflict"),
            (413, "invalid_request_error", "invalid_request"),
            (418, "invalid_request_error", "invalid_request"),
            (429, "rate_limit_error", "rate_limit_exceeded"),
            (500, "server_error", "internal_error"),
            (502, "server_error", "bad_gateway"),
            (503, "server_error", "service_unavailable"),
            (504, "server_error", "gateway_timeout"),
            (507, "server_error", "internal_error"),
        ):
            error = error_value(status, "x")["error"]
            self.assertEqual((error["type"], error["code"], error["param"]), (kind, code, None))
            error = error_value(status, "x", "mine")["error"]
            self.assertEqual((error["type"], error["code"]), (kind, "mine"))

    def test_form(self) -> None:
        """Text before HTML for those who name one of them first; JSON for all others."""
        for accept, kind in (
            ("", "application/json"),
            ("*/*", "application/json"),
            ("application/json", "application/json"),
            ("text/event-stream", "application/json"),
            ("application/json, text/plain, */*", "application/json"),
            ("application/json;q=0.1, text/html", "application/json"),
            ("text/plain", "text/plain"),
            ("text/plain;q=0.9", "text/plain"),
            ("text/plain, application/json", "text/plain"),
            ("text/html, text/plain", "text/plain"),
            (BROWSER, "text/html"),
            ("text/html, application/json", "text/html"),
        ):
            self.assertEqual(error_body(accept, 404, "x")[0], kind, accept)

    def test_text(self) -> None:
        """One line that names the program."""
        self.assertEqual(error_body("text/plain", 404, "model not found")[1], b"llama-swap: model not found")

    def test_page(self) -> None:
        """What a client sent cannot become markup."""
        body = error_body("text/html", 404, "<b>&\"'</b>")[1]
        self.assertEqual(
            body, b"<html><body><h1>llama-swap</h1><p>&lt;b&gt;&amp;&quot;&#x27;&lt;/b&gt;</p></body></html>"
        )

    def test_text_that_cannot_be_encoded(self) -> None:
        """Half a character in a message does no harm in any form."""
        for accept in ("", "text/plain", "text/html"):
            self.assertIn(b"x?y", error_body(accept, 404, "x\ud800y")[1])

    def test_json(self) -> None:
        """Compact, not escaped beyond ASCII, and harmless inside HTML."""
        self.assertEqual(go_json({"b": ["<é>&", 1, None]}), '{"b":["\\u003cé\\u003e\\u0026",1,null]}'.encode())
        self.assertEqual(json.loads(go_json("<&>")), "<&>")

    def test_reason(self) -> None:
        """The words beside a status are those of HTTP, for new ones too."""
        for status, words in (
            (404, b"Not Found"),
            (429, b"Too Many Requests"),
            (431, b"Request Header Fields Too Large"),
        ):
            self.assertEqual(reason(status), words)
        self.assertEqual(reason(599), b"Unknown")


class SendTests(RequestCase):
    """Errors on their way."""

    def send(self, *args: Any, accept: str = "", **kwargs: Any) -> Any:
        """Ask, and be answered with an error."""
        request = self.request("GET", "/", headers=[("Accept", accept)] if accept else [])
        answers.send_error(request, *args, **kwargs)
        self.reactor.turn()
        return self.client.read()

    def test_error(self) -> None:
        """It has its length and its headers, and the connection goes on."""
        answer = self.send(429, "slow down", "mine", {"Retry-After": "1"})
        self.assertEqual((answer.status, answer.complete), (429, True))
        self.assertEqual((answer.header("Retry-After"), answer.header("Content-Type")), ("1", "application/json"))
        self.assertEqual(json.loads(answer.body)["error"]["code"], "mine")
        self.assertFalse(self.client.closed)

    def test_form(self) -> None:
        """As the client likes it, unless it is always JSON."""
        self.assertEqual(self.send(404, "x", accept="text/plain").body, b"llama-swap: x")
        self.assertEqual(self.send(404, "x", accept=BROWSER).header("Content-Type"), "text/html")
        answer = self.send(429, "x", accept="text/plain", always_json=True)
        self.assertEqual(answer.header("Content-Type"), "application/json")
        self.assertEqual(self.send(404, "x", accept="\xff").header("Content-Type"), "application/json")

    def test_too_late(self) -> None:
        """An answer that has begun is cut; one that is over is left alone, and so is a client that left."""
        request = self.request("GET", "/")
        request.write(b"half")
        answers.send_error(request, 500, "x")
        self.reactor.turn()
        self.assertFalse(self.client.read().complete)
        request = self.request("GET", "/")
        request.write(b"all")
        request.finish()
        answers.send_error(request, 500, "x")
        self.reactor.turn()
        self.assertEqual(self.client.read().body, b"all")
        request = self.request("GET", "/")
        self.client.leave()
        answers.send_error(request, 500, "x")

    def test_others(self) -> None:
        """Redirects, and the two refusals of a tree."""
        for answer, status, headers, body in (
            (lambda r: answers.redirect(r, 307, b"/x?y"), 307, {"Location": "/x?y"}, b""),
            (answers.not_found, 404, {"X-Content-Type-Options": "nosniff"}, b"404 page not found\n"),
            (lambda r: answers.not_allowed(r, ["POST", "GET"]), 405, {"Allow": "GET, POST"}, b"Method Not Allowed\n"),
            (lambda r: answers.json_answer(r, {"x": 1}, 201), 201, {"Content-Type": "application/json"}, b'{"x":1}\n'),
        ):
            self.root.answer = answer
            self.request("GET", "/")
            found = self.client.read()
            self.assertEqual((found.status, found.body), (status, body))
            for name, value in headers.items():
                self.assertEqual(found.header(name), value)
