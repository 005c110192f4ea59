"""The section `apiKeys`: plain keys with all rights, and mappings with some.

No message here ever shows a key, nor a member that might be one. An unknown member is an error: a misspelt limit
must not mean none. Key files are read by `lswap.net.config_files`, as nothing here touches files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lswap.core.config.context import Context
from lswap.core.config.convert import ABSENT, fields_of
from lswap.core.config.environment import EMPTY_KEY
from lswap.core.config.nodes import Map, Node, Scalar, is_null
from lswap.core.config.problems import Place
from lswap.core.config.scalars import BAD
from lswap.core.config.secrets import MEMBER
from lswap.core.model import ApiKey

__all__ = ["RIGHTS", "SPACES", "read_keys"]

RIGHTS = ("infer", "read", "admin")
SPACES = "api key cannot contain spaces"
_SOURCES = ("key", "keyFile", "env")


def read_keys(context: Context, environ: Mapping[str, str]) -> tuple[ApiKey, ...]:
    """All keys in their order; those from files are still empty."""
    items = context.walker.items(context.section("apiKeys"), "apiKeys", "[]string", secret=True)
    found = [_Key(context, environ, item, at).read() for at, item in enumerate(items)]
    seen: set[str] = set()
    for at, key in enumerate(found):
        if key.key and key.key in seen and not _is_plain(key):
            context.report.warn(items[at].place, f"apiKeys[{at}]", "the same key stands twice", "the first one counts")
        seen.add(key.key)
    return tuple(found)


def _is_plain(key: ApiKey) -> bool:
    return key == ApiKey(key=key.key)


class _Key:
    def __init__(self, context: Context, environ: Mapping[str, str], node: Node, at: int) -> None:
        self._context = context
        self._walker = context.walker
        self._report = context.report
        self._environ = environ
        self._node = node
        self._path = f"apiKeys[{at}]"

    def read(self) -> ApiKey:
        """The key; empty if something is wrong with it (told)."""
        if isinstance(self._node, Map):
            return self._mapping(self._node)
        if isinstance(self._node, Scalar):
            return ApiKey(key=self._text(self._node))
        self._walker.mismatch(self._node, self._path, "string", "a key, or a mapping with rights", secret=True)
        return ApiKey()

    def _error(self, place: Place, key: str, message: str, hint: str = "") -> None:
        self._report.error(place, f"{self._path}.{key}" if key else self._path, message, hint)

    def _text(self, node: Node, key: str = "") -> str:
        """A key as it is written; a null one is no way to switch authentication off."""
        if isinstance(node, Scalar) and node.value is BAD:
            return ""
        text = (
            "" if is_null(node) else self._walker.text(node, f"{self._path}.{key}" if key else self._path, secret=True)
        )
        return "" if text is ABSENT else self._checked(text, node.place, key)

    def _checked(self, text: str, place: Place, key: str = "") -> str:
        if not text:
            self._error(place, key, EMPTY_KEY)
        elif " " in text:
            self._error(place, key, f"{self._path}: {SPACES}")
        return text

    def _mapping(self, node: Map) -> ApiKey:
        known = [*fields_of(ApiKey), "env"]
        for name, place in node.places.items():
            if name in node.entries and name not in known:
                self._unknown(name, place, known)
        values: dict[str, Any] = {}
        for name, field in fields_of(ApiKey).items():
            if name in node.entries and name not in ("key", "keyFile"):
                value = field.convert(self._walker, node.entries[name], f"{self._path}.{name}")
                if value is not ABSENT:
                    values[field.name] = value
        sources = [name for name in _SOURCES if name in node.entries]
        if len(sources) != 1:
            self._error(node.place, "", "needs exactly one of key, keyFile and env")
        else:
            values |= self._source(sources[0], node.entries[sources[0]])
        self._check_rights(node, values)
        return ApiKey(**values)

    def _unknown(self, name: str, place: Place, known: list[str]) -> None:
        if not MEMBER.fullmatch(name):
            self._error(place, "", "unknown member", f"one of: {', '.join(known)}")
            return
        hint = self._report.did_you_mean(name, known) or f"one of: {', '.join(known)}"
        self._error(place, "", f'unknown key "{name}"', hint)

    def _source(self, name: str, node: Node) -> dict[str, Any]:
        if name == "key":
            return {"key": self._text(node, "key")}
        text = self._walker.text(node, f"{self._path}.{name}")
        if text is ABSENT or not text.strip():
            if not (isinstance(node, Scalar) and node.value is BAD):
                self._error(node.place, name, f"{name} is empty")
            return {}
        if name == "keyFile":
            self._context.places[f"{self._path}.keyFile"] = node.place
            return {"key_file": text}
        key = self._environ.get(text.strip())
        if key is None:
            self._error(node.place, "env", f"environment variable '{self._report.shown(text.strip())}' is not set")
            return {}
        self._report.hide(key)
        return {"key": self._checked(key, node.place, "env")}

    def _check_rights(self, node: Map, values: Mapping[str, Any]) -> None:
        for right in values.get("allow", ()):
            if right not in RIGHTS:
                message = f'there is no right "{self._report.shown(right)}"'
                self._error(node.where("allow"), "allow", message, f"one of: {', '.join(RIGHTS)}")
        if values.get("allow") == () or values.get("models") == ():
            self._report.warn(node.place, self._path, "this key allows nothing")
