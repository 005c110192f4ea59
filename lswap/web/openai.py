"""The inference routes: finds the model that a request names, and sets it on its road.

Table-driven (`lswap.core.routes`), all on klein. Source: HTTP reference, sections 2.1 and 7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from klein import Klein
from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.find_model import Found, ModelFinder
from lswap.core.model import Config
from lswap.core.rewrite import renamed
from lswap.core.routes import GETS, POSTS, forwarded_path
from lswap.net.body import Body
from lswap.service.exchange import Exchange
from lswap.web.answers import send_error
from lswap.web.forward import Forwarder
from lswap.web.request import Request

__all__ = ["ModelRoutes", "body_of", "exchange_of"]


def exchange_of(clock: IReactorTime, request: Request, path: bytes) -> Exchange:
    """A fresh exchange for a request."""
    return Exchange(
        request.method.decode("latin-1"),
        path.decode("utf-8", "replace"),
        request.raw_headers,
        request.shown_remote,
        time.time(),
        clock.seconds(),
    )


def body_of(request: Request) -> Body | None:
    """The body as it came; None for a request that has none."""
    if request.spool.length or request.method in (b"POST", b"PUT", b"PATCH") or request.header(b"content-length"):
        return Body(request.spool)
    return None


class ModelRoutes(Resource):
    """The one resource behind all inference routes."""

    isLeaf = True

    def __init__(self, clock: IReactorTime, config: Callable[[], Config], forwarder: Forwarder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._config = config
        self._forwarder = forwarder

    def add_to(self, app: Klein) -> None:
        """Put the table into the tree; klein hands the request to this resource."""

        def infer(_request: Any) -> ModelRoutes:
            return self

        both = set(POSTS) & set(GETS)
        for path in POSTS:
            methods = ["POST", "GET"] if path in both else ["POST"]
            app.route(path, methods=methods, endpoint=path)(infer)
        for path in GETS:
            if path not in both:
                app.route(path, methods=["GET"], endpoint=path)(infer)

    def render(self, request: Any) -> Any:
        """Find the model and set the request on its road."""
        self._serve(request)
        return NOT_DONE_YET

    def _serve(self, request: Request) -> None:
        found = request.named_model()
        if found is None:
            send_error(request, 404, "no model id could be identified")
            return
        config = self._config()
        model = config.resolve(found.name)
        if model is None:
            send_error(request, 404, "no router for requested model")
            return
        path, mark, query = request.uri.partition(b"?")
        exchange = exchange_of(self._clock, request, path)
        exchange.requested = found.name
        exchange.model = model
        body = body_of(request)
        use = config.models[model].use_model_name
        if use and body is not None:
            body = _spliced(request, found, use) or body
        target = forwarded_path(path) + mark + query
        metered = request.method == b"POST"
        self._forwarder.forward(request, exchange, target, body, shown=True, metered=metered)


def _spliced(request: Request, found: Found, name: str) -> Body | None:
    """The body with another name in it."""
    if found.json and found.span is None:  # the quick search does not tell the place
        finder = ModelFinder(request.method, b"", b"application/json")
        finder.feed(request.spool.whole())
        found = finder.find(None) or found
    parts = renamed(found, request.spool.length, name)
    return Body(request.spool, parts) if parts is not None else None
