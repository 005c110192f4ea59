"""The section `matrix`: names of models, costs, and the parsed sets.

Decides what a name stands for (a var, else a model ID; never an alias) and reports what does not fit, by the messages
of the configuration reference, section 9.3. The language itself is `lswap.core.matrix`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lswap.core import matrix as language
from lswap.core.config.context import Context
from lswap.core.config.layout import MatrixSection
from lswap.core.config.nodes import Map, Node, below, is_null, pairs_of
from lswap.core.config.problems import NOWHERE, Place
from lswap.core.matrix_solver import MatrixSolver, UnfitSetsError

__all__ = ["MatrixReader"]

_VAR = re.compile(r"[a-zA-Z0-9.-]{1,32}")


class MatrixReader:
    """Reads one matrix."""

    def __init__(self, context: Context, models: Mapping[str, object], node: Node | None, path: str) -> None:
        self._context = context
        self._report = context.report
        self._models = models
        self._path = path
        self._node = context.walker.mapping(node, path, "a matrix")
        self._vars: dict[str, str] = {}

    def read(self) -> language.Matrix | None:
        """The matrix; None if there is no usable one (told)."""
        if self._node is None:
            return None
        sets = self._node.get("sets")
        if not (sets is None or isinstance(sets, Map) or is_null(sets)):
            self._error(sets.place, "sets", "sets must be a mapping")
            return None
        values = self._context.walker.section(self._node, MatrixSection, self._path)
        self._read_vars(values.get("vars", {}))
        costs = self._costs(values.get("evict_costs", {}))
        if sets is None or is_null(sets) or (isinstance(sets, Map) and not sets.entries):
            self._error(self._node.where("sets"), "sets", "matrix must define at least one set")
            return None
        parsed = self._parse(values.get("sets", {}))
        order, circular = language.ordered(parsed)
        for name in dict.fromkeys(circular):
            self._error(
                self._place("sets", name), f"sets.{name}", f'circular reference detected involving set "{name}"'
            )
        matrix = language.Matrix(sets=tuple(language.MatrixSet(name, parsed[name]) for name in order), costs=costs)
        return matrix if circular or self._fits(matrix) else None

    def _fits(self, matrix: language.Matrix) -> bool:
        """Whether its sets can be looked through; told if not. A reference to nothing has been told before."""
        known = {one.name for one in matrix.sets}
        for one in matrix.sets:
            if any(
                isinstance(atom, language.Reference) and atom.set not in known
                for atom in language.atoms(one.expression)
            ):
                return False
        problems: Mapping[str, str]
        try:
            problems = MatrixSolver(matrix).too_large
        except UnfitSetsError as error:
            problems = error.problems
        for name, problem in problems.items():
            hint = "fewer alternatives, or factors without common models"
            self._error(self._place("sets", name), f"sets.{name}", f'set "{name}": {problem}', hint)
        return not problems

    def _error(self, place: Place, key: str, message: str, hint: str = "") -> None:
        self._report.error(place, f"{self._path}.{key}", f"matrix: {message}", hint)

    def _at(self, table: str, key: str) -> Node | None:
        return below(self._node, table, key)

    def _place(self, table: str, key: str) -> Place:
        node = self._at(table, key)
        return NOWHERE if node is None else node.place

    def _read_vars(self, found: Mapping[str, str]) -> None:
        for name, _ in pairs_of(below(self._node, "vars")):
            self._vars[name] = name  # also where its value is none, which is told already
        for name, model in found.items():
            where = f"vars.{name}"
            if not _VAR.fullmatch(name):
                message = (
                    f"var key \"{name}\" must contain only alphanumeric, '-' or '.' characters"
                    " and be 1-32 characters long"
                )
                self._error(self._place("vars", name), where, message)
            if model not in self._models:
                message = f'var key "{name}" references unknown model "{model}"'
                self._error(self._place("vars", name), where, message, self._near(model, self._models))
            self._vars[name] = model

    def _near(self, name: str, known: Mapping[str, object]) -> str:
        return self._report.did_you_mean(name, known)

    def _known(self, name: str) -> bool:
        return name in self._vars or name in self._models

    def _costs(self, found: Mapping[str, int]) -> dict[str, int]:
        costs: dict[str, int] = {}
        for name, cost in found.items():
            place, where = self._place("evict_costs", name), f"evict_costs.{name}"
            if cost < 1:
                self._error(place, where, f'evict_cost for "{name}" must be a positive integer, got {cost}')
            if not self._known(name):
                message = f'evict_costs: unknown var or model "{name}"'
                self._error(place, where, message, self._near(name, {**self._models, **self._vars}))
                continue
            model = self._vars.get(name, name)
            if costs.get(model, cost) != cost:
                self._report.warn(
                    place, f"{self._path}.{where}", f"model {model} has two costs", "the later one counts"
                )
            costs[model] = cost
        return costs

    def _parse(self, found: Mapping[str, str]) -> dict[str, language.Expression]:
        parsed: dict[str, language.Expression] = {}
        for name, text in found.items():
            place, where = self._place("sets", name), f"sets.{name}"
            try:
                expression = language.parse(text)
            except language.MatrixSyntaxError as error:
                self._error(place, where, f'set "{name}": {error}')
                continue
            for atom in dict.fromkeys(language.atoms(expression)):
                if isinstance(atom, language.Reference):
                    if atom.set not in found:
                        message = f'set "{name}" references undefined set "{atom.set}"'
                        self._error(place, where, message, self._near(atom.set, found))
                elif not self._known(atom.model):
                    message = f'set "{name}": unknown var or model "{atom.model}"'
                    self._error(place, where, message, self._near(atom.model, {**self._models, **self._vars}))
            parsed[name] = language.rename(expression, lambda atom: self._vars.get(atom, atom))
        return parsed
