"""What `tools.config_docs` cannot tell from the structs: the sections in their order, keys that are no fields, and the
ways in which values are written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lswap.core import model, model_parts
from lswap.core.config import hooks, layout
from lswap.core.config.access import RIGHTS

__all__ = ["BY_CLASS", "HIDDEN", "KINDS", "SECTIONS", "WRITTEN", "Extra", "Section", "ref"]

_ACTIONS = "[an action](#an-action), or a list"


class Extra(NamedTuple):
    """A key that is no field of the struct."""

    key: str
    kind: str
    schema: dict[str, Any]
    text: str
    default: str = ""


class Section(NamedTuple):
    """One mapping of the file."""

    title: str
    path: str
    cls: type
    more: tuple[Extra, ...] = ()
    #: Keys that the reference does not have; None is all of them.
    added: frozenset[str] | None = frozenset()
    strict: bool = False
    #: What it is; the first line of the struct's docstring if this is empty.
    about: str = ""


def ref(name: str) -> dict[str, Any]:
    """A reference to a definition of the schema."""
    return {"$ref": f"#/$defs/{name}"}


_EVENTS = tuple(
    Extra(event, _ACTIONS, ref("Actions"), text)
    for event, text in zip(
        layout.EVENTS,
        (
            "Before the server is spawned.",
            "After the health check, before the first waiting request.",
            "After the last request, before the stop signal.",
            "After the whole process group is gone.",
        ),
        strict=True,
    )
)
_MACROS = Extra(
    "macros", "mapping", ref("Macros"), "Name to value, used as `${name}`; a macro may use those before it."
)
_HTTP = tuple(
    Extra(
        method, "URL", ref("text"), "Absolute, or a path below the model's `proxy`. Several methods are several calls."
    )
    for method in hooks.METHODS
)

SECTIONS = (
    Section(
        "Top level",
        "",
        layout.Document,
        added=frozenset({"limits", "autoUnload", "fallback", "fallbackDelay", "budgets"}),
    ),
    Section(
        "A model",
        "models.<id>",
        model.Model,
        (_MACROS, *_EVENTS),
        frozenset({"healthCheckTimeout", "kvCache", "sleep", "keep", "memory", *layout.EVENTS}),
        about="A server that is started when it is asked for. `<id>` is the name that clients use: any text.",
    ),
    Section(
        "Filters",
        "filters",
        model_parts.Filters,
        (Extra("strip_params", "text", ref("text"), "The old name of `stripParams`, in models only."),),
    ),
    Section("Timeouts", "timeouts", model_parts.Timeouts),
    Section("Capabilities", "capabilities", model_parts.Capabilities),
    Section("Compatibility", "compat", model_parts.Compat),
    Section(
        "An action",
        "on_startup",
        model_parts.HookAction,
        (
            Extra("http", "[requests](#requests-of-an-action)", ref("Http"), "Requests to make, in the order written."),
            Extra(
                "cmd",
                "command, or list of words",
                ref("command"),
                "A program to run, with the model's environment and `LSWAP_...` variables.",
            ),
        ),
        None,
        strict=True,
        about="What is done at an event of a model's life: either requests or a command. Unknown keys are errors.",
    ),
    Section(
        "Requests of an action",
        "http",
        model_parts.HttpCall,
        (*_HTTP, Extra("json", "any value", {}, "Sent as JSON, in place of `body`.")),
        None,
        strict=True,
        about="One method with its URL, and what goes with it; or several methods (also the same) and nothing else.",
    ),
    Section("Sleep", "sleep", model_parts.Sleep, added=None),
    Section("vLLM's sleep", "sleep.vllm", model_parts.VllmSleep, added=None),
    Section("Prompt caches", "kvCache", model_parts.KvCache, added=None),
    Section("A peer", "peers.<id>", model.Peer, added=frozenset({"wake"})),
    Section("A peer that sleeps", "peers.<id>.wake", model_parts.Wake, added=None, strict=True),
    Section(
        "A selector",
        "selectors.<id>",
        model.Selector,
        (
            Extra(
                "settings", "[mapping](#settings-of-a-selector)", ref("SelectorSettings"), "Settings of the strategy."
            ),
        ),
    ),
    Section("Settings of a selector", "selectors.<id>.settings", layout.SelectorSettings),
    Section("A profile", "profiles.<name>", model.Profile),
    Section(
        "A group",
        "groups.<id>",
        model.Group,
        about="Models that are unloaded by common rules. Models of no group are in one that swaps and is exclusive.",
    ),
    Section("A matrix", "matrix", layout.MatrixSection),
    Section("Routing", "routing", layout.Routing),
    Section("Router", "routing.router", layout.Router),
    Section("Settings of the router", "routing.router.settings", layout.RouterSettings),
    Section("Scheduler", "routing.scheduler", layout.Scheduler),
    Section(
        "Settings of the scheduler", "routing.scheduler.settings", layout.SchedulerSettings, added=frozenset({"fair"})
    ),
    Section("First come, first served", "routing.scheduler.settings.fifo", layout.Fifo),
    Section("Fair waiting", "routing.scheduler.settings.fair", model_parts.Fair, added=None),
    Section("Hooks", "hooks", layout.HooksSection, added=frozenset({"models"})),
    Section("At the start", "hooks.on_startup", layout.Startup),
    Section("For all models", "hooks.models", layout.EventHooks, added=None, strict=True),
    Section(
        "A key with rights",
        "apiKeys[]",
        model_parts.ApiKey,
        (Extra("env", "text", ref("text"), "Variable of the environment that holds the key."),),
        None,
        strict=True,
    ),
    Section("Limits", "limits", model_parts.Limits, added=None),
    Section("Monitor", "performance", model_parts.Performance),
    Section("Store", "store", layout.Store),
    Section("Page", "ui", layout.Ui),
    Section("Activity", "ui.activity", layout.Activity),
    Section("Upstream", "upstream", layout.Upstream),
)
BY_CLASS = {section.cls: section for section in SECTIONS}

#: How a key is written, where its type does not tell: (kind, schema).
WRITTEN: dict[tuple[type, str], tuple[str, dict[str, Any]]] = {
    (layout.Document, "apiKeys"): (
        "list of text or [mappings](#a-key-with-rights)",
        {"type": ["array", "null"], "items": {"anyOf": [ref("text"), ref("ApiKey")]}},
    ),
    (layout.Document, "macros"): ("mapping", ref("Macros")),
    (model_parts.Filters, "stripParams"): ("text", ref("text")),
    (model_parts.Capabilities, "in"): ("list of text", {"type": ["array", "null"], "items": ref("modality")}),
    (model_parts.Capabilities, "out"): ("list of text", {"type": ["array", "null"], "items": ref("modality")}),
    (model_parts.HttpCall, "headers"): (
        "mapping to text",
        {"type": ["object", "null"], "additionalProperties": ref("text")},
    ),
    (model_parts.HttpCall, "expect"): (
        "status, or list of them",
        {"anyOf": [ref("whole"), {"type": "array", "items": ref("whole")}]},
    ),
    (model_parts.HttpCall, "body"): ("text", ref("text")),
    (model_parts.Sleep, "sleep"): (_ACTIONS, ref("Actions")),
    (model_parts.Sleep, "wake"): (_ACTIONS, ref("Actions")),
    (model_parts.ApiKey, "allow"): (
        "list of text",
        {"type": ["array", "null"], "items": {"enum": [*RIGHTS, None]}},
    ),
    (model.Model, "memory"): (
        "`auto`, or mapping to sizes",
        {"anyOf": [{"const": "auto"}, {"type": ["object", "null"], "additionalProperties": ref("size")}]},
    ),
    **{(layout.EventHooks, event): (_ACTIONS, ref("Actions")) for event in layout.EVENTS},
}
#: Fields that are written in another way than by their own key.
HIDDEN = {
    (model_parts.HookAction, "calls"),
    (model_parts.HookAction, "words"),
    (model_parts.HttpCall, "method"),
    (model_parts.HttpCall, "url"),
}

_MACRO = {"type": "string", "pattern": r"\$\{"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("text", {"type": ["string", "number", "boolean", "null"]}),
    "whole": ("whole number", {"anyOf": [{"type": ["number", "null"]}, _MACRO]}),
    "number": ("number", {"anyOf": [{"type": ["number", "null"]}, _MACRO]}),
    "boolean": (
        "yes or no",
        {
            "anyOf": [
                {"type": ["boolean", "null"]},
                {"type": "string", "pattern": r"^([yYnN]|[yY]es|YES|[oO]n|ON|[nN]o|NO|[oO]ff|OFF)$"},
                _MACRO,
            ]
        },
    ),
    "size": (
        "size",
        {
            "anyOf": [
                {"type": ["number", "null"]},
                {"type": "string", "pattern": r"^ *[0-9.]+ *[kKmMgGtT]?(i?[bB])? *$"},
                _MACRO,
            ]
        },
    ),
    "duration": (
        "time",
        {"anyOf": [{"type": ["number", "null"]}, {"type": "string", "pattern": r"^ *[0-9.]+ *[smhd]? *$"}, _MACRO]},
    ),
    "go_duration": (
        "duration",
        {
            "anyOf": [
                {"type": "null"},
                {"type": "string", "pattern": r"^[-+]?(0|([0-9.]+(ns|us|µs|μs|ms|s|m|h))+)$"},
                _MACRO,
            ]
        },
    ),
}
