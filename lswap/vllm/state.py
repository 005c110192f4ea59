"""What is kept about one server between two wrappers: who may act, who uses it, which daemon it is.

Touches some small files in a folder of the user. The two locks are the kernel's, so that they end with whoever holds
them, however that ends. The record may be old, broken or gone at any time; it is believed only of a process that was
born when it says. Source: utilities reference, section 2.7.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import tempfile
from collections.abc import Mapping

import msgspec

from lswap.errors import LswapError
from lswap.net.birth import birth_of

__all__ = ["Lock", "Record", "ServerState", "StateError", "folder_for"]


class StateError(LswapError):
    """There is no place for the files. The user's fault, or that of the disk."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that was started here."""

    pid: int
    #: Of the process with this pid: see `lswap.net.birth`.
    birth: str
    words: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return bool(self.birth) and birth_of(self.pid) == self.birth


class Lock:
    """A lock on a file, which may be held by one process alone, or by several together."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._file = -1

    def take(self, shared: bool = False) -> bool:
        """Take it, or change how it is held; False when others are in the way. Never waits.

        @raise StateError: the file cannot be opened.
        """
        if self._file < 0:
            try:
                # Close-on-exec, as all files of Python: no child inherits the lock.
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as problem:
                raise StateError(f"cannot open {self._path}: {problem.strerror}") from problem
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as problem:
            raise StateError(f"cannot lock {self._path}: {problem.strerror}") from problem
        return True

    def release(self) -> None:
        """Let go of it. Without effect when it is not held."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class ServerState:
    """The files of one server, which its URL names."""

    def __init__(self, folder: pathlib.Path, url: str) -> None:
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", url.partition("://")[2])[:60].strip("-")
        name = f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
        #: Held by the one who starts, wakes or stops the server.
        self.acting = Lock(folder / f"{name}.lock")
        #: Held, shared, by those who serve.
        self.using = Lock(folder / f"{name}.users")
        #: What the daemon says.
        self.log = folder / f"{name}.log"
        self._record = folder / f"{name}.json"
        self._level = folder / f"{name}.level"

    def record(self) -> Record | None:
        """The daemon that was started last; None when nothing is known, or what is written is of no use."""
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=Record)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def write_record(self, record: Record) -> None:
        """Remember a daemon. What cannot be written is forgotten: the next wrapper then asks the server alone."""
        self._write(self._record, msgspec.json.encode(record))

    def forget(self) -> None:
        """Remember no daemon."""
        with contextlib.suppress(OSError):
            self._record.unlink()

    @property
    def level(self) -> int | None:
        """The level at which the server was put to sleep last."""
        try:
            text = self._level.read_bytes()
        except OSError:
            return None
        return int(text) if text in (b"0", b"1", b"2") else None

    @level.setter
    def level(self, level: int) -> None:
        self._write(self._level, str(level).encode())

    def _write(self, path: pathlib.Path, data: bytes) -> None:
        """Whole, or not at all."""
        temporary = path.with_suffix(f".{os.getpid()}.new")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()


def folder_for(given: str, environ: Mapping[str, str]) -> pathlib.Path:
    """The folder for the files, made if need be: `given`, or one of the user, or one below the system's /tmp.

    @raise StateError: none can be had that belongs to this user alone.
    """
    places = [pathlib.Path(given)] if given else []
    if not given:
        for base in (environ.get("XDG_STATE_HOME", ""), os.path.join(environ.get("HOME", ""), ".local/state")):
            if os.path.isabs(base):
                places.append(pathlib.Path(base) / "lswap-vllm")
        places.append(pathlib.Path(tempfile.gettempdir()) / f"lswap-vllm-{os.getuid()}")
    problem = ""
    for place in places:
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = place.lstat()
        except OSError as error:
            problem = f"{place}: {error.strerror}"
            continue
        if found.st_uid != os.getuid() or (found.st_mode & 0o022 and not given):
            problem = f"{place}: others may write there"
        elif os.access(place, os.W_OK | os.X_OK):
            return place
        else:
            problem = f"{place}: not writable"
    raise StateError(f"no folder for the state of the server: {problem}")
