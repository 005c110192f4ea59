"""The whole of `lswap-vllm serve` in memory: real service, calls, road, locks; made-up server, processes and clock."""

from __future__ import annotations

import os
import signal
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap import front
from lswap.service.logs import Logs
from lswap.testing import FakeGroups, FakeProcess
from lswap.vllm.app import VllmService
from lswap.vllm.options import VllmSettings
from tests.memory import MemoryClient, MemoryReactor
from tests.stand_in import Served, StandIn

__all__ = ["PROGRAM", "URL", "Vllm", "VllmCase"]

URL = "http://127.0.0.1:8000"
PROGRAM = "/bin/sh"


class Vllm(StandIn):
    """A vLLM server: knows its health check, and the calls of its sleep mode."""

    def __init__(self, reactor: MemoryReactor) -> None:
        super().__init__("vllm", reactor, ("127.0.0.1", 8000))
        self.asleep = False
        #: Calls that came, in order.
        self.calls: list[str] = []
        #: What a call is answered with, where it is not 200; None for nothing.
        self.statuses: dict[str, int | None] = {}
        #: Whether it tells that it sleeps.
        self.tells = True

    def _received(self, request: Served) -> None:
        path = request.target.partition("?")[0]
        if path == "/is_sleeping":
            request.answer(200 if self.tells else 404, b'{"is_sleeping": %s}' % (b"true" if self.asleep else b"false"))
        elif path in ("/sleep", "/wake_up", "/collective_rpc", "/reset_prefix_cache"):
            self.calls.append(f"{request.method} {request.target}")
            status = self.statuses.get(path, 200)
            if status is not None:
                if 200 <= status < 300 and path in ("/sleep", "/wake_up"):
                    self.asleep = path == "/sleep"
                request.answer(status)
        else:
            super()._received(request)


class VllmCase(SynchronousTestCase):
    """A server that is not there yet, and wrappers of it."""

    def setUp(self) -> None:
        """Nothing runs."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.patch(front, "raise_file_limit", lambda: None)
        self.patch(front, "gc", mock.Mock())
        self.reactor = MemoryReactor()
        self.addCleanup(self.reactor.forget)
        self.vllm = Vllm(self.reactor)
        self.folder = self.mktemp()
        os.mkdir(self.folder, 0o700)
        self.said = b""
        self.ended: dict[VllmService, Deferred[None]] = {}

    def settings(self, **more: Any) -> VllmSettings:
        """What every wrapper is told."""
        return VllmSettings(
            **({"url": URL, "state_dir": self.folder, "listen": ":9000", "daemon": (PROGRAM, "serve")} | more)
        )

    def _say(self, data: bytes) -> None:
        self.said += data

    def serve(self, **more: Any) -> VllmService:
        """Start a wrapper."""
        service = self.made(**more)
        self.begin(service)
        return service

    def made(self, **more: Any) -> VllmService:
        """One that is not started yet."""
        groups = FakeGroups(self.reactor)
        logs = Logs(lambda data: None)
        logs.combined.subscribe(self._say)
        return VllmService(self.reactor, self.settings(**more), environment={"A": "1"}, own_logs=logs, groups=groups)

    def begin(self, service: VllmService) -> None:
        """Start it."""
        service.privilegedStartService()
        service.startService()
        self.reactor.turn()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in small steps."""
        for _ in range(round(seconds / 0.05)):
            self.reactor.turn(0.05)

    @property
    def daemon(self) -> FakeProcess:
        """The last daemon that was started."""
        return self.reactor.processes[-1]

    def end(self, service: VllmService, interrupted: bool = False) -> Deferred[None]:
        """A signal has come, as the reactor tells it."""
        if interrupted:
            service.interrupted()
        self.ended[service] = service.stopService()
        self.reactor.turn()
        return self.ended[service]

    def given_up(self, service: VllmService) -> bool:
        """Whether it has asked for its own end, with an error."""
        return self.reactor.stops > 0 and service.exit_code == 1

    def client(self, service: VllmService) -> MemoryClient:
        """A connection to a wrapper."""
        return MemoryClient(self.reactor, service.site)
