"""Build hook: writes `lswap/_build.py` into wheels and source archives, with the commit and its date.

An editable install goes without, as its commit moves. A wheel that is built from a source archive keeps the archive's.
"""

from __future__ import annotations

import pathlib
import subprocess
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    """The hook that pyproject.toml asks for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to what is built, if there is a commit to tell of."""
        here = pathlib.Path(self.root)
        if version == "editable" or not (here / ".git").exists():
            return
        commit = self._git("rev-parse", "--short=8", "HEAD")
        date = self._git("show", "-s", "--format=%cI", "HEAD")
        if commit and date:
            self._folder = tempfile.TemporaryDirectory()
            made = pathlib.Path(self._folder.name) / "_build.py"
            made.write_text(f'"""Made by hatch_build.py."""\n\nCOMMIT = "{commit}"\nBUILT = "{date}"\n')
            build_data["force_include"][str(made)] = "lswap/_build.py"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what `initialize` made."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()

    def _git(self, *words: str) -> str:
        try:
            done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=False)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""
