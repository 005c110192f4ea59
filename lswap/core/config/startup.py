"""What is loaded without being asked for: `hooks.on_startup.preload` and `fallback`."""

from __future__ import annotations

from lswap.core import matrix as language
from lswap.core.config.context import Context
from lswap.core.config.convert import ABSENT
from lswap.core.config.layout import HooksSection, Startup
from lswap.core.config.nodes import Map
from lswap.core.config.problems import Place
from lswap.core.model import Config

__all__ = ["read_fallback", "read_preload"]

_PATH = "hooks.on_startup.preload"


def read_preload(context: Context, config: Config) -> tuple[str, ...]:
    """The models to load at start, by ID and in order; a name that is none is an error, a peer's is left out."""
    walker = context.walker
    hooks = walker.mapping(context.root.get("hooks"), "hooks")
    walker.section(hooks, HooksSection, "hooks")
    startup = walker.mapping(hooks.get("on_startup"), "hooks.on_startup") if hooks else None
    if startup is None:
        return ()
    expanded = context.expand(startup, "hooks.on_startup")
    walker.section(expanded, Startup, "hooks.on_startup")
    found: list[str] = []
    listed = expanded.get("preload") if isinstance(expanded, Map) else None
    for at, item in enumerate(walker.items(listed, _PATH)):
        text = walker.text(item, f"{_PATH}[{at}]")
        name = "" if text is ABSENT else text.strip()
        if not name:
            continue
        model = config.resolve(name)
        if model is not None:
            _warn_of_eviction(context, config, found, model, item.place, f"{_PATH}[{at}]")
            found.append(model)
        elif config.resolve_peer(name) is not None or name in config.selectors:
            context.report.warn(item.place, f"{_PATH}[{at}]", f'preload: "{name}" is no local model and is left out')
        else:
            hint = context.report.did_you_mean(name, config.names)
            context.report.error(item.place, f"{_PATH}[{at}]", f'preload: unknown model "{name}"', hint)
    return tuple(found)


def _warn_of_eviction(
    context: Context, config: Config, earlier: list[str], model: str, place: Place, path: str
) -> None:
    """A preload never evicts an earlier one: it would be left out."""
    in_the_way = [other for other in dict.fromkeys(earlier) if other != model and _evicts(config, model, other)]
    if in_the_way:
        message = f"preload: {model} cannot be loaded beside {', '.join(in_the_way)}"
        context.report.warn(place, path, message, "put them into one group with swap: false")


def _evicts(config: Config, model: str, other: str) -> bool:
    """Whether loading a model unloads another one."""
    if config.matrix is not None and config.router == "matrix":
        return not language.together(config.matrix, (model, other))
    group_of = {member: group for group in config.groups.values() for member in group.members}
    mine, theirs = group_of.get(model), group_of.get(other)
    if mine is None or theirs is None:
        return False
    return mine.swap if mine is theirs else mine.exclusive and not theirs.persistent


def read_fallback(context: Context, config: Config) -> str | None:
    """The model of the key `fallback`, by ID."""
    name = config.fallback
    if not name:
        return None
    model = config.resolve(name)
    if model is None:
        hint = context.report.did_you_mean(name, config.names)
        context.report.error(context.root.where("fallback"), "fallback", f'fallback: unknown model "{name}"', hint)
    return model
