"""The factory of client connections (`lswap.web.site`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from twisted.web import http

from tests.memory import MemoryLswap


class ProtocolTests(SynchronousTestCase):
    """What TLS may agree on."""

    def test_only_http_1_1(self) -> None:
        """Also where Twisted could speak HTTP/2."""
        self.patch(http, "H2_ENABLED", True)
        site = MemoryLswap("models: {a: {cmd: 'server ${PORT}'}}").service.site
        self.assertEqual(site.acceptableProtocols(), [b"http/1.1"])
