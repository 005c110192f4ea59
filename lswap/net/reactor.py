"""The reactor named `lswap`: what `lswap` installs, and `twistd --reactor=lswap`.

Touches the process-wide choice of the reactor, once, before anything imports one. On Linux it is Twisted's epoll
reactor. A leaner dispatch of its events has its place here; nothing else knows which reactor runs.
Read `lswap.cli` next.
"""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Install the reactor.

    @raise twisted.internet.error.ReactorAlreadyInstalledError: something has imported one before.
    """
    # Imported here: the plugin list names this module, and reading that list must stay cheap.
    try:
        from twisted.internet.epollreactor import install as chosen
    except ImportError:
        from twisted.internet.default import install as chosen
    chosen()
