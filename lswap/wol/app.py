"""`lswap-wol` as a service: the parts, and the order in which they begin and end. Read `lswap.wol.door` next."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lswap.front import FrontService
from lswap.net.dial import Origin
from lswap.net.guard import Guard
from lswap.net.process import Processes
from lswap.net.upstream import Upstream
from lswap.net.wake import CommandWaker, PacketWaker, Waker
from lswap.service.logs import Logs, logs
from lswap.service.sleeper import CONNECT_LIMIT, UNHEARD_LIMIT, Bedroom, Sleeper
from lswap.wol.door import Door
from lswap.wol.options import KEY_VARIABLE, WolSettings

__all__ = ["WolService"]


class WolService(FrontService):
    """The front proxy."""

    def __init__(
        self,
        reactor: Any,
        settings: WolSettings,
        *,
        waker: Waker | None = None,
        own_logs: Logs | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Build the parts; nothing starts. `waker` and `own_logs` stand in for those of this machine."""
        super().__init__(reactor, settings.listen, own_logs or logs())
        self._settings = settings
        self._guard: Guard | None = None
        self._environment = {name: value for name, value in environment.items() if name != KEY_VARIABLE}
        origin = Origin(settings.upstream)
        bedroom = Bedroom(
            url=settings.upstream,
            check_path=settings.health_path,
            api_key=settings.api_key,
            timeout=settings.timeout,
        )
        self.host = Sleeper(reactor, bedroom, waker or self._make_waker(settings))
        self.upstream = Upstream(reactor, origin, CONNECT_LIMIT, unheard_limit=UNHEARD_LIMIT)
        self.serve(Door(self.host, self.upstream, self.forward))

    def _make_waker(self, settings: WolSettings) -> Waker:
        if not settings.wake_command:
            return PacketWaker(self.reactor, settings.packets, settings.destinations)
        self._guard = Guard(self.reactor)
        processes = Processes(self.reactor, self._guard)
        return CommandWaker(self.reactor, processes, settings.wake_command, self._environment)

    def privilegedStartService(self) -> None:
        """Open the port.

        @raise CannotListen: the address is no address, or it is taken.
        """
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        self.logs.configure(self._settings.log_level, "proxy", "rfc3339")
        self.take_signals()
        try:
            self.begin_to_listen()
        except BaseException:
            self.undo_start()
            raise

    def startService(self) -> None:
        """Begin to watch the host."""
        if not self.listens:  # the runner knows only one step of starting
            self.privilegedStartService()
        super().startService()
        if self._guard is not None:
            self._guard.start()
        self.host.start()

    def stopping(self) -> None:
        """Requests that wait for the host are no running answers."""
        self.host.stop()

    async def close(self) -> None:
        """Close what is left."""
        self.upstream.close()
        if self._guard is not None:
            self._guard.stop()
