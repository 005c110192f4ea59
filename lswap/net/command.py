"""A command that does one thing and ends: its output is handed on, its exit awaited, and cut short when need be.

Unlike a model server nobody keeps it; read `lswap.net.process` for what is promised about its group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twisted.internet.defer import Deferred

from lswap.net.process import Exit, Processes

__all__ = ["GRACE", "Command"]

#: Seconds between SIGTERM and SIGKILL.
GRACE = 2.0


class Command:
    """One running command."""

    def __init__(
        self,
        processes: Processes,
        argv: Sequence[str],
        environment: Mapping[str, str],
        output: Callable[[bytes], object],
        gone: Callable[[Command], object],
    ) -> None:
        """Start it; `gone` is called once nothing is left of its group.

        @raise StartError: it cannot be started.
        """
        #: Fires when the program has ended, also if that left a child behind. Cancelling ends it: TERM, 2 s, KILL.
        self.over: Deferred[Exit] = Deferred(lambda _: self._group.stop(GRACE))
        self._output = output
        self._gone = gone
        self._group = processes.spawn(argv, environment, self)

    def kill(self) -> None:
        """End it by force, at once."""
        self._group.kill()

    def process_output(self, data: bytes) -> None:
        """See `Listener`."""
        self._output(data)

    def process_exited(self, exit: Exit) -> None:
        """See `Listener`."""
        if not self.over.called:
            self.over.callback(exit)

    def process_gone(self) -> None:
        """See `Listener`."""
        self._gone(self)
