"""Which lswap this is: its version, and the commit that it was made from.

A package has the commit in `lswap/_build.py`, which the build hook writes; a checkout asks git. Imports the standard
library alone, as the build hook uses it, too.
"""

from __future__ import annotations

import functools
import os

from lswap import __version__

__all__ = ["build_facts", "commit_of", "version_line"]

_UNKNOWN = "unknown"
#: Seconds; a git that hangs, say on a network file system, must not hold up the start.
_PATIENCE = 2.0


@functools.cache
def build_facts() -> dict[str, str]:
    """The version, and the commit with its time, `unknown` where nobody knows. Runs git in a checkout, once."""
    try:
        from lswap._build import BUILT, COMMIT  # noqa: PLC0415
    except ImportError:
        COMMIT, BUILT = commit_of(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) or (_UNKNOWN, _UNKNOWN)
    return {"build_date": BUILT, "commit": COMMIT, "version": __version__}


def version_line() -> str:
    """What `-version` prints."""
    facts = build_facts()
    return f"version: {facts['version']} ({facts['commit']}), built at {facts['build_date']}"


def commit_of(folder: str) -> tuple[str, str] | None:
    """The short name and the time of the commit that is checked out there; None if that is no checkout, or without git.

    Folders above do not count: an environment that stands in somebody's repository is no checkout of lswap.
    """
    if not os.path.exists(os.path.join(folder, ".git")):
        return None
    import subprocess  # noqa: PLC0415 - only where it is needed

    words = ["git", "-c", "core.abbrev=8", "show", "-s", "--format=%h %cI", "HEAD"]
    # Those of a repository whose hook runs us would name that one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = done.stdout.split()
    return (found[0], found[1]) if done.returncode == 0 and len(found) == 2 else None
