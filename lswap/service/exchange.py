"""One client request on its way, as everybody but its road knows it: scheduler, lists, metrics, log.

The road (`lswap.web.road`) fills it in; nothing here is awaited or parsed while bytes flow.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from lswap.core.headers import Headers, redacted

if TYPE_CHECKING:
    from lswap.service.kv_run import KvRun

__all__ = ["Exchange", "InFlight", "Observer"]


class Exchange:
    """What is known of one request. Times in seconds: `began` of the wall clock, `began_at` of the reactor's."""

    __slots__ = (
        "answered",
        "began",
        "began_at",
        "bytes_sent",
        "cancel",
        "headers",
        "id",
        "kv",
        "metadata",
        "method",
        "model",
        "path",
        "remote",
        "requested",
        "status",
    )

    def __init__(self, method: str, path: str, headers: Headers, remote: str, began: float, began_at: float) -> None:
        self.id = 0
        self.method = method
        #: As the client sent it; below `/upstream` what stands after the model.
        self.path = path
        self.headers = headers
        self.remote = remote
        self.began = began
        self.began_at = began_at
        #: The name that the client used, and the ID of the model it means.
        self.requested = ""
        self.model = ""
        self.status = 0
        #: Headers of the answer, once there is one.
        self.answered: Headers = []
        #: What keeps the KV cache of the process that serves it, if anything does.
        self.kv: KvRun | None = None
        self.bytes_sent: Callable[[], int] = int
        self.metadata: dict[str, str] = {}
        #: Ends the request as if its client had left, with an error answer where one can still be given.
        self.cancel: Callable[[], None] | None = None

    def shown(self, now: float) -> dict[str, Any]:
        """The entry of the in-flight list; `now` of the reactor's clock."""
        began = datetime.datetime.fromtimestamp(self.began).astimezone()
        entry: dict[str, Any] = {
            "id": str(self.id),
            "timestamp": began.isoformat(),
            "model": self.model,
            "req_path": self.path,
            "method": self.method,
            "req_headers": redacted(self.headers),
            "remote_ip": self.remote,
            "resp_headers": redacted(self.answered),
            "resp_bytes": self.bytes_sent(),
            "elapsed_ms": self.elapsed_ms(now),
        }
        if self.metadata:
            entry["metadata"] = self.metadata
        return entry

    def elapsed_ms(self, now: float) -> int:
        """Milliseconds since the request came; `now` of the reactor's clock."""
        return max(0, round((now - self.began_at) * 1000))


class Observer(Protocol):
    """Who wants to know of the requests that are shown."""

    def entered(self, exchange: Exchange) -> None:
        """A request is in the list."""

    def answered(self, exchange: Exchange) -> None:
        """The head of its answer is here."""

    def left(self, exchange: Exchange) -> None:
        """It is not in the list any more."""


class InFlight:
    """The requests under way, by their exchanges. Those that are `shown` are in the list that clients see."""

    def __init__(self) -> None:
        self._count = 0
        self._shown: dict[int, Exchange] = {}
        self._all: set[Exchange] = set()
        self.observer: Observer | None = None

    def enter(self, exchange: Exchange, shown: bool) -> None:
        """A request begins."""
        self._all.add(exchange)
        if shown:
            self._count += 1
            exchange.id = self._count
            self._shown[exchange.id] = exchange
            if self.observer is not None:
                self.observer.entered(exchange)

    def leave(self, exchange: Exchange) -> None:
        """A request is over. A second call does nothing."""
        self._all.discard(exchange)
        if self._shown.pop(exchange.id, None) is not None and self.observer is not None:
            self.observer.left(exchange)

    def answered(self, exchange: Exchange) -> None:
        """The head of an answer is here."""
        if self.observer is not None and exchange.id in self._shown:
            self.observer.answered(exchange)

    def listed(self) -> list[Exchange]:
        """All shown requests, oldest first."""
        return list(self._shown.values())

    def snapshot(self, now: float) -> list[dict[str, Any]]:
        """The entries of all shown requests, oldest first."""
        return [exchange.shown(now) for exchange in self._shown.values()]

    def find(self, number: str) -> Exchange | None:
        """The shown request with this ID."""
        return self._shown.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 16 else None

    def __len__(self) -> int:
        return len(self._all)

    def cancel_all(self) -> None:
        """End every request under way as if its client had left."""
        for exchange in list(self._all):
            if exchange.cancel is not None:
                exchange.cancel()
