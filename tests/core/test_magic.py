"""Hardware addresses, magic packets and where they go (`lswap.core.magic`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.magic import Destination, destination, hardware_address, magic_packet, password

ADDRESS = bytes.fromhex("badc0ffee000")


class AddressTests(SynchronousTestCase):
    """`hardware_address`."""

    def test_forms(self) -> None:
        """All spellings mean the same, in either case."""
        for text in ("ba:dc:0f:fe:e0:00", "BA-DC-0f-FE-e0-00", "badc.0FFE.e000", "BADC0ffee000"):
            self.assertEqual(hardware_address(text), ADDRESS, text)

    def test_what_is_none(self) -> None:
        """Mixed separators, missing digits, other letters, blanks."""
        for text in (
            *("", "nonsense", "ba:dc:0f:fe:e0", "ba:dc:0f:fe:e0:0", "ba:dc-0f:fe:e0:00", "ga:dc:0f:fe:e0:00"),
            *("ba dc 0f fe e0 00", "ba:dc:0f:fe:e0:00 ", "ba:dc:0f:fe:e0:00\n", "badc0ffee0", "badc.0ffe", ":"),
        ):
            self.assertRaises(ValueError, hardware_address, text)

    def test_long_addresses_cannot_be_woken(self) -> None:
        """Those of 8 and 20 bytes are addresses, but no packet can carry them."""
        for text in ("02:00:5e:10:00:00:00:01", "0200.5e10.0000.0001", ":".join(["00"] * 20)):
            error = self.assertRaises(ValueError, hardware_address, text)
            self.assertIn("bytes cannot be woken", str(error))

    @given(st.binary(min_size=6, max_size=6))
    def test_any_address(self, raw: bytes) -> None:
        """Whatever is written comes back."""
        for text in (raw.hex(":"), raw.hex("-"), raw.hex(".", 2), raw.hex(), raw.hex(":").upper()):
            self.assertEqual(hardware_address(text), raw)


class PasswordTests(SynchronousTestCase):
    """`password`."""

    def test_forms(self) -> None:
        """Six bytes or four."""
        self.assertEqual(password("ba:dc:0f:fe:e0:00"), ADDRESS)
        self.assertEqual(password("192.0.2.1"), bytes([192, 0, 2, 1]))
        self.assertEqual(password("c0-00-02-01"), bytes([192, 0, 2, 1]))

    def test_a_bad_one_is_not_told(self) -> None:
        """It is a secret, also when it is misspelt."""
        for text in ("hunter2", "1.2.3", "ab:ad:1d", "", "256.1.1.1"):
            error = self.assertRaises(ValueError, password, text)
            if text:
                self.assertNotIn(text, str(error))


class PacketTests(SynchronousTestCase):
    """`magic_packet`."""

    def test_packet(self) -> None:
        """102 bytes, and the password behind them."""
        packet = magic_packet(ADDRESS)
        self.assertEqual(packet, b"\xff" * 6 + ADDRESS * 16)
        self.assertEqual(len(packet), 102)
        self.assertEqual(magic_packet(ADDRESS, b"pass"), packet + b"pass")


class DestinationTests(SynchronousTestCase):
    """`destination`."""

    def test_forms(self) -> None:
        """An address or a name, with a port or without."""
        for text, host, port in (
            ("255.255.255.255", "255.255.255.255", 9),
            ("192.168.1.255:7", "192.168.1.255", 7),
            ("den.example", "den.example", 9),
            ("den:40000", "den", 40000),
        ):
            self.assertEqual(destination(text), Destination(host, port))

    def test_what_is_none(self) -> None:
        """No host, no port, another kind of address."""
        for text in (
            *("", ":9", "den:", "den:0", "den:65536", "den:x", "den:9:9", "[::1]:9", "::1", "1.2.3.256", "1.2.3"),
            *("a b", "den:٣", "-den", "den/8"),
        ):
            self.assertRaises(ValueError, destination, text)
