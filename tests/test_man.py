"""The man pages (`tools.man`): complete, and without a fault that groff would tell of."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from lswap import cli, version
from lswap.options import Flag
from lswap.vllm import options as vllm
from tools import commands, config_docs, man


def shown(text: str) -> str:
    """What of a page people see, roughly."""
    text = re.sub(r"\\f[BIR]|\\&", "", text)
    for name, letter in (("\\(rs", "\\"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\(ga", "`"), ("\\-", "-")):
        text = text.replace(name, letter)
    return text


class TableTests(SynchronousTestCase):
    """The table of commands."""

    def test_subcommands(self) -> None:
        """It has all that there are."""
        self.assertEqual({sub.name for sub in commands.LSWAP.subcommands}, set(cli.COMMANDS))
        self.assertEqual([sub.name for sub in commands.VLLM.subcommands], [one.name for one in vllm.COMMANDS])

    def test_choices(self) -> None:
        """Flags with few values tell them."""
        self.assertEqual(commands.choices(Flag("log", "LEVEL", "")), ("debug", "info", "warn", "error"))
        self.assertEqual(commands.choices(Flag("listen", "ADDRESS", "")), ())


class CommandPageTests(SynchronousTestCase):
    """The pages of the programs."""

    def test_flags(self) -> None:
        """Each flag stands there with its value and its help, in the part of its subcommand."""
        for command in commands.COMMANDS:
            text = shown(man.command_page(command))
            main, _, rest = text.partition(".SH SUBCOMMANDS")
            parts = dict(re.findall(rf"^\.SS {command.name} (\w+)(.*?)(?=^\.S[SH])", rest, re.MULTILINE | re.DOTALL))
            self.assertEqual(set(parts), {sub.name for sub in command.subcommands})
            for flags, part in [(command.flags, main), *((sub.flags, parts[sub.name]) for sub in command.subcommands)]:
                for flag in flags:
                    self.assertIn(f"-{flag.name} {flag.value}".rstrip() + "\n", part)
                    self.assertIn(flag.help.rpartition("; ")[0] or flag.help, part)

    def test_sections(self) -> None:
        """Each has the sections that people look for."""
        for command in commands.COMMANDS:
            text = man.command_page(command)
            for title in (
                "NAME",
                "SYNOPSIS",
                "OPTIONS",
                "EXIT STATUS",
                "SIGNALS",
                "ENVIRONMENT",
                "EXAMPLES",
                "SEE ALSO",
            ):
                self.assertIn(f"\n.SH {title}\n", text)

    def test_default(self) -> None:
        """What stands behind the semicolon of a help is its default; a star in it is a star."""
        text = shown(man.command_page(commands.WOL))
        self.assertIn("how long a request may wait for the host; by default 60\n", text)
        self.assertIn("*.yaml and *.yml", shown(man.command_page(commands.LSWAP)))

    def test_date(self) -> None:
        """The same commit makes the same page, and a package says its own date."""
        self.patch(os, "environ", {**os.environ, "SOURCE_DATE_EPOCH": "86400"})
        self.assertIn('"1970-01-02"', shown(man.command_page(commands.WOL)))
        self.patch(os, "environ", {})
        self.patch(man, "build_facts", lambda: {"build_date": "2026-03-04T05:06:07+00:00"})
        self.assertIn('"2026-03-04"', shown(man.command_page(commands.WOL)))
        self.patch(man, "build_facts", lambda: {"build_date": "unknown"})
        self.assertIn('"1" "" "lswap', shown(man.command_page(commands.WOL)))


class ConfigPageTests(SynchronousTestCase):
    """The page of the configuration."""

    def test_keys(self) -> None:
        """Each key of each mapping is told."""
        text = shown(man.config_page())
        for section in config_docs.SECTIONS:
            part = text.partition(f".SS {section.title}\n")[2].partition("\n.S")[0]
            for key in config_docs.keys(section):
                self.assertIn(f".TP\n{key.key} (", part, section.title)

    def test_nothing_of_markdown_is_left(self) -> None:
        """Neither rules of tables nor links nor marks of code."""
        text = man.config_page()
        for mark in ("|---", "](", "<!--", "**"):
            self.assertNotIn(mark, text)
        self.assertNotRegex(text, r"`\w")


class RoffTests(SynchronousTestCase):
    """From Markdown to roff."""

    def test_inline(self) -> None:
        """Code and bold, emphasis, links; what roff would understand otherwise is protected."""
        self.assertEqual(man.inline("`-a` and **b**"), "\\fB\\-a\\fR and \\fBb\\fR")
        self.assertEqual(man.inline("*c*, a*b*c, `*d*`"), "\\fIc\\fR, a*b*c, \\fB*d*\\fR")
        self.assertEqual(man.inline("[the *x*](y.md#z)"), "the \\fIx\\fR")
        self.assertEqual(man.inline("a\\b `` ` `` ^~"), "a\\(rsb \\fB\\(ga\\fR \\(ha\\(ti")

    def test_lines_that_look_like_orders(self) -> None:
        """Are none."""
        self.assertEqual(man.roff(".so x\n\n'quoted'"), [".PP", "\\&.so x", ".PP", "\\&'quoted'"])

    def test_blocks(self) -> None:
        """Lists item by item, tables row by row without their head."""
        self.assertEqual(man.roff("- a\n  b\n- c"), [".IP \\(bu 2", "a b", ".IP \\(bu 2", "c"])
        table = "| x | y |\n|---|---|\n| `a\\|b` | c |\n| d | e |"
        self.assertEqual(man.roff(table), [".TP", "\\fBa|b\\fR", "c", ".TP", "d", "e"])


class GroffTests(SynchronousTestCase):
    """What `python -m tools.man` writes."""

    def test_files(self) -> None:
        """Four files; groff has nothing to say about them."""
        folder = pathlib.Path(self.mktemp())
        self.assertEqual(man.main([str(folder)]), 0)
        names = {path.name for path in (folder / "man").iterdir()}
        self.assertEqual(names, {"lswap.1", "lswap-wol.1", "lswap-vllm.1", "lswap.yaml.5"})
        if shutil.which("groff") is None:
            raise SkipTest("no groff")
        for name in names:
            done = subprocess.run(
                ["groff", "-K", "utf8", "-man", "-ww", "-z", "-T", "utf8", str(folder / "man" / name)],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)

    def test_wrong_words(self) -> None:
        """One folder is needed."""
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(man.main([]), 2)
        self.assertIn("usage", told.getvalue())

    def test_version(self) -> None:
        """The page is of this version."""
        self.assertIn(f'"lswap {version.build_facts()["version"]}"', shown(man.config_page()))
