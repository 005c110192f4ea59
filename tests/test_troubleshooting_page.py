"""The page about troubleshooting quotes what lswap really says."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/troubleshooting.md"
#: Of the system, and of twisted.web.
FOREIGN = ("[Errno 98] Address already in use", "[Errno 13] Permission denied")


def texts(source: str) -> Iterator[str]:
    """Every text of a module, with `...` for what is put into it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            yield node.value.decode("utf-8", "replace")


def messages(page: str) -> list[str]:
    """What the page quotes: the first cells of tables whose head is `it says`."""
    found = []
    for table in re.findall(r"^\| it says \|.*\n\| --- .*\n((?:\|.*\n)+)", page, re.MULTILINE):
        found += re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    return found


def said(message: str, known: list[str]) -> bool:
    """Whether some text has all parts of a message, in their order; what a cause says may be another text."""
    for foreign in FOREIGN:
        message = message.replace(foreign, "...")
    head, _, cause = message.partition(" last said: ")
    return all(
        any(re.search(".*".join(map(re.escape, part.split("..."))), text, re.DOTALL) for text in known)
        for part in (head, re.sub(r"\d+", "...", cause))
        if part
    )


class TroubleshootingPageTests(SynchronousTestCase):
    """docs/troubleshooting.md."""

    def test_messages_exist(self) -> None:
        """Each is in the source."""
        known = [text for path in (ROOT / "lswap").rglob("*.py") for text in texts(path.read_text(encoding="utf-8"))]
        quoted = messages(PAGE.read_text(encoding="utf-8"))
        self.assertGreater(len(quoted), 25)
        self.assertEqual([message for message in quoted if not said(message, known)], [])
        self.assertFalse(said("no router for the requested model", known))
