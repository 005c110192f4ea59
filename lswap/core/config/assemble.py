"""One document → the configuration: walks the sections in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lswap.core.config.access import read_keys
from lswap.core.config.aliases import add_aliases, check_qualified
from lswap.core.config.context import Context
from lswap.core.config.hooks import GlobalHooks
from lswap.core.config.models import Globals, read_models
from lswap.core.config.nodes import Map
from lswap.core.config.peers import read_peers
from lswap.core.config.problems import Report
from lswap.core.config.profiles import read_profiles
from lswap.core.config.routing import read_routing
from lswap.core.config.selectors import read_selectors
from lswap.core.config.startup import read_fallback, read_preload
from lswap.core.config.top import read_top
from lswap.core.model import Config

__all__ = ["assemble"]


def assemble(context: Context, environ: Mapping[str, str], ports: Mapping[str, int]) -> Config:
    """The configuration; what is wrong is in the report, and has its default in the result."""
    values = read_top(context)
    general = GlobalHooks(context)
    models, nodes = read_models(context, Globals(values), general, ports)
    general.check_unused()
    models = add_aliases(context, models, nodes)
    config = Config(models=models, peers=read_peers(context), api_keys=read_keys(context, environ), **values)
    config = msgspec.structs.replace(config, **read_routing(context, config))
    config = msgspec.structs.replace(config, selectors=read_selectors(context, config))
    config = msgspec.structs.replace(config, profiles=read_profiles(context, config))
    check_qualified(context, config, nodes)
    config = msgspec.structs.replace(
        config, preload=read_preload(context, config), fallback=read_fallback(context, config)
    )
    for node, path in context.document.repeated:
        if node.place not in context.may_repeat:
            _tell_repeats(node, path, context.report)
    return config


def _tell_repeats(node: Map, path: str, report: Report) -> None:
    for key, place, _ in node.repeats:
        line = report.locate(node.places[key])[1]
        where = f"{path}.{key}" if path else key
        report.error(place, where, f'mapping key "{report.shown(key)}" already defined at line {line}')
