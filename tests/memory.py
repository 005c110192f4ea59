"""A whole lswap in memory, for tests: real router, scheduler, site and client; made-up sockets, processes and time.

`MemoryLswap(config)` is the way in. `turn()` lets everything happen that can happen now, `turn(seconds)` lets time
pass before. Clients are `MemoryClient`s, model servers `StandIn`s: both do only what a test tells them.
Read `tests.wires` for what is below, `tests.stand_in` for the servers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from typing import Any, cast

from twisted.internet import tcp
from twisted.internet.address import IPv4Address

from lswap.app import LswapService
from lswap.core.config import Loaded, Source, load
from lswap.core.model_parts import Performance
from lswap.net.process import Processes
from lswap.options import Settings
from lswap.service.children import Child
from lswap.service.logs import Logs
from tests.stand_in import FakeGroup, FakeProcesses, Served, StandIn
from tests.wires import MemoryReactor, MemorySocket

__all__ = [
    "Answer",
    "FakeGroup",
    "FakeProcesses",
    "MemoryClient",
    "MemoryLswap",
    "MemoryReactor",
    "MemorySocket",
    "Served",
    "StandIn",
    "config_of",
]


def config_of(text: str) -> Loaded:
    """The configuration that a text means; it must have no problem."""
    loaded = load([Source("config.yaml", text.encode())], {})
    assert not loaded.problems, loaded.problems
    return loaded


class Answer:
    """One answer, as far as it has come."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes, complete: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        #: Whether its end has come, as its framing tells.
        self.complete = complete

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for header, value in self.headers if header.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.all(name)), None)

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.headers} {self.body[:200]!r}{'' if self.complete else ' incomplete'}>"


class MemoryClient:
    """A client that is connected to lswap, speaks HTTP as the test tells it, and reads when the test reads."""

    def __init__(self, reactor: MemoryReactor, site: Any, address: tuple[str, int] = ("192.0.2.7", 50_000)) -> None:
        self._reactor = reactor
        theirs, self.socket = MemorySocket.pair()
        self.channel = site.buildProtocol(IPv4Address("TCP", *address))
        self.transport = tcp.Server(
            cast(socket.socket, theirs), self.channel, address, cast(Any, None), 1, cast(Any, reactor)
        )
        self.transport.repstr = "<client>"
        self.channel.makeConnection(self.transport)
        #: What came and belongs to no answer that was read.
        self.received = b""
        self._methods: list[str] = []

    def raw(self, data: bytes) -> None:
        """Send bytes, in one piece."""
        self.socket.peer.inbox += data
        self._reactor.turn()

    def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Iterable[tuple[str, str]] = (),
        version: str = "1.1",
    ) -> None:
        """Send a request; a host and the length of a body are added."""
        given = list(headers)
        names = {name.lower() for name, _ in given}
        if "host" not in names:
            given.insert(0, ("Host", "test"))
        if body and not names & {"content-length", "transfer-encoding"}:
            given.append(("Content-Length", str(len(body))))
        lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in given)]
        self._methods.append(method)
        self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def expect(self, *methods: str) -> None:
        """Say what requests were sent `raw`, so that `read` knows which answers have no body."""
        self._methods += methods

    def take(self) -> bytes:
        """All bytes that have come, and are in no answer yet."""
        self._fill()
        data, self.received = self.received, b""
        return data

    def _fill(self) -> None:
        self._reactor.turn()
        while self.socket.inbox:
            self.received += self.socket.recv(1 << 20)
            self._reactor.turn()

    def read(self) -> Answer:
        """The next answer, 1xx ones left out; it may be incomplete."""
        self._fill()
        while True:
            head, end, rest = self.received.partition(b"\r\n\r\n")
            if not end:
                raise AssertionError(f"no answer: {self.received[:300]!r}, closed: {self.closed}")
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            if status >= 200:
                break
            self.received = rest
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        method = self._methods.pop(0) if self._methods else "GET"
        answer = Answer(status, headers, b"", False)
        self.received = self._read_body(answer, method, rest)
        return answer

    def _read_body(self, answer: Answer, method: str, rest: bytes) -> bytes:
        length = answer.header("Content-Length")
        if method == "HEAD" or answer.status in (204, 304):
            answer.complete = True
        elif answer.header("Transfer-Encoding") == "chunked":
            while found := re.match(rb"([0-9a-fA-F]+)[^\r\n]*\r\n", rest):
                size = int(found[1], 16)
                if not size:
                    _, end, after = rest[found.end() - 2 :].partition(b"\r\n\r\n")
                    answer.complete = bool(end)
                    return after if end else rest
                answer.body += rest[found.end() : found.end() + size]
                rest = rest[found.end() + size + 2 :]
        elif length is not None:
            answer.body, rest = rest[: int(length)], rest[int(length) :]
            answer.complete = len(answer.body) == int(length)
        else:
            answer.body, rest = rest, b""
            answer.complete = self.socket.eof and not self.socket.reset
        return rest

    def ask(self, method: str, target: str, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> Answer:
        """Send a request and read its answer."""
        self.send(method, target, body, headers)
        return self.read()

    def chat(self, model: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send an ordinary inference request."""
        body = f'{{"model": "{model}"}}'.encode()
        self.send("POST", "/v1/chat/completions", body, [("Content-Type", "application/json"), *headers])

    @property
    def closed(self) -> bool:
        """Whether lswap has closed its side, or all of the connection."""
        return self.socket.eof or self.socket.reset

    @property
    def gone(self) -> bool:
        """Whether lswap has let go of the connection."""
        return self.socket.peer.closed

    def leave(self) -> None:
        """Close the connection."""
        self.socket.inbox.clear()
        self.socket.close()
        self._reactor.turn()

    def reset(self) -> None:
        """Close the connection hard."""
        self.socket.setsockopt(0, socket.SO_LINGER, b"")
        self.leave()


class MemoryLswap:
    """lswap with everything but its port, its signals and its guard.

    A model's command must hold `${PORT}`, or its `proxy` a local address: `models["a"]` stands in for its server.
    `path` is what a reload reads.
    """

    def __init__(self, config: str, reactor: MemoryReactor | None = None, path: str = "config.yaml") -> None:
        self.reactor = reactor or MemoryReactor()
        self.processes = FakeProcesses(self.reactor)
        self.processes.on_spawn = self._spawned
        self.logs = Logs(lambda data: None)
        self.service = LswapService(
            Settings(config=path, listen="127.0.0.1:8080"),
            config_of(config),
            self.reactor,
            processes=cast(Processes, self.processes),
            own_logs=self.logs,
        )
        self.service.monitor.configure(Performance(disabled=True))  # it would look at the real machine
        self.models = {
            name: StandIn(name, self.reactor, ("127.0.0.1", _port(model.proxy)))
            for name, model in self.service.config.models.items()
        }

    def _spawned(self, group: FakeGroup) -> None:
        child = group.listener
        if not isinstance(child, Child):  # the command of a hook
            return
        name, address = child.model.id, ("127.0.0.1", _port(child.model.proxy))
        if name not in self.models or self.models[name].address != address:  # by a reload
            self.models[name] = StandIn(name, self.reactor, address)
        self.models[name].began(group)

    @property
    def router(self) -> Any:
        """The real one."""
        return self.service.router

    @property
    def inflight(self) -> Any:
        """The real one."""
        return self.service.inflight

    @property
    def scheduler(self) -> Any:
        """The real one."""
        return self.service.router._scheduler

    def child(self, name: str) -> Child:
        """The real owner of a model."""
        return self.service.router.children[name]

    def client(self, address: tuple[str, int] = ("192.0.2.7", 50_000)) -> MemoryClient:
        """A new connection."""
        return MemoryClient(self.reactor, self.service.site, address)

    def turn(self, seconds: float = 0) -> None:
        """Let time pass; then everything that can happen now happens."""
        self.reactor.turn(seconds)

    def get(self, target: str, headers: Iterable[tuple[str, str]] = ()) -> Answer:
        """Ask on a connection of its own."""
        client = self.client()
        answer = client.ask("GET", target, headers=headers)
        client.leave()
        return answer

    def ready(self, *names: str) -> None:
        """Have these models loaded, one after the other, each by a request of its own."""
        for name in names:
            client = self.client()
            client.chat(name)
            self.models[name].request.answer()
            self.turn()
            client.leave()
            self.models[name].requests.clear()

    def running(self) -> dict[str, str]:
        """Model to state, of those that are not stopped."""
        states = {name: child.state.value for name, child in self.service.router.children.items()}
        return {name: state for name, state in states.items() if state not in ("stopped", "shutdown")}

    def leftovers(self) -> list[str]:
        """What is still held though nothing goes on: requests, leases, swaps, waiters."""
        held = [f"in flight: {exchange.path}" for exchange in self.inflight._all]
        held += [f"waits: ticket {ticket}" for ticket in self.router._waiting]
        held += [f"swap: {number}" for number in self.router._swaps]
        held += [
            f"{name}: {self.scheduler.inflight(name)} granted, {self.scheduler.reserved(name)} reserved"
            for name in self.models
            if self.scheduler.reserved(name) or self.scheduler.inflight(name)
        ]
        return held


def _port(proxy: str) -> int:
    found = re.search(r":(\d+)", proxy)
    return int(found[1]) if found else 80
