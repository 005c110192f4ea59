"""Carries out the actions of life-cycle events and of sleep: HTTP calls and commands, in order, each bounded in time.

One runner for each model, and one thing at a time: what was cut short is over before the next thing begins. Its calls
are no requests of clients: they have no lease and leave no row. Read `lswap.service.stages` for when it runs,
`docs/hooks.md` for what users are told. Source: what lswap adds, section 1.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as TookTooLong

from lswap.core.hooks import HookEvent, Outcome, actions_of, filled, name_of_call, variables
from lswap.core.model import HookAction, HttpCall
from lswap.errors import HookError, LswapError, StartError
from lswap.net.command import Command
from lswap.net.errand import errand
from lswap.service.doings import Doings
from lswap.service.stages import Run
from lswap.service.tools import Tools
from lswap.service.waiters import Waiters

__all__ = ["HookRunner"]

#: Characters of a refusing answer that the log shows.
_SHOWN = 300
#: Bytes of a command's line that are held back until it is whole.
_LINE = 8192


class _Failed(LswapError):
    """An action came to nothing; the text says why. `said` is what a server said to that: for the log only."""

    def __init__(self, text: str, said: str = "") -> None:
        super().__init__(text)
        self.said = said


class HookRunner:
    """Carries out actions for one model."""

    def __init__(self, tools: Tools, doings: Doings) -> None:
        self._tools = tools
        self._doings = doings
        self._commands: set[Command] = set()
        self._until_quiet = Waiters()

    # -- what is asked for --------------------------------------------------------

    async def run(self, run: Run, event: HookEvent) -> None:
        """All actions of an event of the model's life.

        After one that failed the others go on, unless it says `abort`: then they are skipped.

        @raise HookError: one that says `abort` failed, at a start.
        """
        for action in actions_of(run.model, event):
            problem = await self.carry_out(run, event, action)
            if problem and action.on_error == "abort":
                if event in (HookEvent.WILL_START, HookEvent.STARTUP):
                    raise HookError(problem)
                return

    async def carry_out(self, run: Run, event: HookEvent, action: HookAction) -> str:
        """One action. Returns what went wrong, with event and action, or nothing."""
        await self.quiet()
        name = _name(run, action)
        self._doings.begin(run.model.id, event, name)
        work = Deferred.fromCoroutine(self._perform(run, event, action))
        work.addTimeout(action.timeout, self._tools.reactor)
        said = ""
        try:
            await work
        except CancelledError:
            self._doings.end(Outcome.FAILED, "cut short")
            raise
        except TookTooLong:
            outcome, problem = Outcome.TIMEOUT, f"not done within {action.timeout:g} s"
        except _Failed as failure:
            outcome, problem, said = Outcome.FAILED, str(failure), failure.said
        except Exception as failure:
            outcome, problem = Outcome.FAILED, str(failure) or type(failure).__name__
        else:
            self._doings.end(Outcome.OK)
            return ""
        self._doings.end(outcome, f"{problem}: {said}" if said else problem)
        await self.quiet()
        return f"{event.value}: {name}: {problem}"

    def quiet(self) -> Deferred[None]:
        """Fires when nothing is left of any command; at once if there is none. May be cancelled."""
        return self._until_quiet.add() if self._commands else succeed(None)

    def kill(self) -> None:
        """End by force whatever command runs."""
        for command in list(self._commands):
            command.kill()

    # -- calls and commands ---------------------------------------------------------

    async def _perform(self, run: Run, event: HookEvent, action: HookAction) -> None:
        for call in action.calls:
            await self._call(run, call)
        if action.words:
            await self._command(run, event, action)

    async def _call(self, run: Run, call: HttpCall) -> None:
        url = filled(call.url, run.pid)
        if url.startswith("/"):
            if run.origin is None:
                raise _Failed(f'the model\'s proxy URL "{run.model.proxy}" leads nowhere')
            url = f"{run.origin}{run.origin.target(url.encode()).decode()}"
        headers = [(name, filled(value, run.pid)) for name, value in call.headers]
        body = call.body.replace(b"${PID}", filled("${PID}", run.pid).encode()) if call.body is not None else None
        status, text = await errand(self._tools.client, call.method, url, headers, body)
        if status in call.expect if call.expect else 200 <= status < 300:
            return
        said = " ".join(text.decode("utf-8", "replace").split())[:_SHOWN]
        raise _Failed(f"status {status}", said)

    async def _command(self, run: Run, event: HookEvent, action: HookAction) -> None:
        words = [filled(word, run.pid) for word in action.words]
        port = run.origin.port if run.origin is not None else None
        environment = {**run.environment, **variables(event, run.model, run.cause, port, run.pid)}
        lines = _Lines(event, lambda data: self._tools.logs.model_output(run.model.id, data))

        def gone(command: Command) -> None:
            lines.finish()
            self._commands.discard(command)
            if not self._commands:
                self._until_quiet.fire()

        try:
            command = Command(self._tools.processes, words, environment, lines.feed, gone)
        except StartError as problem:
            # The text of the error has all the words.
            cause = problem.__cause__
            reason = (isinstance(cause, OSError) and cause.strerror) or "not a possible command"
            raise _Failed(f"it cannot be started: {reason}") from problem
        self._commands.add(command)
        exit = await command.over
        if exit.code != 0:
            raise _Failed(exit.words)


class _Lines:
    """Output of a command on its way to the model's log: each line gets the mark of the event."""

    def __init__(self, event: HookEvent, write: Callable[[bytes], None]) -> None:
        self._mark = f"[{event.value}] ".encode()
        self._write = write
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """More output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._write(b"".join(self._mark + line + b"\n" for line in lines))

    def finish(self) -> None:
        """There is no more."""
        if self._rest:
            self.feed(b"\n")


def _name(run: Run, action: HookAction) -> str:
    """The action for people. Arguments of commands are left out: they may be secret."""
    if action.words:
        return f"cmd {action.words[0]}"
    return filled(", ".join(name_of_call(call, run.model.proxy) for call in action.calls), run.pid)
