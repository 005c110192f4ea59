"""Which lswap this is (`lswap.version`). That packages know is for `tests.integration.test_install`."""

from __future__ import annotations

import os
import pathlib
import subprocess
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

import lswap
from lswap import version

ROOT = pathlib.Path(lswap.__file__).parents[1]


class CommitTests(SynchronousTestCase):
    """The commit of a folder."""

    def setUp(self) -> None:
        """A repository with one commit."""
        self.folder = pathlib.Path(self.mktemp())
        (self.folder / "inside").mkdir(parents=True)
        try:
            self.git("init", "-q")
        except FileNotFoundError:
            raise SkipTest("no git") from None
        self.git("-c", "user.name=n", "-c", "user.email=n@h", "commit", "-q", "--allow-empty", "-m", "one")

    def git(self, *words: str) -> str:
        """What git says."""
        environment = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+00:00"}
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def test_checkout(self) -> None:
        """Its short name has eight letters; the time is that of the commit, whatever repository git is told of."""
        self.patch(os, "environ", {**os.environ, "GIT_DIR": "/nowhere"})
        name = self.git("--git-dir=.git", "rev-parse", "HEAD")[:8]
        found = version.commit_of(str(self.folder))
        assert found is not None
        self.assertEqual(found[0], name)
        self.assertEqual(found[1].replace("+00:00", "Z"), "2026-01-02T03:04:05Z")

    def test_none(self) -> None:
        """A folder in it is none, nor is one whose repository is broken; without git nobody knows."""
        self.assertIsNone(version.commit_of(str(self.folder / "inside")))
        (self.folder / "inside" / ".git").write_text("gitdir: /nowhere\n")
        self.assertIsNone(version.commit_of(str(self.folder / "inside")))
        self.patch(os, "environ", {"PATH": "/nowhere"})
        self.assertIsNone(version.commit_of(str(self.folder)))


class FactsTests(SynchronousTestCase):
    """What is told."""

    def facts(self) -> dict[str, str]:
        """As a new process finds them."""
        version.build_facts.cache_clear()
        self.addCleanup(version.build_facts.cache_clear)
        return version.build_facts()

    def test_line(self) -> None:
        """Version, commit and time, in the reference's form."""
        self.assertRegex(version.version_line(), r"^version: \S+ \(\S+\), built at \S+$")
        self.assertIn(f"version: {lswap.__version__} (", version.version_line())

    def test_this_one(self) -> None:
        """A checkout knows its commit."""
        if not (ROOT / ".git").exists():
            raise SkipTest("no checkout")
        facts = self.facts()
        self.assertEqual((facts["commit"], facts["build_date"]), version.commit_of(str(ROOT)) or ("unknown",) * 2)

    def test_unknown(self) -> None:
        """Without either, that is said, and the version all the same."""
        self.patch(version, "commit_of", lambda folder: None)
        facts = self.facts()
        if (ROOT / "lswap" / "_build.py").exists():
            raise SkipTest("a package")
        self.assertEqual(facts, {"version": lswap.__version__, "commit": "unknown", "build_date": "unknown"})
