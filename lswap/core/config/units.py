"""Sizes and times as people write them, and as messages say them."""

from __future__ import annotations

import re

__all__ = ["go_duration", "go_duration_text", "seconds", "size"]

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtT]?)(?:i?[bB])?")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_GO = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_NANO = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_HIGHEST = (1 << 63) - 1


def size(text: str) -> int | None:
    """Bytes; `K M G T` are powers of 1000. None for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number = float(match[1]) * _SIZES[match[2].upper()]
    return int(number) if number <= _HIGHEST else None


def seconds(text: str) -> float | None:
    """A number of seconds, or one with a unit `s m h d`. None for anything else."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    number = float(match[1]) * _TIMES[match[2]]
    return number if number <= _HIGHEST else None


def go_duration(text: str) -> float | None:
    """Seconds of a duration like `1m30s`, `1.5m` or `6000ms`, with an optional sign; `0` needs no unit."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, end = 0.0, 0
    for match in _GO.finditer(rest):
        if match.start() != end:
            return None
        total += float(match[1]) * _NANO[match[2]]
        end = match.end()
    if not rest or end != len(rest) or total > _HIGHEST:
        return None
    return sign * total / 10**9


def go_duration_text(duration: float) -> str:
    """A duration as the reference's messages write it: `4s`, `1m30s`, `4.999s`, `500ms`."""
    sign = "-" if duration < 0 else ""
    nano = round(abs(duration) * 10**9)
    if nano == 0:
        return "0s"
    if nano < 10**9:
        unit = next(u for u in ("ms", "µs", "ns") if nano >= _NANO[u])
        return f"{sign}{_decimal(nano / _NANO[unit])}{unit}"
    minutes, rest = divmod(nano, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(rest / 10**9)}s"


def _decimal(number: float) -> str:
    return f"{number:.9f}".rstrip("0").rstrip(".")
