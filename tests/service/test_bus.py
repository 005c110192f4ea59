"""The bus of events and its feeds (`lswap.service.events`)."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lswap.service.events import Bus, InFlightFeed, LogFeed
from lswap.service.exchange import Exchange, InFlight
from lswap.service.logs import Logs


class BusTests(SynchronousTestCase):
    """Publishers and readers."""

    def setUp(self) -> None:
        """Nobody reads."""
        self.bus = Bus()
        self.seen: list[Any] = []

    def test_order(self) -> None:
        """Events that a reader causes come after the one it was told of, for all readers."""
        self.bus.subscribe(lambda kind, data: self.bus.publish("activity", 2) if data == 1 else None)
        self.bus.subscribe(lambda kind, data: self.seen.append(data))
        self.bus.publish("activity", 1)
        self.assertEqual(self.seen, [1, 2])

    def test_reader_that_fails(self) -> None:
        """It gets no more; neither publisher nor others notice."""

        def bad(kind: str, data: object) -> None:
            raise ValueError("bad")

        self.bus.subscribe(bad)
        self.bus.subscribe(lambda kind, data: self.seen.append(data))
        self.bus.publish("activity", 1)
        self.bus.publish("activity", 2)
        self.assertEqual(self.seen, [1, 2])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_endless_echo(self) -> None:
        """A reader that answers every event with another one does not hold lswap up."""
        self.bus.subscribe(lambda kind, data: self.bus.publish("activity", data + 1))
        self.bus.subscribe(lambda kind, data: self.seen.append(data))
        self.bus.publish("activity", 1)
        self.assertLess(len(self.seen), 1000)

    def test_watched(self) -> None:
        """Who asks is told when the first reader comes and the last one goes."""
        self.bus.when_watched(self.seen.append)
        ends = [self.bus.subscribe(lambda kind, data: None) for _ in range(2)]
        for end in (*ends, ends[0]):
            end()
        self.assertEqual(self.seen, [True, False])
        self.assertFalse(self.bus.watched)


class LogFeedTests(SynchronousTestCase):
    """Logs on the bus."""

    def test_pieces(self) -> None:
        """Each piece with its source, characters whole, and only while somebody watches."""
        bus, logs = Bus(), Logs(lambda data: None)
        LogFeed(bus, logs)
        seen: list[Any] = []
        end = bus.subscribe(lambda kind, data: seen.append(data))
        logs.proxy.write(b"one")
        logs.upstream.write(b"\xe2\x82")
        logs.upstream.write(b"\xac\xff")
        self.assertEqual(seen, [{"data": "one", "source": "proxy"}, {"data": "\u20ac\ufffd", "source": "upstream"}])
        end()
        self.assertFalse(logs.proxy.watched or logs.upstream.watched)


class InFlightTests(SynchronousTestCase):
    """Requests on the bus."""

    def setUp(self) -> None:
        """A list that is watched."""
        self.clock = Clock()
        self.bus = Bus()
        self.inflight = InFlight()
        InFlightFeed(self.clock, self.bus, self.inflight)
        self.seen: list[Any] = []
        self.end = self.bus.subscribe(lambda kind, data: self.seen.append(data))
        self.sent = 0

    def enter(self, shown: bool = True) -> Exchange:
        """A request."""
        exchange = Exchange("POST", "/x", [], "192.0.2.7", 0.0, self.clock.seconds())
        exchange.bytes_sent = lambda: self.sent
        self.inflight.enter(exchange, shown)
        return exchange

    def told(self) -> list[Any]:
        """Operation, ID and bytes since the last look."""
        seen, self.seen[:] = list(self.seen), []
        return [
            (event["operation"], event["request"]["id"], event["request"]["resp_bytes"])
            if "request" in event
            else (event["operation"], event["id"])
            for event in seen
        ]

    def test_life(self) -> None:
        """It comes, is answered, grows at most every 250 ms, and goes with its last figure."""
        exchange = self.enter()
        self.inflight.answered(exchange)
        self.assertEqual(self.told(), [("upsert", "1", 0)] * 2)
        for _ in range(8):
            self.sent += 1
            self.clock.advance(0.0625)
        self.assertEqual([size for _, _, size in self.told()], [4, 8])
        self.clock.advance(1)
        self.assertEqual(self.told(), [])
        self.sent = 12
        self.inflight.leave(exchange)
        self.assertEqual(self.told(), [("upsert", "1", 12), ("remove", "1")])
        self.clock.advance(1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hidden(self) -> None:
        """A request that is not shown is told of by nobody."""
        exchange = self.enter(shown=False)
        self.inflight.answered(exchange)
        self.inflight.leave(exchange)
        self.assertEqual(self.told(), [])

    def test_nobody_watches(self) -> None:
        """No timer runs; the first who watches again is told of what goes on."""
        self.enter()
        self.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.told()
        self.bus.subscribe(lambda kind, data: self.seen.append(data))
        self.sent = 3
        self.clock.advance(0.3)
        self.assertEqual(self.told(), [("upsert", "1", 3)])

    def test_many(self) -> None:
        """A thousand requests are told of in slices, all of them."""
        for _ in range(1000):
            self.enter()
        self.told()
        self.sent = 1
        self.clock.advance(0.25)
        self.assertLess(len(self.seen), 100)
        self.clock.pump([0.01] * 30)
        self.assertEqual(len(self.told()), 1000)
