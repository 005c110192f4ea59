"""What wakes a machine: hardware addresses in all their spellings, the magic packet, where it goes.

Pure: `lswap.net.wake` sends what is made here. Source: utilities reference, section 1.2; AMD's Magic Packet paper.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

__all__ = [
    "PORT",
    "Destination",
    "destination",
    "hardware_address",
    "listed",
    "magic_packet",
    "packets_for",
    "password",
]

_One = TypeVar("_One")
#: Where packets go when no port is named: "discard".
PORT = 9
_PAIRS = re.compile(r"[0-9a-f]{2}(?:([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2})*)?", re.IGNORECASE)
_FOURS = re.compile(r"[0-9a-f]{4}(?:\.[0-9a-f]{4})+", re.IGNORECASE)
_BARE = re.compile(r"[0-9a-f]{12}", re.IGNORECASE)
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")


class Destination(msgspec.Struct, frozen=True):
    """Where packets go: an IPv4 address or a name, and a port."""

    host: str
    port: int = PORT


def hardware_address(text: str) -> bytes:
    """The six bytes that `ba:dc:0f:fe:e0:00`, `ba-dc-...`, `badc.0ffe.e000` or `badc0ffee000` means, in either case.

    @raise ValueError: it is none, or one that no magic packet can have.
    """
    raw = _digits(text)
    if len(raw) in (8, 20):
        raise ValueError(f"{text}: an address of {len(raw)} bytes cannot be woken; a magic packet has room for 6")
    if len(raw) != 6:
        raise ValueError(f"{text}: expected a hardware address such as ba:dc:0f:fe:e0:00")
    return raw


def password(text: str) -> bytes:
    """A SecureOn password: six bytes as a hardware address is written, or four as an IPv4 address is.

    @raise ValueError: it is neither; the text does not tell it.
    """
    try:
        return ipaddress.IPv4Address(text).packed
    except ValueError:
        raw = _digits(text)
    if len(raw) not in (4, 6):
        raise ValueError("expected a password of six bytes (ba:dc:0f:fe:e0:00) or four (192.0.2.1)")
    return raw


def _digits(text: str) -> bytes:
    """The bytes; none when it is no such text."""
    if _PAIRS.fullmatch(text) or _FOURS.fullmatch(text) or _BARE.fullmatch(text):
        return bytes.fromhex(re.sub(r"[:.-]", "", text))
    return b""


def listed(text: str, read: Callable[[str], _One]) -> tuple[_One, ...]:
    """What the items of a list with commas mean, by `read`.

    @raise ValueError: what `read` raises.
    """
    return tuple(read(item.strip()) for item in text.split(",") if item.strip())


def packets_for(addresses: str, secret: str = "") -> tuple[bytes, ...]:
    """A packet for each address of a list with commas, all with the same password, if there is one.

    @raise ValueError: an address or the password is none.
    """
    key = password(secret) if secret else b""
    return tuple(magic_packet(address, key) for address in listed(addresses, hardware_address))


def magic_packet(address: bytes, secret: bytes = b"") -> bytes:
    """Six times FF, sixteen times the address, and the password, if there is one."""
    return b"\xff" * 6 + address * 16 + secret


def destination(text: str) -> Destination:
    """What `HOST` or `HOST:PORT` means.

    @raise ValueError: it is neither.
    """
    host, colon, port = text.partition(":")
    if ":" in port or "[" in text:
        raise ValueError(f"{text}: expected HOST or HOST:PORT; IPv6 has no broadcast")
    if not _NAME.fullmatch(host):
        raise ValueError(f"{text}: expected HOST or HOST:PORT, such as 192.168.1.255:9")
    if host.replace(".", "").isdigit():
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(f"{text}: {host} is no IPv4 address") from None
    if not colon:
        return Destination(host)
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise ValueError(f"{text}: expected a port from 1 to 65535 after the colon")
    return Destination(host, int(port))
