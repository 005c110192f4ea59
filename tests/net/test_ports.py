"""Tests for `lswap.net.ports`, with sockets of the test's own and a made-up /proc."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.ports import holder_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class HolderTests(SynchronousTestCase):
    """Who listens on a port."""

    def listen(self, family: socket.AddressFamily, address: str) -> int:
        """Listen somewhere until the test is over; the port."""
        listener = socket.socket(family)
        self.addCleanup(listener.close)
        listener.bind((address, 0))
        listener.listen()
        return int(listener.getsockname()[1])

    def test_ourselves(self) -> None:
        """A process is named with its pid, for both kinds of addresses."""
        name = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::1")):
            self.assertEqual(holder_of(self.listen(family, address)), f"{name} (pid {os.getpid()})")

    def test_nobody(self) -> None:
        """A port that is bound, connected to, or free has no listener."""
        bound = socket.socket()
        self.addCleanup(bound.close)
        bound.bind(("127.0.0.1", 0))
        self.assertIsNone(holder_of(bound.getsockname()[1]))
        bound.connect(("127.0.0.1", self.listen(socket.AF_INET, "127.0.0.1")))
        self.assertIsNone(holder_of(bound.getsockname()[1]))

    def proc(self) -> Path:
        """An empty /proc."""
        folder = Path(self.mktemp())
        (folder / "net").mkdir(parents=True)
        return folder

    def test_without_proc(self) -> None:
        """Where /proc is missing or says nothing, there is no answer."""
        self.assertIsNone(holder_of(80, "/nonexistent"))
        self.assertIsNone(holder_of(80, str(self.proc())))

    def test_foreign_process(self) -> None:
        """Of a process that may not be looked into, the user is known at least."""
        proc = self.proc()
        row = (
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {}        0 4711 1 0 100 0\n"
        )
        (proc / "net" / "tcp").write_text(HEAD + row.format(33), encoding="ascii")
        self.assertEqual(holder_of(0x1F90, str(proc)), "a process of user id 33")
        self.assertIsNone(holder_of(0x1F91, str(proc)))

    def test_unreadable_table(self) -> None:
        """Rows that are cut short or strange are skipped."""
        proc = self.proc()
        (proc / "net" / "tcp").write_text(HEAD + "\n 0: 0100007F:1F90\n", encoding="ascii")
        self.assertIsNone(holder_of(0x1F90, str(proc)))

    def test_several_processes(self) -> None:
        """Of several that share the socket, the oldest number is named; one without a name is a process."""
        proc = self.proc()
        row = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0        0 4711 1 0 100 0\n"
        (proc / "net" / "tcp6").write_text(HEAD + row, encoding="ascii")
        for pid, links in ((30, ["socket:[4711]"]), (7, ["/dev/null", "socket:[4711]"]), (5, ["socket:[1]"])):
            folder = proc / str(pid) / "fd"
            folder.mkdir(parents=True)
            for number, link in enumerate(links):
                (folder / str(number)).symlink_to(link)
        self.assertEqual(holder_of(0x1F90, str(proc)), "process (pid 7)")
        (proc / "7" / "comm").write_text("web server\n", encoding="ascii")
        self.assertEqual(holder_of(0x1F90, str(proc)), "web server (pid 7)")
