"""Who may run beside whom, and who is served first: groups, matrix, scheduler.

Decides which of the two spellings counts (configuration reference, section 9), the final groups with `(default)`, the
matrix with model IDs in place of names, and priorities by model ID. Read `names` next.
"""

from __future__ import annotations

from typing import Any

from lswap.core import matrix as language
from lswap.core.config.context import Context
from lswap.core.config.convert import ABSENT
from lswap.core.config.layout import Router, RouterSettings, Routing
from lswap.core.config.matrices import MatrixReader
from lswap.core.config.nodes import Map, Node, is_null, pairs_of
from lswap.core.config.problems import NOWHERE, Place
from lswap.core.model import DEFAULT_GROUP, Config, Group

__all__ = ["read_routing"]

_LEGACY = (
    "config uses both the legacy top-level 'matrix'/'groups' keys and the new 'routing.router' block;"
    " please migrate to 'routing.router'"
)
_NEW_GROUPS = "routing.router.settings.groups"
_NEW_MATRIX = "routing.router.settings.matrix"


def read_routing(context: Context, config: Config) -> dict[str, Any]:
    """The fields of the configuration about routing; `config` has models and API keys."""
    return _Routing(context, config).read()


class _Routing:
    def __init__(self, context: Context, config: Config) -> None:
        self._context = context
        self._report = context.report
        self._models = config.models
        self._resolve = config.resolve
        self._keys = {key.name for key in config.api_keys} - {""}

    def read(self) -> dict[str, Any]:
        walker = self._context.walker
        routing = walker.mapping(self._context.section("routing"), "routing")
        values = walker.section(routing, Routing, "routing")
        router = walker.mapping(_child(routing, "router"), "routing.router")
        use = walker.section(router, Router, "routing.router").get("use", "")
        settings = walker.mapping(_child(router, "settings"), "routing.router.settings")
        walker.section(settings, RouterSettings, "routing.router.settings")
        result: dict[str, Any] = {}
        if "scheduler" in values:
            result.update(self._scheduler(routing, values["scheduler"]))
        result.update(self._router(router, use, settings))
        return result

    # -- which rules ------------------------------------------------------------

    def _router(self, router: Map | None, use: str, settings: Map | None) -> dict[str, Any]:
        groups, matrix = self._context.section("groups"), self._context.section("matrix")
        new_groups, new_matrix = _child(settings, "groups"), _child(settings, "matrix")
        old = bool(isinstance(groups, Map) and groups.entries) or not is_null(matrix)
        new = bool(use) or not is_null(new_matrix) or bool(isinstance(new_groups, Map) and new_groups.entries)
        if isinstance(groups, Map) and groups.entries and not is_null(matrix):
            self._error(self._context.root.places["matrix"], "matrix", "config cannot use both 'groups' and 'matrix'")
        if old and new:
            key = "groups" if isinstance(groups, Map) and groups.entries else "matrix"
            self._error(self._context.root.places[key], key, _LEGACY, "move it below routing.router.settings")
            return {}
        if not is_null(matrix):
            return {"router": "matrix", "matrix": self._matrix(matrix, "matrix")}
        if not new:
            return {"groups": self._groups(groups, "groups")}
        place = router.where("use") if router is not None else NOWHERE
        if use == "" and not is_null(new_matrix):
            assert isinstance(settings, Map)
            message = "this has no effect without routing.router.use: matrix"
            self._report.warn(settings.places["matrix"], _NEW_MATRIX, message)
        if use in ("", "group"):
            return {"groups": self._groups(new_groups, _NEW_GROUPS)}
        if use == "matrix":
            if is_null(new_matrix):
                message = "routing.router.use is 'matrix' but routing.router.settings.matrix is not set"
                self._error(place, "routing.router.use", message)
                return {}
            return {"router": "matrix", "matrix": self._matrix(new_matrix, _NEW_MATRIX)}
        if use == "budget":
            return self._budget(place, new_groups, new_matrix)
        message = f'routing.router.use: unknown router "{self._report.shown(use)}" (valid: group, matrix, budget)'
        self._error(place, "routing.router.use", message)
        return {}

    def _budget(self, place: Place, groups: Node | None, matrix: Node | None) -> dict[str, Any]:
        """Groups and matrix are constraints above the budgets; a model in no group has no other constraint."""
        if is_null(self._context.root.get("budgets")):
            self._error(place, "routing.router.use", "routing.router.use is 'budget' but budgets is not set")
        result: dict[str, Any] = {"router": "budget", "groups": self._groups(groups, _NEW_GROUPS)}
        del result["groups"][DEFAULT_GROUP]
        if not is_null(matrix):
            result["matrix"] = self._matrix(matrix, _NEW_MATRIX)
        return result

    def _error(self, place: Place, path: str, message: str, hint: str = "") -> None:
        self._report.error(place, path, message, hint)

    # -- groups -------------------------------------------------------------------

    def _groups(self, node: Node | None, path: str) -> dict[str, Group]:
        groups: dict[str, Group] = {}
        owner: dict[str, str] = {}
        mapping = self._context.walker.mapping(node, path)
        for name, entry in pairs_of(mapping):
            where = f"{path}.{name}"
            values = self._context.walker.section(entry, Group, where)
            members = self._members(name, entry, where, owner)
            groups[name] = Group(id=name, **values | {"members": members})
        if DEFAULT_GROUP in groups:
            assert mapping is not None
            self._report.warn(
                mapping.places[DEFAULT_GROUP],
                f"{path}.{DEFAULT_GROUP}",
                "this is the name of the group of all other models; only its members count",
                "give it another name",
            )
        rest = [model for model in self._models if owner.get(model, DEFAULT_GROUP) == DEFAULT_GROUP]
        groups[DEFAULT_GROUP] = Group(id=DEFAULT_GROUP, members=tuple(sorted(rest, key=str.encode)))
        return groups

    def _members(self, group: str, entry: Node, path: str, owner: dict[str, str]) -> tuple[str, ...]:
        """The members by model ID; an alias stands for its model."""
        members: dict[str, None] = {}
        listed = entry.get("members") if isinstance(entry, Map) else None
        if is_null(listed):
            return ()
        for at, item in enumerate(self._context.walker.items(listed, f"{path}.members")):
            where = f"{path}.members[{at}]"
            name = self._context.walker.text(item, where)
            if name is ABSENT:
                continue
            model = self._resolve(name)
            if model is None:
                self._error(item.place, where, f'group {group}: no model config for "{name}"', self._near(name))
            elif model in members:
                self._error(item.place, where, f"duplicate model member {name} found in group: {group}")
            elif model in owner:
                message = f"model member {name} is used in multiple groups: {owner[model]} and {group}"
                self._error(item.place, where, message)
            else:
                members[model] = None
                owner[model] = group
        return tuple(members)

    def _near(self, name: str) -> str:
        return self._report.did_you_mean(name, self._models)

    def _near_key(self, name: str) -> str:
        return self._report.did_you_mean(name, self._keys)

    # -- matrix -------------------------------------------------------------------

    def _matrix(self, node: Node | None, path: str) -> language.Matrix | None:
        return MatrixReader(self._context, self._models, node, path).read()

    # -- scheduler ----------------------------------------------------------------

    def _scheduler(self, routing: Map | None, values: Any) -> dict[str, Any]:
        scheduler = _child(routing, "scheduler")
        assert isinstance(scheduler, Map)
        use = values.use
        if use not in ("", "fifo", "fair"):
            message = f'routing.scheduler.use: unknown scheduler "{self._report.shown(use)}" (valid: fifo, fair)'
            self._error(scheduler.where("use"), "routing.scheduler.use", message)
            use = ""
        priorities: dict[str, int] = {}
        path = "routing.scheduler.settings.fifo.priority"
        table = _child(_child(_child(scheduler, "settings"), "fifo"), "priority")
        for name, priority in values.settings.fifo.priority.items():
            model = self._resolve(name)
            if model is None:
                assert isinstance(table, Map)
                message = f'{path} references unknown model "{name}"'
                self._error(table.places[name], f"{path}.{name}", message, self._near(name))
            elif name == model or model not in priorities:
                priorities[model] = priority
        for name in values.settings.fair.weights:
            if name not in self._keys:
                message = f'no API key has the name "{self._report.shown(name)}"'
                where = "routing.scheduler.settings.fair.weights"
                self._report.warn(scheduler.where("settings"), where, message, self._near_key(name))
        return {"scheduler": use or "fifo", "priorities": priorities, "fair": values.settings.fair}


def _child(node: Node | None, key: str) -> Node | None:
    return node.get(key) if isinstance(node, Map) else None
