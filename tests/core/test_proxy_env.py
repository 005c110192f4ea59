"""Which servers are reached through a proxy (`lswap.core.proxy_env`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.proxy_env import Proxy, ProxyRules

P = "http://proxy.example:3128"


class ProxyTests(SynchronousTestCase):
    """Variables in, a proxy or none out."""

    def proxy(self, environment: dict[str, str], url: str = "https://den.example") -> Proxy | None:
        """The proxy for scheme, host and port."""
        scheme, _, place = url.partition("://")
        host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
        if not colon:
            host, port = place, "443" if scheme == "https" else "80"
        return ProxyRules(environment).proxy_for(scheme, host.strip("[]"), int(port))

    def test_none(self) -> None:
        """Without a word of it there is no proxy."""
        for environment in ({}, {"HTTPS_PROXY": "", "https_proxy": " "}, {"HTTP_PROXY": P}, {"ALL_PROXY": P}):
            self.assertIsNone(self.proxy(environment))

    def test_scheme(self) -> None:
        """Each scheme has its variable, written either way; the capital one wins."""
        for environment in ({"HTTPS_PROXY": P}, {"https_proxy": P}, {"HTTPS_PROXY": P, "https_proxy": "http://other"}):
            self.assertEqual(self.proxy(environment), Proxy(url=P))
            self.assertIsNone(self.proxy(environment, "http://den.example"))
        self.assertEqual(self.proxy({"http_proxy": P}, "http://den.example"), Proxy(url=P))

    def test_written_without_scheme(self) -> None:
        """`host:port` is an http proxy."""
        self.assertEqual(self.proxy({"HTTPS_PROXY": "proxy.example:3128"}), Proxy(url=P))
        self.assertEqual(self.proxy({"HTTPS_PROXY": "http://[fd00::1]:3128/"}), Proxy(url="http://[fd00::1]:3128"))

    def test_user(self) -> None:
        """User and password become the header; no representation shows them."""
        proxy = self.proxy({"HTTPS_PROXY": "http://us%40er:pass%3Aw@proxy.example:3128"})
        assert proxy is not None
        self.assertEqual((proxy.url, proxy.authorization), (P, b"Basic dXNAZXI6cGFzczp3"))
        self.assertNotIn("dXNAZXI6", repr(proxy))

    def test_not_usable(self) -> None:
        """A proxy that lswap cannot use is an error that does not repeat what is written there."""
        for written in (
            "socks5://secret@proxy",
            "http://",
            "http://secret:x@",
            "ftp://secret",
            "http://secret:99999999",
            "http://secret\u2100:x@",
        ):
            error = self.assertRaises(ValueError, self.proxy, {"HTTPS_PROXY": written})
            self.assertIn("HTTPS_PROXY", str(error))
            self.assertNotIn("secret", str(error))

    def test_cgi(self) -> None:
        """Where a client can set HTTP_PROXY, it does not count."""
        environment = {"HTTP_PROXY": P, "HTTPS_PROXY": P, "REQUEST_METHOD": "GET"}
        self.assertIsNone(self.proxy(environment, "http://den.example"))
        self.assertIsNotNone(self.proxy(environment, "https://den.example"))

    def test_loopback(self) -> None:
        """This machine is never reached through a proxy."""
        for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"):
            self.assertIsNone(self.proxy({"HTTPS_PROXY": P}, f"https://{host}"), host)
        self.assertIsNotNone(self.proxy({"HTTPS_PROXY": P}, "https://localhost.example"))

    def test_exceptions(self) -> None:
        """NO_PROXY: everything, addresses, networks, domains with what is below, ports."""
        for exception, url, direct in (
            ("*", "https://den.example", True),
            ("den.example", "https://den.example", True),
            ("DEN.example", "https://den.Example", True),
            ("den.example", "https://a.den.example", True),
            ("den.example", "https://garden.example", False),
            (".den.example", "https://a.den.example", True),
            (".den.example", "https://den.example", False),
            ("*.den.example", "https://a.den.example", True),
            ("*.den.example", "https://den.example", False),
            ("den.example.", "https://den.example", True),
            ("den.example", "https://den.example.", True),
            ("den.example:8443", "https://den.example:8443", True),
            ("den.example:8443", "https://den.example", False),
            ("example", "https://den.example", True),
            ("10.1.2.3", "https://10.1.2.3", True),
            ("10.1.2.3", "https://10.1.2.4", False),
            ("10.1.2.3:443", "https://10.1.2.3", True),
            ("10.1.2.3:444", "https://10.1.2.3", False),
            ("10.1.0.0/16", "https://10.1.2.4", True),
            ("10.1.0.0/16", "https://10.2.2.4", False),
            ("10.1.2.3/16", "https://10.1.9.9", True),
            ("fd00::/8", "https://[fd12::1]", True),
            ("[fd12::1]:443", "https://[fd12::1]", True),
            ("fd12::1", "https://[fd12::1]", True),
            ("10.1.0.0/16", "https://den.example", False),
            ("other, ,den.example ,", "https://den.example", True),
            ("", "https://den.example", False),
            (",.,*.,/,:,[", "https://den.example", False),
        ):
            for name in ("NO_PROXY", "no_proxy"):
                found = self.proxy({"HTTPS_PROXY": P, name: exception}, url)
                self.assertEqual(found is None, direct, (exception, url))

    @given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=20))
    def test_anything(self, proxy: str, exceptions: str, host: str) -> None:
        """Whatever is written there gives an answer or a ValueError."""
        try:
            ProxyRules({"HTTP_PROXY": proxy, "NO_PROXY": exceptions}).proxy_for("http", host, 80)
        except ValueError:
            pass
