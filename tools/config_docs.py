"""Makes `docs/config.md` and `docs/config.schema.json` from the structs that the loader reads.

Run it as `python -m tools.config_docs` after a change of a key; a test fails until then. The text of a key is the
`#:` comment above its field.
"""

from __future__ import annotations

import ast
import inspect
import json
import pathlib
import re
import textwrap
import types
import typing
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from lswap.core import model, model_parts
from lswap.core.config import hooks, layout
from lswap.core.config.access import RIGHTS
from lswap.core.config.convert import fields_of

__all__ = ["fields_of", "main", "markdown", "schema"]

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "tools" / "config.md.in"
MARKDOWN, SCHEMA = ROOT / "docs" / "config.md", ROOT / "docs" / "config.schema.json"

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


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


_EVENTS = tuple(
    Extra(event, _ACTIONS, _ref("Actions"), text)
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
    "macros", "mapping", _ref("Macros"), "Name to value, used as `${name}`; a macro may use those before it."
)
_HTTP = tuple(
    Extra(
        method, "URL", _ref("text"), "Absolute, or a path below the model's `proxy`. Several methods are several calls."
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
        (Extra("strip_params", "text", _ref("text"), "The old name of `stripParams`, in models only."),),
    ),
    Section("Timeouts", "timeouts", model_parts.Timeouts),
    Section("Capabilities", "capabilities", model_parts.Capabilities),
    Section("Compatibility", "compat", model_parts.Compat),
    Section(
        "An action",
        "on_startup",
        model_parts.HookAction,
        (
            Extra(
                "http", "[requests](#requests-of-an-action)", _ref("Http"), "Requests to make, in the order written."
            ),
            Extra(
                "cmd",
                "command, or list of words",
                _ref("command"),
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
    Section("A peer", "peers.<id>", model.Peer),
    Section(
        "A selector",
        "selectors.<id>",
        model.Selector,
        (
            Extra(
                "settings", "[mapping](#settings-of-a-selector)", _ref("SelectorSettings"), "Settings of the strategy."
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
        (Extra("env", "text", _ref("text"), "Variable of the environment that holds the key."),),
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
_BY_CLASS = {section.cls: section for section in SECTIONS}

#: How a key is written, where its type does not tell: (kind, schema).
_WRITTEN: dict[tuple[type, str], tuple[str, dict[str, Any]]] = {
    (layout.Document, "apiKeys"): (
        "list of text or [mappings](#a-key-with-rights)",
        {"type": ["array", "null"], "items": {"anyOf": [_ref("text"), _ref("ApiKey")]}},
    ),
    (layout.Document, "macros"): ("mapping", _ref("Macros")),
    (model_parts.Filters, "stripParams"): ("text", _ref("text")),
    (model_parts.Capabilities, "in"): ("list of text", {"type": ["array", "null"], "items": _ref("modality")}),
    (model_parts.Capabilities, "out"): ("list of text", {"type": ["array", "null"], "items": _ref("modality")}),
    (model_parts.HttpCall, "headers"): (
        "mapping to text",
        {"type": ["object", "null"], "additionalProperties": _ref("text")},
    ),
    (model_parts.HttpCall, "expect"): (
        "status, or list of them",
        {"anyOf": [_ref("whole"), {"type": "array", "items": _ref("whole")}]},
    ),
    (model_parts.HttpCall, "body"): ("text", _ref("text")),
    (model_parts.Sleep, "sleep"): (_ACTIONS, _ref("Actions")),
    (model_parts.Sleep, "wake"): (_ACTIONS, _ref("Actions")),
    (model_parts.ApiKey, "allow"): (
        "list of text",
        {"type": ["array", "null"], "items": {"enum": [*RIGHTS, None]}},
    ),
    (model.Model, "memory"): (
        "`auto`, or mapping to sizes",
        {"anyOf": [{"const": "auto"}, {"type": ["object", "null"], "additionalProperties": _ref("size")}]},
    ),
    **{(layout.EventHooks, event): (_ACTIONS, _ref("Actions")) for event in layout.EVENTS},
}
#: Fields that are written in another way than by their own key.
_HIDDEN = {
    (model_parts.HookAction, "calls"),
    (model_parts.HookAction, "words"),
    (model_parts.HttpCall, "method"),
    (model_parts.HttpCall, "url"),
}

_MACRO = {"type": "string", "pattern": r"\$\{"}
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
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


class Key(NamedTuple):
    """One key, told."""

    key: str
    kind: str
    schema: dict[str, Any]
    default: str
    text: str
    added: bool


def _comments(cls: type) -> dict[str, str]:
    """The `#:` comments of the fields of a struct, by field."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = source.splitlines()
    found: dict[str, str] = {}
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        above: list[str] = []
        at = node.lineno - 2
        while lines[at].strip().startswith("#:"):
            above.insert(0, lines[at].strip().removeprefix("#:").strip())
            at -= 1
        found[node.target.id] = " ".join(above)
    return found


def _kind(kind: Any, extra: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """How a value of a type is told, and its schema."""
    if typing.get_origin(kind) is Annotated:
        inner, *notes = typing.get_args(kind)
        for note in notes:
            bounds = {name: bound for name in ("ge", "gt", "le") if (bound := getattr(note, name)) is not None}
            extra = {**bounds, **(note.extra or {}), **extra}
        return _kind(inner, extra)
    name = extra.get("as")
    if name in _KINDS:
        return _bounded(str(name), extra)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _kind(next(a for a in arguments if a is not type(None)), extra)
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in arguments), {"enum": [*arguments, None]}
    if origin is tuple:
        told, of = _kind(arguments[0], {})
        return f"list of {told}", {"type": ["array", "null"], "items": of}
    if origin is dict:
        if arguments[1] is Any:
            return "mapping", {"type": ["object", "null"]}
        told, of = _kind(arguments[1], {})
        return f"mapping to {told}", {"type": ["object", "null"], "additionalProperties": of}
    if kind in _BY_CLASS:
        title = _BY_CLASS[kind].title
        return f"[{_inner(title)}](#{_anchor(title)})", {"anyOf": [_ref(kind.__name__), {"type": "null"}]}
    if kind is Any:
        return "any value", {}
    return _bounded({str: "text", bool: "boolean", int: "whole", float: "number"}[kind], extra)


def _inner(title: str) -> str:
    return title[0].lower() + title[1:] if title.startswith(("A ", "An ")) else "mapping"


def _bounded(name: str, extra: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    told, limits = _KINDS[name][0], {}
    for bound, keyword, word in (
        ("ge", "minimum", "at least"),
        ("gt", "exclusiveMinimum", "above"),
        ("le", "maximum", "at most"),
    ):
        if bound in extra:
            limits[keyword] = extra[bound]
            if extra[bound]:
                told += f", {word} {extra[bound]}"
    return told, {**_ref(name), **limits} if limits else _ref(name)


def _default(value: Any, factory: Any, text: str) -> str:
    """The default as it would be written; nothing where the text tells it, or there is none to tell."""
    if "efault" in text or "Required" in text or "required" in text:
        return ""
    if factory is not msgspec.NODEFAULT:
        value = factory()
    if value is msgspec.NODEFAULT or value is None or isinstance(value, (msgspec.Struct, dict)) or value in ("", ()):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    written = list(value) if isinstance(value, tuple) else value
    return f"`{written if isinstance(written, str) else json.dumps(written)}`"


def keys(section: Section) -> list[Key]:
    """All keys of a section."""
    comments = _comments(section.cls)
    found: list[Key] = []
    for info in msgspec.structs.fields(section.cls):
        key, text = info.encode_name, comments.get(info.name, "")
        if _derived(info.type) or (section.cls, key) in _HIDDEN:
            continue
        kind, of = _WRITTEN.get((section.cls, key)) or _kind(info.type, {})
        if not text and (inner := _struct_in(info.type)) is not None:
            text = _about(_BY_CLASS[inner])
        added = section.added is None or key in section.added
        found.append(Key(key, kind, of, _default(info.default, info.default_factory, text), text, added))
    for more in section.more:
        added = section.added is None or more.key in section.added
        found.append(Key(more.key, more.kind, more.schema, more.default, more.text, added))
    return found


def _derived(kind: Any) -> bool:
    return typing.get_origin(kind) is Annotated and any(
        (note.extra or {}).get("key") is False for note in kind.__metadata__
    )


def _struct_in(kind: Any) -> type | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for inner in typing.get_args(kind) if (found := _struct_in(inner)) is not None), None)


# -- the documents ------------------------------------------------------------------


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _about(section: Section) -> str:
    return section.about or (inspect.getdoc(section.cls) or "").partition("\n")[0]


def _table(section: Section) -> str:
    rows = [f"### {section.title}", ""]
    if section.path:
        rows += [f"`{section.path}`: {_about(section)}", ""]
    rows += ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key in keys(section):
        name = f"`{key.key}`" + (" **+**" if key.added else "")
        rows.append(
            "| " + " | ".join(text.replace("|", "\\|") for text in (name, key.kind, key.default, key.text)) + " |"
        )
    return "\n".join(rows)


def markdown() -> str:
    """The text of `docs/config.md`."""
    tables = "\n\n".join(_table(section) for section in SECTIONS)
    template = TEMPLATE.read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", template, re.MULTILINE)
    contents = " · ".join(f"[{title}](#{_anchor(title)})" for title in titles)
    sections = " · ".join(f"[{section.title}](#{_anchor(section.title)})" for section in SECTIONS)
    return template.replace("<!-- contents -->", contents).replace("<!-- keys -->", f"{sections}\n\n{tables}")


def schema() -> dict[str, Any]:
    """The JSON schema of a configuration file."""
    definitions: dict[str, Any] = {name: of for name, (_, of) in _KINDS.items()}
    definitions["modality"] = {"enum": ["text", "audio", "image", None]}
    definitions["command"] = {"anyOf": [_ref("text"), {"type": "array", "items": _ref("text")}]}
    definitions["Macros"] = {
        "type": ["object", "null"],
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    definitions["Http"] = _ref("HttpCall")
    definitions["Actions"] = {
        "anyOf": [_ref("HookAction"), {"type": "array", "items": _ref("HookAction")}, {"type": "null"}]
    }
    for section in SECTIONS[1:]:
        definitions[section.cls.__name__] = _object(section)
    top = _object(SECTIONS[0])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of lswap",
        **top,
        "patternProperties": {"^(x-|_|\\.)": {}},
        "$defs": definitions,
    }


def _object(section: Section) -> dict[str, Any]:
    properties = {key.key: {**key.schema, "description": key.text} if key.text else key.schema for key in keys(section)}
    return {
        "type": "object",
        "description": _about(section),
        "properties": {**properties, "<<": {}} if not section.strict else properties,
        "additionalProperties": False,
    }


def main() -> None:
    """Write both files."""
    MARKDOWN.write_text(markdown(), encoding="utf-8")
    SCHEMA.write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
