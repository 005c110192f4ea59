"""Regular expressions of lswap: none uses what Python 3.11.0 to 3.11.4 (so Debian 12's) gets wrong.

There the last, failed round of a possessively repeated group leaves the place where it failed behind: `(?:ab?c)++`
matches all of `aca` (python/cpython#106052). An atomic group around a plain repetition does the same, and rightly.
"""

from __future__ import annotations

import importlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import lswap
from lswap.core.json_text import Wanted

ROOT = pathlib.Path(lswap.__file__).parent
PARSER: Any = importlib.import_module("re._parser")


def repeats_groups_possessively(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether a pattern repeats more than one single character so."""

    def look(value: Any) -> bool:
        if isinstance(value, PARSER.SubPattern):
            return any(map(look, value.data))
        if isinstance(value, (list, tuple)):
            if value and str(value[0]) == "POSSESSIVE_REPEAT":
                body = value[1][2].data
                if len(body) != 1 or str(body[0][0]) not in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
                    return True
            return any(map(look, value))
        return False

    return look(PARSER.parse(pattern, flags & ~re.UNICODE if isinstance(pattern, bytes) else flags))


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """All that modules of lswap have at their top level, and those that `Wanted` makes."""
    for path in sorted(ROOT.rglob("*.py")):
        if "re.compile" not in path.read_text():
            continue
        name = ".".join(("lswap", *path.relative_to(ROOT).with_suffix("").parts))
        for member, value in vars(importlib.import_module(name)).items():
            if isinstance(value, re.Pattern):
                yield f"{name}.{member}", value
    yield "Wanted.others", Wanted(frozenset({"a", "b"}), 1).others


class PatternTests(SynchronousTestCase):
    """Every pattern."""

    def test_no_group_is_repeated_possessively(self) -> None:
        """Single characters may be."""
        found = dict(patterns())
        self.assertGreater(len(found), 30)
        bad = [name for name, one in found.items() if repeats_groups_possessively(one.pattern, one.flags)]
        self.assertEqual(bad, [])

    def test_the_check_itself(self) -> None:
        """It tells what is wrong from what is right."""
        for wrong in (r"(?:ab?c)++", r"x(?:a|bc){0,3}+y", rb"(?:(?:ab)*+c)?"):
            self.assertTrue(repeats_groups_possessively(wrong), wrong)
        for right in (r"a++b*+", rb"[^x]{0,9}+", r"(?>(?:ab)*)", r"(?:a++b)*"):
            self.assertFalse(repeats_groups_possessively(right), right)
