"""`twistd llamaswap`: its options, and the service that they ask for.

Only composes: words become settings (`lswap.options`), the sources a configuration (`lswap.core.config`), and both a
service (`lswap.app`, the file to read next). What cannot be used is told on standard error, and ends the program
with the exit code of the command line reference, section 1.3, before anything has begun.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.python import usage

from lswap import options as words_of
from lswap.foreground import OBSERVER_FACTORY, log_as_we_do
from lswap.net.lean import without_openssl
from lswap.net.reactor import install_unless_chosen
from lswap.version import version_line

if TYPE_CHECKING:
    from twisted.application.service import IService

    from lswap.core.config import Loaded

__all__ = ["OBSERVER_FACTORY", "Options", "load", "makeService"]


class Options(usage.Options):
    """The flags in Go's syntax; after `parseOptions`, `settings` says it all.

    The tables of flags serve twistd's shell completion, and those who read an option by its name.
    """

    synopsis = "[flags]"
    optParameters = [[flag.name, flag.short or None, None, flag.help] for flag in words_of.FLAGS if flag.value]  # noqa: RUF012
    optFlags = [[flag.name, None, flag.help] for flag in words_of.FLAGS if not flag.value and flag.name != "version"]  # noqa: RUF012

    settings: words_of.Settings

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read the words and settle what they mean.

        @raise SystemExit: after printing what was asked for (0) or what is wrong (1, or 2 for words that are no flags).
        """
        try:
            values = words_of.read(sys.argv[1:] if options is None else options)
            if "help" in values:
                print(self.getUsage(), end="")
                raise SystemExit(0)
            if values.pop("version", False):
                print(version_line())
                raise SystemExit(0)
            self.settings = words_of.settle(values, self._umask(), self._folder())
        except words_of.OptionError as error:
            # Not a UsageError: twistd would print its own options, and end with 1 in all cases.
            print(error, file=sys.stderr)
            if error.status == 2:
                print(self.getUsage(), end="", file=sys.stderr)
            raise SystemExit(error.status) from None
        self.update(values)
        self.postOptions()

    def postOptions(self) -> None:
        """Let twistd log in our form, unless its own options say how it should."""
        log_as_we_do(self.parent)

    def getUsage(self, width: int | None = None) -> str:
        """The help text; the width of the terminal does not matter."""
        if self.parent is not None:
            return words_of.usage("twistd [options of twistd] llamaswap")
        return words_of.usage(
            "lswap",
            more="\nlswap check -help tells how to check a configuration,\n"
            "lswap plan -help how to ask what a request would do,\n"
            "lswap kv -help how to see and delete the KV caches that are kept.\n",
        )

    def _folder(self) -> str:
        """Where paths begin: here, if twistd goes elsewhere (`--rundir`) before they are read for the last time."""
        elsewhere = self.parent is not None and self.parent.get("rundir", ".") != "."
        return os.getcwd() if elsewhere else ""

    def _umask(self) -> int:
        """The mask that models shall have: twistd's `--umask`, else the one in force now.

        A daemon gets 077 from twistd, which is meant for twistd's own files.
        """
        asked = None if self.parent is None else self.parent.get("umask")
        if isinstance(asked, int):
            return asked
        mask = os.umask(0)
        os.umask(mask)
        return mask


def load(config: str | None, config_dir: str | None) -> Loaded:
    """Read and check the sources; blocking. What is wrong is in the result, nothing is raised."""
    from lswap.net.config_files import load_files

    return load_files(config, config_dir, os.environ)


def makeService(options: Options, reactor: Any = None) -> IService:
    """The whole of lswap as a service that has not started.

    @raise SystemExit: 1 after all problems of the configuration were printed.
    """
    settings = options.settings
    loaded = load(settings.config, settings.config_dir)
    if loaded.problems:
        for problem in loaded.problems:
            print(problem, file=sys.stderr)
        print(f"failed to load config: {counted(len(loaded.problems), 'problem')}", file=sys.stderr)
        raise SystemExit(1)
    with without_openssl(not settings.uses_tls):
        if reactor is None:
            install_unless_chosen()
            from twisted.internet import reactor
        from lswap.app import make_service
    return make_service(settings, loaded, reactor)


def counted(number: int, noun: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
