"""Which reactor a process gets: ours, unless another one was chosen."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

_PROGRAM = """
import sys
{before}
from lswap.tap import Options, makeService
options = Options()
options.parseOptions(["-config", sys.argv[1]])
makeService(options)
from twisted.internet import reactor
print(type(reactor).__module__, "OpenSSL" in sys.modules)
"""


class ReactorTests(SynchronousTestCase):
    """A fresh process composes the service, as `twistd` does."""

    def composed(self, before: str = "") -> str:
        """The module of its reactor, and whether it has paid for TLS."""
        config = pathlib.Path(self.mktemp())
        config.write_text("models:\n  a:\n    cmd: server --port ${PORT}\n")
        words = [sys.executable, "-c", _PROGRAM.format(before=before), str(config)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.strip()

    def test_ours(self) -> None:
        """Nobody chose: the lean one, where the system has it."""
        self.assertEqual(self.composed(), "lswap.net.epoll False")

    def test_chosen(self) -> None:
        """`--reactor` has installed another one before."""
        chosen = "from twisted.internet import pollreactor; pollreactor.install()"
        self.assertEqual(self.composed(chosen).split()[0], "twisted.internet.pollreactor")
