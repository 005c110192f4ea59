"""Builds all parts of lswap from a configuration, and starts and stops them in order.

The composition root: no decision about requests is made here. `lswap.tap` calls `make_service`; the parts are built
in the order in which `LswapService.__init__` names them, which is a good order to read them in.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any

from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.threads import deferToThreadPool

from lswap.core.config import Loaded
from lswap.core.difference import Difference
from lswap.core.events import State
from lswap.core.hooks import Doing
from lswap.core.log_format import Level
from lswap.core.model import Config
from lswap.core.status_line import status_line
from lswap.errors import LswapError
from lswap.life import ServerService
from lswap.net.agent import UpstreamAgent
from lswap.net.apart import run_apart
from lswap.net.config_files import load_files
from lswap.net.dial import Origin
from lswap.net.file_limit import raise_file_limit
from lswap.net.guard import Guard
from lswap.net.listen import CannotListen, endpoint_for
from lswap.net.process import DRAIN, UNKILLABLE, Processes
from lswap.net.upstream import Upstream
from lswap.net.watch import Watcher, fingerprint
from lswap.options import Settings
from lswap.service.captures import Captures
from lswap.service.counters import Counters
from lswap.service.events import Bus
from lswap.service.exchange import InFlight
from lswap.service.figures import HookFigures
from lswap.service.fleet import Fleet
from lswap.service.kv import KvCaches
from lswap.service.logs import Logs, logs
from lswap.service.monitor import Monitor
from lswap.service.names import Names
from lswap.service.peers import Peers
from lswap.service.preload import Preloader
from lswap.service.profiles import Profiles
from lswap.service.recorder import Recorder
from lswap.service.reload import Outcome, Reloader
from lswap.service.selectors import Selectors
from lswap.service.store import Store
from lswap.service.tools import Tools
from lswap.version import build_facts
from lswap.web.access_log import AccessLog
from lswap.web.activity import add_activity
from lswap.web.admin import Admin, Parts
from lswap.web.auth import Gate
from lswap.web.comfyui import ComfyRoutes
from lswap.web.events import EventStreams
from lswap.web.exposition import Figures
from lswap.web.forward import Forwarder
from lswap.web.listing import Listing, add_listing
from lswap.web.live import LiveStreams
from lswap.web.openai import ModelRoutes
from lswap.web.performance import add_performance
from lswap.web.plan import PlanRoutes
from lswap.web.profiles import add_profiles
from lswap.web.root import Front, new_app, on_fault
from lswap.web.site import Site
from lswap.web.upstream import UpstreamRoutes

__all__ = ["DRAIN_LIMIT", "CannotListen", "LswapService", "endpoint_for", "make_service"]

#: Seconds that requests under way get to finish after a stop signal.
DRAIN_LIMIT = 30.0
#: Seconds that clients then get to take what was left to say to them.
_LAST_WORDS = 1.0
#: Seconds that the end of a model may take beyond its time; longer is a fault, which must not hold us up.
_END_LIMIT = DRAIN + UNKILLABLE + 3.0


def make_service(settings: Settings, loaded: Loaded, reactor: Any) -> LswapService:
    """The service for these settings; `loaded.config` must be there."""
    assert loaded.config is not None
    return LswapService(settings, loaded, reactor)


class LswapService(ServerService):
    """Everything between the command line and the parts."""

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
        super().__init__(reactor, settings.listen, own_logs or logs())
        self._settings = settings
        self._warnings = loaded.warnings
        self._pools: dict[str, Upstream] = {}
        self._guard = Guard(reactor)
        client = HTTPClient(UpstreamAgent(self._pool_of), cookiejar=_no_cookies())
        self.kv = KvCaches(reactor, client, self._in_thread, os.environ)
        self._tools = Tools(
            reactor=reactor,
            processes=processes or Processes(reactor, self._guard),
            client=client,
            logs=self.logs,
            environment=dict(os.environ),
            in_thread=self._in_thread,
            kv=self.kv,
            told=self._told,
        )
        self._hook_figures = HookFigures()
        self.inflight = InFlight()
        self.fleet = Fleet(loaded.config, self._tools)
        self.router = self.fleet.router
        self._preloader = Preloader(self.fleet)
        self.peers = Peers(reactor, loaded.config, self._tools.environment)
        self.profiles = Profiles(self._current)
        self.bus = Bus()
        self.fleet.watchers.append(lambda *_: self.bus.publish("modelStatus"))
        self.names = Names(self._current, self.profiles, Selectors(self._current, self.fleet.state_of))
        self.reloader = Reloader(reactor, self._load, self._take_over, self._reload_told)
        #: How many problems the latest configuration had; it is not in force then.
        self._refused = 0
        self.fleet.watchers.append(lambda *_: self._tell_status())
        self._watcher = Watcher(reactor, self._look, self._sources_changed) if settings.watch_config else None
        # Drivers may hang; threads of the pool would then hold up the end.
        self._apart = partial(run_apart, reactor) if own_logs is None else self._in_thread
        self.monitor = Monitor(reactor, self._apart, self._anything_runs, loaded.config.performance)
        self.fleet.watchers.append(lambda *_: self.monitor.wake())
        self._streams = LiveStreams(reactor)
        self.counters = Counters()
        self.captures = Captures(loaded.config.capture_buffer << 20)
        self.store = Store(
            reactor, loaded.config.store_path, loaded.config.metrics_max_in_memory, threaded=own_logs is None
        )
        self.site = Site(reactor, self._tree(), self.config.limits, on_fault)
        self.site.refuses_early = self._gate.refuses_early
        self.site.access_log = AccessLog(self.logs.info, reactor.seconds)

    def _tree(self) -> Front:
        app = new_app()
        forwarder = Forwarder(self.reactor, self.router, self.inflight)
        self._tunnels = forwarder.tunnels
        forwarder.recorder = Recorder(self.reactor, self.store, self.captures, self.bus, self.counters, self._current)
        listing = Listing(self._current, lambda: self.router.children, self.profiles)
        events = EventStreams(
            self.reactor,
            self._current,
            self.router,
            self.inflight,
            self.logs,
            self._streams,
            listing,
            self.profiles,
            self.bus,
        )
        parts = Parts(
            clock=self.reactor,
            config=self._current,
            router=self.router,
            inflight=self.inflight,
            logs=self.logs,
            streams=self._streams,
            events=events,
            reload=self.reloader.reload,
            about=build_facts(),
        )
        models = ModelRoutes(self.reactor, self._current, forwarder, self.names, self.peers)
        models.add_to(app)
        Admin(parts).add_to(app)
        add_listing(app, listing)
        add_profiles(app, self._current, self.profiles)
        add_activity(app, self.store, self.captures)
        figures: list[Figures] = [self.counters, self._hook_figures, self.kv.figures]
        add_performance(app, self.reactor, self.monitor, self._apart, figures)
        PlanRoutes(self.reactor, self._current, self.router).add_to(app)
        upstream = UpstreamRoutes(self.reactor, self._current, forwarder, self.profiles, self.peers)
        ComfyRoutes(self.reactor, self._current, forwarder).add_to(app)
        self._gate = Gate(self._current, app)
        return Front(app, upstream, self._gate.admit, models)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.fleet.config

    def _current(self) -> Config:
        return self.fleet.config

    def _told(self, doing: Doing) -> None:
        """A hook, sleep or wake begins or is over."""
        self._hook_figures.note(doing)
        shown: dict[str, Any] = {"model": doing.model, "event": doing.event, "action": doing.action}
        if doing.outcome is not None and doing.seconds is not None:
            shown.update(seconds=round(doing.seconds, 3), outcome=doing.outcome.value)
        self.bus.publish("hook", shown)

    def _anything_runs(self) -> bool:
        idle = (State.STOPPED, State.SHUTDOWN)
        return any(child.state not in idle for child in self.fleet.children.values())

    # -- reload ----------------------------------------------------------------------

    def _load(self) -> Loaded:
        """Read everything anew, in a thread; ports stay where they are."""
        models = (child.model for child in list(self.fleet.children.values()))  # those on their way out as well
        ports = {model.id: model.port for model in models if model.port is not None}
        ports |= {model.id: model.port for model in self.config.models.values() if model.port is not None}
        return load_files(self._settings.config, self._settings.config_dir, os.environ, ports)

    def _look(self) -> bytes | None:
        return fingerprint(self._settings.config, self._settings.config_dir)

    def _sources_changed(self) -> None:
        self.reloader.reload(patient=True)

    def _take_over(self, config: Config) -> Difference:
        made = self.fleet.take_over(config)
        self.kv.use(config)
        self.peers.take_over(config)
        self.names.reloaded()
        self.store.use(config.store_path, config.metrics_max_in_memory)
        self.monitor.configure(config.performance)
        self.captures.allow(config.capture_buffer << 20)
        self.bus.publish("uiConfig")
        self.bus.publish("modelStatus")
        self.site.limits = config.limits
        self._configure_logs(config)
        self.logs.retain(config.models)
        self._hook_figures.retain(config.models)
        self._preloader.start()
        return made

    def _reload_told(self, outcome: Outcome | None) -> None:
        """Have the supervisor know of a reload: that it begins, or what became of it."""
        if not self.running:
            return  # one that is given up at the end says nothing of the configuration
        if outcome is None:
            self.supervisor.reloading()
            return
        self._refused = len(outcome.problems)
        self._tell_status()
        self.supervisor.reloaded()

    def _tell_status(self) -> None:
        states = {model_id: child.state for model_id, child in self.fleet.children.items()}
        self.supervisor.status(status_line(states, self._refused))

    def _configure_logs(self, config: Config) -> None:
        self.logs.configure(config.log_level, config.log_to_stdout, config.log_time_format, config.log_format)
        self.router.explain(self.logs.level is Level.DEBUG)

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        # The pool is asked for late: threads do not survive the step into the background.
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function, *args)

    def _pool_of(self, origin: Origin) -> Upstream:
        """The connections to an origin, for control work; a model's own where it is that of a model."""
        key = str(origin)
        for child in self.router.children.values():
            if child.upstream is not None and child.upstream.origin.same_server(origin):
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
        self.take_signals()
        try:
            self.open_port(self._factory())
        except BaseException:
            self.undo_start()
            raise

    def _factory(self) -> IProtocolFactory:
        """The site, behind TLS where that is asked for."""
        cert, key = self._settings.tls_cert_file, self._settings.tls_key_file
        if cert is None or key is None:
            return self.site
        from lswap.net.tls import encrypted  # noqa: PLC0415 - OpenSSL is large

        try:
            return encrypted(self.site, cert, key, self.reactor)
        except LswapError as error:
            raise CannotListen(f"lswap: {error}") from error

    def startService(self) -> None:
        """Start the parts; models start with their first request."""
        if not self.listens:
            self.privilegedStartService()
        super().startService()  # type: ignore[no-untyped-call]
        try:
            self._start()
        except BaseException:
            self.undo_start()
            raise

    def _start(self) -> None:
        config = self.config
        self._configure_logs(config)
        self.logs.use_reactor(self.reactor)
        self.logs.attach()
        if self._settings.umask is not None:
            os.umask(self._settings.umask)
        raise_file_limit()
        self._guard.start()
        for warning in self._warnings:
            self._log.warn("{problem}", problem=str(warning))  # old observers take `warning` for Python's
        if self._watcher is not None:
            self._watcher.start(self._look())
        self._announce()
        self._tell_status()
        self.kv.start(config)
        self._preloader.start()
        self.peers.watch()
        gc.collect()
        gc.freeze()

    def _announce(self) -> None:
        listen = self._settings.listen
        if self._settings.uses_tls:
            self._log.info("lswap listening with TLS on https://{listen}", listen=listen)
        else:
            self._log.info("lswap listening on http://{listen}", listen=listen)

    def undo_start(self) -> None:
        """Leave nothing half-started behind."""
        if self._watcher is not None:
            self._watcher.stop()
        self._guard.stop()
        super().undo_start()

    # -- signals -------------------------------------------------------------------------

    def stop_soon(self) -> None:
        """SIGTERM and SIGINT."""
        self._log.info("stopping: no new connections; requests under way may finish")
        super().stop_soon()

    def hurry(self) -> None:
        """A second signal kills the models."""
        for child in self.router.children.values():
            child.kill()

    def hung_up(self) -> None:
        """SIGHUP: read the configuration anew."""
        self.reloader.reload()

    # -- stop ------------------------------------------------------------------------------

    def steps(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Let requests finish, end the models, close everything."""
        return self._stop_beginning, self._drain, self._end_models, self._end_connections, self._close

    async def _stop_beginning(self) -> None:
        """Nothing new is begun by ourselves."""
        self.reloader.stop()
        self._preloader.stop()
        if self._watcher is not None:
            self._watcher.stop()

    async def _drain(self) -> None:
        """Let requests come to their end, and clients take the last bytes of the answers."""
        self.site.close_idle()
        self._streams.end_all()
        self._tunnels.end()
        await self.within(self.site.when_empty(), DRAIN_LIMIT)

    async def _end_models(self) -> None:
        self.peers.shut_down()
        gone: Deferred[None] = Deferred()  # of our own: what is not waited for goes on all the same
        self.router.shut_down().addBoth(gone.callback)
        if self._hurry:
            self.hurry()
        longest = max((child.end_takes for child in self.router.children.values()), default=0.0)
        if not await self.within(gone, longest + _END_LIMIT, earlier=False, later=False):
            self._log.error("a model did not end in time; the guard will see to it")

    async def _end_connections(self) -> None:
        """What is under way still is told of the end, if anything can be told."""
        self.inflight.cancel_all()
        await self.within(self.site.when_empty(), _LAST_WORDS)
        self.site.abort()

    async def _close(self) -> None:
        for child in self.router.children.values():
            child.close()
        self.peers.close()
        self.monitor.stop()
        self.kv.stop()
        await self.store.stop()
        for pool in self._pools.values():
            pool.close()
        self._guard.stop()


def _no_cookies() -> IndexableCookieJar:
    """A jar that takes none: cookies know no ports, so one model's would go to another's health check."""
    return IndexableCookieJar(DefaultCookiePolicy(allowed_domains=[]))
