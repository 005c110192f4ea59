"""The worked examples of `docs/scheduling.md` are what lswap does."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.service import stories


class StoryTests(SynchronousTestCase):
    """Three transcripts."""

    def test_current(self) -> None:
        """After a change, run `python -m tests.service.stories`."""
        text = stories.DOCUMENT.read_text(encoding="utf-8")
        self.assertEqual(text, stories.with_stories(text))

    def test_two_pages(self) -> None:
        """What is beside the examples can be read at a sitting."""
        text, _, examples = stories.DOCUMENT.read_text(encoding="utf-8").partition("## Three examples")
        self.assertLess(len(text.split()), 700)
        self.assertEqual(examples.count("<!-- story: "), 3)

    def test_groups(self) -> None:
        """One model goes when its last request is over; the helper stays."""
        text = stories.STORIES["groups"]().text
        self.assertIn("3: wait\n", text)
        self.assertTrue(text.rstrip("`\n").endswith("runs: code (ready), embed (ready)"))

    def test_matrix(self) -> None:
        """The dear one stays where a set has it."""
        self.assertIn("runs: medium (ready), tts (ready)", stories.STORIES["matrix"]().text)

    def test_leaving(self) -> None:
        """The load gives way, the idle one goes, who waits is refused."""
        text = stories.STORIES["leaving"]().text
        self.assertEqual(text.count("runs: nothing"), 2)
        self.assertIn("is refused: group: model unloaded", text)
