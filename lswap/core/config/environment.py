"""`${env.NAME}` in the raw text of a source, before it is read as YAML.

Variables in YAML comments do not count: one that cannot be replaced leaves a mark in the text, and only a mark that
the YAML parser hands on is a problem. Read `compose` next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lswap.core.config.nodes import Map, Node, Scalar, Seq
from lswap.core.config.problems import Place, Report, Text
from lswap.core.config.scalars import BAD
from lswap.core.config.secrets import SECRET_NAME

__all__ = ["EMPTY_KEY", "PATTERN", "Environment"]

#: What is said of a key that is none.
EMPTY_KEY = "empty api key found in apiKeys"
#: `${env.NAME}`.
PATTERN = re.compile(r"\$\{env\.([a-zA-Z_][a-zA-Z0-9_]*)\}")
_BREAKS = re.compile("[\n\r\0]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_FACTOR, _ROOM = 50, 1 << 20


class Environment:
    """Replaces variables in the sources of one load."""

    def __init__(self, environ: Mapping[str, str], report: Report) -> None:
        self._environ = environ
        self._report = report
        self._reasons: dict[str, str] = {}
        self._mark = ""
        #: Whether a key could not be replaced, so that the document's structure is unknown.
        self.broken = False

    def replace(self, path: str, raw: str) -> tuple[Text, str]:
        """The text with its variables replaced, and the way back to the raw one."""
        self._reasons = {}
        self._mark = next((c for c in map(chr, range(0xE000, 0xF900)) if c not in raw), "\ufffd")
        values: dict[str, str] = {}
        edits: list[tuple[int, int, int]] = []
        parts: list[str] = []
        end = 0
        room = _ROOM + _FACTOR * len(raw)
        for match in PATTERN.finditer(raw):
            value = values.get(match[1], "")
            if match[1] not in values:
                value = values[match[1]] = self._value(match[1])
            room -= len(value)
            if room < 0:
                value = self._bad(match[1], f"environment variable '{match[1]}' makes this file too large")
            parts += (raw[end : match.start()], value)
            edits.append((match.start(), len(match[0]), len(value)))
            end = match.end()
        parts.append(raw[end:])
        replaced = "".join(parts)
        return Text(path, raw, edits, replaced), replaced

    def _value(self, name: str, nested: bool = False) -> str:
        value = self._environ.get(name)
        if value is None:
            return self._bad(name, f"environment variable '{name}' is not set")
        if SECRET_NAME.search(name):
            self._report.hide(value)
        if _BREAKS.search(value):
            return self._bad(
                name,
                f"environment variable '{name}' contains newlines or null bytes"
                " which are not allowed in YAML substitution",
            )
        if _UNPRINTABLE.search(value):
            return self._bad(name, f"environment variable '{name}' contains characters that YAML does not know")
        value = value.replace("\\", "\\\\").replace('"', '\\"')
        # The reference expands twice: a variable may hold another one.
        return value if nested else PATTERN.sub(lambda match: self._value(match[1], nested=True), value)

    def _bad(self, name: str, reason: str) -> str:
        self._reasons[name] = reason
        return f"{self._mark}{name}{self._mark}"

    def check_api_keys(self, root: Node | None, text: Text, replaced: str) -> None:
        """An empty variable in place of an API key must not leave a list without keys, which is no authentication."""
        if not isinstance(root, Map) or not text.emptied:
            return
        keys = root.get("apiKeys")
        if keys is None:
            return
        start = root.places["apiKeys"]
        for at in text.emptied:
            if start.at < at and _stands_alone(replaced, at) and _is_key(replaced, start.at, at, keys):
                self._report.error(Place(start.file, at), "apiKeys", EMPTY_KEY)

    def check(self, root: Node | None) -> None:
        """Report the variables that are missing in a document, and take their values out of it."""
        if not self._reasons or root is None:
            return
        seen: set[int] = set()
        stack = [(root, "")]
        while stack:
            node, path = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Scalar):
                if self._missing(node.text, node.place, path):
                    node.value, node.text = BAD, ""
            elif isinstance(node, Seq):
                stack += [(item, f"{path}[{at}]") for at, item in enumerate(node.items)]
            else:
                start = f"{path}." if path else ""
                entries = [(key, node.places[key], value) for key, value in node.entries.items()] + node.repeats
                missing = [key for key, place, _ in entries if self._missing(key, place, path)]
                self.broken |= bool(missing)
                stack += [(value, start + key) for key, _, value in entries]

    def _missing(self, text: str, place: Place, path: str) -> bool:
        if self._mark not in text:
            return False
        for name in text.split(self._mark)[1::2]:
            self._report.error(place, path, self._reasons.get(name, f"environment variable '{name}' is not set"))
        return True


def _stands_alone(text: str, at: int) -> bool:
    """Whether what was here was a whole value."""
    before, after = text[max(0, at - 200) : at].rstrip(" \t"), text[at : at + 200].lstrip(" \t")
    return before.endswith(("[", ",", ":")) and (not after or after.startswith(("]", ",", "#", "\r", "\n", "}")))


def _is_key(text: str, start: int, at: int, keys: Node) -> bool:
    """Whether a place behind the word `apiKeys` is that of a key: the whole value, or an item of the flow list."""
    if not isinstance(keys, Seq):
        return text[start:at].strip(" \t\r\n'\"") in ("apiKeys:", "apiKeys':", 'apiKeys":')
    depth, quote = 0, ""
    for character in text[keys.place.at : at]:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
            if depth == 0:
                return False
    return depth == 1 and not quote
