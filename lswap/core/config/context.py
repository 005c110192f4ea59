"""What the stages after reading share: the report, the walker, the macros, and the document."""

from __future__ import annotations

from collections.abc import Iterable

from lswap.core.config.convert import Walker
from lswap.core.config.macros import RESERVED, Budget, Macros, declare, leftovers, rewrite
from lswap.core.config.nodes import Node
from lswap.core.config.problems import Place, Report
from lswap.core.config.read import Document
from lswap.core.config.scalars import BAD, Value

__all__ = ["Context"]


class Context:
    """One load, after its sources were read."""

    def __init__(self, report: Report, document: Document) -> None:
        self.report = report
        self.walker = Walker(report)
        self.document = document
        #: The merged document; sections are replaced by their expanded form as they are read.
        self.root = document.root
        #: Places of mappings in which a key may stand twice.
        self.may_repeat: set[Place] = set()
        #: Path to place, of values that somebody looks at again who can touch files.
        self.places: dict[str, Place] = {}
        declared = declare(self.root.get("macros"), "macros", "", report)
        self.macros = Macros(declared, report, Budget(document.size))
        self.macro_names = tuple(declared)

    def expand(self, node: Node, path: str) -> Node:
        """A node outside of `models` with the global macros applied; what is left over is reported."""
        return rewrite(node, path, self._visit)

    def section(self, key: str) -> Node | None:
        """One top-level section, expanded."""
        node = self.root.get(key)
        if node is not None:
            node = self.root.entries[key] = self.expand(node, key)
        return node

    def _visit(self, text: str, place: Place, path: str) -> Value:
        value = self.macros.text(text, place, path)
        if isinstance(value, str) and "${" in value:
            found = dict.fromkeys(leftovers(value))
            for name, of_environment in found:
                if of_environment:
                    self.report.error(place, path, f"environment variable '{name}' not set")
                else:
                    at, hint = self.report.use_of(name, text, place), self.macro_hint(name, self.macro_names)
                    self.report.error(at, path, f"unknown macro '${{{name}}}'", hint)
            if found:
                return BAD
        return value

    def macro_hint(self, name: str, known: Iterable[str]) -> str:
        """What may be meant by a macro that is not known at its place."""
        if name in known:
            return "a macro may only use those that are declared before it"
        if name in RESERVED:
            return {
                "PID": "it exists in cmdStop and hooks only",
                "MODEL_ID": "it exists in models only",
                "PORT": "it exists in models whose cmd uses it",
            }[name]
        near = self.report.nearest(name, known)
        return f"did you mean '${{{near}}}'?" if near else ""
