"""Makes the man pages: `python -m tools.man OUTDIR` writes OUTDIR/man/lswap.1, lswap.yaml.5, lswap-wol.1, lswap-vllm.1.

The options are those of the help texts, the keys those of `docs/config.md` (`tools.config_docs`). Their Markdown, as
much of it as they use, becomes roff here. With SOURCE_DATE_EPOCH set the date is that, else the one of the commit.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
import time
from collections.abc import Iterable, Sequence

from lswap import __version__
from lswap.options import Flag
from lswap.version import build_facts
from tools import config_docs
from tools.commands import COMMANDS, Command, Subcommand

__all__ = ["command_page", "config_page", "inline", "main", "pages", "roff"]

_HELP = Flag("help", "", "print this text and exit", short="h")
_REPORT = "The manual in full, with all that differs from llama-swap, is in the folder `docs` of lswap."


def _escape(text: str) -> str:
    return (
        text.replace("\\", "\\(rs")
        .replace("-", "\\-")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
        .replace("`", "\\(ga")
    )


def _line(text: str) -> str:
    """Protect a line whose first character would be an order."""
    return f"\\&{text}" if text.startswith((".", "'")) else text


def inline(text: str) -> str:
    """Markdown within a paragraph: code and bold in bold, emphasis in italics, of links their text."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("\\|", "|")
    made = []
    for piece in re.split(r"(``.+?``|`[^`]+`|\*\*[^*]+\*\*|(?<![\w*])\*[^*\s][^*]*\*(?![\w*]))", text):
        if piece.startswith("``"):
            made.append(f"\\fB{_escape(piece[2:-2].strip())}\\fR")
        elif piece.startswith("`") and len(piece) > 2:
            made.append(f"\\fB{_escape(piece[1:-1])}\\fR")
        elif piece.startswith("**"):
            made.append(f"\\fB{_escape(piece[2:-2])}\\fR")
        elif piece.startswith("*") and len(piece) > 2:
            made.append(f"\\fI{_escape(piece[1:-1])}\\fR")
        else:
            made.append(_escape(piece))
    return "".join(made)


def roff(markdown: str) -> list[str]:
    """Paragraphs, lists, tables and indented code."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", markdown.strip("\n")):
        rows = block.splitlines()
        if rows[0].startswith("|"):
            lines += _table(rows)
        elif rows[0].startswith("- "):
            for item in re.split(r"^- ", block, flags=re.MULTILINE)[1:]:
                lines += [".IP \\(bu 2", _line(inline(" ".join(item.split())))]
        elif rows[0].strip():
            lines += [".PP", _line(inline(" ".join(block.split())))]
    return lines


def _table(rows: Sequence[str]) -> list[str]:
    """A table of two columns as tagged paragraphs; its head says what the columns are."""
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])] for row in rows]
    lines = []
    for tag, *rest in cells[2:]:
        lines += _tagged(inline(tag), inline(" — ".join(filter(None, rest))))
    return lines


def _tagged(tag: str, text: str) -> list[str]:
    return [".TP", _line(tag), _line(text)]


def _code(text: str) -> list[str]:
    return [".PP", ".in +4n", ".EX", *(_line(_escape(line)) for line in text.splitlines()), ".EE", ".in"]


def _flags(flags: Iterable[Flag]) -> list[str]:
    """Flags below their headings; those of every command come last."""
    lines: list[str] = []
    group = ""
    for flag in flags:
        if flag.group != group:
            group = flag.group
            lines += [".PP", f"\\fI{_escape(group)}\\fR"]
        names = [f"\\fB\\-{_escape(name)}\\fR" for name in (flag.short, flag.name) if name]
        value = f" \\fI{_escape(flag.value)}\\fR" if flag.value else ""
        lines += _tagged(", ".join(names) + value, _help(flag.help))
    return lines


def _help(text: str) -> str:
    """A help text, which is no Markdown; one word behind its last semicolon is the default."""
    told, semicolon, default = text.rpartition("; ")
    if semicolon and " " not in default:
        return f"{_escape(told)}; by default \\fB{_escape(default)}\\fR"
    return _escape(text)


def _head(name: str, section: int, does: str) -> list[str]:
    facts = build_facts()
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    day = facts["build_date"][:10] if re.match(r"\d{4}-", facts["build_date"]) else ""
    if epoch:
        day = time.strftime("%Y-%m-%d", time.gmtime(int(epoch)))
    kind = "User Commands" if section == 1 else "File Formats"
    return [
        '.\\" Made by python -m tools.man.',
        f'.TH "{_escape(name.upper())}" "{section}" "{_escape(day)}" "lswap {_escape(__version__)}" "{kind}"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(does)}",
    ]


def _subcommand(command: Command, sub: Subcommand) -> list[str]:
    lines = [f".SS {_escape(command.name)} {_escape(sub.name)} {_escape(sub.words)}".rstrip()]
    lines += [".PP", _line(inline(sub.does[0].upper() + sub.does[1:] + "."))]
    return [*lines, *_flags((*sub.flags, _HELP)), *roff(sub.more)]


def command_page(command: Command) -> str:
    """The page of a program."""
    lines = [*_head(command.name, 1, command.does), ".SH SYNOPSIS"]
    calls = ([command.words] if command.words else []) + [f"{sub.name} {sub.words}" for sub in command.subcommands]
    for number, words in enumerate(calls):
        lines += ([".br"] if number else []) + [f"\\fB{_escape(command.name)}\\fR {_escape(words)}"]
    lines += [".SH DESCRIPTION", *roff(command.about)]
    lines += [".SH OPTIONS", *roff("One dash or two, and `-flag VALUE` or `-flag=VALUE`, are the same.")]
    if command.flags:
        lines += _flags((*command.flags, _HELP))
    else:
        lines += roff("Each subcommand has its own, told below.")
    if command.subcommands:
        lines += [".SH SUBCOMMANDS"]
        for sub in command.subcommands:
            lines += _subcommand(command, sub)
    for title, rows in (
        ("EXIT STATUS", command.exits),
        ("SIGNALS", command.signals),
        ("ENVIRONMENT", command.environment),
        ("FILES", command.files),
    ):
        if rows:
            lines += [f".SH {title}"]
            for tag, text in rows:
                lines += _tagged(f"\\fB{_escape(tag)}\\fR", inline(text))
    lines += [".SH EXAMPLES"]
    for text, words in command.examples:
        lines += [*roff(text), *_code(words)]
    return "\n".join([*lines, *_also(command.also)]) + "\n"


def _also(names: Iterable[str]) -> list[str]:
    told = [re.sub(r"^(.*)\((\d)\)$", lambda m: f"\\fB{_escape(m[1])}\\fR({m[2]})", name) for name in names]
    return [".SH SEE ALSO", ", ".join(told), *roff(_REPORT)]


_EXAMPLE = """\
models:
  small:
    cmd: llama-server --port ${PORT} -m /models/small.gguf
    ttl: 600
  big:
    cmd: llama-server --port ${PORT} -m /models/big.gguf
    aliases: [chat]
"""


def config_page() -> str:
    """The page of the configuration, out of the same sources as `docs/config.md`."""
    template = config_docs.TEMPLATE.read_text(encoding="utf-8")
    intro, *chapters = re.split(r"^## ", template, flags=re.MULTILINE)
    # The first paragraph is about the file in docs.
    about = [part for part in intro.split("\n\n")[2:] if "<!--" not in part]
    lines = [*_head("lswap.yaml", 5, "configuration of lswap"), ".SH DESCRIPTION", *roff("\n\n".join(about))]
    for chapter in chapters:
        title, _, text = chapter.partition("\n")
        lines += [f".SH {_escape(title.upper())}"]
        if "<!-- keys -->" not in text:
            lines += roff(text)
            continue
        for section in config_docs.SECTIONS:
            lines += _section(section)
    lines += [".SH EXAMPLES", *roff("Two models that take turns; the small one ends after ten idle minutes:")]
    lines += [*_code(_EXAMPLE), *_also(("lswap(1)",))]
    return "\n".join(lines) + "\n"


def _section(section: config_docs.Section) -> list[str]:
    lines = [f".SS {_escape(section.title)}"]
    if section.path:
        lines += roff(f"`{section.path}`: {config_docs.about(section)}")
    for key in config_docs.keys(section):
        notes = [key.kind, f"default {key.default}" if key.default else "", "**+**" if key.added else ""]
        tag = f"\\fB{_escape(key.key)}\\fR ({inline(', '.join(filter(None, notes)))})"
        lines += _tagged(tag, inline(key.text) or "\\&")
    return lines


def pages() -> dict[str, str]:
    """Name of a file to its text."""
    made = {f"{command.name}.1": command_page(command) for command in COMMANDS}
    return {**made, "lswap.yaml.5": config_page()}


def main(words: Sequence[str]) -> int:
    """Write them all; the exit code."""
    if len(words) != 1:
        sys.stderr.write("usage: python -m tools.man OUTDIR\n")
        return 2
    folder = pathlib.Path(words[0]) / "man"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
