"""Brings a model's process up: checks the port, spawns, asks until the server answers. Touches no state of the model.

Read `lswap.service.children` next, which says when, and ends what was spawned here.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.protocol import Factory, Protocol

from lswap.core.model import Model
from lswap.errors import ConnectFailed, StartError
from lswap.net.dial import Dialer, Origin
from lswap.net.health import until_healthy
from lswap.net.ports import holder_of
from lswap.service.stages import Run
from lswap.service.tools import Tools

__all__ = ["check_before_spawn", "environment_of", "healthy", "origin_of"]

#: Seconds that somebody who listens on our port has to accept a connection.
_PORT_CHECK = 2.0


def origin_of(model: Model) -> Origin | None:
    """Where a model's server listens; None for a proxy URL that leads nowhere."""
    try:
        return Origin(model.proxy)
    except ValueError:
        return None


def environment_of(model: Model, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a model's process gets: what lswap has, then the model's own; the last of equal names."""
    environment = dict(inherited)
    for entry in model.env:
        name, _, value = entry.partition("=")
        if name:
            environment[name] = value
    return environment


async def check_before_spawn(tools: Tools, run: Run) -> None:
    """See whether the model can be started here and now.

    @raise StartError: it cannot; the text says what to change.
    """
    model = run.model
    if not model.proxy:
        raise StartError("upstream proxy missing")
    if run.origin is None:
        raise StartError(f'invalid proxy URL "{model.proxy}": it must be an absolute http or https URL')
    if not run.words:
        raise StartError("unable to get sanitized command: empty command")
    if model.port is not None and model.port == run.origin.port:
        await _check_port(tools, run.origin)


async def _check_port(tools: Tools, origin: Origin) -> None:
    """Our port must be free before the spawn; afterwards nobody can tell whose server answers."""
    try:
        found = await Dialer(tools.reactor, origin, _PORT_CHECK).connect(Factory.forProtocol(Protocol))
    except ConnectFailed:
        return
    found.transport.abortConnection()
    holder = await tools.in_thread(holder_of, origin.port) or "another program"
    raise StartError(
        f"port {origin.port} is taken by {holder}; end it, or give startPort another value or the model a fixed port"
    )


async def healthy(tools: Tools, run: Run) -> None:
    """Wait until the server of a spawned process answers.

    @raise StartError: it does not, in `healthCheckTimeout` seconds.
    """
    endpoint = run.model.check_endpoint.strip()
    if endpoint == "none" or run.origin is None:
        return
    url = f"{run.origin}{run.origin.target(_path(endpoint).encode()).decode()}"
    await until_healthy(tools.reactor, tools.client, url, run.model.health_check_timeout)


def _path(endpoint: str) -> str:
    """The path of a check endpoint, which may be written as a whole URL."""
    if "://" in endpoint:
        endpoint = "/" + endpoint.split("://", 1)[1].partition("/")[2]
    return endpoint if endpoint.startswith("/") else "/" + endpoint
