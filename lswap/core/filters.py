"""What the filters of a model or peer do to a request: turns them into edits of its JSON body.

Order: the name that the server is asked for, `stripParams`, `setParams`, `setParamsByID` of the requested name; in each
the paths in sorted order, so that later ones win. `model` is never stripped or set by a filter.
Edits are made once for a configuration, not for each request. Read `lswap.core.edit_json` next.
Source: HTTP reference, section 7.3; the key `filters`.
"""

from __future__ import annotations

from collections.abc import Iterable

from lswap.core.edit_json import Edit, Step, encoded, parse_path
from lswap.core.model import Config, Filters

__all__ = ["Edits", "edit_of"]

#: The one member that filters leave alone.
_MODEL = "model"


def edit_of(filters: Filters, requested: str, name: str | None) -> Edit | None:
    """The edit for a request that asks for `requested`; None when nothing is to be done.

    `name` takes the place of the model's name in the body, None leaves it.
    """
    steps = [] if name is None else [Step((_MODEL,), encoded(name), _MODEL)]
    steps += _steps((label, None) for label in sorted(filters.strip_params))
    for values in (filters.set_params, filters.set_params_by_id.get(requested, {})):
        steps += _steps((label, encoded(value)) for label, value in sorted(values.items()))
    return Edit(steps) if steps else None


def _steps(items: Iterable[tuple[str, bytes | None]]) -> list[Step]:
    steps = [Step(parse_path(label), value, label) for label, value in items]
    return [step for step in steps if step.path[0] != _MODEL]


class Edits:
    """The edits of the configuration in force."""

    def __init__(self) -> None:
        self._config: Config | None = None
        self._made: dict[tuple[int, str, str | None], tuple[Filters, Edit | None]] = {}

    def find(self, config: Config, filters: Filters, requested: str, name: str | None) -> Edit | None:
        """See `edit_of`; `filters` are those of a model or peer of `config`, both names come from it too."""
        if name is None and not (filters.strip_params or filters.set_params or filters.set_params_by_id):
            return None
        if config is not self._config:
            self._config = config
            self._made = {}
        key = (id(filters), requested if requested in filters.set_params_by_id else "", name)
        made = self._made.get(key)
        if made is None:  # the filters are kept, so that their identity stays theirs
            made = self._made[key] = (filters, edit_of(filters, requested, name))
        return made[1]
