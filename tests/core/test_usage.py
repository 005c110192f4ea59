"""Figures read out of answers (`lswap.core.usage`)."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.usage import PackingError, Usage, error_message, of_answer, of_ends, unpacked

JSON, STREAM = "application/json", "text/event-stream; charset=utf-8"


def read(value: Any, path: str = "/v1/chat/completions") -> Usage:
    """The figures of a plain answer."""
    return of_answer(json.dumps(value).encode(), JSON, path)


def streamed(*events: Any) -> Usage:
    """The figures of a stream."""
    text = "".join(f"event: e\ndata: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return of_answer(text.encode(), STREAM, "/v1/chat/completions")


class PlainTests(SynchronousTestCase):
    """Answers in one piece."""

    def test_usage(self) -> None:
        """The names of all APIs."""
        for usage, figures in (
            ({"prompt_tokens": 12, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}, (12, 7, 4)),
            ({"input_tokens": 20, "output_tokens": 5, "cache_read_input_tokens": 11}, (20, 5, 11)),
            ({"input_tokens": 8, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 6}}, (8, 2, 6)),
            ({"prompt_tokens": 9}, (9, 0, -1)),
        ):
            found = read({"usage": usage})
            self.assertEqual((found.input, found.output, found.cached), figures)

    def test_timings(self) -> None:
        """They win over usage where they say something; both counts of drafts are needed."""
        found = read(
            {
                "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}},
                "timings": {
                    "prompt_n": 20,
                    "predicted_n": 50,
                    "prompt_per_second": 100.5,
                    "prompt_ms": 1,
                    "draft_n": 3,
                },
            }
        )
        self.assertEqual((found.input, found.output, found.cached, found.prompt_speed), (20, 50, 3, 100.5))
        self.assertEqual((found.output_speed, found.drafted, found.accepted, found.own_ms), (-1, -1, -1, 1))

    def test_metrics(self) -> None:
        """vLLM's own: speeds are made of times, cached tokens do not count."""
        found = read(
            {
                "usage": {"prompt_tokens": 42, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 20}},
                "metrics": {
                    "time_to_first_token_ms": 85.2,
                    "mean_itl_ms": 9.1,
                    "speculative_decoding": {"num_draft_tokens": 20, "num_accepted_draft_tokens": 14},
                },
            }
        )
        self.assertAlmostEqual(found.prompt_speed, 22 / 0.0852)
        self.assertAlmostEqual(found.output_speed, 1000 / 9.1)
        self.assertEqual((found.drafted, found.accepted), (20, 14))

    def test_infill(self) -> None:
        """The last element of a list has the timings, on that route alone."""
        value = [{"timings": {"prompt_n": 1}}, {"timings": {"prompt_n": 5, "predicted_n": 9}}]
        self.assertEqual(read(value, "/infill").output, 9)
        self.assertEqual(read(value), Usage())

    def test_nothing_known(self) -> None:
        """Unknown figures are -1, whatever odd things stand in their places."""
        values: tuple[Any, ...] = (
            {},
            [],
            5,
            {"usage": None},
            {"usage": 3, "timings": "x", "message": "hi"},
            {"input_tokens": 9},
        )
        for value in values:
            self.assertEqual(read(value), Usage())
        found = read({"usage": {"prompt_tokens": "7", "completion_tokens": -1, "cache_read_input_tokens": True}})
        self.assertEqual((found.input, found.output, found.cached), (0, 0, -1))

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        """Nothing that a server may send makes it fail."""
        for kind in (JSON, STREAM):
            of_answer(data, kind, "/infill")
            of_ends(data, b'"usage":' + data, kind)
        error_message(data, 500)


class StreamTests(SynchronousTestCase):
    """Answers in events."""

    def test_later_events_win(self) -> None:
        """Where they have something to say."""
        found = streamed(
            {"usage": {"prompt_tokens": 5, "completion_tokens": 1}},
            {"usage": {"prompt_tokens": 0, "completion_tokens": 6}},
            {"usage": None},
        )
        self.assertEqual((found.input, found.output), (5, 6))

    def test_places(self) -> None:
        """Within `response` and `message`, too."""
        found = streamed(
            {"message": {"usage": {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 10}}},
            {"usage": {"output_tokens": 15}},
        )
        self.assertEqual((found.input, found.output, found.cached), (25, 15, 10))
        self.assertEqual(streamed({"response": {"usage": {"input_tokens": 8, "output_tokens": 4}}}).input, 8)

    def test_line_ends(self) -> None:
        """CR LF, no space after the colon, and lines that are no JSON."""
        data = b': note\r\ndata:{"usage":{"prompt_tokens":3}}\r\n\r\ndata: "usage" not json\r\n\r\n'
        self.assertEqual(of_answer(data, STREAM, "/x").input, 3)

    def test_ends(self) -> None:
        """Of a long answer the beginning and the end are enough."""
        found = of_ends(
            b'data: {"message":{"usage":{"input_tokens":25}}}\n\ndata: {"x',
            b'x"}\n\ndata: {"usage":{"output_tokens":4}}\n\n',
            STREAM,
        )
        self.assertEqual((found.input, found.output), (25, 4))
        tail = b'"\\"usage\\":{\\"x\\":1}"], "usage" : {"prompt_tokens": 3}}'
        self.assertEqual(of_ends(b'{"data":[', tail, JSON).input, 3)


class PackingTests(SynchronousTestCase):
    """Content-Encoding."""

    def test_codings(self) -> None:
        """gzip, deflate with its frame and raw; others stay as they are."""
        raw = zlib.compressobj(wbits=-15)
        for coding, packed in (
            ("gzip", gzip.compress(b"text")),
            ("GZIP ", gzip.compress(b"te") + gzip.compress(b"xt")),
            ("deflate", zlib.compress(b"text")),
            ("deflate", raw.compress(b"text") + raw.flush()),
            ("br", b"text"),
            ("", b"text"),
        ):
            self.assertEqual(unpacked(packed, coding), b"text")

    def test_broken(self) -> None:
        """It is told; of an answer that was broken off what came is used."""
        self.assertRaises(PackingError, unpacked, b"\xffno", "gzip")
        self.assertRaises(PackingError, unpacked, b"\xffno", "deflate")
        packed = gzip.compress(b"text" * 99)[:-9]
        self.assertRaises(PackingError, unpacked, packed, "gzip")
        self.assertTrue(unpacked(packed, "gzip", whole=False).startswith(b"text"))

    def test_bomb(self) -> None:
        """What unpacks without end is given up."""
        self.patch(__import__("lswap.core.usage", fromlist=["x"]), "UNPACKED_LIMIT", 1000)
        self.assertRaises(PackingError, unpacked, gzip.compress(bytes(2000)), "gzip")


class MessageTests(SynchronousTestCase):
    """What is wrong, in the words of the server."""

    def test_places(self) -> None:
        """The usual ones, in their order; else the name of the status."""
        for value, told in (
            ({"error": {"message": " a "}}, "a"),
            ({"error": "b"}, "b"),
            ({"error": {"message": ""}, "message": "c"}, "c"),
            ({"detail": "d"}, "d"),
            ({"error": {"code": 4}}, "404 Not Found"),
            ([], "404 Not Found"),
        ):
            self.assertEqual(error_message(json.dumps(value).encode(), 404), told)
        self.assertEqual(error_message(b"<html>", 599), "HTTP 599")

    def test_long(self) -> None:
        """Cut between two characters."""
        told = error_message(json.dumps({"error": "x" + "\u20ac" * 500}).encode(), 500)
        self.assertEqual(set(told), {"x", "\u20ac", "."})
        self.assertLessEqual(len(told.encode()), 503)
