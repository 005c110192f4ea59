"""The parts that models and peers have in common: filters and timeouts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from lswap.core.config.context import Context
from lswap.core.config.convert import fields_of
from lswap.core.config.nodes import Map, Node, Scalar, Seq, is_null, pairs_of
from lswap.core.config.problems import Place
from lswap.core.model import Filters, Timeouts

__all__ = ["read_filters", "read_timeouts"]


def read_filters(context: Context, node: Node | None, path: str, old_name: bool = False) -> Filters:
    """The filters in the form in which they are applied. `old_name`: `strip_params` is known."""
    mapping = context.walker.mapping(node, path)
    if mapping is None:
        return Filters()
    values = context.walker.section(mapping, Filters, path, more=("strip_params",) if old_name else ())
    if old_name and _is_blank(mapping.get("stripParams")) and (old := mapping.get("strip_params")) is not None:
        again = Map(mapping.place)
        again.put("stripParams", old)
        values |= context.walker.section(again, Filters, path)
    for key in ("setParams", "setParamsByID"):
        for where, place in _not_for_json(mapping.get(key), f"{path}.{key}"):
            context.report.error(place, where, "JSON has no such number")
    values["set_params"] = _in_order(values.get("set_params", {}))
    by_id = values.get("set_params_by_id", {})
    values["set_params_by_id"] = {key: _in_order(params) for key, params in by_id.items()}
    return Filters(**values)


def _is_blank(node: Node | None) -> bool:
    return is_null(node) or (isinstance(node, Scalar) and node.value == "")


def _in_order(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in sorted(params) if key != "model"}


def _not_for_json(node: Node | None, path: str) -> Iterator[tuple[str, Place]]:
    if isinstance(node, Scalar):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            yield path, node.place
    elif isinstance(node, Seq):
        for at, item in enumerate(node.items):
            yield from _not_for_json(item, f"{path}[{at}]")
    for key, value in pairs_of(node):
        yield from _not_for_json(value, f"{path}.{key}")


def read_timeouts(context: Context, node: Node | None, path: str, default: Timeouts) -> Timeouts:
    """The timeouts; a negative one is told and counts as 0."""
    mapping = context.walker.mapping(node, path)
    if mapping is None:
        return default
    values = context.walker.section(mapping, Timeouts, path)
    for key, field in fields_of(Timeouts).items():
        if values.get(field.name, 0) < 0:
            context.report.warn(mapping.where(key), f"{path}.{key}", "a negative time counts as 0")
            values[field.name] = 0
    return msgspec.structs.replace(default, **{name: float(value) for name, value in values.items()})
