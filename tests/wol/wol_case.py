"""The whole of `lswap-wol` in memory: real site, road, watch and client; a made-up host, waker, clock and sockets."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from lswap.service.logs import Logs
from lswap.wol.app import WolService
from lswap.wol.options import settings_of
from tests.memory import Answer, MemoryClient, MemoryReactor
from tests.sleeping import FakeWaker, Host

__all__ = ["WolCase"]


class WolCase(SynchronousTestCase):
    """The proxy, and a host that is down."""

    flags: Sequence[str] = ()

    def setUp(self) -> None:
        """It watches."""
        self.reactor = MemoryReactor()
        self.host = Host("host", self.reactor, ("10.0.0.1", 8080))
        self.waker = FakeWaker()
        words = ["-mac", "ba:dc:0f:fe:e0:00", "-upstream", "http://10.0.0.1:8080/base", "-timeout", "20", *self.flags]
        settings = settings_of(words, {})
        assert not isinstance(settings, str)
        self.service = WolService(self.reactor, settings, waker=self.waker, own_logs=Logs(lambda data: None))
        self.service.host.start()
        self.reactor.turn()
        self.addCleanup(self.service.upstream.close)
        self.addCleanup(self.service.host.stop)

    def client(self) -> MemoryClient:
        """A new connection."""
        return MemoryClient(self.reactor, self.service.site)

    def ask(self, method: str, target: str, accept: str = "", body: bytes = b"") -> Answer:
        """One request on a connection of its own."""
        client = self.client()
        answer = client.ask(method, target, body, [("Accept", accept)] if accept else [])
        client.leave()
        return answer

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in small steps."""
        for _ in range(round(seconds / 0.05)):
            self.reactor.turn(0.05)

    def awake(self) -> None:
        """Have the host up and known to be."""
        self.host.listen()
        self.service.host.doubt()
        self.reactor.turn()
        self.assertTrue(self.service.host.ready)

    def assert_clean(self) -> None:
        """Nobody waits, nothing is under way."""
        self.reactor.turn()
        self.assertEqual((self.service.host.waiting, len(self.service.inflight)), (0, 0))
