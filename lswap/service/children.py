"""One owner for each model: joins the machine of its life to its process, its health check and its connections.

Only this module starts and ends model servers. Others say what they want (`ensure_ready`, `stop`, `shut`), in any
state and any number of times, and wait for the Deferred. Read `lswap.core.child` for the states and
`lswap.net.process` for what a process group is; `lswap.service.router` says when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.child import ChildInputs, Life, Step, new_child
from lswap.core.command import split
from lswap.core.difference import same_process
from lswap.core.events import State
from lswap.core.model import Model
from lswap.errors import ConnectFailed, StartError
from lswap.net.dial import Dialer, Origin
from lswap.net.health import until_healthy
from lswap.net.ports import holder_of
from lswap.net.process import Exit, Group, Processes
from lswap.net.upstream import Upstream
from lswap.service.logs import Logs

__all__ = ["Child", "Tools"]

#: Seconds that the process of a start that came to nothing may take to end.
_ABORT_GRACE = 5.0
#: Seconds that somebody who listens on our port has to accept a connection.
_PORT_CHECK = 2.0
#: Bytes of a failed start's last output that its error shows.
_TAIL = 800


class Tools(msgspec.Struct, frozen=True):
    """What every child works with."""

    reactor: Any
    processes: Processes
    #: treq on our own agent.
    client: HTTPClient
    logs: Logs
    #: The environment that models inherit.
    environment: Mapping[str, str]
    #: Calls a function that blocks, with its arguments, elsewhere; gives a Deferred of the result.
    in_thread: Callable[..., Deferred[Any]]


class Child:
    """The owner of one model's process."""

    _log = Logger()

    def __init__(self, model: Model, tools: Tools, on_state: Callable[[str, State], None]) -> None:
        """`on_state` is told of each new state, before anything is done about it."""
        self.model = model
        self._tools = tools
        self._on_state = on_state
        self._life = Life()
        self._machine: ChildInputs = new_child(self._life)
        #: Inputs that wait their turn, each with what those who wait for readiness are told should it end their wait.
        self._inputs: deque[tuple[Callable[[], None], StartError]] = deque()
        self._busy = False
        self._group: Group | None = None
        self._start: Deferred[None] | None = None
        self._began = 0.0
        self._tail = b""
        self._until_ready = _Waiters()
        self._until_gone = _Waiters()
        self._until_lost = _Waiters()
        #: What the process is to be when it starts next, if that is not `model`.
        self._next: Model | None = None
        self._origin = _origin(model.proxy)
        #: The connections to the model's server; None for a proxy URL that leads nowhere.
        self.upstream = self._connections()

    @property
    def state(self) -> State:
        """Where the process is in its life; advice for listings, never a reason to act."""
        return self._life.state

    @property
    def outdated(self) -> bool:
        """Whether the process is not what the configuration in force describes: it takes no new requests."""
        return self._next is not None

    @property
    def pid(self) -> int | None:
        """The leader of the process group, if there is one."""
        return self._group.pid if self._group is not None else None

    # -- commands --------------------------------------------------------------

    def adopt(self, model: Model) -> bool:
        """Take another configuration of the model. True when the process that runs is not what it describes any more.

        The new one then comes into force with the next start; everything that does not touch the process at once.
        """
        if self._life.state in (State.STOPPED, State.SHUTDOWN):
            self._become(model)
        elif same_process(self.model, model):
            self.model, self._next = model, None
            if self.upstream is not None:
                timeouts = model.timeouts
                self.upstream.set_timeouts(timeouts.connect, timeouts.response_header, timeouts.keepalive)
        else:
            self._next = model
        return self._next is not None

    def ensure_ready(self) -> Deferred[None]:
        """Make the model ready. Fires when it is, fails with StartError when that start came to nothing.

        Cancelling only leaves the wait; the start goes on.
        """
        waiter = self._until_ready.add()
        # Nothing but a shutdown lets a start fail before it begins.
        self._tell(self._machine.start, _shutting_down())
        return waiter

    def stop(self, why: str) -> Deferred[None]:
        """End the process, whatever it does. Fires when nothing of it is left; at once when there is none."""
        waiter = self.when_gone()
        if self._life.state in (State.STARTING, State.READY):
            self._log.info("{model}: stopping ({why})", model=self.model.id, why=why)
        self._tell(self._machine.stop, StartError("aborted: the model was stopped while it was starting"))
        return waiter

    def shut(self) -> Deferred[None]:
        """End the process for good. Fires when nothing of it is left."""
        waiter = self.when_gone()
        self._tell(self._machine.shut, _shutting_down())
        return waiter

    def kill(self) -> None:
        """End the process group by force, at once."""
        if self._group is not None:
            self._group.kill()

    # -- questions ----------------------------------------------------------------

    def when_gone(self) -> Deferred[None]:
        """Fires when nothing is left of the process that there is now; at once when there is none. Asks for nothing."""
        waiter = self._until_gone.add()
        self._tell_if_gone()
        return waiter

    def vanished(self, within: float) -> Deferred[bool]:
        """Whether the process is not there or on its way out, now or within so many seconds.

        For a connection that was refused. May be cancelled.
        """
        if self._life.state is not State.READY:
            return succeed(True)
        waiter = self._until_lost.add()
        waiter.addTimeout(within, self._tools.reactor)

        def late(failure: Failure) -> bool:
            failure.trap(TookTooLong)
            return False

        return waiter.addCallbacks(lambda _: True, late)

    # -- the machine -------------------------------------------------------------

    def _tell(self, told: Callable[[], None], error: StartError) -> None:
        """Give one input to the machine and carry out what is due; inputs that come meanwhile wait their turn."""
        self._inputs.append((told, error))
        if self._busy:
            return
        self._busy = True
        try:
            while self._inputs:
                self._work_off(*self._inputs.popleft())
        finally:
            self._busy = False
        self._tell_if_gone()

    def _tell_if_gone(self) -> None:
        if not self._busy and self._life.state in (State.STOPPED, State.SHUTDOWN):
            self._until_gone.fire()

    def _work_off(self, told: Callable[[], None], error: StartError) -> None:
        before = self._life.state
        told()
        steps = self._life.take()
        if self._next is not None and (Step.SPAWN in steps or self._life.state in (State.STOPPED, State.SHUTDOWN)):
            self._become(self._next)
        if self._life.state is not before:
            self._tell_state()
            if before is State.READY:
                self._until_lost.fire()
        for step in steps:
            try:
                self._carry_out(step, error)
            except Exception:
                self._log.failure("{model}: internal error at {step}", model=self.model.id, step=step)
                if step in (Step.END, Step.ABORT):
                    self.kill()

    def _become(self, model: Model) -> None:
        """Another configuration, while there is no process."""
        old, self.model, self._next = self.model, model, None
        if (old.proxy, old.timeouts) != (model.proxy, model.timeouts):
            if self.upstream is not None:
                self.upstream.forget_idle()
            self._origin = _origin(model.proxy)
            self.upstream = self._connections()

    def _connections(self) -> Upstream | None:
        timeouts = self.model.timeouts
        if self._origin is None:
            return None
        return Upstream(
            self._tools.reactor,
            self._origin,
            timeouts.connect,
            timeouts.response_header,
            timeouts.tls_handshake,
            timeouts.idle_conn,
            keepalive=timeouts.keepalive,
        )

    def _tell_state(self) -> None:
        try:
            self._on_state(self.model.id, self._life.state)
        except Exception:
            self._log.failure("{model}: a new state could not be told", model=self.model.id)

    def _carry_out(self, step: Step, error: StartError) -> None:
        if step is Step.SPAWN:
            self._begin()
        elif step is Step.END:
            self._end(self.model.unload_timeout)
        elif step is Step.ABORT:
            self._end(min(self.model.unload_timeout, _ABORT_GRACE))
        elif step is Step.READY:
            self._until_ready.fire()
        elif step is Step.FAILED:
            self._until_ready.fire(error)
        elif step is Step.STOPPED:
            self._until_gone.fire()

    # -- starting -----------------------------------------------------------------

    def _begin(self) -> None:
        self._began = self._tools.reactor.seconds()
        self._tail = b""
        self._start = Deferred.fromCoroutine(self._bring_up())
        self._start.addCallbacks(self._came_up, self._did_not_come_up)

    async def _bring_up(self) -> None:
        model = self.model
        if not model.proxy:
            raise StartError("upstream proxy missing")
        if self._origin is None:
            raise StartError(f'invalid proxy URL "{model.proxy}": it must be an absolute http or https URL')
        if not model.words:
            raise StartError("unable to get sanitized command: empty command")
        if model.port is not None and model.port == self._origin.port:
            await self._check_port(self._origin)
        self._log.info("{model}: starting", model=model.id)
        self._log.debug("{model}: {cmd}", model=model.id, cmd=model.cmd)
        self._group = self._tools.processes.spawn(model.words, self._environment(), self)
        endpoint = model.check_endpoint.strip()
        if endpoint != "none":
            url = f"{self._origin}{self._origin.target(_path(endpoint).encode()).decode()}"
            await until_healthy(self._tools.reactor, self._tools.client, url, model.health_check_timeout)

    async def _check_port(self, origin: Origin) -> None:
        """Our port must be free before the spawn; afterwards nobody can tell whose server answers."""
        try:
            found = await Dialer(self._tools.reactor, origin, _PORT_CHECK).connect(Factory.forProtocol(Protocol))
        except ConnectFailed:
            return
        found.transport.abortConnection()
        holder = await self._tools.in_thread(holder_of, origin.port) or "another program"
        raise StartError(
            f"port {origin.port} is taken by {holder}; "
            "end it, or give startPort another value or the model a fixed port"
        )

    def _environment(self) -> dict[str, str]:
        environment = dict(self._tools.environment)
        for entry in self.model.env:
            name, _, value = entry.partition("=")
            if name:
                environment[name] = value
        return environment

    def _came_up(self, _: None) -> None:
        self._start = None
        took = self._tools.reactor.seconds() - self._began
        self._log.info(
            "{model}: ready after {took:.2f} s at {proxy}", model=self.model.id, took=took, proxy=self.model.proxy
        )
        self._tail = b""
        self._tell(self._machine.healthy, _shutting_down())

    def _did_not_come_up(self, failure: Failure) -> None:
        self._start = None
        if failure.check(CancelledError):
            return
        if failure.check(StartError):
            error = StartError(str(failure.value))
        else:
            self._log.failure("{model}: the start failed in an unforeseen way", failure, model=self.model.id)
            error = StartError(f"internal error during the start: {failure.getErrorMessage()}")
        self._log.error("{model}: did not start: {why}", model=self.model.id, why=str(error))
        self._tell(self._machine.failed, error)

    # -- ending ----------------------------------------------------------------------

    def _end(self, grace: float) -> None:
        start, self._start = self._start, None
        if start is not None:
            start.cancel()
        if self.upstream is not None:
            self.upstream.forget_idle()
        if self._group is None:
            self._tell(self._machine.gone, _shutting_down())
            return
        command = split(self.model.cmd_stop.replace("${PID}", str(self._group.pid)))
        self._group.stop(grace, command, self._environment())

    # -- what the process does ----------------------------------------------------------

    def process_output(self, data: bytes) -> None:
        """Output of the process: into its log, and while it starts into the text of a possible error."""
        self._tools.logs.model_output(self.model.id, data)
        if self._life.state is State.STARTING:
            self._tail = (self._tail + data)[-_TAIL:]

    def process_exited(self, exit: Exit) -> None:
        """The leader ended."""
        text = f"upstream command exited prematurely: {exit.words}"
        if self._life.state is State.STARTING:
            said = self._tail.decode("utf-8", "replace").strip()
            text = f"{text}; its last output: {said}" if said else text
            self._log.error("{model}: {why}", model=self.model.id, why=text)
        elif self._life.state is State.READY:
            self._log.warn(
                "{model} upstream process exited unexpectedly: {words}", model=self.model.id, words=exit.words
            )
        else:
            self._log.info("{model}: ended, {words}", model=self.model.id, words=exit.words)
        self._tell(self._machine.exited, StartError(text))

    def process_gone(self) -> None:
        """Nothing of the process group is left."""
        self._group = None
        if self.upstream is not None:
            self.upstream.server_gone()
        self._tell(self._machine.gone, _shutting_down())

    def close(self) -> None:
        """Close all connections to the server; calls under way fail."""
        if self.upstream is not None:
            self.upstream.close()


def _shutting_down() -> StartError:
    return StartError("lswap is shutting down")


class _Waiters:
    """Those who wait for one thing; each may be cancelled, which only ends its own wait."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Deferred[None]] = []

    def add(self) -> Deferred[None]:
        """One more."""
        waiter: Deferred[None] = Deferred(self._leave)
        self._waiting.append(waiter)
        return waiter

    def _leave(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def fire(self, error: StartError | None = None) -> None:
        """Let all go on, those excepted who come meanwhile."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.called:  # cancelled by one that went on before
                continue
            if error is None:
                waiter.callback(None)
            else:
                waiter.errback(Failure(StartError(str(error))))


def _origin(proxy: str) -> Origin | None:
    try:
        return Origin(proxy)
    except ValueError:
        return None


def _path(endpoint: str) -> str:
    """The path of a check endpoint, which may be written as a whole URL."""
    if "://" in endpoint:
        endpoint = "/" + endpoint.split("://", 1)[1].partition("/")[2]
    return endpoint if endpoint.startswith("/") else "/" + endpoint
