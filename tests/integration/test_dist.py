"""The wheel and the source archive, judged by the tools of those who publish and install them.

Builds both once, without a network. The environments that they are installed into borrow this one's dependencies.
"""

from __future__ import annotations

import email.message
import email.parser
import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

import lswap
from tests.integration.running import Running

ROOT = pathlib.Path(lswap.__file__).parents[1]

#: The one model says back what it hears.
CONFIG = """
models:
  echo:
    cmd: {python} -m lswap.demo.echo_server --port ${{PORT}} --name echo
"""

#: Prints the modules that make twistd's commands of lswap.
LOOK = """
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
print(*sorted(maker.tapname for maker in getPlugins(IServiceMaker) if maker.module.startswith("lswap.")))
"""

#: Imports all of lswap, and lists the warnings that were given on the way for lines of lswap.
WARNED = """
import importlib, pkgutil, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import lswap
    for found in pkgutil.walk_packages(lswap.__path__, "lswap."):
        if not found.name.endswith("__main__") and not found.name.startswith("lswap.demo."):
            importlib.import_module(found.name)
print(*[f"{warning.filename}:{warning.lineno}: {warning.message}" for warning in caught if "lswap" in warning.filename])
"""


def run(*words: str | pathlib.Path, cwd: pathlib.Path = ROOT, well: bool = True) -> str:
    """What a command says, both streams; it must end `well`."""
    # A parallel trial gives its workers a PYTHONPATH, which would bring the checkout into every environment.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode(errors="replace").strip()
    if well and done.returncode:
        raise AssertionError(f"{words[0]} ended with {done.returncode}: {said}")
    return said


def build(kind: str, source: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """What the build backend makes of a source tree: a `wheel` or an `sdist`."""
    out.mkdir(parents=True, exist_ok=True)
    run(
        sys.executable, "-c", f"import sys, hatchling.build; hatchling.build.build_{kind}(sys.argv[1])", out, cwd=source
    )
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


class Dist:
    """What is built for all tests of this process, and removed with it."""

    @functools.cached_property
    def folder(self) -> pathlib.Path:
        """Where all of it is."""
        self._folder = tempfile.TemporaryDirectory()
        return pathlib.Path(self._folder.name)

    @functools.cached_property
    def wheel(self) -> pathlib.Path:
        """The wheel of the checkout."""
        return build("wheel", ROOT, self.folder / "dist")

    @functools.cached_property
    def archive(self) -> pathlib.Path:
        """The source archive of the checkout."""
        return build("sdist", ROOT, self.folder / "dist")


dist = Dist()


class DistTestCase(SynchronousTestCase):
    """Only a checkout can be built."""

    def setUp(self) -> None:
        """Look whether it is one."""
        if not (ROOT / "pyproject.toml").exists():
            raise SkipTest("no checkout")

    def folder(self) -> pathlib.Path:
        """A new one."""
        made = pathlib.Path(self.mktemp()).absolute()
        made.mkdir(parents=True)
        return made

    def content(self, path: pathlib.Path) -> dict[str, list[bytes]]:
        """The files of a wheel by their names, as sorted lines."""
        with zipfile.ZipFile(path) as wheel:
            return {name: sorted(wheel.read(name).splitlines()) for name in wheel.namelist()}

    def metadata(self) -> email.message.Message:
        """What the wheel says of itself."""
        with zipfile.ZipFile(dist.wheel) as wheel:
            (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
            return email.parser.BytesParser().parsebytes(wheel.read(name))


class ContentTests(DistTestCase):
    """What is in them."""

    def test_publishing_tools(self) -> None:
        """The tools that people look at packages with before they publish them find nothing."""
        for module in ("twine", "check_wheel_contents"):
            if importlib.util.find_spec(module) is None:
                raise SkipTest(f"no {module}")
        run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", dist.wheel, dist.archive)
        run(sys.executable, "-m", "check_wheel_contents", dist.wheel)

    def test_wheel(self) -> None:
        """All files of the two packages, also those that are no modules, and nothing beside them."""
        with zipfile.ZipFile(dist.wheel) as wheel:
            names = {name for name in wheel.namelist() if ".dist-info/" not in name} - {"lswap/_build.py"}
        there = {path for path in (*ROOT.glob("lswap/**/*"), *ROOT.glob("twisted/**/*")) if path.is_file()}
        expected = {path.relative_to(ROOT).as_posix() for path in there if "__pycache__" not in path.parts}
        self.assertEqual(names, expected - {"twisted/plugins/dropin.cache", "lswap/_build.py"})
        self.assertIn("lswap/py.typed", names)

    def test_archive(self) -> None:
        """All that belongs to the repository but its CI: no caches, no files of this machine."""
        if not (ROOT / ".git").exists() or shutil.which("git") is None:
            raise SkipTest("no repository")
        listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        expected = {name for name in listed if name and (ROOT / name).exists() and not name.startswith(".ci/")}
        with tarfile.open(dist.archive) as archive:
            members = archive.getmembers()
        self.assertEqual([member.name for member in members if not member.isreg()], [])
        names = {member.name.partition("/")[2] for member in members}
        self.assertEqual(names - {"PKG-INFO", "lswap/_build.py"}, expected)
        for name in ("LICENSE", "Makefile", "README.md", "docs/config.md", "tests/test_packaging.py"):
            self.assertIn(name, names)

    def test_archive_makes_the_same_wheel(self) -> None:
        """Far from any repository; only the order of the files in it may be another."""
        folder = self.folder()
        with tarfile.open(dist.archive) as archive:
            archive.extractall(folder, filter="data")
        (source,) = folder.iterdir()
        again = build("wheel", source, folder / "dist")
        self.assertEqual(again.name, dist.wheel.name)
        self.assertEqual(self.content(again), self.content(dist.wheel))

    def test_metadata(self) -> None:
        """The licence as an expression; the oldest Python that is asked for is the first that is named."""
        said = self.metadata()
        self.assertEqual((said["License-Expression"], said["License-File"]), ("MIT", "LICENSE"))
        classifiers = said.get_all("Classifier", [])
        self.assertFalse([text for text in classifiers if text.startswith("License ::")])
        numbered = [text.rpartition(" ")[2] for text in classifiers if ":: Python :: 3." in text]
        self.assertEqual(said["Requires-Python"], f">={numbered[0]}")
        self.assertIn("Typing :: Typed", classifiers)


class InstalledTests(DistTestCase):
    """Installed by the tools of those who use it."""

    def environment(self) -> pathlib.Path:
        """A new environment, which borrows dependencies and has no pip."""
        folder = self.folder() / "venv"
        venv.create(folder, symlinks=True)
        python = folder / "bin" / "python"
        site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
        # What that folder's own .pth files add, such as this checkout, is not read from here.
        (pathlib.Path(site) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return folder

    def check(self, folder: pathlib.Path) -> None:
        """What a user does first."""
        python, command = folder / "bin" / "python", folder / "bin" / "lswap"
        self.assertIn(f"version: {lswap.__version__} ", run(command, "--version", cwd=folder))
        self.assertEqual(run(python, "-c", LOOK, cwd=folder), "llamaswap lswap-wol")
        self.assertIn(folder.name, run(python, "-c", "import lswap; print(lswap.__file__)", cwd=folder))
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(python=python))
        self.assertEqual(run(command, "check", "-config", config, cwd=folder), "0 problems, 0 warnings")
        twistd = [python, "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile=", "llamaswap"]
        running = Running(["env", "-u", "PYTHONPATH", *map(str, twistd), "-config", str(config)], cwd=folder)
        self.addCleanup(running.end)
        body = {"model": "echo", "messages": [{"role": "user", "content": "out of a wheel"}]}
        status, answer = running.serving().ask("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200)
        self.assertIn(b"out of a wheel", answer)
        running.process.terminate()
        self.assertEqual(running.wait(10), 0)
        running.wait_alone(5)

    def test_pip(self) -> None:
        """Pip installs it, finds that all it requires is there, and importing it gives no warning."""
        folder = self.environment()
        python = folder / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
        run(*pip, "install", "--quiet", "--no-index", "--no-deps", dist.wheel)
        # Of others that are borrowed, the demo's weights say that they lack something.
        self.assertEqual(
            [line for line in run(*pip, "check", well=False).splitlines() if line.startswith("lswap ")], []
        )
        self.assertEqual(run(python, "-c", WARNED, cwd=folder), "")
        self.check(folder)

    def test_uv(self) -> None:
        """So does uv."""
        if importlib.util.find_spec("uv") is None:
            raise SkipTest("no uv")
        folder = self.environment()
        uv = (sys.executable, "-m", "uv", "--quiet", "--no-config", "pip", "install", "--offline", "--no-deps")
        run(*uv, "--cache-dir", folder / "cache", "--python", folder / "bin" / "python", dist.wheel)
        self.check(folder)
