"""Sets a request on its road, unless its key forbids it. Read `lswap.web.road` next."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from lswap.core.model import ApiKey
from lswap.net.body import Body
from lswap.service.exchange import Exchange, InFlight
from lswap.service.recorder import Meter, Recorder
from lswap.service.router import Router
from lswap.web.answers import send_error
from lswap.web.auth import KeyUse, refuse_model
from lswap.web.request import Request
from lswap.web.road import Road
from lswap.web.tunnels import Tunnels

__all__ = ["Forwarder"]


class Forwarder:
    """Makes roads; has what all of them share."""

    def __init__(self, clock: IReactorTime, router: Router, inflight: InFlight) -> None:
        self.clock = clock
        self.router = router
        self.inflight = inflight
        #: The open websockets.
        self.tunnels = Tunnels(clock)
        self.key_use = KeyUse()
        #: Makes the rows of activity; None for none.
        self.recorder: Recorder | None = None

    def forward(
        self,
        request: Request,
        exchange: Exchange,
        target: bytes,
        body: Body | None,
        *,
        shown: bool,
        metered: bool,
        on_over: Callable[[], object] | None = None,
        announced: bool = False,
        road: Callable[..., Road] | None = None,
        known_as: str | None = None,
    ) -> None:
        """Send `request` to the model that `exchange` names, as `target` with `body`.

        `shown` puts it into the in-flight list; `metered` keeps out codings that could not be read here. `on_over` is
        called once, when everything is given back. `announced`: while it waits, its client may be told in a stream.
        `road` makes another road than that to a local model; `known_as` is what the keys' rules call its end.
        """
        key: ApiKey | None = request.api_key
        if refuse_model(request, known_as or exchange.model) or not self.key_use.admits(request):
            if on_over is not None:
                on_over()
            return
        if key is not None and key.name:
            exchange.metadata["key"] = key.name
        (road or Road)(self, request, exchange, target, body, metered, on_over).start(shown, announced)

    def meter(self, exchange: Exchange, target: bytes, body: Body | None) -> Meter | None:
        """What makes the row of a request that is dispatched."""
        if self.recorder is None:
            return None
        return self.recorder.meter(exchange, target.partition(b"?")[0].decode("utf-8", "replace"), body)

    def refuse(self, request: Request, exchange: Exchange, target: bytes, status: int, message: str) -> None:
        """Answer with an error where a request would be dispatched; it leaves a row like all that got so far."""
        exchange.status = status
        meter = self.meter(exchange, target, body=None) if request.method == b"POST" else None
        if meter is not None:
            meter.error = message
            meter.end(complete=False)
        send_error(request, status, message)
