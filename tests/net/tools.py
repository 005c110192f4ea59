"""Made-up tools of GPUs for tests: programs named `nvidia-smi` that really run, and a LACT daemon on a real socket."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import socket
import threading
from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.net import sensors

__all__ = ["ToolCase"]


class ToolCase(SynchronousTestCase):
    """A machine without any such tool, until a test puts one there."""

    def setUp(self) -> None:
        """An empty folder first on the path, and no daemon."""
        self.folder = pathlib.Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.environment = {**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin"}
        self.environment["LACT_DAEMON_SOCKET_PATH"] = str(self.folder / "nothing")
        self.patch(os, "environ", self.environment)

    def smi(self, script: str) -> None:
        """Have an nvidia-smi that is this shell script."""
        tool = self.folder / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def smi_says(self, *gpus: Mapping[str, str]) -> None:
        """Have one that knows these fields of each GPU, and says `[N/A]` of others, as the real one does."""
        cases = [
            "; ".join(f"{shlex.quote(name)}) printf %s {shlex.quote(value)} ;" for name, value in gpu.items())
            for gpu in gpus
        ]
        rows = "".join(
            f'first=; for field in $fields; do printf "%s" "$first"; first=", "; '
            f"case $field in {case}; *) printf %s '[N/A]' ;; esac; done; echo\n"
            for case in cases
        )
        self.smi(f'fields=$(echo "${{1#--query-gpu=}}" | tr , " ")\n{rows}')

    def lact(self, *answers: Any, raw: bytes | None = None) -> None:
        """Have a LACT daemon that gives these answers to the questions of each client, in order; or these bytes."""
        # Names of sockets are short.
        path = os.path.relpath(self.folder / "lact")
        self.environment["LACT_DAEMON_SOCKET_PATH"] = path
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        self.addCleanup(listener.close)

        def serve() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link, link.makefile("rwb") as lines:
                    for answer in answers:
                        if not lines.readline():
                            break
                        lines.write(raw if raw is not None else json.dumps(answer).encode() + b"\n")
                        lines.flush()

        threading.Thread(target=serve, daemon=True).start()
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        self.patch(sensors, "_LACT_TIMEOUT", 5.0)
