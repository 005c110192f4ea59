"""Noticing changes of the configuration (`lswap.net.watch`): real files, made-up time."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.watch import INTERVAL, Watcher, fingerprint
from tests.wires import MemoryReactor


class WatchCase(SynchronousTestCase):
    """A folder for a configuration."""

    def setUp(self) -> None:
        """An empty folder."""
        self.folder = pathlib.Path(self.mktemp())
        self.folder.mkdir()
        self.path = self.folder / "config.yaml"

    def put(self, text: str, name: str = "config.yaml") -> pathlib.Path:
        """Write in place."""
        path = self.folder / name
        path.write_text(text)
        return path


class FingerprintTests(WatchCase):
    """What is the same, and what is not."""

    def test_content(self) -> None:
        """Other content is another, also of the same size and time; a touched file is the same."""
        self.put("a: 1")
        os.utime(self.path, (1, 1))
        first = fingerprint(str(self.path), None)
        self.put("a: 2")
        os.utime(self.path, (1, 1))
        second = fingerprint(str(self.path), None)
        os.utime(self.path, (9, 9))
        self.assertNotEqual(first, second)
        self.assertEqual(fingerprint(str(self.path), None), second)

    def test_directory(self) -> None:
        """Names, order and contents of its YAML files count; other files do not."""
        seen = []
        for change in (
            lambda: self.put("x", "a.yaml"),
            lambda: self.put("y", "b.yml"),
            lambda: self.put("", "b.yml"),
            lambda: self.put("xy", "a.yaml"),
            lambda: (self.folder / "a.yaml").rename(self.folder / "c.yaml"),
        ):
            change()
            seen.append(fingerprint(None, str(self.folder)))
            self.put("z", "note.txt")
            self.assertEqual(fingerprint(None, str(self.folder)), seen[-1])
        self.assertNotIn(None, seen)
        self.assertEqual(len(set(seen)), len(seen))

    def test_bytes_that_move_between_files(self) -> None:
        """The same bytes, divided in another way, are another configuration."""
        self.put("ab", "a.yaml")
        self.put("c", "b.yaml")
        first = fingerprint(None, str(self.folder))
        self.put("a", "a.yaml")
        self.put("bc", "b.yaml")
        self.assertNotEqual(fingerprint(None, str(self.folder)), first)

    def test_nothing_there(self) -> None:
        """What is missing, empty of files, or cannot be read, has none."""
        self.assertIsNone(fingerprint(str(self.path), None))
        self.assertIsNone(fingerprint(None, str(self.folder)))
        self.assertIsNone(fingerprint(None, str(self.folder / "none")))
        self.assertIsNone(fingerprint(str(self.folder), None))
        self.assertIsNone(fingerprint(None, None))
        self.path.symlink_to(self.folder / "nowhere")
        self.assertIsNone(fingerprint(str(self.path), None))


class WatcherTests(WatchCase):
    """When it tells."""

    def setUp(self) -> None:
        """A file that is watched."""
        super().setUp()
        self.reactor = MemoryReactor()
        self.told = 0
        self.put("a: 1")
        self.watch(lambda: fingerprint(str(self.path), None))

    def watch(self, look: Callable[[], bytes | None]) -> None:
        """Watch what this sees, from now on."""
        self.watcher = Watcher(self.reactor, look, self._changed)
        self.watcher.start(look())

    def _changed(self) -> None:
        self.told += 1

    def news(self, seconds: float = INTERVAL) -> int:
        """How often it told within these seconds."""
        before = self.told
        self.reactor.turn(seconds)
        return self.told - before

    def test_nothing_new(self) -> None:
        """The first looks are no news; nor is a touched file."""
        self.assertEqual(self.news(), 0)
        os.utime(self.path, (1, 1))
        self.assertEqual((self.news(), self.news()), (0, 0))

    def test_in_place(self) -> None:
        """Once, at the next look, and again after the next change."""
        self.put("a: 2")
        self.assertEqual(self.news(INTERVAL - 0.1), 0)
        self.assertEqual((self.news(0.2), self.news()), (1, 0))
        self.put("a: 1")
        self.assertEqual(self.news(), 1)

    def test_same_size_and_time(self) -> None:
        """A change that nothing but the content shows."""
        os.utime(self.path, (1, 1))
        self.put("a: 2")
        os.utime(self.path, (1, 1))
        self.assertEqual(self.news(), 1)

    def test_renamed_over(self) -> None:
        """An editor's way to save."""
        os.replace(self.put("a: 2", "config.new"), self.path)
        self.assertEqual(self.news(), 1)

    def test_symbolic_link(self) -> None:
        """A link that points elsewhere, also where a folder on the way does (as Kubernetes does it)."""
        for name, text in (("one", "a: 1"), ("two", "a: 2")):
            (self.folder / name).mkdir()
            self.put(text, f"{name}/config.yaml")
        (self.folder / "data").symlink_to("one")
        self.path.unlink()
        self.path.symlink_to("data/config.yaml")
        self.assertEqual(self.news(), 0)  # the same content
        (self.folder / "flip").symlink_to("two")
        os.replace(self.folder / "flip", self.folder / "data")
        self.assertEqual(self.news(), 1)
        self.path.unlink()
        self.path.symlink_to("one/config.yaml")
        self.assertEqual(self.news(), 1)

    def test_missing(self) -> None:
        """Its absence is no news, its return with the same content neither; other content is."""
        self.path.unlink()
        self.assertEqual((self.news(), self.news()), (0, 0))
        self.put("a: 1")
        self.assertEqual(self.news(), 0)
        self.path.unlink()
        self.assertEqual(self.news(), 0)
        self.put("a: 2")
        self.assertEqual(self.news(), 1)

    def test_directory(self) -> None:
        """Files that come, go and change; an empty folder is no news."""
        self.watch(lambda: fingerprint(None, str(self.folder)))
        self.put("b: 1", "b.yaml")
        self.assertEqual(self.news(), 1)
        self.path.unlink()
        self.assertEqual(self.news(), 1)
        (self.folder / "b.yaml").unlink()
        self.assertEqual(self.news(), 0)
        self.put("b: 1", "b.yaml")
        self.assertEqual(self.news(), 0)  # as it was seen last

    def test_change_while_it_is_told(self) -> None:
        """What changes during the reload is found by the next look."""

        def changed() -> None:
            self._changed()
            self.put(f"a: {self.told + 10}")

        self.watcher._changed = changed
        self.put("a: 2")
        self.assertEqual((self.news(), self.news(), self.news()), (1, 1, 1))

    def test_faults(self) -> None:
        """Neither a look that breaks nor a listener that does ends the watching."""
        self.watcher.stop()
        seen: list[bytes | Exception] = [b"1", ValueError("boom"), b"2", b"3"]

        def look() -> bytes:
            found = seen.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        def changed() -> None:
            self._changed()
            raise KeyError("boom")

        watcher = Watcher(self.reactor, look, changed)
        watcher.start(look())
        self.assertEqual(self.news(), 0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual((self.news(), self.news()), (1, 1))
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 2)
        watcher.stop()

    def test_stop(self) -> None:
        """It looks no more; and may be stopped in the turn in which it tells, or before it began."""
        self.watcher.stop()
        self.put("a: 2")
        self.assertEqual((self.news(), self.reactor.getDelayedCalls()), (0, []))
        self.watch(lambda: fingerprint(str(self.path), None))
        self.watcher._changed = self.watcher.stop
        self.put("a: 3")
        self.news()
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        Watcher(self.reactor, lambda: b"", self._changed).stop()
