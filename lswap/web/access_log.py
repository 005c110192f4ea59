"""The line that each request leaves in the log: who asked for what, the status, the bytes of the body, how long.

Decides its text; `lswap.service.logs` writes it. Called from one place, when a request is over, however it ended.
Source: HTTP reference, section 16.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from lswap.web.request import Request

__all__ = ["CLIENT_LEFT", "AccessLog", "go_duration"]

#: Status in the log of a request whose client left before there was an answer; no client ever sees it.
CLIENT_LEFT = 499
#: Paths that are polled, and would drown the rest.
_SKIPPED = (b"/wol-health", b"/api/performance", b"/metrics")
_UNITS = ((1.0, "s", 9), (1e-3, "ms", 6), (1e-6, "µs", 3))


def go_duration(seconds: float) -> str:
    """A time as existing log readers know it: `1.5s`, `45.678ms`, `12µs`, `1m2.5s`."""
    if seconds >= 60:
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(int(minutes), 60)
        return (f"{hours}h" if hours else "") + f"{minutes}m{_plain(seconds, 9)}s"
    for size, unit, digits in _UNITS:
        if seconds >= size:
            return _plain(seconds / size, min(digits, 6)) + unit
    return "0s"


def _plain(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class AccessLog:
    """Writes the lines. `info` takes a whole one."""

    def __init__(self, info: Callable[[str], None], seconds: Callable[[], float]) -> None:
        """@param seconds: the clock that `Request.began_at` is of."""
        self._info = info
        self._seconds = seconds

    def __call__(self, request: Request) -> None:
        """The request is over. Without effect for paths that are polled."""
        path = request.uri.partition(b"?")[0]
        if path.startswith(_SKIPPED):
            return
        agent = request.header(b"user-agent") or b""
        status, size = request.code if request.startedWriting else CLIENT_LEFT, request.sentLength
        if status == 101:  # a tunnel, as existing log readers know it
            status, size = 200, 0
        if b"%" in path:
            path = unquote_to_bytes(path)
        taken = go_duration(max(0.0, self._seconds() - request.began_at))
        # What is quoted cannot end its quotes; control characters are the log's business.
        asked = f"{_quoted(request.method)} {_quoted(path)} {_quoted(request.clientproto)}"
        self._info(f'Request {request.shown_remote} "{asked}" {status} {size} "{_quoted(agent)}" {taken}')


def _quoted(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text.replace('"', '\\"') if '"' in text else text
