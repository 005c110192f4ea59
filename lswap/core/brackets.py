"""How deep brackets lie in JSON text that was split at its quotes: they are counted in bulk, not read one by one.

Escaped quotes have to be blanked or joined by the caller. `in_string` tells whether the first part is inside a string.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate, islice

__all__ = ["brackets_of", "levels_of", "pass_brackets"]

_BRACKETS = re.compile(rb"[\[\]{}]")
#: All bytes but brackets.
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
#: Brackets as signed steps between levels.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def brackets_of(parts: list[bytes], in_string: bool) -> bytes:
    """The brackets outside strings, in their order."""
    return b"".join(parts[in_string::2]).translate(None, _OTHERS)


def levels_of(brackets: bytes, depth: int) -> Iterator[int]:
    """The depth now, and after each of these brackets."""
    return accumulate(array("b", brackets.translate(_STEPS)), initial=depth)


def pass_brackets(parts: list[bytes], in_string: bool, brackets: bytes, depth: int) -> tuple[int, int]:
    """The depth behind this text, and the place behind the first bracket that comes back to level 0, or -1."""
    closing = brackets.count(b"}") + brackets.count(b"]")
    end = -1
    if closing and closing >= depth:
        levels = list(levels_of(brackets, depth))
        if 0 in levels[1:]:
            end = _place(parts, in_string, levels.index(0, 1)) + 1
    return depth + len(brackets) - 2 * closing, end


def _place(parts: list[bytes], in_string: bool, count: int) -> int:
    """Place of the `count`th bracket outside strings."""
    place = 0
    for number, part in enumerate(parts):
        if number % 2 == in_string:
            here = len(part.translate(None, _OTHERS))
            if count <= here:
                return place + next(islice(_BRACKETS.finditer(part), count - 1, None)).start()
            count -= here
        place += len(part) + 1
    return place
