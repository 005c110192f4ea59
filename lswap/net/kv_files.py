"""The files of kept KV caches: what a fingerprint is made of, one folder for each, its record, and what goes.

Touches the disk and blocks, so everything here is called in a thread; raises OSError for what the disk refuses. Only
files that lswap named are ever deleted. Nothing is synchronised: a file that lost its end in a crash of the machine has
not the size that its record tells. Read `lswap.core.kv` for what is decided, `lswap.service.kv` for when.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import re
import stat
from collections.abc import Collection, Iterator, Mapping

import msgspec

from lswap.core import kv
from lswap.core.kv_command import ServerCommand
from lswap.core.model_parts import KvCache

__all__ = [
    "Found",
    "Opened",
    "Place",
    "begin",
    "commit",
    "default_folder",
    "discard",
    "facts_of",
    "find",
    "first_line",
    "forget",
    "holds_anything",
    "open_place",
    "remove",
    "still_there",
    "sweep",
    "touch",
    "written",
]

_MIB = 1 << 20
#: A record has some lines for each slot and file.
_LARGEST_RECORD = 4 * _MIB
#: Seconds that files may get of which no model of the configuration is the owner.
_MAX_AGE = KvCache().max_age
#: What a file has behind its name until it is complete.
_NEW = ".new"
_OURS = re.compile(r"(?P<group>[0-9a-f]{16}-)?(slot-\d+\.bin|record\.json)(\.new)?")


class Place(msgspec.Struct, frozen=True):
    """Where the files of one fingerprint are: a folder of their own, or one they share, told apart by a prefix."""

    folder: str
    prefix: str = ""

    @property
    def base(self) -> str:
        """The folder that this place shares with those of other commands."""
        return self.folder if self.prefix else os.path.dirname(self.folder)

    @property
    def key(self) -> str:
        """A text that no other place has."""
        return os.path.join(self.folder, self.prefix)

    def slot(self, number: int) -> str:
        """Path of a slot's file."""
        return os.path.join(self.folder, kv.slot_name(self.prefix, number))

    @property
    def record(self) -> str:
        """Path of the record."""
        return os.path.join(self.folder, kv.record_name(self.prefix))


class Opened(msgspec.Struct, frozen=True):
    """A place that is ready for use, and what was found there."""

    place: Place
    record: kv.Record
    #: What was found and cannot be used, in words.
    faults: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """What there is at one place; without a record nobody knows whose it is."""

    place: Place
    record: kv.Record | None
    bytes: int
    used: float


def default_folder(environment: Mapping[str, str]) -> str:
    """The folder for caches where the configuration names none: below the state directory of the service.

    That is systemd's `STATE_DIRECTORY`, else `lswap` in `XDG_STATE_HOME`, which is `~/.local/state` by default.
    """
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if not given:
        home = environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
        given = os.path.join(environment.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "lswap")
    return os.path.join(given, "kv")


# -- the fingerprint ----------------------------------------------------------------


def facts_of(path: str) -> kv.FileFacts:
    """What tells this content of a file from another; of one that cannot be read, or is none, only its name."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return kv.FileFacts(path)  # to open a pipe may take for ever
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            digest = hashlib.sha256(file.read(_MIB))
            file.seek(max(0, state.st_size - _MIB))
            digest.update(file.read(_MIB))
    except (OSError, ValueError):
        return kv.FileFacts(path)
    return kv.FileFacts(path, state.st_size, state.st_mtime_ns, digest.hexdigest())


def first_line(path: str) -> str:
    """The first line of a small text file."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline(4096).strip()


def open_place(model: str, command: ServerCommand, folder: str, max_age: float, now: float) -> Opened:
    """Take the fingerprint of a command; make its place in `folder`, or find it in the folder that the command names.

    What is there and too old, damaged, or recorded nowhere is deleted.
    """
    inputs = kv.Inputs(model, command.words, command.variables, tuple(map(facts_of, command.files)))
    fingerprint = kv.fingerprint_of(inputs)
    name = fingerprint[: kv.FOLDER_DIGITS]
    if command.save_path is not None:
        base = os.path.abspath(command.save_path)
        if not os.path.isdir(base):
            raise NotADirectoryError(errno.ENOTDIR, "there is no such folder", base)
        place = Place(base, f"{name}-")
    else:
        base = os.path.abspath(folder)
        place = Place(os.path.join(base, name))
        os.makedirs(base, 0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.folder, 0o700)
    empty = kv.Record(fingerprint, inputs)
    record, faults = _read(place)
    if record is None:
        faults += _relatives(base, place, inputs)
    elif record.fingerprint != fingerprint:
        record = None
    record = record or empty
    lost = {saved.slot for saved in record.slots} - {saved.slot for saved in still_there(place, record).slots}
    faults += [f"slot {slot}: {place.slot(slot)} is not what was saved" for slot in sorted(lost)]
    record = forget(place, record, lost | set(kv.expired(record, max_age, now)))
    _tidy(place, record)
    return Opened(place, record, tuple(faults))


def _read(place: Place) -> tuple[kv.Record | None, list[str]]:
    """The record of a place; None if there is none, or none that can be used, and then why."""
    try:
        with open(place.record, "rb") as file:
            data = file.read(_LARGEST_RECORD)
    except FileNotFoundError:
        return None, []
    record = kv.read_record(data)
    return record, [] if record is not None else [f"{place.record} is damaged"]


def _relatives(base: str, place: Place, inputs: kv.Inputs) -> list[str]:
    """Why there is nothing for this model at its place, if its files were others before."""
    theirs = [found for found in find(base) if found.place != place and _is_of(found, inputs.model)]
    newest = max(theirs, key=lambda found: found.used, default=None)
    changed = kv.changed_since(newest.record, inputs) if newest is not None and newest.record is not None else None
    return [f"{changed} has changed since"] if changed is not None else []


def _is_of(found: Found, model: str) -> bool:
    return found.record is not None and found.record.inputs.model == model and bool(found.record.slots)


def _tidy(place: Place, record: kv.Record) -> None:
    """Delete what a save left behind that came to no end, and a record that says nothing of use."""
    wanted = {place.slot(saved.slot) for saved in record.slots} | ({place.record} if record.slots else set())
    for path in _paths(place):
        if path not in wanted:
            _unlink(path)


# -- one slot --------------------------------------------------------------------------


def begin(place: Place, slot: int) -> str:
    """Make the file that a slot is saved to first, readable for nobody else; gives its name in the folder."""
    path = place.slot(slot) + _NEW
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    return os.path.basename(path)


def still_there(place: Place, record: kv.Record) -> kv.Record:
    """What is recorded and has the size that it should have."""
    return record.without([saved.slot for saved in record.slots if size_of(place.slot(saved.slot)) != saved.bytes])


def size_of(path: str) -> int:
    """Bytes of a file; -1 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def written(place: Place, slot: int) -> int:
    """Bytes that a save has written until now."""
    return max(0, size_of(place.slot(slot) + _NEW))


def discard(place: Place, slot: int) -> None:
    """Delete what a save wrote that came to nothing."""
    _unlink(place.slot(slot) + _NEW)


def commit(place: Place, record: kv.Record, saved: kv.SavedSlot) -> kv.Record:
    """Put a slot that was saved in the place of the one before, and record it.

    @raise OSError: the file is not as large as the server says, or the disk refuses; the new file is gone then.
    """
    path = place.slot(saved.slot)
    new = path + _NEW
    try:
        size = size_of(new)
        if size != saved.bytes:
            raise OSError(errno.EIO, f"{size} bytes instead of {saved.bytes} were written", new)
        os.chmod(new, 0o600)
        os.replace(new, path)
        made = record.with_slot(saved)
        try:
            _write(place, made)
        except OSError:
            _unlink(path)  # nobody would know what it is
            raise
    except OSError:
        _unlink(new)
        raise
    return made


def forget(place: Place, record: kv.Record, slots: Collection[int]) -> kv.Record:
    """Delete the files of slots, whole or not, and what is recorded of them."""
    for slot in slots:
        _unlink(place.slot(slot))
        _unlink(place.slot(slot) + _NEW)
    left = record.without(slots)
    if left.slots != record.slots:
        if left.slots:
            _write(place, left)
        else:
            _unlink(place.record)
    return left


def touch(place: Place) -> None:
    """Note that a place was used now."""
    with contextlib.suppress(OSError):
        os.utime(place.record)


def _write(place: Place, record: kv.Record) -> None:
    new = place.record + _NEW
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(kv.write_record(record))
        os.replace(new, place.record)
    except OSError:
        _unlink(new)
        raise


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


# -- all places of a folder ---------------------------------------------------------------


def find(folder: str) -> list[Found]:
    """All places in a folder, those without files too; none if it cannot be read."""
    places: dict[str, Place] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                matched = _OURS.fullmatch(entry.name)
                if matched is not None and matched["group"] is not None:
                    places.setdefault(matched["group"], Place(folder, matched["group"]))
                elif kv.is_group_name(entry.name) and entry.is_dir(follow_symlinks=False):
                    places[entry.name] = Place(entry.path)
    except OSError:
        return []
    return [_look(place) for _, place in sorted(places.items())]


def _look(place: Place) -> Found:
    total, used = 0, 0.0
    for path in _paths(place):
        with contextlib.suppress(OSError):
            state = os.stat(path)
            total += state.st_size
            used = max(used, state.st_mtime)
    with contextlib.suppress(OSError):
        used = os.stat(place.record).st_mtime
    try:
        record, _ = _read(place)
    except OSError:
        record = None
    return Found(place, record, total, used)


def _paths(place: Place) -> Iterator[str]:
    """The files of a place that lswap named."""
    try:
        names = os.listdir(place.folder)
    except OSError:
        return
    for name in names:
        matched = _OURS.fullmatch(name)
        if matched is not None and (matched["group"] or "") == place.prefix:
            yield os.path.join(place.folder, name)


def remove(place: Place) -> None:
    """Delete all files of a place. Its folder stays: a server that runs may have been told of it."""
    for path in _paths(place):
        _unlink(path)


def holds_anything(place: Place) -> bool:
    """Whether there is any file of ours."""
    return next(_paths(place), None) is not None


def sweep(folder: str, in_use: Collection[str], ages: Mapping[str, float], most: int | None, now: float) -> list[str]:
    """Delete what is too old, then the least recently used until no more than `most` bytes are left.

    `in_use` has the keys of places that are left alone, `ages` the seconds for each model of the configuration. Gives
    the models, or folders, of which something was dropped for the quota.
    """
    left: dict[str, Found] = {}
    for found in find(folder):
        if found.place.key in in_use:
            left[found.place.key] = found
        elif found.record is None or not found.record.slots:
            _clear(found, now - _MAX_AGE)
        else:
            old = kv.expired(found.record, ages.get(found.record.inputs.model, _MAX_AGE), now)
            with contextlib.suppress(OSError):
                forget(found.place, found.record, old)
            left[found.place.key] = _look(found.place)
    if most is None:
        return []
    dropped = kv.outgrown([kv.Group(key, found.bytes, found.used) for key, found in left.items()], most, in_use)
    for key in dropped:
        remove(left[key].place)
    return [record.inputs.model if (record := left[key].record) is not None else key for key in dropped]


def _clear(found: Found, oldest: float) -> None:
    """Delete a place that holds nothing of use, once nobody can be about to use it."""
    place = found.place
    with contextlib.suppress(OSError):
        if max(found.used, os.stat(place.folder).st_mtime if not place.prefix else 0.0) < oldest:
            remove(place)
            if not place.prefix:
                os.rmdir(place.folder)
