"""`lswap-vllm sleep`, `status`, `stop` and `serve --dry-run`: ask or tell a server something, and end.

Each prints for people and gives the exit code. Source: utilities reference, sections 2.5 and 2.7.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from typing import Any

from treq.client import HTTPClient
from twisted.internet.task import deferLater

from lswap.errors import LswapError
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.group import Groups, KernelGroups
from lswap.net.upstream import Upstream
from lswap.vllm.daemon import end_group
from lswap.vllm.engine import Engine
from lswap.vllm.options import VllmSettings
from lswap.vllm.state import ServerState, folder_for

__all__ = ["dry_run", "sleep", "status", "stop"]

#: Seconds that a command waits for a wrapper that is starting or waking the server.
_TURN_LIMIT = 10.0
#: Seconds to connect.
_CONNECT_LIMIT = 10.0


class _Case:
    """One server, as a command sees it."""

    def __init__(self, reactor: Any, settings: VllmSettings) -> None:
        """@raise StateError: there is no place for the files."""
        self.pool = Upstream(reactor, Origin(settings.url), _CONNECT_LIMIT)
        client = HTTPClient(UpstreamAgent(lambda _: self.pool))
        self.engine = Engine(reactor, client, settings.url, settings.health_path)
        self.state = ServerState(folder_for(settings.state_dir, os.environ), settings.url)


def _tell(text: str) -> None:
    stamp = time.strftime("%Y/%m/%d %H:%M:%S")
    print(f"{stamp} {text}", file=sys.stderr, flush=True)  # noqa: T201


async def sleep(reactor: Any, settings: VllmSettings) -> int:
    """Put the server to sleep, then end its wrapper; 1 if either cannot be done, and the wrapper is left alone then."""
    case = _Case(reactor, settings)
    try:
        if await case.engine.sleeps():
            _tell("the server sleeps already")
        else:
            await case.engine.sleep(settings.sleep_level)
            case.state.level = settings.sleep_level
    except LswapError as problem:
        _tell(f"the server was not put to sleep: {problem}")
        return 1
    finally:
        case.pool.close()
    if settings.stop_pid > 0:
        try:
            os.kill(settings.stop_pid, signal.SIGTERM)
        except OSError as problem:
            _tell(f"SIGTERM to process {settings.stop_pid}: {problem.strerror}")
            return 1
    return 0


async def status(reactor: Any, settings: VllmSettings) -> int:
    """Print what is known; 0 if the server answers."""
    case = _Case(reactor, settings)
    problem = await case.engine.health()
    sleeps = None if problem else await case.engine.sleeps()
    case.pool.close()
    record = case.state.record()
    daemon = "none is known"
    if record is not None:
        daemon = f"process {record.pid}{'' if record.alive else ', which has ended'}: {shlex.join(record.words)}"
    rows = {
        "url": settings.url,
        "health": problem or "ready",
        "sleeps": {True: "yes", False: "no", None: "it does not say"}[sleeps],
        "daemon": daemon,
        "log": str(case.state.log),
    }
    for name, value in rows.items():
        print(f"{name + ':':<8} {value}")  # noqa: T201
    return 1 if problem else 0


async def stop(reactor: Any, settings: VllmSettings, groups: Groups | None = None) -> int:
    """End the daemon that was started here, with all of its process group; 0 if none is left."""
    case = _Case(reactor, settings)
    end = reactor.seconds() + _TURN_LIMIT
    while not case.state.acting.take():
        if reactor.seconds() >= end:
            _tell("a wrapper is starting or waking the server: end that first")
            case.pool.close()
            return 1
        await deferLater(reactor, 0.05, lambda: None)
    try:
        record = case.state.record()
        if record is None or not record.alive:
            case.state.forget()
            if await case.engine.health():
                _tell("no daemon of ours runs")
                return 0
            _tell(f"{settings.url} answers, but that server was not started here: end it where it was started")
            return 1
        if not await end_group(reactor, groups or KernelGroups(), record.pid, settings.grace):
            _tell(f"process {record.pid} cannot be ended")
            return 1
        case.state.forget()
        _tell(f"process {record.pid} has ended")
        return 0
    finally:
        case.pool.close()
        case.state.acting.release()


async def dry_run(reactor: Any, settings: VllmSettings) -> int:
    """Print what `serve` would do now, and do nothing."""
    case = _Case(reactor, settings)
    problem = await case.engine.health()
    sleeps = None if problem else await case.engine.sleeps()
    case.pool.close()
    record = case.state.record()
    if not problem:
        steps = ["use the server as it is" if sleeps is False else "wake the server"]
    else:
        steps = [f"ask the server to wake up (its health check now: {problem})", "if it cannot:"]
        if record is not None and record.alive:
            steps.append(f"  wait for process {record.pid}, which was started before")
        else:
            steps.append(f"  start {shlex.join(settings.daemon)}")
            steps.append(f"  with its output in {case.state.log}")
        steps.append(f"wait up to {settings.wait_timeout:g} s until {settings.url}{settings.health_path} answers 200")
    steps.append(f"listen on {settings.listen}")
    steps.append(f"at SIGTERM: let requests end, then put the server to sleep at level {settings.sleep_level}")
    print("\n".join(steps))  # noqa: T201
    return 0
