#!/usr/bin/env python3
"""How much hooks that do nothing add to a start.

    ./hooks.py --server "lswap=twistd -n --pidfile= llamaswap"

The model is `sleep`, without a health check, and its proxy a server that is there already: what is left is the time of lswap and of
the hooks.  Kinds take turns, so that noise hits all of them alike.
"""
import argparse
import contextlib
import http.server
import pathlib
import shlex
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import kit

HOOKS = {"none": "", "empty": "    on_will_start: []\n    on_startup: []\n", "call": "    on_startup: {http: {POST: /nothing}}\n",
         "command": "    on_startup: {cmd: /bin/true}\n"}


class Answers(http.server.BaseHTTPRequestHandler):
    """Says `{}` to everything, on a connection that stays."""
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    do_GET = do_POST = answer

    def handle(self):
        with contextlib.suppress(ConnectionError):  # kept connections end hard when their model does
            super().handle()

    def log_message(self, *_):
        pass


def wait_open(port, server):
    """Wait until somebody listens."""
    while server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((kit.HOST, port), 1):
            return
        time.sleep(0.02)
    raise SystemExit(f"the server ended with {server.returncode}")


def ask(port, path, body=None):
    answer = kit.ask(port, body, path)
    assert answer[0] == 200, (path, answer)


def measure(command, rounds, folder):
    """Seconds of a start, by kind, in the order of the rounds."""
    model = http.server.ThreadingHTTPServer((kit.HOST, 0), Answers)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    config = folder / "config.yaml"
    own = f"    cmd: /bin/sleep 1000\n    checkEndpoint: none\n    proxy: http://{kit.HOST}:{model.server_port}\n"
    config.write_text("logLevel: error\nmodels:\n" + "".join(f"  {name}:\n{own}{hooks}" for name, hooks in HOOKS.items()))
    port = kit.free_port()
    server = subprocess.Popen([*command, "-config", str(config), "-listen", f"{kit.HOST}:{port}"], cwd=folder, stdout=subprocess.DEVNULL)
    times = {name: [] for name in HOOKS}
    try:
        wait_open(port, server)
        for _ in range(rounds):
            for name, found in times.items():
                begun = time.perf_counter()
                ask(port, "/v1/chat/completions", {"model": name, "messages": []})
                found.append(time.perf_counter() - begun)
                ask(port, f"/api/models/unload/{name}")
    finally:
        server.terminate()
        server.wait(30)
        model.shutdown()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=150)
    given = parser.parse_args()
    name, _, command = given.server.partition("=")
    with tempfile.TemporaryDirectory() as folder:
        times = measure(shlex.split(command), given.rounds, pathlib.Path(folder))
    for kind, found in times.items():
        more = statistics.median(a - b for a, b in zip(found, times["none"], strict=True))
        least = min(found) - min(times["none"])
        print(f"{name}: {kind:8} start {statistics.median(found) * 1000:6.2f} ms, more than none {more * 1000:+5.2f} ms, least {least * 1000:+5.2f} ms")


if __name__ == "__main__":
    main()
