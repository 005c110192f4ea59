"""Activity, captures and live events of real requests in memory: recorder, store, `/api/...` and the event stream."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.service.captures import Captures
from lswap.web.activity import rfc3339
from tests.memory import MemoryClient, MemoryLswap

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}"}
  b: {cmd: "server --port ${PORT}", concurrencyLimit: 1}
"""
USAGE = b'{"usage": {"prompt_tokens": 12, "completion_tokens": 7}}'
JSON = [("Content-Type", "application/json")]


class ActivityCase(SynchronousTestCase):
    """Two models and a client."""

    def setUp(self) -> None:
        """Nothing was asked."""
        self.lswap = MemoryLswap(CONFIG)
        self.client = self.lswap.client()

    def get(self, target: str) -> Any:
        """The JSON of an answer."""
        client = self.lswap.client()
        client.send("GET", target)
        return json.loads(client.read().body)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, the newest first."""
        found = self.get("/api/metrics/activity")["data"]
        assert isinstance(found, list)
        return found

    def answered(self, body: bytes, headers: list[tuple[str, str]] = JSON, status: int = 200) -> dict[str, Any]:
        """The row of a request that the model answers so."""
        self.client.chat("a", [("X-Api-Key", "secret"), ("X-Upstream-Token", "secret")])
        self.lswap.models["a"].request.answer(status, body, headers)
        self.lswap.turn()
        self.client.read()
        return self.rows()[0]


class RowTests(ActivityCase):
    """Which requests leave a row, and what is in it."""

    def test_answer(self) -> None:
        """Figures, status, type, and that there is a capture."""
        row = self.answered(USAGE)
        self.assertEqual((row["id"], row["model"], row["req_path"]), (1, "a", "/v1/chat/completions"))
        self.assertEqual(
            (row["resp_status_code"], row["resp_content_type"], row["has_capture"]), (200, JSON[0][1], True)
        )
        self.assertEqual((row["tokens"]["input_tokens"], row["tokens"]["output_tokens"]), (12, 7))
        self.assertEqual(row["metadata"]["fifo_priority"], "0")
        self.assertNotIn("error_msg", row)

    def test_priority(self) -> None:
        """It is noted as text, and is 0 where the configuration says nothing."""
        self.lswap = MemoryLswap("routing: {scheduler: {settings: {fifo: {priority: {a: 7}}}}}\n" + CONFIG)
        self.client = self.lswap.client()
        self.assertEqual(self.answered(USAGE)["metadata"]["fifo_priority"], "7")

    def test_packed_answer(self) -> None:
        """It is read all the same; one that is broken is told."""
        packed = [*JSON, ("Content-Encoding", "gzip")]
        self.assertEqual(self.answered(gzip.compress(USAGE), packed)["tokens"]["input_tokens"], 12)
        row = self.answered(b"\xffno", packed)
        self.assertIn("decompression failed", row["error_msg"])
        self.assertFalse(row["has_capture"])

    def test_errors(self) -> None:
        """The model's message; a refusal has its own; an unknown model leaves a row, too."""
        self.assertEqual(self.answered(b'{"error": "boom"}', status=500)["error_msg"], "boom")
        self.client.chat("nosuch")
        self.client.read()
        row = self.rows()[0]
        self.assertEqual((row["model"], row["resp_status_code"]), ("nosuch", 404))
        self.assertTrue(row["error_msg"])

    def test_client_that_leaves(self) -> None:
        """Before an answer and within one: shown as what it is, and nothing unknown is a zero."""
        self.client.chat("a")
        self.client.leave()
        self.lswap.turn()
        row = self.rows()[0]
        self.assertEqual((row["resp_status_code"], row["tokens"]["output_tokens"]), (499, 0))
        self.assertTrue(row["error_msg"])
        client: MemoryClient = self.lswap.client()
        client.chat("a")
        request = self.lswap.models["a"].request
        request.begin([("Content-Type", "text/event-stream")])
        request.chunk(b'data: {"x": 1}\n\n')
        self.lswap.turn()
        client.leave()
        self.lswap.turn()
        row = self.rows()[0]
        self.assertEqual((row["resp_status_code"], row["tokens"]["output_tokens"]), (200, -1))
        self.assertIn("client left", row["error_msg"])

    def test_no_row(self) -> None:
        """GETs, other paths below `/upstream`, and requests without a model leave none."""
        for method, target in (("POST", "/v1/chat/completions"), ("GET", "/health")):
            self.client.send(method, target)
            self.client.read()
        self.client.send("POST", "/upstream/a/other", b"{}")
        self.lswap.turn()
        self.lswap.models["a"].request.answer()
        self.lswap.turn()
        self.assertEqual(self.rows(), [])


class ApiTests(ActivityCase):
    """What can be asked."""

    def test_bad_values(self) -> None:
        """Each is named."""
        for query, told in (
            ("min_id=abc", "min_id must be >= 1"),
            ("max_id=0", "max_id must be >= 1"),
            ("min_id=9&max_id=2", "min_id must be <= max_id"),
            ("start=nonsense", "invalid 'start' timestamp, use RFC3339 format"),
            ("end=2026-01-01", "invalid 'end' timestamp, use RFC3339 format"),
            ("start=2026-02-01T00:00:00Z&end=2026-01-01T00:00:00Z", "start must be before end"),
            ("limit=x", "invalid limit"),
            ("limit=1000", "limit must be between 1 and 999"),
            ("page=0", "page must be >= 1"),
            ("sort=id%3Bdrop", "invalid sort column"),
            ("order=up", "order must be asc or desc"),
        ):
            self.assertEqual(self.get(f"/api/metrics/activity?{query}")["error"]["message"], told)
        self.assertEqual(self.get("/api/metrics/activity?limit=&model=&sort=")["total"], 0)

    def test_statistics(self) -> None:
        """Of all, and of one model."""
        self.answered(USAGE)
        self.assertEqual(self.get("/api/metrics/stats")["total_input_tokens"], 12)
        self.assertEqual(self.get("/api/metrics/stats?model=b")["total_requests"], 0)

    def test_times(self) -> None:
        """RFC 3339 and nothing else."""
        found = rfc3339("2026-01-02T03:04:05.5+01:00")
        assert found is not None
        self.assertEqual(found.isoformat(), "2026-01-02T03:04:05.500000+01:00")
        for text in ("2026-01-02", "2026-13-02T03:04:05Z", "2026-01-02 03:04:05Z", "2026-01-02T03:04:05"):
            self.assertIsNone(rfc3339(text))


class CaptureTests(ActivityCase):
    """Requests and answers as they were."""

    def test_contents(self) -> None:
        """Both bodies, unpacked; headers without secrets and without the coding."""
        self.answered(gzip.compress(USAGE), [*JSON, ("Content-Encoding", "gzip"), ("Set-Cookie", "secret")])
        found = self.get("/api/captures/1")
        self.assertEqual(base64.b64decode(found["resp_body"]), USAGE)
        self.assertEqual(base64.b64decode(found["req_body"]), b'{"model": "a"}')
        self.assertNotIn("Content-Encoding", found["resp_headers"])
        self.assertEqual(found["req_headers"]["X-Upstream-Token"], "[REDACTED]")
        self.assertNotIn("secret", json.dumps(found))

    def test_errors(self) -> None:
        """Of a failed request the answer's body is left out; unknown numbers are told."""
        self.answered(b"no", status=500)
        self.assertIsNone(self.get("/api/captures/1")["resp_body"])
        self.assertEqual(self.get("/api/captures/9")["error"]["message"], "capture not found")
        self.assertEqual(self.get("/api/captures/abc")["error"]["message"], "invalid capture ID")

    def test_budget(self) -> None:
        """The oldest make room; one beyond all room displaces nothing; 0 keeps none."""
        kept = Captures(100)
        for number in range(1, 4):
            kept.put(number, bytes(40))
        kept.put(4, bytes(101))
        self.assertEqual([number in kept for number in range(1, 5)], [False, True, True, False])
        kept.allow(0)
        self.assertNotIn(3, kept)


class LiveTests(ActivityCase):
    """The event stream after its burst."""

    def events(self, client: MemoryClient) -> list[tuple[str, Any]]:
        """Kind and data of what came."""
        found = []
        for line in client.take().split(b"\n"):
            if line.startswith(b"data:"):
                outer = json.loads(line[5:])
                found.append((outer["type"], json.loads(outer["data"])))
        return found

    def test_life_of_a_request(self) -> None:
        """States, the request's entry, the row, and log lines, in the order in which they happen."""
        reader = self.lswap.client()
        reader.send("GET", "/api/events")
        self.events(reader)
        self.answered(USAGE)
        events = [event for event in self.events(reader) if event[0] != "logData"]
        states = [
            next(row["state"] for row in data if row["id"] == "a") for kind, data in events if kind == "modelStatus"
        ]
        self.assertEqual(states, ["starting", "ready"])
        operations = [data["operation"] for kind, data in events if kind == "inflight"]
        self.assertEqual((operations[0], operations[-1]), ("upsert", "remove"))
        self.assertIn(("activity", {"id": 1}), events)

    def test_heartbeat_and_end(self) -> None:
        """A comment every 15 s; after the last reader no timer is left."""
        reader = self.lswap.client()
        reader.send("GET", "/api/events")
        reader.take()
        self.lswap.turn(15.1)
        self.assertIn(b":\n\n", reader.take())
        reader.leave()
        self.lswap.turn()
        self.assertFalse(self.lswap.service.bus.watched)
