"""Completions (`tools.completions`), by the shells that they are for."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import pty
import select
import shutil
import subprocess
import time
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from lswap.wol.options import LEVELS
from tests.integration.running import SLACK
from tools import commands, completions

#: Calls the function of a command as bash does, and prints what it offers.
_ASK = """
source "$1"; shift
function=$1; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
"$function"
printf '%s\\n' "${COMPREPLY[@]}"
"""
_ZSHRC = """
fpath=("$COMPLETIONS" $fpath)
autoload -U compinit
compinit -u -d "$ZDOTDIR/dump"
PS1='ready>'
unset zle_bracketed_paste
"""


class ShellCase(SynchronousTestCase):
    """A folder with some files, and the completions."""

    shell = ""

    def setUp(self) -> None:
        """Only where the shell is."""
        if shutil.which(self.shell) is None:
            raise SkipTest(f"no {self.shell}")
        self.out = pathlib.Path(self.mktemp()).absolute()
        self.assertEqual(completions.main([str(self.out)]), 0)
        self.made = self.out / "completions" / self.shell
        self.folder = self.out / "here"
        (self.folder / "configs.d").mkdir(parents=True)
        (self.folder / "config one.yaml").write_text("")

    def run_it(self, *words: str) -> list[str]:
        """Lines that a shell printed, without complaints."""
        done = subprocess.run(
            [self.shell, *words], cwd=self.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def check_syntax(self) -> None:
        """The shell reads all of them."""
        self.assertEqual(len(list(self.made.iterdir())), len(commands.COMMANDS))
        for path in self.made.iterdir():
            self.assertEqual(self.run_it("-n", str(path)), [])


class BashTests(ShellCase):
    """Bash."""

    shell = "bash"

    def test_syntax(self) -> None:
        """The shell reads all of them."""
        self.check_syntax()

    def offered(self, *words: str) -> list[str]:
        """What is offered for the last of these words."""
        function = "_" + words[0].replace("-", "_")
        found = self.run_it("-c", _ASK, "ask", str(self.made / words[0]), function, *words)
        return [line for line in found if line]

    def test_first_word(self) -> None:
        """Subcommands, or flags once a dash is there."""
        self.assertEqual(self.offered("lswap", ""), ["check", "plan", "kv"])
        self.assertEqual(self.offered("lswap", "c"), ["check"])
        self.assertEqual(self.offered("lswap", "check"), ["check"])
        self.assertEqual(self.offered("lswap-vllm", "s"), ["serve", "sleep", "status", "stop"])
        self.assertIn("-upstream", self.offered("lswap-wol", ""))

    def test_flags(self) -> None:
        """With one dash or two; every command and subcommand has exactly its own."""
        self.assertEqual(self.offered("lswap", "-watch"), ["-watch-config"])
        self.assertEqual(self.offered("lswap", "--watch"), ["--watch-config"])
        for command in commands.COMMANDS:
            for words, flags in [((), command.flags), *(((sub.name,), sub.flags) for sub in command.subcommands)]:
                names = {name for flag in flags for name in (flag.name, flag.short) if name} | {"help", "h"}
                self.assertEqual(set(self.offered(command.name, *words, "-")), {f"-{name}" for name in names}, words)

    def test_files(self) -> None:
        """Files and folders for a file, folders for a folder; behind a blank or an equals sign."""
        both = ["config one.yaml", "configs.d"]
        self.assertEqual(sorted(self.offered("lswap", "-config", "conf")), both)
        self.assertEqual(sorted(self.offered("lswap", "--c", "=", "conf")), both)
        self.assertEqual(sorted(self.offered("lswap", "check", "-config", "=")), both)
        self.assertEqual(self.offered("lswap", "-config-dir", ""), ["configs.d"])
        self.assertEqual(self.offered("lswap-vllm", "stop", "--state-dir", "c"), ["configs.d"])

    def test_values(self) -> None:
        """Few words, true and false behind an equals sign, and nothing where nothing is known."""
        self.assertEqual(self.offered("lswap-wol", "-log", ""), list(LEVELS))
        self.assertEqual(self.offered("lswap-wol", "-log", "=", "w"), ["warn"])
        self.assertEqual(self.offered("lswap", "-watch-config", "="), ["true", "false"])
        self.assertEqual(self.offered("lswap", "-listen", ""), [])
        self.assertIn("-listen", self.offered("lswap", "-watch-config", ""))

    def test_words(self) -> None:
        """What `kv` does, once."""
        self.assertEqual(self.offered("lswap", "kv", ""), ["list", "clear"])
        self.assertEqual(self.offered("lswap", "kv", "cl"), ["clear"])
        self.assertNotIn("list", self.offered("lswap", "kv", "clear", ""))

    def test_command_of_somebody_else(self) -> None:
        """Nothing of ours behind the two dashes."""
        self.assertEqual(self.offered("lswap-vllm", "serve", "--listen", ":1", "--", "vllm", "--"), [])


class FishTests(ShellCase):
    """Fish."""

    shell = "fish"

    def test_syntax(self) -> None:
        """The shell reads all of them."""
        self.check_syntax()

    def offered(self, line: str) -> list[str]:
        """What is offered at the end of a line."""
        path = self.made / f"{line.split(maxsplit=1)[0]}.fish"
        found = self.run_it("--no-config", "-c", f"source {path}; complete -C '{line}'")
        return [one.partition("\t")[0] for one in found]

    def test_all(self) -> None:
        """Subcommands, flags with one dash and two, files, folders, few words."""
        self.assertEqual(self.offered("lswap "), ["check", "kv", "plan"])
        self.assertEqual(self.offered("lswap --watch"), ["--watch-config"])
        self.assertEqual(self.offered("lswap -watch"), ["-watch-config"])
        self.assertEqual(self.offered("lswap check --js"), ["--json"])
        self.assertEqual(self.offered("lswap check --watch"), [])
        self.assertEqual(self.offered("lswap kv "), ["clear", "list"])
        self.assertEqual(self.offered("lswap kv clear "), [])
        self.assertEqual(self.offered("lswap -config conf"), ["config one.yaml", "configs.d/"])
        self.assertEqual(self.offered("lswap --config-dir "), ["configs.d/"])
        self.assertEqual(self.offered("lswap-wol --log "), sorted(LEVELS))
        self.assertEqual(self.offered("lswap-vllm st"), ["status", "stop"])


class ZshTests(ShellCase):
    """Zsh, on a terminal: its completion knows no other way."""

    shell = "zsh"

    def test_syntax(self) -> None:
        """The shell reads all of them."""
        self.check_syntax()

    def assert_completed(self, typed: str, expected: str) -> None:
        """A line, a tab; what stands there then."""
        (self.out / ".zshrc").write_text(_ZSHRC)
        environment = {**os.environ, "ZDOTDIR": str(self.out), "COMPLETIONS": str(self.made), "TERM": "dumb"}
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-i", "-d"], environment)
        try:
            self.assertIn("ready>", self.read_until(terminal, "ready>"))
            os.write(terminal, typed.encode() + b"\t")
            self.assertIn(expected, self.read_until(terminal, expected))
        finally:
            os.close(terminal)
            os.kill(pid, 9)
            os.waitpid(pid, 0)

    def read_until(self, terminal: int, text: str) -> str:
        """What is shown until that comes, or time is over."""
        shown, end = b"", time.monotonic() + 10 * SLACK
        while text.encode() not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    shown += os.read(terminal, 4096)
        return shown.decode("utf-8", "replace").replace("\r", "")

    def test_all(self) -> None:
        """Subcommands, flags with one dash and two, files, few words."""
        for typed, expected in (
            ("lswap che", "lswap check "),
            ("lswap --watch", "lswap --watch-config "),
            ("lswap check -js", "lswap check -json "),
            ("lswap kv cl", "lswap kv clear "),
            ("lswap -config config", "config\\ one.yaml"),
            ("lswap --config-dir=con", "--config-dir=configs.d/"),
            ("lswap-wol --log wa", "lswap-wol --log warn "),
            ("lswap-vllm stat", "lswap-vllm status "),
        ):
            self.assert_completed(typed, expected)


class MainTests(SynchronousTestCase):
    """The command."""

    def test_wrong_words(self) -> None:
        """One folder is needed."""
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(completions.main([]), 2)
        self.assertIn("usage", told.getvalue())
