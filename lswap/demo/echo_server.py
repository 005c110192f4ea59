"""`python -m lswap.demo.echo_server`: a stand-in for a model server that says back what it was told.

Speaks as much of OpenAI's API as a first look needs (`/v1/chat/completions` plain and streamed, `/v1/models`,
`/health`), from the standard library alone, so that `make run` shows something where no real server is to be had.
Uses nothing else of lswap. `lswap.demo.llama_server` is the real one.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["EchoServer", "Handler", "main"]

#: Longest request body that is read, in bytes.
_LARGEST = 16 << 20


def _said(request: Any) -> str:
    """The text of the last message of a chat; empty when the request is not shaped like one."""
    try:
        content = request["messages"][-1]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


class EchoServer(ThreadingHTTPServer):
    """The server with what its handlers must know: its name, when it counts as loaded, the pause between words."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], name: str, load: float = 0.0, gap: float = 0.05) -> None:
        super().__init__(address, Handler)
        self.name, self.gap = name, gap
        self.ready_at = time.monotonic() + load


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: EchoServer

    def do_GET(self) -> None:
        """Health and the list of models."""
        if self.path == "/health":
            loaded = time.monotonic() >= self.server.ready_at
            self._answer(200 if loaded else 503, {"status": "ok" if loaded else "loading"})
        elif self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": self.server.name, "object": "model"}]})
        else:
            self._answer(404, {"error": {"message": f"no such path: {self.path}", "type": "not_found_error"}})

    def do_POST(self) -> None:
        """A chat, streamed when asked for; anything else is a 404."""
        size = self.headers.get("Content-Length", "")
        if not size.isascii() or not size.isdigit() or int(size) > _LARGEST:
            self.close_connection = True
            self._answer(
                400, {"error": {"message": "a body with its length is needed", "type": "invalid_request_error"}}
            )
            return
        body = self.rfile.read(int(size))
        if self.path != "/v1/chat/completions":
            self._answer(404, {"error": {"message": f"no such path: {self.path}", "type": "not_found_error"}})
            return
        try:
            request = json.loads(body)
        except ValueError:
            self._answer(400, {"error": {"message": "the body is no JSON", "type": "invalid_request_error"}})
            return
        text = f"{self.server.name} heard: {_said(request)}"
        if isinstance(request, dict) and request.get("stream"):
            self._stream(text)
            return
        message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._answer(200, {**self._head("chat.completion"), "choices": [message]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "echo", "object": kind, "created": int(time.time()), "model": self.server.name}

    def _events(self, text: str) -> Iterator[str]:
        words = text.split(" ")
        for number, word in enumerate(words):
            delta = {"content": word if number == len(words) - 1 else word + " "}
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            yield json.dumps({**self._head("chat.completion.chunk"), "choices": [choice]})
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        yield json.dumps({**self._head("chat.completion.chunk"), "choices": [end]})
        yield "[DONE]"

    def _stream(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in self._events(text):
                data = f"data: {event}\n\n".encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                time.sleep(self.server.gap)
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True  # the client has left

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """One line a request on standard output."""
        print(format % args, flush=True)


def main(words: Sequence[str] | None = None) -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="echo_server", description="a stand-in that says back what it was told")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--name", default="echo", help="the model's name in answers")
    parser.add_argument("--load", type=float, default=0.0, metavar="SECONDS", help="time until /health says 200")
    parser.add_argument("--gap", type=float, default=0.05, metavar="SECONDS", help="pause between streamed words")
    options = parser.parse_args(words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    EchoServer((options.host, options.port), options.name, options.load, options.gap).serve_forever()


if __name__ == "__main__":
    main()
