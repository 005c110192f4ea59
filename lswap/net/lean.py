"""Keeps OpenSSL out of the process until something asks for TLS: importing it costs 12 MB and 60 ms.

Twisted imports pyOpenSSL where it finds it, at the top of its own modules. While `without_openssl` is open, it does not
find it, and takes its ways for plain connections. Whoever needs TLS afterwards imports it in the ordinary way
(`lswap.net.dial` for peers, `lswap.net.tls` for the listener), and pays then.

This is a trick with the import system: in one place, on purpose, and off as soon as the block is left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["without_openssl"]


class _Closed(MetaPathFinder):
    """Says that there is no OpenSSL."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "OpenSSL":
            raise ModuleNotFoundError("No module named 'OpenSSL' (not yet: nothing asked for TLS)", name=fullname)
        return None


@contextmanager
def without_openssl(wanted: bool = True) -> Iterator[None]:
    """Within the block, OpenSSL cannot be imported; no effect if it was before, or if not `wanted`."""
    if not wanted or "OpenSSL" in sys.modules:
        yield
        return
    finder = _Closed()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
