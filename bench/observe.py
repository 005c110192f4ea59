#!/usr/bin/env python3
"""What it costs the relay to be watched: CPU per chunk with activity, captures and logs on, against all of them off.

    ./observe.py                    5 rounds of 50 streams, each both ways; exit 1 above 1.15
    ./observe.py --rounds 9

Only for lswap, with the Python that runs this. "Off" is more than a configuration can say: no requests are metered.
The two take turns, on one CPU, under the same load: less of it than `streams` in bench.py, since a server that falls
behind merges chunks, and then each is cheaper.
"""
import argparse
import shutil
import subprocess
import sys

import bench
import kit

#: The share above all off that is too much.
LIMIT = 1.15
#: Delay of a chunk, in us, above which a server has fallen behind.
LATE = 1000
ON = """
logToStdout: both
captureBuffer: 5
store: {path: activity.db}
"""
OFF = """
logToStdout: none
logLevel: error
captureBuffer: 0
"""
FIGURES = [("chunk_cpu_us", "CPU per chunk, us"), ("chunk_p50_us", "chunk delay p50, us"), ("ttfb_p50_us", "first event p50, us")]


class Watched(bench.Server):
    """lswap, with all observation or with none."""

    def start(self):
        self.up_port = kit.free_port()
        config = self.folder / "config.yaml"
        config.write_text(bench.lswap_config(self.bench, self.up_port) + (ON if self.name == "on" else OFF))
        command = [sys.executable, __file__, "--serve", self.name, "--config", str(config), "--listen", f"{kit.HOST}:{self.port}"]
        child, ms = self.launch(command, self.port, self.bench.server_cpus)
        self.pids = [child.pid]
        return ms

    def rows(self):
        """How many requests activity tells of."""
        status, body = kit.ask(self.port, None, "/api/metrics/activity?limit=1", "GET")
        return kit.json.loads(body)["total"] if status == 200 else 0


def serve(name, words):
    """Be the server."""
    from twisted.scripts.twistd import run
    if name == "off":
        from lswap.web.forward import Forwarder
        Forwarder.meter = lambda *_: None
    sys.argv = ["twistd", "-n", "--pidfile=", "llamaswap", *words]
    run()


def measured(rig, name):
    """The figures of one round."""
    server = Watched(rig, name)
    try:
        server.start()
        server.warm()
        # The ramp spreads the streams over the gap; in step they would come in batches, which are cheaper.
        r = server.load("stream", "-c", 50, "-chunks", 100, "-gap", 20, "-ramp", 0.97, "-warm", 0.5, "-d", 4)
        found = {"chunk_cpu_us": server.cpu_us(r, r["chunks"]), "chunk_p50_us": r["delay_p50_us"], "ttfb_p50_us": r["ttfb_p50_us"]}
        if (server.rows() > 1) != (name == "on"):
            raise SystemExit(f"{name}: activity has {server.rows()} rows; this compares nothing")
        return found
    finally:
        server.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--cpus", default="0:1:1", metavar="SERVER:UPSTREAM:LOAD", help="CPUs to pin to, as taskset has them; '::' pins nothing")
    chosen = options.parse_args()
    values = {figure: {"on": [], "off": []} for figure, _ in FIGURES}
    with kit.scratch() as folder:
        rig = bench.Bench(argparse.Namespace(server=[], cpus=chosen.cpus, quick=False, rounds=chosen.rounds, only="streams", without="",
                                             carry=False, syscalls=False), folder)
        if rig.load_cpus and shutil.which("taskset"):
            subprocess.run(["taskset", "-cp", rig.load_cpus, str(bench.os.getpid())], check=True, stdout=subprocess.DEVNULL)
        for turn in range(chosen.rounds):
            for name in ("on", "off") if turn % 2 else ("off", "on"):
                print(f"round {turn + 1} of {chosen.rounds}: {name}", file=sys.stderr)
                found = measured(rig, name)
                for figure in values:
                    values[figure][name].append(found[figure])
        errors = sum(rig.errors.values())
    rows = []
    for figure, label in FIGURES:
        on, off = values[figure]["on"], values[figure]["off"]
        each = [a / b for a, b in zip(on, off)]
        rows.append([label, kit.short(kit.median(off)), kit.short(kit.median(on)), f"{kit.ratio(on, off):.2f}", f"{min(each):.2f}-{max(each):.2f}"])
    kit.print_table(["", "off", "on", "ratio", "by round"], rows)
    ratio = kit.ratio(values["chunk_cpu_us"]["on"], values["chunk_cpu_us"]["off"])
    if max(map(max, values["chunk_p50_us"].values())) > LATE:
        print(f"note: chunks came late (p50 above {LATE / 1000:g} ms): other programs use these CPUs, and the ratio says little")
    print(f"CPU per chunk: {ratio:.2f} of that without, at most {LIMIT} is wanted; wrong answers: {errors}")
    return 1 if ratio > LIMIT or errors else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
