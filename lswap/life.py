"""The life of a program with a port: how signals reach it, and how it ends in order, each step bounded in time.

Whoever supervises it is told (`lswap.net.supervisor`).

Decides nothing about what is served. `lswap.app` is made of it, and what the two tools have in common (`lswap.front`).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger

from lswap.net import signals
from lswap.net.inherited import PREFIX, inherited_sockets
from lswap.net.listen import open_port
from lswap.net.supervisor import Supervisor
from lswap.service.logs import Logs

__all__ = ["ServerService"]


class ServerService(Service):
    """A service with a port. A subclass says what begins beside it, and the `steps` in which all of it ends."""

    _log = Logger()

    def __init__(self, reactor: Any, listen: str, logs: Logs) -> None:
        """@param listen: as `-listen` says."""
        self.reactor = reactor
        self.logs = logs
        # What the environment tells of both is taken out before anybody copies that.
        self._sockets = inherited_sockets(os.environ)
        self.supervisor = Supervisor.of(os.environ, reactor)
        self._listen = listen
        self._port: IListeningPort | None = None
        self._restore_signals: Callable[[], None] | None = None
        self._hurry = False
        #: Waits that a second signal ends.
        self._patience: set[Deferred[Any]] = set()

    # -- start ---------------------------------------------------------------------

    def take_signals(self) -> None:
        """See to it that signals end the service in order; before anything can be left behind by another end."""
        if self._restore_signals is None:
            self._restore_signals = signals.install(
                self.reactor, self.stop_soon, self._stop_at_once, self.hung_up, self.interrupted
            )
            self.supervisor.begin()

    @property
    def listens(self) -> bool:
        """Whether the port is open."""
        return self._port is not None

    def open_port(self, factory: IProtocolFactory) -> None:
        """Open the port; once the reactor runs, the service is ready.

        @raise CannotListen: the address is no address, or it is taken.
        """
        if self._sockets and not self._listen.startswith(PREFIX):
            self._log.warn(
                "a socket was passed to this process, and is not used: that would be -listen systemd:index=0"
            )
        self._port = open_port(self._listen, factory, self.reactor, self._sockets)
        self.reactor.callWhenRunning(self.supervisor.ready)

    def undo_start(self) -> None:
        """Leave nothing half-started behind."""
        port, self._port = self._port, None
        if port is not None:
            port.stopListening()
        self.put_signals_back()
        self.supervisor.end()
        self.logs.detach()

    def put_signals_back(self) -> None:
        """Signals do again what they did before."""
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
        self.hurry()
        for wait in list(self._patience):
            wait.cancel()

    def hurry(self) -> None:
        """What a second signal does beside ending the waits."""

    # -- stop ----------------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Stop listening, then take the steps of the end, in order; each is bounded in time.

        A second signal skips what is left of the waiting.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        self.supervisor.stopping()
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        for step in (self._stop_listening, *self.steps()):
            try:
                await step()
            except Exception:
                self._log.failure("internal error while stopping; the rest goes on")
        self.put_signals_back()
        self._log.info("shutdown complete")
        self.supervisor.end()
        self.logs.detach()

    def steps(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What the end is made of once the port is closed."""
        return ()

    async def _stop_listening(self) -> None:
        port, self._port = self._port, None
        stopped = port.stopListening() if port is not None else None
        if stopped is not None:
            await stopped

    async def within(self, wanted: Deferred[Any], seconds: float, *, earlier: bool = True, later: bool = True) -> bool:
        """Wait for something, so long at most; whether it came.

        A second signal ends the wait: one that came `earlier`, one that comes `later`. What is not waited for any more
        is cancelled. Raises what it fails with.
        """
        if later:
            self._patience.add(wanted)
        wanted.addTimeout(0 if self._hurry and earlier else seconds, self.reactor, lambda result, _: result)
        try:
            await wanted
        except CancelledError:
            return False
        finally:
            self._patience.discard(wanted)
        return True
