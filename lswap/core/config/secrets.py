"""What may not be shown: found before anything else is looked at, so that no message can be early enough to show it.

Secrets are the API keys, the keys of peers, and the values of `env` entries and hook headers whose name says so;
also where they come from a macro. Tells also which sources have one written in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lswap.core.config.nodes import Map, Node, Scalar, Seq, pairs_of
from lswap.core.config.problems import Report
from lswap.core.config.scalars import Bad, Timestamp, text_of

__all__ = ["MEMBER", "SECRET_NAME", "hide_secrets"]

#: A name whose value is a secret, of a variable or header.
SECRET_NAME = re.compile("key|token|secret|pass|auth|cred", re.IGNORECASE)
#: Members of a key that are no secrets.
_OPEN = ("name", "keyFile", "env", "models", "allow", "weight", "maxParallel")
#: What a member's name looks like; anything else may be a key that slipped out of its place.
MEMBER = re.compile(r"[a-zA-Z_]{1,16}")
_USE = re.compile(r"\$\{([a-zA-Z0-9_-]+)\}")


def hide_secrets(root: Map, report: Report) -> set[int]:
    """Tell the report what it may not show; the numbers of the sources that hold an API key in clear."""
    return _Hider(root, report).run()


class _Hider:
    def __init__(self, root: Map, report: Report) -> None:
        self._root = root
        self._report = report
        self._files: set[int] = set()
        self._seen: set[int] = set()

    def run(self) -> set[int]:
        general = dict(pairs_of(self._root.get("macros")))
        for node in _leaves(self._root.get("apiKeys")):
            self._hide(node, general, True)
        for _, peer in pairs_of(self._root.get("peers")):
            for node in _leaves(peer.get("apiKey") if isinstance(peer, Map) else None):
                self._hide(node, general, True)
        for _, model in pairs_of(self._root.get("models")):
            if isinstance(model, Map):
                self._environment(model, general | dict(pairs_of(model.get("macros"))))
        return self._files

    def _environment(self, model: Map, macros: dict[str, Node]) -> None:
        entries = model.get("env")
        if entries is None or id(entries) in self._seen:
            return
        self._seen.add(id(entries))
        for node in _leaves(entries):
            name, _, value = node.text.partition("=")
            if value and SECRET_NAME.search(name):
                self._hide(Scalar(value, node.place, value), macros, False)

    def _hide(self, node: Scalar, macros: dict[str, Node], api_key: bool) -> None:
        """One value, and the macros that it is made of."""
        todo, seen = [node], set[str]()
        while todo:
            current = todo.pop()
            value = current.value
            if value is None or isinstance(value, (Bad, Timestamp)):
                continue
            text = text_of(value)
            used = _USE.findall(text)
            literal = [part for part in _USE.split(text)[::2] if part.strip()]
            for part in literal:
                self._report.hide(part)
            if api_key and literal and self._report.written(current.place, current.text):
                self._files.add(current.place.file)
            for name in used:
                macro = macros.get(name)
                if name not in seen and isinstance(macro, Scalar):
                    seen.add(name)
                    todo.append(macro)


def _leaves(node: Node | None) -> Iterator[Scalar]:
    """The scalars that may be keys: of a list, and the members `key` of mappings in it. Anything odd counts too."""
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Seq):
        for item in node.items:
            yield from _leaves(item)
    elif isinstance(node, Map):
        for name, item in node.entries.items():
            if name not in _OPEN:
                yield from _leaves(item)
            if not MEMBER.fullmatch(name):
                yield Scalar(name, node.places[name], name)
