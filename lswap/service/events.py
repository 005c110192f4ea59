"""The bus: what happens in lswap, told to whoever watches; and the feeds that put logs and requests on it.

Publishing never blocks, costs nothing while nobody watches, and no reader can harm a publisher. Read
`lswap.web.events` next: it serves clients, and bounds the slow ones. Source: HTTP reference, section 12.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from lswap.service.exchange import Exchange, InFlight
from lswap.service.logs import Log, Logs

__all__ = ["Bus", "Event", "InFlightFeed", "Kind", "LogFeed", "Reader"]

Kind = Literal["logData", "modelStatus", "uiConfig", "profileChanged", "inflight", "activity", "hook"]
#: A kind, and its data as JSON knows it. That of `modelStatus` and `uiConfig` is None: whoever shows them knows it.
Event = tuple[Kind, Any]
Reader = Callable[[Kind, Any], None]

#: Seconds between two reports of the bytes of one request.
PROGRESS = 0.25
#: Requests reported in one turn of the reactor, and seconds until the next ones of the same round.
_AT_ONCE = 64
_BREATH = 0.01
#: Events that readers may cause while they are told of one, before they go without the rest.
_ECHOES = 100


class Bus:
    """Hands each event to all readers, in the order of their publishing."""

    _log = Logger()

    def __init__(self) -> None:
        self._readers: dict[object, Reader] = {}
        self._events: deque[Event] = deque()
        self._serving = False
        self._told: list[Callable[[bool], None]] = []

    @property
    def watched(self) -> bool:
        """Whether anybody reads; a publisher whose event is costly to make asks first."""
        return bool(self._readers)

    def when_watched(self, told: Callable[[bool], None]) -> None:
        """Call `told` with True when the first reader comes, with False when the last one has gone."""
        self._told.append(told)

    def publish(self, kind: Kind, data: Any = None) -> None:
        """Tell all readers, in this turn."""
        if not self._readers:
            return
        self._events.append((kind, data))
        if self._serving:
            return
        self._serving = True
        try:
            for _ in range(_ECHOES):
                if not self._events:
                    break
                self._serve(*self._events.popleft())
        finally:
            self._events.clear()
            self._serving = False

    def _serve(self, kind: Kind, data: Any) -> None:
        for key, reader in list(self._readers.items()):
            if key not in self._readers:  # an earlier one sent it away
                continue
            try:
                reader(kind, data)
            except Exception:
                self._drop(key)
                self._log.failure("a reader of events failed and gets no more of them")

    def subscribe(self, reader: Reader) -> Callable[[], None]:
        """Tell `reader` of every later event. Returns what ends that; it may be called twice."""
        key = object()
        self._readers[key] = reader
        if len(self._readers) == 1:
            self._tell(True)
        return lambda: self._drop(key)

    def _drop(self, key: object) -> None:
        if self._readers.pop(key, None) is not None and not self._readers:
            self._tell(False)

    def _tell(self, watched: bool) -> None:
        for told in self._told:
            told(watched)


class LogFeed:
    """Puts both logs on the bus while somebody watches."""

    def __init__(self, bus: Bus, logs: Logs) -> None:
        self._bus = bus
        self._sources = (("proxy", logs.proxy), ("upstream", logs.upstream))
        self._ends: list[Callable[[], None]] = []
        bus.when_watched(self._watched)

    def _watched(self, watched: bool) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        if watched:
            self._ends = [self._follow(name, log) for name, log in self._sources]

    def _follow(self, name: str, log: Log) -> Callable[[], None]:
        # A piece may end in the middle of a character.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def read(data: bytes) -> None:
            text = decoder.decode(data)
            if text:
                self._bus.publish("logData", {"data": text, "source": name})

        return log.subscribe(read)


class InFlightFeed:
    """Tells of the requests in the list: that they came, their headers, their bytes now and then, that they went.

    Bytes are looked at four times a second while somebody watches; nothing is done as they pass.
    """

    def __init__(self, clock: IReactorTime, bus: Bus, inflight: InFlight) -> None:
        self._clock = clock
        self._bus = bus
        self._inflight = inflight
        #: Bytes told of, by the ID of the request.
        self._told: dict[int, int] = {}
        self._round: deque[Exchange] = deque()
        self._timer: IDelayedCall | None = None
        self._next_round = 0.0
        inflight.observer = self
        bus.when_watched(self._watched)

    def entered(self, exchange: Exchange) -> None:
        """A request came into the list."""
        if self._bus.watched:
            self._upsert(exchange)
            self._schedule()

    def answered(self, exchange: Exchange) -> None:
        """Its answer has begun."""
        if self._bus.watched:
            self._upsert(exchange)

    def left(self, exchange: Exchange) -> None:
        """It is over; what it came to is told once more, if that is new."""
        if self._bus.watched:
            if self._told.get(exchange.id) != exchange.bytes_sent():
                self._upsert(exchange)
            self._bus.publish("inflight", {"operation": "remove", "id": str(exchange.id)})
        self._told.pop(exchange.id, None)

    def _upsert(self, exchange: Exchange) -> None:
        entry = exchange.shown(self._clock.seconds())
        self._told[exchange.id] = entry["resp_bytes"]
        self._bus.publish("inflight", {"operation": "upsert", "request": entry})

    def _watched(self, watched: bool) -> None:
        self._told.clear()
        self._round.clear()
        if watched:
            # The list that a new reader is shown has the bytes of this moment.
            self._told = {exchange.id: exchange.bytes_sent() for exchange in self._inflight.listed()}
            self._schedule()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._timer is None and self._inflight.listed():
            self._next_round = self._clock.seconds() + PROGRESS
            self._timer = self._clock.callLater(PROGRESS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        if not self._round:
            self._round.extend(self._inflight.listed())
            self._next_round = now + PROGRESS
        left = _AT_ONCE
        while self._round and left:
            exchange = self._round.popleft()
            if exchange.id in self._told and self._told[exchange.id] != exchange.bytes_sent():
                self._upsert(exchange)
                left -= 1
        pause = _BREATH if self._round else max(_BREATH, self._next_round - now)
        if self._inflight.listed() and self._bus.watched:
            self._timer = self._clock.callLater(pause, self._look)
