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

from lswap.core.config.convert import fields_of
from tools.config_sections import BY_CLASS, HIDDEN, KINDS, SECTIONS, WRITTEN, Section, ref

__all__ = [
    "MARKDOWN",
    "SCHEMA",
    "SECTIONS",
    "TEMPLATE",
    "Section",
    "about",
    "fields_of",
    "keys",
    "main",
    "markdown",
    "schema",
]

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "tools" / "config.md.in"
MARKDOWN, SCHEMA = ROOT / "docs" / "config.md", ROOT / "docs" / "config.schema.json"


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
    if name in KINDS:
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
    if kind in BY_CLASS:
        title = BY_CLASS[kind].title
        return f"[{_inner(title)}](#{_anchor(title)})", {"anyOf": [ref(kind.__name__), {"type": "null"}]}
    if kind is Any:
        return "any value", {}
    return _bounded({str: "text", bool: "boolean", int: "whole", float: "number"}[kind], extra)


def _inner(title: str) -> str:
    return title[0].lower() + title[1:] if title.startswith(("A ", "An ")) else "mapping"


def _bounded(name: str, extra: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    told, limits = KINDS[name][0], {}
    for bound, keyword, word in (
        ("ge", "minimum", "at least"),
        ("gt", "exclusiveMinimum", "above"),
        ("le", "maximum", "at most"),
    ):
        if bound in extra:
            limits[keyword] = extra[bound]
            if extra[bound]:
                told += f", {word} {extra[bound]}"
    return told, {**ref(name), **limits} if limits else ref(name)


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
        if _derived(info.type) or (section.cls, key) in HIDDEN:
            continue
        kind, of = WRITTEN.get((section.cls, key)) or _kind(info.type, {})
        if not text and (inner := _struct_in(info.type)) is not None:
            text = about(BY_CLASS[inner])
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


def about(section: Section) -> str:
    """What a section is, in one line."""
    return section.about or (inspect.getdoc(section.cls) or "").partition("\n")[0]


def _table(section: Section) -> str:
    rows = [f"### {section.title}", ""]
    if section.path:
        rows += [f"`{section.path}`: {about(section)}", ""]
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
    definitions: dict[str, Any] = {name: of for name, (_, of) in KINDS.items()}
    definitions["modality"] = {"enum": ["text", "audio", "image", None]}
    definitions["command"] = {"anyOf": [ref("text"), {"type": "array", "items": ref("text")}]}
    definitions["Macros"] = {
        "type": ["object", "null"],
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    definitions["Http"] = ref("HttpCall")
    definitions["Actions"] = {
        "anyOf": [ref("HookAction"), {"type": "array", "items": ref("HookAction")}, {"type": "null"}]
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
        "description": about(section),
        "properties": {**properties, "<<": {}} if not section.strict else properties,
        "additionalProperties": False,
    }


def main() -> None:
    """Write both files."""
    MARKDOWN.write_text(markdown(), encoding="utf-8")
    SCHEMA.write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
