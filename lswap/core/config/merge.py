"""Several sources → one document. The table of the reference's configuration, section 2.

Differs from it in two points: every null yields to a value (not only the empty spelling), and so does a null in place
of a whole section. Nodes keep their places, so later messages name the right file. Read `macros` next.
"""

from __future__ import annotations

from lswap.core.config.nodes import Map, Node, Scalar, Seq, is_null, kind
from lswap.core.config.problems import Report

__all__ = ["merge"]

#: The mappings whose children are whole things: one source has to define each.
_IDENTITY = {
    "models",
    "groups",
    "profiles",
    "selectors",
    "peers",
    "matrix",
    "routing.router.settings.groups",
    "routing.router.settings.matrix",
}


def merge(first: Map, second: Map, report: Report) -> Map:
    """A new mapping with the entries of both; conflicts are reported, and `first` prevails."""
    return _merge(first, second, "", report)


def _merge(first: Map, second: Map, path: str, report: Report) -> Map:
    result = Map(first.place)
    result.entries, result.places = dict(first.entries), dict(first.places)
    result.repeats = first.repeats + second.repeats
    for key, node in second.entries.items():
        place = second.places[key]
        old = result.entries.get(key)
        where = f"{path}.{key}" if path else key
        if old is None:
            result.put(key, node, place)
        elif is_null(node):
            continue
        elif is_null(old):
            result.put(key, node, place)
        elif path in _IDENTITY:
            name = path.rpartition(".")[2]
            report.error(
                place,
                where,
                f'duplicate {name} "{key}" found in {_file(node, report)} (already defined in another config source)',
            )
        else:
            result.entries[key] = _join(old, node, where, report)
    return result


def _join(old: Node, new: Node, path: str, report: Report) -> Node:
    if isinstance(old, Map) and isinstance(new, Map):
        return _merge(old, new, path, report)
    if path in _IDENTITY:
        at = old if isinstance(new, Map) else new
        report.error(at.place, path, f'conflict at "{path}": expected a mapping, introduced by {_file(at, report)}')
    elif isinstance(old, Seq) and isinstance(new, Seq):
        return Seq([*old.items, *new.items], old.place)
    elif isinstance(old, Scalar) and isinstance(new, Scalar):
        if (type(old.value), old.text) != (type(new.value), new.text):
            report.error(
                new.place,
                path,
                f'conflict at "{path}": {_file(new, report)} sets a different value than a previous source',
            )
    else:
        report.error(
            new.place,
            path,
            f'conflict at "{path}": incompatible YAML node kinds'
            f" (kind {kind(old)} vs {kind(new)}) introduced by {_file(new, report)}",
        )
    return old


def _file(node: Node, report: Report) -> str:
    return report.locate(node.place)[0]
