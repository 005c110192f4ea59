"""Every YAML of the documentation loads, as a configuration of lswap or of another program; links lead somewhere.

A fragment says above its fence where it belongs: `<!-- yaml: models.big -->`. What is wrong on purpose says so as well
(`<!-- yaml: mistakes -->`), and has a test of its own.
"""

from __future__ import annotations

import json
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import yaml
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Loaded, Source, load

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
#: Keys at the top by which the files of other programs are known: compose, Traefik's two kinds.
FOREIGN = {"services", "http", "entryPoints"}
#: Variables that configurations ask for.
VARIABLE = re.compile(r"\$\{env\.(\w+)\}|\benv: (\w+)$", re.MULTILINE)
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^(?P<ticks>`{3,})(?P<language>\w+)\n(?P<text>.*?)^(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    mark: str
    text: str

    def __str__(self) -> str:
        """Where it is."""
        return f"{self.page}:{self.line}"


def blocks(language: str, page: str, text: str) -> Iterator[Block]:
    """The blocks of a page in a language."""
    for found in FENCE.finditer(text):
        if found["language"] == language:
            line = text.count("\n", 0, found.start("text")) + 1
            yield Block(page, line, found["mark"] or "", found["text"])


def everywhere(language: str) -> list[Block]:
    """Those of all pages."""
    return [
        block
        for path in PAGES
        for block in blocks(language, str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]


def whole(block: Block) -> str:
    """The configuration that a block is, or is part of."""
    text = block.text
    if block.mark.startswith("yaml: "):
        for key in reversed(block.mark.removeprefix("yaml: ").split(".")):
            text = f"{key}:\n{textwrap.indent(textwrap.dedent(text), '  ')}"
    return text


def loaded(block: Block) -> Loaded:
    """What lswap makes of it."""
    environ = {name: f"value-{name}" for pair in VARIABLE.findall(block.text) for name in pair if name}
    return load([Source(str(block), whole(block).encode())], environ)


class YamlTests(SynchronousTestCase):
    """The blocks of all pages."""

    def test_configurations(self) -> None:
        """No problem and no warning; keys of other programs are only parsed."""
        seen = 0
        for block in everywhere("yaml"):
            if block.mark == "yaml: mistakes":
                continue
            value = yaml.safe_load(whole(block))
            self.assertIsInstance(value, dict, str(block))
            if not FOREIGN & set(value):
                result = loaded(block)
                self.assertEqual([str(one) for one in (*result.problems, *result.warnings)], [], str(block))
                seen += 1
        self.assertGreater(seen, 15)

    def test_json(self) -> None:
        """JSON is JSON."""
        for block in everywhere("json"):
            json.loads(block.text)

    def test_nothing_hides_in_an_indented_block(self) -> None:
        """A configuration that is not fenced would not be tested."""
        for path in PAGES:
            hidden = re.search(r"(?m)^    (models|peers|hooks|groups|macros):$", path.read_text(encoding="utf-8"))
            self.assertIsNone(hidden, path)


class LinkTests(SynchronousTestCase):
    """Links of the pages outside the site; those of the site are checked when it is built."""

    def test_files_exist(self) -> None:
        """A link that is no address leads to a file."""
        for path in ROOT.glob("*.md"):
            for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
                self.assertTrue((path.parent / target).exists(), f"{path.name}: {target}")


class BlockTests(SynchronousTestCase):
    """How blocks are found."""

    PAGE = "# x\n<!-- yaml: models.a -->\n```yaml\n    cmd: s ${PORT}\n    tll: 3\n```\n\n```json\n{}\n```\n"

    def test_fragment(self) -> None:
        """A fragment is put where it belongs, and its mistakes are found with their lines."""
        (block,) = blocks("yaml", "page.md", self.PAGE)
        self.assertEqual(str(block), "page.md:4")
        self.assertEqual(whole(block), "models:\n  a:\n    cmd: s ${PORT}\n    tll: 3\n")
        self.assertIn('unknown key "tll"', str(loaded(block).warnings[0]))
