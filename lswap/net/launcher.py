"""How a command becomes a process that leads its own session: which program, and which words go before it.

Touches the search path and, once, util-linux: it asks `setpriv` whether it knows `--pdeathsig`. Starts nothing that
stays. A program that cannot run is found out here, because behind `setsid` its absence would only be an exit code 127.
Read `lswap.net.leader` next: it spawns what is prepared here.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["Launcher", "find_program"]

#: For systems without `setsid`. It keeps the pid, as `setsid` does, but costs the start of a Python.
_SHIM = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"


class Launcher:
    """The words before a command. The same for every command, so one object serves all."""

    def __init__(self, session: Sequence[str], dies_with_us: Sequence[str] = ()) -> None:
        #: Make what follows the leader of a new session and process group, with the pid unchanged.
        self.session = tuple(session)
        #: Have the kernel send SIGTERM to what follows when lswap ends, however it ends.
        self.dies_with_us = tuple(dies_with_us)

    @classmethod
    @functools.cache
    def of_this_system(cls) -> Launcher:
        """What this machine offers; the result of the first `look` for good."""
        return cls.look()

    @classmethod
    def look(cls, path: str | None = None) -> Launcher:
        """Look what is on `path`, else on PATH. Takes some milliseconds, so it is no work for the reactor's thread."""
        setsid = shutil.which("setsid", path=path)
        if setsid is None:
            return cls.without_setsid()
        setpriv = shutil.which("setpriv", path=path)
        words = (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()
        return cls((setsid,), words if words and _works(words) else ())

    @classmethod
    def without_setsid(cls) -> Launcher:
        """What works wherever lswap itself does. The guard alone sees to our being killed then."""
        return cls((sys.executable, "-I", "-S", "-c", _SHIM))

    def words(self, command: Sequence[str], survives_us: bool = False) -> list[str]:
        """The whole argument list for `command`, whose first word must be an absolute path."""
        return [*self.session, *(() if survives_us else self.dies_with_us), *command]


def _works(words: Sequence[str]) -> bool:
    # The `setpriv` of BusyBox and those before util-linux 2.33 do not know the option.
    try:
        tried = subprocess.run(
            [*words, words[0], "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def find_program(name: str) -> str:
    """The absolute path of the program that `name` means: a path, or a name on lswap's own PATH.

    @raise OSError: nothing there can be run; its `strerror` says why, in words for a user.
    """
    if "/" in name:
        problem = _problem(name)
        if problem:
            raise OSError(0, problem, name)
        return os.path.abspath(name)
    worst = f"executable file not found in PATH: {name}" if name else "the command is empty"
    for folder in os.get_exec_path() if name else ():
        path = os.path.abspath(os.path.join(folder, name))
        problem = _problem(path)
        if not problem:
            return path
        if os.path.isfile(path):
            worst = problem
    raise OSError(0, worst, name)


def _problem(path: str) -> str:
    if os.path.isdir(path):
        return f"permission denied: {path} is a directory"
    if not os.path.isfile(path):
        return f"executable file not found: {path}"
    if not os.access(path, os.X_OK):
        return f"permission denied: {path} is not executable"
    return _interpreter_problem(path)


def _interpreter_problem(path: str) -> str:
    # The kernel's own words would be "no such file", about a file that is there: common after a virtualenv has moved.
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:
        return ""  # may be executable without being readable
    if not head.startswith(b"#!"):
        return ""
    # As the kernel reads it: blanks and tabs end the name, a carriage return belongs to it.
    name = head[2:].split(b"\n", 1)[0].replace(b"\t", b" ").lstrip(b" ").split(b" ", 1)[0]
    if not name or os.path.exists(name):
        return ""
    return f"executable file not found: {os.fsdecode(name)!r}, the interpreter of {path}"
