"""`lswap kv list` and `lswap kv clear`: the KV caches that are kept on this machine.

Looks at the files alone; a running lswap is neither needed nor asked, and finds out by itself what is gone. Read
`lswap.net.kv_files` for the files, docs/kv-cache.md for what users are told. Source: what lswap adds, section 2.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from lswap import options as words_of
from lswap.core.kv_command import read_command
from lswap.net import kv_files

__all__ = ["FLAGS", "HELP", "kv"]

FLAGS = (
    *(flag for flag in words_of.FLAGS if flag.name in ("config", "config-dir")),
    words_of.Flag("dir", "DIR", "look into this folder only"),
    words_of.Flag("json", "", "print one JSON object instead of lines"),
)
HELP = (
    "list shows what is kept, clear deletes it: all, or that of one model, by its ID. Without -dir the folders of the\n"
    "configuration are looked into; without a configuration the one that models have by default.\n"
    "Exit code: 0, 1 for what could not be done, 2 for words that are no flags.\n"
)


class _CannotError(Exception):
    """It cannot be done; the text says why."""


def kv(words: Sequence[str]) -> int:
    """List or clear; the exit code."""
    rest = list(words)
    action = rest.pop(0) if rest and rest[0] in ("list", "clear") else ""
    model = rest.pop(0) if action == "clear" and rest and not rest[0].startswith("-") else None
    try:
        values = words_of.read(rest, FLAGS)
    except words_of.OptionError as error:
        print(error, file=sys.stderr)
        return error.status
    if "help" in values:
        print(words_of.usage("lswap kv list|clear [MODEL]", FLAGS, HELP), end="")
        return 0
    if not action:
        print("lswap kv: say what to do: lswap kv list, or lswap kv clear [MODEL]", file=sys.stderr)
        return 2
    try:
        found = [one for folder in _folders(values) for one in _find(folder)]
        return _list(found, bool(values.get("json"))) if action == "list" else _clear(found, model)
    except _CannotError as problem:
        print(f"lswap kv: {problem}", file=sys.stderr)
        return 1


def _folders(values: dict[str, str | bool]) -> list[str]:
    """Where to look.

    @raise _CannotError: the configuration cannot be used.
    """
    if values.get("dir"):
        return [str(values["dir"])]
    default = kv_files.default_folder(os.environ)
    if not (values.get("config") or values.get("config-dir")):
        return [default]
    from lswap import tap

    settings = words_of.settle(values)
    loaded = tap.load(settings.config, settings.config_dir)
    if loaded.config is None:
        raise _CannotError("\n".join(map(str, loaded.problems)))
    folders: dict[str, None] = {}
    for model in loaded.config.models.values():
        if model.kv_cache.persist:
            own = read_command(model.words, {}).save_path
            folders[os.path.abspath(own or model.kv_cache.dir or default)] = None
    return list(folders)


def _find(folder: str) -> list[kv_files.Found]:
    """What there is in a folder. One that does not exist holds nothing.

    @raise _CannotError: it cannot be read.
    """
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _CannotError(f"{folder}: {error.strerror}; is it that of another user?") from error
    return [found for found in kv_files.find(folder) if found.bytes]


def _list(found: Sequence[kv_files.Found], as_json: bool) -> int:
    rows = [_row(one) for one in sorted(found, key=lambda one: -one.used)]
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode({"kept": rows})).decode())
        return 0
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["used"]))
        tokens = "+".join(str(slot["tokens"]) for slot in row["slots"]) or "no"
        print(f"{row['model'] or '(unknown)'}: {tokens} tokens, {row['bytes']:,} bytes, used {when}, {row['folder']}")
    total = sum(row["bytes"] for row in rows)
    print(f"{len(rows)} kept, {total:,} bytes in all", file=sys.stderr)
    return 0


def _row(found: kv_files.Found) -> dict[str, Any]:
    record = found.record
    slots = record.slots if record is not None else ()
    return {
        "model": record.inputs.model if record is not None else "",
        "folder": found.place.folder,
        "bytes": found.bytes,
        "used": found.used,
        "slots": [{"slot": saved.slot, "tokens": saved.tokens, "bytes": saved.bytes} for saved in slots],
    }


def _clear(found: Sequence[kv_files.Found], model: str | None) -> int:
    wanted = [one for one in found if model is None or (one.record is not None and one.record.inputs.model == model)]
    for one in wanted:
        kv_files.remove(one.place)
    left = [one.place for one in wanted if kv_files.holds_anything(one.place)]
    if left:
        raise _CannotError(f"{left[0].folder}: not all could be deleted; is it that of another user?")
    if model is not None and not wanted:
        raise _CannotError(f"nothing is kept of model {model}")
    print(f"deleted {len(wanted)}, {sum(one.bytes for one in wanted):,} bytes in all")
    return 0
