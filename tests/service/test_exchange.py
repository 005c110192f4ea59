"""What is known of one request, and of all under way (`lswap.service.exchange`)."""

from __future__ import annotations

import datetime
import json

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.headers import Headers
from lswap.service.exchange import Exchange, InFlight


def exchange(path: str = "/v1/x", headers: Headers | None = None) -> Exchange:
    """One that began at second 100 of the reactor's clock."""
    return Exchange("POST", path, headers or [], "192.0.2.7", 1_700_000_000.25, 100.0)


class ExchangeTests(SynchronousTestCase):
    """One request."""

    def test_entry(self) -> None:
        """Its entry in the list has all the fields, and is fit for JSON."""
        subject = exchange(
            headers=[(b"x-SOME-name", b"v\xff"), (b"X-Some-Name", b"second"), (b"Authorization", b"key")]
        )
        subject.id = 7
        subject.requested, subject.model = "alias", "a"
        entry = subject.shown(100.0)
        self.assertEqual(json.loads(json.dumps(entry)), entry)
        began = datetime.datetime.fromisoformat(entry.pop("timestamp"))
        self.assertEqual(began.timestamp(), 1_700_000_000.25)
        self.assertIsNotNone(began.tzinfo)
        self.assertEqual(
            entry,
            {
                "id": "7",
                "model": "a",
                "req_path": "/v1/x",
                "method": "POST",
                "req_headers": {"X-Some-Name": "v\ufffd", "Authorization": "[REDACTED]"},
                "remote_ip": "192.0.2.7",
                "resp_headers": {},
                "resp_bytes": 0,
                "elapsed_ms": 0,
            },
        )

    def test_entry_of_an_answer_under_way(self) -> None:
        """Headers, bytes and time of the answer are those of now; secrets in it are hidden."""
        subject = exchange()
        subject.answered = [(b"Set-Cookie", b"sid=1"), (b"content-type", b"text/plain")]
        subject.bytes_sent = lambda: 5
        subject.metadata["selector"] = "any"
        entry = subject.shown(101.5)
        self.assertEqual(entry["resp_headers"], {"Set-Cookie": "[REDACTED]", "Content-Type": "text/plain"})
        self.assertEqual((entry["resp_bytes"], entry["elapsed_ms"]), (5, 1500))
        self.assertEqual(entry["metadata"], {"selector": "any"})

    def test_clock_that_stands(self) -> None:
        """The time is never negative."""
        self.assertEqual(exchange().shown(99.0)["elapsed_ms"], 0)


class InFlightTests(SynchronousTestCase):
    """All requests under way."""

    def setUp(self) -> None:
        """None."""
        self.inflight = InFlight()

    def test_shown(self) -> None:
        """They are listed from their beginning to their end, oldest first, with numbers from 1."""
        one, two, three = exchange("/1"), exchange("/2"), exchange("/3")
        for entered in (one, two, three):
            self.inflight.enter(entered, shown=True)
        self.assertEqual([row["id"] for row in self.inflight.snapshot(100)], ["1", "2", "3"])
        self.inflight.leave(two)
        self.assertEqual([row["req_path"] for row in self.inflight.snapshot(100)], ["/1", "/3"])
        self.inflight.enter(exchange(), shown=True)
        self.assertEqual(self.inflight.snapshot(100)[-1]["id"], "4")

    def test_not_shown(self) -> None:
        """They are counted, but in no list, and cannot be found."""
        hidden = exchange()
        self.inflight.enter(hidden, shown=False)
        self.assertEqual((len(self.inflight), self.inflight.snapshot(100)), (1, []))
        self.assertIsNone(self.inflight.find("0"))
        self.inflight.leave(hidden)
        self.assertEqual(len(self.inflight), 0)

    def test_leaves_once(self) -> None:
        """A second time does nothing, and takes nobody else out."""
        one, two, hidden = exchange(), exchange(), exchange()
        self.inflight.enter(one, shown=True)
        self.inflight.leave(one)
        self.inflight.enter(two, shown=True)
        self.inflight.enter(hidden, shown=False)
        self.inflight.leave(one)
        self.inflight.leave(hidden)
        self.inflight.leave(hidden)
        self.assertEqual([row["id"] for row in self.inflight.snapshot(100)], ["2"])

    def test_find(self) -> None:
        """By its number as text; what is no such text finds nothing."""
        one = exchange()
        self.inflight.enter(one, shown=True)
        self.assertIs(self.inflight.find("1"), one)
        for text in ("2", "0", "-1", "", "x", "1.0", " 1", "\u0661", "1" * 5000):
            self.assertIsNone(self.inflight.find(text), text)

    def test_cancel_all(self) -> None:
        """All are ended, also those that end others, or cannot be ended."""
        ended: list[str] = []
        one, two, three = exchange("/1"), exchange("/2"), exchange("/3")
        for entered in (one, two, three):
            self.inflight.enter(entered, shown=True)

        def end(which: Exchange) -> None:
            ended.append(which.path)
            self.inflight.leave(which)

        one.cancel = lambda: end(one)
        two.cancel = lambda: end(two)
        self.inflight.cancel_all()
        self.assertEqual(sorted(ended), ["/1", "/2"])
        self.assertEqual(len(self.inflight), 1)
