"""Which paths below `/upstream/<model>` never start a model: page assets that a browser asks for by itself.

Source: HTTP reference, section 8.1; the key `upstream.ignorePaths`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

__all__ = ["is_ignored"]

#: Longer paths are no page assets; a pattern may take a time that grows with the square of the length.
_LONGEST = 2048
_ANYTHING = re.compile(r"\.\*(?![*+?{])")


@functools.lru_cache(maxsize=64)
def _quick(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """A pattern that is found in the same texts, but not tried anew from each place for the sake of a first `.*`."""
    rest = _ANYTHING.match(pattern.pattern)
    return re.compile(pattern.pattern[rest.end() :], pattern.flags) if rest is not None else pattern


def is_ignored(path: bytes, patterns: Sequence[re.Pattern[str]]) -> bool:
    """Whether a pattern is found in the path (as it stands in the request, without its query)."""
    if len(path) > _LONGEST:
        return False
    text = unquote_to_bytes(path).decode("utf-8", "replace")
    return any(_quick(pattern).search(text) is not None for pattern in patterns)
