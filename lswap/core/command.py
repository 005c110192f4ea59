"""A command line → words. There is no shell: no variable, no glob, no pipe, no redirection.

Decides what the reference's configuration, section 5, says of `cmd` and `cmdStop`; one pass, linear time.
"""

from __future__ import annotations

import os
import re

__all__ = ["split", "strip_comments"]

#: A run of ordinary characters, or one that means something, outside of quotes.
_POSIX = re.compile(r"""[^ \t\n'"\\]+|[ \t\n]+|'[^']*(?:'|\Z)|"|\\\n?|.""", re.DOTALL)
_DOUBLE = re.compile(r"""[^"\\]+|"|\\.?""", re.DOTALL)
_WINDOWS = re.compile(r"[^ \t\r\n\"\\]+|[ \t\r\n]+|\\+\"?|\"", re.DOTALL)


def strip_comments(command: str) -> str:
    """Drop every line whose first character that is not blank is `#`, whatever quotes it stands in."""
    if "#" not in command:
        return command
    return "\n".join(line for line in command.split("\n") if not line.lstrip().startswith("#"))


def split(command: str, windows: bool = os.name == "nt") -> list[str]:
    """The words of a command by POSIX rules, or by those of Windows; none for nothing but blanks and comments.

    Comment lines are dropped, a backslash at the end of a line continues it, an open quote runs to the end.
    """
    text = _join_lines(strip_comments(command), windows)
    return _split_windows(text) if windows else _split_posix(text)


def _join_lines(command: str, windows: bool) -> str:
    """Put a blank for the backslash that ends a line, unless that one is escaped itself."""
    if "\\" not in command:
        return command
    lines = []
    for line in command.split("\n"):
        bare = line.strip()
        escapes = len(bare) - len(bare.rstrip("\\"))
        continued = escapes and (windows or escapes % 2)
        lines.append(bare[:-1] + " " if continued else line)
    return "\n".join(lines)


def _split_posix(text: str) -> list[str]:
    words: list[str] = []
    word: list[str] | None = None
    at, end = 0, len(text)
    while at < end:
        match = _POSIX.match(text, at)
        assert match is not None
        token, at = match[0], match.end()
        first = token[0]
        if first in " \t\n":
            if word is not None:
                words.append("".join(word))
                word = None
            continue
        if token == "\\\n":
            continue
        word = [] if word is None else word
        if first == "'":
            word.append(token[1:].removesuffix("'") if len(token) > 1 else "")
        elif first == '"':
            at = _quoted(text, at, word)
        elif first == "\\":
            word.append(text[at : at + 1])
            at += 1
        else:
            word.append(token)
    if word is not None:
        words.append("".join(word))
    return words


def _quoted(text: str, at: int, word: list[str]) -> int:
    """Add what stands between double quotes, from behind the first; gives the index behind the last."""
    while match := _DOUBLE.match(text, at):
        token, at = match[0], match.end()
        if token == '"':
            break
        if token == "\\\n":
            continue
        word.append(token[1:] if token[0] == "\\" and token[1:] in ("$", "`", '"', "\\") else token)
    return at


def _split_windows(text: str) -> list[str]:
    words: list[str] = []
    word: list[str] | None = None
    quoted = False
    at, end = 0, len(text)
    while at < end:
        match = _WINDOWS.match(text, at)
        assert match is not None
        token, at = match[0], match.end()
        first = token[0]
        if first in " \t\r\n" and not quoted:
            if word is not None:
                words.append("".join(word))
                word = None
            continue
        word = [] if word is None else word
        if first == "\\" and token.endswith('"'):
            count = len(token) - 1
            word.append("\\" * (count // 2))
            if count % 2:
                word.append('"')
            else:
                at -= 1  # the quote still has to do its work
        elif first == '"':
            at = match.start() + 1
            if quoted and text.startswith('"', at):
                word.append('"')
                at += 1
            else:
                quoted = not quoted
        else:
            word.append(token)
    if word is not None:
        words.append("".join(word))
    return words
