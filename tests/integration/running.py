"""Runs lswap as a process of its own, for the integration tests: its output, its port, and all that descends from it.

Blocking, and only for tests that are about real processes.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["LSWAP", "TWISTD", "Running", "free_port", "until"]

LSWAP = (sys.executable, "-m", "lswap")
#: twistd's script, without relying on PATH.
TWISTD = (sys.executable, "-c", "from twisted.scripts.twistd import run; run()")

#: Multiplies all bounds of waiting, for slow machines; the conformance cases use the same variable.
SLACK = float(os.environ.get("SLACK", "1"))


def until(check: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true value of `check()`, which is asked again and again.

    @raise AssertionError: it did not become true in time.
    """
    end = time.monotonic() + seconds * SLACK
    while not (value := check()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {seconds * SLACK:g} s")
        time.sleep(0.02)
    return value


#: Ports are given out one after the other, below those that the system takes for connections that go out, and from
#: another place in each process: what was free a moment ago stays so.
_FIRST, _LAST = 10_000, 32_000
_ports = itertools.cycle(range(_FIRST, _LAST))
for _ in range(os.getpid() * 137 % (_LAST - _FIRST)):
    next(_ports)


def free_port(together: int = 1) -> int:
    """The first of so many ports in a row that were free a moment ago."""
    while True:
        ports = [next(_ports) for _ in range(together)]
        with contextlib.ExitStack() as stack:
            try:
                for port in ports:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        if ports[-1] - ports[0] == together - 1:
            return ports[0]


class Running:
    """A command that runs, told to listen on `port`, with its output read all the time.

    Everything that it starts inherits a mark in its environment, by which it is found, whatever session it is in.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: pathlib.Path | str | None = None,
        port: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """@param port: the port to listen on; a free one when not given, 0 to leave the address to the command.

        @param pass_fds: descriptors that it inherits.
        """
        self.port = free_port() if port is None else port
        listen = ["-listen", f"127.0.0.1:{self.port}"] if self.port else []
        self.mark = f"LSWAP_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        # Model servers of the examples are found by the name `python`: this one.
        path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.process = subprocess.Popen(
            [*command, *listen],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
            # llama.cpp's threads wait for each other by spinning, which takes forever beside other tests.
            # KV caches that a configuration keeps where it does not say are no business of the machine's user.
            env={
                **os.environ,
                name: value,
                "PATH": path,
                "LLAMA_ARG_THREADS": "1",
                "XDG_STATE_HOME": str(pathlib.Path(cwd or ".").resolve() / "state"),
            },
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self._lines.append(line.decode(errors="replace"))

    @property
    def output(self) -> str:
        """All that was printed until now, errors too."""
        return "".join(self._lines)

    def serving(self, seconds: float = 15) -> Running:
        """Itself, once its port is open."""

        def opened() -> bool:
            # A daemon's first process ends with 0 and leaves the work to another.
            if self.process.poll():
                raise AssertionError(f"ended with {self.process.returncode}: {self.output}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(opened, seconds, "the open port")
        return self

    def wait(self, seconds: float) -> int:
        """The exit code, once it has ended; negative for a signal."""
        until(lambda: self.process.poll() is not None, seconds, "the end of the process")
        self._reader.join(5)
        code = self.process.returncode
        assert code is not None
        return code

    def ask(self, method: str, path: str, body: object = None, seconds: float = 60) -> tuple[int, bytes]:
        """Status and body of one HTTP request; `body` goes as JSON."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds * SLACK)
        try:
            data = None if body is None else json.dumps(body)
            link.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def family(self, word: str = "") -> list[int]:
        """Processes that carry the mark and have this word on their command line, zombies left out; itself too."""
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                marked = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                # A zombie has neither environment nor command line.
                if marked and word.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def wait_alone(self, seconds: float) -> None:
        """Wait until nothing is left of it, of its models and of whatever else it started."""
        until(lambda: not self.family(), seconds, "the end of all that it started")

    def end(self) -> None:
        """End whatever is left, hard; for a test's cleanup."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.family():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
