"""Sources of text → `lswap.core.model.Config`, with all complaints at once.

The stages, each its own module: `read` (environment, YAML, merge), macros and ports (`context`, `models`), typed
values (`convert`, by the structs of `lswap.core.model` and `layout`), names and routing. Nothing here touches a file:
`lswap.net.config_files` reads the sources and checks what only the machine knows. Start with `read`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lswap.core.config.assemble import assemble
from lswap.core.config.context import Context
from lswap.core.config.problems import Problem, Report, Source
from lswap.core.config.read import read
from lswap.core.config.secrets import hide_secrets
from lswap.core.model import Config

__all__ = ["Loaded", "Problem", "Source", "load"]


class Loaded(msgspec.Struct, frozen=True):
    """What became of the sources."""

    #: None if there are problems.
    config: Config | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    #: Path of a value to its file, line and column, for checks that need the machine: `store.path`,
    #: `apiKeys[0].keyFile`, `models.<id>.cmd`.
    places: dict[str, tuple[str, int, int]] = {}
    #: Sources that have an API key written in them.
    secret_files: tuple[str, ...] = ()


def load(sources: Sequence[Source], environ: Mapping[str, str], ports: Mapping[str, int] | None = None) -> Loaded:
    """The configuration of all sources together, in their order.

    `ports`: the numbers that models had before a reload; they are kept where possible. Never raises for bad input.
    """
    report = Report()
    document = read(sources, environ, report)
    if document is None:
        return Loaded(None, report.problems, report.warnings)
    secret_files = hide_secrets(document.root, report)
    context = Context(report, document)
    config = assemble(context, environ, ports or {})
    return Loaded(
        None if report.count else config,
        report.problems,
        report.warnings,
        {path: report.locate(place) for path, place in context.places.items()},
        tuple(report.texts[number].path for number in sorted(secret_files)),
    )
