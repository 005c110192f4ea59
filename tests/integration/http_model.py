"""A model server in the test's own process, for tests with real clients: it answers as the test says, on a real port.

lswap runs any process as its model, and is pointed here by the key `proxy`. Blocking, one thread a connection.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["HttpModel", "Reply", "Seen", "events"]


class Reply:
    """What is answered: a whole body, or pieces that are sent in chunks. `cut` ends the connection in their midst."""

    def __init__(
        self,
        body: bytes | Iterable[bytes] | dict[str, Any],
        status: int = 200,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
        cut: bool = False,
    ) -> None:
        self.body = json.dumps(body).encode() if isinstance(body, dict) else body
        self.status = status
        self.headers = {"Content-Type": kind, **(headers or {})}
        self.cut = cut


class Seen:
    """A request as it reached the model."""

    def __init__(self, method: str, path: str, headers: Any, body: bytes) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


def events(*data: dict[str, Any], named: bool = False, done: bool = False) -> Reply:
    """Server-sent events; `named` as Anthropic sends them, with their type; `done` ends them as OpenAI does."""
    lines = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in data]
    return Reply(
        [line.encode() for line in [*lines, *(["data: [DONE]\n\n"] if done else [])]], kind="text/event-stream"
    )


class HttpModel:
    """The server. `answers` has what each path gets: a reply, or what makes one of the request."""

    def __init__(self) -> None:
        self.answers: dict[str, Reply | Callable[[Seen], Reply]] = {}
        #: All requests but health checks, in order.
        self.seen: list[Seen] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner._serve(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        seen = Seen(handler.command, handler.path, handler.headers, body)
        if handler.path == "/health":
            reply = Reply({"status": "ok"})
        else:
            self.seen.append(seen)
            answer = self.answers.get(handler.path.partition("?")[0], Reply({"error": "no such path"}, 404))
            reply = answer(seen) if callable(answer) else answer
        try:
            self._send(handler, reply)
        except ConnectionError:
            handler.close_connection = True  # lswap has let go

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        whole = isinstance(reply.body, bytes)
        if isinstance(reply.body, bytes):
            handler.send_header("Content-Length", str(len(reply.body)))
        else:
            handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        if isinstance(reply.body, bytes):
            handler.wfile.write(reply.body)
        else:
            for piece in reply.body:
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                handler.wfile.flush()
        if reply.cut:
            handler.close_connection = True
        elif not whole:
            handler.wfile.write(b"0\r\n\r\n")
