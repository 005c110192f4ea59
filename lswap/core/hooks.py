"""What a hook is told, and what is told of a hook: events, reasons, environment, names for people.

Decides texts only. `lswap.core.config.hooks` reads the actions, `lswap.service.hooks` carries them out,
`lswap.core.child` says when. Source: what lswap adds, sections 1 and 3.
"""

from __future__ import annotations

import enum
from urllib.parse import urlsplit

import msgspec

from lswap.core.model import HookAction, HttpCall, Model

__all__ = ["Cause", "Doing", "HookEvent", "Outcome", "Reason", "actions_of", "filled", "name_of_call", "variables"]


class HookEvent(enum.Enum):
    """When actions run; the values are the words of the configuration."""

    WILL_START = "on_will_start"
    STARTUP = "on_startup"
    WILL_STOP = "on_will_stop"
    STOPPED = "on_stopped"
    SLEEP = "sleep"
    WAKE = "wake"


class Reason(enum.Enum):
    """Why a model starts or stops; the values are those of `LSWAP_REASON`."""

    REQUEST = "request"
    PRELOAD = "preload"
    SWAP = "swap"
    TTL = "ttl"
    UNLOAD = "unload"
    RELOAD = "reload"
    SHUTDOWN = "shutdown"
    EXIT = "exit"
    FAILED = "failed"


class Cause(msgspec.Struct, frozen=True):
    """Why, and for whom."""

    reason: Reason
    #: The model that it makes room for, if that is known.
    other: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}, to make room for {self.other}" if self.other else self.reason.value


class Outcome(enum.Enum):
    """What became of an action."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"


class Doing(msgspec.Struct, frozen=True):
    """One thing that goes on, or went on, around the process of a model."""

    model: str
    #: The value of a `HookEvent`.
    event: str
    #: What it is, for people; without what may be secret.
    action: str
    #: When it began, on the reactor's clock.
    since: float
    #: How long it took, and what became of it; None while it goes on.
    seconds: float | None = None
    outcome: Outcome | None = None
    #: What went wrong.
    detail: str = ""


def actions_of(model: Model, event: HookEvent) -> tuple[HookAction, ...]:
    """The actions of one of the four events of a life."""
    found: tuple[HookAction, ...] = getattr(model.hooks, event.value)
    return found


def filled(text: str, pid: int | None) -> str:
    """`text` with the number of the process, which is known when it runs; empty when there is none."""
    return text.replace("${PID}", "" if pid is None else str(pid))


def variables(event: HookEvent, model: Model, cause: Cause, port: int | None, pid: int | None) -> dict[str, str]:
    """What the environment of a command has beside the model's own."""
    return {
        "LSWAP_EVENT": event.value,
        "LSWAP_MODEL": model.id,
        "LSWAP_PORT": "" if port is None else str(port),
        "LSWAP_PROXY": model.proxy,
        "LSWAP_PID": "" if pid is None else str(pid),
        "LSWAP_REASON": cause.reason.value,
        "LSWAP_OTHER": cause.other,
    }


def name_of_call(call: HttpCall, proxy: str) -> str:
    """A call for people. Of a URL that leads elsewhere only the origin: webhooks have their secret in the path."""
    parts = urlsplit(call.url)
    own = urlsplit(proxy)
    host = parts.netloc.rpartition("@")[2]
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if call.url.startswith("/") or (parts.scheme, host) == (own.scheme, own.netloc.rpartition("@")[2]):
        return f"{call.method} {target}"
    return f"{call.method} {parts.scheme}://{host}"
