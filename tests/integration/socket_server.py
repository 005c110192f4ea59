"""A small server for tests of websockets and peers, on threads: echoes frames, answers everything else with JSON.

As a program (`socket_server.py PORT`) it is a model server; in a test's own process it is a peer, with TLS if told to,
or a proxy that connects to one place whatever it is asked for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import socketserver
import ssl
import struct
import sys
import threading
from typing import Any

__all__ = ["ConnectProxy", "SocketServer", "accept_for", "frame", "read_frame"]


def accept_for(key: str) -> str:
    """What a server answers to a client's key (RFC 6455, section 4.2.2)."""
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    return base64.b64encode(digest).decode()


def frame(kind: int, data: bytes, mask: bytes = b"") -> bytes:
    """One frame; a client's has a mask."""
    size = len(data)
    flag = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, flag | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | kind, flag | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, flag | 127, size)
    if mask:
        data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return head + mask + data


def read_frame(stream: Any) -> tuple[int, bytes] | None:
    """The next frame: kind and data; None at the end."""
    head = stream.read(2)
    if len(head) < 2:
        return None
    size = head[1] & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", stream.read(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", stream.read(8))
    mask = stream.read(4) if head[1] & 0x80 else b""
    data = stream.read(size)
    if mask:
        data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return head[0] & 0x0F, data


def _head(stream: Any) -> tuple[str, dict[str, str]]:
    first = stream.readline().decode("latin-1").strip()
    headers = {}
    while line := stream.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return first, headers


class _Answerer(socketserver.StreamRequestHandler):
    server: SocketServer

    def setup(self) -> None:
        if self.server.context is not None:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        while True:
            first, headers = _head(self.rfile)
            if not first:
                return
            if headers.get("upgrade") == "websocket":
                self._socket(headers)
                return
            body = self.rfile.read(int(headers.get("content-length", "0")))
            text = json.dumps({"first": first, "headers": headers, "body": body.decode()}).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

    def _socket(self, headers: dict[str, str]) -> None:
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Accept: {accept_for(headers['sec-websocket-key'])}",
        ]
        if "sec-websocket-protocol" in headers:
            lines.append("Sec-WebSocket-Protocol: " + headers["sec-websocket-protocol"].partition(",")[0])
        self.wfile.write("\r\n".join(lines).encode() + b"\r\n\r\n" + frame(1, b"welcome"))
        while (found := read_frame(self.rfile)) is not None:
            self.wfile.write(frame(*found))
            if found[0] == 8:
                return


class SocketServer(socketserver.ThreadingTCPServer):
    """The server; `start` it in a thread, `stop` it."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None, handler: Any = _Answerer) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.context = context

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def start(self) -> SocketServer:
        """Itself, serving."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Listen no more."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes, or trusts us not, is nothing to be told."""


class _Connector(socketserver.StreamRequestHandler):
    server: ConnectProxy

    def handle(self) -> None:
        self.server.asked.append(_head(self.rfile))
        self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        with socket.create_connection(("127.0.0.1", self.server.target)) as there:
            back = threading.Thread(target=self._copy, args=(there, self.request), daemon=True)
            back.start()
            self._copy(self.request, there)
            back.join(5)

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class ConnectProxy(SocketServer):
    """A proxy that knows CONNECT, and one place."""

    def __init__(self, target: int) -> None:
        super().__init__(handler=_Connector)
        self.target = target
        #: First lines and headers of what it was asked.
        self.asked: list[tuple[str, dict[str, str]]] = []


if __name__ == "__main__":
    SocketServer(int(sys.argv[1])).serve_forever()
