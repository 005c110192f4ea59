"""`twistd lswap-wol`, and `lswap-wol` itself: the options, and the service that they ask for. Only composes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.python import usage

from lswap.foreground import log_as_we_do
from lswap.net.lean import without_openssl
from lswap.net.reactor import install_unless_chosen
from lswap.options import OptionError
from lswap.version import version_line
from lswap.wol.options import FLAGS, WolSettings, help_text, settings_of

if TYPE_CHECKING:
    from lswap.wol.app import WolService

__all__ = ["Options", "makeService"]


class Options(usage.Options):
    """The flags in Go's syntax; after `parseOptions`, `settings` says it all."""

    synopsis = "[flags]"
    optParameters = [[flag.name, None, None, flag.help] for flag in FLAGS if flag.value]  # noqa: RUF012

    settings: WolSettings

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read the words and settle what they mean.

        @raise SystemExit: after printing what was asked for (0) or what is wrong (1, or 2 for words that are no flags).
        """
        try:
            settings = settings_of(sys.argv[1:] if options is None else options, os.environ)
        except OptionError as error:
            print(f"lswap-wol: {error}", file=sys.stderr)
            if error.status == 2:
                print(self.getUsage(), end="", file=sys.stderr)
            raise SystemExit(error.status) from None
        if isinstance(settings, str):
            print(version_line() if settings == "version" else self.getUsage().rstrip("\n"))
            raise SystemExit(0)
        self.settings = settings
        self.postOptions()

    def postOptions(self) -> None:
        """Let twistd log in our form, unless its own options say how it should."""
        log_as_we_do(self.parent)

    def getUsage(self, width: int | None = None) -> str:
        """The help text; the width of the terminal does not matter."""
        return help_text("lswap-wol" if self.parent is None else "twistd [options of twistd] lswap-wol")


def makeService(options: Options, reactor: Any = None) -> WolService:
    """The front proxy as a service that has not started."""
    with without_openssl(not options.settings.uses_tls):
        from lswap.wol.app import WolService

        if reactor is None:
            install_unless_chosen()
            from twisted.internet import reactor
        return WolService(reactor, options.settings)
