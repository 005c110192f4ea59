"""Model servers in memory, for tests: made-up processes, and servers whose answers a test gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from twisted.internet.interfaces import IReactorTime

from lswap.errors import StartError
from lswap.net.process import Exit, Listener
from tests.wires import MemoryReactor, MemorySocket

__all__ = ["FakeGroup", "FakeProcesses", "Served", "StandIn"]


class FakeGroup:
    """A made-up process group: see `lswap.net.process.Group`. It obeys when it is told to stop, in the next turn."""

    def __init__(self, reactor: IReactorTime, pid: int, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.pid = pid
        self.words = list(words)
        self.environment = dict(environment)
        self.listener: Listener
        #: What it was told: (grace, command, environment).
        self.stops: list[tuple[float, list[str], dict[str, str] | None]] = []
        self.kills = 0
        #: Whether a stop ends it.
        self.obeys = True
        #: Whether the leader runs; whether anything of the group is left.
        self.alive = self.there = True
        #: Called when the leader has ended.
        self.at_end: Callable[[], object] = lambda: None
        self._reactor = reactor

    def stop(self, grace: float, command: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """See `Group.stop`."""
        self.stops.append((grace, list(command), None if environment is None else dict(environment)))
        if self.obeys:
            self._reactor.callLater(0, self.end, None, 15)

    def kill(self) -> None:
        """See `Group.kill`."""
        self.kills += 1
        self._reactor.callLater(0, self.end, None, 9)

    def say(self, data: bytes) -> None:
        """Write output."""
        self.listener.process_output(data)

    def exit(self, code: int | None = 0, number: int | None = None) -> None:
        """The leader ends; what it started stays."""
        if self.alive:
            self.alive = False
            self.at_end()
            self.listener.process_exited(Exit(code=code, signal=number))

    def vanish(self) -> None:
        """Nothing of it is left."""
        if self.there:
            self.there = False
            self.listener.process_gone()

    def end(self, code: int | None = 0, number: int | None = None) -> None:
        """All of it ends."""
        self.exit(code, number)
        self.vanish()


class FakeProcesses:
    """Made-up processes: see `lswap.net.process.Processes`."""

    def __init__(self, reactor: IReactorTime) -> None:
        self.groups: list[FakeGroup] = []
        #: What the next `spawn` raises.
        self.error: Exception | None = None
        #: Called with each new group.
        self.on_spawn: Callable[[FakeGroup], object] = lambda group: None
        self._reactor = reactor

    def spawn(self, argv: Sequence[str], environment: Mapping[str, str], listener: Listener) -> FakeGroup:
        """See `Processes.spawn`."""
        if self.error is not None:
            problem, self.error = self.error, None
            raise problem
        if not argv:
            raise StartError("failed to start command '': no words")
        group = FakeGroup(self._reactor, 1001 + len(self.groups), argv, environment)
        group.listener = listener
        self.groups.append(group)
        self.on_spawn(group)
        return group

    @property
    def running(self) -> list[FakeGroup]:
        """Those of which something is left."""
        return [group for group in self.groups if group.there]


class Served:
    """One request that has reached a model server."""

    def __init__(self, connection: MemorySocket, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = first.split(" ")
        self.headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        self.body = body
        self._connection = connection

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for header, value in self.headers if header.lower() == name.lower()), None)

    @property
    def aborted(self) -> bool:
        """Whether lswap has closed the connection."""
        return self._connection.eof or self._connection.reset

    def write(self, data: bytes) -> None:
        """Write raw bytes."""
        self._connection.peer.inbox += data

    def answer(self, status: int = 200, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        """Answer, with a length."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{n}: {v}" for n, v in headers)]
        self.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def begin(self, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Begin an answer in chunks."""
        lines = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *(f"{n}: {v}" for n, v in headers)]
        self.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        """Write a chunk; an empty one is the last."""
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class StandIn:
    """The server of one model. It listens while its process runs; its requests are answered by the test."""

    def __init__(self, name: str, reactor: MemoryReactor, address: tuple[str, int]) -> None:
        self.name = name
        self.address = address
        #: All processes that lswap has started, the last one at the end.
        self.groups: list[FakeGroup] = []
        #: Requests that came, health checks left out.
        self.requests: list[Served] = []
        #: Health checks that came.
        self.checks: list[Served] = []
        #: What the health check answers; None for nothing at all.
        self.health: int | None = 200
        #: Whether it answers each request by itself, with this text.
        self.says: bytes | None = None
        #: Whether a new process listens; whether connections are neither taken nor refused.
        self.listens = True
        self.silent = False
        #: Bytes of a request that it takes in before it says that it is full; requests beyond never become whole.
        self.room = 1 << 30
        self._reactor = reactor
        self._connections: list[MemorySocket] = []

    @property
    def group(self) -> FakeGroup:
        """The last process."""
        return self.groups[-1]

    @property
    def request(self) -> Served:
        """The last request."""
        return self.requests[-1]

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len([connection for connection in self._connections if not (connection.eof or connection.closed)])

    def began(self, group: FakeGroup) -> None:
        """A process began."""
        self.groups.append(group)
        group.at_end = self.shut
        if self.listens:
            self.listen()

    def listen(self) -> None:
        """From now on it can be reached."""
        self._reactor.listeners[self.address] = self

    def shut(self) -> None:
        """It can be reached no more, and all its connections close."""
        self._reactor.listeners.pop(self.address, None)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def accept(self, connection: MemorySocket) -> None:
        """Somebody connects."""
        connection.room = self.room
        self._connections.append(connection)

    def serve(self) -> bool:
        """Read what has come; whether anything has."""
        moved = False
        for connection in list(self._connections):
            while request := _request_in(connection):
                moved = True
                self._received(request)
        return moved

    def _received(self, request: Served) -> None:
        if request.target == "/health":
            self.checks.append(request)
            if self.health is not None:
                request.answer(self.health)
            return
        self.requests.append(request)
        if self.says is not None:
            request.answer(200, self.says)


def _request_in(connection: MemorySocket) -> Served | None:
    """The next whole request, taken out."""
    head, end, rest = bytes(connection.inbox).partition(b"\r\n\r\n")
    if not end:
        return None
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    length = int(found[1]) if found else 0
    if len(rest) < length:
        return None
    del connection.inbox[: len(head) + 4 + length]
    return Served(connection, head, rest[:length])
