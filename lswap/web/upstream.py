"""`/upstream/<model>/<path>`: passes a request on to a model byte for byte, its target included.

A leaf beside klein, because klein would decode the path. Source: HTTP reference, section 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.events import State
from lswap.core.ignored_paths import is_ignored
from lswap.core.model import Config
from lswap.core.rewrite import readdressed
from lswap.core.routes import is_model_route
from lswap.core.scan_form import query_with
from lswap.net.body import Body
from lswap.service.peers import Peers
from lswap.service.profiles import Profiles
from lswap.web.answers import redirect, send_error
from lswap.web.auth import refuse_model
from lswap.web.forward import Forwarder
from lswap.web.openai import body_of, exchange_of, spliced
from lswap.web.peer_forward import to_peer
from lswap.web.request import Request

__all__ = ["PREFIX", "UpstreamRoutes", "pinned_path", "split_target"]

PREFIX = b"/upstream/"
_SEPARATOR = re.compile(rb"/|%2[fF]")
#: Segments and bytes that a name may have here; a target of a megabyte must not be tried at each of its slashes.
_MOST_SEGMENTS = 32
_LONGEST = 4096


def split_target(path: bytes, resolve: Callable[[str], str | None]) -> tuple[str, bytes] | None:
    """The name and the rest of a path below the prefix: the longest run of leading segments that names a model.

    The rest keeps its escapes and is empty where not even a slash follows. None when nothing names a model.
    """
    rest = path[len(PREFIX) :]
    ends = [found.span() for found in islice(_SEPARATOR.finditer(rest, 0, _LONGEST), _MOST_SEGMENTS)]
    if len(ends) < _MOST_SEGMENTS and len(rest) <= _LONGEST:
        ends.append((len(rest), len(rest)))
    for start, end in reversed(ends):
        name = unquote_to_bytes(rest[:start]).decode("utf-8", "replace")
        if name and resolve(name) is not None:
            return name, (b"/" + rest[end:] if end > start else b"")
    return None


def pinned_path(path: bytes, pins: Mapping[str, str]) -> bytes | None:
    """The path with the longest pin that it begins with replaced by its target; None if that pin disables the name.

    What stands after the name keeps its escapes.
    """
    found = split_target(path, pins.get) if pins else None
    if found is None:
        return path
    name, rest = found
    return PREFIX + _quoted(pins[name]) + rest if pins[name] else None


def _quoted(name: str) -> bytes:
    return quote(name, safe="/:@!$&'()*+,;=-._~").encode()


class UpstreamRoutes(Resource):
    """The leaf."""

    isLeaf = True

    def __init__(
        self,
        clock: IReactorTime,
        config: Callable[[], Config],
        forwarder: Forwarder,
        profiles: Profiles,
        peers: Peers,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._config = config
        self._forwarder = forwarder
        self._profiles = profiles
        self._peers = peers

    def render(self, request: Any) -> Any:
        """Any method goes through."""
        self._serve(request)
        return NOT_DONE_YET

    def _serve(self, request: Request) -> None:
        config = self._config()
        path, mark, query = request.uri.partition(b"?")
        pinned = pinned_path(path, self._profiles.pins)
        found = split_target(pinned, lambda name: _known(config, name)) if pinned is not None else None
        if found is None:
            send_error(request, 404, "model not found")
            return
        name, rest = found
        model = config.resolve(name)
        peer = config.resolve_peer(name) if model is None else None
        if refuse_model(request, model or "/".join(peer or ())):
            return
        if not rest:
            status = 301 if request.method in (b"GET", b"HEAD") else 308
            location = PREFIX + _quoted(name) + b"/" + mark + query
            request.write(redirect(request, status, location))
            request.finish()
            return
        child = self._forwarder.router.children.get(model or "")
        stopped = model is not None and (child is None or child.state is not State.READY)
        if stopped and is_ignored(rest, config.ignore_paths):
            send_error(request, 409, f"model {model} is not loaded; path matches upstream.ignorePaths")
            return
        exchange = exchange_of(self._clock, request, rest)
        exchange.requested = name
        exchange.model = model or name
        body = body_of(request)
        if peer is not None and peer[1] != name:
            query, body = _renamed(request, query, body, name, peer[1])
        listed = is_model_route(request.method, rest)
        metered = listed and request.method == b"POST"
        self._forwarder.forward(
            request,
            exchange,
            rest + mark + query,
            body,
            shown=listed,
            metered=metered,
            **to_peer(self._peers, peer),
        )


def _known(config: Config, name: str) -> str | None:
    """What `split_target` asks: whether a model of ours or of a peer has this name."""
    return name if config.resolve(name) is not None or config.resolve_peer(name) is not None else None


def _renamed(
    request: Request, query: bytes, body: Body | None, name: str, peers_name: str
) -> tuple[bytes, Body | None]:
    """Query and body for a peer: it is told its own name where the request names the model as its path does."""
    found = request.named_model()
    if found is None or found.name != name:
        return query, body
    changed = spliced(request, found, peers_name, readdressed)
    return (query, changed) if changed is not None else (query_with(query, "model", peers_name), body)
