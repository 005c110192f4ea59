"""`lswap kv` (`lswap.cli_kv`), on real files."""

from __future__ import annotations

import json
import os
import pathlib

from twisted.trial.unittest import SynchronousTestCase

from lswap import cli
from lswap.core import kv
from lswap.core.kv_command import read_command
from lswap.net import kv_files
from tests.test_tap import Outcome


class KvTests(SynchronousTestCase):
    """From the words to the files."""

    def setUp(self) -> None:
        """Two models' caches in the default folder, one in another, one in a folder of its command."""
        root = pathlib.Path(self.mktemp())
        root.mkdir()
        self.root = root.resolve()
        self.patch(os, "environ", {"HOME": str(self.root), "PATH": os.environ["PATH"]})
        self.default = kv_files.default_folder(os.environ)
        self.other, self.own = str(self.root / "other"), str(self.root / "own")
        os.mkdir(self.own)
        self.save("a", self.default, tokens=1000)
        self.save("b", self.default)
        self.save("c", self.other)
        self.save("d", self.other, f"--slot-save-path {self.own}")

    def save(self, model: str, folder: str, flags: str = "", tokens: int = 300) -> None:
        """What a save leaves behind."""
        command = read_command(["llama-server", *flags.split()], {})
        opened = kv_files.open_place(model, command, folder, 1e9, 0.0)
        record = opened.record
        for slot in (0, 2):
            (pathlib.Path(opened.place.folder) / kv_files.begin(opened.place, slot)).write_bytes(b"x" * 50)
            record = kv_files.commit(opened.place, record, kv.SavedSlot(slot, tokens + slot, 50, 0.0))

    def kv(self, *words: str) -> Outcome:
        """What the command says; its exit code is the value."""
        return Outcome(lambda: cli.main(["kv", *words]))

    def models(self, *folders: str) -> list[str]:
        """The models of which something is kept."""
        found = [one.record for folder in folders for one in kv_files.find(folder)]
        return sorted(record.inputs.model for record in found if record is not None)

    def config(self) -> str:
        """A configuration of these models."""
        path = self.root / "config.yaml"
        path.write_text(
            "macros: {server: 'llama-server --port ${PORT}'}\n"
            "models:\n"
            "  a: {cmd: '${server}', kvCache: {persist: true}}\n"
            f"  c: {{cmd: '${{server}}', kvCache: {{persist: true, dir: {self.other}}}}}\n"
            f"  d: {{cmd: '${{server}} --slot-save-path {self.own}', kvCache: {{persist: true}}}}\n"
            f"  e: {{cmd: '${{server}}', kvCache: {{dir: {self.root}/never}}}}\n"
        )
        return str(path)

    def test_list(self) -> None:
        """A line for each model, the total beside."""
        done = self.kv("list")
        self.assertEqual(done.value, 0)
        lines = done.out.splitlines()
        self.assertEqual(sorted(line.split(":")[0] for line in lines), ["a", "b"])
        self.assertIn("a: 1000+1002 tokens", done.out)
        self.assertIn(self.default, lines[0])
        self.assertTrue(done.err.startswith("2 kept, "))

    def test_list_as_json(self) -> None:
        """The same for programs."""
        rows = json.loads(self.kv("list", "-json", "-dir", self.own).out)["kept"]
        self.assertEqual([row["model"] for row in rows], ["d"])
        self.assertEqual(
            rows[0]["slots"], [{"slot": 0, "tokens": 300, "bytes": 50}, {"slot": 2, "tokens": 302, "bytes": 50}]
        )

    def test_folders_of_a_configuration(self) -> None:
        """Those of the models that keep their caches, each once."""
        done = self.kv("list", "-c", self.config())
        self.assertEqual(sorted(line.split(":")[0] for line in done.out.splitlines()), ["a", "b", "c", "d"])

    def test_configuration_that_cannot_be_used(self) -> None:
        """Is told as at a start."""
        done = self.kv("list", "-c", str(self.root / "none.yaml"))
        self.assertEqual((done.value, done.out), (1, ""))
        self.assertIn("none.yaml", done.err)

    def test_nothing_kept(self) -> None:
        """Is no error."""
        done = self.kv("list", "-dir", str(self.root / "never"))
        self.assertEqual((done.value, done.out, done.err), (0, "", "0 kept, 0 bytes in all\n"))
        self.assertEqual(self.kv("clear", "-dir", str(self.root / "never")).value, 0)

    def test_clear_one(self) -> None:
        """All slots of one model."""
        done = self.kv("clear", "a")
        self.assertEqual(done.value, 0)
        self.assertTrue(done.out.startswith("deleted 1, "), done.out)
        self.assertEqual(self.models(self.default, self.other, self.own), ["b", "c", "d"])

    def test_clear_all(self) -> None:
        """All of the folders that are looked into."""
        self.assertEqual(self.kv("clear", "-c", self.config()).value, 0)
        self.assertEqual(self.models(self.default, self.other, self.own), [])

    def test_clear_a_model_that_is_not_there(self) -> None:
        """May be a slip of the pen."""
        done = self.kv("clear", "aa")
        self.assertEqual((done.value, done.err), (1, "lswap kv: nothing is kept of model aa\n"))

    def test_folder_that_cannot_be_read(self) -> None:
        """Is named; so is a file in its place."""
        path = self.root / "file"
        path.write_text("")
        done = self.kv("list", "-dir", str(path))
        self.assertEqual(done.value, 1)
        self.assertIn(str(path), done.err)

    def test_words(self) -> None:
        """What to do must be said, and help can be had."""
        for words in ((), ("-json",), ("drop",), ("list", "-x")):
            self.assertEqual(self.kv(*words).value, 2, words)
        self.assertIn("Usage: lswap kv", self.kv("-help").out)
        self.assertIn("Usage: lswap kv", self.kv("clear", "-help").out)
