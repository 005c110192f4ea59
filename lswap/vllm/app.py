"""`lswap-vllm serve` as a service: has the server ready, opens the port, and puts the server to sleep at the end.

Decides the order of things, and who may act: one wrapper at a time starts, wakes or puts to sleep, and the last one
that uses the server puts it to sleep. Read `lswap.vllm.engine` for the calls, `lswap.vllm.daemon` for the process.
Source: utilities reference, sections 2.2, 2.4 and 2.7.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.errors import ConnectFailed, LswapError, StartError, UpstreamError
from lswap.front import FrontService
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.group import Groups
from lswap.net.leader import Exit
from lswap.net.upstream import Upstream
from lswap.service.logs import Logs, logs
from lswap.vllm.daemon import Daemon
from lswap.vllm.daemon_log import DaemonLog
from lswap.vllm.engine import CALL_LIMIT, CHECK_LIMIT, Engine, EngineError
from lswap.vllm.journal import Journal
from lswap.vllm.options import VllmSettings
from lswap.vllm.state import Record, ServerState, folder_for
from lswap.web.road import Road

__all__ = ["VllmService"]

#: Seconds that a server which is healthy may take to be ready after it was woken.
_READY_LIMIT = 10.0
#: Seconds to connect, and from the end of a request to the head of its answer.
_CONNECT_LIMIT, _HEADER_LIMIT = 30.0, 300.0
#: Seconds that a wrapper at its end waits for one that is starting; then that one will use the server.
_TURN_LIMIT = 2.0
#: Seconds between two tries to take a lock, and between two looks at a daemon that another wrapper has started.
_TRY, _LOOK = 0.05, 0.5
#: Seconds from SIGTERM to SIGKILL for a daemon that is no good.
_GRACE = 2.0


class VllmService(FrontService):
    """The wrapper."""

    drain_limit = 10.0

    def __init__(
        self,
        reactor: Any,
        settings: VllmSettings,
        *,
        environment: Mapping[str, str] = os.environ,
        own_logs: Logs | None = None,
        groups: Groups | None = None,
    ) -> None:
        """Build the parts; nothing starts. `own_logs` and `groups` stand in for those of this machine.

        @raise StateError: there is no place for the files.
        """
        super().__init__(reactor, settings.listen, own_logs or logs())
        self._settings = settings
        self._environment = environment
        self.state = ServerState(folder_for(settings.state_dir, environment), settings.url)
        self.upstream = Upstream(reactor, Origin(settings.url), _CONNECT_LIMIT, _HEADER_LIMIT)
        # Kept apart from that of requests, whose limits are others.
        self._pool = Upstream(reactor, Origin(settings.url), _CONNECT_LIMIT)
        client = HTTPClient(UpstreamAgent(lambda _: self._pool))
        self.engine = Engine(reactor, client, settings.url, settings.health_path)
        self.daemon = Daemon(reactor, self.state, groups)
        self._log_file = DaemonLog(reactor, self.state.log, lambda data: self.logs.model_output("vllm", data))
        self._journal = Journal(reactor, settings.journal_unit, lambda data: self.logs.model_output("vllm", data))
        self._start: Deferred[None] | None = None
        self._is_ready = False
        #: Whether the server is to sleep at the end.
        self._sleep = True
        self.serve(_Door(self))

    # -- start -----------------------------------------------------------------------

    def startService(self) -> None:
        """Begin; the port opens when the server is ready."""
        self.logs.configure("info", "both", "rfc3339")
        super().startService()
        self.take_signals()
        self._log_file.start()
        self._journal.start(self._environment)
        self.supervisor.status("waiting for the server")
        self._start = Deferred.fromCoroutine(self._begin())
        self._start.addErrback(self._broken)

    def _broken(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("internal error", failure)
            self._give_up()

    def _give_up(self) -> None:
        """End with an error."""
        self.exit_code = 1
        self.stop_soon()

    async def _begin(self) -> None:
        try:
            await self._take_turn(self._settings.wait_timeout)
            try:
                self.state.using.take(shared=True)
                await self._bring_up()
                self._is_ready = True
            finally:
                self.state.acting.release()
            self.begin_to_listen()
        except LswapError as problem:
            self._log.error("{problem}", problem=str(problem).removeprefix("lswap: "))
            self._give_up()

    async def _take_turn(self, limit: float) -> None:
        """Be the one who acts.

        @raise StartError: another one acts for longer than `limit` seconds.
        """
        end = self.reactor.seconds() + limit
        while not self.state.acting.take():
            if self.reactor.seconds() >= end:
                raise StartError(f"another wrapper has been starting or waking the server for {limit:g} s")
            await deferLater(self.reactor, _TRY, lambda: None)

    async def _bring_up(self) -> None:
        """Have the server ready.

        @raise LswapError: it is not to be had.
        """
        settings = self._settings
        problem = await self.engine.health()
        if not problem:
            if await self.engine.sleeps() is not False:
                await self._wake_healthy()
            await self.engine.until_healthy(_READY_LIMIT)
            return
        self._log.info("{url} is not ready: {problem}", url=settings.url, problem=problem)
        try:
            await self.engine.wake(self._slept_at(), settings.wait_timeout)
        except EngineError as error:
            self._log.info("no server there that could be woken: {problem}", problem=str(error))
        else:
            await self.engine.until_healthy(settings.wait_timeout)
            return
        record = self.state.record()
        if record is not None and record.alive:
            self._log.info("process {pid} was started before, and is waited for", pid=record.pid)
            await self._wait_for(record)
        else:
            await self._start_daemon()

    async def _wake_healthy(self) -> None:
        level = self._slept_at()
        try:
            await self.engine.wake(level, self._settings.wait_timeout)
        except EngineError as problem:
            if level > 1:
                raise  # it has no weights
            self._log.warn("the server is healthy, but could not be woken: {problem}", problem=str(problem))

    def _slept_at(self) -> int:
        return max(self.state.level or 0, self._settings.sleep_level)

    async def _start_daemon(self) -> None:
        waiting: Deferred[None] = Deferred()

        def ended(exit: Exit) -> None:
            # What ends well has started the server elsewhere, as `systemd-run` does.
            if exit.code != 0 and not waiting.called:
                waiting.errback(StartError(f"the daemon ended during its start: {exit.words}"))

        self.daemon.on_exit = ended
        self.daemon.start(self._settings.daemon, self._environment)
        self._log_file.rewind()
        healthy = self.engine.until_healthy(self._settings.wait_timeout)
        healthy.addBoth(lambda result: None if waiting.called else waiting.callback(result))
        try:
            await waiting
        except StartError as problem:
            if self.daemon.exit is None or self.daemon.exit.code == 0:
                problem = StartError(f"daemon did not become healthy: {problem}")
            await self.daemon.end(self.daemon.pid, 0.0)
            raise problem from None
        finally:
            healthy.cancel()
            self.daemon.on_exit = self._daemon_ended

    async def _wait_for(self, record: Record) -> None:
        """Wait for a daemon that another wrapper has started, and left in the middle of it."""
        healthy = self.engine.until_healthy(self._settings.wait_timeout)
        watch = LoopingCall(lambda: None if record.alive else healthy.cancel())
        watch.clock = self.reactor
        watch.start(_LOOK)
        try:
            await healthy
        except CancelledError:
            if record.alive:
                raise
            raise StartError(f"the daemon, process {record.pid}, ended during its start") from None
        except StartError:
            # One that hangs would be waited for by the next wrapper, too.
            if record.alive:
                await self.daemon.end(record.pid, _GRACE)
            raise
        finally:
            watch.stop()

    # -- while it serves -------------------------------------------------------------

    def _daemon_ended(self, exit: Exit) -> None:
        if exit.code != 0:
            self._server_gone(f"the daemon has ended: {exit.words}")
        else:
            self.look_after()

    def look_after(self) -> None:
        """The server may be gone: it has refused a connection, say."""
        checking = Deferred.fromCoroutine(self.engine.health())
        checking.addCallback(lambda problem: self._server_gone(problem) if problem else None)
        checking.addErrback(lambda failure: failure.trap(CancelledError))

    def _server_gone(self, problem: str) -> None:
        """A wrapper without a server would answer with errors for ever; whoever has started it starts it anew."""
        if self.running and self._is_ready:
            self._is_ready = self._sleep = False
            self._log.error("the server is gone, and so its wrapper ends: {problem}", problem=problem)
            self._give_up()

    # -- stop ------------------------------------------------------------------------

    def interrupted(self) -> None:
        """SIGINT: the server stays awake."""
        self._sleep = False
        self.stop_soon()

    def hung_up(self) -> None:
        """SIGHUP: the terminal is closed, and with it goes whoever wanted the server."""
        self.stop_soon()

    def stopping(self) -> None:
        """A start under way is given up."""
        if self._start is not None:
            self._start.cancel()

    def not_drained(self) -> None:
        """An answer that is cut is an error."""
        self._log.error("requests under way did not end within {limit:g} s", limit=self.drain_limit)
        self.exit_code = 1

    async def drained(self) -> None:
        """Put the server to sleep, or end a daemon that is of no use to anybody: not ready yet, or not any more."""
        daemon = self.daemon
        if not self._is_ready and daemon.pid and (daemon.exit is None or daemon.exit.code != 0):
            await daemon.end(daemon.pid, _GRACE)
        elif self._sleep:
            sleeping = Deferred.fromCoroutine(self._put_to_sleep())
            try:
                await self.within(sleeping, CALL_LIMIT + _TURN_LIMIT + CHECK_LIMIT, earlier=False)
            except LswapError as problem:
                self._log.warn("the server was not put to sleep: {problem}", problem=str(problem))
        # In this order: whoever acts next must be able to say that it uses the server.
        self.state.using.release()
        self.state.acting.release()

    async def _put_to_sleep(self) -> None:
        try:
            await self._take_turn(_TURN_LIMIT)
        except StartError:
            return  # somebody wants it awake
        if not self.state.using.take():
            self._log.info("the server stays awake: another wrapper uses it")
        elif await self.engine.sleeps():
            self._log.info("the server sleeps already")
        elif not self._is_ready and await self.engine.health():
            self._log.info("there is no server that could sleep")
        else:
            self.state.level = self._settings.sleep_level
            await self.engine.sleep(self._settings.sleep_level)
            self._log.info("the server sleeps, at level {depth}", depth=self._settings.sleep_level)

    async def close(self) -> None:
        """Close what is left."""
        self.upstream.close()
        self._pool.close()
        self._log_file.stop()
        await self._journal.end()


class _Door(Resource):
    """Every request goes to the server."""

    isLeaf = True

    def __init__(self, service: VllmService) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._service = service

    def render(self, request: Any) -> Any:
        """Set it on its road."""
        self._service.forward(request, self._road)
        return NOT_DONE_YET

    def _road(self, *args: Any) -> Road:
        return _ServerRoad(self._service, *args)


class _ServerRoad(Road):
    """The road of one request to the server: straight there."""

    __slots__ = ("_service",)

    def __init__(self, service: VllmService, *args: Any) -> None:
        super().__init__(*args)
        self._service = service

    def _acquire(self) -> None:
        self._send(self._service.upstream)

    def _no_answer(self, error: UpstreamError) -> None:
        self._fail(502, f"no answer from the vLLM server: {error}")
        if isinstance(error, ConnectFailed) and error.refused:
            self._service.look_after()
