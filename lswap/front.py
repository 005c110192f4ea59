"""A small HTTP front before one server, as a service: what `lswap-wol` and `lswap-vllm` have in common.

Builds the server's side of the data path (`lswap.web`, `lswap.net`) with nothing that belongs to models: no
configuration, no scheduler with anything in it, no tree of routes. Decides how such a front starts and ends.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.web.resource import IResource

from lswap.core.model_parts import Limits
from lswap.core.plan_group import GroupPolicy
from lswap.core.scheduler import Scheduler
from lswap.net import signals
from lswap.net.file_limit import raise_file_limit
from lswap.net.listen import open_port
from lswap.service.exchange import InFlight
from lswap.service.logs import Logs
from lswap.service.router import Router
from lswap.web.answers import send_error
from lswap.web.forward import Forwarder, Road
from lswap.web.openai import body_of, exchange_of
from lswap.web.request import Request
from lswap.web.site import Site

__all__ = ["FrontService"]

#: Seconds that clients get to take what was left to say to them, at the end.
_LAST_WORDS = 1.0


class FrontService(Service):
    """The service. A subclass makes the `resource`, and says what begins and ends beside the port."""

    _log = Logger()
    #: Seconds that requests under way get to finish after a stop signal.
    drain_limit = 30.0

    def __init__(self, reactor: Any, listen: str, logs: Logs) -> None:
        """@param listen: as `-listen` says."""
        self.reactor = reactor
        self.logs = logs
        self.inflight = InFlight()
        self.forwarder = Forwarder(reactor, Router(reactor, Scheduler({}, GroupPolicy({}), 1)), self.inflight)
        self.site: Site
        #: What the program ends with.
        self.exit_code = 0
        self._listen = listen
        self._port: IListeningPort | None = None
        self._restore_signals: Callable[[], None] | None = None
        #: A wait that a second signal ends.
        self._patience: Deferred[Any] | None = None
        self._hurry = False

    def serve(self, resource: IResource) -> None:
        """Make the site; to be called once, before the port is opened."""
        self.site = Site(self.reactor, resource, Limits(), _on_fault)

    def forward(self, request: Request, road: Callable[..., Road]) -> None:
        """Send a request on, as it is, by such a road."""
        exchange = exchange_of(self.reactor, request, request.path)
        self.forwarder.forward(request, exchange, request.uri, body_of(request), shown=False, metered=False, road=road)

    # -- start ---------------------------------------------------------------------

    def take_signals(self) -> None:
        """See to it that signals end the service in order; before anything can be left behind by another end."""
        if self._restore_signals is None:
            self._restore_signals = signals.install(
                self.reactor, self.stop_soon, self._stop_at_once, self.hung_up, self.interrupted
            )

    @property
    def listens(self) -> bool:
        """Whether the port is open."""
        return self._port is not None

    def open_port(self) -> None:
        """Open the port.

        @raise CannotListen: the address is no address, or it is taken.
        """
        self._port = open_port(self._listen, self.site, self.reactor)
        self._log.info("listening on http://{listen}", listen=self._listen)

    def startService(self) -> None:
        """Start what all fronts have."""
        super().startService()  # type: ignore[no-untyped-call]
        self.logs.use_reactor(self.reactor)
        self.logs.attach()
        raise_file_limit()
        gc.collect()
        gc.freeze()

    def undo_start(self) -> None:
        """Leave nothing half-started behind."""
        port, self._port = self._port, None
        if port is not None:
            port.stopListening()
        self._put_signals_back()
        self.logs.detach()

    def _put_signals_back(self) -> None:
        restore, self._restore_signals = self._restore_signals, None
        if restore is not None:
            restore()

    # -- signals -------------------------------------------------------------------

    def stop_soon(self) -> None:
        """SIGTERM, or any other wish to end: in order."""
        try:
            self.reactor.stop()
        except ReactorNotRunning:
            self._log.debug("the reactor stops already")

    def interrupted(self) -> None:
        """SIGINT."""
        self.stop_soon()

    def hung_up(self) -> None:
        """SIGHUP: a terminal that was closed, or a rotated log; neither is a reason to end."""

    def _stop_at_once(self) -> None:
        self._log.warn("stopping at once")
        self._hurry = True
        patience = self._patience
        if patience is not None:
            patience.cancel()

    # -- stop ----------------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Stop listening, let requests finish, close everything; in this order, each bounded in time."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        for step in (self._stop_listening, self._drain, self.drained, self.close):
            try:
                await step()
            except Exception:
                self._log.failure("internal error while stopping; the rest goes on")
        self._put_signals_back()
        self._log.info("shutdown complete")
        self.logs.detach()

    async def _stop_listening(self) -> None:
        port, self._port = self._port, None
        stopped = port.stopListening() if port is not None else None
        if stopped is not None:
            await stopped

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

    async def within(self, wanted: Deferred[Any], seconds: float, hurried: bool = True) -> bool:
        """Wait for something, so long at most; whether it came. A later signal ends the wait, an earlier if `hurried`.

        What is not waited for any more is cancelled. Raises what it fails with.
        """
        self._patience = wanted
        wanted.addTimeout(0 if self._hurry and hurried else seconds, self.reactor, lambda result, _: result)
        try:
            await wanted
        except CancelledError:
            return False
        finally:
            self._patience = None
        return True


def _on_fault(request: Request) -> None:
    """The answer to a request that met an internal fault."""
    send_error(request, 500, "internal error; the log has the details")
