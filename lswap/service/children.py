"""One owner for each model: joins the machine of its life to its process, its hooks, its sleep and its connections.

Only this module starts and ends model servers. Others say what they want (`ensure_ready`, `rest`, `stop`, `shut`), in
any state and any number of times, and wait for the Deferred. Read `lswap.core.child` for the states,
`lswap.service.start` and `lswap.service.stages` for what is done in them, and `lswap.net.process` for what a process
group is; `lswap.service.router` says when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.child import Step
from lswap.core.command import split
from lswap.core.difference import same_process
from lswap.core.events import State
from lswap.core.hooks import Cause, Doing, HookEvent, Reason
from lswap.core.model import Hooks, Model
from lswap.errors import LswapError, StartError
from lswap.net.command import GRACE
from lswap.net.process import UNKILLABLE, Exit, Group
from lswap.net.upstream import Upstream
from lswap.service.doings import Doings
from lswap.service.driver import Driver, Given
from lswap.service.hooks import HookRunner
from lswap.service.kv import KvKeeper
from lswap.service.kv_run import KvRun
from lswap.service.sleep import ModelSleep
from lswap.service.stages import Run, Stages, Work
from lswap.service.start import check_before_spawn, environment_of, healthy, origin_of
from lswap.service.tools import Tools
from lswap.service.waiters import Waiters

__all__ = ["SHUTDOWN_HOOKS", "Child"]

#: Seconds that the process of a start that came to nothing may take to end.
_ABORT_GRACE = 5.0
#: Bytes of a failed start's last output that its error shows.
_TAIL = 800
#: Seconds that all hooks of one model may take once lswap ends.
SHUTDOWN_HOOKS = 30.0

_GONE = (State.STOPPED, State.SHUTDOWN)
_ABORTED = "aborted: the model was stopped while it was starting"


class Child:
    """The owner of one model's process."""

    _log = Logger()

    def __init__(self, model: Model, tools: Tools, on_state: Callable[[str, State], None]) -> None:
        """`on_state` is told of each new state, before anything is done about it."""
        self.model = model
        self._tools = tools
        self._on_state = on_state
        self._driver = Driver(model.id, self._state_changed, self._carry_out, self._tell_waiters)
        self._machine = self._driver.machine
        #: The life that goes on; None when nothing was begun, and from the end of the process on.
        self._run: Run | None = None
        self._group: Group | None = None
        self._wanted = Cause(Reason.REQUEST)
        self._began = 0.0
        self._tail = b""
        self._until_ready = Waiters()
        self._until_away = Waiters()
        self._until_gone = Waiters()
        self._until_idle = Waiters()
        self._until_shut = Waiters()
        self._until_lost = Waiters()
        #: What the process is to be when it starts next, if that is not `model`.
        self._next: Model | None = None
        self._doings = Doings(tools.reactor, tools.logs, tools.told)
        self._hooks = HookRunner(tools, self._doings)
        self._sleep = ModelSleep(tools, self._hooks, self._doings, lambda: self.stop(Cause(Reason.TTL)))
        self._kept = KvKeeper(tools.kv, self._doings)
        self._stages = Stages(tools.reactor, self._work())
        self._origin = origin_of(model)
        #: The connections to the model's server; None for a proxy URL that leads nowhere.
        self.upstream = self._connections()

    def _work(self) -> Mapping[HookEvent, Sequence[Work]]:
        """What is done at each event of a life, in this order; the next step of the life comes after all of it."""
        hooks, kept = self._hooks.run, self._kept
        return {
            HookEvent.WILL_START: (hooks, kept.open),
            HookEvent.STARTUP: (kept.restore, hooks),
            HookEvent.WILL_STOP: (kept.save, hooks),
            HookEvent.STOPPED: (kept.close, hooks),
        }

    @property
    def state(self) -> State:
        """Where the process is in its life; advice for listings, never a reason to act."""
        return self._driver.state

    @property
    def outdated(self) -> bool:
        """Whether the process is not what the configuration in force describes: it takes no new requests."""
        return self._next is not None

    @property
    def pid(self) -> int | None:
        """The leader of the process group, if there is one."""
        return self._group.pid if self._group is not None else None

    @property
    def doing(self) -> Doing | None:
        """The hook, save, restore, sleep or wake that goes on; advice for people."""
        return self._doings.current

    @property
    def kv(self) -> KvRun | None:
        """What keeps the KV cache of the process, if anything does."""
        return self._kept.current

    @property
    def end_takes(self) -> float:
        """Seconds that the end of the process may take when lswap ends, hooks and saves included."""
        hooked = self.model.hooks != Hooks() or self.kv is not None or self.doing is not None
        return self.model.unload_timeout + (SHUTDOWN_HOOKS + GRACE + UNKILLABLE if hooked else 0.0)

    # -- commands --------------------------------------------------------------

    def adopt(self, model: Model) -> bool:
        """Take another configuration of the model. True when the process that runs is not what it describes any more.

        The new one then comes into force with the next start; everything that does not touch the process at once.
        """
        self._sleep.adopt(model)
        if self._run is None:
            self._become(model)
        elif same_process(self.model, model):
            self.model = self._run.model = model
            self._next = None
            if self.upstream is not None:
                timeouts = model.timeouts
                self.upstream.set_timeouts(timeouts.connect, timeouts.response_header, timeouts.keepalive)
        else:
            self._next = model
        return self._next is not None

    def ensure_ready(self, reason: Reason = Reason.REQUEST) -> Deferred[None]:
        """Make the model ready. Fires when it is, fails with StartError when that start came to nothing.

        Cancelling only leaves the wait; the start goes on.
        """
        waiter = self._until_ready.add()
        self._wanted = Cause(reason)
        # Nothing but a shutdown lets a start fail before it begins.
        self._driver.tell(self._machine.start)
        return waiter

    def rest(self, cause: Cause) -> Deferred[None]:
        """Make room: put the model to sleep if it can sleep, else stop it. Fires when its room is free."""
        if self.outdated or not self._sleep.can(self.model):
            return self.stop(cause)
        waiter = self._until_away.add()
        if self._driver.state is State.READY:
            self._log.info("{model}: going to sleep ({why})", model=self.model.id, why=str(cause))
        self._driver.tell(self._machine.rest, Given(StartError(_ABORTED), cause))
        return waiter

    def stop(self, cause: Cause) -> Deferred[None]:
        """End the process, whatever it does. Fires when nothing of it is left; at once when there is none."""
        waiter = self.when_gone()
        if self._driver.state not in (*_GONE, State.STOPPING):
            self._log.info("{model}: stopping ({why})", model=self.model.id, why=str(cause))
        self._driver.tell(self._machine.stop, Given(StartError(_ABORTED), cause))
        return waiter

    def shut(self) -> Deferred[None]:
        """End the process for good. Fires when nothing of it is left, and all that follows is done."""
        waiter = self._until_shut.add()
        self._stages.limit(SHUTDOWN_HOOKS)
        self._driver.tell(self._machine.shut, Given(cause=Cause(Reason.SHUTDOWN)))
        return waiter

    def kill(self) -> None:
        """End everything by force, at once: lswap ends. From now on there are no hooks and no starts."""
        self._stages.limit(0)
        self._hooks.kill()
        self._kill_group()

    def _kill_group(self) -> None:
        if self._group is not None:
            self._group.kill()

    # -- questions ----------------------------------------------------------------

    def when_gone(self) -> Deferred[None]:
        """Fires when nothing is left of the process that there is now; at once when there is none. Asks for nothing."""
        waiter = self._until_gone.add()
        self._tell_waiters()
        return waiter

    def when_idle(self) -> Deferred[None]:
        """Fires when nothing is left of the process, and what follows its end is done as well. Asks for nothing."""
        waiter = self._until_idle.add()
        self._tell_waiters()
        return waiter

    def vanished(self, within: float) -> Deferred[bool]:
        """Whether the process is not there or on its way out, now or within so many seconds.

        For a connection that was refused. May be cancelled.
        """
        if self._driver.state is not State.READY:
            return succeed(True)
        waiter = self._until_lost.add()
        waiter.addTimeout(within, self._tools.reactor)

        def late(failure: Failure) -> bool:
            failure.trap(TookTooLong)
            return False

        return waiter.addCallbacks(lambda _: True, late)

    # -- the machine -------------------------------------------------------------

    def _tell_waiters(self) -> None:
        """Let those go on who wait for a state that is reached."""
        if self._driver.busy or self._driver.state not in _GONE:
            return
        self._until_gone.fire()
        if not self._driver.waits:
            self._until_idle.fire()
        if self._driver.state is State.SHUTDOWN:
            self._until_shut.fire()

    def _state_changed(self, before: State) -> None:
        try:
            self._on_state(self.model.id, self._driver.state)
        except Exception:
            self._log.failure("{model}: a new state could not be told", model=self.model.id)
        if before is State.READY:
            self._until_lost.fire()
        elif before is State.ASLEEP:
            self._sleep.over()

    def _carry_out(self, step: Step, given: Given) -> None:
        try:
            self._do(step, given)
        except Exception:
            self._log.failure("{model}: internal error at {step}", model=self.model.id, step=step)
            if step in (Step.END, Step.ABORT):
                self._kill_group()
            elif step in _WORK:
                self._driver.tell(self._machine.failed, Given(StartError("internal error")))

    def _become(self, model: Model) -> None:
        """Another configuration, while there is no process."""
        old, self.model, self._next = self.model, model, None
        if (old.proxy, old.timeouts) != (model.proxy, model.timeouts):
            if self.upstream is not None:
                self.upstream.forget_idle()
            self._origin = origin_of(model)
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

    def _do(self, step: Step, given: Given) -> None:
        if step is Step.READY:
            self._until_ready.fire()
        elif step is Step.FAILED:
            self._until_ready.fire(given.error)
        elif step is Step.AWAY:
            self._until_away.fire()
            if self._driver.state is State.ASLEEP:
                self._sleep.begun(self.model)
        elif step is Step.STOPPED:
            self._until_away.fire()
            self._until_gone.fire()
        elif step is Step.PREPARE:
            self._prepare()
        else:
            assert self._run is not None  # it was made by the first step of this life, and ends with the last one
            self._go_on(step, self._run, given.cause)

    def _go_on(self, step: Step, run: Run, cause: Cause | None) -> None:
        """The next step of a life that has begun."""
        if step in (Step.PART, Step.END, Step.ABORT) and not run.ending:
            run.ending = True
            run.cause = cause or run.cause
        if step is Step.SPAWN:
            self._driver.begin(self._bring_up(run), self._machine.healthy, self._start_failed)
        elif step is Step.WARM:
            self._driver.begin(self._warm(run), self._machine.done, self._start_failed)
        elif step is Step.SLEEP:
            run.cause = cause or run.cause
            self._driver.begin(
                self._sleep.fall_asleep(run), self._machine.done, partial(self._sleep_failed, HookEvent.SLEEP)
            )
        elif step is Step.WAKE:
            run.cause = self._wanted
            self._driver.begin(self._sleep.wake(run), self._machine.done, partial(self._sleep_failed, HookEvent.WAKE))
        elif step is Step.PART:
            self._driver.begin(self._stage(HookEvent.WILL_STOP, run), self._machine.done, self._stage_failed)
        elif step is Step.CLEAR:
            self._run = None
            self._driver.begin(self._stage(HookEvent.STOPPED, run), self._machine.done, self._stage_failed)
            if self._next is not None:
                self._become(self._next)
        elif step is Step.END:
            self._end(run, self.model.unload_timeout)
        elif step is Step.ABORT:
            self._end(run, min(self.model.unload_timeout, _ABORT_GRACE))

    async def _stage(self, event: HookEvent, run: Run) -> None:
        await self._stages.begin(event, run)

    # -- starting -----------------------------------------------------------------

    def _prepare(self) -> None:
        if self._next is not None:
            self._become(self._next)
        self._began = self._tools.reactor.seconds()
        self._tail = b""
        environment = environment_of(self.model, self._tools.environment)
        self._run = Run(self.model, self._origin, environment, self._wanted)
        self._driver.begin(self._stage(HookEvent.WILL_START, self._run), self._machine.done, self._start_failed)

    async def _bring_up(self, run: Run) -> None:
        await check_before_spawn(self._tools, run)
        self._log.info("{model}: starting", model=run.model.id)
        self._log.debug("{model}: {cmd}", model=run.model.id, cmd=run.model.cmd)
        self._group = self._tools.processes.spawn(run.words, run.environment, self)
        run.pid = self._group.pid
        await healthy(self._tools, run)

    async def _warm(self, run: Run) -> None:
        await self._stages.begin(HookEvent.STARTUP, run)
        took = self._tools.reactor.seconds() - self._began
        self._log.info(
            "{model}: ready after {took:.2f} s at {proxy}", model=run.model.id, took=took, proxy=run.model.proxy
        )
        self._tail = b""

    def _start_failed(self, failure: Failure) -> Given:
        error = failure.value
        if not isinstance(error, StartError):
            self._log.failure("{model}: the start failed in an unforeseen way", failure, model=self.model.id)
            error = StartError(f"internal error during the start: {failure.getErrorMessage()}")
        self._log.error("{model}: did not start: {why}", model=self.model.id, why=str(error))
        return Given(error, Cause(Reason.FAILED))

    # -- sleep ------------------------------------------------------------------------

    def _sleep_failed(self, what: HookEvent, failure: Failure) -> Given:
        if not failure.check(LswapError):
            self._log.failure(
                "{model}: {what} failed in an unforeseen way", failure, model=self.model.id, what=what.value
            )
        self._sleep.failed(self.model.id, what, failure.getErrorMessage())
        return Given(StartError(_ABORTED))

    # -- ending ----------------------------------------------------------------------

    def _stage_failed(self, failure: Failure) -> Given:
        """The hooks of an end broke; the end goes on."""
        self._log.failure("{model}: internal error in hooks", failure, model=self.model.id)
        return Given(StartError(_ABORTED))

    def _end(self, run: Run, grace: float) -> None:
        self._driver.drop()
        if self.upstream is not None:
            self.upstream.forget_idle()
        if self._group is None:
            self._tell_gone()
            return
        command = split(self.model.cmd_stop.replace("${PID}", str(self._group.pid)))
        self._group.stop(grace, command, run.environment)

    def _tell_gone(self) -> None:
        """Nothing is left, once a hook that was cut short is gone as well."""

        def tell(_: None) -> None:
            if self._group is None:
                self._driver.tell(self._machine.gone)

        self._hooks.quiet().addCallback(tell)

    # -- what the process does ----------------------------------------------------------

    def process_output(self, data: bytes) -> None:
        """Output of the process: into its log, and while it starts into the text of a possible error."""
        self._tools.logs.model_output(self.model.id, data)
        if self._driver.state is State.STARTING:
            self._tail = (self._tail + data)[-_TAIL:]

    def process_exited(self, exit: Exit) -> None:
        """The leader ended."""
        text = f"upstream command exited prematurely: {exit.words}"
        reason = Reason.EXIT
        if self._run is not None:
            self._run.pid = None
        if self._driver.state is State.STARTING:
            reason = Reason.FAILED
            said = self._tail.decode("utf-8", "replace").strip()
            text = f"{text}; its last output: {said}" if said else text
            self._log.error("{model}: {why}", model=self.model.id, why=text)
        elif self._driver.state in (State.READY, State.ASLEEP):
            self._log.warn(
                "{model} upstream process exited unexpectedly: {words}", model=self.model.id, words=exit.words
            )
        elif self._driver.state in (State.SLEEPING, State.WAKING):
            what = HookEvent.SLEEP if self._driver.state is State.SLEEPING else HookEvent.WAKE
            self._sleep.failed(self.model.id, what, text)
        else:
            self._log.info("{model}: ended, {words}", model=self.model.id, words=exit.words)
        # A server may die of a file that it restores: its next start does without, and nobody else has to know.
        spoilt = self.kv is not None and self.kv.restoring
        told = self._machine.spoilt if spoilt else self._machine.exited
        self._driver.tell(told, Given(StartError(text), Cause(reason)))

    def process_gone(self) -> None:
        """Nothing of the process group is left."""
        self._group = None
        if self.upstream is not None:
            self.upstream.server_gone()
        self._tell_gone()

    def close(self) -> None:
        """Close all connections to the server; calls under way fail."""
        if self.upstream is not None:
            self.upstream.close()


#: Steps that the machine waits for, other than an end.
_WORK = (Step.PREPARE, Step.SPAWN, Step.WARM, Step.SLEEP, Step.WAKE, Step.PART, Step.CLEAR)
