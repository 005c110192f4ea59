"""The reactor named `lswap`: what `lswap` and `twistd llamaswap` install, and `twistd --reactor=lswap`.

Touches the process-wide choice of the reactor, once, before anything imports one. On Linux it is Twisted's epoll
reactor with a leaner dispatch and with connections that write through (`lswap.net.epoll`, the file to read next),
elsewhere Twisted's own choice. Nothing else knows which reactor runs, and all of lswap works on any of them.
"""

from __future__ import annotations

import sys

__all__ = ["install", "install_unless_chosen"]


def install() -> None:
    """Install the reactor.

    @raise twisted.internet.error.ReactorAlreadyInstalledError: something has imported one before.
    """
    # Imported here: the plugin list names this module, and reading that list must stay cheap.
    try:
        from lswap.net.epoll import install as chosen
    except ImportError:
        from twisted.internet.default import install as chosen
    chosen()


def install_unless_chosen() -> None:
    """Install the reactor, if there is none yet: not where `--reactor` or an importing program has chosen another."""
    if "twisted.internet.reactor" not in sys.modules:
        install()
