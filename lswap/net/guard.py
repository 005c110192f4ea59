"""The guard: a tiny shell that ends what lswap started, should lswap end without doing so itself.

Touches one process, in a session of its own, and one pipe to it. Decides nothing: it is told of each process group as
it begins and ends. When the pipe closes without a farewell (lswap was killed, or crashed), it sends the groups that it
knows SIGTERM and, a second later, SIGKILL.
Read `lswap.net.process` next: it says when groups begin and end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.net.launcher import Launcher
from lswap.net.leader import Reactor

__all__ = ["SCRIPT", "Guard"]

#: One line an order; its first word begins with the order, further words are left for later orders.
#: `kill -s NAME -- -GROUP` is the one form that dash obeys. So do the other shells; BusyBox with a complaint, unheard.
SCRIPT = """\
trap '' TERM HUP INT QUIT
groups=' '
while read -r order more; do
  case $order in
    bye) exit 0 ;;
    +*) groups="$groups${order#+} " ;;
    -*) case $groups in *" ${order#-} "*)
          groups="${groups%% ${order#-} *} ${groups#* ${order#-} }" ;;
        esac ;;
  esac
done
[ "$groups" = ' ' ] && exit 0
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 1
for group in $groups; do kill -s KILL -- "-$group"; done
"""

#: Seconds that lie at least between two starts of the guard, in case something kills each one.
_RESTART_PAUSE = 1.0


class Guard:
    """Keeps one guard process alive and informed, from `start` to `stop`.

    Groups may begin and end before `start`, and while the guard is being replaced: a new one is told of all that live.
    """

    log = Logger()

    def __init__(self, reactor: Reactor, launcher: Launcher | None = None) -> None:
        self._reactor = reactor
        self._launcher = launcher
        self._groups: dict[int, None] = {}
        self._wanted = False
        self._started = 0.0
        self._restart: IDelayedCall | None = None
        self._process: _Process | None = None
        #: The writing end of the pipe; -1 while there is no guard.
        self._pipe = -1

    def start(self) -> None:
        """Start the guard. To be called after daemonising, from the reactor's thread. Without effect while it runs."""
        if not self._wanted:
            self._wanted = True
            self._begin()

    def began(self, pgid: int) -> None:
        """A group was born. To be called before anything else can happen to it."""
        if pgid <= 1:
            raise ValueError(f"no process group of a child: {pgid}")
        self._groups[pgid] = None
        self._tell(f"+{pgid}\n")

    def ended(self, pgid: int) -> None:
        """A group is gone; from now on its number may be somebody else's. A group that is unknown is no error."""
        if pgid in self._groups:
            del self._groups[pgid]
            self._tell(f"-{pgid}\n")

    def stop(self) -> None:
        """Dismiss the guard; it exits soon. If groups are left that should not be, it ends them first."""
        self._wanted = False
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if not self._groups:
            self._tell("bye\n")
        self._close()

    def _begin(self) -> None:
        self._restart = None
        self._started = self._reactor.seconds()
        try:
            self._spawn()
        except (OSError, ValueError) as problem:
            self.log.error(
                "guard could not be started: {problem}; models would outlive a killed lswap; trying again in {pause} s",
                problem=problem,
                pause=_RESTART_PAUSE,
            )
            self._begin_later()
            return
        for group in self._groups:
            self._tell(f"+{group}\n")

    def _spawn(self) -> None:
        launcher = self._launcher or Launcher.of_this_system()
        words = launcher.words(["/bin/sh", "-c", SCRIPT, "lswap-guard"], survives_us=True)
        # Both ends are close-on-exec: no model may hold the pipe open after lswap is gone.
        theirs, ours = os.pipe()
        try:
            os.set_blocking(ours, False)
            null = os.open(os.devnull, os.O_RDWR)
            try:
                process = _Process(self._exited)
                self._process, self._pipe = process, ours
                self._reactor.spawnProcess(
                    process,
                    words[0],
                    words,
                    # It needs nothing but `sleep`.
                    {"PATH": os.environ.get("PATH", os.defpath)},
                    childFDs={0: theirs, 1: null, 2: null},
                )
            finally:
                os.close(null)
        except BaseException:
            self._process = None
            self._pipe = ours
            self._close()
            raise
        finally:
            os.close(theirs)

    def _exited(self, process: _Process) -> None:
        if process is not self._process:
            return
        self._process = None
        self._close()
        if self._wanted:
            self.log.warn("guard ended unexpectedly; starting another one")
            self._begin_later()

    def _begin_later(self) -> None:
        waited = self._reactor.seconds() - self._started
        self._restart = self._reactor.callLater(max(0.0, _RESTART_PAUSE - waited), self._begin)

    def _tell(self, line: str) -> None:
        if self._pipe < 0:
            return
        try:
            # Shorter than a pipe writes in one piece, and there is room for thousands.
            os.write(self._pipe, line.encode("ascii"))
        except BlockingIOError:
            # It has stopped reading. Its successor will be told everything.
            if self._process is not None:
                self._process.kill()
            self._close()
        except OSError:
            # It is gone; its end will be noticed in a moment.
            pass

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class _Process(ProcessProtocol):
    def __init__(self, exited: Callable[[_Process], object]) -> None:
        self._exited = exited

    def kill(self) -> None:
        try:
            if self.transport is not None:
                self.transport.signalProcess(signal.SIGKILL)
        except (ProcessExitedAlready, OSError):
            pass

    def processExited(self, reason: Failure) -> None:
        self._exited(self)
