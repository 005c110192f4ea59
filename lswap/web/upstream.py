"""`/upstream/<model>/<path>`: passes a request on to a model byte for byte, its target included.

A leaf beside klein, because klein would decode the path. Source: HTTP reference, section 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.core.model import Config
from lswap.core.routes import is_model_route
from lswap.web.answers import redirect, send_error
from lswap.web.forward import Forwarder
from lswap.web.openai import body_of, exchange_of
from lswap.web.request import Request

__all__ = ["PREFIX", "UpstreamRoutes", "split_target"]

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
        name = unquote(rest[:start].decode("latin-1"), errors="replace")
        if name and resolve(name) is not None:
            return name, (b"/" + rest[end:] if end > start else b"")
    return None


class UpstreamRoutes(Resource):
    """The leaf."""

    isLeaf = True

    def __init__(self, clock: IReactorTime, config: Callable[[], Config], forwarder: Forwarder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._config = config
        self._forwarder = forwarder

    def render(self, request: Any) -> Any:
        """Any method goes through."""
        self._serve(request)
        return NOT_DONE_YET

    def _serve(self, request: Request) -> None:
        config = self._config()
        path, mark, query = request.uri.partition(b"?")
        found = split_target(path, config.resolve)
        if found is None:
            send_error(request, 404, "model not found")
            return
        name, rest = found
        if not rest:
            status = 301 if request.method in (b"GET", b"HEAD") else 308
            location = PREFIX + quote(name, safe="/:@!$&'()*+,;=-._~").encode() + b"/" + mark + query
            request.write(redirect(request, status, location))
            request.finish()
            return
        exchange = exchange_of(self._clock, request, rest)
        exchange.requested = name
        exchange.model = config.resolve(name) or name
        listed = is_model_route(request.method, rest)
        metered = listed and request.method == b"POST"
        self._forwarder.forward(request, exchange, rest + mark + query, body_of(request), shown=listed, metered=metered)
