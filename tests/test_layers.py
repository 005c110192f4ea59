"""The floors of lswap: who may import whom (docs/design.md), checked against the source and in a fresh interpreter.

A line that must not be is named with its file and number. To move a border, change the tables here in the same change.
"""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from twisted.trial.unittest import SynchronousTestCase

import lswap

ROOT = pathlib.Path(lswap.__file__).parent

#: Part of lswap to the parts that it may import. A part is a folder, or a module at the top; `lswap` itself, which has
#: the version only, is open to all.
MAY_IMPORT: dict[str, set[str]] = {
    "lswap": set(),
    "errors": set(),
    "core": {"errors"},
    "net": {"core", "errors"},
    "service": {"core", "errors", "net"},
    "web": {"core", "errors", "net", "service"},
    "demo": set(),
    "options": {"errors"},
    "version": {"_build"},
    "testing": {"core", "errors"},
    "life": {"net", "service"},
    "app": {"core", "errors", "life", "net", "options", "service", "web", "version"},
    "foreground": {"errors", "net"},
    "tap": {"app", "core", "errors", "foreground", "net", "options", "version"},
    # What the two tools have in common; neither knows the other, or anything of models.
    "front": {"core", "errors", "life", "net", "service", "web"},
    "wol": {"core", "errors", "foreground", "front", "net", "options", "service", "web", "version"},
    "vllm": {"core", "errors", "foreground", "front", "net", "options", "service", "web", "version"},
    # A command runs the same service as the plugin does, so it takes both from `tap`.
    "cli": {"cli_kv", "cli_plan", "core", "errors", "foreground", "net", "options", "service", "tap"},
    "cli_kv": {"core", "net", "options", "tap"},
    "cli_plan": {"errors", "options"},
    "__main__": {"cli"},
}

#: Parts beside lswap that `core` may import, all of which only compute.
CORE_MAY_IMPORT = {"attr", "attrs", "automat", "msgspec", "yaml"}

#: Modules of the standard library that reach outside the process, or run beside the reactor.
TOUCHING = (
    *("asyncio", "concurrent", "http.client", "http.server", "multiprocessing", "select", "selectors", "shutil"),
    *("signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "urllib.request"),
)

#: What only a clock can answer, or wait for. (To write a given time as text is no question to a clock.)
CLOCKS = {
    *("time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns", "time.process_time"),
    *("time.sleep", "time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"),
}

#: Importing these installs the default reactor, so that `--reactor` would come too late.
REACTOR_INSTALLERS = ("klein", "twisted.web.proxy", "twisted.runner.procmon")

#: The modules that may take the installed reactor, inside a function; all others get it as an argument.
TAKES_REACTOR = {"foreground", "tap", "wol"}


class Line(NamedTuple):
    """One import: where it stands and what it names."""

    part: str
    place: str
    name: str
    #: Not inside a function, so that it happens when the module is imported.
    at_import: bool


def _part(module: str) -> str:
    """The part of lswap that a dotted name belongs to."""
    names = module.split(".")
    return names[1] if len(names) > 1 else names[0]


def _module(path: pathlib.Path) -> str:
    names = ("lswap", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def _names(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    """The dotted names that an import statement may load."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parents = module.split(".")
        parents = parents[: len(parents) - node.level + is_package]
        base = ".".join([*parents, base] if base else parents)
    yield from (f"{base}.{alias.name}" for alias in node.names)


def lines(source: str, module: str, place: str, is_package: bool = False) -> Iterator[Line]:
    """All imports of a source text; those for the type checker alone count like others, but happen never."""

    def visit(node: ast.AST, at_import: bool) -> Iterator[Line]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                for name in _names(child, module, is_package):
                    yield Line(_part(module), f"{place}:{child.lineno}", name, at_import)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from visit(child, False)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from visit(child, at_import and not inside)

    return visit(ast.parse(source), True)


def calls(source: str) -> Iterator[tuple[int, str]]:
    """Line number and last two names of everything that is called by name (`open`, `time.time`)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            # To import such a function by its own name would hide its calls.
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.lineno, ".".join(ast.unparse(node.func).split(".")[-2:])


def all_lines() -> Iterator[Line]:
    """All imports of lswap."""
    for path in sorted(ROOT.rglob("*.py")):
        place = str(path.relative_to(ROOT.parent))
        yield from lines(path.read_text(), _module(path), place, path.name == "__init__.py")


def own(name: str) -> str | None:
    """The part of lswap that an imported name belongs to; None for others."""
    names = name.split(".")
    if names[0] != "lswap":
        return None
    # `from lswap import tap` names a part, `from lswap import __version__` something of the top itself.
    found = names[1] if len(names) > 1 else "lswap"
    return found if found in MAY_IMPORT or found == "_build" else "lswap"


class LayerTests(SynchronousTestCase):
    """What the source says."""

    def refused(self, wrong: Iterator[Line]) -> None:
        """Fail with all the lines, if there are any."""
        told = [f"{line.place}: {line.part} imports {line.name}" for line in wrong]
        if told:
            self.fail("\n" + "\n".join(told))

    def test_every_part_has_its_place(self) -> None:
        """A new folder or top module must be put into the table first."""
        found = {_part(_module(path)) for path in ROOT.rglob("*.py")} - {"_build"}
        self.assertEqual(found - set(MAY_IMPORT), set())

    def test_imports_go_down_only(self) -> None:
        """Each part imports itself and what the table allows."""
        self.refused(
            line
            for line in all_lines()
            if (target := own(line.name)) is not None and target not in {line.part, "lswap"} | MAY_IMPORT[line.part]
        )

    def test_core_only_computes(self) -> None:
        """`core` imports nothing that waits, reaches outside or knows the time; of others' packages only pure ones."""

        def wrong(name: str) -> bool:
            top = name.partition(".")[0]
            if top in ("lswap", "__future__"):
                return False
            if (name + ".").startswith(tuple(f"{module}." for module in TOUCHING)):
                return True
            return top not in sys.stdlib_module_names and top not in CORE_MAY_IMPORT

        self.refused(line for line in all_lines() if line.part == "core" and wrong(line.name))

    def test_core_opens_no_file_and_asks_no_clock(self) -> None:
        """`core` never calls `open`; the time is given to it."""
        found = [
            f"{path.relative_to(ROOT.parent)}:{number}: {call}"
            for path in sorted((ROOT / "core").rglob("*.py"))
            for number, call in calls(path.read_text())
            if call in {"open"} | CLOCKS
        ]
        self.assertEqual(found, [])

    def test_only_web_imports_what_installs_a_reactor(self) -> None:
        """klein and its like are for `web` alone."""
        self.refused(
            line
            for line in all_lines()
            if line.part != "web" and (line.name + ".").startswith(tuple(f"{n}." for n in REACTOR_INSTALLERS))
        )

    def test_the_reactor_enters_in_one_place(self) -> None:
        """The installed reactor is taken inside a function of a command, and handed on from there."""
        self.refused(
            line
            for line in all_lines()
            if line.name == "twisted.internet.reactor" and (line.at_import or line.part not in TAKES_REACTOR)
        )


class ReaderTests(SynchronousTestCase):
    """The reader of imports, without which the tests above could not fail."""

    def read(self, source: str, module: str = "lswap.net.x", is_package: bool = False) -> list[tuple[str, bool]]:
        """Names and whether they load at import."""
        return [(line.name, line.at_import) for line in lines(source, module, "x.py", is_package)]

    def test_forms(self) -> None:
        """All forms of an import are read, dots too."""
        self.assertEqual(self.read("import a.b, c"), [("a.b", True), ("c", True)])
        self.assertEqual(self.read("from a import b as c, d"), [("a.b", True), ("a.d", True)])
        self.assertEqual(self.read("from . import b"), [("lswap.net.b", True)])
        self.assertEqual(self.read("from ..web import b"), [("lswap.web.b", True)])
        self.assertEqual(self.read("from . import b", "lswap.net", True), [("lswap.net.b", True)])

    def test_places(self) -> None:
        """Imports inside functions, and for the type checker, are told from those that happen at once."""
        self.assertEqual(self.read("def f():\n import a"), [("a", False)])
        self.assertEqual(self.read("if TYPE_CHECKING:\n import a"), [("a", False)])
        self.assertEqual(self.read("try:\n import a\nexcept ImportError:\n import b"), [("a", True), ("b", True)])
        self.assertEqual(self.read("class C:\n import a"), [("a", True)])

    def test_calls(self) -> None:
        """Calls are read with what they are called on, and functions that hide behind an import."""
        source = "open(x)\na.time.time()\nfrom time import sleep\ny = open"
        self.assertEqual(sorted(calls(source)), [(1, "open"), (2, "time.time"), (3, "time.sleep")])

    def test_parts(self) -> None:
        """Names are told apart by the part that they belong to."""
        self.assertEqual(own("lswap.core.model.Model"), "core")
        self.assertEqual(own("lswap.tap"), "tap")
        self.assertEqual(own("lswap.__version__"), "lswap")
        self.assertIsNone(own("twisted.internet"))


class FreshInterpreterTests(SynchronousTestCase):
    """What really happens on import, in one new process."""

    def test_no_reactor_below_web(self) -> None:
        """Importing a command, or any module below `web`, chooses no reactor; `core` alone loads no network code."""
        below = [
            _module(path)
            for path in sorted(ROOT.rglob("*.py"))
            if _part(_module(path)) in ("core", "net", "service", "demo")
        ]
        pure = [name for name in below if _part(name) == "core"]
        rest = [name for name in below if name not in pure] + [
            *("lswap.options", "lswap.foreground", "lswap.cli", "lswap.tap"),
            *("lswap.wol.options", "lswap.wol.cli", "lswap.wol.tap", "lswap.vllm.options", "lswap.vllm.cli"),
        ]
        script = f"""
import importlib, sys
def load(names, banned):
    for name in names:
        importlib.import_module(name)
        for module in banned:
            if module in sys.modules:
                sys.exit(f"{{name}} loads {{module}}")
load({pure!r}, ["twisted.internet.reactor", "twisted.web", "treq", "klein", "socket"])
load({rest!r}, ["twisted.internet.reactor", "klein"])
"""
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT.parent, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
