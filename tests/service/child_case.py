"""A child with a real machine, health check and client; a made-up process. For tests of owners, hooks and sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from treq.client import HTTPClient
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import State
from lswap.core.hooks import Cause, Doing, Reason
from lswap.core.model import Model
from lswap.errors import StartError
from lswap.net.agent import UpstreamAgent
from lswap.net.process import Processes
from lswap.net.upstream import Upstream
from lswap.service.children import Child
from lswap.service.kv import KvCaches
from lswap.service.logs import Logs
from lswap.service.tools import Tools
from tests.stand_in import FakeGroup, FakeProcesses, StandIn
from tests.wires import MemoryReactor

__all__ = ["MODEL", "PORT", "UNLOAD", "ChildCase"]

PORT = 5800
UNLOAD = Cause(Reason.UNLOAD)
MODEL = Model(id="a", cmd=f"server --port {PORT}", proxy=f"http://127.0.0.1:{PORT}", port=PORT, unload_timeout=10.0)


class ChildCase(SynchronousTestCase):
    """A child, the server of its model, and the states that it has told."""

    def setUp(self) -> None:
        """Nothing runs."""
        self.reactor = MemoryReactor()
        self.processes = FakeProcesses(self.reactor)
        self.server = StandIn("a", self.reactor, ("127.0.0.1", PORT))
        self.processes.on_spawn = self.spawned
        self.doings: list[Doing] = []
        self.logs = Logs(lambda data: None)
        self.states: list[str] = []
        self.on_state: Callable[[State], object] = lambda state: None
        self.thread: Callable[..., Deferred[Any]] = maybeDeferred
        self.make()

    def make(self, **changes: Any) -> None:
        """Have a child for a model that differs from the usual one."""
        fields = {name: getattr(MODEL, name) for name in MODEL.__struct_fields__ if name != "words"}
        self.model = Model(**(fields | changes))
        client = HTTPClient(UpstreamAgent(lambda origin: cast(Upstream, self.child.upstream)))
        tools = Tools(
            reactor=self.reactor,
            processes=cast(Processes, self.processes),
            client=client,
            logs=self.logs,
            environment={"PATH": "/bin", "SHARED": "outer"},
            in_thread=self.in_thread,
            kv=KvCaches(self.reactor, client, self.in_thread, {}),
            told=self.doings.append,
        )
        self.child = Child(self.model, tools, self.told_state)

    def spawned(self, group: FakeGroup) -> None:
        """A command was started: the server's, or that of a hook."""
        if group.words[0].endswith("server"):
            self.server.began(group)

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """The child has something done elsewhere."""
        return self.thread(function, *args)

    def told_state(self, model: str, state: State) -> None:
        """The child is in a new state."""
        self.assertEqual(model, self.model.id)
        self.states.append(state.value)
        self.on_state(state)

    @property
    def group(self) -> FakeGroup:
        """The last process of the model."""
        return self.server.groups[-1]

    def start(self, health: int | None = 200) -> Deferred[None]:
        """Ask for readiness, and let what follows happen."""
        self.server.health = health
        asked = self.child.ensure_ready()
        self.reactor.turn()
        return asked

    def ready(self) -> None:
        """Have it ready."""
        self.successResultOf(self.start())
        self.states.clear()

    def assert_quiet(self) -> None:
        """After what has to happen, nothing is waited for any more."""
        self.reactor.turn(10)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def why(self, failed: Deferred[Any]) -> str:
        """The text of a failed start."""
        return str(self.failureResultOf(failed, StartError).value)
