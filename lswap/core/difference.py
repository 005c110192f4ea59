"""What a new configuration changes about running models: kept, changed, added, removed.

A model is unchanged when what its process was started with is: effective command, environment, proxy, check endpoint
and stop command. Everything else takes effect without a restart. `lswap.service.reload` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lswap.core.command import split
from lswap.core.model import Config, Model

__all__ = ["Difference", "difference", "same_process"]


class Difference(msgspec.Struct, frozen=True):
    """Model IDs in byte order, running or not; each model is in exactly one list."""

    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]


def difference(old: Config, new: Config) -> Difference:
    """Compare the models of two configurations."""
    both = [name for name in new.models if name in old.models]
    kept = {name for name in both if same_process(old.models[name], new.models[name])}
    return Difference(
        changed=_sorted(name for name in both if name not in kept),
        added=_sorted(name for name in new.models if name not in old.models),
        removed=_sorted(name for name in old.models if name not in new.models),
        kept=_sorted(kept),
    )


def same_process(old: Model, new: Model) -> bool:
    """Whether a process that was started for `old` is as good for `new`. Another spelling of a command is no change."""
    return (
        old.words == new.words
        and old.proxy == new.proxy
        and old.check_endpoint == new.check_endpoint
        and (old.env == new.env or _environment(old) == _environment(new))
        and (old.cmd_stop == new.cmd_stop or split(old.cmd_stop) == split(new.cmd_stop))
    )


def _environment(model: Model) -> Mapping[str, str]:
    pairs = (entry.partition("=") for entry in model.env)
    return {name: value for name, _, value in pairs}


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=str.encode))
