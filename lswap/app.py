"""Builds all parts of lswap from a configuration, and starts and stops them in order.

The composition root: no decision about requests is made here. `lswap.tap` calls `make_service`; the parts are built
in the order in which `LswapService.__init__` names them, which is a good order to read them in.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable
from typing import Any

from treq.client import HTTPClient
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from lswap.core.config import Loaded
from lswap.core.model import Config
from lswap.core.plan_group import GroupPolicy
from lswap.core.scheduler import ModelRules, Scheduler
from lswap.net import signals
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.guard import Guard
from lswap.net.listen import CannotListen, endpoint_for, open_port
from lswap.net.process import DRAIN, UNKILLABLE, Processes
from lswap.net.upstream import Upstream
from lswap.options import Settings
from lswap.service.children import Child, Tools
from lswap.service.exchange import InFlight
from lswap.service.logs import Logs, logs
from lswap.service.router import Router
from lswap.web.admin import Admin, Parts
from lswap.web.events import EventStreams
from lswap.web.forward import Forwarder
from lswap.web.live import LiveStreams
from lswap.web.openai import ModelRoutes
from lswap.web.root import Front, new_app, on_fault
from lswap.web.site import Site
from lswap.web.upstream import UpstreamRoutes

__all__ = ["DRAIN_LIMIT", "CannotListen", "LswapService", "endpoint_for", "make_service"]

#: Seconds that requests under way get to finish after a stop signal.
DRAIN_LIMIT = 30.0
#: Seconds that clients then get to take what was left to say to them.
_LAST_WORDS = 1.0
#: Seconds that the end of a model may take beyond its `unloadTimeout`; longer is a fault, which must not hold us up.
_END_LIMIT = DRAIN + UNKILLABLE + 3.0


def make_service(settings: Settings, loaded: Loaded, reactor: Any) -> LswapService:
    """The service for these settings; `loaded.config` must be there."""
    assert loaded.config is not None
    return LswapService(settings, loaded, reactor)


class LswapService(Service):
    """Everything between the command line and the parts."""

    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        reactor: Any,
        *,
        processes: Processes | None = None,
        own_logs: Logs | None = None,
    ) -> None:
        """Build the parts; nothing starts. `processes` and `own_logs` stand in for those of this machine."""
        assert loaded.config is not None
        self.reactor = reactor
        self.config: Config = loaded.config
        self._settings = settings
        self._warnings = loaded.warnings
        self._port: IListeningPort | None = None
        self._restore_signals: Callable[[], None] | None = None
        self._hurry = False
        #: What a second signal ends.
        self._patience: list[Callable[[], None]] = []
        self._pools: dict[str, Upstream] = {}
        self._logs = own_logs or logs()
        self._guard = Guard(reactor)
        self._tools = Tools(
            reactor=reactor,
            processes=processes or Processes(reactor, self._guard),
            client=HTTPClient(UpstreamAgent(self._pool_of)),
            logs=self._logs,
            environment=dict(os.environ),
            in_thread=self._in_thread,
        )
        self.inflight = InFlight()
        self.router = _router(self.config, reactor)
        self.router.children = {
            model.id: Child(model, self._tools, self.router.state_changed) for model in self.config.models.values()
        }
        self._streams = LiveStreams(reactor)
        self.site = Site(reactor, self._tree(), self.config.limits, on_fault)

    def _tree(self) -> Front:
        app = new_app()
        forwarder = Forwarder(self.reactor, self.router, self.inflight)
        events = EventStreams(self.reactor, self._current, self.router, self.inflight, self._logs, self._streams)
        parts = Parts(
            clock=self.reactor,
            config=self._current,
            router=self.router,
            inflight=self.inflight,
            logs=self._logs,
            streams=self._streams,
            events=events,
        )
        ModelRoutes(self.reactor, self._current, forwarder).add_to(app)
        Admin(parts).add_to(app)
        return Front(app, UpstreamRoutes(self.reactor, self._current, forwarder))

    def _current(self) -> Config:
        return self.config

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        # The pool is asked for late: threads do not survive the step into the background.
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function, *args)

    def _pool_of(self, origin: Origin) -> Upstream:
        """The connections to an origin, for control work; a model's own where it is that of a model."""
        key = str(origin)
        for child in self.router.children.values():
            if child.upstream is not None and str(child.upstream.origin) == key:
                return child.upstream
        if key not in self._pools:
            self._pools[key] = Upstream(self.reactor, origin)
        return self._pools[key]

    # -- start -----------------------------------------------------------------------

    def privilegedStartService(self) -> None:
        """Open the port, while a daemon still has the rights for it and somebody who hears of an error.

        @raise CannotListen: the address is no address, or it is taken.
        """
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        # Before the port is open: no client may see a server that would still die of a hangup.
        self._restore_signals = signals.install(self.reactor, self._stop, self._stop_at_once, self._hangup)
        try:
            self._port = open_port(self._settings.listen, self.site, self.reactor)
        except BaseException:
            self._undo_start()
            raise

    def startService(self) -> None:
        """Start the parts; models start with their first request."""
        if self._port is None:
            self.privilegedStartService()
        super().startService()  # type: ignore[no-untyped-call]
        try:
            self._start()
        except BaseException:
            self._undo_start()
            raise

    def _start(self) -> None:
        config = self.config
        self._logs.configure(config.log_level, config.log_to_stdout, config.log_time_format)
        self._logs.use_reactor(self.reactor)
        self._logs.attach()
        if self._settings.umask is not None:
            os.umask(self._settings.umask)
        _raise_file_limit()
        self._guard.start()
        for warning in self._warnings:
            self._log.warn("{warning}", warning=str(warning))
        self._log.info("lswap listening on http://{listen}", listen=self._settings.listen)
        gc.collect()
        gc.freeze()

    def _undo_start(self) -> None:
        """Leave nothing half-started behind."""
        port, self._port = self._port, None
        if port is not None:
            port.stopListening()
        self._guard.stop()
        self._put_signals_back()
        self._logs.detach()

    def _put_signals_back(self) -> None:
        restore, self._restore_signals = self._restore_signals, None
        if restore is not None:
            restore()

    # -- signals -------------------------------------------------------------------------

    def _stop(self) -> None:
        self._log.info("stopping: no new connections; requests under way may finish")
        try:
            self.reactor.stop()
        except ReactorNotRunning:
            self._log.debug("the reactor stops already")

    def _stop_at_once(self) -> None:
        self._log.warn("stopping at once")
        self._hurry = True
        self._kill()
        patience, self._patience = self._patience, []
        for enough in patience:
            enough()

    def _kill(self) -> None:
        for child in self.router.children.values():
            child.kill()

    def _hangup(self) -> None:
        self._log.info("SIGHUP: reload comes with a later version; restart lswap to take a changed configuration over")

    # -- stop ------------------------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Stop listening, let requests finish, end the models, close everything; in this order, each bounded in time.

        A second signal skips what is left of the waiting, and kills the models.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        for step in (self._stop_listening, self._drain, self._end_models, self._end_connections, self._close):
            try:
                await step()
            except Exception:
                self._log.failure("internal error while stopping; the rest goes on")
        self._log.info("shutdown complete")
        self._logs.detach()

    async def _stop_listening(self) -> None:
        port, self._port = self._port, None
        stopped = port.stopListening() if port is not None else None
        if stopped is not None:
            await stopped

    async def _drain(self) -> None:
        """Let requests come to their end, and clients take the last bytes of the answers."""
        self.site.close_idle()
        self._streams.end_all()
        await self._wait(self.site.when_empty(), DRAIN_LIMIT)

    async def _end_models(self) -> None:
        gone = self.router.shut_down()
        if self._hurry:
            self._kill()
        longest = max((model.unload_timeout for model in self.config.models.values()), default=0.0)
        if not await self._wait(gone, longest + _END_LIMIT, hurried=False):
            self._log.error("a model did not end in time; the guard will see to it")

    async def _end_connections(self) -> None:
        """What is under way still is told of the end, if anything can be told."""
        self.inflight.cancel_all()
        await self._wait(self.site.when_empty(), _LAST_WORDS)
        self.site.abort()

    async def _close(self) -> None:
        for child in self.router.children.values():
            child.close()
        for pool in self._pools.values():
            pool.close()
        self._guard.stop()
        self._put_signals_back()

    def _wait(self, wanted: Deferred[Any], seconds: float, hurried: bool = True) -> Deferred[bool]:
        """Fires with whether `wanted` did in time; a second signal ends the wait if it is `hurried`."""
        done: Deferred[bool] = Deferred()

        def over(in_time: bool) -> None:
            if not done.called:
                done.callback(in_time)

        timer = self.reactor.callLater(seconds, over, False)
        wanted.addErrback(lambda failure: self._log.failure("internal error while stopping", failure))
        wanted.addCallback(lambda _: over(True))
        if hurried:
            self._patience.append(lambda: over(False))
            if self._hurry:
                over(False)

        def tidy(in_time: bool) -> bool:
            if timer.active():
                timer.cancel()
            return in_time

        return done.addCallback(tidy)


def _router(config: Config, reactor: Any) -> Router:
    rules = {
        model.id: ModelRules(concurrency_limit=model.concurrency_limit, priority=config.priorities.get(model.id, 0))
        for model in config.models.values()
    }
    policy = GroupPolicy(config.groups)
    return Router(reactor, Scheduler(rules, policy, config.limits.queue))


def _raise_file_limit() -> None:
    """A stream needs two descriptors; take as many as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass
