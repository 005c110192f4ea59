"""Answers that lswap makes itself: JSON, text, redirects, and errors in their one shape.

Source: HTTP reference, sections 1 and 6. `src` stays `llama-swap`, because clients and scripts look for it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from lswap.web.request import Request

__all__ = [
    "CHALLENGE",
    "UNAUTHORIZED",
    "Fault",
    "error_body",
    "error_value",
    "go_json",
    "json_answer",
    "not_allowed",
    "not_found",
    "prepare",
    "prepare_error",
    "reason",
    "redirect",
    "send_error",
]

#: The header that makes a browser ask its user for a key.
CHALLENGE = ("WWW-Authenticate", 'Basic realm="llama-swap"')
UNAUTHORIZED = "unauthorized: invalid or missing API key"
_TYPES = {
    400: ("invalid_request_error", "bad_request"),
    401: ("authentication_error", "unauthorized"),
    403: ("authentication_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    409: ("invalid_request_error", "conflict"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    502: ("server_error", "bad_gateway"),
    503: ("server_error", "service_unavailable"),
    504: ("server_error", "gateway_timeout"),
}


class Fault(Exception):
    """Raised by a handler to answer with an error."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def reason(status: int) -> bytes:
    """The words for a status that stand beside it."""
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b"Unknown"


def go_json(value: Any) -> bytes:
    """JSON as existing clients know it: compact, with `<`, `>` and `&` escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text.encode("utf-8", "replace")


def error_value(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """The envelope of an error."""
    if status in _TYPES:
        kind, usual = _TYPES[status]
    elif 400 <= status < 500:
        kind, usual = "invalid_request_error", "invalid_request"
    else:
        kind, usual = "server_error", "internal_error"
    return {"src": "llama-swap", "error": {"message": message, "type": kind, "param": None, "code": code or usual}}


def error_body(accept: str, status: int, message: str, code: str | None = None) -> tuple[str, bytes]:
    """Media type and body of an error, as the (lower-case) `Accept` header asks.

    A client that lists JSON before the others gets JSON.
    """
    kinds = ("application/json", "text/plain", "text/html")
    listed = sorted((kind for kind in kinds if kind in accept), key=accept.find)
    if listed and listed[0] != "application/json":
        if "text/plain" in listed:
            return "text/plain", f"llama-swap: {message}".encode("utf-8", "replace")
        page = f"<html><body><h1>llama-swap</h1><p>{html.escape(message)}</p></body></html>"
        return "text/html", page.encode("utf-8", "replace")
    return "application/json", go_json(error_value(status, message, code))


def prepare(request: Request, status: int, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Set status and headers of an answer; returns its body, to be written by the caller."""
    request.setResponseCode(status, reason(status))
    request.setHeader("Content-Type", kind)
    request.setHeader("Content-Length", str(len(body)))
    for name, value in (headers or {}).items():
        request.setHeader(name, value)
    return body


def json_answer(request: Request, value: Any, status: int = 200) -> bytes:
    """A JSON answer of our own, with a line end."""
    return prepare(request, status, "application/json", go_json(value) + b"\n")


def redirect(request: Request, status: int, location: bytes) -> bytes:
    """A redirect."""
    request.setHeader(b"Location", location)
    return prepare(request, status, "text/html; charset=utf-8", b"")


def prepare_error(request: Request, status: int, message: str, code: str | None = None) -> bytes:
    """Set up an error in the client's favourite form; returns its body, to be written by the caller."""
    kind, body = error_body(request.accepts(), status, message, code)
    return prepare(request, status, kind, body)


def send_error(
    request: Request,
    status: int,
    message: str,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    always_json: bool = False,
) -> None:
    """Answer with an error and finish. Cuts an answer that has begun; does nothing when it is over.

    `always_json` leaves out of account what the client says it likes.
    """
    if request.over:
        return
    if request.startedWriting:
        request.cut(reset=False)
        return
    kind, body = error_body("" if always_json else request.accepts(), status, message, code)
    request.write(prepare(request, status, kind, body, headers))
    request.finish()


def _plain(request: Request, status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    return prepare(request, status, "text/plain; charset=utf-8", body, {"X-Content-Type-Options": "nosniff", **headers})


def not_found(request: Request) -> bytes:
    """The path is none of ours."""
    return _plain(request, 404, b"404 page not found\n", {})


def not_allowed(request: Request, methods: list[str]) -> bytes:
    """The path is ours, with other methods."""
    return _plain(request, 405, b"Method Not Allowed\n", {"Allow": ", ".join(sorted(methods))})
