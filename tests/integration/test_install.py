"""lswap as others install it: a wheel and an editable install, each in a virtual environment of its own.

Builds with the backend that pyproject.toml names, without a network; the environments borrow this one's dependencies.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

import lswap

ROOT = pathlib.Path(lswap.__file__).parents[1]

#: Prints where lswap comes from, the names of its plugins, and its commands.
LOOK = """
import importlib.metadata
from twisted.application.reactors import getReactorTypes
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
import lswap
print(lswap.__file__)
print(*[maker.module for maker in getPlugins(IServiceMaker) if maker.tapname == "llamaswap"])
print(*[reactor.moduleName for reactor in getReactorTypes() if reactor.shortName == "lswap"])
print(*[point.value for point in importlib.metadata.entry_points(group="console_scripts", name="lswap")])
"""


class InstallTests(SynchronousTestCase):
    """Build, install, look."""

    def setUp(self) -> None:
        """Only a checkout can be built."""
        if not (ROOT / "pyproject.toml").exists():
            raise SkipTest("no checkout")

    def built(self, function: str, source: pathlib.Path = ROOT) -> pathlib.Path:
        """Where this function of the build backend has put what it made of a source tree."""
        out = pathlib.Path(self.mktemp()).absolute() / "dist"
        out.mkdir(parents=True)
        script = f"import sys, hatchling.build; hatchling.build.{function}(sys.argv[1])"
        self.run_it(pathlib.Path(sys.executable), "-c", script, str(out), cwd=source)
        return out

    def installed(self, function: str, source: pathlib.Path = ROOT) -> pathlib.Path:
        """Python of a new environment with lswap as this function of the build backend makes it."""
        out = self.built(function, source)
        folder = out.parent
        venv.create(folder / "venv", symlinks=True)
        python = folder / "venv" / "bin" / "python"
        site = pathlib.Path(
            self.run_it(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=out)
        )
        with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
            wheel.extractall(site)
        # Other packages only: what that folder's own .pth files add, such as this checkout, is not read from here.
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return python

    def run_it(self, python: pathlib.Path, *words: str, cwd: pathlib.Path) -> str:
        """Standard output of a process that must end well."""
        # A parallel trial gives its workers a PYTHONPATH, which would bring the checkout back.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([python, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def looked(self, python: pathlib.Path) -> list[str]:
        """What `LOOK` says, outside the checkout."""
        return self.run_it(python, "-c", LOOK, cwd=python.parent).splitlines()

    def twistd(self, python: pathlib.Path, *words: str) -> str:
        """Standard output of `twistd` with these words."""
        return self.run_it(python, "-c", "from twisted.scripts.twistd import run; run()", *words, cwd=python.parent)

    def check(self, python: pathlib.Path, home: pathlib.Path) -> None:
        """Plugins, commands and version are there, and the code is below `home`."""
        place, maker, reactor, command = self.looked(python)
        self.assertIn(home.resolve(), pathlib.Path(place).resolve().parents)
        self.assertEqual((maker, reactor, command), ("lswap.tap", "lswap.net.reactor", "lswap.cli:main"))
        self.assertIn(
            f"version: {lswap.__version__} ", self.twistd(python, "--reactor=lswap", "llamaswap", "--version")
        )
        self.assertIn(
            f"version: {lswap.__version__} ", self.run_it(python, "-m", "lswap", "-version", cwd=python.parent)
        )

    def test_wheel(self) -> None:
        """A wheel has all of it, needs no checkout, and knows its commit."""
        python = self.installed("build_wheel")
        self.check(python, python.parents[1])
        self.check_commit(python)

    def check_commit(self, python: pathlib.Path) -> None:
        """All commands tell the commit that this checkout has, if it is one."""
        git = subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        commit = git.stdout.strip() if git.returncode == 0 and (ROOT / ".git").exists() else "unknown"
        for module in ("lswap", "lswap.wol", "lswap.vllm"):
            self.assertIn(f"({commit})", self.run_it(python, "-m", module, "-version", cwd=python.parent))

    def test_source_archive(self) -> None:
        """A wheel made of a source archive, far from any repository, knows the commit of the archive."""
        (archive,) = self.built("build_sdist").glob("*.tar.gz")
        folder = pathlib.Path(self.mktemp()).absolute()
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        (source,) = folder.iterdir()
        self.assertFalse((source / ".git").exists())
        python = self.installed("build_wheel", source)
        self.check(python, python.parents[1])
        self.check_commit(python)

    def test_editable(self) -> None:
        """An editable install finds the checkout, and twistd finds the plugin in it."""
        self.check(self.installed("build_editable"), ROOT)
