"""A small HTTP front before one server, as a service: what `lswap-wol` and `lswap-vllm` have in common.

Builds the server's side of the data path (`lswap.web`, `lswap.net`) with nothing that belongs to models: no
configuration, no scheduler with anything in it, no tree of routes. Decides how such a front starts and ends.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.web.resource import IResource

from lswap.core.model_parts import Limits
from lswap.core.plan_group import GroupPolicy
from lswap.core.scheduler import Scheduler
from lswap.life import ServerService
from lswap.net.file_limit import raise_file_limit
from lswap.service.exchange import InFlight
from lswap.service.logs import Logs
from lswap.service.router import Router
from lswap.web.answers import send_error
from lswap.web.forward import Forwarder
from lswap.web.openai import body_of, exchange_of
from lswap.web.request import Request
from lswap.web.road import Road
from lswap.web.site import Site

__all__ = ["FrontService"]

#: Seconds that clients get to take what was left to say to them, at the end.
_LAST_WORDS = 1.0


class FrontService(ServerService):
    """The service. A subclass makes the `resource`, and says what begins and ends beside the port."""

    #: Seconds that requests under way get to finish after a stop signal.
    drain_limit = 30.0

    def __init__(self, reactor: Any, listen: str, logs: Logs) -> None:
        """@param listen: as `-listen` says."""
        super().__init__(reactor, listen, logs)
        self.inflight = InFlight()
        self.forwarder = Forwarder(reactor, Router(reactor, Scheduler({}, GroupPolicy({}), 1)), self.inflight)
        self.site: Site
        #: What the program ends with.
        self.exit_code = 0

    def serve(self, resource: IResource) -> None:
        """Make the site; to be called once, before the port is opened."""
        self.site = Site(self.reactor, resource, Limits(), _on_fault)

    def forward(self, request: Request, road: Callable[..., Road]) -> None:
        """Send a request on, as it is, by such a road."""
        exchange = exchange_of(self.reactor, request, request.path)
        self.forwarder.forward(request, exchange, request.uri, body_of(request), shown=False, metered=False, road=road)

    # -- start ---------------------------------------------------------------------

    def begin_to_listen(self) -> None:
        """Open the port.

        @raise CannotListen: the address is no address, or it is taken.
        """
        self.open_port(self.site)
        self._log.info("listening on http://{listen}", listen=self._listen)
        self.supervisor.status(f"listening on {self._listen}")

    def startService(self) -> None:
        """Start what all fronts have."""
        super().startService()  # type: ignore[no-untyped-call]
        self.logs.use_reactor(self.reactor)
        self.logs.attach()
        raise_file_limit()
        gc.collect()
        gc.freeze()

    # -- stop ----------------------------------------------------------------------

    def steps(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Let requests finish, then close everything."""
        return self._drain, self.drained, self.close

    async def _drain(self) -> None:
        """Let requests come to their end, and clients take the last bytes of the answers."""
        self.stopping()
        self.site.close_idle()
        self.forwarder.tunnels.end()
        if not await self.within(self.site.when_empty(), self.drain_limit):
            self.not_drained()
        self.inflight.cancel_all()
        await self.within(self.site.when_empty(), _LAST_WORDS)
        self.site.abort()

    def stopping(self) -> None:
        """The port is closed, requests are still under way."""

    def not_drained(self) -> None:
        """Requests under way took too long, and are ended."""

    async def drained(self) -> None:
        """No request is under way any more."""

    async def close(self) -> None:
        """Give back what is left."""


def _on_fault(request: Request) -> None:
    """The answer to a request that met an internal fault."""
    send_error(request, 500, "internal error; the log has the details")
