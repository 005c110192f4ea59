"""What the file looks like where it differs from the values that come out: sections that only group keys.

Together with `lswap.core.model` these structs hold every key; the walker, the warnings about unknown keys, the
documentation and the JSON schema are all made from them. A field's name in camelCase is its key in the file.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from lswap.core.model import Group, Limits, Model, Peer, Performance, Profile, Selector
from lswap.core.model_parts import Duration, Elsewhere, Fair, Size, Whole

__all__ = [
    "EVENTS",
    "MACROS",
    "Activity",
    "Document",
    "EventHooks",
    "Fifo",
    "HooksSection",
    "MatrixSection",
    "Router",
    "RouterSettings",
    "Routing",
    "Scheduler",
    "SchedulerSettings",
    "SelectorSettings",
    "Startup",
    "Store",
    "Ui",
    "Upstream",
]

#: The events of a model's life that hooks can be written for.
EVENTS = ("on_will_start", "on_startup", "on_will_stop", "on_stopped")
#: The key that holds macros, global and of a model.
MACROS = "macros"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all sections."""


class Store(Section, frozen=True, kw_only=True):
    """Where activity is kept."""

    #: File of the SQLite store; its directory must be writable. Required.
    path: str | None = None


class Activity(Section, frozen=True, kw_only=True):
    """The activity page."""

    #: Request headers that name a session, in order of preference; an empty list switches the lookup off.
    session_id: tuple[str, ...] = field(default=("X-Session-ID", "X-Litellm-Session-Id"), name="session_id")


class Ui(Section, frozen=True, kw_only=True):
    """The web page."""

    activity: Activity = Activity()


class Upstream(Section, frozen=True, kw_only=True):
    """The route `/upstream/<model>/...`."""

    #: Regular expressions (RE2 syntax) for paths that never start a model. Empty is the default.
    ignore_paths: tuple[str, ...] = ()


class Startup(Section, frozen=True, kw_only=True):
    """What happens once at the start."""

    #: Models or aliases to load at start and after a reload, in order.
    preload: tuple[str, ...] = ()


class EventHooks(Section, frozen=True, kw_only=True, rename=None):
    """Actions for all models, at each event: one action or a list."""

    #: Before the server is spawned.
    on_will_start: Annotated[Any, Elsewhere] = None
    #: After the health check, before the first waiting request.
    on_startup: Annotated[Any, Elsewhere] = None
    #: After the last request, before the stop signal.
    on_will_stop: Annotated[Any, Elsewhere] = None
    #: After the whole process group is gone.
    on_stopped: Annotated[Any, Elsewhere] = None


class HooksSection(Section, frozen=True, kw_only=True):
    """Things to do at certain moments."""

    on_startup: Annotated[Startup, Elsewhere] = field(default=Startup(), name="on_startup")
    models: Annotated[EventHooks, Elsewhere] = EventHooks()


class MatrixSection(Section, frozen=True, kw_only=True):
    """Which models may run together, as expressions."""

    #: Short name to model ID.
    vars: dict[str, str] = {}
    #: Model ID or short name to the cost of evicting it, at least 1; 1 where unnamed.
    evict_costs: dict[str, int] = field(default_factory=dict, name="evict_costs")
    #: Name to expression: `a & b` together, `a | b` one of them, `+name` another set, parentheses. Required.
    sets: dict[str, str] = {}


class RouterSettings(Section, frozen=True, kw_only=True):
    """Settings of the routers."""

    groups: Annotated[dict[str, Group], Elsewhere] = {}
    matrix: Annotated[MatrixSection | None, Elsewhere] = None


class Router(Section, frozen=True, kw_only=True):
    """What is unloaded for what."""

    #: `group`, `matrix` or `budget`.
    use: str = ""
    settings: Annotated[RouterSettings, Elsewhere] = RouterSettings()


class Fifo(Section, frozen=True, kw_only=True):
    """First come, first served."""

    #: Model ID or alias to priority; higher goes first, 0 where unnamed.
    priority: dict[str, int] = {}


class SchedulerSettings(Section, frozen=True, kw_only=True):
    """Settings of the schedulers."""

    fifo: Fifo = Fifo()
    fair: Fair = Fair()


class Scheduler(Section, frozen=True, kw_only=True):
    """Who is served next."""

    #: `fifo` or `fair`.
    use: str = ""
    settings: SchedulerSettings = SchedulerSettings()


class Routing(Section, frozen=True, kw_only=True):
    """Which model is unloaded for which, and who waits for whom."""

    router: Annotated[Router, Elsewhere] = Router()
    scheduler: Scheduler = Scheduler()


class SelectorSettings(Section, frozen=True, kw_only=True):
    """Settings of a selector."""

    #: Requests that a target takes before the next one is woken, at least 1.
    spillover: int = 1


class Document(Section, frozen=True, kw_only=True):
    """The whole file."""

    #: Seconds that a start may take; below 15 is 15.
    health_check_timeout: Whole = 120.0
    #: `debug`, `info`, `warn` or `error`.
    log_level: str = "info"
    #: Name of a time format, like `rfc3339`; empty is no time.
    log_time_format: str = ""
    #: How lswap's own lines look: `text`, or `json` for one object a line.
    log_format: str = "text"
    #: What goes to standard output: `proxy`, `upstream`, `both` or `none`.
    log_to_stdout: str = "proxy"
    #: Has no effect; known so that old files load.
    log_requests: bool = False
    #: Rows of activity kept in memory; 0 or less is 1000.
    metrics_max_in_memory: int = 1000
    #: MiB of captured requests and responses; 0 or less is off.
    capture_buffer: int = 5
    store: Store | None = None
    ui: Ui = Ui()
    performance: Performance = Performance()
    #: The first number that `${PORT}` may get, at least 1.
    start_port: int = 5800
    #: Seconds of idleness before a model is unloaded; 0 is never.
    global_ttl: Whole = field(default=0.0, name="globalTTL")
    #: Seconds between the polite and the forced end of a model; 0 is 10.
    unload_timeout: Whole = 10.0
    #: Tell streaming clients that a model is loading.
    send_loading_state: bool = False
    #: Aliases are entries of listings too.
    include_aliases_in_list: bool = False
    #: Keys that clients must send: texts, or mappings with rights. Empty is no authentication.
    api_keys: Annotated[Any, Elsewhere] = ()
    #: Name to value, used as `${name}`; a macro may use those before it.
    macros: Annotated[dict[str, Any], Elsewhere] = {}
    models: Annotated[dict[str, Model], Elsewhere] = {}
    profiles: Annotated[dict[str, Profile], Elsewhere] = {}
    selectors: Annotated[dict[str, Selector], Elsewhere] = {}
    peers: Annotated[dict[str, Peer], Elsewhere] = {}
    #: The older place of `routing.router.settings.groups`.
    groups: Annotated[dict[str, Group], Elsewhere] = {}
    #: The older place of `routing.router.settings.matrix`.
    matrix: Annotated[MatrixSection | None, Elsewhere] = None
    routing: Routing = Routing()
    hooks: HooksSection = HooksSection()
    upstream: Upstream = Upstream()
    limits: Limits = Limits()
    #: false: no model is unloaded for another or by its TTL.
    auto_unload: bool = True
    #: Model that is loaded whenever nothing runs or waits.
    fallback: str = ""
    #: Seconds that nothing ran before the fallback is loaded.
    fallback_delay: Annotated[Duration, Meta(ge=0)] = 10.0
    #: Name to bytes (`gpu0: 24G`), for the router `budget`.
    budgets: dict[str, Size] = {}
