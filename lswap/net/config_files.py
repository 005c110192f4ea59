"""Reads the files of a configuration, and checks what only the machine knows: key files, the store, programs, rights.

Touches files, and nothing else; every trouble becomes a `Problem`. Read `lswap.core.config` next: what is made of them.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping

import msgspec

from lswap.core.config import Loaded, Problem, Source, load
from lswap.core.config.access import SPACES
from lswap.core.config.environment import EMPTY_KEY
from lswap.core.model import ApiKey, Config

__all__ = ["advice", "complete", "load_files", "read_sources"]

_SUFFIXES = (".yml", ".yaml")
#: A configuration is text that somebody wrote.
_LARGEST = 64 << 20
_SQLITE = b"SQLite format 3\0"


def read_sources(config: str | None, config_dir: str | None) -> tuple[list[Source], list[Problem]]:
    """All files in the order in which they are merged: `config`, then those of the directory in byte order.

    Never raises for a file or directory that cannot be read: that is a problem.
    """
    problems: list[Problem] = []
    if not config and not config_dir:
        return [], [_problem("", "at least one of -config or -config-dir must be provided")]
    paths = [config] if config else []
    if config_dir:
        found, problem = _list(config_dir)
        problems += problem
        for path in found:
            if config and os.path.abspath(path) == os.path.abspath(config):
                message = f"-config path {config} is also present in -config-dir {config_dir}; remove it from one"
                problems.append(_problem(config, message))
            else:
                paths.append(path)
    if not paths and not problems:
        problems.append(_problem(config_dir or "", "no configuration sources found"))
    sources: list[Source] = []
    for path in paths:
        try:
            sources.append(Source(path, _read(path, anything=path == config)))
        except (OSError, ValueError) as error:
            problems.append(_problem(path, f"failed to read config {path}: {_reason(error)}"))
    return sources, problems


def load_files(
    config: str | None, config_dir: str | None, environ: Mapping[str, str], ports: Mapping[str, int] | None = None
) -> Loaded:
    """Everything at once: read, load, complete. Blocks; `ports` is as for `load`."""
    sources, problems = read_sources(config, config_dir)
    if problems:
        return Loaded(None, tuple(problems))
    return complete(load(sources, environ, ports))


def complete(loaded: Loaded) -> Loaded:
    """Read the key files, and see whether the store can be written; what cannot is a problem. Blocks."""
    config = loaded.config
    if config is None:
        return loaded
    problems = list(_check_store(config.store_path, loaded))
    keys: list[ApiKey] = []
    for at, key in enumerate(config.api_keys):
        path = f"apiKeys[{at}].keyFile"
        text, message = _read_key(key.key_file) if key.key_file is not None else (key.key, "")
        if message:
            problems.append(_at(loaded, path, message))
        keys.append(msgspec.structs.replace(key, key=text))
    if problems:
        return msgspec.structs.replace(loaded, config=None, problems=tuple(sorted(problems)))
    return msgspec.structs.replace(loaded, config=msgspec.structs.replace(config, api_keys=tuple(keys)))


def _read_key(path: str) -> tuple[str, str]:
    """The key in a file, or what is wrong with it."""
    try:
        text = _read(path).decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        return "", f"{path} is not text"
    except (OSError, ValueError) as error:
        return "", f"cannot read {path}: {_reason(error)}"
    if not text.strip():
        return "", f"{EMPTY_KEY}: {path} is empty"
    if "\n" in text or "\r" in text:
        return "", f"{path} has more than one line"
    return text, f"{path}: {SPACES}" if " " in text else ""


def _check_store(path: str | None, loaded: Loaded) -> Iterator[Problem]:
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if not os.path.isdir(folder):
            yield _at(loaded, "store.path", f"store.path: directory {folder} is not writable: no such directory")
        elif not os.access(folder, os.W_OK | os.X_OK):
            yield _at(loaded, "store.path", f"store.path: directory {folder} is not writable: permission denied")
        return
    except (OSError, ValueError) as error:
        yield _at(loaded, "store.path", f"store.path: {_reason(error)}")
        return
    if stat.S_ISDIR(found.st_mode):
        yield _at(loaded, "store.path", f"store.path: {path} is a directory, not a file")
    elif not os.access(path, os.W_OK):
        yield _at(loaded, "store.path", f"store.path: {path} is not writable: permission denied")
    elif not _may_be_sqlite(path):
        yield _at(loaded, "store.path", f"store.path: {path} is not an SQLite database")


def _may_be_sqlite(path: str) -> bool:
    """Whether a file is empty, or begins like SQLite's (file format, section 1.3); one that cannot be read may be."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_SQLITE)) in (b"", _SQLITE)
    except OSError:
        return True


def advice(loaded: Loaded, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Warnings about the machine, for `lswap check`: missing programs, secrets that others may read. Blocks."""
    found = [_others_may_read(path) for path in loaded.secret_files]
    if loaded.config is not None:
        found += [_others_may_read(key.key_file) for key in loaded.config.api_keys if key.key_file is not None]
        found += _missing_programs(loaded.config, loaded, environ)
    return tuple(sorted(problem for problem in found if problem is not None))


def _others_may_read(path: str) -> Problem | None:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None
    if os.name == "nt" or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    who = "everyone" if mode & stat.S_IROTH else "its group"
    return _problem(path, f"permission {mode:04o} lets {who} read the API keys in it", "chmod 600")


def _missing_programs(config: Config, loaded: Loaded, environ: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[tuple[str, str], bool] = {}
    for model in config.models.values():
        if not model.words:
            continue
        path = next((e[5:] for e in reversed(model.env) if e.startswith("PATH=")), environ.get("PATH", os.defpath))
        asked = (model.words[0], path)
        if asked not in seen:
            seen[asked] = _is_program(*asked)
        if not seen[asked]:
            message = f"model {model.id}: there is no program {model.words[0]}"
            hint = "" if os.sep in model.words[0] else "it is not on PATH"
            yield _at(loaded, f"models.{model.id}.cmd", message, hint)


def _is_program(name: str, path: str) -> bool:
    try:
        return shutil.which(name, path=path) is not None
    except ValueError:
        return False


def _list(folder: str) -> tuple[list[str], list[Problem]]:
    try:
        names = sorted((n for n in os.listdir(folder) if n.endswith(_SUFFIXES)), key=os.fsencode)
    except (OSError, ValueError) as error:
        return [], [_problem(folder, f"-config-dir {folder}: {_reason(error)}")]
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if not os.path.isdir(path)], []


def _read(path: str, anything: bool = False) -> bytes:
    """The content; of a file only, unless it may be anything: a pipe may never end."""
    if not anything and not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("not a file")
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"larger than {_LARGEST >> 20} MiB")
    return data


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _problem(file: str, message: str, hint: str = "") -> Problem:
    return Problem(file, 0, 0, "", message, hint)


def _at(loaded: Loaded, path: str, message: str, hint: str = "") -> Problem:
    file, line, column = loaded.places.get(path, ("", 0, 0))
    return Problem(file, line, column, path, message, hint)
