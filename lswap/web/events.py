"""`/api/events`: the server-sent events of the page, from their opening burst on.

Now: the burst, with a true list of the requests under way; the stream then stays open. Source: HTTP reference,
section 12.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from lswap.core.events import State
from lswap.core.model import Config
from lswap.service.exchange import InFlight
from lswap.service.logs import Logs
from lswap.service.router import Router
from lswap.web.live import LiveStreams
from lswap.web.outbox import Outbox
from lswap.web.request import Request

__all__ = ["EventStreams", "frame"]

#: Bytes that may wait for one reader; the burst holds two histories of 100 KiB, escaped twice.
_LIMIT = 1 << 20


def frame(kind: str, data: Any) -> bytes:
    """One event as it stands on the wire: JSON whose `data` is JSON in a string."""
    inner = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    outer = json.dumps({"type": kind, "data": inner}, ensure_ascii=False, separators=(",", ":"))
    return b"event:message\ndata:" + outer.encode("utf-8", "replace") + b"\n\n"


class EventStreams:
    """Serves the readers of events."""

    def __init__(
        self,
        clock: IReactorTime,
        config: Callable[[], Config],
        router: Router,
        inflight: InFlight,
        logs: Logs,
        streams: LiveStreams,
    ) -> None:
        self._clock = clock
        self._config = config
        self._router = router
        self._inflight = inflight
        self._logs = logs
        self._streams = streams

    def serve(self, request: Request) -> Deferred[None]:
        """Answer with the burst and keep the stream open; fires when it is over."""
        for name, value in (
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-cache"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Accel-Buffering", "no"),
        ):
            request.setHeader(name, value)
        outbox = Outbox(request, _LIMIT, lambda dropped: b":%d bytes dropped\n\n" % dropped)
        if outbox.closed:
            return succeed(None)
        request.write(b"")
        if request.method == b"HEAD":
            outbox.finish()
            return succeed(None)
        self._streams.add(outbox)
        for piece in self.burst():
            outbox.send(piece)
        return outbox.when_over()

    def burst(self) -> list[bytes]:
        """What a new reader is told first, in this order."""
        logs = self._logs
        requests = self._inflight.snapshot(self._clock.seconds())
        return [
            frame("logData", {"data": logs.proxy.history().decode("utf-8", "replace"), "source": "proxy"}),
            frame("logData", {"data": logs.upstream.history().decode("utf-8", "replace"), "source": "upstream"}),
            frame("modelStatus", self._status()),
            frame("uiConfig", {"activity": {"session_id": ["X-Session-ID", "X-Litellm-Session-Id"]}}),
            frame("profileChanged", {"active": None}),
            frame("inflight", {"operation": "snapshot", "requests": requests}),
        ]

    def _status(self) -> list[dict[str, Any]]:
        rows = []
        for model_id, child in sorted(self._router.children.items()):
            state = State.STOPPED if child.state is State.SHUTDOWN else child.state
            model = child.model
            row: dict[str, Any] = {
                "id": model_id,
                "name": model.name,
                "description": model.description,
                "state": state.value,
                "unlisted": model.unlisted,
                "peerID": "",
            }
            if model.aliases:
                row["aliases"] = list(model.aliases)
            rows.append(row)
        return rows
