"""The slots of a llama-server in memory: answers the calls that reach a stand-in, and writes real files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from tests.stand_in import Served, StandIn

__all__ = ["TOKEN", "SlotServer"]

#: Bytes that a token takes in a file.
TOKEN = 10


class SlotServer:
    """Answers what its stand-in was asked, each time it is told to `work`."""

    def __init__(self, server: StandIn) -> None:
        self.server = server
        #: Tokens in each slot.
        self.slots: dict[int, int] = {0: 0}
        #: Where the process was told to save.
        self.folder = ""
        self.build = "b1"
        self.model_path = ""
        #: What the list of slots tells of prompts.
        self.prompt = ""
        #: By call (`list`, `props`, `save`, `restore`): a status, `hang`, `zero`, `short`, `missing`, `cut` or `grow`.
        self.how: dict[str, int | str] = {}
        #: The same for saves and restores of one slot.
        self.how_of: dict[int, int | str] = {}
        #: The calls that came, in order.
        self.calls: list[str] = []
        #: Headers of the last one.
        self.headers: Mapping[str, str] = {}
        #: Answers all other requests.
        self.others: Callable[[Served], object] = lambda request: request.answer(404)
        self._done = 0

    def work(self) -> bool:
        """Answer what came since the last time; whether anything has."""
        fresh = self.server.requests[self._done :]
        self._done += len(fresh)
        for request in fresh:
            self._answer(request)
        return bool(fresh)

    def _answer(self, request: Served) -> None:
        path, _, query = request.target.partition("?")
        if not path.startswith(("/slots", "/props")):
            self.others(request)
            return
        self.headers = dict(request.headers)
        call = {"/slots": "list", "/props": "props"}.get(path) or query.removeprefix("action=")
        number = int(path.rpartition("/")[2]) if path.startswith("/slots/") else 0
        self.calls.append(f"{call} {number}" if query else call)
        how = self.how_of.get(number) if query and number in self.how_of else self.how.get(call)
        if how == "hang":
            return
        if how == "cut":
            request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
            request.close()
        elif isinstance(how, int):
            request.answer(how, b'{"error": {"message": "refused"}}')
        elif call == "list":
            rows = [{"id": slot, "n_past": tokens, "prompt": self.prompt} for slot, tokens in self.slots.items()]
            self._say(request, rows)
        elif call == "props":
            self._say(request, {"build_info": self.build, "model_path": self.model_path})
        else:
            name = json.loads(request.body)["filename"]
            assert os.path.basename(name) == name
            self._use(request, call, number, os.path.join(self.folder, name), how)

    def _use(self, request: Served, call: str, slot: int, path: str, how: object) -> None:
        if call == "save":
            tokens = self.slots[slot]
            size = tokens * TOKEN
            if how == "missing":
                os.unlink(path)
            else:
                with open(path, "wb") as file:
                    file.write(b"x" * (size - (how == "short")))
            if how != "grow":
                self._say(request, {"n_saved": 0 if how == "zero" else tokens, "n_written": size})
            return
        size = os.stat(path).st_size if os.path.exists(path) else 0
        if not size:
            request.answer(400, b"{}")
            return
        self.slots[slot] = size // TOKEN
        self._say(request, {"n_restored": size // TOKEN, "n_read": size})

    def _say(self, request: Served, value: Any) -> None:
        request.answer(200, json.dumps(value).encode())
