"""`lswap-wol` in the foreground. Read `lswap.wol.tap` for what it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Run until it is told to stop; the exit code.

    @raise SystemExit: flags that cannot be used, or a port that cannot be had.
    """
    from lswap.foreground import with_reactor
    from lswap.wol import tap

    options = tap.Options()
    options.parseOptions(sys.argv[1:] if words is None else words)
    return with_reactor(options.settings.uses_tls, lambda reactor: tap.makeService(options, reactor), "lswap-wol")
