"""The page about differences names tests that exist."""

from __future__ import annotations

import pathlib
import re

from twisted.trial.unittest import SynchronousTestCase

ROOT = pathlib.Path(__file__).resolve().parent
PAGE = ROOT.parent / "docs/differences.md"


class DifferencesPageTests(SynchronousTestCase):
    """docs/differences.md."""

    def test_each_row_names_a_test(self) -> None:
        """A module of tests, and where a class or method stands beside it, one that is in it."""
        rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and line.count(" | ") == 3]
        rows = [row for row in rows if not row.startswith(("| the reference", "| ---"))]
        self.assertGreater(len(rows), 100)
        for row in rows:
            cell = row.rstrip(" |").rpartition(" | ")[2]
            modules = re.findall(r"(?<![\w`])((?:\w+\.)*(?:test_\w+|(?<=cases\.)\w+))(?: `(\w+)`)?", cell)
            self.assertTrue(modules, row)
            for module, name in modules:
                path = ROOT / (module.replace("cases.", "conformance/cases/").replace(".", "/") + ".py")
                self.assertTrue(path.exists(), row)
                if name:
                    self.assertRegex(path.read_text(), rf"\b(?:def|class) {name}\b", row)
