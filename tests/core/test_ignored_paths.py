"""Paths that never start a model (`lswap.core.ignored_paths`)."""

from __future__ import annotations

import re
import time

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.ignored_paths import is_ignored
from lswap.core.model import Config


class IgnoredTests(SynchronousTestCase):
    """Path and patterns in, a yes or no out."""

    def test_usual(self) -> None:
        """Without a word of it: page assets."""
        patterns = Config().ignore_paths
        for path in (
            "/foo.js",
            "/bar/baz.json",
            "/static/img.png",
            "/notes.txt",
            "/favicon.ico",
            "/a%2Ejs",
            "/%FF.css",
        ):
            self.assertTrue(is_ignored(path.encode(), patterns), path)
        for path in ("/v1/chat/completions", "/v1/models", "/health", "/foo.jsx", "/", "/js", "/a.js/b", "/a.js%0A"):
            self.assertFalse(is_ignored(path.encode(), patterns), path)

    def test_own(self) -> None:
        """A pattern is searched anywhere in the decoded path, the first `.*` or not."""
        for pattern, path, ignored in (
            ("^/quiet/", "/quiet/z", True),
            ("^/quiet/", "/loud/quiet/z", False),
            ("quiet", "/loud/quiet/z", True),
            (".*quiet|noisy", "/so/noisy", True),
            (".*?quiet", "/loud/quiet/z", True),
            (r"^.*\.x$", "/a.x", True),
            (".*/é$", "/%C3%A9", True),
            (".*", "/", True),
        ):
            self.assertEqual(is_ignored(path.encode(), [re.compile(pattern)]), ignored, (pattern, path))

    def test_flags(self) -> None:
        """The flags of a pattern count."""
        self.assertTrue(is_ignored(b"/A.JS", [re.compile(r".*\.js", re.IGNORECASE)]))

    def test_endless(self) -> None:
        """No path holds up the reactor."""
        begun = time.process_time()
        for path in (b"/" + b"." * 1_000_000, b"/" + b"a" * 2000, b"/" + b".j" * 1000, b"/" + b"%2e" * 600):
            is_ignored(path, Config().ignore_paths)
        self.assertLess(time.process_time() - begun, 0.05)
