"""lswap as a service manager runs it: what it tells, and the sockets that it is given. Real processes and sockets."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import sys
from collections.abc import Sequence

from tests.integration.running import LSWAP, TWISTD, Running, free_port, until
from tests.integration.test_commands import SERVER, CommandCase

#: Becomes the command behind it, with the sockets of the descriptors before it, as a service manager passes them.
_PASS = """
import os, sys
count = int(sys.argv[1])
fds = [os.dup(int(fd)) for fd in sys.argv[2:2 + count]]
for number, fd in enumerate(fds):
    os.dup2(fd, 3 + number)
    os.set_inheritable(3 + number, True)
for fd in fds:
    if fd >= 3 + count:
        os.close(fd)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count))
os.execv(sys.argv[2 + count], sys.argv[2 + count:])
"""
OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
WOL = (sys.executable, "-m", "lswap.wol", "-mac", "ba:dc:0f:fe:e0:00", "-upstream", "http://127.0.0.1:9")


class Manager:
    """The end of a service manager that hears."""

    def __init__(self, case: CommandCase, path: str = "") -> None:
        """@param path: of its socket; one without a path when not given."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        case.addCleanup(self.socket.close)
        self.socket.bind(path)
        self.socket.setblocking(False)
        self.address = path or "@" + self.socket.getsockname()[1:].decode()
        self.heard: list[str] = []

    def hears(self, word: str) -> bool:
        """Whether it has heard that, by now."""
        while True:
            try:
                self.heard += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return any(line.startswith(word) for line in self.heard)

    def wait(self, word: str) -> None:
        """Wait for it, and forget what came until there."""
        until(lambda: self.hears(word), 15, word)
        at = next(number for number, line in enumerate(self.heard) if line.startswith(word))
        del self.heard[: at + 1]


class NotifyTests(CommandCase):
    """`Type=notify-reload`, with a watchdog."""

    def life(self, address: str = "") -> None:
        """From the start to the end, with a reload between."""
        manager = Manager(self, address)
        told = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
        self.patch(os, "environ", {**os.environ, **told})
        running = self.start()
        manager.wait("READY=1")
        self.use(running)
        (model,) = running.family(SERVER)
        names = {line.partition(b"=")[0].decode() for line in environment_of(model)}
        self.assertEqual(names & {*OURS}, set())
        manager.wait("STATUS=ready: a")
        manager.wait("WATCHDOG=1")
        running.process.send_signal(signal.SIGHUP)
        manager.wait("RELOADING=1")
        manager.wait("READY=1")
        running.process.send_signal(signal.SIGTERM)
        manager.wait("STOPPING=1")
        self.assertEqual(running.wait(5), 0, running.output)

    def test_abstract_socket(self) -> None:
        """A socket without a path."""
        self.life()

    def test_socket_with_a_path(self) -> None:
        """And one with a path."""
        path = f"/tmp/lswap-test-manager-{os.getpid()}"
        self.addCleanup(os.unlink, path)
        self.life(path)

    def test_manager_that_is_gone(self) -> None:
        """lswap works all the same."""
        self.patch(os, "environ", {**os.environ, "NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "100000"})
        running = self.serve()
        self.use(running)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(5), 0, running.output)
        self.assertEqual(running.output.count("/nowhere") + running.output.count("No such file"), 1, running.output)

    def test_port_that_is_taken(self) -> None:
        """It is never ready."""
        manager = Manager(self)
        self.patch(os, "environ", {**os.environ, "NOTIFY_SOCKET": manager.address})
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertEqual(self.start(port=taken.getsockname()[1]).wait(10), 1)
        self.assertFalse(manager.hears("READY"), manager.heard)


class SocketTests(CommandCase):
    """Socket activation."""

    def passed(self, command: Sequence[str], *sockets: socket.socket) -> Running:
        """A command that is given sockets; it listens on the first of them."""
        port = sockets[0].getsockname()[1] if sockets and sockets[0].family != socket.AF_UNIX else 0
        fds = [one.fileno() for one in sockets]
        words = [sys.executable, "-c", _PASS, str(len(fds)), *map(str, fds), *command]
        running = Running(words, cwd=self.folder, port=0, pass_fds=fds)
        self.addCleanup(running.end)
        running.port = port
        return running

    def socket(self, family: socket.AddressFamily = socket.AF_INET, address: str = "127.0.0.1") -> socket.socket:
        """One that listens."""
        made = socket.socket(family)
        self.addCleanup(made.close)
        made.bind(address if family == socket.AF_UNIX else (address, 0))
        made.listen()
        return made

    def test_lswap(self) -> None:
        """It serves who connected before it was there, and leaves the socket to its next one."""
        for command in (LSWAP, (*TWISTD, "-n", "--pidfile=", "llamaswap")):
            given, unused = self.socket(), self.socket()
            with socket.create_connection(given.getsockname()) as early:
                early.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
                running = self.passed(
                    [*command, "-config", "c.yaml", "-listen", "systemd:domain=INET:index=0"], given, unused
                )
                early.settimeout(15)
                self.assertTrue(early.recv(1000).startswith(b"HTTP/1.1 200 "), running.output)
            self.use(running)
            (model,) = running.family(SERVER)
            names = {line.partition(b"=")[0].decode() for line in environment_of(model)}
            self.assertEqual(names & {*OURS}, set())
            links = [os.readlink(one) for one in pathlib.Path(f"/proc/{model}/fd").iterdir()]
            for one in (given, unused):
                self.assertNotIn(os.readlink(f"/proc/self/fd/{one.fileno()}"), links)
            running.process.send_signal(signal.SIGTERM)
            self.assertEqual(running.wait(5), 0, running.output)
            with socket.create_connection(given.getsockname()):
                given.accept()[0].close()

    def test_unix(self) -> None:
        """A socket in the file system is still there afterwards."""
        path = f"/tmp/lswap-test-passed-{os.getpid()}"
        given = self.socket(socket.AF_UNIX, path)
        self.addCleanup(os.unlink, path)
        running = self.passed([*LSWAP, "-c", "c.yaml", "-listen", "systemd:index=0"], given)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(15)
            client.connect(path)
            client.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "), running.output)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(5), 0, running.output)
        self.assertTrue(pathlib.Path(path).is_socket())

    def test_wol(self) -> None:
        """So does the front of a host that sleeps."""
        given = self.socket()
        running = self.passed([*WOL, "-listen", "systemd:index=0"], given)
        self.assertEqual(running.ask("GET", "/status")[0], 200)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(5), 0, running.output)

    def test_none_passed(self) -> None:
        """It ends with 1 and one line that says so."""
        for command in ([*LSWAP, "-c", "c.yaml"], [*WOL], [*TWISTD, "-n", "--pidfile=", "llamaswap", "-c", "c.yaml"]):
            running = self.passed([*command, "-listen", "systemd:index=0"])
            self.assertEqual(running.wait(10), 1, running.output)
            self.assertIn("no socket was passed to this process", running.output)
            self.assertNotIn("Traceback", running.output)

    def test_not_used(self) -> None:
        """A socket that was passed for nothing is told of."""
        running = self.passed([*LSWAP, "-c", "c.yaml", "-listen", f"127.0.0.1:{free_port()}"], self.socket())
        until(lambda: "a socket was passed to this process, and is not used" in running.output, 10, "the warning")


def environment_of(pid: int) -> list[bytes]:
    """The environment of a process, `NAME=value` each."""
    return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
