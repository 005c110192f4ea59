"""What a llama-server answers about its slots (`lswap.core.kv_answers`)."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.kv_answers import (
    AnswerError,
    Props,
    SlotRow,
    parse_props,
    parse_restored,
    parse_saved,
    parse_slots,
)

#: No answers of any kind.
NONSENSE = (
    b"",
    b"{",
    b"null",
    b"7",
    b'"x"',
    b"\xff",
    b"[" * 100_000,
    b'{"id": 0}',
    b'[{"n_past": 1}]',
    b'[{"id": "x"}]',
)


def slots(*rows: Any) -> list[SlotRow]:
    """The rows of an answer."""
    return parse_slots(json.dumps(rows).encode())


class SlotsTests(SynchronousTestCase):
    """`GET /slots`."""

    def test_older_builds(self) -> None:
        """`n_past` counts all that is cached."""
        row = {"id": 1, "n_past": 700, "n_prompt_tokens": 700, "next_token": {"n_decoded": 5}, "prompt": "long"}
        self.assertEqual(slots(row), [SlotRow(1, 700)])

    def test_newer_builds(self) -> None:
        """The prompt's tokens and the decoded ones."""
        for decoded in ([{"n_decoded": 5}], {"n_decoded": 5}):
            self.assertEqual(slots({"id": 0, "n_prompt_tokens": 700, "next_token": decoded}), [SlotRow(0, 705)])
        self.assertEqual(slots({"id": 0, "n_prompt_tokens": 700}), [SlotRow(0, 700)])

    def test_slot_that_nobody_used(self) -> None:
        """Newer builds do not tell then; that is not the same as none."""
        self.assertEqual(slots({"id": 0, "n_ctx": 4096}, {"id": 1, "n_past": 0}), [SlotRow(0, None), SlotRow(1, 0)])

    def test_nonsense(self) -> None:
        """Anything else is said to be none."""
        for body in NONSENSE:
            self.assertRaises(AnswerError, parse_slots, body)


class CallsTests(SynchronousTestCase):
    """Saves and restores."""

    def test_saved(self) -> None:
        """Tokens and bytes."""
        body = b'{"id_slot":0,"filename":"x","n_saved":1015,"n_written":23402616,"timings":{"save_ms":7.9}}'
        self.assertEqual(parse_saved(body), (1015, 23402616))

    def test_nothing_saved(self) -> None:
        """No token or no byte is a failure, whatever the status was."""
        for saved, written in ((0, 40), (5, 0), (-1, 5)):
            body = json.dumps({"n_saved": saved, "n_written": written}).encode()
            self.assertRaises(AnswerError, parse_saved, body)

    def test_restored(self) -> None:
        """Tokens; none is a failure."""
        self.assertEqual(parse_restored(b'{"n_restored":1015,"n_read":23402616}'), 1015)
        self.assertRaises(AnswerError, parse_restored, b'{"n_restored":0,"n_read":40}')

    def test_nonsense(self) -> None:
        """Anything else is said to be none."""
        for body in NONSENSE:
            self.assertRaises(AnswerError, parse_saved, body)
            self.assertRaises(AnswerError, parse_restored, body)

    def test_props(self) -> None:
        """The build and the model file; what cannot be understood tells nothing."""
        self.assertEqual(parse_props(b'{"build_info":"b1","model_path":"/m","x":[1]}'), Props("b1", "/m"))
        for body in NONSENSE:
            self.assertEqual(parse_props(body), Props())
