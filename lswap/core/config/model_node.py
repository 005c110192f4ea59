"""One entry of `models` on its way: its own macros, its port, and the expansion of all its values.

Decides what each message about a macro that is left over says (configuration reference, section 4.4). Read `models`
next: what is made of the expanded values.
"""

from __future__ import annotations

from lswap.core import command
from lswap.core.config import macros
from lswap.core.config.context import Context
from lswap.core.config.layout import EVENTS
from lswap.core.config.nodes import Map, Node, Scalar, is_bad, is_null
from lswap.core.config.problems import Place
from lswap.core.config.scalars import BAD, Value

__all__ = ["ModelNode"]

_DEFAULT_PROXY = "http://localhost:${PORT}"
_NEEDS_PORT = "${PORT}"
#: Fields in which messages about macros name `<model>.<field>`.
_FOUND_IN = {"cmd", "cmdStop", "proxy", "checkEndpoint", "name", "description", "filters.stripParams"}
_OWN_ONLY = ("PORT", "MODEL_ID")
#: Where `${PID}` may stay: it is filled in when these run.
_AT_RUN_TIME = ("cmdStop", "sleep", *EVENTS)


class ModelNode:
    """One entry of `models` on its way."""

    def __init__(self, context: Context, model_id: str, node: Map | None, place: Place) -> None:
        """`node` is None for an entry that is null: a model that has nothing at all."""
        #: Whether the entry is null.
        self.nothing = node is None
        node = Map(place) if node is None else node
        self.id = model_id
        self.path = f"models.{model_id}"
        self.place = place
        own = macros.declare(node.get("macros"), f"{self.path}.macros", f"model {model_id}: ", context.report)
        self.macros = context.macros.for_model(model_id, own)
        self.macro_names = (*context.macro_names, *own)
        self.body = _prepared(node, place, not self.nothing)
        self.port: int | None = None
        self._context = context

    def needs_port(self) -> bool:
        """Whether the command uses `${PORT}`, once its other macros are replaced."""
        node = self.body.get("cmd")
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or "${" not in node.value:
            return False
        value = self.macros.text(node.value, node.place, f"{self.path}.cmd")
        return isinstance(value, str) and _NEEDS_PORT in value

    def take_port(self, port: int) -> None:
        """Use this number for `${PORT}`."""
        self.port = port
        self.macros = self.macros.with_port(port)

    def expand(self) -> None:
        """Apply the macros to everything; what is left over is reported."""
        self._check_proxy()
        self._expand_keys()
        body = macros.rewrite(self.body, "", self.visit)
        assert isinstance(body, Map)
        self.body = body

    def _check_proxy(self) -> None:
        """A proxy with `${PORT}` needs a command with it; told once, and more clearly than as an unknown macro."""
        node = self.body.get("proxy")
        cmd = self.body.get("cmd")
        if self.port is not None or not isinstance(node, Scalar) or not isinstance(node.value, str):
            return
        value = self.macros.text(node.value, node.place, f"{self.path}.proxy")
        if isinstance(value, str) and _NEEDS_PORT in value:
            self._put("proxy", Scalar(BAD, node.place))
            if is_bad(cmd):
                return
            self._context.report.error(
                node.place,
                f"{self.path}.proxy",
                f"model {self.id}: proxy uses ${{PORT}} but cmd does not"
                " - ${PORT} is only available when used in cmd",
                "use ${PORT} in cmd, or set proxy to the address of the server",
            )

    def _expand_keys(self) -> None:
        """Replace macros in the keys of filters.setParamsByID."""
        filters = self.body.get("filters")
        table = filters.get("setParamsByID") if isinstance(filters, Map) else None
        if not isinstance(filters, Map) or not isinstance(table, Map):
            return
        path = "filters.setParamsByID"
        renamed, collisions = macros.rename(table, path, self._visit_key)
        for first, second, place in collisions:
            self._context.report.error(
                place,
                f"{self.path}.{path}",
                f'model {self.id} {path}: keys "{first}" and "{second}" resolve to the same value',
            )
        copy = Map(filters.place)
        copy.entries = {**filters.entries, "setParamsByID": renamed}
        copy.places = filters.places
        self._put("filters", copy)

    def _put(self, key: str, node: Node) -> None:
        self.body.entries[key] = node

    def _visit_key(self, text: str, place: Place, path: str) -> Value:
        return self._visit(text, place, path, key=True)

    def visit(self, text: str, place: Place, path: str) -> Value:
        """A text with the macros applied; `path` is the one below the model."""
        return self._visit(text, place, path)

    def _visit(self, text: str, place: Place, path: str, key: bool = False) -> Value:
        value = self.macros.text(text, place, f"{self.path}.{path}")
        if not isinstance(value, str) or "${" not in value:
            return value
        bad = False
        for name, of_environment in dict.fromkeys(macros.leftovers(value)):
            top = path.partition(".")[0].partition("[")[0]
            if name == "PID" and not of_environment and top in _AT_RUN_TIME:
                continue
            bad = True
            hint = "" if of_environment else self._context.macro_hint(name, self.macro_names)
            message = self._wording(name, of_environment, path, key)
            at = self._context.report.use_of(name, text, place)
            self._context.report.error(at, f"{self.path}.{path}", message, hint)
        return BAD if bad else value

    def _wording(self, name: str, of_environment: bool, path: str, key: bool) -> str:
        if of_environment:
            return f"environment variable '{name}' not set"
        if key:
            return f"unknown macro '${{{name}}}' found in model {self.id} filters.setParamsByID key"
        if path in _FOUND_IN:
            if name in _OWN_ONLY:
                return f"macro '${{{name}}}' should have been substituted in {self.id}.{path}"
            return f"unknown macro '${{{name}}}' found in {self.id}.{path}"
        top = path.partition(".")[0]
        field = top if top in ("capabilities", "metadata") else _without_indices(path)
        return f"model {self.id} {field}: unknown macro '${{{name}}}'"


def _without_indices(path: str) -> str:
    return ".".join(part.partition("[")[0] for part in path.split("."))


def _prepared(node: Map, place: Place, with_proxy: bool) -> Map:
    """A copy without macros, with comment lines dropped from the commands and the default proxy filled in."""
    body = Map(node.place)
    body.entries = {key: value for key, value in node.entries.items() if key != "macros"}
    body.places = node.places
    body.repeats = node.repeats
    for key in ("cmd", "cmdStop"):
        value = body.get(key)
        if isinstance(value, Scalar) and isinstance(value.value, str) and "#" in value.value:
            body.entries[key] = Scalar(command.strip_comments(value.value), value.place, value.text)
    if is_null(body.get("proxy")) and with_proxy:
        body.entries["proxy"] = Scalar(_DEFAULT_PROXY, place)
    return body
