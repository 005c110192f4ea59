"""Runs a service in the foreground, for commands that are not run by twistd: `lswap`, `lswap-wol`, `lswap-vllm`.

Has none of twistd's habits (pid file, daemon, umask). Touches the process-wide choice of the reactor and of the log;
`log_as_we_do` makes that of the log under twistd.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twisted.application.service import IService

__all__ = ["OBSERVER_FACTORY", "log_as_we_do", "run", "run_to_end", "with_reactor"]

#: Dotted name of what makes the log observer, in the form in which `twistd --logger` takes it.
OBSERVER_FACTORY = "lswap.service.logs.observer_factory"


def with_reactor(tls: bool, make: Callable[[Any], IService], name: str = "lswap") -> int:
    """Install lswap's reactor, make the service with it, and `run` that; OpenSSL is loaded only for `tls`."""
    from lswap.net.lean import without_openssl

    with without_openssl(not tls):
        reactor = _installed()
        service = make(reactor)
    return run(service, reactor, name)


def run_to_end(tls: bool, main: Callable[[Any], Coroutine[Any, Any, int]]) -> int:
    """Install lswap's reactor and turn it until `main` is done with it; the exit code that `main` gives."""
    from lswap.net.lean import without_openssl

    with without_openssl(not tls):
        reactor = _installed()
        work = main(reactor)
    codes: list[int] = []

    def begin() -> None:
        done = Deferred.fromCoroutine(work)
        done.addCallback(codes.append)
        done.addErrback(lambda failure: failure.printTraceback())
        done.addBoth(lambda _: reactor.stop() if reactor.running else None)

    from twisted.internet.defer import Deferred

    reactor.callWhenRunning(begin)
    reactor.run()
    return codes[0] if codes else 1


def _installed() -> Any:
    """Lswap's reactor, which becomes that of the process."""
    from lswap.net import reactor as ours

    ours.install()
    from twisted.internet import reactor

    return reactor


def run(service: IService, reactor: Any, name: str = "lswap") -> int:
    """Log to standard output, start the service, and turn the reactor until it stops; 1 if it cannot be started."""
    from twisted.logger import globalLogBeginner
    from twisted.python.reflect import namedAny

    from lswap.errors import LswapError

    globalLogBeginner.beginLoggingTo([namedAny(OBSERVER_FACTORY)()])
    try:
        service.privilegedStartService()
        service.startService()
    except LswapError as error:
        # Standard error proper: `sys.stderr` goes to the log by now.
        print(f"{name}: {str(error).removeprefix('lswap: ')}", file=sys.__stderr__)
        return 1
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return 0


def log_as_we_do(twistd: Any) -> None:
    """Let twistd log in our form, unless its own options, which these are, say how it should. None: there is no twistd.

    A daemon keeps twistd's log file.
    """
    if twistd is None or not (twistd.get("nodaemon") or twistd.get("debug")):
        return
    if twistd.get("logger") is None and twistd.get("logfile") in (None, "", "-") and not twistd.get("syslog"):
        # The name, not the object: twistd looks it up after us.
        twistd["logger"] = OBSERVER_FACTORY
