"""What a llama-server answers to the calls about its slots, and of itself.

Pure; members that do not matter are skipped, not built. Source: llama.cpp, `tools/server/README.md`.
"""

from __future__ import annotations

import msgspec

from lswap.errors import LswapError

__all__ = ["AnswerError", "Props", "SlotRow", "parse_props", "parse_restored", "parse_saved", "parse_slots"]


class AnswerError(LswapError):
    """An answer that is not what llama-server says."""


class SlotRow(msgspec.Struct, frozen=True):
    """One slot of the server; `tokens` is None where it does not tell."""

    number: int
    tokens: int | None


class Props(msgspec.Struct, frozen=True):
    """What the server says of itself."""

    build_info: str = ""
    model_path: str = ""


class _Decoded(msgspec.Struct):
    n_decoded: int = 0


class _Row(msgspec.Struct):
    id: int
    n_past: int | None = None
    n_prompt_tokens: int | None = None
    next_token: list[_Decoded] | _Decoded | None = None


class _Saved(msgspec.Struct):
    n_saved: int
    n_written: int


class _Restored(msgspec.Struct):
    n_restored: int


_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def parse_slots(body: bytes) -> list[SlotRow]:
    """The answer to `GET /slots`.

    @raise AnswerError: it is none.
    """
    try:
        rows = msgspec.json.decode(body, type=list[_Row])
    except _FAULTS as problem:
        raise AnswerError("the list of slots cannot be understood") from problem
    return [SlotRow(row.id, _tokens(row)) for row in rows if row.id >= 0]


def _tokens(row: _Row) -> int | None:
    if row.n_past is not None:
        return row.n_past
    if row.n_prompt_tokens is None:
        return None
    first = row.next_token[:1] if isinstance(row.next_token, list) else [row.next_token]
    return row.n_prompt_tokens + sum(decoded.n_decoded for decoded in first if decoded is not None)


def parse_saved(body: bytes) -> tuple[int, int]:
    """Tokens and bytes of a save.

    @raise AnswerError: nothing was saved.
    """
    try:
        saved = msgspec.json.decode(body, type=_Saved)
    except _FAULTS as problem:
        raise AnswerError("its answer cannot be understood") from problem
    if saved.n_saved <= 0 or saved.n_written <= 0:
        raise AnswerError(f"it saved {saved.n_saved} tokens in {saved.n_written} bytes")
    return saved.n_saved, saved.n_written


def parse_restored(body: bytes) -> int:
    """Tokens that were restored.

    @raise AnswerError: none were.
    """
    try:
        restored = msgspec.json.decode(body, type=_Restored).n_restored
    except _FAULTS as problem:
        raise AnswerError("its answer cannot be understood") from problem
    if restored <= 0:
        raise AnswerError(f"it restored {restored} tokens")
    return restored


def parse_props(body: bytes) -> Props:
    """The answer to `GET /props`; empty for one that cannot be understood."""
    try:
        return msgspec.json.decode(body, type=Props)
    except _FAULTS:
        return Props()
