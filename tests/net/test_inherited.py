"""Sockets that somebody else has opened (`lswap.net.inherited`)."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase, TestCase

from lswap.net.inherited import Inherited, InheritedEndpoint, inherited_sockets
from lswap.net.listen import CannotListen, open_port
from tests.wires import MemoryReactor

HERE = str(os.getpid())
HAS_IPV6 = os.path.exists("/proc/net/if_inet6")


class EnvironmentTests(SynchronousTestCase):
    """What the environment says."""

    def found(self, **environ: str) -> list[tuple[int, str]]:
        """Descriptors and names; nothing of it stays in the environment."""
        left = {"A": "1", **environ}
        sockets = inherited_sockets(left, {})
        self.assertEqual(left, {"A": "1"})
        return [(one.fd, one.name) for one in sockets]

    def test_sockets(self) -> None:
        """So many, from the third descriptor on, with names or without."""
        self.assertEqual(self.found(LISTEN_PID=HERE, LISTEN_FDS="1"), [(3, "")])
        found = self.found(LISTEN_PID=HERE, LISTEN_FDS="2", LISTEN_FDNAMES="a.socket:b")
        self.assertEqual(found, [(3, "a.socket"), (4, "b")])
        self.assertEqual(self.found(LISTEN_PID=HERE, LISTEN_FDS="2", LISTEN_FDNAMES="a"), [(3, "a"), (4, "")])

    def test_none(self) -> None:
        """None for another process, or where it makes no sense."""
        for environ in (
            {},
            {"LISTEN_FDS": "1"},
            {"LISTEN_PID": str(os.getppid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"},
            {"LISTEN_PID": HERE},
            {"LISTEN_PID": HERE, "LISTEN_FDS": "0"},
            {"LISTEN_PID": HERE, "LISTEN_FDS": "-1"},
            {"LISTEN_PID": HERE, "LISTEN_FDS": "x"},
            {"LISTEN_PID": HERE, "LISTEN_FDS": "99999999999"},
        ):
            self.assertEqual(self.found(**environ), [], environ)

    def test_environment_at_the_start(self) -> None:
        """It counts, as the variables may have been taken away since."""
        left = {"LISTEN_FDNAMES": "x"}
        found = inherited_sockets(left, {"LISTEN_PID": HERE, "LISTEN_FDS": "1"})
        self.assertEqual((found, left), ((Inherited(3, "x"),), {}))


class ChoiceTests(SynchronousTestCase):
    """Which socket is meant."""

    def setUp(self) -> None:
        """One of each kind."""
        self.reactor = MemoryReactor()
        self.sockets: list[Inherited] = []
        self.four = self.listening(socket.AF_INET, ("127.0.0.1", 0))
        self.unix = self.listening(socket.AF_UNIX, "")

    def listening(self, family: socket.AddressFamily, address: Any) -> socket.socket:
        """One more that was passed."""
        made = socket.socket(family)
        self.addCleanup(made.close)
        made.bind(address)
        made.listen()
        self.sockets.append(Inherited(made.fileno(), f"{family.name}.socket"))
        return made

    def chosen(self, listen: str) -> int:
        """Its descriptor."""
        return InheritedEndpoint(self.reactor, listen, self.sockets)._fd

    def test_choice(self) -> None:
        """By its number or its name, whether its domain is told or not."""
        for listen in (
            *("systemd:index=0", "systemd:domain=INET:index=0", "systemd:index=0:domain=INET"),
            *("systemd:name=AF_INET.socket", "systemd:domain=INET:name=AF_INET.socket"),
        ):
            self.assertEqual(self.chosen(listen), self.four.fileno(), listen)
        self.assertEqual(self.chosen("systemd:domain=UNIX:index=1"), self.unix.fileno())

    def refused(self, listen: str) -> str:
        """The text about it, from where the port is opened; it repeats the words."""
        problem = self.assertRaises(CannotListen, open_port, listen, Factory(), self.reactor, self.sockets)
        self.assertTrue(str(problem).startswith(f"lswap: -listen {listen}: "), problem)
        return str(problem).partition(f"{listen}: ")[2]

    def test_bad_form(self) -> None:
        """What would be right is said."""
        for listen in (
            *("systemd:", "systemd:INET", "systemd:domain=INET", "systemd:index=", "systemd:index=-1"),
            *("systemd:index=\u0661", "systemd:index=0:name=x", "systemd:index=0:x=1", "systemd:domain=inet:index=0"),
            "systemd:index=99999",
        ):
            self.assertIn("systemd:index=0", self.refused(listen), listen)

    def test_no_such_socket(self) -> None:
        """Those that there are, are named."""
        told = "there is no such socket; passed to this process: 0 (AF_INET.socket), 1 (AF_UNIX.socket)"
        self.assertEqual(self.refused("systemd:index=2"), told)
        self.assertEqual(self.refused("systemd:name="), told)
        self.assertEqual(self.refused("systemd:name=x"), told)

    def test_none_passed(self) -> None:
        """That is said, whatever was asked for."""
        self.sockets = []
        for listen in ("systemd:index=0", "systemd:domain=INET:index=0", "systemd:name=x"):
            self.assertIn("no socket was passed to this process", self.refused(listen))

    def test_wrong_domain(self) -> None:
        """The right one is said."""
        self.assertEqual(self.refused("systemd:domain=INET6:index=0"), "the socket is of the domain INET")

    def test_useless_descriptors(self) -> None:
        """A file, one that is closed, a datagram, a connection: none of them listens."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(datagram.close)
        pair = socket.socketpair()
        for end in pair:
            self.addCleanup(end.close)
        os.close(writing)
        for fd, text in (
            *((reading, "is no socket"), (writing, "is no socket")),
            *((datagram.fileno(), "that listens"), (pair[0].fileno(), "that listens")),
        ):
            self.sockets = [Inherited(fd, "")]
            self.assertIn(text, self.refused("systemd:index=0"))


class PortTests(TestCase):
    """Real ports of real sockets."""

    async def serve(self, family: socket.AddressFamily, address: Any) -> socket.socket:
        """Pass a socket; somebody connects and is heard; the port closes. Returns the manager's own copy."""
        kept = socket.socket(family)
        self.addCleanup(kept.close)
        kept.bind(address)
        kept.listen(100)
        passed = os.dup(kept.fileno())
        connected: Deferred[None] = Deferred()

        class Witness(Protocol):
            def connectionMade(self) -> None:
                assert self.transport is not None
                self.transport.loseConnection()
                connected.callback(None)

        port = open_port("systemd:index=0", Factory.forProtocol(Witness), reactor, [Inherited(passed, "")])
        self.assertRaises(OSError, os.fstat, passed)
        client = socket.socket(family)
        self.addCleanup(client.close)
        client.setblocking(False)
        client.connect_ex(kept.getsockname())
        await connected
        self.assertTrue(repr(port.getHost()))
        stopped = port.stopListening()
        assert stopped is not None
        await stopped
        return kept

    async def still_listens(self, kept: socket.socket) -> None:
        """The manager's copy takes connections, which its next service finds."""
        client = socket.socket(kept.family)
        self.addCleanup(client.close)
        client.connect(kept.getsockname())
        kept.settimeout(5)
        kept.accept()[0].close()

    async def test_inet(self) -> None:
        """The older addresses; the socket outlives the port."""
        await self.still_listens(await self.serve(socket.AF_INET, ("127.0.0.1", 0)))

    async def test_inet6(self) -> None:
        """The newer ones."""
        if HAS_IPV6:
            await self.still_listens(await self.serve(socket.AF_INET6, ("::1", 0)))

    async def test_unix(self) -> None:
        """A path stays, with the mode that it had."""
        path = f"/tmp/lswap-test-inherited-{os.getpid()}"
        before = os.umask(0o137)
        try:
            kept = await self.serve(socket.AF_UNIX, path)
        finally:
            os.umask(before)
        self.addCleanup(os.unlink, path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)
        await self.still_listens(kept)

    async def test_abstract(self) -> None:
        """A name without a path."""
        await self.still_listens(await self.serve(socket.AF_UNIX, ""))
