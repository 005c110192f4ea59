"""The reverse proxies of `docs/proxies.md`, with the page's own words as their configuration: tokens are not held back.

nginx and Caddy are started where the machine has them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from twisted.trial.unittest import TestCase

from tests.integration.http_model import HttpModel, Reply, Seen
from tests.integration.running import LSWAP, SLACK, Running, free_port, until
from tests.integration.test_sockets_real import SERVER, Websocket

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/proxies.md"
CHAT = "/v1/chat/completions"
PIECES = (b"data: one\n\n", b"data: two\n\n")
NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path client;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
"""


def block(title: str) -> str:
    """The first fenced block below a title of the page."""
    section = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    return section.split("```")[1].partition("\n")[2]


class ProxyCase(TestCase):
    """A model in this process, lswap before it, and a proxy before that."""

    def proxy(self, folder: pathlib.Path, port: int, behind: int) -> list[str]:
        """The command of a proxy that listens on `port` for the lswap at `behind`; its files go into the folder."""
        raise NotImplementedError

    def setUp(self) -> None:
        """Start all three."""
        folder = pathlib.Path(self.mktemp()).absolute()
        folder.mkdir()
        self.model = HttpModel()
        self.addCleanup(self.model.close)
        command = f"{sys.executable} -c 'import signal; signal.pause()'"
        model = {"cmd": command, "proxy": f"http://127.0.0.1:{self.model.port}"}
        socket_model = {"cmd": f"{sys.executable} {SERVER} ${{PORT}}"}
        config = {"startPort": free_port(), "models": {"m": model, "sockets": socket_model}}
        (folder / "config.yaml").write_text(json.dumps(config))
        self.lswap = Running([*LSWAP, "-c", "config.yaml"], folder)
        self.addCleanup(self.lswap.end)
        self.lswap.serving()
        self.port = free_port()
        log = (folder / "proxy.log").open("wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            self.proxy(folder, self.port, self.lswap.port),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def opened() -> bool:
            self.assertIsNone(process.poll(), (folder / "proxy.log").read_text())
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(opened, 20, "the port of the proxy")

    @contextlib.contextmanager
    def asked(self, more: str = "", seconds: float = 20) -> Iterator[http.client.HTTPResponse]:
        """The answer to a chat through the proxy, as soon as its head is there."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds * SLACK)
        try:
            headers = {"Content-Type": "application/json", "X-Forwarded-For": "192.0.2.9"}
            link.request("POST", CHAT, json.dumps({"model": "m", "more": more}), headers)
            yield link.getresponse()
        finally:
            link.close()


class Contract(ProxyCase):
    """What holds for each proxy."""

    def test_pieces_come_one_by_one(self) -> None:
        """The second piece is made only after the first one was read, of event streams and of others."""
        for kind in ("text/event-stream", "application/x-ndjson"):
            read = threading.Event()

            def pieces(read: threading.Event = read) -> Iterator[bytes]:
                yield PIECES[0]
                read.wait(60)
                yield PIECES[1]

            def reply(seen: Seen, kind: str = kind, pieces: Callable[[], Iterator[bytes]] = pieces) -> Reply:
                return Reply(pieces(), kind=kind)

            self.model.answers[CHAT] = reply
            self.addCleanup(read.set)
            with self.asked() as answer:
                self.assertEqual(answer.read1(), PIECES[0], kind)
                read.set()
                self.assertEqual(answer.read(), PIECES[1], kind)

    def test_a_client_that_leaves_is_noticed(self) -> None:
        """The model's answer is given up."""
        gone = threading.Event()

        def pieces() -> Iterator[bytes]:
            try:
                while not gone.wait(0.02):
                    yield PIECES[0]
            finally:
                gone.set()

        self.model.answers[CHAT] = lambda seen: Reply(pieces(), kind="text/event-stream")
        self.addCleanup(gone.set)
        with self.asked() as answer:
            answer.read1()
            self.assertFalse(gone.is_set())
        self.assertTrue(gone.wait(20 * SLACK))

    def test_large_body(self) -> None:
        """A prompt with pictures in it, above nginx's usual limit; and lswap is told who really asks."""
        self.model.answers[CHAT] = lambda seen: Reply({"length": len(seen.body)})
        with self.asked("x" * 3_000_000) as answer:
            self.assertEqual(answer.status, 200)
            self.assertGreater(json.loads(answer.read())["length"], 3_000_000)
        self.assertEqual(self.model.seen[-1].headers["X-Forwarded-For"], "127.0.0.1, 127.0.0.1")

    def test_websocket(self) -> None:
        """Frames pass both ways."""
        link = Websocket(self.port, "/upstream/sockets/ws")
        self.addCleanup(link.close)
        self.assertEqual(link.status, 101)
        self.assertEqual(link.receive(), (1, b"welcome"))
        link.send(1, b"hello")
        self.assertEqual(link.receive(), (1, b"hello"))


class NginxTests(Contract):
    """nginx."""

    if not shutil.which("nginx", path="/usr/sbin:/usr/bin"):
        skip = "there is no nginx"

    def proxy(self, folder: pathlib.Path, port: int, behind: int) -> list[str]:
        """The page's block, without TLS."""
        text, changed = re.subn(r"listen 443 ssl;", f"listen 127.0.0.1:{port};", block("nginx"))
        text, more = re.subn(r"^ *ssl_certificate.*\n", "", text, flags=re.MULTILINE)
        self.assertEqual((changed, more), (1, 2))
        (folder / "site.conf").write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{behind}"))
        (folder / "nginx.conf").write_text(NGINX)
        return ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]


class CaddyTests(Contract):
    """Caddy."""

    if not shutil.which("caddy"):
        skip = "there is no Caddy"

    def proxy(self, folder: pathlib.Path, port: int, behind: int) -> list[str]:
        """The page's block, without TLS and without the port for administration."""
        text = block("Caddy").replace("models.example", f"http://:{port}", 1)
        ours = "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n"
        (folder / "Caddyfile").write_text(ours + text.replace("127.0.0.1:8080", f"127.0.0.1:{behind}"))
        return ["caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"]


del Contract  # it is no test by itself
