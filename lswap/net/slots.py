"""Control calls to a llama-server about its slots: which there are, save one, restore one; and what the server is.

Touches the network (`lswap.net.errand`); every answer is bounded in size, every question in time. Nothing is decided
here, and no answer is understood: that is `lswap.core.kv_answers`. Source: llama.cpp, `tools/server/README.md`.
"""

from __future__ import annotations

import msgspec
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from lswap.errors import BadAnswer
from lswap.net.errand import errand

__all__ = ["ASK_LIMIT", "Refusal", "Slots"]

#: Seconds that a question may take; a save or restore has its own bound.
ASK_LIMIT = 10.0
#: Bytes of an answer: older builds tell the whole prompt of each slot.
_LARGEST = 16 << 20


class Refusal(BadAnswer):
    """The server answered with another status than 200."""

    def __init__(self, call: str, status: int, body: bytes) -> None:
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        super().__init__(f"{call} answered {status}{': ' if text else ''}{text}")
        self.status = status


class Slots:
    """The slots of one server."""

    def __init__(self, clock: IReactorTime, client: HTTPClient, base: str, api_key: str = "") -> None:
        """@param base: URL of the server, without a slash at its end."""
        self._clock = clock
        self._client = client
        self._base = base
        self._headers = [("Content-Type", "application/json")]
        if api_key:
            self._headers.append(("Authorization", f"Bearer {api_key}"))

    def listed(self) -> Deferred[bytes]:
        """The answer to `GET /slots`. Fails with LswapError, Refusal among them, or TimeoutError."""
        return self._ask("GET", "/slots").addTimeout(ASK_LIMIT, self._clock)

    def props(self) -> Deferred[bytes]:
        """The answer to `GET /props`. Fails like `listed`."""
        return self._ask("GET", "/props").addTimeout(ASK_LIMIT, self._clock)

    def save(self, slot: int, name: str) -> Deferred[bytes]:
        """Have a slot written to this file in the server's folder. Unbounded; to be cancelled. Fails like `listed`."""
        return self._ask("POST", f"/slots/{slot}?action=save", name)

    def restore(self, slot: int, name: str) -> Deferred[bytes]:
        """Have a slot read from this file. Unbounded; to be cancelled. Fails like `listed`."""
        return self._ask("POST", f"/slots/{slot}?action=restore", name)

    def _ask(self, method: str, path: str, filename: str | None = None) -> Deferred[bytes]:
        body = None if filename is None else msgspec.json.encode({"filename": filename})
        call = errand(self._client, method, self._base + path, self._headers, body, _LARGEST)

        def judge(answer: tuple[int, bytes]) -> bytes:
            status, body = answer
            if status != 200:
                raise Refusal(f"{method} {path}", status, body)
            return body

        return call.addCallback(judge)
