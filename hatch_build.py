"""Build hook: writes `lswap/_build.py` into wheels and source archives, with the commit and its date.

An editable install goes without, as its commit moves. A wheel that is built from a source archive keeps the archive's.
"""

from __future__ import annotations

import pathlib
import runpy
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    """The hook that pyproject.toml asks for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to what is built, if there is a commit to tell of."""
        found = None if version == "editable" else self._commit()
        if found is not None:
            self._folder = tempfile.TemporaryDirectory()
            made = pathlib.Path(self._folder.name) / "_build.py"
            made.write_text(f'"""Made by hatch_build.py."""\n\nCOMMIT = "{found[0]}"\nBUILT = "{found[1]}"\n')
            build_data["force_include"][str(made)] = "lswap/_build.py"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what `initialize` made."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()

    def _commit(self) -> tuple[str, str] | None:
        # The package is not installed where it is built; this module of it needs nothing.
        before = list(sys.path)
        sys.path.insert(0, self.root)
        try:
            names = runpy.run_path(str(pathlib.Path(self.root) / "lswap" / "version.py"))
        finally:
            sys.path[:] = before
        commit: tuple[str, str] | None = names["commit_of"](self.root)
        return commit
