"""The section `profiles`: names that are switched on together (configuration reference, section 8.4)."""

from __future__ import annotations

from lswap.core.config.context import Context
from lswap.core.config.nodes import Map, is_bad, is_null, pairs_of
from lswap.core.model import Config, Profile

__all__ = ["read_profiles"]


def read_profiles(context: Context, config: Config) -> dict[str, Profile]:
    """The section `profiles`; `config` has models, peers and selectors."""
    section = context.walker.mapping(context.section("profiles"), "profiles")
    found: dict[str, Profile] = {}
    for name, entry in pairs_of(section):
        assert section is not None
        path, place = f"profiles.{name}", section.places[name]
        if not name.strip():
            context.report.error(place, "profiles", "profiles: profile names cannot be empty")
        if not isinstance(entry, Map) and not is_null(entry):
            if not is_bad(entry):
                message = (
                    "profile must be a mapping with description and pins; the legacy list syntax is no longer supported"
                )
                context.report.error(entry.place, path, message)
            continue
        found[name] = _profile(context, config, name, entry if isinstance(entry, Map) else Map(place))
    return found


def _profile(context: Context, config: Config, name: str, node: Map) -> Profile:
    path = f"profiles.{name}"
    values = context.walker.section(node, Profile, path)
    pins, table = values.get("pins", {}), node.get("pins")
    if is_null(table) or (isinstance(table, Map) and not table.entries):
        context.report.error(node.where("pins"), f"{path}.pins", f"{path}.pins must contain at least one entry")
    for pin, target in pins.items():
        assert isinstance(table, Map)
        if not pin.strip():
            context.report.error(table.places[pin], f"{path}.pins", f"{path}.pins: pin names cannot be empty")
        known = config.resolve(target) or config.resolve_peer(target) or target in config.selectors
        if target and not known:
            message = f'{path}.pins.{pin} references unknown model "{target}"'
            hint = context.report.did_you_mean(target, (*config.names, *config.peer_names, *config.selectors))
            context.report.error(table.where(pin), f"{path}.pins.{pin}", message, hint)
    return Profile(id=name, **values)
