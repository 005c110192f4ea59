"""`/api/events`: the server-sent events of the page: a burst that tells a new reader everything, then each event.

Decides the order of the burst, how an event looks on the wire, and what a reader gets that fell behind: the oldest
events go, and in their place it is told how things stand. Read `lswap.service.events` for where events come from,
`lswap.web.outbox` for how much may wait. Source: HTTP reference, section 12.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from lswap.core.model import Config
from lswap.service.events import Bus, InFlightFeed, LogFeed
from lswap.service.exchange import InFlight
from lswap.service.logs import Logs
from lswap.service.profiles import Profiles
from lswap.service.router import Router
from lswap.web.listing import Listing
from lswap.web.live import LiveStreams
from lswap.web.outbox import Outbox
from lswap.web.request import Request

__all__ = ["EventStreams", "frame"]

#: Bytes that may wait for one reader; the burst holds two histories of 100 KiB, escaped twice.
_LIMIT = 1 << 20
#: Seconds between two comments that keep gateways from cutting a quiet stream.
HEARTBEAT = 15.0


def frame(kind: str, data: Any) -> bytes:
    """One event as it stands on the wire: JSON whose `data` is JSON in a string."""
    inner = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    outer = json.dumps({"type": kind, "data": inner}, ensure_ascii=False, separators=(",", ":"))
    return b"event:message\ndata:" + outer.encode("utf-8", "replace") + b"\n\n"


class EventStreams:
    """Serves the readers of events. Reads the bus once for all of them, and only while there are any."""

    def __init__(
        self,
        clock: IReactorTime,
        config: Callable[[], Config],
        router: Router,
        inflight: InFlight,
        logs: Logs,
        streams: LiveStreams,
        listing: Listing,
        profiles: Profiles,
        bus: Bus | None = None,
    ) -> None:
        self._clock = clock
        self._config = config
        self._inflight = inflight
        self._logs = logs
        self._streams = streams
        self._listing = listing
        self._profiles = profiles
        self._bus = bus if bus is not None else Bus()
        LogFeed(self._bus, logs)
        InFlightFeed(clock, self._bus, inflight)
        profiles.watch(self._profile_changed)
        # A dict for its order.
        self._readers: dict[Outbox, None] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._heartbeat: IDelayedCall | None = None

    def serve(self, request: Request) -> Deferred[None]:
        """Answer with the burst and keep the stream open; fires when it is over."""
        for name, value in (
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-cache"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Accel-Buffering", "no"),
        ):
            request.setHeader(name, value)
        request.endless = True
        outbox = Outbox(request, _LIMIT, self._repair)
        if outbox.closed:
            return succeed(None)
        request.write(b"")
        if request.method == b"HEAD":
            outbox.finish()
            return succeed(None)
        burst = self.burst()
        self._add(outbox)
        for piece in burst:
            outbox.send(piece)
        # Last: once lswap ends, it is ended with that.
        self._streams.add(outbox)
        return outbox.when_over()

    def burst(self) -> list[bytes]:
        """What a new reader is told first, in this order."""
        logs = self._logs
        return [
            frame("logData", {"data": logs.proxy.history().decode("utf-8", "replace"), "source": "proxy"}),
            frame("logData", {"data": logs.upstream.history().decode("utf-8", "replace"), "source": "upstream"}),
            self._shown("modelStatus", None),
            self._shown("uiConfig", None),
            frame("profileChanged", {"active": self._profiles.active}),
            self._snapshot(),
        ]

    def _snapshot(self) -> bytes:
        requests = self._inflight.snapshot(self._clock.seconds())
        return frame("inflight", {"operation": "snapshot", "requests": requests})

    def _repair(self, dropped: int) -> bytes:
        """In place of lost events: how things stand. What still waits is newer, and ends the same."""
        return b"".join(
            [
                b":%d bytes dropped\n\n" % dropped,
                self._shown("modelStatus", None),
                frame("profileChanged", {"active": self._profiles.active}),
                self._snapshot(),
            ]
        )

    # -- events ------------------------------------------------------------------

    def _shown(self, kind: str, data: Any) -> bytes:
        if kind == "modelStatus":
            data = self._listing.status()
        elif kind == "uiConfig":
            data = {"activity": {"session_id": list(self._config().session_headers)}}
        return frame(kind, data)

    def _event(self, kind: str, data: Any) -> None:
        piece = self._shown(kind, data)
        for reader in list(self._readers):
            reader.send(piece)

    def _profile_changed(self, active: str | None) -> None:
        self._bus.publish("profileChanged", {"active": active})
        self._bus.publish("modelStatus")

    # -- readers -----------------------------------------------------------------

    def _add(self, outbox: Outbox) -> None:
        self._readers[outbox] = None
        if self._unsubscribe is None:
            self._unsubscribe = self._bus.subscribe(self._event)
            self._heartbeat = self._clock.callLater(HEARTBEAT, self._beat)
        outbox.when_over().addCallback(lambda _: self._remove(outbox))

    def _remove(self, outbox: Outbox) -> None:
        self._readers.pop(outbox, None)
        if self._readers or self._unsubscribe is None:
            return
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        unsubscribe()
        if self._heartbeat is not None and self._heartbeat.active():
            self._heartbeat.cancel()

    def _beat(self) -> None:
        self._heartbeat = self._clock.callLater(HEARTBEAT, self._beat)
        for reader in list(self._readers):
            if not reader.queued:
                reader.send(b":\n\n")
