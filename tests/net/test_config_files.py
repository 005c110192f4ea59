"""Reading the files of a configuration, and what only the machine knows about them."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Loaded
from lswap.net.config_files import advice, complete, load_files, read_sources

A, B = "models: {a: {cmd: 's ${PORT}'}}\n", "models: {b: {cmd: 's ${PORT}'}}\n"


class FilesCase(SynchronousTestCase):
    """A folder of one's own."""

    def setUp(self) -> None:
        """Make the folder."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)

    def write(self, name: str, text: str | bytes, mode: int = 0o600) -> str:
        """Write a file; its path."""
        path = self.tmp / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return str(path)

    def good(self, text: str, environ: Mapping[str, str] = {}) -> Loaded:
        """Load a text without mistakes."""
        loaded = load_files(self.write("config.yaml", text), None, environ)
        self.assertEqual([str(problem) for problem in loaded.problems], [])
        return loaded

    def told(self, text: str) -> str:
        """All problems of a text with mistakes."""
        loaded = load_files(self.write("config.yaml", text), None, {})
        self.assertIsNone(loaded.config)
        return "\n".join(map(str, loaded.problems))


class ReadSourcesTests(FilesCase):
    """Which files are read."""

    def test_the_file_comes_first_then_the_folder_in_byte_order(self) -> None:
        """All of `.yml` and `.yaml`, nothing else, no folders."""
        (self.tmp / "d" / "folder.yaml").mkdir(parents=True)
        for name in (
            "9.yaml",
            "10.yaml",
            "B.yaml",
            "a.yml",
            ".dot.yaml",
            "é.yaml",
            "c.YAML",
            "d.txt",
            "e.yaml.bak",
            "yaml",
        ):
            self.write(f"d/{name}", name)
        main = self.write("main.yaml", "main")
        sources, problems = read_sources(main, str(self.tmp / "d"))
        self.assertEqual(problems, [])
        self.assertEqual(
            [s.text.decode() for s in sources], ["main", ".dot.yaml", "10.yaml", "9.yaml", "B.yaml", "a.yml", "é.yaml"]
        )
        self.assertEqual(sources[0].path, main)

    def test_symlinks_count(self) -> None:
        """One to a file is that file, one to nowhere cannot be read."""
        self.write("elsewhere", A)
        (self.tmp / "d").mkdir()
        (self.tmp / "d" / "x.yaml").symlink_to(self.tmp / "elsewhere")
        self.assertEqual([s.text.decode() for s in read_sources(None, str(self.tmp / "d"))[0]], [A])
        (self.tmp / "d" / "y.yaml").symlink_to(self.tmp / "nowhere")
        self.assertIn("failed to read config", str(read_sources(None, str(self.tmp / "d"))[1][0]))

    def test_nothing_given(self) -> None:
        """At least one source is needed."""
        for nothing in (None, ""):
            (problem,) = read_sources(nothing, nothing)[1]
            self.assertEqual(str(problem), "at least one of -config or -config-dir must be provided")

    def test_what_cannot_be_read(self) -> None:
        """Missing files and folders, folders as files, files as folders, names that are none: problems, not errors."""
        folder, file = str(self.tmp), self.write("f.yaml", A)
        for config, config_dir, told in (
            (
                f"{folder}/no.yaml",
                None,
                f"{folder}/no.yaml: failed to read config {folder}/no.yaml: No such file or directory",
            ),
            (folder, None, "Is a directory"),
            (None, f"{folder}/no", f"-config-dir {folder}/no: No such file or directory"),
            (None, file, "Not a directory"),
            ("a\0b", None, "failed to read config"),
            (None, "a\0b", "-config-dir"),
            (file, f"{folder}/no", "-config-dir"),
        ):
            problems = read_sources(config, config_dir)[1]
            self.assertEqual(len(problems), 1)
            self.assertIn(told, str(problems[0]))

    def test_pipes_in_a_folder_are_not_waited_for(self) -> None:
        """What is no file is told; as the one file a pipe is fine, as shells make them."""
        (self.tmp / "d").mkdir()
        os.mkfifo(self.tmp / "d" / "pipe.yaml")
        (problem,) = read_sources(None, str(self.tmp / "d"))[1]
        self.assertIn("pipe.yaml: not a file", str(problem))
        read, write = os.pipe()
        with open(read, "rb"):
            os.write(write, A.encode())
            os.close(write)
            sources, problems = read_sources(f"/dev/fd/{read}", None)
        self.assertEqual(([s.text.decode() for s in sources], problems), ([A], []))

    def test_a_folder_without_files(self) -> None:
        """Is fine beside a file, and nothing alone."""
        (self.tmp / "d").mkdir()
        file = self.write("f.yaml", A)
        self.assertEqual(len(read_sources(file, str(self.tmp / "d"))[0]), 1)
        self.assertIn("no configuration sources found", str(read_sources(None, str(self.tmp / "d"))[1][0]))

    def test_the_file_may_not_be_in_the_folder_too(self) -> None:
        """However it is spelled; a symlink to it is another file."""
        path = self.write("d/a.yaml", A)
        for spelled in (path, str(self.tmp / "d" / ".." / "d" / "a.yaml")):
            (problem,) = read_sources(spelled, str(self.tmp / "d"))[1]
            self.assertIn(
                f"-config path {spelled} is also present in -config-dir {self.tmp}/d; remove it from one", str(problem)
            )
        (self.tmp / "link.yaml").symlink_to(path)
        self.assertEqual(read_sources(str(self.tmp / "link.yaml"), str(self.tmp / "d"))[1], [])


class LoadFilesTests(FilesCase):
    """Everything at once."""

    def test_files_are_merged(self) -> None:
        """The union of models; messages name the file."""
        main = self.write("main.yaml", A)
        self.write("d/b.yaml", B)
        loaded = load_files(main, str(self.tmp / "d"), {}, {"b": 5800})
        assert loaded.config is not None
        self.assertEqual({name: model.port for name, model in loaded.config.models.items()}, {"a": 5801, "b": 5800})
        self.write("d/b.yaml", "models:\n  b:\n    ttl: -9\n    cmd: s ${PORT}\n")
        (problem,) = load_files(main, str(self.tmp / "d"), {}).problems
        self.assertTrue(str(problem).startswith(f"{self.tmp}/d/b.yaml:3:10: models.b.ttl: "), problem)

    def test_what_cannot_be_read_is_all_that_is_told(self) -> None:
        """What is missing there would make the rest look wrong."""
        main = self.write("main.yaml", "globalTTL: -1\n")
        self.assertEqual(len(load_files(main, str(self.tmp / "no"), {}).problems), 1)

    def test_nothing_to_complete(self) -> None:
        """A configuration with problems stays as it is."""
        loaded = load_files(self.write("c.yaml", "store: {path: /no/where/at/all}\nglobalTTL: -1\n"), None, {})
        self.assertIs(complete(loaded), loaded)


class StoreTests(FilesCase):
    """Whether the store can be written."""

    def test_good_places(self) -> None:
        """A new file in a folder, an empty one, a database; a relative path is one of the working directory."""
        self.write("empty.db", "")
        self.write("old.db", "SQLite format 3\0 and so on")
        for name in ("new.db", "empty.db", "old.db"):
            loaded = self.good(f"store: {{path: {self.tmp}/{name}}}\n")
            assert loaded.config is not None
            self.assertEqual(loaded.config.store_path, f"{self.tmp}/{name}")
        self.good("store: {path: certainly-not-here.db}\n")

    def test_bad_places(self) -> None:
        """Each is told with its line, in the words of the reference."""
        self.write("file", "")
        for path, told in (
            (
                f"{self.tmp}/config.yaml",
                f"config.yaml:1:15: store.path: {self.tmp}/config.yaml is not an SQLite database",
            ),
            (str(self.tmp), f"config.yaml:1:15: store.path: {self.tmp} is a directory, not a file"),
            (f"{self.tmp}/no/db", f"store.path: directory {self.tmp}/no is not writable: "),
            (f"{self.tmp}/file/db", "store.path: Not a directory"),
            ("'a\\0b'", "store.path: a text cannot have a null character"),
        ):
            self.assertIn(told, self.told(f"store: {{path: {path}}}\n".replace("'a\\0b'", '"a\\0b"')))

    def test_places_without_permission(self) -> None:
        """A file or folder that may not be written."""
        self.patch(os, "access", lambda path, mode: False)  # root, who may run this, may write everywhere
        self.write("file", "")
        told = f"store.path: {self.tmp}/file is not writable: permission denied"
        self.assertIn(told, self.told(f"store: {{path: {self.tmp}/file}}\n"))
        told = f"store.path: directory {self.tmp} is not writable: permission denied"
        self.assertIn(told, self.told(f"store: {{path: {self.tmp}/db}}\n"))


class KeyFileTests(FilesCase):
    """Keys in files."""

    def test_the_line_is_the_key(self) -> None:
        """With or without its end; the place of the file stays known."""
        for text in ("key-1", "key-1\n", "key-1\r\n"):
            path = self.write("key", text)
            loaded = self.good(f"apiKeys: [plain, {{name: x, keyFile: {path}}}]\n")
            assert loaded.config is not None
            self.assertEqual(
                [(key.key, key.key_file) for key in loaded.config.api_keys], [("plain", None), ("key-1", path)]
            )

    def test_bad_files(self) -> None:
        """Missing, empty, of several lines, with spaces, no text: told with the line, without the content."""
        for text, told in (
            (None, "cannot read"),
            ("", "empty api key found in apiKeys"),
            ("\n", "empty api key found in apiKeys"),
            ("hush-1\nhush-2\n", "more than one line"),
            ("hush hush", "api key cannot contain spaces"),
            (b"hush\xff", "is not text"),
        ):
            path = str(self.tmp / "none") if text is None else self.write("key", text)
            found = self.told(f"apiKeys:\n  - {{name: x, keyFile: {path}}}\n")
            self.assertIn("config.yaml:2:24: apiKeys[0].keyFile: ", found)
            self.assertIn(told, found)
            self.assertIn(path, found)
            self.assertNotIn("hush", found)


class AdviceTests(FilesCase):
    """Warnings about the machine."""

    def advice(self, text: str, mode: int = 0o600, environ: Mapping[str, str] = {"PATH": "/usr/bin:/bin"}) -> list[str]:
        """The warnings about a text without mistakes."""
        loaded = load_files(self.write("config.yaml", text, mode), None, environ)
        self.assertEqual(loaded.problems, ())
        return [str(warning) for warning in advice(loaded, environ)]

    def test_programs(self) -> None:
        """One that is not there is told with its model; PATH is that of the model, else of lswap."""
        self.assertEqual(self.advice("models: {a: {cmd: 'sh ${PORT}'}, b: {cmd: '/bin/sh ${PORT}'}}\n"), [])
        (found,) = self.advice("models:\n  a:\n    cmd: no-such-program ${PORT}\n")
        self.assertIn(
            "config.yaml:3:10: models.a.cmd: model a: there is no program no-such-program: it is not on PATH", found
        )
        (found,) = self.advice("models: {a: {cmd: '/no/such ${PORT}'}}\n")
        self.assertIn("there is no program /no/such", found)
        self.write("bin/mine", "", 0o700)
        text = "models: {a: {cmd: 'mine ${PORT}'%s}}\n"
        self.assertEqual(len(self.advice(text % "")), 1)
        self.assertEqual(self.advice(text % f", env: ['PATH={self.tmp}/bin']"), [])
        self.assertEqual(self.advice(text % "", environ={"PATH": f"{self.tmp}/bin"}), [])

    def test_permissions(self) -> None:
        """A source with a key in it, or a key file, that others may read; not one without keys."""
        for mode in (0o644, 0o640, 0o604):
            (found,) = self.advice("apiKeys: [very-secret]\n", mode)
            self.assertIn(f"config.yaml: permission {mode:04o} lets", found)
            self.assertNotIn("very-secret", found)
        for text, mode in (("apiKeys: [very-secret]\n", 0o600), ("globalTTL: 5\n", 0o644)):
            self.assertEqual(self.advice(text, mode), [])
        key = self.write("key", "very-secret\n", 0o644)
        (found,) = self.advice(f"apiKeys: [{{keyFile: {key}}}]\n", 0o644)
        self.assertIn(f"{key}: permission 0644", found)

    def test_a_configuration_with_problems(self) -> None:
        """Permissions are told all the same."""
        loaded = load_files(self.write("config.yaml", "apiKeys: [k-12345]\nglobalTTL: -1\n", 0o644), None, {})
        self.assertEqual(len(advice(loaded, {})), 1)
