"""`/comfyui/...`: the way to the one model that is called `comfyui_auto`, whose page lives there.

Only the root may start it: its page polls and holds websockets, which would never let it rest. Source: HTTP reference,
section 8.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klein import Klein
from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.events import State
from lswap.core.model import Config
from lswap.web.answers import redirect, send_error
from lswap.web.forward import Forwarder
from lswap.web.openai import body_of, exchange_of
from lswap.web.request import Request

__all__ = ["MODEL", "ComfyRoutes"]

#: The ID that the model must have; an alias or a peer's model does not count.
MODEL = "comfyui_auto"
_PREFIX = b"/comfyui"


class ComfyRoutes(Resource):
    """The resource behind `/comfyui` and all that is below it; nothing of it is in the list of requests."""

    isLeaf = True

    def __init__(self, clock: IReactorTime, config: Callable[[], Config], forwarder: Forwarder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._config = config
        self._forwarder = forwarder

    def add_to(self, app: Klein) -> None:
        """Put it into the tree, for any method."""

        def comfyui(_request: Any, rest: str = "") -> ComfyRoutes:
            return self

        for path in ("/comfyui", "/comfyui/", "/comfyui/<path:rest>"):
            app.route(path, endpoint=path)(comfyui)

    def render(self, request: Any) -> Any:
        """Any method goes through, the target as it was written."""
        self._serve(request)
        return NOT_DONE_YET

    def _serve(self, request: Request) -> None:
        path, mark, query = request.uri.partition(b"?")
        rest = path[len(_PREFIX) :]
        if not rest:
            status = 301 if request.method in (b"GET", b"HEAD") else 308
            request.write(redirect(request, status, _PREFIX + b"/" + mark + query))
            request.finish()
            return
        if MODEL not in self._config().models:
            send_error(request, 404, f"local model {MODEL} not found")
            return
        child = self._forwarder.router.children.get(MODEL)
        if rest != b"/" and (child is None or child.state is not State.READY):
            send_error(request, 409, f"model {MODEL} is not loaded; only /comfyui/ can start it")
            return
        exchange = exchange_of(self._clock, request, path)
        exchange.requested = exchange.model = MODEL
        target = rest + mark + query
        self._forwarder.forward(request, exchange, target, body_of(request), shown=False, metered=False)
