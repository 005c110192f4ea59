"""The line that each request leaves in the log: who asked for what, the status, the bytes of the body, how long.

Decides its text; `lswap.service.logs` writes it. Called from one place, when a request is over, however it ended.
Source: HTTP reference, section 16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from lswap.web.request import Request

__all__ = ["CLIENT_LEFT", "AccessLog", "go_duration"]

#: Status in the log of a request whose client left before there was an answer; no client ever sees it.
CLIENT_LEFT = 499
#: Paths that are polled, and would drown the rest.
_SKIPPED = (b"/wol-health", b"/api/performance", b"/metrics")
#: Bytes of target and agent up to which their texts are remembered.
_SHORT = 1024
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
        agent = request.header(b"user-agent") or b""
        # Nobody may fill the memory with words that were said once.
        short = len(request.uri) + len(agent) < _SHORT
        asked = (_asked if short else _asked.__wrapped__)(request.method, request.uri, request.clientproto)
        if not asked:
            return
        client = (_quoted if short else _quoted.__wrapped__)(agent)
        status, size = request.code if request.startedWriting else CLIENT_LEFT, request.sentLength
        if status == 101:  # a tunnel, as existing log readers know it
            status, size = 200, 0
        taken = go_duration(max(0.0, self._seconds() - request.began_at))
        self._info(f'Request {request.shown_remote} "{asked}" {status} {size} "{client}" {taken}')


@lru_cache(maxsize=256)
def _asked(method: bytes, target: bytes, version: bytes) -> str:
    """What was asked for, as it stands between quotes; nothing for paths that are polled."""
    path = target.partition(b"?")[0]
    if path.startswith(_SKIPPED):
        return ""
    return f"{_quoted(method)} {_quoted(unquote_to_bytes(path))} {_quoted(version)}"


@lru_cache(maxsize=256)
def _quoted(data: bytes) -> str:
    """A text that cannot end its quotes; control characters are the log's business."""
    return data.decode("utf-8", "replace").replace('"', '\\"')
