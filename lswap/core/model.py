"""The configuration as frozen values: defaults filled in, names resolved, numbers in seconds.

Made by `lswap.core.config`; nothing else builds them but tests. A field's name in camelCase is its key in the file,
unless it is marked as derived; the comment above it is its documentation (`docs/config.md` is made from it).
Read `lswap.core.model_parts` next.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import force_setattr

from lswap.core import command
from lswap.core.matrix import Matrix
from lswap.core.model_parts import (
    ApiKey,
    Capabilities,
    Compat,
    Derived,
    Elsewhere,
    Fair,
    Filters,
    Hiding,
    HookAction,
    Hooks,
    HttpCall,
    KvCache,
    Limits,
    Performance,
    Secret,
    Secrets,
    Size,
    Sleep,
    Timeouts,
    VllmSleep,
    Wake,
    Whole,
)

__all__ = [
    "DEFAULT_GROUP",
    "ApiKey",
    "Capabilities",
    "Compat",
    "Config",
    "Fair",
    "Filters",
    "Group",
    "HookAction",
    "Hooks",
    "HttpCall",
    "KvCache",
    "Limits",
    "Model",
    "Peer",
    "Performance",
    "Profile",
    "Selector",
    "Sleep",
    "Timeouts",
    "VllmSleep",
    "Wake",
]

#: The group of all models that are in no other one.
DEFAULT_GROUP = "(default)"
#: What `upstream.ignorePaths` is when it is absent or empty.
DEFAULT_IGNORE_PATH = r".*\.(js|json|css|png|gif|jpg|jpeg|ico|txt)\Z"


class Model(Hiding, msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of `models:`, complete."""

    hidden: ClassVar[frozenset[str]] = frozenset({"env"})

    id: Annotated[str, Derived]
    #: The command that starts the server; there is no shell. Comment lines are dropped, `${PORT}` takes a free number.
    cmd: str = ""
    #: The command that stops it; may hold `${PID}`. Empty is SIGTERM to the process group.
    cmd_stop: str = ""
    #: Base URL of the server; `http` or `https`. Default: `http://localhost:${PORT}`.
    proxy: str = ""
    #: Path that is polled until it answers 200; `none` is ready at once.
    check_endpoint: str = "/health"
    #: Seconds that a start may take, at least 1. Default: the global value.
    health_check_timeout: Whole = 120.0
    #: Seconds of idleness before the model is unloaded; 0 is never, -1 (default) the global value.
    ttl: Whole = 0.0
    #: Seconds between the polite and the forced end of the process; 0 (default) is the global value.
    unload_timeout: Whole = 10.0
    #: Environment of the process, a list of `NAME=value`; the last of equal names wins.
    env: Secrets = ()
    #: Other names that clients may use. The keys of `filters.setParamsByID` are added.
    aliases: tuple[str, ...] = ()
    #: Name that the server is asked for instead of the one the client used; empty for none.
    use_model_name: str = ""
    #: Not in listings, but usable.
    unlisted: bool = False
    #: Shown in listings.
    name: str = ""
    #: Shown in listings.
    description: str = ""
    #: Requests at the same time, waiting ones included; 0 is no limit of its own.
    concurrency_limit: int = 0
    #: Changes of request bodies.
    filters: Annotated[Filters, Elsewhere] = Filters()
    #: Copied to the listing as it is; any values.
    metadata: dict[str, Any] = {}
    #: Tell streaming clients that the model is loading. Default: the global value.
    send_loading_state: bool = False
    #: Limits of connections to the server.
    timeouts: Annotated[Timeouts, Elsewhere] = Timeouts()
    #: Exceptions for odd servers.
    compat: Compat = Compat()
    #: What the model can do, for the listing.
    capabilities: Capabilities = Capabilities()
    #: Prompt caches that survive a swap (llama-server).
    kv_cache: KvCache = KvCache()
    #: Sleep instead of stop.
    sleep: Sleep | None = None
    #: Never unload it to make room for another; unloading by hand works.
    keep: bool = False
    #: What the model takes of each of `budgets`, or `auto` to learn it.
    memory: Annotated[dict[str, int], Meta(extra={"as": "memory"})] = {}
    #: Whether `memory` is `auto`.
    memory_auto: Annotated[bool, Derived] = False
    #: Actions at the events of the model's life, the global ones worked in.
    hooks: Annotated[Hooks, Derived] = Hooks()
    #: The number that `${PORT}` got, if `cmd` uses it.
    port: Annotated[int | None, Derived] = None
    #: The words of `cmd`, always made from it; none for a command that cannot be started.
    words: Annotated[tuple[str, ...], Derived] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "words", tuple(command.split(self.cmd)))


class Group(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Models that are evicted by common rules."""

    id: Annotated[str, Derived]
    #: One member at a time.
    swap: bool = True
    #: Loading a member unloads the models of other groups, unless those are persistent.
    exclusive: bool = True
    #: Other groups do not unload the members.
    persistent: bool = False
    #: Models, by ID or alias.
    members: tuple[str, ...] = ()


class Peer(Hiding, msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Another server whose models are offered under `<peer>/<model>`."""

    hidden: ClassVar[frozenset[str]] = frozenset({"api_key"})

    id: Annotated[str, Derived]
    #: Base URL; required.
    proxy: str = ""
    #: Names that the peer knows; required.
    models: tuple[str, ...] = ()
    #: Sent to the peer in place of the client's key.
    api_key: Secret = ""
    #: Changes of request bodies.
    filters: Annotated[Filters, Elsewhere] = Filters()
    #: Limits of connections to the peer.
    timeouts: Annotated[Timeouts, Elsewhere] = Timeouts(response_header=60.0)
    #: For a peer on a machine that sleeps.
    wake: Annotated[Wake | None, Elsewhere] = None


class Selector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A name that stands for one of several targets."""

    id: Annotated[str, Derived]
    #: `pin` (the first), `warm` (the first that is ready) or `spillover` (share the load); required.
    strategy: str
    #: Models, aliases and peers' models, in order; required.
    targets: tuple[str, ...]
    #: `settings.spillover`: requests that a target takes before the next one is woken.
    spillover: Annotated[int, Derived] = 1
    #: Shown in listings.
    name: str = ""
    #: Shown in listings.
    description: str = ""
    #: Not in listings, but usable.
    unlisted: bool = False
    #: Copied to the listing as it is; any values.
    metadata: dict[str, Any] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A set of names that can be switched on together."""

    id: Annotated[str, Derived]
    #: Shown in listings.
    description: str = ""
    #: Requested name to model, peer's model or selector; an empty target disables the name. Required.
    pins: dict[str, str] = {}


class Config(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole configuration."""

    #: By ID, in byte order of the IDs.
    models: dict[str, Model] = {}
    #: By ID; the group `(default)` has all models of no other group. Empty with a matrix.
    groups: dict[str, Group] = {}
    #: The sets of models that may run together, instead of groups.
    matrix: Matrix | None = None
    #: Which rules decide what is unloaded.
    router: Literal["group", "matrix", "budget"] = "group"
    #: The order of waiting requests.
    scheduler: Literal["fifo", "fair"] = "fifo"
    fair: Fair = Fair()
    #: Model ID to priority in the queue; higher goes first, 0 where unnamed.
    priorities: dict[str, int] = {}
    peers: dict[str, Peer] = {}
    selectors: dict[str, Selector] = {}
    profiles: dict[str, Profile] = {}
    api_keys: tuple[ApiKey, ...] = ()
    limits: Limits = Limits()
    #: Model IDs to load at start, in order.
    preload: tuple[str, ...] = ()
    #: Paths below `/upstream/<model>` that never start a model; to be searched in the decoded path.
    ignore_paths: tuple[re.Pattern[str], ...] = (re.compile(DEFAULT_IGNORE_PATH),)
    #: The first number that `${PORT}` may get.
    start_port: int = 5800
    global_ttl: float = field(default=0.0, name="globalTTL")
    unload_timeout: float = 10.0
    health_check_timeout: float = 120.0
    send_loading_state: bool = False
    include_aliases_in_list: bool = False
    #: `debug`, `info`, `warn` or `error`.
    log_level: str = "info"
    #: `proxy`, `upstream`, `both` or `none`: what goes to standard output.
    log_to_stdout: str = "proxy"
    #: A name of a time format, in lower case; empty for none.
    log_time_format: str = ""
    #: `text`, or `json`: how lswap's own lines look.
    log_format: str = "text"
    #: Rows of activity kept in memory.
    metrics_max_in_memory: int = 1000
    #: MiB of captured requests and responses; 0 is off.
    capture_buffer: int = 5
    #: File of the store; None for memory.
    store_path: str | None = None
    #: Request headers that name a session, in order of preference.
    session_headers: tuple[str, ...] = ("X-Session-ID", "X-Litellm-Session-Id")
    performance: Performance = Performance()
    #: Whether models are unloaded for others and by their TTL; false is manual mode.
    auto_unload: bool = True
    #: Model that is loaded whenever nothing runs or waits.
    fallback: str | None = None
    #: Seconds that nothing ran before the fallback is loaded.
    fallback_delay: float = 10.0
    #: Name to bytes, for the router `budget`.
    budgets: Annotated[dict[str, Size], Derived] = {}
    #: Every local name to its model's ID: always made from `models`.
    names: dict[str, str] = {}
    #: Every name of a peer's model that is not ambiguous to (peer, model): always made from `peers`.
    peer_names: dict[str, tuple[str, str]] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "names", _local_names(self.models))
        force_setattr(self, "peer_names", _peer_names(self.peers))

    def resolve(self, name: str) -> str | None:
        """The ID of the local model that a client means by `name`: an ID, else an alias; None for neither."""
        return self.names.get(name)

    def resolve_peer(self, name: str) -> tuple[str, str] | None:
        """Peer and model that a client means by `name`: qualified, else bare where only one peer has it."""
        return self.peer_names.get(name)


def _local_names(models: dict[str, Model]) -> dict[str, str]:
    names = {alias: model.id for model in models.values() for alias in reversed(model.aliases)}
    names.update((name, name) for name in models)
    return names


def _peer_names(peers: dict[str, Peer]) -> dict[str, tuple[str, str]]:
    bare: dict[str, tuple[str, str] | None] = {}
    qualified: dict[str, tuple[str, str]] = {}
    for peer in peers.values():
        for name in dict.fromkeys(peer.models):
            bare[name] = None if name in bare else (peer.id, name)
            qualified[f"{peer.id}/{name}"] = (peer.id, name)
    return {name: found for name, found in bare.items() if found is not None} | qualified
