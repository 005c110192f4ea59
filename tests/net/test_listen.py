"""From `--listen` to a port (`lswap.net.listen`)."""

from __future__ import annotations

import os
import traceback

from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from lswap.errors import LswapError
from lswap.net.listen import CannotListen, open_port
from tests.wires import MemoryReactor


class AddressTests(SynchronousTestCase):
    """What an address means."""

    def setUp(self) -> None:
        """Nothing listens."""
        self.reactor = MemoryReactor()

    def opened(self, listen: str) -> tuple[str, int]:
        """Interface and port that were opened."""
        open_port(listen, Factory(), self.reactor)
        port = self.reactor.ports[-1]
        self.assertGreaterEqual(port.backlog, 1024, listen)
        return port.interface, port.port

    def test_host_and_port(self) -> None:
        """Names, addresses of both versions, and any port."""
        for listen, found in (
            ("127.0.0.1:8080", ("127.0.0.1", 8080)),
            ("localhost:0", ("localhost", 0)),
            ("[::1]:8080", ("::1", 8080)),
            ("::1:8080", ("::1", 8080)),
            ("host.example:65535", ("host.example", 65535)),
            ("tcp:8080:interface=127.0.0.1:backlog=2048", ("127.0.0.1", 8080)),
            ("tcp6:8080:interface=\\:\\:1:backlog=2048", ("::1", 8080)),
        ):
            self.assertEqual(self.opened(listen), found)

    def test_no_host(self) -> None:
        """All addresses, those of the newer version included where there are any."""
        there = {"/proc/net/if_inet6": True}
        self.patch(os.path, "exists", lambda path: there[path])
        self.assertEqual(self.opened(":8080"), ("::", 8080))
        there["/proc/net/if_inet6"] = False
        self.assertEqual(self.opened(":8080"), ("", 8080))

    def test_no_address(self) -> None:
        """What is none ends the program with a text that says what would do."""
        for listen in (
            "",
            "8080",
            "host",
            "host:",
            "host:x",
            "host:-1",
            "host:65536",
            "host:\u0661",
            "host:1²",
            "tcp",
            "foo:1:x",
        ):
            problem = self.assertRaises(CannotListen, self.opened, listen)
            self.assertIn(f"-listen {listen}: expected host:port", str(problem), listen)

    def test_broken_endpoint(self) -> None:
        """Nor is an endpoint that Twisted does not understand."""
        for listen in ("tcp:", "tcp:x", "tcp:1:nonsense=2", "unix:", "tcp6:1:interface"):
            self.assertRaises(CannotListen, self.opened, listen)

    def test_taken(self) -> None:
        """The error names the address and the reason."""
        self.reactor.listen_error = CannotListenError("127.0.0.1", 8080, OSError(98, "Address already in use"))
        problem = self.assertRaises(CannotListen, self.opened, "127.0.0.1:8080")
        self.assertEqual(str(problem), "lswap: cannot listen on 127.0.0.1:8080: [Errno 98] Address already in use")


class ErrorTests(SynchronousTestCase):
    """The error as such."""

    def test_ends_the_program(self) -> None:
        """Whoever does not catch it ends with its text and status 1; whoever catches errors catches it."""
        problem = CannotListen("lswap: no")
        self.assertIsInstance(problem, SystemExit)
        self.assertIsInstance(problem, LswapError)
        self.assertEqual((problem.code, str(problem)), ("lswap: no", "lswap: no"))
        # So does a daemon, which tells its parent the last line.
        self.assertIn("lswap: no", traceback.format_exception_only(problem)[-1])
