"""How one line of lswap's own log looks: `[timestamp ][LEVEL] message` and a newline, in UTF-8; or a JSON object.

Decides the text only: the time comes as an argument, and where the line goes is the business of `lswap.service.logs`,
which is to be read next. Whatever a client may have put into a message, it cannot end the line or steer a terminal.
Source: configuration reference, section 7.2.
"""

from __future__ import annotations

import enum
import json
import time
from typing import NamedTuple

__all__ = ["LINE_FORMATS", "MESSAGE_LIMIT", "TIME_FORMATS", "Level", "LineFormat", "escape", "level_of"]

#: Characters of a message that are kept; a request target alone may have a million.
MESSAGE_LIMIT = 8192
#: Characters kept at each end of a detail (a traceback).
_DETAIL_ENDS = 12_288

_INDENT = "    "


class Level(enum.IntEnum):
    """How much a line matters; the names are the words in the log."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40


def level_of(name: str) -> Level:
    """The level that a configuration means: `debug`, `info`, `warn`, `error` in any case; all else acts as info."""
    return Level.__members__.get(name.strip().upper(), Level.INFO)


def _escapes() -> dict[int, str]:
    # C0, DEL and C1 steer terminals; U+2028 and U+2029 end a line for some readers.
    table = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
    return table | {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}


_ESCAPES = _escapes()


def escape(text: str) -> str:
    r"""The text in one line: a newline becomes `\n`, other control characters `\t`, `\x1b`, `\u2028` and so on.

    Backslashes stay as they are: this is for eyes, not for reading back.
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


class _Layout(NamedTuple):
    """A time format: a text, then so many digits of the second's fraction (after a dot), then another text."""

    head: str
    digits: int = 0
    tail: str = ""
    #: Trailing zeros of the fraction are left out, and with all of them the dot.
    cut: bool = False


_CLOCK = "{H:02}:{M:02}:{S:02}"
_DATE = "{Y:04}-{m:02}-{d:02}T" + _CLOCK
_STAMP = "{b} {d:2} " + _CLOCK

_LAYOUTS = {
    "ansic": _Layout("{a} " + _STAMP + " {Y:04}"),
    "unixdate": _Layout("{a} " + _STAMP + " {Z} {Y:04}"),
    "rubydate": _Layout("{a} {b} {d:02} " + _CLOCK + " {z} {Y:04}"),
    "rfc822": _Layout("{d:02} {b} {y:02} {H:02}:{M:02} {Z}"),
    "rfc822z": _Layout("{d:02} {b} {y:02} {H:02}:{M:02} {z}"),
    "rfc850": _Layout("{A}, {d:02}-{b}-{y:02} " + _CLOCK + " {Z}"),
    "rfc1123": _Layout("{a}, {d:02} {b} {Y:04} " + _CLOCK + " {Z}"),
    "rfc1123z": _Layout("{a}, {d:02} {b} {Y:04} " + _CLOCK + " {z}"),
    "rfc3339": _Layout(_DATE + "{iso}"),
    "rfc3339nano": _Layout(_DATE, 9, "{iso}", cut=True),
    "kitchen": _Layout("{I}:{M:02}{p}"),
    "stamp": _Layout(_STAMP),
    "stampmilli": _Layout(_STAMP, 3),
    "stampmicro": _Layout(_STAMP, 6),
    "stampnano": _Layout(_STAMP, 9),
}

#: The names that `logTimeFormat` may have.
TIME_FORMATS = frozenset(_LAYOUTS)

#: The words that `logFormat` may be.
LINE_FORMATS = ("json", "text")

# English whatever the locale: other programs read these.
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _fields(local: time.struct_time) -> dict[str, object]:
    """Named parts of a local time, for `str.format_map`; the names are those of strftime where it has one."""
    day = _DAYS[local.tm_wday]
    sign = "-" if local.tm_gmtoff < 0 else "+"
    hours, minutes = divmod(abs(local.tm_gmtoff) // 60, 60)
    return {
        "a": day[:3],
        "A": day,
        "b": _MONTHS[local.tm_mon - 1],
        "d": local.tm_mday,
        "m": local.tm_mon,
        "Y": local.tm_year,
        "y": local.tm_year % 100,
        "H": local.tm_hour,
        "I": local.tm_hour % 12 or 12,
        "p": "AM" if local.tm_hour < 12 else "PM",
        "M": local.tm_min,
        "S": local.tm_sec,
        "Z": local.tm_zone,
        "z": f"{sign}{hours:02}{minutes:02}",
        "iso": f"{sign}{hours:02}:{minutes:02}" if local.tm_gmtoff else "Z",
    }


class LineFormat:
    """Makes lines with one time format. Any thread may call it, as all it remembers is one value, replaced whole."""

    def __init__(self, time_format: str = "", line_format: str = "text") -> None:
        """@param time_format: one of `TIME_FORMATS`, in any case; all else, as nothing, gives lines without a time.

        @param line_format: `json` for one object a line, always with a time, of the format `rfc3339nano` where none is
            given; text else.
        """
        self._json = line_format == "json"
        self._layout = _LAYOUTS.get(time_format.strip().lower(), _LAYOUTS["rfc3339nano"] if self._json else None)
        #: The second that was asked for last, and its two texts around the fraction.
        self._last: tuple[int, str, str] | None = None

    def line(self, level: Level, message: str, when: float, detail: str = "") -> bytes:
        """One line; a `detail` follows in more, each of them indented so that none can pass for a line of its own.

        In JSON the detail is a member of the same object, and everything is ASCII, with escapes. Long texts are
        shortened with a word about it. Never raises.

        @param when: seconds since 1970.
        """
        if len(message) > MESSAGE_LIMIT:
            message = f"{message[:MESSAGE_LIMIT]}… ({len(message) - MESSAGE_LIMIT} more characters)"
        if self._json:
            fields = {"time": self._stamp(when).rstrip(" "), "level": level.name.lower(), "message": message}
            if detail:
                fields["detail"] = _ends(detail.rstrip("\n"))
            return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
        text = f"{self._stamp(when)}[{level.name}] {escape(message)}\n"
        if detail:
            text += _indented(detail)
        return text.encode("utf-8", "backslashreplace")

    def _stamp(self, when: float) -> str:
        """The time and a space; nothing without a format."""
        layout = self._layout
        if layout is None:
            return ""
        try:
            second, micros = divmod(round(when * 1_000_000), 1_000_000)
            last = self._last
            if last is None or last[0] != second:
                fields = _fields(time.localtime(second))
                last = self._last = (second, layout.head.format_map(fields), layout.tail.format_map(fields))
        except (TypeError, ValueError, OverflowError, OSError):
            return "- "
        if not layout.digits:
            return last[1] + " "
        fraction = f".{micros:06}000"[: 1 + layout.digits]
        if layout.cut:
            fraction = fraction.rstrip("0").rstrip(".")
        return f"{last[1]}{fraction}{last[2]} "


def _indented(detail: str) -> str:
    """Each line of a text behind four blanks."""
    return "".join(f"{_INDENT}{escape(line)}\n" for line in _ends(detail).rstrip("\n").split("\n"))


def _ends(detail: str) -> str:
    """The text without the middle of a very long one."""
    surplus = len(detail) - 2 * _DETAIL_ENDS
    if surplus <= 0:
        return detail
    return f"{detail[:_DETAIL_ENDS]}\n… ({surplus} characters left out)\n{detail[-_DETAIL_ENDS:]}"
