"""What happens to each request before a host that may sleep: answered here, passed on, or kept until it is awake.

Decides who wakes the host: people and programs that want something of it, and not those who only look whether it is
there. Read `lswap.web.sleeper_road` for those that are kept. Source: utilities reference, sections 1.4 and 1.7.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from lswap.net.upstream import Upstream
from lswap.service.sleeper import Sleeper
from lswap.web.answers import json_answer, prepare, send_error
from lswap.web.request import Request
from lswap.web.road import Road
from lswap.web.sleeper_road import SleeperRoad

__all__ = ["Door", "HostRoad"]

#: Asked again and again by monitors, and by browsers unasked; no reason to wake anybody.
_POLLS = frozenset({b"/health", b"/wol-health", b"/metrics"})
_ICON = b"/favicon.ico"


class HostRoad(SleeperRoad):
    """The road of one request to the host."""

    __slots__ = ("_host", "_upstream")

    def __init__(self, host: Sleeper, upstream: Upstream, *args: Any) -> None:
        super().__init__(*args)
        self._host = host
        self._upstream = upstream

    def _sleeper(self) -> Sleeper:
        return self._host

    def _set_out(self) -> None:
        self._send(self._upstream)


class Door(Resource):
    """The one resource."""

    isLeaf = True
    _log = Logger()

    def __init__(
        self, host: Sleeper, upstream: Upstream, forward: Callable[[Request, Callable[..., Road]], None]
    ) -> None:
        """@param forward: takes a request and what makes its road."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._host = host
        self._upstream = upstream
        self._forward = forward
        self._page = pathlib.Path(__file__).with_name("waiting.html").read_bytes()

    def render(self, request: Any) -> Any:
        """Answer, or set the request on its road."""
        asked: Request = request
        path: bytes = asked.path
        if asked.method == b"GET" and path == b"/status":
            return self._status(asked)
        if not self._host.ready:
            if path.startswith(b"/api/events") or path == _ICON:
                self._no_reason(asked)
                asked.setResponseCode(204)
                asked.finish()
                return NOT_DONE_YET
            if path in _POLLS:
                self._no_reason(asked)
                send_error(asked, 503, "the host is asleep, and this request is no reason to wake it")
                return NOT_DONE_YET
            self._log.info(
                "waking the host for {method} {path} of {remote}",
                method=asked.method.decode("ascii", "replace"),
                path=path.decode("utf-8", "replace"),
                remote=asked.remote,
            )
            if _wants_page(asked):
                self._host.wake()
                return prepare(asked, 200, "text/html; charset=utf-8", self._page, {"Cache-Control": "no-store"})
        self._forward(asked, self._road)
        return NOT_DONE_YET

    def _road(self, *args: Any) -> HostRoad:
        return HostRoad(self._host, self._upstream, *args)

    def _no_reason(self, request: Request) -> None:
        self._log.debug("{path} is no reason to wake the host", path=request.path.decode("utf-8", "replace"))

    def _status(self, request: Request) -> bytes:
        host = self._host
        state = "ready" if host.ready else "not ready"
        request.setHeader("Cache-Control", "no-store")
        if "application/json" in request.accepts():
            return json_answer(request, {"status": state, "failures": host.failures, "waiting": host.waiting})
        return prepare(request, 200, "text/plain", f"status: {state}\nfailures: {host.failures}\n".encode())


def _wants_page(request: Request) -> bool:
    """Whether this is somebody who looks at the host with a browser, or may be."""
    path: bytes = request.path
    if request.method not in (b"GET", b"HEAD") or not (path == b"/" or path.startswith(b"/ui/")):
        return False
    accepted = request.accepts()
    return not accepted or "text/html" in accepted or ("*/*" in accepted and "application/json" not in accepted)
