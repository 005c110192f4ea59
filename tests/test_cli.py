"""`lswap` and its small commands (`lswap.cli`). That it serves is for `tests.integration.test_commands`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from lswap import cli
from tests.test_tap import Outcome

#: `sh` is on every PATH: a program that is not would be warned of.
GOOD = "models:\n  a:\n    cmd: sh serve --port ${PORT}\n"


class MainTests(SynchronousTestCase):
    """Which command the words mean."""

    def test_first_word_chooses(self) -> None:
        """A command's name hands the other words to it, and its exit code back."""
        seen: list[list[str]] = []

        def twice(words: Sequence[str]) -> int:
            seen.append(list(words))
            return 5

        self.patch(cli, "COMMANDS", {"twice": twice})
        self.assertEqual(cli.main(["twice", "-c", "f"]), 5)
        self.assertEqual(seen, [["-c", "f"]])

    def test_command_must_come_first(self) -> None:
        """Behind a flag, a command's name is a word too many."""
        done = Outcome(lambda: cli.main(["-c", "f", "check"]))
        self.assertEqual(done.status, 2)
        self.assertIn('"check"', done.err)

    def test_flags_are_those_of_the_plugin(self) -> None:
        """Without a command, the words are read as `twistd llamaswap` reads them."""
        self.assertEqual(Outcome(lambda: cli.main(["--version"])).status, 0)
        done = Outcome(lambda: cli.main([]))
        self.assertEqual((done.status, done.err), (1, "at least one of -config or -config-dir must be provided\n"))

    def test_help_names_the_other_commands(self) -> None:
        """Whoever asks `lswap` for help learns what else it can do."""
        done = Outcome(lambda: cli.main(["--help"]))
        self.assertIn("Usage: lswap [flags]", done.out)
        for name in cli.COMMANDS:
            self.assertIn(f"lswap {name}", done.out)


class CheckTests(SynchronousTestCase):
    """`lswap check`."""

    def check(self, text: str, *flags: str) -> Outcome:
        """What the command makes of a configuration; its exit code is the value."""
        self.path = pathlib.Path(self.mktemp())
        self.path.write_text(text)
        return Outcome(lambda: cli.main(["check", "-c", str(self.path), *flags]))

    def test_good(self) -> None:
        """Nothing wrong: exit code 0, and only the counts are said."""
        done = self.check(GOOD)
        self.assertEqual((done.value, done.out, done.err), (0, "", "0 problems, 0 warnings\n"))

    def test_problems(self) -> None:
        """All problems, each with file, line and column; exit code 1."""
        done = self.check(GOOD + "    ttl: -7\nlogToStdout: paper\n")
        self.assertEqual(done.value, 1)
        first, second = done.out.splitlines()
        self.assertTrue(first.startswith(f"{self.path}:4:"), first)
        self.assertTrue(second.startswith(f"{self.path}:5:"), second)
        self.assertEqual(done.err, "2 problems, 0 warnings\n")

    def test_warnings(self) -> None:
        """An unknown key is told with its line and the nearest valid one, and is no error."""
        done = self.check(GOOD + "    tll: 5\n")
        self.assertEqual((done.value, done.err), (0, "0 problems, 1 warning\n"))
        self.assertRegex(done.out, r":4:.*tll.*ttl")
        self.assertIn("(warning)", done.out)

    def test_json(self) -> None:
        """With -json: one object, for good files too, whose items have all the parts of a line."""
        self.assertEqual(json.loads(self.check(GOOD, "-json").out), {"problems": [], "warnings": []})
        done = self.check(GOOD + "    ttl: -7\n    tll: 5\n", "--json")
        self.assertEqual((done.value, done.err), (1, ""))
        found = json.loads(done.out)
        for key, line in (("problems", 4), ("warnings", 5)):
            self.assertEqual(len(found[key]), 1)
            item = found[key][0]
            self.assertEqual(set(item), {"file", "line", "column", "path", "message", "hint"})
            self.assertEqual((item["file"], item["line"]), (str(self.path), line))

    def test_file_that_is_not_there(self) -> None:
        """A file that cannot be read is a problem."""
        name = self.mktemp()
        done = Outcome(lambda: cli.main(["check", "-c", name]))
        self.assertEqual(done.value, 1)
        self.assertIn(name, done.out)

    def test_folder(self) -> None:
        """A folder is checked like a file."""
        folder = pathlib.Path(self.mktemp())
        folder.mkdir()
        (folder / "one.yaml").write_text(GOOD + "    ttl: -7\n")
        done = Outcome(lambda: cli.main(["check", "--config-dir", str(folder)]))
        self.assertEqual(done.value, 1)
        self.assertIn("one.yaml:4:", done.out)

    def test_flags(self) -> None:
        """Only flags that mean something here are taken."""
        done = Outcome(lambda: cli.main(["check", "-listen", ":9"]))
        self.assertEqual((done.value, done.err), (2, "flag provided but not defined: -listen\n"))
        self.assertEqual(Outcome(lambda: cli.main(["check"])).value, 1)
        done = Outcome(lambda: cli.main(["check", "-h"]))
        self.assertEqual(done.value, 0)
        self.assertIn("Usage: lswap check [flags]", done.out)

    def test_no_secret_is_printed(self) -> None:
        """A value that may be a secret is in no line, even if it is wrong."""
        done = self.check(
            "apiKeys: [sk-secret-1, {a: sk-secret-2}]\n" + GOOD + "    env: [TOKEN=sk-secret-3, sk-secret-4]\n"
        )
        self.assertNotIn("sk-secret", done.out + done.err)
