"""The section `peers`: other servers whose models are offered here too. Read `selectors` next."""

from __future__ import annotations

from collections.abc import Callable

from lswap.core.command import split
from lswap.core.config import urls
from lswap.core.config.context import Context
from lswap.core.config.nodes import Map, Node, Scalar, Seq, is_bad, is_null, pairs_of
from lswap.core.config.parts import read_filters, read_timeouts
from lswap.core.magic import destination, listed, packets_for, password
from lswap.core.model import Peer, Timeouts, Wake

__all__ = ["read_peers"]

_TIMEOUTS = Timeouts(response_header=60.0)


def read_peers(context: Context) -> dict[str, Peer]:
    """The section `peers`."""
    section = context.walker.mapping(context.section("peers"), "peers")
    peers: dict[str, Peer] = {}
    for peer_id, entry in pairs_of(section):
        assert section is not None
        path, place = f"peers.{peer_id}", section.places[peer_id]
        if is_null(entry):
            context.report.warn(place, path, "this peer has no settings and is left out", "it needs proxy and models")
        elif (node := context.walker.mapping(entry, path, "a peer")) is not None:
            peers[peer_id] = _peer(context, peer_id, node, path)
    return peers


def _peer(context: Context, peer_id: str, node: Map, path: str) -> Peer:
    values = context.walker.section(node, Peer, path)
    proxy = values.get("proxy", "")
    written = node.get("proxy")
    if not proxy and not is_bad(written) and (written is None or isinstance(written, Scalar)):
        context.report.error(node.where("proxy"), f"{path}.proxy", "proxy is required")
    elif proxy:
        try:
            url = urls.parse(proxy)
        except urls.UrlError as error:
            shown = context.report.shown(urls.without_password(proxy))
            context.report.error(node.where("proxy"), f"{path}.proxy", f"invalid peer proxy URL ({shown}): {error}")
        else:
            if url.scheme not in ("http", "https") or not url.host:
                hint = "expected http://host:port or https://host"
                context.report.warn(node.where("proxy"), f"{path}.proxy", "no server can be reached by this", hint)
    models = tuple(dict.fromkeys(values.get("models", ())))
    listed = node.get("models")
    if not models and (is_null(listed) or (isinstance(listed, Seq) and not any(map(is_bad, listed.items)))):
        context.report.error(node.where("models"), f"{path}.models", "peer models can not be empty")
    values["models"] = models
    values["filters"] = read_filters(context, node.get("filters"), f"{path}.filters")
    values["timeouts"] = read_timeouts(context, node.get("timeouts"), f"{path}.timeouts", _TIMEOUTS)
    values["wake"] = _wake(context, node.get("wake"), f"{path}.wake")
    return Peer(id=peer_id, **values)


def _wake(context: Context, node: Node | None, path: str) -> Wake | None:
    """How to wake the peer; a misspelt key is an error here, for it would be noticed at night only."""
    mapping = context.walker.mapping(node, path, "how to wake a peer")
    if mapping is None:
        return None
    wake = Wake(**context.walker.section(mapping, Wake, path, strict=True))
    checks: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("mac", wake.mac, lambda: packets_for(wake.mac)),
        ("broadcast", wake.broadcast, lambda: listed(wake.broadcast, destination)),
        ("password", wake.password, lambda: password(wake.password)),
    )
    for key, value, check in checks:
        try:
            if value:
                check()
        except ValueError as problem:
            context.report.error(mapping.where(key), f"{path}.{key}", str(problem))
    if not any(is_bad(mapping.get(key)) for key in ("mac", "command")) and bool(wake.mac) == bool(split(wake.command)):
        context.report.error(mapping.place, path, "wake needs either mac or command")
    if not wake.check_endpoint.startswith("/"):
        hint = "expected a path such as /health"
        context.report.error(mapping.where("checkEndpoint"), f"{path}.checkEndpoint", "this is no path", hint)
    return wake
