"""The page about `lswap check` shows what it really says."""

from __future__ import annotations

import os
import pathlib

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.config_files import load_files

ROOT = pathlib.Path(__file__).resolve().parent.parent


class CheckPageTests(SynchronousTestCase):
    """docs/check.md and docs/examples/mistakes.yaml."""

    def test_the_page_has_the_file_and_its_problems(self) -> None:
        """The page quotes the file, and each problem of it, in order, and nothing else."""
        page = (ROOT / "docs/check.md").read_text()
        path = ROOT / "docs/examples/mistakes.yaml"
        self.assertIn(path.read_text(), page)
        loaded = load_files(str(path), None, os.environ)
        told = [str(problem).replace(str(path), "mistakes.yaml") for problem in loaded.problems]
        self.assertEqual(len(told), 10)
        quoted = page.split("```text\n")[1].split("```")[0]
        self.assertEqual(quoted.splitlines(), told)
