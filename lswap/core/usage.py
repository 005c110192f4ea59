"""Token counts and speeds, read out of an answer after its end: all API shapes, streamed or plain, packed or not.

Pure functions over bytes. Unknown figures are -1. Source: HTTP reference, section 13.
"""

from __future__ import annotations

import json
import math
import zlib
from http import HTTPStatus
from typing import Any

import msgspec

__all__ = ["PackingError", "Usage", "error_message", "of_answer", "of_ends", "shortened", "unpacked"]

#: Bytes that an answer may have once it is unpacked.
UNPACKED_LIMIT = 64 << 20
#: Bytes of an error's message.
_MESSAGE_LIMIT = 500
_WORDS = (b'"usage"', b'"timings"', b'"metrics"')


class Usage(msgspec.Struct):
    """What an answer says of its cost."""

    input: int = -1
    output: int = -1
    cached: int = -1
    drafted: int = -1
    accepted: int = -1
    #: Tokens per second.
    prompt_speed: float = -1.0
    output_speed: float = -1.0
    #: Milliseconds by the server's own clock.
    own_ms: float = 0.0

    @property
    def known(self) -> bool:
        """Whether there was any word about tokens."""
        return self.input >= 0 or self.output >= 0


class PackingError(Exception):
    """An answer is not packed as it says."""


_NONE = msgspec.Raw()


class _Part(msgspec.Struct):
    """The members of an answer, or of an event, that matter; the rest is skipped, not built."""

    usage: msgspec.Raw = _NONE
    timings: msgspec.Raw = _NONE
    metrics: msgspec.Raw = _NONE
    response: msgspec.Raw = _NONE
    message: msgspec.Raw = _NONE


_one = msgspec.json.Decoder(_Part)
_many = msgspec.json.Decoder(list[_Part])


def unpacked(data: bytes, coding: str, whole: bool = True) -> bytes:
    """A body without its `Content-Encoding`; codings other than gzip and deflate are left as they are.

    Of one that is not `whole` what can be unpacked is given.

    @raise PackingError: it is not packed so, or it is not complete, or it is far too long.
    """
    coding = coding.strip().lower()
    if coding in ("gzip", "x-gzip"):
        return _inflated(data, 31, whole)
    if coding != "deflate":
        return data
    try:
        return _inflated(data, 15, whole)  # as the standard has it
    except PackingError:
        return _inflated(data, -15, whole)


def _inflated(data: bytes, bits: int, whole: bool) -> bytes:
    parts: list[bytes] = []
    room = UNPACKED_LIMIT
    try:
        while data:  # gzip may have several members
            unpacker = zlib.decompressobj(bits)
            parts.append(unpacker.decompress(data, room))
            room -= len(parts[-1])
            if unpacker.unconsumed_tail or room <= 0:
                raise PackingError(f"more than {UNPACKED_LIMIT >> 20} MiB")
            if not unpacker.eof:
                if whole:
                    raise PackingError("unexpected end")
                break
            data = unpacker.unused_data if bits == 31 and unpacker.unused_data.startswith(b"\x1f\x8b") else b""
    except zlib.error as problem:
        raise PackingError(str(problem)) from problem
    return b"".join(parts)


def of_answer(body: bytes, kind: str, path: str) -> Usage:
    """The figures of a whole body, unpacked. `kind` is its Content-Type, `path` as it was forwarded."""
    found = _Figures()
    if "text/event-stream" in kind.lower():
        _read_events(body, found)
        return found.usage()
    try:
        if path.startswith("/infill") and body.lstrip()[:1] == b"[":
            parts = _many.decode(body)
            if parts:
                found.read(_Part(timings=parts[-1].timings))
        else:
            found.read(_one.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return found.usage()


def of_ends(head: bytes, tail: bytes, kind: str) -> Usage:
    """The figures of a body of which only the two ends were kept."""
    found = _Figures()
    for data in (head, tail):
        if "text/event-stream" in kind.lower():
            _read_events(data, found)
        else:
            found.read(_Part(**{word.decode().strip('"'): _last_member(data, word) for word in _WORDS}))
    return found.usage()


def _read_events(data: bytes, found: _Figures) -> None:
    """The figures of all events that may have any. Most have none, and are not even looked at one by one."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines: dict[int, int] = {}
    for word in _WORDS:
        at = data.find(word)
        while at >= 0:
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            lines[data.rfind(b"\n", 0, at) + 1] = end
            at = data.find(word, end)
    for start, end in sorted(lines.items()):
        if data.startswith(b"data:", start):
            try:
                found.read(_one.decode(data[start + 5 : end]))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue


def _last_member(data: bytes, word: bytes) -> msgspec.Raw:
    """The object after the last `"word":`; a word in quotes within a text has a backslash before its quote."""
    at = data.rfind(word)
    while at >= 0:
        rest = data[at + len(word) :].lstrip()
        if rest.startswith(b":"):
            try:
                text = rest[1:].decode("utf-8", "replace").lstrip()
                value, end = json.JSONDecoder().raw_decode(text)
                if isinstance(value, dict):
                    return msgspec.Raw(text[:end].encode())
            except (ValueError, RecursionError):
                pass
        at = data.rfind(word, 0, at)
    return _NONE


class _Figures:
    """Gathers figures, event by event; later ones win where they say something."""

    def __init__(self) -> None:
        self._input = self._output = 0
        self._cached = -1
        self._timings: dict[str, Any] | None = None
        self._metrics: dict[str, Any] | None = None
        self._any = False

    def read(self, part: _Part) -> None:
        """One answer or event."""
        for raw in (part.usage, _within(part.response), _within(part.message)):
            usage = _table(raw)
            if usage:
                self._read_usage(usage)
        timings, metrics = _table(part.timings), _table(part.metrics)
        if timings is not None:
            self._timings = timings
        if metrics is not None:
            self._metrics = metrics

    def _read_usage(self, usage: dict[str, Any]) -> None:
        self._any = True
        given = _whole(usage.get("prompt_tokens"))
        output = _whole(usage.get("completion_tokens"))
        self._input = (given if given is not None else _whole(usage.get("input_tokens"))) or self._input
        self._output = (output if output is not None else _whole(usage.get("output_tokens"))) or self._output
        for value in (
            usage.get("cache_read_input_tokens"),
            _member(usage.get("input_tokens_details"), "cached_tokens"),
            _member(usage.get("prompt_tokens_details"), "cached_tokens"),
        ):
            cached = _whole(value)
            if cached is not None:
                self._cached = cached
                break

    def usage(self) -> Usage:
        """What all of it comes to."""
        made = Usage()
        if self._any:
            made.input, made.output, made.cached = self._input, self._output, self._cached
        if self._metrics is not None:
            self._read_metrics(made, self._metrics)
        if self._timings is not None:
            self._read_timings(made, self._timings)
        if self._metrics is not None:
            speculative = self._metrics.get("speculative_decoding")
            _read_drafts(made, speculative, "num_draft_tokens", "num_accepted_draft_tokens")
        return made

    def _read_metrics(self, made: Usage, metrics: dict[str, Any]) -> None:
        first = _number(metrics.get("time_to_first_token_ms"))
        between = _number(metrics.get("mean_itl_ms"))
        fresh = made.input - max(made.cached, 0)
        if first > 0 and fresh > 0:
            made.prompt_speed = fresh / (first / 1000)
        if between > 0:
            made.output_speed = 1000 / between

    def _read_timings(self, made: Usage, timings: dict[str, Any]) -> None:
        made.input = _known(timings.get("prompt_n"), max(made.input, 0))
        made.output = _known(timings.get("predicted_n"), max(made.output, 0))
        made.cached = _known(timings.get("cache_n"), made.cached)
        made.prompt_speed = _number(timings.get("prompt_per_second"), made.prompt_speed)
        made.output_speed = _number(timings.get("predicted_per_second"), made.output_speed)
        made.own_ms = _number(timings.get("prompt_ms"), 0.0) + _number(timings.get("predicted_ms"), 0.0)
        _read_drafts(made, timings, "draft_n", "draft_n_accepted")


def _read_drafts(made: Usage, table: object, drafted: str, accepted: str) -> None:
    """Both figures or none."""
    if isinstance(table, dict):
        one, other = _whole(table.get(drafted)), _whole(table.get(accepted))
        if one is not None and other is not None:
            made.drafted, made.accepted = one, other


def _table(raw: msgspec.Raw) -> dict[str, Any] | None:
    if bytes(memoryview(raw)[:1]) != b"{":
        return None
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else None


def _within(raw: msgspec.Raw) -> msgspec.Raw:
    """The usage inside of a `response` or `message`; other servers have a text there."""
    if bytes(memoryview(raw)[:1]) != b"{":
        return _NONE
    return _one.decode(raw).usage


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _number(value: object, otherwise: float = -1.0) -> float:
    """A number that is finite and not negative."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    return otherwise


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if 0 <= number < 2**53 else None


def _known(value: object, otherwise: int) -> int:
    number = _whole(value)
    return number if number is not None else otherwise


# -- errors -------------------------------------------------------------------------


def error_message(body: bytes, status: int) -> str:
    """What the body of an error says is wrong, else the name of its status."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        error = value.get("error")
        for text in (_member(error, "message"), error, value.get("message"), value.get("detail")):
            if isinstance(text, str) and text.strip():
                return shortened(text.strip())
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def shortened(text: str) -> str:
    """At most 500 bytes of a text, cut between two characters."""
    data = text.encode("utf-8", "replace")
    if len(data) <= _MESSAGE_LIMIT:
        return text
    return data[:_MESSAGE_LIMIT].decode("utf-8", "ignore") + "..."
