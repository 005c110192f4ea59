"""Decides whether a server is reached through an HTTP proxy: the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY.

Pure: the environment is given. `lswap.net.proxy_dial` makes the connections. The rules are those of the reference's
platform: a capital name wins over the small one, loopback addresses are always reached directly, and HTTP_PROXY does
not count where REQUEST_METHOD is set (a CGI program's client could have set it).
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from lswap.core.model_parts import Hiding

__all__ = ["Proxy", "ProxyRules"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxy(Hiding, msgspec.Struct, frozen=True, kw_only=True):
    """Where a proxy is, and what it is told of who asks."""

    hidden: ClassVar[frozenset[str]] = frozenset({"authorization"})

    #: Base URL, without user and password.
    url: str
    #: The value of `Proxy-Authorization`; None where the URL names no user.
    authorization: bytes | None = None


class ProxyRules:
    """The rules of one environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._proxies = {
            "http": "" if "REQUEST_METHOD" in environment else _either(environment, "HTTP_PROXY"),
            "https": _either(environment, "HTTPS_PROXY"),
        }
        items = (item.strip().lower() for item in _either(environment, "NO_PROXY").split(","))
        self._direct = [_Exception(item) for item in items if item]

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for a server, None to reach it directly.

        @raise ValueError: the variable that counts names no proxy that can be used; the text does not repeat it.
        """
        written = self._proxies.get(scheme, "")
        host = host.lower().rstrip(".")
        address = _address(host)
        if not written or host == "localhost" or (address is not None and address.is_loopback):
            return None
        if any(exception.covers(host, address, port) for exception in self._direct):
            return None
        return _read(written, f"{scheme.upper()}_PROXY")


def _either(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.lower()) or "").strip()


def _read(written: str, name: str) -> Proxy:
    unusable = f"{name} is not the address of an HTTP proxy"
    try:
        parts = urlsplit(written if "://" in written else "http://" + written)
        port = parts.port
    except ValueError:
        raise ValueError(unusable) from None  # the text of the first one shows what is written there
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(unusable)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")
    if parts.username is None:
        return Proxy(url=url)
    user = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
    return Proxy(url=url, authorization=b"Basic " + base64.b64encode(user))


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class _Exception:
    """One item of NO_PROXY: `*`, an address, a network, or a domain, the last three with a port if so written."""

    def __init__(self, item: str) -> None:
        self._all = item == "*"
        self._port: int | None = None
        self._network: Network | None = None
        self._address: Address | None = None
        try:
            self._network = ipaddress.ip_network(item, strict=False) if "/" in item else None
        except ValueError:
            pass
        host, colon, port = item.rpartition(":")
        if colon and port.isascii() and port.isdigit() and (":" not in host or host.endswith("]")):
            item, self._port = host, int(port[:6])
        self._address = _address(item)
        #: A leading dot (or `*.`) leaves the domain itself out.
        self._domain = item.removeprefix("*").rstrip(".")

    def covers(self, host: str, address: Address | None, port: int) -> bool:
        """Whether this server is reached directly for its sake."""
        if self._all:
            return True
        if self._port is not None and self._port != port:
            return False
        if address is not None:
            return address == self._address or (self._network is not None and address in self._network)
        if not self._domain or self._address is not None or self._network is not None:
            return False
        if self._domain.startswith("."):
            return host.endswith(self._domain)
        return host == self._domain or host.endswith("." + self._domain)
