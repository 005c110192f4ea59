"""The inference routes: finds the model that a request names, and sets it on its road.

Table-driven (`lswap.core.routes`), all on klein. Source: HTTP reference, sections 2.1 and 7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.filters import Edits
from lswap.core.find_model import Found, ModelFinder
from lswap.core.model import Config
from lswap.core.rewrite import Parts, readdressed, renamed
from lswap.core.routes import GETS, POSTS, forwarded_path
from lswap.core.scan_form import query_with
from lswap.net.body import Body
from lswap.service.exchange import Exchange
from lswap.service.names import Aim, Names
from lswap.service.peers import Peers
from lswap.service.selectors import NoTarget
from lswap.web.answers import send_error
from lswap.web.filtering import edit_body
from lswap.web.forward import Forwarder
from lswap.web.loading import wants_loading
from lswap.web.peer_forward import to_peer
from lswap.web.request import Request

if TYPE_CHECKING:
    from klein import Klein

__all__ = ["ModelRoutes", "body_of", "exchange_of", "spliced"]


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

    def __init__(
        self, clock: IReactorTime, config: Callable[[], Config], forwarder: Forwarder, names: Names, peers: Peers
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._config = config
        self._forwarder = forwarder
        self._names = names
        self._edits = Edits()
        self._peers = peers

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
        try:
            aim = self._names.aim(found.name, request.wants_websocket)
        except NoTarget as problem:
            send_error(request, 503, str(problem))
            return
        if aim is None:  # the active profile disables the name
            send_error(request, 404, "no model id could be identified")
            return
        if aim.selector is not None:
            # The road releases it first, if there is one; a request that gets no road is over with its answer.
            request.notifyFinish().addBoth(lambda _: aim.release())
        self._set_out(request, found, aim)

    def _set_out(self, request: Request, found: Found, aim: Aim) -> None:
        """Send a request to where profile and selectors have aimed it."""
        config = self._config()
        model = config.resolve(aim.name)
        peer = config.resolve_peer(aim.name) if model is None else None
        path, mark, query = request.uri.partition(b"?")
        exchange = exchange_of(self._clock, request, path)
        exchange.requested = aim.name
        exchange.model = model or aim.name
        if aim.selector is not None:
            exchange.metadata["selector"] = aim.selector
        if model is None and peer is None:
            self._forwarder.refuse(request, exchange, forwarded_path(path), 404, "no router for requested model")
            return
        body = body_of(request)
        name = aim.name if peer is None else peer[1]
        use = config.models[model].use_model_name if model is not None else ""
        edit = None
        if found.json:
            server = config.models[model] if model is not None else config.peers[(peer or ("",))[0]]
            wanted = use or name
            edit = self._edits.find(config, server.filters, aim.name, wanted if wanted != found.name else None)
        elif name != found.name:
            changed = spliced(request, found, name, readdressed)
            body = changed or body
            if changed is None:
                query = query_with(query, "model", name)
        if use and body is not None and not found.json:
            body = spliced(request, found, use) or body
        target = forwarded_path(path) + mark + query
        metered = request.method == b"POST"
        loading = model is not None and config.models[model].send_loading_state
        announced = found.stream and loading and wants_loading(target)

        def set_out(body: Body | None) -> None:
            self._forwarder.forward(
                request,
                exchange,
                target,
                body,
                shown=True,
                metered=metered,
                on_over=aim.release,
                announced=announced,
                **to_peer(self._peers, peer),
            )

        if edit is None:
            set_out(body)
        else:
            edit_body(self._clock, request, edit, set_out)


def spliced(request: Request, found: Found, name: str, how: Callable[..., Parts | None] = renamed) -> Body | None:
    """The body with another name in it; None when the name stands elsewhere, or must stay."""
    if found.json and found.span is None:  # the quick search does not tell the place
        finder = ModelFinder(request.method, b"", b"application/json")
        finder.feed(request.spool.whole())
        found = finder.find(None) or found
    parts = how(found, request.spool.length, name)
    return Body(request.spool, parts) if parts is not None else None
