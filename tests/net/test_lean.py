"""OpenSSL stays out of a process that needs no TLS (`lswap.net.lean`): each test in a fresh interpreter."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

import lswap

_HOME = str(pathlib.Path(lswap.__file__).parent.parent)


class LeanTests(SynchronousTestCase):
    """What is loaded when."""

    def run_fresh(self, script: str) -> str:
        """What a script prints, in an interpreter that has imported nothing."""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, cwd=_HOME, timeout=60, check=False
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_idle_service(self) -> None:
        """A whole service, built from a plain configuration as `lswap` does it, has no OpenSSL; nor has a reload."""
        path = pathlib.Path(self.mktemp()).absolute()
        path.write_text("models:\n  a: {cmd: 'server --port ${PORT}'}\n")
        script = f"""
import sys
from lswap import tap
from lswap.net import reactor as ours
from lswap.net.lean import without_openssl
options = tap.Options()
options.parseOptions(["-config", {str(path)!r}, "-listen", "127.0.0.1:0"])
with without_openssl(not options.settings.uses_tls):
    ours.install()
    from twisted.internet import reactor
service = tap.makeService(options, reactor)
service._take_over(service._load().config)
print([name for name in ("OpenSSL", "cryptography", "service_identity") if name in sys.modules])
"""
        self.assertEqual(self.run_fresh(script), "[]")

    def test_tls_afterwards(self) -> None:
        """What needs TLS later gets it, in both directions."""
        script = """
import sys
from lswap.net import reactor as ours
from lswap.net.lean import without_openssl
with without_openssl():
    ours.install()
    from twisted.internet import reactor, tcp, endpoints
print("OpenSSL" in sys.modules)
from lswap.net import tls
from twisted.internet.ssl import optionsForClientTLS
optionsForClientTLS("example.org")
print("OpenSSL" in sys.modules)
"""
        self.assertEqual(self.run_fresh(script), "False\nTrue")

    def test_closed_within(self) -> None:
        """In the block OpenSSL cannot be imported, behind it it can, also after an error in the block."""
        script = """
from lswap.net.lean import without_openssl
try:
    with without_openssl():
        import OpenSSL
except ModuleNotFoundError as error:
    print(error.name)
import OpenSSL.SSL
"""
        self.assertEqual(self.run_fresh(script), "OpenSSL")

    def test_not_wanted(self) -> None:
        """No effect where TLS is wanted, nor where OpenSSL is there already."""
        script = """
from lswap.net.lean import without_openssl
with without_openssl(False):
    import OpenSSL
with without_openssl():
    import OpenSSL.SSL
print("both")
"""
        self.assertEqual(self.run_fresh(script), "both")
