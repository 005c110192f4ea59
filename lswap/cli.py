"""`lswap`: the proxy in the foreground, and small commands beside it.

The first word chooses: `lswap check` and its like, else the flags of `twistd llamaswap` (`lswap.tap`, to be read next).
The foreground (`lswap.foreground`) installs the `lswap` reactor before anything imports one; so nothing here may import
Twisted at the top.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from lswap import options as words_of

__all__ = ["CHECK_FLAGS", "COMMANDS", "check", "kv", "main", "plan", "serve"]

CHECK_FLAGS = (
    *(flag for flag in words_of.FLAGS if flag.name in ("config", "config-dir")),
    words_of.Flag("json", "", "print one JSON object instead of lines"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's own) to its end; the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    return serve(words)


def serve(words: Sequence[str]) -> int:
    """Run the proxy until it is told to stop.

    @raise SystemExit: flags or a configuration that cannot be used, as `lswap.tap` says it.
    """
    from lswap import tap
    from lswap.foreground import with_reactor

    options = tap.Options()
    options.parseOptions(words)
    return with_reactor(options.settings.uses_tls, lambda reactor: tap.makeService(options, reactor))


def check(words: Sequence[str]) -> int:
    """`lswap check`: print all problems and warnings of a configuration; 0, or 1 if there is a problem.

    Nothing is started. With `-json`: one object with the lists `problems` and `warnings`.
    """
    try:
        values = words_of.read(words, CHECK_FLAGS)
        if "help" in values:
            print(words_of.usage("lswap check", CHECK_FLAGS), end="")
            return 0
        settings = words_of.settle(values)
    except words_of.OptionError as error:
        print(error, file=sys.stderr)
        return error.status
    from lswap import tap
    from lswap.net.config_files import advice

    loaded = tap.load(settings.config, settings.config_dir)
    warnings = sorted((*loaded.warnings, *advice(loaded, os.environ)))
    if values.get("json"):
        import msgspec

        listed = {"problems": loaded.problems, "warnings": warnings}
        print(msgspec.json.format(msgspec.json.encode(listed)).decode())
    else:
        for problem in loaded.problems:
            print(problem)
        for warning in warnings:
            print(f"{warning} (warning)")
        counts = f"{tap.counted(len(loaded.problems), 'problem')}, {tap.counted(len(warnings), 'warning')}"
        print(counts, file=sys.stderr)
    return 1 if loaded.problems else 0


def plan(words: Sequence[str]) -> int:
    """`lswap plan`: ask a running lswap what it would do; see `lswap.cli_plan`."""
    from lswap import cli_plan

    return cli_plan.plan(words)


def kv(words: Sequence[str]) -> int:
    """`lswap kv`: list or clear the KV caches that are kept; see `lswap.cli_kv`."""
    from lswap import cli_kv

    return cli_kv.kv(words)


#: First word of a command line to what it runs.
COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"plan": plan, "check": check, "kv": kv}
