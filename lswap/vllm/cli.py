"""`lswap-vllm`: finds the command among its words, and runs it. Read `lswap.vllm.app` for `serve`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lswap.options import OptionError
from lswap.version import version_line
from lswap.vllm.options import COMMANDS, OVERVIEW, VllmSettings, help_text, settings_of

if TYPE_CHECKING:
    from lswap.vllm.app import VllmService

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's own) to its end; the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    name = words[0] if words else ""
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        if name.lstrip("-") in ("h", "help"):
            print(OVERVIEW, end="")
            return 0
        if name.lstrip("-") == "version":
            print(version_line())
            return 0
        print(f"Unknown command: {name}" if words else OVERVIEW.rstrip("\n"), file=sys.stderr)
        return 1
    try:
        settings = settings_of(command, words[1:])
    except OptionError as error:
        print(f"lswap-vllm: {error}", file=sys.stderr)
        if error.status == 2:
            print(help_text(command), end="", file=sys.stderr)
        return error.status
    if settings is None:
        print(help_text(command), end="")
        return 0
    return _serve(settings) if name == "serve" and not settings.dry_run else _ask(name, settings)


def _serve(settings: VllmSettings) -> int:
    from lswap.errors import LswapError
    from lswap.foreground import with_reactor

    services: list[VllmService] = []

    def make(reactor: Any) -> VllmService:
        from lswap.vllm.app import VllmService

        services.append(VllmService(reactor, settings))
        return services[0]

    try:
        code = with_reactor(settings.uses_tls, make, "lswap-vllm")
    except LswapError as error:
        print(f"lswap-vllm: {error}", file=sys.stderr)
        return 1
    return code or services[0].exit_code


def _ask(name: str, settings: VllmSettings) -> int:
    from lswap.foreground import run_to_end

    async def ask(reactor: Any) -> int:
        from lswap.errors import LswapError
        from lswap.vllm import commands

        known = {"sleep": commands.sleep, "status": commands.status, "stop": commands.stop, "serve": commands.dry_run}
        try:
            return await known[name](reactor, settings)
        except LswapError as error:
            print(f"lswap-vllm: {error}", file=sys.stderr)
            return 1

    return run_to_end(settings.uses_tls, ask)
