"""Regular expressions in RE2 syntax → Python's, which differ in small ways.

Decides: what RE2 refuses (look-around, back-references, possessive repetition) is refused here too; `$`, `\\z`,
`(?i)` in the middle, `(?<name>` and `[[:alpha:]]` mean the same as there. Unicode classes (`\\pL`) are refused, which
is a difference.
"""

from __future__ import annotations

import re
import warnings

__all__ = ["PatternError", "compile_re2"]

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>")
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_HEX = re.compile(r"\\x(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))")
_HIGHEST_REPEAT = 1000
_LONGEST = 4096


class PatternError(ValueError):
    """Why a pattern cannot be used."""


def compile_re2(pattern: str) -> re.Pattern[str]:
    """The compiled pattern; PatternError if RE2 would refuse it."""
    if len(pattern) > _LONGEST:
        raise PatternError("expression too long")
    translated = _Translator(pattern).translate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(translated, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(error.msg if isinstance(error, re.error) else "expression too large") from None


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        #: For each open group: how many groups that only carry flags have to be closed with it, and whether `^` and
        #: `$` mean lines there.
        self._open: list[tuple[int, bool]] = []
        self._extra = 0
        self._lines = False
        self._repeatable = False

    def translate(self) -> str:
        """The same expression in Python's syntax."""
        while self._at < len(self._pattern):
            self._step(self._pattern[self._at])
        if self._open:
            raise PatternError("missing closing )")
        return "".join(self._out) + ")" * self._extra

    def _emit(self, text: str, length: int, repeatable: bool = True) -> None:
        self._out.append(text)
        self._at += length
        self._repeatable = repeatable

    def _step(self, character: str) -> None:
        if character == "\\":
            self._escape()
        elif character == "[":
            self._class()
        elif character == "(":
            self._group()
        elif character == ")":
            self._close()
        elif character in "*+?":
            self._repeat(character, 1)
        elif character == "{" and (match := _REPEAT.match(self._pattern, self._at)):
            if max(int(number) for number in (match[1], match[3] or "0")) > _HIGHEST_REPEAT:
                raise PatternError("invalid repeat count")
            self._repeat(match[0], len(match[0]))
        elif character == "{":
            self._emit(r"\{", 1)
        elif character == "$":
            self._emit("(?m:$)" if self._lines else r"\Z", 1)
        elif character == "^":
            self._emit("(?m:^)" if self._lines else r"\A", 1)
        else:
            self._emit(character, 1, character != "|")

    def _repeat(self, text: str, length: int) -> None:
        if not self._repeatable:
            raise PatternError("missing argument to repetition operator")
        lazy = "?" if self._pattern.startswith("?", self._at + length) else ""
        self._emit(text + lazy, length + len(lazy), repeatable=False)
        if self._pattern.startswith(("*", "+", "?"), self._at) or _REPEAT.match(self._pattern, self._at):
            raise PatternError("invalid nested repetition operator")

    def _escape(self) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        if not following:
            raise PatternError("trailing backslash at end of expression")
        if following in "123456789":
            raise PatternError("invalid escape sequence")
        if following in "pP":
            raise PatternError("Unicode classes are not supported")
        if following == "Q":
            end = self._pattern.find(r"\E", self._at + 2)
            end = len(self._pattern) if end < 0 else end
            self._emit(re.escape(self._pattern[self._at + 2 : end]), end + 2 - self._at)
        elif following == "z":
            self._emit(r"\Z", 2)
        elif match := _HEX.match(self._pattern, self._at):
            self._emit(_character(match[1] or match[2]), len(match[0]))
        elif following.isalnum() and following not in "AbBdDsSwWafnrtv0":
            raise PatternError("invalid escape sequence")
        else:
            self._emit(self._pattern[self._at : self._at + 2] if following != "\n" else "\n", 2)

    def _class(self) -> None:
        end, parts = self._at + 1, ["["]
        if self._pattern.startswith("^", end):
            parts.append("^")
            end += 1
        first = True
        while True:
            character = self._pattern[end : end + 1]
            if not character:
                raise PatternError("missing closing ]")
            if character == "]" and not first:
                break
            first = False
            if match := _POSIX.match(self._pattern, end):
                if match[1] or match[2] not in _CLASSES:
                    raise PatternError("invalid character class range")
                parts.append(_CLASSES[match[2]])
                end = match.end()
            elif match := _HEX.match(self._pattern, end):
                parts.append(_character(match[1] or match[2]))
                end = match.end()
            elif character == "\\":
                following = self._pattern[end + 1 : end + 2]
                if following in ("p", "P"):
                    raise PatternError("Unicode classes are not supported")
                if not following or (following.isalnum() and following not in "dDsSwWafnrtv0"):
                    raise PatternError("invalid escape sequence")
                parts.append(self._pattern[end : end + 2])
                end += 2
            else:
                parts.append("\\" + character if character in "[]&~|" else character)
                end += 1
        self._emit("".join(parts) + "]", end + 1 - self._at)

    def _group(self) -> None:
        if match := _NAMED.match(self._pattern, self._at):
            self._begin(f"(?P<{match[1]}>", len(match[0]))
        elif match := _FLAGS.match(self._pattern, self._at):
            self._flags(match)
        elif self._pattern.startswith("(?", self._at):
            raise PatternError("invalid or unsupported Perl syntax")
        else:
            self._begin("(", 1)

    def _begin(self, text: str, length: int) -> None:
        self._open.append((self._extra, self._lines))
        self._extra = 0
        self._emit(text, length, repeatable=False)

    def _flags(self, match: re.Match[str]) -> None:
        on, off, end = match[1], match[2] or "", match[3]
        if "U" in on + off:
            raise PatternError("the flag U is not supported")
        lines = True if "m" in on else False if "m" in off else self._lines
        on, off = on.replace("m", ""), off.replace("m", "")
        start = f"(?{on}{'-' + off if off else ''}:"
        if end == ":":
            self._begin(start, len(match[0]))
        else:
            # Flags for the rest of the group: Python knows them at the beginning only, so the rest becomes a group.
            self._emit(start, len(match[0]), repeatable=False)
            self._extra += 1
        self._lines = lines

    def _close(self) -> None:
        if not self._open:
            raise PatternError("unexpected )")
        self._emit(")" * (self._extra + 1), 1)
        self._extra, self._lines = self._open.pop()


def _character(digits: str) -> str:
    number = int(digits, 16)
    if number > 0x10FFFF:
        raise PatternError("invalid escape sequence")
    return re.escape(chr(number))
