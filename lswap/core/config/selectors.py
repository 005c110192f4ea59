"""The section `selectors`: names that stand for one of several targets (configuration reference, section 8.3)."""

from __future__ import annotations

from collections.abc import Collection

from lswap.core import matrix as language
from lswap.core.config.context import Context
from lswap.core.config.layout import SelectorSettings
from lswap.core.config.nodes import Map, Node, Seq, is_bad, is_null, pairs_of, place_of, texts_of
from lswap.core.model import Config, Selector

__all__ = ["read_selectors"]

_STRATEGIES = ("warm", "pin", "spillover")


def read_selectors(context: Context, config: Config) -> dict[str, Selector]:
    """The section `selectors`; `config` has models, peers and routing."""
    section = context.walker.mapping(context.section("selectors"), "selectors")
    return {
        name: _SelectorReader(context, config, name, entry, section).read()
        for name, entry in pairs_of(section)
        if section is not None
    }


class _SelectorReader:
    def __init__(self, context: Context, config: Config, name: str, entry: Node, section: Map) -> None:
        self._context = context
        self._report = context.report
        self._config = config
        self._name = name
        self._path = f"selectors.{name}"
        self._section = section
        self._node = context.walker.mapping(entry, self._path, "a selector") or Map(section.places[name])

    def read(self) -> Selector:
        """The selector; what is wrong with it is reported."""
        self._check_name()
        values = self._context.walker.section(self._node, Selector, self._path, more=("settings",))
        settings = self._context.walker.section(self._node.get("settings"), SelectorSettings, f"{self._path}.settings")
        strategy, targets = values.get("strategy", ""), values.get("targets", ())
        if not strategy:
            if not is_bad(self._node.get("strategy")):
                self._error("strategy", f"{self._path}.strategy is required", f"one of: {', '.join(_STRATEGIES)}")
        elif strategy not in _STRATEGIES:
            shown = self._report.shown(strategy)
            message = f'{self._path}.strategy: unknown strategy "{shown}" (valid: {", ".join(_STRATEGIES)})'
            self._error("strategy", message)
        listed = self._node.get("targets")
        if not targets and (is_null(listed) or (isinstance(listed, Seq) and not any(map(is_bad, listed.items)))):
            self._error("targets", f"{self._path}.targets must contain at least one entry")
        self._check_targets(strategy)
        selector = Selector(
            id=self._name,
            **values | {"strategy": strategy, "targets": targets, "spillover": settings.get("spillover", 1)},
        )
        if strategy == "spillover":
            self._check_spillover(selector)
        return selector

    def _check_name(self) -> None:
        place = self._section.places[self._name]
        if not self._name.strip():
            self._report.error(place, "selectors", "selectors: selector names cannot be empty")
        elif self._name in self._config.models:
            self._report.error(place, self._path, f'{self._path}: name conflicts with model ID "{self._name}"')
        elif self._config.resolve(self._name) is not None:
            self._report.error(place, self._path, f'{self._path}: name conflicts with model alias "{self._name}"')

    def _error(self, key: str, message: str, hint: str = "") -> None:
        self._report.error(self._node.where(key), f"{self._path}.{key}", message, hint)

    def _resolved(self, target: str) -> tuple[str, bool] | None:
        """The full name of a target, and whether it is local; None for an unknown one."""
        if (model := self._config.resolve(target)) is not None:
            return model, True
        if (peer := self._config.resolve_peer(target)) is not None:
            return "/".join(peer), False
        return None

    def _check_targets(self, strategy: str) -> None:
        for at, (target, place) in enumerate(texts_of(self._node.get("targets"))):
            path = f"{self._path}.targets[{at}]"
            found = self._resolved(target)
            if target in self._section.entries:
                message = f'{path} references selector "{target}"; selector chaining is not supported'
                self._report.error(place, path, message)
            elif found is None:
                message = f'{path} references unknown model "{target}"'
                self._report.error(place, path, message, self._near(target))
            elif strategy == "warm" and not found[1]:
                self._report.error(place, path, f'{path} must resolve to a local model for strategy "warm"')

    def _near(self, target: str) -> str:
        return self._report.did_you_mean(target, (*self._config.names, *self._config.peer_names))

    def _check_spillover(self, selector: Selector) -> None:
        if selector.spillover < 1:
            place = place_of(self._node.get("settings"), "spillover", self._node)
            message = f"{self._path}.settings.spillover must be >= 1"
            self._report.error(place, f"{self._path}.settings.spillover", message)
        seen: set[str] = set()
        local: dict[str, None] = {}
        for target in selector.targets:
            found = self._resolved(target)
            if found is None:
                continue
            name, is_local = found
            if name in seen:
                self._error("targets", f'{self._path}.targets contains duplicate resolved model "{name}"')
            seen.add(name)
            if is_local:
                local[name] = None
        if len(local) > 1:
            self._check_side_by_side(local)

    def _check_side_by_side(self, local: Collection[str]) -> None:
        """Local targets have to be able to run beside each other."""
        matrix = self._config.matrix
        if self._config.router == "matrix":
            if matrix is not None and not language.together(matrix, local):
                self._error("targets", f"{self._path}.targets must all appear together in one expanded matrix set")
            return
        if self._config.router == "budget" or not self._config.groups:
            return
        group_of = {member: group for group in self._config.groups.values() for member in group.members}
        groups = {group_of[model].id: group_of[model] for model in local}
        if len(groups) > 1:
            hint = f"now they are in: {', '.join(groups)}"
            self._error("targets", f"{self._path} spillover targets must share one routing group", hint)
        if any(group.swap for group in groups.values()):
            self._error("targets", f"{self._path} spillover targets must share a group with swap: false")
