"""The files of kept KV caches (`lswap.net.kv_files`), on a real disk."""

from __future__ import annotations

import os
import pathlib
import stat

from twisted.trial.unittest import SynchronousTestCase

from lswap.core import kv
from lswap.core.kv_command import ServerCommand, read_command
from lswap.net import kv_files
from lswap.net.kv_files import Opened, Place

NOW = 1_000_000.0


class FilesCase(SynchronousTestCase):
    """A folder, and a model file."""

    def setUp(self) -> None:
        """Nothing was saved yet."""
        self.root = pathlib.Path(self.mktemp())
        self.root.mkdir()
        self.root = self.root.resolve()
        self.folder = self.root / "kv"
        self.weights = self.root / "a.gguf"
        self.weights.write_bytes(b"a" * 3_000_000)

    def command(self, flags: str = "") -> ServerCommand:
        """A llama-server on that file."""
        return read_command(["llama-server", "-m", str(self.weights), *flags.split()], {})

    def open(self, model: str = "a", flags: str = "", max_age: float = 1000.0, now: float = NOW) -> Opened:
        """Before a start."""
        return kv_files.open_place(model, self.command(flags), str(self.folder), max_age, now)

    def save(
        self, opened: Opened, slot: int = 0, size: int = 100, saved: float = NOW, told: int | None = None
    ) -> Opened:
        """What a save does; `told` is what the server says of the size."""
        name = kv_files.begin(opened.place, slot)
        (pathlib.Path(opened.place.folder) / name).write_bytes(b"x" * size)
        entry = kv.SavedSlot(slot, 1000, size if told is None else told, saved, 0.1)
        return Opened(opened.place, kv_files.commit(opened.place, opened.record, entry))

    def files(self, folder: pathlib.Path | None = None) -> list[str]:
        """All files below."""
        base = folder or self.folder
        return sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())


class FolderTests(SynchronousTestCase):
    """Where they are by default."""

    def test_state_directory(self) -> None:
        """systemd's, else the user's."""
        for environment, expected in (
            ({"STATE_DIRECTORY": "/var/lib/lswap:/other", "HOME": "/h"}, "/var/lib/lswap/kv"),
            ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/lswap/kv"),
            ({"HOME": "/h"}, "/h/.local/state/lswap/kv"),
        ):
            self.assertEqual(kv_files.default_folder(environment), expected)
        self.assertTrue(kv_files.default_folder({}).endswith("/.local/state/lswap/kv"))


class OpenTests(FilesCase):
    """Before a start."""

    def test_new(self) -> None:
        """A folder for each fingerprint, for nobody else to look into."""
        opened = self.open()
        self.assertEqual(opened.place, Place(str(self.folder / opened.record.fingerprint[:16])))
        self.assertEqual((opened.record.slots, opened.faults), ((), ()))
        for path in (self.folder, pathlib.Path(opened.place.folder)):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700)

    def test_found_again(self) -> None:
        """What was saved for the same is there, for another model or command it is not."""
        saved = self.save(self.open())
        self.assertEqual(self.open(), saved)
        for other in (self.open("b"), self.open(flags="-c 4096")):
            self.assertEqual((other.record.slots, other.faults), ((), ()))

    def test_model_file_that_changed(self) -> None:
        """Its size, its time, its beginning and its end: any of these is another fingerprint, and is told."""
        self.save(self.open())
        good = self.weights.stat()
        for content, times in (
            (b"a" * 3_000_001, (good.st_atime_ns, good.st_mtime_ns)),
            (b"a" * 3_000_000, (good.st_atime_ns, good.st_mtime_ns + 1)),
            (b"X" + b"a" * 2_999_999, (good.st_atime_ns, good.st_mtime_ns)),
            (b"a" * 2_999_999 + b"X", (good.st_atime_ns, good.st_mtime_ns)),
        ):
            self.weights.write_bytes(content)
            os.utime(self.weights, ns=times)
            opened = self.open()
            self.assertEqual(opened.record.slots, ())
            self.assertEqual(opened.faults, (f"{self.weights} has changed since",))
        self.weights.write_bytes(b"a" * 3_000_000)
        os.utime(self.weights, ns=(good.st_atime_ns, good.st_mtime_ns))
        self.assertEqual(len(self.open().record.slots), 1)

    def test_model_file_that_is_missing(self) -> None:
        """Is known by its name only."""
        self.weights.unlink()
        self.assertEqual(self.open().record.inputs.files, (kv.FileFacts(str(self.weights)),))

    def test_model_that_is_no_file(self) -> None:
        """Nobody waits for what a pipe may say."""
        for path in ("pipe", "folder"):
            (os.mkfifo if path == "pipe" else os.mkdir)(self.root / path)
            self.assertEqual(kv_files.facts_of(str(self.root / path)), kv.FileFacts(str(self.root / path)))
        self.assertEqual(kv_files.facts_of("a\0b"), kv.FileFacts("a\0b"))

    def test_own_folder_of_the_command(self) -> None:
        """Is used as it is; the files of several models in it are told apart, and others are left alone."""
        mine = self.root / "mine"
        mine.mkdir(mode=0o755)
        (mine / "by-hand.bin").write_bytes(b"x")
        (mine / "slot-0.bin").write_bytes(b"x")
        one = self.save(self.open(flags=f"--slot-save-path {mine}"))
        other = self.save(self.open("b", flags=f"--slot-save-path {mine}"))
        self.assertEqual(self.open(flags=f"--slot-save-path {mine}"), one)
        prefixes = sorted(opened.record.fingerprint[:16] for opened in (one, other))
        names = [f"{prefix}-{name}" for prefix in prefixes for name in ("record.json", "slot-0.bin")]
        self.assertEqual(self.files(mine), sorted([*names, "by-hand.bin", "slot-0.bin"]))
        self.assertFalse(self.folder.exists())

    def test_own_folder_that_is_missing(self) -> None:
        """Is the command's business, so it is not made."""
        with self.assertRaises(OSError) as caught:
            self.open(flags=f"--slot-save-path {self.root}/none")
        self.assertIn("no such folder", str(caught.exception))

    def test_folder_that_cannot_be_made(self) -> None:
        """Is an error that names it."""
        self.folder.write_text("")
        with self.assertRaises(OSError) as caught:
            self.open()
        self.assertIn(str(self.folder), str(caught.exception))

    def test_damage(self) -> None:
        """A record that is none, and files that are not what was saved, are told, and deleted."""
        for spoil, fault in (
            (lambda slot, record: slot.write_bytes(b"x" * 99), "is not what was saved"),
            (lambda slot, record: slot.unlink(), "is not what was saved"),
            (lambda slot, record: record.write_text("null"), "is damaged"),
            (lambda slot, record: record.write_text(record.read_text()[:-9]), "is damaged"),
        ):
            place = self.save(self.open()).place
            spoil(pathlib.Path(place.slot(0)), pathlib.Path(place.record))
            opened = self.open()
            self.assertEqual(len(opened.faults), 1, opened.faults)
            self.assertIn(fault, opened.faults[0])
            self.assertEqual((opened.record.slots, self.open().faults), ((), ()))
            self.assertFalse(os.path.exists(place.slot(0)))

    def test_one_slot_of_two(self) -> None:
        """What is good stays."""
        opened = self.save(self.save(self.open()), slot=1)
        os.unlink(opened.place.slot(0))
        self.assertEqual([saved.slot for saved in self.open().record.slots], [1])
        self.assertEqual(self.open().faults, ())

    def test_record_of_another(self) -> None:
        """Which somebody copied here says nothing."""
        one, other = self.save(self.open()), self.open("b")
        for theirs, ours in ((one.place.record, other.place.record), (one.place.slot(0), other.place.slot(0))):
            pathlib.Path(ours).write_bytes(pathlib.Path(theirs).read_bytes())
        self.assertEqual(self.open("b").record.slots, ())

    def test_what_nobody_recorded(self) -> None:
        """A save that came to no end leaves nothing; what lswap did not name stays."""
        opened = self.save(self.open())
        kv_files.begin(opened.place, 1)
        for name in ("slot-7.bin", "mine.bin"):
            (pathlib.Path(opened.place.folder) / name).write_bytes(b"x")
        self.open()
        names = {pathlib.Path(name).name for name in self.files()}
        self.assertEqual(names, {"record.json", "slot-0.bin", "mine.bin"})

    def test_too_old(self) -> None:
        """Is deleted, each slot by its own age."""
        self.save(self.save(self.open()), slot=1, saved=NOW + 500)
        self.assertEqual(len(self.open(now=NOW + 1000).record.slots), 2)
        self.assertEqual([saved.slot for saved in self.open(now=NOW + 1001).record.slots], [1])
        self.assertEqual(self.open(now=NOW + 1501).record.slots, ())
        self.assertEqual(self.files(), [])


class SaveTests(FilesCase):
    """One slot."""

    def test_readable_for_nobody_else(self) -> None:
        """From the first byte on, whatever mask the server has."""
        place = self.open().place
        path = pathlib.Path(place.folder) / kv_files.begin(place, 0)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        path.write_bytes(b"xx")
        self.assertEqual(kv_files.written(place, 0), 2)

    def test_modes(self) -> None:
        """Slot and record belong to the owner alone, also when the server made the file anew."""
        opened = self.open()
        path = pathlib.Path(opened.place.folder) / kv_files.begin(opened.place, 0)
        path.unlink()
        path.write_bytes(b"xx")
        path.chmod(0o644)
        kv_files.commit(opened.place, opened.record, kv.SavedSlot(0, 5, 2, NOW))
        for name in (opened.place.slot(0), opened.place.record):
            self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), 0o600, name)

    def test_other_size_than_told(self) -> None:
        """Is an error; the one before stays, and nothing else."""
        opened = self.save(self.open(), size=100)
        for size in (99, 101, 0):
            self.assertRaises(OSError, self.save, opened, size=size, told=100)
        self.assertEqual([os.path.basename(name) for name in self.files()], ["record.json", "slot-0.bin"])
        self.assertEqual(self.open(), opened)

    def test_file_that_is_missing(self) -> None:
        """Is an error too."""
        opened = self.open()
        self.assertRaises(OSError, kv_files.commit, opened.place, opened.record, kv.SavedSlot(0, 5, 2, NOW))

    def test_folder_that_vanished(self) -> None:
        """Is not made anew: the server would not find it."""
        opened = self.open()
        os.rmdir(opened.place.folder)
        self.assertRaises(FileNotFoundError, kv_files.begin, opened.place, 0)

    def test_record_that_cannot_be_written(self) -> None:
        """Then the slot is not there either."""
        opened = self.open()
        os.mkdir(opened.place.record)
        self.assertRaises(OSError, self.save, opened)
        self.assertEqual(self.files(), [])

    def test_discarded(self) -> None:
        """What came to nothing goes; a second time is no error."""
        opened = self.save(self.open())
        kv_files.begin(opened.place, 0)
        kv_files.discard(opened.place, 0)
        kv_files.discard(opened.place, 0)
        self.assertEqual(self.open(), opened)

    def test_forgotten(self) -> None:
        """File and entry; with the last one the record."""
        opened = self.save(self.save(self.open()), slot=1)
        left = kv_files.forget(opened.place, opened.record, [0])
        self.assertEqual(self.open().record, left)
        kv_files.forget(opened.place, left, [1])
        self.assertEqual(self.files(), [])


class SweepTests(FilesCase):
    """All of a folder."""

    def used(self, model: str, when: float, size: int = 100) -> Opened:
        """A model whose caches were used then."""
        opened = self.save(self.open(model), size=size)
        os.utime(opened.place.record, (when, when))
        return opened

    def models(self) -> list[str]:
        """The models of which something is left."""
        return sorted(found.record.inputs.model for found in kv_files.find(str(self.folder)) if found.record)

    def sweep(self, most: int | None, in_use: set[str] = frozenset(), **ages: float) -> list[str]:  # type: ignore[assignment]
        """With these ages."""
        return kv_files.sweep(str(self.folder), in_use, ages, most, NOW)

    def test_found(self) -> None:
        """What there is, with its size and the time of its last use."""
        opened = self.used("a", 77.0)
        (found,) = kv_files.find(str(self.folder))
        record = os.stat(opened.place.record).st_size
        self.assertEqual((found.place, found.record, found.used), (opened.place, opened.record, 77.0))
        self.assertEqual(found.bytes, 100 + record)
        kv_files.touch(opened.place)
        self.assertGreater(kv_files.find(str(self.folder))[0].used, 77.0)
        self.assertEqual(kv_files.find(str(self.root / "none")), [])

    def test_least_recently_used(self) -> None:
        """Goes first, one in use never; its folder stays, as a server may have been told of it."""
        first, second = self.used("a", 1.0, 10_000), self.used("b", 2.0, 10_000)
        self.used("c", 3.0, 10_000)
        self.assertEqual(self.sweep(40_000), [])
        self.assertEqual(self.sweep(25_000), ["a"])
        self.assertTrue(os.path.isdir(first.place.folder))
        self.assertEqual(self.sweep(25_000), [])
        self.assertEqual(self.sweep(0, {second.place.key}), ["c"])
        self.assertEqual(self.models(), ["b"])

    def test_without_a_quota(self) -> None:
        """Only age counts."""
        self.used("a", 1.0, 10_000)
        self.assertEqual(self.sweep(None), [])
        self.assertEqual(self.models(), ["a"])

    def test_age(self) -> None:
        """Each model has its own; one that the configuration does not have any more has the usual one."""
        for model, age in (("a", 10.0), ("b", 50.0), ("gone", 6 * 86400.0), ("long gone", 8 * 86400.0)):
            opened = self.open(model)
            self.save(opened, saved=NOW - age)
        self.sweep(None, a=20.0, b=20.0)
        self.assertEqual(self.models(), ["a", "gone"])

    def test_one_in_use_is_not_touched(self) -> None:
        """However old it is: it has an owner that looks after it."""
        opened = self.save(self.open(), saved=0.0)
        self.sweep(None, {opened.place.key}, a=1.0)
        self.assertEqual(self.models(), ["a"])

    def test_empty_folders(self) -> None:
        """Go once they are old, so that nobody can be about to use them."""
        fresh, old = self.open("fresh").place, self.open("old").place
        (pathlib.Path(old.folder) / "slot-3.bin").write_bytes(b"x")
        for place, when in ((fresh, NOW), (old, 1.0)):
            folder = pathlib.Path(place.folder)
            for path in (*folder.iterdir(), folder):
                os.utime(path, (when, when))
        self.sweep(None)
        self.assertEqual(sorted(os.listdir(self.folder)), [os.path.basename(fresh.folder)])

    def test_removed(self) -> None:
        """By hand: only what lswap named, and the folder stays."""
        opened = self.save(self.open())
        (pathlib.Path(opened.place.folder) / "mine").write_bytes(b"x")
        kv_files.remove(opened.place)
        self.assertEqual([os.path.basename(name) for name in self.files()], ["mine"])
