"""KV caches kept across swaps: what is saved, restored, dropped and believed. Pure; values in, values out.

`lswap.core.kv_command` says what a cache depends on, `lswap.core.kv_answers` what the server tells; `lswap.service.kv`
carries out what is decided here. Source: what lswap adds, section 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec

__all__ = [
    "FOLDER_DIGITS",
    "Effect",
    "FileFacts",
    "Group",
    "Inputs",
    "Record",
    "SavedSlot",
    "changed_since",
    "expired",
    "fingerprint_of",
    "is_group_name",
    "outgrown",
    "read_record",
    "record_name",
    "save_limit",
    "slot_name",
    "worth_saving",
    "write_record",
]

#: Digits of a fingerprint that name its folder.
FOLDER_DIGITS = 16
#: How much smaller than the one before a save may be.
_SHRINK = 4
#: Seconds that a save may take, and bytes for which it gets one more.
_SAVE_LIMIT = 30.0
_SAVE_SPEED = 100 << 20
#: Restores in a row without effect that switch the feature off.
_STRIKES = 2


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What tells one content of a file from another without reading all of it."""

    path: str
    #: Bytes; -1 for a file that cannot be read.
    size: int = -1
    #: Nanoseconds since the epoch.
    modified: int = 0
    #: SHA-256 of the first and the last MiB.
    ends: str = ""


class Inputs(msgspec.Struct, frozen=True):
    """All that a fingerprint is made of."""

    model: str
    command: tuple[str, ...]
    environment: dict[str, str]
    files: tuple[FileFacts, ...]


class SavedSlot(msgspec.Struct, frozen=True):
    """One slot in a file."""

    slot: int
    tokens: int
    bytes: int
    #: When, in seconds since the epoch, and how many seconds it took.
    saved: float
    took: float = 0.0

    @property
    def plausible(self) -> bool:
        """Whether a save can have made it."""
        return self.slot >= 0 and self.tokens > 0 and self.bytes > 0


class Record(msgspec.Struct, frozen=True):
    """What `record.json` holds."""

    fingerprint: str
    inputs: Inputs
    #: The build of the server, as it says.
    build: str = ""
    #: The model file that the server says it loaded, where the command names none.
    loaded: FileFacts | None = None
    slots: tuple[SavedSlot, ...] = ()

    def slot(self, number: int) -> SavedSlot | None:
        """What is kept of a slot."""
        return next((saved for saved in self.slots if saved.slot == number), None)

    def with_slot(self, saved: SavedSlot) -> Record:
        """With this in place of what was kept of the slot."""
        slots = (*(other for other in self.slots if other.slot != saved.slot), saved)
        return msgspec.structs.replace(self, slots=tuple(sorted(slots, key=lambda one: one.slot)))

    def without(self, numbers: Collection[int]) -> Record:
        """Without these slots."""
        return msgspec.structs.replace(self, slots=tuple(one for one in self.slots if one.slot not in numbers))


def fingerprint_of(inputs: Inputs) -> str:
    """The SHA-256 of all inputs, in hex."""
    return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()


def write_record(record: Record) -> bytes:
    """A record as it stands in its file."""
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


def read_record(data: bytes) -> Record | None:
    """A record out of its file; None for one that is damaged, or that somebody else wrote."""
    try:
        record = msgspec.json.decode(data, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    numbers = [saved.slot for saved in record.slots]
    if len(set(numbers)) < len(numbers) or not all(saved.plausible for saved in record.slots):
        return None
    return record


def changed_since(record: Record, inputs: Inputs) -> str | None:
    """The first file that is not what it was when a record was made; None if all are."""
    before = {facts.path: facts for facts in record.inputs.files}
    return next((facts.path for facts in inputs.files if before.get(facts.path, facts) != facts), None)


# -- names --------------------------------------------------------------------------


def slot_name(prefix: str, slot: int) -> str:
    """The file of a slot. `prefix` keeps models apart that share a folder."""
    return f"{prefix}slot-{slot}.bin"


def record_name(prefix: str) -> str:
    """The file that says what the others are."""
    return f"{prefix}record.json"


def is_group_name(name: str) -> bool:
    """Whether a folder may be one that a fingerprint named."""
    return len(name) == FOLDER_DIGITS and set(name) <= set("0123456789abcdef")


# -- decisions ----------------------------------------------------------------------------


def worth_saving(tokens: int | None, least: int, before: SavedSlot | None) -> bool:
    """Whether a slot with so many tokens is saved. What nobody used since the start keeps the file it has."""
    if tokens is None or tokens < max(1, least):
        return False
    return before is None or before.tokens <= tokens * _SHRINK


def save_limit(written: int) -> float:
    """Seconds that a save may take which has written so many bytes."""
    return _SAVE_LIMIT + written / _SAVE_SPEED


def expired(record: Record, max_age: float, now: float) -> list[int]:
    """The slots of a record that are too old."""
    return [saved.slot for saved in record.slots if saved.saved + max_age < now]


class Group(msgspec.Struct, frozen=True):
    """All files of one fingerprint, for the quota."""

    key: str
    bytes: int
    #: When it was saved or restored last.
    used: float


def outgrown(groups: Iterable[Group], most: int, in_use: Collection[str]) -> list[str]:
    """Keys of what has to go so that no more than `most` bytes are left: the least recently used first."""
    groups = sorted(groups, key=lambda group: group.used)
    total = sum(group.bytes for group in groups)
    gone = []
    for group in groups:
        if total <= most:
            break
        if group.key not in in_use:
            gone.append(group.key)
            total -= group.bytes
    return gone


class Effect:
    """Watches whether restores have an effect: some builds say that they restored, and compute the prompt again."""

    def __init__(self) -> None:
        #: By fingerprint: restores in a row that had none.
        self._strikes: dict[str, int] = {}

    def answered(self, fingerprint: str, cached: int) -> bool:
        """The first answer after a restore told this many cached tokens. Whether that is enough to give it up."""
        if cached > 0:
            self._strikes.pop(fingerprint, None)
            return False
        self._strikes[fingerprint] = self._strikes.get(fingerprint, 0) + 1
        return self._strikes[fingerprint] >= _STRIKES
