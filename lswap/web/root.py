"""The front of the tree: what is answered before any route is looked up, then klein or the `/upstream` leaf.

Decides preflights, redirects to clean paths, and paths that are no text. klein would answer these in its own way.
Source: HTTP reference, sections 1, 3 and 5.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from klein import Klein
from klein.resource import KleinResource
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

from lswap.core.routes import is_model_route
from lswap.web.answers import Fault, not_allowed, not_found, prepare_error, redirect, send_error
from lswap.web.request import Request
from lswap.web.upstream import PREFIX

__all__ = ["Front", "new_app", "on_fault"]

_log = Logger()
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_USUAL = "Content-Type, Authorization, Accept, X-Requested-With"
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INTERNAL = "internal error; the log has the details"


def new_app() -> Klein:
    """An empty tree with our answers to what no handler takes."""
    app = Klein()

    def fault(request: Any, failure: Failure) -> bytes:
        problem: Fault = failure.value  # type: ignore[assignment]
        return prepare_error(request, problem.status, problem.message, problem.code)

    def missing(request: Any, failure: Failure) -> bytes:
        return not_found(request)

    def method(request: Any, failure: Failure) -> bytes:
        problem: MethodNotAllowed = failure.value  # type: ignore[assignment]
        return not_allowed(request, list(problem.valid_methods or ()))

    def internal(request: Any, failure: Failure) -> bytes:
        _log.failure(
            "internal error while answering {method} {path}", failure, method=request.method, path=request.path
        )
        if request.startedWriting:
            # klein would end the answer as if it were whole; a request that is cut does not let it.
            request.cut(reset=False)
            return b""
        return prepare_error(request, 500, _INTERNAL)

    app.handle_errors(Fault)(fault)
    app.handle_errors(NotFound, RequestRedirect)(missing)
    app.handle_errors(MethodNotAllowed)(method)
    app.handle_errors(Exception)(internal)
    return app


def on_fault(request: Request) -> None:
    """The answer to a request that met an internal fault outside of klein."""
    send_error(request, 500, _INTERNAL)


class Front(Resource):
    """The root resource."""

    isLeaf = True

    def __init__(
        self,
        app: Klein,
        upstream: IResource,
        admit: Callable[[Request], bytes | None] = lambda _: None,
        models: IResource | None = None,
    ) -> None:
        """@param admit: lets a request in by None, or gives the body of its refusal.

        @param models: what klein would find for the routes of models; asked straight away, as the search costs a fifth
            of a request's time.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._models = models
        self._admit = admit
        self._tree: Any = KleinResource(app)
        self._upstream = upstream

    def render(self, request: Any) -> Any:
        """Answer, or hand on."""
        asked: Request = request
        if asked.method == b"OPTIONS":
            _preflight(asked)
            return NOT_DONE_YET
        path = asked.path
        if path.startswith(PREFIX):
            refusal = self._admit(asked)
            return self._upstream.render(request) if refusal is None else refusal
        if self._models is not None and is_model_route(asked.method, path):
            refusal = self._admit(asked)
            return self._models.render(request) if refusal is None else refusal
        if not path.startswith(b"/") or _BAD_ESCAPE.search(path):
            return prepare_error(asked, 400, "malformed request target")
        if path == b"/upstream" and asked.method not in (b"GET", b"HEAD"):
            return redirect(asked, 307, PREFIX + _query(asked))
        clean = _cleaned(path)
        if clean != path:
            return redirect(asked, 307, clean + _query(asked))
        if not _is_text(path) or path[1:4].lower() == b"%2f":  # klein would not see that slash
            return not_found(asked)
        refusal = self._admit(asked)
        if refusal is not None:
            return refusal
        self._tree.render(request)
        return NOT_DONE_YET


def _query(request: Request) -> bytes:
    _, mark, query = request.uri.partition(b"?")
    return mark + query


def _is_text(path: bytes) -> bool:
    try:
        unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _cleaned(path: bytes) -> bytes:
    """The path without empty, `.` and `..` segments; its escapes stay."""
    if b"//" not in path and b"/." not in path:
        return path
    clean = posixpath.normpath(b"/" + path.lstrip(b"/"))
    if path.endswith((b"/", b"/.", b"/..")) and clean != b"/":
        clean += b"/"
    return quote_from_bytes(clean, safe="/%:@!$&'()*+,;=~-._").encode()


def _preflight(request: Request) -> None:
    """Any OPTIONS request: what a page of another origin may send (Fetch standard, CORS protocol)."""
    asked = request.values(b"access-control-request-headers")
    wanted = b", ".join(asked).decode("latin-1")
    if wanted.strip():
        items = [item.strip() for item in wanted.split(",")]
        allowed = ", ".join(item for item in items if _TOKEN.fullmatch(item))
    else:
        allowed = _USUAL
    request.setResponseCode(204)
    request.setHeader("Access-Control-Allow-Origin", "*")
    request.setHeader("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
    request.setHeader("Access-Control-Max-Age", "86400")
    request.setHeader("Access-Control-Allow-Headers", allowed)
    # Not handed back to Twisted, which would give a 204 a length (RFC 9110, section 8.6).
    request.finish()
