"""Watches the sources of a configuration for new content, through symbolic links.

Looks every few seconds, in a thread, at what is read rather than at times and sizes: a change of the same size and time
is found, and a touched file is none. What is missing or empty is no news until it is back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.net.config_files import read_sources

__all__ = ["INTERVAL", "Watcher", "fingerprint"]

#: Seconds between two looks.
INTERVAL = 2.0


def fingerprint(config: str | None, config_dir: str | None) -> bytes | None:
    """A digest of the names and contents of all sources; None when they cannot be read or are none. Blocks."""
    sources, problems = read_sources(config, config_dir)
    if problems or not sources:
        return None
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{len(source.path)}:{len(source.text)}:{source.path}".encode("utf-8", "surrogateescape"))
        digest.update(source.text)
    return digest.digest()


class Watcher:
    """Calls `changed` after each change of content. Start it with the fingerprint of what is loaded."""

    _log = Logger()

    def __init__(self, reactor: Any, look: Callable[[], bytes | None], changed: Callable[[], None]) -> None:
        """@param look: gives the fingerprint now; called in a thread."""
        self._reactor = reactor
        self._look = look
        self._changed = changed
        self._seen: bytes | None = None
        self._call: IDelayedCall | None = None
        self._stopped = False

    def start(self, seen: bytes | None) -> None:
        """Begin; what differs from `seen` is news."""
        self._seen = seen
        self._call = self._reactor.callLater(INTERVAL, self._poll)

    def stop(self) -> None:
        """Look no more; a look under way has no effect."""
        self._stopped = True
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _poll(self) -> None:
        self._call = None
        looking = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._look)
        looking.addErrback(self._failed)
        looking.addCallback(self._looked)

    def _looked(self, now: bytes | None) -> None:
        if self._stopped:
            return
        self._call = self._reactor.callLater(INTERVAL, self._poll)
        if now is None or now == self._seen:
            return
        self._seen = now
        try:
            self._changed()
        except Exception:
            self._log.failure("internal error at a change of the configuration")

    def _failed(self, failure: Failure) -> None:
        """A look must never end the watching: this one saw nothing."""
        self._log.failure("looking for changes of the configuration failed", failure)
