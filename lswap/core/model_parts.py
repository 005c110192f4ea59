"""The parts that models, peers and the whole configuration are made of: frozen values with their defaults.

A field's name in camelCase is its key in the file; the comment above it is its documentation (`docs/config.md` is made
from it). `Annotated` says how the value is read: `lswap.core.config.convert`. Read `lswap.core.model` next.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, field

__all__ = [
    "ApiKey",
    "Capabilities",
    "Compat",
    "Derived",
    "Duration",
    "Elsewhere",
    "Fair",
    "Filters",
    "Hiding",
    "HookAction",
    "Hooks",
    "HttpCall",
    "KvCache",
    "Limits",
    "Performance",
    "Secret",
    "Secrets",
    "Size",
    "Sleep",
    "Timeouts",
    "VllmSleep",
    "Wake",
    "Whole",
]

#: Metadata of a field that is no key of the file.
Derived = Meta(extra={"key": False})
#: A whole number; a fraction is cut, as the reference does.
Whole = Annotated[float, Meta(extra={"as": "whole"})]
#: Bytes, or a text like `20G` (powers of 1000).
Size = Annotated[int, Meta(extra={"as": "size"})]
#: Seconds, or a text like `7d` (`s m h d`).
Duration = Annotated[float, Meta(extra={"as": "duration"})]
#: Metadata of a key that its own module reads.
Elsewhere = Meta(extra={"as": "skip"})
#: A text that no message may show.
Secret = Annotated[str, Meta(extra={"secret": True})]
#: Texts that no message may show.
Secrets = Annotated[tuple[str, ...], Meta(extra={"secret": True})]


class Hiding:
    """Leaves secrets out of the representation, which ends in logs and tracebacks."""

    #: Fields that are not shown.
    hidden: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        fields = getattr(self, "__struct_fields__", ())
        shown = (f"{name}={'...' if name in self.hidden else repr(getattr(self, name))}" for name in fields)
        return f"{type(self).__name__}({', '.join(shown)})"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parts."""


class Timeouts(Part, frozen=True, kw_only=True):
    """Limits of one connection to a model server or peer, in seconds; each key has its default on its own."""

    #: To open a connection; 0 is no limit.
    connect: Whole = 30.0
    #: Between TCP keep-alive probes; 0 leaves it to the system.
    keepalive: Whole = 30.0
    #: From the end of the request to the head of the answer; 0 is no limit. Without a word, peers have 60.
    response_header: Whole = 0.0
    #: For the TLS handshake; 0 is no limit.
    tls_handshake: Whole = 10.0
    #: Read, and without effect: a body follows its head at once, a server is not asked for `100 Continue`.
    expect_continue: Whole = 1.0
    #: How long an unused connection is kept; 0 is no limit.
    idle_conn: Whole = 90.0


class Capabilities(Part, frozen=True, kw_only=True):
    """What a model can do, for the listing. All empty is "not configured"."""

    #: What goes in: `text`, `audio`, `image`.
    inputs: tuple[str, ...] | None = field(default=None, name="in")
    #: What comes out: `text`, `audio`, `image`.
    outputs: tuple[str, ...] | None = field(default=None, name="out")
    #: Whether it calls tools.
    tools: bool = False
    #: Whether it is a reranker.
    reranker: bool = False
    #: Tokens of context; 0 is unknown.
    context: int = 0

    @property
    def configured(self) -> bool:
        """Whether anything is told."""
        return bool(self.inputs or self.outputs or self.tools or self.reranker or self.context)


class Filters(Part, frozen=True, kw_only=True):
    """What is changed in the JSON body of a request: strip, then set, then set by ID."""

    #: Names to remove, as one text with commas; `model` is never removed. A name with dots is a nested value.
    strip_params: Annotated[tuple[str, ...], Meta(extra={"as": "names"})] = ()
    #: Values to set, whatever the client sent; `model` is left out. A name with dots is a nested value.
    set_params: dict[str, Any] = {}
    #: Values to set when the model was asked for by this name. Each name becomes an alias of the model.
    set_params_by_id: dict[str, dict[str, Any]] = field(default_factory=dict, name="setParamsByID")


class Compat(Part, frozen=True, kw_only=True):
    """Exceptions for odd servers."""

    #: Websockets neither start the model nor count as activity.
    ignore_websockets: bool = False


class HttpCall(Hiding, Part, frozen=True, kw_only=True):
    """One request of a hook. Redirects are not followed."""

    hidden: ClassVar[frozenset[str]] = frozenset({"headers", "body"})

    #: `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    method: str
    #: Absolute, or a path that is appended to the model's `proxy`. May hold `${PID}`.
    url: str
    #: Sent with the request. May hold `${PID}`.
    body: bytes | None = None
    #: Name and value, in order.
    headers: tuple[tuple[str, str], ...] = ()
    #: Statuses that are a success; empty is any 2xx.
    expect: tuple[int, ...] = ()


class HookAction(Part, frozen=True, kw_only=True):
    """One action of a life-cycle event: either calls or a command."""

    #: Requests, made in this order.
    calls: tuple[HttpCall, ...] = ()
    #: Words of a command; may hold `${PID}`. Empty if the action is made of calls.
    words: tuple[str, ...] = ()
    #: Seconds that the whole action may take.
    timeout: float = 30.0
    #: `continue` or `abort`: what a failure means for the event.
    on_error: Literal["continue", "abort"] = "continue"


class Hooks(Part, frozen=True, kw_only=True):
    """What runs at the four events of a model's life, global actions worked in (first at starts, last at stops)."""

    #: Before the server is spawned.
    on_will_start: tuple[HookAction, ...] = ()
    #: After the health check, before the first waiting request.
    on_startup: tuple[HookAction, ...] = ()
    #: After the last request, before the stop signal.
    on_will_stop: tuple[HookAction, ...] = ()
    #: After the whole process group is gone.
    on_stopped: tuple[HookAction, ...] = ()


class KvCache(Part, frozen=True, kw_only=True):
    """Prompt caches of a llama-server that survive a swap."""

    #: Save each slot before the stop and restore it after the next start.
    persist: bool = False
    #: Where the files are. Default: the state directory of the service.
    dir: str | None = None
    #: Bytes of all models that share the directory; the least recently used go first.
    max_bytes: Annotated[Size, Meta(ge=0)] = 10 * 10**9
    #: A slot with fewer tokens is not saved.
    min_tokens: Annotated[int, Meta(ge=0)] = 256
    #: Older files are removed.
    max_age: Annotated[Duration, Meta(ge=0)] = 7 * 86400.0
    #: `llama-server` where the command does not show that it is one (wrappers, containers).
    engine: Literal["llama-server"] | None = None


class VllmSleep(Part, frozen=True, kw_only=True):
    """vLLM's own sleep mode."""

    #: 1 keeps the weights in RAM, 2 drops them.
    level: Annotated[int, Meta(ge=1, le=2)] = 1


class Sleep(Part, frozen=True, kw_only=True):
    """Sleep instead of stop: either `vllm`, or both actions."""

    #: Use vLLM's calls.
    vllm: VllmSleep | None = None
    #: What puts the server to sleep.
    sleep: Annotated[tuple[HookAction, ...], Meta(extra={"as": "sleep"})] = ()
    #: What wakes it up.
    wake: Annotated[tuple[HookAction, ...], Meta(extra={"as": "sleep"})] = ()
    #: Stop it when it slept for so long; 0 is never.
    max_asleep: Annotated[Duration, Meta(ge=0)] = 0.0


class Wake(Hiding, Part, frozen=True, kw_only=True):
    """How a peer that sleeps is woken when it is asked for: by magic packets to `mac`, or by `command`."""

    hidden: ClassVar[frozenset[str]] = frozenset({"password"})

    #: Hardware address such as `ba:dc:0f:fe:e0:00`, or several with commas between them.
    mac: str = ""
    #: Where the packets go, `HOST` or `HOST:PORT`, or several with commas. Default: every network, port 9.
    broadcast: str = ""
    #: SecureOn password: six bytes as a hardware address is written, or four as an IPv4 address is.
    password: Secret = ""
    #: A program to run instead of sending packets; there is no shell.
    command: str = ""
    #: How long a request may wait for the peer.
    timeout: Annotated[Duration, Meta(gt=0)] = 60.0
    #: Path of the peer that answers 200 when it is ready.
    check_endpoint: str = "/wol-health"


class ApiKey(Hiding, Part, frozen=True, kw_only=True):
    """One key that clients may send, and what it allows."""

    hidden: ClassVar[frozenset[str]] = frozenset({"key"})

    #: The key itself, in place of `keyFile` and `env`.
    key: Secret = ""
    #: A file whose one line is the key.
    key_file: str | None = None
    #: Stands for the key in activity and metrics.
    name: str = ""
    #: Shell-style patterns for whole model IDs. Default: all models.
    models: tuple[str, ...] | None = None
    #: Rights: `infer`, `read`, `admin`.
    allow: tuple[str, ...] = ("infer", "read", "admin")
    #: Share of this key in the fair scheduler.
    weight: Annotated[float, Meta(gt=0)] = 1.0
    #: Requests at the same time; 0 is no limit.
    max_parallel: Annotated[int, Meta(ge=0)] = 0


class Limits(Part, frozen=True, kw_only=True):
    """Bounds of what clients may ask for; sizes in bytes, times in seconds."""

    #: Head of a request.
    request_head: Annotated[Size, Meta(ge=1024)] = 1 << 20
    #: Body of a request.
    request_body: Annotated[Size, Meta(ge=0)] = 512 << 20
    #: Until the head of a request is complete.
    head_timeout: Annotated[Duration, Meta(gt=0)] = 60.0
    #: How long a connection without a request is kept.
    idle_timeout: Annotated[Duration, Meta(gt=0)] = 120.0
    #: Waiting requests in the whole router.
    queue: Annotated[int, Meta(ge=0)] = 1000


class Performance(Part, frozen=True, kw_only=True):
    """The monitor of CPU, memory and GPUs."""

    #: Switch it off.
    disabled: bool = False
    #: Pause between two samples, in seconds; written like `5s` or `1m30s`, at least 5 s.
    every: Annotated[float, Meta(extra={"as": "go_duration"})] = 5.0


class Fair(Part, frozen=True, kw_only=True):
    """Settings of the fair scheduler."""

    #: Seconds that the oldest request of a waiting model waits before later ones may no longer pass it; 0 is no bound.
    max_wait: Annotated[Duration, Meta(ge=0)] = 0.0
    #: Seconds for which a model that became ready is not swapped out by that bound.
    min_loaded: Annotated[Duration, Meta(ge=0)] = 0.0
    #: Waiting requests; more are answered with 429.
    max_queue: Annotated[int, Meta(ge=0)] = 1000
    #: Share of each API key, by its name.
    weights: dict[str, float] = {}
