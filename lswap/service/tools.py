"""What the owners of models work with: one set for all of them, made by `lswap.app`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from treq.client import HTTPClient
from twisted.internet.defer import Deferred

from lswap.core.hooks import Doing
from lswap.net.process import Processes
from lswap.service.kv import KvCaches
from lswap.service.logs import Logs

__all__ = ["Tools"]


def _nobody(doing: Doing) -> None:
    """Nobody wants to know."""


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
    #: What the models have in common that keep their KV caches.
    kv: KvCaches
    #: Told when something begins and when it ends that goes on around a process (`lswap.service.doings`).
    told: Callable[[Doing], None] = _nobody
