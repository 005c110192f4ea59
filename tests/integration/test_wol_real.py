"""`lswap-wol` as a process: real datagrams over loopback, a real broadcast between namespaces, real commands."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration.running import SLACK, TWISTD, Running, free_port, until

WOL = (sys.executable, "-m", "lswap.wol")
ADDRESS = "02:1a:2b:3c:4d:5e"
PACKET = b"\xff" * 6 + bytes.fromhex("021a2b3c4d5e") * 16
#: Reads so many datagrams at port 9, and prints them.
EAR = """
import socket, sys
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
ear.bind(("0.0.0.0", 9))
print("listening", flush=True)
for _ in range(int(sys.argv[1])):
    data, address = ear.recvfrom(2000)
    print(address[0], data.hex(), flush=True)
"""
ASK = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
    print(answer.status)
"""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Say the path."""
        body = self.path.encode()
        self.send_response(404 if self.path == "/api/events" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections are cut at the end of a test."""


class LoopbackTests(SynchronousTestCase):
    """Everything on 127.0.0.1."""

    def setUp(self) -> None:
        """A place for packets, and one for a host that is down."""
        self.ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.ear.close)
        self.ear.bind(("127.0.0.1", 0))
        self.ear.settimeout(20 * SLACK)
        self.port = free_port()
        self.folder = pathlib.Path(self.mktemp()).resolve()
        self.folder.mkdir()

    def start(self, *flags: str, command: Sequence[str] = WOL) -> Running:
        """The proxy, serving."""
        upstream = f"http://127.0.0.1:{self.port}"
        running = Running([*command, "-upstream", upstream, *flags], self.folder)
        self.addCleanup(running.end)
        return running.serving()

    def packets(self) -> tuple[str, ...]:
        """The flags that send packets to the ear."""
        return ("-mac", ADDRESS, "-broadcast", f"127.0.0.1:{self.ear.getsockname()[1]}")

    def host(self) -> None:
        """The host is up from now on."""
        server = _Server(("127.0.0.1", self.port), _Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def ask_later(self, running: Running, path: str) -> list[tuple[int, bytes]]:
        """Ask in a thread; the list gets the answer."""
        answers: list[tuple[int, bytes]] = []

        def ask() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answers.append(running.ask("GET", path))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 5)
        return answers

    def test_woken_and_served(self) -> None:
        """A packet, and the answer when the host is up."""
        running = self.start(*self.packets(), "-password", "192.0.2.1")
        answers = self.ask_later(running, "/v1/models")
        self.assertEqual(self.ear.recv(2000), PACKET + bytes([192, 0, 2, 1]))
        self.host()
        until(lambda: answers, 10, "the answer")
        self.assertEqual(answers, [(200, b"/v1/models")])
        running.process.terminate()
        self.assertEqual(running.wait(5), 0)
        self.assertNotIn("Traceback", running.output)

    def test_command(self) -> None:
        """One run for all that wait, without our key; it ends with us."""
        out = self.folder / "out"
        script = self.folder / "wake"
        script.write_text(f'#!/bin/sh\necho "run ${{LSWAP_WOL_API_KEY-none}}" >> {out}\nexec sleep 60\n')
        script.chmod(0o755)
        os.environ["LSWAP_WOL_API_KEY"] = "hush-hush"
        self.addCleanup(os.environ.pop, "LSWAP_WOL_API_KEY", None)
        running = self.start("-wake-command", str(script))
        for number in range(3):
            self.ask_later(running, f"/{number}")
        until(lambda: self.waiting(running) == 3, 10, "all three")
        until(out.exists, 10, "the command")
        self.assertEqual(out.read_text(), "run none\n")
        running.process.terminate()
        self.assertEqual(running.wait(10), 0)
        running.wait_alone(5)
        self.assertNotIn("hush-hush", running.output)

    def waiting(self, running: Running) -> int:
        """How many wait."""
        link = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
        with contextlib.closing(link):
            link.request("GET", "/status", headers={"Accept": "application/json"})
            return int(json.loads(link.getresponse().read())["waiting"])

    def test_twistd(self) -> None:
        """The same under twistd; a hangup is no reason to end, SIGTERM ends with 0 and tells those who wait."""
        running = self.start(*self.packets(), command=(*TWISTD, "-n", "--pidfile=", "lswap-wol"))
        answers = self.ask_later(running, "/x")
        self.assertEqual(self.ear.recv(2000), PACKET)
        running.process.send_signal(signal.SIGHUP)
        self.assertEqual(running.ask("GET", "/status")[0], 200)
        running.process.terminate()
        self.assertEqual(running.wait(10), 0)
        until(lambda: answers, 5, "the answer")
        self.assertEqual(answers[0][0], 503)
        self.assertIn("[INFO] waking the host for GET /x of 127.0.0.1", running.output)


class BroadcastTests(SynchronousTestCase):
    """A machine with two networks and no default route, in a namespace of its own; two others that listen."""

    def setUp(self) -> None:
        """Needs root."""
        self.us = self.namespace()
        for number in (1, 2):
            there = self.namespace()
            near, far = f"near{number}", f"far{number}"
            self.inside(self.us, "ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(there))
            self.inside(self.us, "ip", "address", "add", f"10.99.{number}.1/24", "dev", near)
            self.inside(there, "ip", "address", "add", f"10.99.{number}.2/24", "dev", far)
            self.inside(self.us, "ip", "link", "set", near, "up")
            self.inside(there, "ip", "link", "set", far, "up")
            setattr(self, f"there{number}", there)
        self.inside(self.us, "ip", "link", "set", "lo", "up")

    there1: int
    there2: int

    def namespace(self) -> int:
        """A process that keeps one, for as long as the test lasts."""
        try:
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo here; exec sleep 300"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError:
            raise SkipTest("there is no unshare") from None
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        assert holder.stdout is not None
        if holder.stdout.readline() != "here\n":
            raise SkipTest("a network namespace needs root")
        return holder.pid

    def words(self, pid: int, *words: str) -> list[str]:
        """The words that run a command in the namespace of a process."""
        return ["nsenter", f"--net=/proc/{pid}/ns/net", *words]

    def inside(self, pid: int, *words: str) -> None:
        """Run something there."""
        done = subprocess.run(self.words(pid, *words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SkipTest(f"{' '.join(words)}: {done.stderr.strip()}")

    def start(self, pid: int, *words: str) -> subprocess.Popen[str]:
        """Start something there, and leave it."""
        process = subprocess.Popen(self.words(pid, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_every_network_hears_it(self) -> None:
        """Though neither is the one of a default route."""
        ears = [self.start(there, sys.executable, "-c", EAR, "1") for there in (self.there1, self.there2)]
        for ear in ears:
            assert ear.stdout is not None
            self.assertEqual(ear.stdout.readline(), "listening\n")
        wol = self.start(
            self.us, *WOL, "-mac", ADDRESS, "-upstream", "http://10.99.1.2:8080", "-listen", "127.0.0.1:8080"
        )
        assert wol.stdout is not None
        while "listening on" not in (line := wol.stdout.readline()):
            self.assertTrue(line, "it has ended")
        asked = subprocess.run(
            self.words(self.us, sys.executable, "-c", ASK, "http://127.0.0.1:8080/"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(asked.stdout, "200\n", asked.stderr)
        for number, ear in enumerate(ears, 1):
            self.assertEqual(ear.communicate(timeout=20 * SLACK)[0], f"10.99.{number}.1 {PACKET.hex()}\n")
