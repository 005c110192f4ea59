"""`docs/config.md` and `docs/config.schema.json`: made from the structs, current, and true."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import yaml

from lswap.core.config import hooks
from tests.core.config_case import MODEL, ConfigCase
from tools import config_docs

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def valid(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value is what a schema says; only the words that our schema uses."""
    if "$ref" in schema and not valid(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root):
        return False
    if "anyOf" in schema and not any(valid(value, one, root) for one in schema["anyOf"]):
        return False
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        kinds = tuple(kind for name in names for kind in _TYPES[name])
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return False
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, (int, float)):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return bool(low <= value <= high and value > schema.get("exclusiveMinimum", value - 1))
    if isinstance(value, list):
        return all(valid(item, schema.get("items", {}), root) for item in value)
    if isinstance(value, dict):
        return all(_entry_valid(str(key), item, schema, root) for key, item in value.items())
    return True


def _entry_valid(key: str, value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if key in schema.get("properties", {}):
        return valid(value, schema["properties"][key], root)
    if any(re.search(pattern, key) for pattern in schema.get("patternProperties", {})):
        return True
    more = schema.get("additionalProperties", {})
    return bool(more) if isinstance(more, bool) else valid(value, more, root)


class CurrentTests(ConfigCase):
    """The files are what the generator makes."""

    def test_the_documentation_is_current(self) -> None:
        """After a change of a key, run `python -m tools.config_docs`."""
        self.assertEqual(config_docs.MARKDOWN.read_text(encoding="utf-8"), config_docs.markdown())

    def test_the_schema_is_current(self) -> None:
        """The same for the schema."""
        self.assertEqual(json.loads(config_docs.SCHEMA.read_text(encoding="utf-8")), config_docs.schema())


class KeyTests(ConfigCase):
    """What is documented is what the loader knows."""

    def test_every_key_has_a_text(self) -> None:
        """No field without a comment."""
        for section in config_docs.SECTIONS:
            for key in config_docs.keys(section):
                self.assertTrue(key.text, f"{section.title}: {key.key}")

    def test_every_link_leads_somewhere(self) -> None:
        """Within the document, and to files beside it."""
        text = config_docs.markdown()
        anchors = {
            re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", text, re.M)
        }
        self.assertLessEqual(set(re.findall(r"\]\(#([^)]*)\)", text)), anchors)

    def test_the_loader_knows_every_documented_key(self) -> None:
        """With null values none of them is unknown."""
        for section in config_docs.SECTIONS:
            if section.cls.__name__ in ("ApiKey", "HttpCall"):
                continue
            names = {key.key for key in config_docs.keys(section)} - {"http", "cmd"}
            loaded = self.load(self.nested(section.path, dict.fromkeys(names)))
            told = [str(p) for p in (*loaded.problems, *loaded.warnings) if "unknown key" in p.message]
            self.assertEqual(told, [], section.title)

    def nested(self, path: str, inside: dict[str, Any]) -> str:
        """A configuration with these keys at a place."""
        of_model = path in (
            "filters",
            "timeouts",
            "capabilities",
            "compat",
            "kvCache",
            "on_startup",
        ) or path.startswith("sleep")
        parts = (f"models.<id>.{path}" if of_model else path).replace("<id>", "x").replace("<name>", "x").split(".")
        value: Any = inside
        for part in reversed([part for part in parts if part]):
            value = {part: value}
        return yaml.safe_dump(value)

    def test_the_loader_knows_no_other_key(self) -> None:
        """Each key of the walker is documented."""
        for section in config_docs.SECTIONS:
            documented = {key.key for key in config_docs.keys(section)}
            if section.cls.__name__ == "HttpCall":
                self.assertEqual(documented, {*hooks.METHODS, *hooks.HTTP_KEYS})
            elif section.cls.__name__ == "HookAction":
                self.assertEqual(documented, set(hooks.ACTION_KEYS))
            else:
                self.assertLessEqual(set(config_docs.fields_of(section.cls)), documented, section.title)


class SchemaTests(ConfigCase):
    """The schema agrees with the loader."""

    def setUp(self) -> None:
        """Make it once."""
        self.schema = config_docs.schema()

    def valid(self, text: str) -> bool:
        """Whether a YAML text is what the schema says."""
        return valid(yaml.safe_load(text), self.schema, self.schema)

    def test_the_examples_are_valid(self) -> None:
        """All of them."""
        for path in EXAMPLES.glob("*.yaml"):
            self.assertTrue(self.valid(path.read_text()), path.name)

    def test_good_values(self) -> None:
        """What the loader takes, the schema takes."""
        for text in (
            MODEL,
            "{}",
            "globalTTL: '${x}'\nlogLevel: 5\nsendLoadingState: 'yes'\n",
            "budgets: {gpu: 24G}\nfallbackDelay: 5m\nx-mine: {a: 1}\n",
            "models: {a: {cmd: 's ${PORT}', on_startup: [{cmd: [a, b]}, {http: {POST: /x, json: [1]}}]}}\n",
            "models: {a: {cmd: 's ${PORT}', sleep: {vllm: {level: 2}}}}\n",
            "apiKeys: [k, 5, {name: x, env: K, allow: [infer]}]\n",
            "models: {a: {cmd: 's ${PORT}', memory: auto, ttl: ~}}\n",
            "routing: {router: {use: matrix, settings: {matrix: {sets: {s: a}}}}}\n",
            "routing: {scheduler: {settings: {fair: {maxWait: 2m}}}}\n",
        ):
            self.assertTrue(self.valid(text), text)

    def test_bad_values(self) -> None:
        """Wrong kinds, unknown keys, and values out of range are found by an editor too."""
        for text in (
            "models: []",
            "models: {a: {ttI: 5}}",
            "modells: {}",
            "globalTTL: soon",
            "globalTTL: true",
            "sendLoadingState: maybe",
            "models: {a: {aliases: x}}",
            "models: {a: {capabilities: {in: [video]}}}",
            "models: {a: {sleep: {vllm: {level: 3}}}}",
            "models: {a: {kvCache: {maxBytes: lots}}}",
            "apiKeys: [{name: x, key: k, model: [a]}]",
            "models: {a: {on_startup: {cmd: x, retries: 3}}}",
            "performance: {every: 30}",
            "limits: {requestHead: 5}",
        ):
            self.assertFalse(self.valid(text), text)
