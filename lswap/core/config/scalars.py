"""What a plain YAML scalar is, and how a value looks as text.

The typing table of the reference (configuration, section 3) differs from PyYAML's: `yes` and `1:30` are text, `0o17`,
`1e3` and `08` are numbers. Read `lswap.core.config.nodes` next: where the scalars come from.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re

__all__ = ["BAD", "Bad", "ScalarError", "Timestamp", "Value", "kind_of", "resolve", "text_of"]


class Timestamp(str):
    """A date or moment; the text is its full canonical form."""

    __slots__ = ()


class Bad:
    """A value that could not be determined; the reason is reported already, so nobody complains of it again."""

    __slots__ = ()


BAD = Bad()

type_names = {
    bool: "!!bool",
    int: "!!int",
    float: "!!float",
    str: "!!str",
    Timestamp: "!!timestamp",
    type(None): "!!null",
}

Value = None | bool | int | float | str | Timestamp | Bad


class ScalarError(ValueError):
    """An explicit tag does not fit the text under it."""


_WORDS: dict[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((s + w for s in ("", "+") for w in (".inf", ".Inf", ".INF")), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INT = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:(?:([Tt])| )(\d{1,2}):(\d{1,2}):(\d{1,2})(?:[.,](\d+))?(Z|[-+]\d{2}:\d{2})?)?",
    re.ASCII,
)
_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1
_DECIMAL_FROM, _DECIMAL_TO = -4, 6
_STANDARD = "tag:yaml.org,2002:"


def resolve(text: str, plain: bool, tag: str | None) -> Value:
    """The value of a scalar; `tag` is the explicit one, None if there is none. ScalarError if the two do not fit."""
    if tag is None:
        return _plain(text) if plain else text
    if not tag.startswith(_STANDARD):
        return text
    name = tag.removeprefix(_STANDARD)
    if name == "str":
        return text
    if name == "binary":
        try:
            return base64.b64decode(text, validate=False).decode("utf-8", "replace")
        except binascii.Error:
            raise ScalarError("!!binary value contains invalid base64 data") from None
    if name not in ("int", "float", "bool", "null", "timestamp"):
        return text
    value = _plain(text)
    if name == "float" and type(value) is int:
        return float(value)
    if kind_of(value) != f"!!{name}":
        raise ScalarError(f"cannot decode {kind_of(value)} as a !!{name}")
    return value


def _plain(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        return _float(text)
    if first not in "+-0123456789":
        return text
    if (stamp := _timestamp(text)) is not None:
        return stamp
    bare = text.replace("_", "")
    if match := _INT.fullmatch(bare):
        number = _integer(match)
        if number is not None:
            return number
    value = _float(bare)
    return text if isinstance(value, str) else value


def _integer(match: re.Match[str]) -> int | None:
    """The number, or None if it takes more than 64 bits."""
    sign, hexadecimal, binary, octal, decimal = match.groups()
    digits, base = next((d, b) for d, b in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if d is not None)
    if len(digits) > 64:
        return None
    number = int(digits, base)
    if sign == "-":
        number = -number
    return number if _LOWEST <= number <= _HIGHEST else None


def _float(text: str) -> float | str:
    if not _FLOAT.fullmatch(text):
        return text
    number = float(text)
    return text if math.isinf(number) else number


def _timestamp(text: str) -> Timestamp | None:
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, t, hour, minute, second, fraction, zone = match.groups()
    if (t is not None) != (zone is not None):
        return None
    try:
        moment = datetime.datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        return None
    if zone is not None and zone != "Z" and (int(zone[1:3]) > 24 or int(zone[4:]) > 59):
        return None
    part = (fraction or "")[:9].rstrip("0")
    zone = "Z" if zone in (None, "Z", "+00:00", "-00:00") else zone
    return Timestamp(moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{part}" if part else "") + zone)


def kind_of(value: object) -> str:
    """The YAML name of a value's type, for messages."""
    return type_names.get(type(value), "!!str")


def text_of(value: bool | int | float | str) -> str:
    """The canonical text of a value: as a macro within text, or where a key wants text.

    Floats have the shortest digits that read back the same, and an exponent below -4 or from 6 on.
    """
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, _, power = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, part = mantissa.lstrip("-").partition(".")
    digits = (whole + part).lstrip("0")
    if not digits:
        return sign + "0"
    exponent = len(whole) - 1 - (len(whole + part) - len(digits)) + int(power or 0)
    digits = digits.rstrip("0")
    if _DECIMAL_FROM <= exponent < _DECIMAL_TO:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        if len(digits) <= exponent + 1:
            return sign + digits.ljust(exponent + 1, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
    head = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{sign}{head}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
