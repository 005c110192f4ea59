"""Listening on real addresses (`lswap.net.listen`), and who is seen to connect."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from lswap.net.listen import CannotListen, open_port

timeout = 10

HAS_IPV6 = os.path.exists("/proc/net/if_inet6")


def there(path: str) -> bool:
    """Whether there is such a file."""
    return os.path.lexists(path)


class Witness(Protocol):
    """Tells who has connected."""

    def connectionMade(self) -> None:
        """Say it, and close."""
        factory: Any = self.factory
        assert self.transport is not None
        factory.seen.callback(self.transport.getPeer())
        self.transport.loseConnection()


class ListenTests(TestCase):
    """One port after the other."""

    def open(self, listen: str) -> Any:
        """A port that is closed after the test."""
        self.factory: Any = Factory.forProtocol(Witness)
        port = open_port(listen, self.factory, reactor)
        self.addCleanup(port.stopListening)
        return port

    async def reach(self, family: socket.AddressFamily, address: Any) -> Any:
        """Connect; who was seen."""
        seen = self.factory.seen = Deferred()
        client = socket.socket(family)
        client.setblocking(False)
        self.addCleanup(client.close)
        client.connect_ex(address)
        return await seen

    async def test_all_addresses(self) -> None:
        """Without a host, both versions reach it; that the kernel shows one as the other is known."""
        port = self.open(":0").getHost().port
        peer = await self.reach(socket.AF_INET, ("127.0.0.1", port))
        self.assertIn(peer.host, ("127.0.0.1", "::ffff:127.0.0.1"))
        if HAS_IPV6:
            peer = await self.reach(socket.AF_INET6, ("::1", port))
            self.assertEqual(peer.host, "::1")

    async def test_localhost(self) -> None:
        """By name, and by the address of the newer version."""
        port = self.open("localhost:0").getHost().port
        self.assertEqual((await self.reach(socket.AF_INET, ("127.0.0.1", port))).host, "127.0.0.1")
        if HAS_IPV6:
            port = self.open("[::1]:0").getHost().port
            self.assertEqual((await self.reach(socket.AF_INET6, ("::1", port))).host, "::1")

    async def test_unix(self) -> None:
        """A socket in the file system, which is gone afterwards."""
        # Such paths have to be short.
        path = f"/tmp/lswap-test-{os.getpid()}"
        port = self.open(f"unix:{path}")
        self.assertTrue(there(path))
        peer = await self.reach(socket.AF_UNIX, path)
        self.assertFalse(hasattr(peer, "host"))
        await port.stopListening()
        self.assertFalse(there(path))

    def test_taken(self) -> None:
        """A second one cannot have the port."""
        port = self.open("127.0.0.1:0").getHost().port
        problem = self.assertRaises(CannotListen, self.open, f"127.0.0.1:{port}")
        self.assertIn("in use", str(problem))
