"""Names of local models, and where names of any kind collide.

The rules are those of the configuration reference, section 8: an alias belongs to one model, keys of
`filters.setParamsByID` become aliases, and `<peer>/<model>` is nobody else's name. Read `peers` next.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lswap.core.config.context import Context
from lswap.core.config.model_node import ModelNode
from lswap.core.config.nodes import Map, below, place_of, texts_of
from lswap.core.model import Config, Model

__all__ = ["add_aliases", "check_qualified"]


def add_aliases(context: Context, models: dict[str, Model], nodes: Mapping[str, ModelNode]) -> dict[str, Model]:
    """The models with the names that `filters.setParamsByID` makes; collisions are reported."""
    owner: dict[str, str] = {}
    for model_id, node in nodes.items():
        for at, (alias, place) in enumerate(texts_of(node.body.get("aliases"))):
            path = f"{node.path}.aliases[{at}]"
            if alias in owner:
                message = f"duplicate alias {alias} found in model: {model_id}"
                context.report.error(place, path, message, f"model {owner[alias]} has it already")
            owner.setdefault(alias, model_id)
            if alias in models and alias != model_id:
                context.report.warn(place, path, f'"{alias}" always means the model of that name', "remove this alias")
            elif not alias.strip():
                context.report.warn(place, path, "a blank name can hardly be asked for")
    return {
        model_id: _with_generated(context, model, nodes[model_id], models, owner) for model_id, model in models.items()
    }


def _with_generated(
    context: Context, model: Model, node: ModelNode, models: Mapping[str, Model], owner: dict[str, str]
) -> Model:
    table = below(node.body, "filters", "setParamsByID")
    path = f"{node.path}.filters.setParamsByID"
    added: list[str] = []
    for key in model.filters.set_params_by_id:
        place = table.places.get(key, node.place) if isinstance(table, Map) else node.place
        if key == model.id:
            continue
        if key in models:
            message = f"model {model.id} filters.setParamsByID: key '{key}' conflicts with an existing model ID"
            context.report.error(place, f"{path}.{key}", message)
        elif owner.setdefault(key, model.id) != model.id:
            message = (
                f"duplicate alias '{key}' in model {model.id} filters.setParamsByID, already used by model {owner[key]}"
            )
            context.report.error(place, f"{path}.{key}", message)
        elif key not in model.aliases:
            added.append(key)
    return msgspec.structs.replace(model, aliases=(*model.aliases, *added)) if added else model


def check_qualified(context: Context, config: Config, nodes: Mapping[str, ModelNode]) -> None:
    """`<peer>/<model>` is reserved: nobody else may have such a name."""
    peers = _mapping(context, "peers")
    names: dict[str, tuple[str, str]] = {}
    for peer in config.peers.values():
        for name in peer.models:
            full = f"{peer.id}/{name}"
            other = names.setdefault(full, (peer.id, name))
            if other != (peer.id, name):
                context.report.error(
                    place_of(below(peers, peer.id), "models", peers),
                    f"peers.{peer.id}.models",
                    f'peer model name "{full}" is ambiguous between peers.{other[0]} model "{other[1]}"'
                    f' and peers.{peer.id} model "{name}"',
                )
    told = "conflicts with fully qualified peer model name"
    for model in config.models.values():
        node = nodes[model.id]
        if model.id in names:
            context.report.error(node.place, node.path, f'model ID "{model.id}" {told}')
        for alias in model.aliases:
            if alias in names:
                context.report.error(
                    node.body.where("aliases"), f"{node.path}.aliases", f'model {model.id} alias "{alias}" {told}'
                )
    selectors, profiles = _mapping(context, "selectors"), _mapping(context, "profiles")
    for name in config.selectors:
        if name in names:
            context.report.error(selectors.places[name], f"selectors.{name}", f'selector ID "{name}" {told}')
    for profile in config.profiles.values():
        for pin in profile.pins:
            if pin in names:
                place = place_of(below(profiles, profile.id), "pins", profiles)
                message = f'profile {profile.id} pin "{pin}" {told}'
                context.report.error(place, f"profiles.{profile.id}.pins.{pin}", message)


def _mapping(context: Context, key: str) -> Map:
    node = context.root.get(key)
    return node if isinstance(node, Map) else Map()
