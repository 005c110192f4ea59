"""Every error that lswap raises on purpose; each class says who is at fault.

Nothing here decides an HTTP status: that is `lswap.web.answers`. Messages are written for the person who runs lswap.
"""

from __future__ import annotations

__all__ = [
    "BadAnswer",
    "ConnectFailed",
    "HookError",
    "LswapError",
    "StartError",
    "UpstreamClosed",
    "UpstreamError",
    "UpstreamTimeout",
]


class LswapError(Exception):
    """Base of all; its text is fit to be shown to a user."""


class StartError(LswapError):
    """A model server could not be started, or ended before it was ready. The model's or its configuration's fault."""


class HookError(StartError):
    """A start was given up because an action that says so failed. The hook's fault, or the configuration's."""


class UpstreamError(LswapError):
    """A model server (or peer) did not answer as HTTP asks. The upstream's fault."""


class ConnectFailed(UpstreamError):
    """No connection came about, so no byte of a request was sent.

    `refused` is true when the other side said no (nothing listens there), false for time-outs and routing trouble.
    """

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class UpstreamClosed(UpstreamError):
    """The connection ended before the answer was whole."""


class BadAnswer(UpstreamError):
    """What came back is not HTTP/1.x, or its framing is broken."""


class UpstreamTimeout(UpstreamError):
    """The upstream took longer than the configured limit."""
