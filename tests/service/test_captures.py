"""Captures: what is packed comes back as it was, whatever its size, and stays within the budget."""

from __future__ import annotations

import base64

from twisted.trial.unittest import SynchronousTestCase

from lswap.service.captures import Captures, pack, shown

_KIND = (b"Content-Type", b"application/json")


class PackTests(SynchronousTestCase):
    """There and back."""

    def test_sizes(self) -> None:
        """Small ones are kept as they are, large ones compressed; both are shown alike."""
        for size in (0, 1, 4000, 100_000):
            body, answer = b"q" * size, b"a" * size
            packed = pack("/v1/x", [_KIND], body, [_KIND, (b"Content-Encoding", b"gzip")], answer)
            self.assertLess(len(packed), 10_000)
            seen = shown(7, packed)
            self.assertEqual(seen["req_body"], base64.b64encode(body).decode())
            self.assertEqual(seen["resp_body"], base64.b64encode(answer).decode())
            self.assertEqual(seen["resp_headers"], {"Content-Type": "application/json"})

    def test_no_bodies(self) -> None:
        """What is not kept is shown as not there."""
        seen = shown(1, pack("/v1/x", [(b"authorization", b"Bearer s3cret")], None, [], None))
        self.assertEqual((seen["req_body"], seen["resp_body"]), (None, None))
        self.assertEqual(seen["req_headers"], {"Authorization": "[REDACTED]"})


class BudgetTests(SynchronousTestCase):
    """The newest, within a number of bytes."""

    def test_oldest_go(self) -> None:
        """Room is made from the oldest on; one that can never fit displaces nothing."""
        captures = Captures(10)
        for number in (1, 2, 3):
            captures.put(number, b"1234")
        captures.put(4, b"12345678901")
        self.assertEqual([number for number in range(5) if number in captures], [2, 3])
        captures.allow(4)
        self.assertEqual([captures.get(number) for number in (2, 3)], [None, b"1234"])
        captures.allow(-1)
        self.assertEqual((captures.budget, captures.get(3)), (0, None))
