"""The form of a line of log."""

from __future__ import annotations

import json
import os
import time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.log_format import MESSAGE_LIMIT, TIME_FORMATS, Level, LineFormat, escape, level_of

#: Wednesday, 2 April 2025, 15:04:05.12 UTC.
WHEN = 1743606245.12


class LevelTests(SynchronousTestCase):
    """Which level a word means."""

    def test_names_in_any_case_and_with_blanks_around(self) -> None:
        """The four names are found however they are written."""
        for name, level in (
            ("debug", Level.DEBUG),
            (" ERROR ", Level.ERROR),
            ("Warn", Level.WARN),
            ("info", Level.INFO),
        ):
            self.assertIs(level_of(name), level)

    def test_all_else_acts_as_info(self) -> None:
        """A word that is no level is no error."""
        for name in ("", "nonsense", "warning", "critical", "20"):
            self.assertIs(level_of(name), Level.INFO)


class EscapeTests(SynchronousTestCase):
    """What becomes of control characters."""

    def test_printable_text_is_left_alone(self) -> None:
        """Letters of all languages, signs and backslashes stay."""
        text = "POST /v1/chat – größer \\ 模型 🦙"
        self.assertEqual(escape(text), text)

    def test_control_characters_become_visible(self) -> None:
        """Line ends, terminal control codes and their like are written out."""
        self.assertEqual(escape("a\nb\r\tc\x1b[31m\x00"), "a\\nb\\r\\tc\\x1b[31m\\x00")
        self.assertEqual(escape("\x7f\x85\x9b\u2028\u2029"), "\\x7f\\x85\\x9b\\u2028\\u2029")

    @given(st.text())
    def test_result_is_always_one_line_without_control_characters(self, text: str) -> None:
        """Whatever comes in, nothing comes out that ends a line or steers a terminal."""
        result = escape(text)
        self.assertLessEqual(len(result.splitlines()), 1)
        self.assertFalse([c for c in result if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0])


class LineTests(SynchronousTestCase):
    """Lines as a whole."""

    def line(self, message: str, level: Level = Level.INFO, detail: str = "") -> str:
        """A line without a time."""
        return LineFormat().line(level, message, WHEN, detail).decode()

    def test_level_and_message(self) -> None:
        """A line has its level in brackets, the message and a newline; by default no time."""
        for level in Level:
            self.assertEqual(self.line("words of wisdom", level), f"[{level.name}] words of wisdom\n")

    def test_message_cannot_forge_a_line(self) -> None:
        """A newline in the message does not begin a line."""
        self.assertEqual(self.line("GET /\n[ERROR] forged\x1b[31m"), "[INFO] GET /\\n[ERROR] forged\\x1b[31m\n")

    def test_detail_is_indented_and_escaped(self) -> None:
        """Each line of a detail is set in, so that none looks like a line of log."""
        line = self.line("failed", Level.ERROR, "Traceback:\n  File\n[ERROR] forged\x1b\r\n")
        self.assertEqual(line, "[ERROR] failed\n    Traceback:\n      File\n    [ERROR] forged\\x1b\\r\n")

    def test_text_that_is_no_unicode(self) -> None:
        """Undecodable bytes, as they come from file names, do no harm."""
        self.assertEqual(self.line(b"caf\xe9".decode("utf-8", "surrogateescape")), "[INFO] caf\\udce9\n")

    def test_endless_message_is_cut(self) -> None:
        """A message of a megabyte is shortened, with a word about it, also if escaping makes it longer."""
        line = self.line("\x00" * (MESSAGE_LIMIT + 7))
        self.assertTrue(line.endswith("… (7 more characters)\n"), line[-60:])
        self.assertLess(len(line), 4 * MESSAGE_LIMIT + 100)

    def test_longest_whole_message(self) -> None:
        """A message at the limit is not touched."""
        self.assertEqual(self.line("m" * MESSAGE_LIMIT), f"[INFO] {'m' * MESSAGE_LIMIT}\n")

    def test_endless_detail_loses_its_middle(self) -> None:
        """Of a very long traceback, both ends are kept: where it began, and what the error was."""
        line = self.line("failed", detail="first\n" + "x" * 100_000 + "\nlast\n")
        self.assertLess(len(line), 25_000)
        self.assertTrue(line.startswith("[INFO] failed\n    first\n"))
        self.assertTrue(line.endswith("\n    last\n"))
        self.assertRegex(line, r"\n    … \(\d+ characters left out\)\n")


class FormatCase(SynchronousTestCase):
    """May change the time zone."""

    def zone(self, name: str) -> None:
        """Be in this time zone until the test ends."""
        before = os.environ.get("TZ")

        def back() -> None:
            if before is None:
                os.environ.pop("TZ", None)
            else:
                os.environ["TZ"] = before
            time.tzset()

        self.addCleanup(back)
        os.environ["TZ"] = name
        time.tzset()


class TimeTests(FormatCase):
    """Time stamps, in local time."""

    def stamp(self, name: str, when: float = WHEN) -> str:
        """The time stamp alone."""
        line = LineFormat(name).line(Level.INFO, "m", when).decode()
        self.assertTrue(line.endswith(" [INFO] m\n"), line)
        return line.removesuffix(" [INFO] m\n")

    def test_every_format(self) -> None:
        """Each name gives its form; an hour west of Greenwich shows in those that have a zone."""
        self.zone("XYZ1")
        wanted = {
            "ansic": "Wed Apr  2 14:04:05 2025",
            "unixdate": "Wed Apr  2 14:04:05 XYZ 2025",
            "rubydate": "Wed Apr 02 14:04:05 -0100 2025",
            "rfc822": "02 Apr 25 14:04 XYZ",
            "rfc822z": "02 Apr 25 14:04 -0100",
            "rfc850": "Wednesday, 02-Apr-25 14:04:05 XYZ",
            "rfc1123": "Wed, 02 Apr 2025 14:04:05 XYZ",
            "rfc1123z": "Wed, 02 Apr 2025 14:04:05 -0100",
            "rfc3339": "2025-04-02T14:04:05-01:00",
            "rfc3339nano": "2025-04-02T14:04:05.12-01:00",
            "kitchen": "2:04PM",
            "stamp": "Apr  2 14:04:05",
            "stampmilli": "Apr  2 14:04:05.120",
            "stampmicro": "Apr  2 14:04:05.120000",
            "stampnano": "Apr  2 14:04:05.120000000",
        }
        self.assertEqual({name: self.stamp(name) for name in TIME_FORMATS}, wanted)

    def test_names_in_any_case_and_with_blanks_around(self) -> None:
        """The name is found however it is written."""
        self.zone("UTC0")
        self.assertEqual(self.stamp(" RFC3339 "), "2025-04-02T15:04:05Z")

    def test_unknown_name_gives_no_time(self) -> None:
        """An unknown name is no error."""
        for name in ("", "  ", "nonsense", "%H:%M"):
            self.assertEqual(LineFormat(name).line(Level.WARN, "m", WHEN), b"[WARN] m\n")

    def test_zones(self) -> None:
        """Offsets have their sign and minutes; UTC is a Z in the formats of RFC 3339 and digits in the others."""
        for zone, iso, digits in (
            ("UTC0", "2025-04-02T15:04:05Z", "+0000"),
            ("IST-5:30", "2025-04-02T20:34:05+05:30", "+0530"),
            ("NST3:30", "2025-04-02T11:34:05-03:30", "-0330"),
        ):
            self.zone(zone)
            self.assertEqual(self.stamp("rfc3339"), iso)
            self.assertTrue(self.stamp("rfc1123z").endswith(digits), zone)

    def test_change_to_summer_time(self) -> None:
        """The offset is that of the moment, not of the start of the program."""
        self.zone("EST5EDT,M3.2.0,M11.1.0")
        form = LineFormat("rfc3339")
        # 9 March 2025, 01:59:59 and one second later.
        self.assertIn(b"T01:59:59-05:00", form.line(Level.INFO, "m", 1741503599))
        self.assertIn(b"T03:00:00-04:00", form.line(Level.INFO, "m", 1741503600))

    def test_kitchen_clock(self) -> None:
        """Midnight and noon are twelve; the hour is not padded."""
        self.zone("UTC0")
        day = 1743552000
        for hour, text in ((0, "12:00AM"), (1, "1:00AM"), (11, "11:00AM"), (12, "12:00PM"), (13, "1:00PM")):
            self.assertEqual(self.stamp("kitchen", day + 3600 * hour), text)

    def test_nano_leaves_out_trailing_zeros(self) -> None:
        """`rfc3339nano` has no zeros at the end of the fraction, and no dot without a fraction."""
        self.zone("UTC0")
        for fraction, text in ((0.0, "05Z"), (0.5, "05.5Z"), (0.000001, "05.000001Z"), (0.25, "05.25Z")):
            self.assertTrue(self.stamp("rfc3339nano", 1743606245 + fraction).endswith(text), fraction)

    def test_fraction_does_not_stick_to_the_second(self) -> None:
        """Two lines of one second have each their own fraction, and the next second its own text."""
        self.zone("UTC0")
        form = LineFormat("stampmilli")
        stamps = [form.line(Level.INFO, "", 1743606245 + add)[:19] for add in (0.1, 0.9, 1.1, 0.9999999)]
        self.assertEqual([s[-6:] for s in stamps], [b"05.100", b"05.900", b"06.100", b"06.000"])

    def test_time_that_is_none(self) -> None:
        """A time that cannot be shown does not lose the line."""
        for when in (float("nan"), float("inf"), 1e300, None, "soon"):
            self.assertEqual(LineFormat("rfc3339").line(Level.INFO, "m", when), b"- [INFO] m\n")  # type: ignore[arg-type]

    @given(st.floats(0, 4e9))
    def test_agrees_with_strftime(self, when: float) -> None:
        """At any moment the clock says what the C library says."""
        self.assertEqual(
            self.stamp("ansic", when), time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(round(when * 1e6) // 10**6))
        )


class JsonTests(FormatCase):
    """One object a line, for programs."""

    def line(self, message: str, detail: str = "", when: float = WHEN, time_format: str = "") -> dict[str, str]:
        """What a reader of such lines sees; there is one line, of plain ASCII."""
        self.zone("UTC0")
        data = LineFormat(time_format, "json").line(Level.WARN, message, when, detail)
        self.assertEqual((data[-1:], data.count(b"\n"), data.isascii()), (b"\n", 1, True))
        found: dict[str, str] = json.loads(data)
        return found

    def test_members(self) -> None:
        """Time, level and message; a detail only where there is one."""
        self.assertEqual(
            self.line("m", when=1743606245.25),
            {"time": "2025-04-02T15:04:05.25Z", "level": "warn", "message": "m"},
        )
        self.assertEqual(self.line("m", "one\ntwo\n")["detail"], "one\ntwo")
        self.assertEqual(self.line("m", when=1743606245, time_format="kitchen")["time"], "3:04PM")

    def test_nothing_forges_a_line(self) -> None:
        """Whatever is in a message comes back as it was, and never as another line or a member."""
        for message in ("a\nb", '","level":"error', "\x1b[31m", "\u2028\ud800\u20ac", "\\"):
            self.assertEqual(self.line(message)["message"], message)

    def test_long(self) -> None:
        """Long texts are shortened, as elsewhere."""
        self.assertIn("5 more characters", self.line("x" * (MESSAGE_LIMIT + 5))["message"])
        self.assertIn("characters left out", self.line("m", "x" * 30_000)["detail"])

    def test_time_that_is_none(self) -> None:
        """The line is there all the same."""
        self.assertEqual(self.line("m", when=float("nan"))["time"], "-")
