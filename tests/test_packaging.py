"""What the package says of itself. What is built of it is for `tests.integration.test_dist`."""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

import lswap
from lswap import cli
from tests.test_layers import all_lines

ROOT = pathlib.Path(lswap.__file__).parents[1]


class ProjectTests(SynchronousTestCase):
    """pyproject.toml and the tree around it."""

    def setUp(self) -> None:
        """Read pyproject.toml; an installed package has none."""
        path = ROOT / "pyproject.toml"
        if not path.exists():
            raise SkipTest("no checkout")
        self.project: dict[str, Any] = tomllib.loads(path.read_text())

    def test_both_packages_are_shipped(self) -> None:
        """The wheel has `lswap` and the plugin beside it."""
        self.assertEqual(self.project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], ["lswap", "twisted"])
        self.assertTrue((ROOT / "twisted" / "plugins" / "lswap_plugin.py").exists())

    def test_twisted_keeps_its_namespace(self) -> None:
        """No `__init__.py` of ours stands where Twisted has its own."""
        self.assertEqual(list((ROOT / "twisted").rglob("__init__.py")), [])

    def test_command(self) -> None:
        """The script `lswap` leads to the command line."""
        module, _, name = self.project["project"]["scripts"]["lswap"].partition(":")
        self.assertEqual((module, getattr(cli, name)), (cli.__name__, cli.main))

    def test_imports_are_declared(self) -> None:
        """Whatever lswap imports of others comes with one of its own dependencies; the demo's servers are optional."""
        shipped = {
            "PyYAML": {"yaml"},
            "attrs": {"attr", "attrs"},
            "twisted": {"twisted", "zope", "hyperlink", "constantly"},
            "klein": {"klein", "werkzeug"},  # whose exceptions klein raises
            "prometheus-client": {"prometheus_client"},
            "pyOpenSSL": {"OpenSSL"},
        }
        declared = {re.split(r"[\[<>=]", text)[0].lower() for text in self.project["project"]["dependencies"]}
        names = {key.lower(): value for key, value in shipped.items()}
        expected = set().union(*(names.get(name, {name}) for name in declared))
        found = {line.name.partition(".")[0]: line.place for line in all_lines() if line.part != "demo"}
        found = {name: place for name, place in found.items() if name not in sys.stdlib_module_names | {"lswap"}}
        self.assertEqual({name: place for name, place in found.items() if name not in expected}, {})

    def test_news_fragments(self) -> None:
        """Each fragment has a name that the tool which gathers them knows."""
        kinds = "|".join(kind["directory"] for kind in self.project["tool"]["towncrier"]["type"])
        for path in (ROOT / "newsfragments").iterdir():
            if path.name not in ("README.rst", ".gitignore"):
                self.assertRegex(path.name, rf"^(\d+|\+[\w-]+)\.({kinds})(\.\d+)?\.rst$")
