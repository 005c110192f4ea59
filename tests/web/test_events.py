"""`/api/events` (`lswap.web.events`): the opening burst of the event stream, and its end."""

from __future__ import annotations

import json
import re
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.web.events import EventStreams, frame
from tests.memory import MemoryLswap

CONFIG = """
models:
  b: {cmd: "server --port ${PORT}", name: Bee, unlisted: true}
  a: {cmd: "server --port ${PORT}", aliases: [also-a], description: "<é>"}
"""


class EventsCase(SynchronousTestCase):
    """Two models and a reader of events."""

    def setUp(self) -> None:
        """Nobody reads yet."""
        self.lswap = MemoryLswap(CONFIG)
        self.client = self.lswap.client()

    def burst(self) -> list[tuple[str, Any]]:
        """What a new reader is told: kind and data, in order."""
        self.client = self.lswap.client()
        self.client.send("GET", "/api/events")
        answer = self.client.read()
        self.assertFalse(answer.complete)
        frames = answer.body.split(b"\n\n")
        self.assertEqual(frames.pop(), b"")
        events = []
        for text in frames:
            found = re.fullmatch(rb"event:message\ndata:(\{.*\})", text)
            assert found is not None, text
            outer = json.loads(found[1])
            self.assertEqual(set(outer), {"type", "data"})
            events.append((outer["type"], json.loads(outer["data"])))
        return events

    def test_head(self) -> None:
        """An event stream that nothing on the way may buffer or keep."""
        self.client.send("GET", "/api/events", headers=[("Origin", "x")])
        answer = self.client.read()
        for name, value in (
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-cache"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Accel-Buffering", "no"),
            ("Access-Control-Allow-Origin", "*"),
            ("Transfer-Encoding", "chunked"),
        ):
            self.assertEqual(answer.all(name), [value])
        self.assertIsNone(answer.header("Content-Length"))

    def test_order(self) -> None:
        """Two logs, the models, the page's settings, the profile, the requests; with nothing to tell, too."""
        kinds = [kind for kind, _ in self.burst()]
        self.assertEqual(kinds, ["logData", "logData", "modelStatus", "uiConfig", "profileChanged", "inflight"])
        events = self.burst()
        self.assertEqual([data["source"] for _, data in events[:2]], ["proxy", "upstream"])
        self.assertEqual(events[3][1], {"activity": {"session_id": ["X-Session-ID", "X-Litellm-Session-Id"]}})
        self.assertEqual(events[4][1], {"active": None})
        self.assertEqual(events[5][1], {"operation": "snapshot", "requests": []})

    def test_logs(self) -> None:
        """Their histories, whatever is in them."""
        self.lswap.logs.proxy.write(b'one "two"\n')
        self.lswap.logs.upstream.write(b"\x1b[1m\xff\r\n")
        events = self.burst()
        self.assertEqual(events[0][1], {"source": "proxy", "data": 'one "two"\n'})
        self.assertEqual(events[1][1], {"source": "upstream", "data": "\x1b[1m\ufffd\r\n"})

    def test_models(self) -> None:
        """All of them, hidden ones too, sorted, with the state that each has now."""
        self.lswap.ready("b")
        first, second = self.burst()[2][1]
        self.assertEqual(
            first,
            {
                "id": "a",
                "name": "",
                "description": "<é>",
                "state": "stopped",
                "unlisted": False,
                "peerID": "",
                "aliases": ["also-a"],
            },
        )
        self.assertEqual((second["id"], second["state"], second["unlisted"]), ("b", "ready", True))
        self.assertNotIn("aliases", second)
        self.lswap.router.shut_down()
        self.lswap.turn()
        self.assertEqual([row["state"] for row in self.burst()[2][1]], ["stopped", "stopped"])

    def test_requests(self) -> None:
        """Those under way."""
        client = self.lswap.client()
        client.chat("a")
        requests = self.burst()[5][1]["requests"]
        self.assertEqual([(row["id"], row["model"]) for row in requests], [("1", "a")])
        client.leave()
        self.assertEqual(self.burst()[5][1]["requests"], [])

    def test_stays_open(self) -> None:
        """Until the client leaves, or lswap ends its streams."""
        self.burst()
        self.lswap.turn(10_000)
        self.assertFalse(self.client.closed)
        self.client.leave()
        self.assertEqual(len(self.lswap.service._streams), 0)
        self.burst()
        self.lswap.service._streams.end_all()
        self.assertEqual(self.client.take(), b"0\r\n\r\n")
        self.assertEqual(len(self.lswap.service._streams), 0)

    def test_reader_that_does_not_read(self) -> None:
        """It costs a bounded amount of memory, and does not hold up the end of lswap."""
        for log in (self.lswap.logs.proxy, self.lswap.logs.upstream):
            log.write(b'"' * 100_000)
        self.client.socket.room = 1000
        self.client.send("GET", "/api/events")
        self.lswap.service._streams.end_all()
        self.lswap.turn(1)
        self.assertEqual(len(self.lswap.service._streams), 0)
        self.assertTrue(self.client.gone)

    def test_head_request(self) -> None:
        """It gets the headers, and is over."""
        self.client.send("HEAD", "/api/events")
        self.assertEqual(self.client.read().header("Content-Type"), "text/event-stream")
        self.assertEqual(self.client.ask("GET", "/health").body, b"OK")

    def test_internal_fault(self) -> None:
        """A bug while the burst is made cuts the stream that has begun, and is logged."""

        def broken(streams: EventStreams) -> list[bytes]:
            raise RuntimeError("a bug")

        self.patch(EventStreams, "burst", broken)
        self.client.send("GET", "/api/events")
        self.assertFalse(self.client.read().complete)
        self.assertTrue(self.client.closed)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.lswap.turn(20)
        self.assertEqual(len(self.lswap.service._streams), 0)

    def test_frame(self) -> None:
        """JSON in a string in JSON, on one line, without blanks."""
        self.assertEqual(
            frame("x", {"é": 'a"\n', "n": [1, None]}),
            'event:message\ndata:{"type":"x","data":"{\\"é\\":\\"a\\\\\\"\\\\n\\",\\"n\\":[1,null]}"}\n\n'.encode(),
        )
