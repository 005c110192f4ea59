#!/usr/bin/env python3
"""What a KV cache that is kept across a swap saves, with a real llama.cpp server and a real model.

    ./kv.py --server "lswap=twistd -n --pidfile= llamaswap"

Two models on the same weights (`make demo-server` installs them): `kept` keeps its cache, `cold` does not.  Each round swaps away from and
back to both.  The prompt has about 1,000 tokens.  README.md has the rest.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import shlex
import sys
import threading
import time

import kit

PROMPT = "A list of days. " + " ".join(f"On day {day} there came {day * 7 % 31} ships and left {day * 5 % 17}." for day in range(63))
FIGURES = [("cold", "first token after the server is up, cold"), ("kept", "  the same, cache kept (restore included)"), ("ratio", "  cold / kept"),
           ("cold_swap", "request to first token with the swap, cold"), ("kept_swap", "  the same, cache kept"),
           ("save", "save before the stop"), ("restore", "restore before the first request"), ("own", "  of it the server's own"), ("added", "  the rest")]
FLOORS = {"ratio": (">=", 20), "added": ("<", 20)}


def config(folder):
    server = f"{shlex.quote(sys.executable)} -m lswap.demo.llama_server --port ${{PORT}}"
    keep = f"\n    kvCache: {{persist: true, engine: llama-server, dir: {folder / 'kv'}}}"
    path = folder / "config.yaml"
    path.write_text(f"startPort: {kit.free_port(3)}\nhealthCheckTimeout: 120\nmodels:\n"
                    + "".join(f"  {name}:\n    cmd: {server} -c {size}{more}\n" for name, size, more in
                              (("kept", 2048, keep), ("cold", 2048, ""), ("other", 512, ""))))
    return path


class Ready(threading.Thread):
    """Notes when lswap says that a model is ready."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.at = {}
        self.link = http.client.HTTPConnection(kit.HOST, port)
        self.link.request("GET", "/logs/stream/proxy?no-history")
        self.answer = self.link.getresponse()

    def run(self):
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while line := self.answer.readline():
                found = re.search(rb"(\w+): ready after", line)
                if found:
                    self.at[found[1].decode()] = time.monotonic()


def first_token(port, model):
    """When a request was sent, and when the first token of its answer came."""
    link = http.client.HTTPConnection(kit.HOST, port, timeout=300)
    with contextlib.closing(link):
        sent = time.monotonic()
        link.request("POST", "/v1/completions", json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0, "stream": True}),
                     {"Content-Type": "application/json"})
        answer = link.getresponse()
        first = None
        cached = None
        while line := answer.readline():
            if line.startswith(b"data: {"):
                first = first or time.monotonic()
                cached = json.loads(line[6:]).get("timings", {}).get("cache_n", cached)
        if answer.status != 200 or first is None:
            raise RuntimeError(f"{model}: {answer.status}")
        return sent, first, cached


def spent(port, op):
    """Seconds that saves or restores of `kept` have taken, and how many they were."""
    text = kit.ask(port, None, "/metrics", "GET")[1].decode()
    found = {kind: float(value) for kind, value in re.findall(rf'lswap_kv_seconds_(count|sum){{model="kept",op="{op}"}} (\S+)', text)}
    return found.get("sum", 0.0), found.get("count", 0.0)


def own_restore(port):
    """Seconds that the server itself needs for a restore, by its own clock."""
    status, body = kit.ask(port, {"filename": "slot-0.bin"}, "/upstream/kept/slots/0?action=restore")
    if status != 200:
        raise RuntimeError(f"restore by hand: {status} {body[:200]!r}")
    return json.loads(body)["timings"]["restore_ms"] / 1000


def swap_back(port, ready, model):
    """Swap away and back; seconds from ready to the first token, and from the request to it, and the cached tokens."""
    if kit.ask(port, {"model": "other", "prompt": "x", "max_tokens": 1}, "/v1/completions", timeout=300)[0] != 200:
        raise RuntimeError("other: no answer")
    ready.at.pop(model, None)
    sent, first, cached = first_token(port, model)
    end = time.monotonic() + 5
    while model not in ready.at:
        if time.monotonic() > end:
            raise RuntimeError(f"{model} was never said to be ready")
        time.sleep(0.001)
    return first - ready.at[model], first - sent, cached


def measure(port, ready):
    """One round, in milliseconds."""
    found = {}
    found["cold"], found["cold_swap"], cached = swap_back(port, ready, "cold")
    if cached:
        raise RuntimeError(f"cold had {cached} tokens cached")
    before = {op: spent(port, op)[0] for op in ("save", "restore")}
    after_ready, found["kept_swap"], cached = swap_back(port, ready, "kept")
    if not cached:
        raise RuntimeError("kept had nothing cached")
    found["restore"] = spent(port, "restore")[0] - before["restore"]
    found["kept"] = found["restore"] + after_ready
    time.sleep(0.5)  # llama.cpp closes its connection behind a stream, though it says that it keeps it
    found["own"] = kit.median([own_restore(port) for _ in range(5)])
    found["added"] = found["restore"] - found["own"]
    first_token(port, "cold")
    found["save"] = spent(port, "save")[0] - before["save"]
    found = {name: value * 1000 for name, value in found.items()}
    return found | {"ratio": found["cold"] / found["kept"]}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND", help="started as COMMAND --config FILE --listen HOST:PORT")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", default=os.environ.get("LLAMA_ARG_THREADS", "2"), help="of the model server (default 2)")
    options.add_argument("--check", action="store_true", help="exit 1 when cold / kept is below 20, or lswap adds 20 ms or more to a restore")
    options.add_argument("--json", metavar="FILE", help="save all figures of all rounds")
    chosen = options.parse_args()
    os.environ["LLAMA_ARG_THREADS"] = chosen.threads
    failed = False
    saved = {}
    for name, command in kit.named_commands(chosen.server).items():
        rounds = []
        with kit.scratch() as folder:
            port = kit.free_port()
            server = kit.Child([*shlex.split(command), "--config", str(config(folder)), "--listen", f"{kit.HOST}:{port}"], pathlib.Path(folder / "log"), folder)
            try:
                server.wait_port(port)
                ready = Ready(port)
                ready.start()
                first_token(port, "kept")
                for turn in range(chosen.rounds):
                    print(f"round {turn + 1} of {chosen.rounds}: {name}", file=sys.stderr)
                    rounds.append(measure(port, ready))
            except RuntimeError:
                print(server.tail(), file=sys.stderr)
                raise
            finally:
                server.stop(60)
        middle = {figure: kit.median([each[figure] for each in rounds]) for figure, _ in FIGURES}
        middle["ratio"] = middle["cold"] / middle["kept"]
        saved[name] = {"rounds": rounds, "median": middle}
        kit.print_table(["milliseconds", name, "rounds"], [[label, kit.short(middle[figure]), f"{min(r[figure] for r in rounds):.0f}-{max(r[figure] for r in rounds):.0f}"]
                                                          for figure, label in FIGURES])
        for figure, (sign, limit) in FLOORS.items():
            if not (middle[figure] >= limit if sign == ">=" else middle[figure] < limit):
                print(f"floor missed: {figure} is {middle[figure]:.1f}, wanted {sign} {limit}")
                failed = failed or chosen.check
    if chosen.json:
        with open(chosen.json, "w") as out:
            json.dump(saved, out, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
