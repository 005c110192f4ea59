"""What a request leaves behind: nothing for the cycle collector, which stops the reactor while it works."""

from __future__ import annotations

import gc

from twisted.trial.unittest import SynchronousTestCase

from lswap.net.upstream import SETTLE
from tests.memory import MemoryClient, MemoryLswap

_JSON = [("Content-Type", "application/json")]


class GarbageTests(SynchronousTestCase):
    """Requests with the collector off."""

    def setUp(self) -> None:
        """One model, ready."""
        self.lswap = MemoryLswap('models: {a: {cmd: "server --port ${PORT}"}}')
        self.lswap.ready("a")
        self.client = self.lswap.client()

    def chat(self, client: MemoryClient, stream: bool) -> None:
        """One request from its head to the end of its answer."""
        client.chat("a")
        request = self.lswap.models["a"].request
        if stream:
            request.begin([("Content-Type", "text/event-stream")])
            for piece in (b"data: 1\n\n", b"data: [DONE]\n\n", b""):
                request.chunk(piece)
                self.lswap.turn()
        else:
            request.answer(200, b"{}", _JSON)
        self.lswap.turn()
        self.assertTrue(client.read().complete)

    def left_by(self, stream: bool) -> set[str]:
        """The kinds of objects that only the collector frees."""
        self.chat(self.client, stream)
        self.lswap.turn(SETTLE[True])  # from the next one on, the connection to the server is kept
        self.chat(self.client, stream)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        gc.set_debug(gc.DEBUG_SAVEALL)
        self.addCleanup(gc.garbage.clear)
        self.addCleanup(gc.set_debug, 0)
        for _ in range(3):
            self.chat(self.client, stream)
        gc.collect()
        return {f"{type(what).__module__}.{type(what).__qualname__}" for what in gc.garbage}

    def test_plain(self) -> None:
        """A whole answer."""
        self.assertEqual(self.left_by(stream=False), set())

    def test_stream(self) -> None:
        """A stream of events."""
        self.assertEqual(self.left_by(stream=True), set())
