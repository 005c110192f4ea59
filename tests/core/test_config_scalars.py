"""How plain YAML scalars are typed, how values look as text, and what keys make of them."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lswap.core.config.scalars import ScalarError, Timestamp, resolve, text_of
from tests.core.config_case import MODEL, ConfigCase


class TypingTests(ConfigCase):
    """The typing table of the reference, which is not PyYAML's."""

    def check(self, table: dict[str, Any]) -> None:
        """Each plain scalar has this value, of this type."""
        for text, value in table.items():
            found = resolve(text, True, None)
            self.assertEqual((type(found), found), (type(value), value), text)

    def test_nulls_and_booleans(self) -> None:
        """Only these words are null or a boolean; `yes` and `on` are text."""
        self.check(dict.fromkeys(("", "~", "null", "Null", "NULL")))
        self.check(dict.fromkeys(("true", "True", "TRUE"), True))
        self.check(dict.fromkeys(("false", "False", "FALSE"), False))
        words = ("yes", "no", "on", "off", "y", "n", "tRUE", "nUll", "Yes", "ON")
        self.check({word: word for word in words})

    def test_whole_numbers(self) -> None:
        """Underscores are dropped, a leading zero is octal, and there are prefixes for other bases."""
        self.check(
            {"12": 12, "-3": -3, "+5": 5, "1_000": 1000, "0x10": 16, "0X1f": 31, "0b11": 3, "-0b11": -3, "0o17": 15}
            | {"0777": 511, "010": 8, "0": 0, "-0": 0, "9223372036854775808": 9223372036854775808}
        )

    def test_floats(self) -> None:
        """An exponent needs no dot, and what looks octal but is not is a float."""
        self.check(
            {"1.5": 1.5, "5.": 5.0, ".5": 0.5, "1e3": 1000.0, "1e-3": 0.001, "1_0.5": 10.5, "08": 8.0, "12e03": 12000.0}
            | {".inf": math.inf, "+.Inf": math.inf, "-.INF": -math.inf, "99999999999999999999": 1e20}
        )
        self.assertTrue(math.isnan(resolve(".NaN", True, None)))  # type: ignore[arg-type]

    def test_text_that_looks_like_a_number(self) -> None:
        """Base 60, thousands separators and versions are text, as is a number that no float can hold."""
        words = ("1:30", "12:30:45", "190:20:30", "1,000", "0.1.2", "=", "12 34", "0o8", "0b2", "0x", ".", "+", "-")
        self.check({word: word for word in (*words, "1e999", "1e", "--1", "١٢", "0x1p-2")})

    def test_timestamps(self) -> None:
        """Dates become their full text; a time needs a zone after `T`, and has none after a blank."""
        table = {
            "2024-01-01": "2024-01-01T00:00:00Z",
            "2024-1-2": "2024-01-02T00:00:00Z",
            "2024-01-01T10:00:00Z": "2024-01-01T10:00:00Z",
            "2024-01-01t10:00:00.500+02:00": "2024-01-01T10:00:00.5+02:00",
            "2024-01-01 10:00:00": "2024-01-01T10:00:00Z",
        }
        self.check({text: Timestamp(value) for text, value in table.items()})
        words = ("2024-13-01", "2024-02-30", "2024-01-01T10:00:00", "2024-01-01 10:00:00Z", "24-01-01")
        self.check({word: word for word in words})

    def test_quoted_scalars_are_text(self) -> None:
        """What is not plain has no type of its own."""
        for text in ("12", "true", "~", "2024-01-01", ""):
            self.assertEqual(resolve(text, False, None), text)

    def test_explicit_tags(self) -> None:
        """A standard tag decides the type, any other one leaves the text as it is."""
        standard = "tag:yaml.org,2002:"
        rows: list[tuple[str, str, Any]] = [
            ("60", "int", 60),
            ("5", "str", "5"),
            ("5", "float", 5.0),
            ("true", "bool", True),
            ("", "null", None),
            ("aGk=", "binary", "hi"),
            ("x", "unheard-of", "x"),
        ]
        for text, tag, value in rows:
            self.assertEqual(resolve(text, False, standard + tag), value, tag)
        self.assertEqual(resolve("5", True, "!x"), "5")
        for text, tag in (("soon", "int"), ("1", "bool"), ("1.5", "int"), ("%%%=a", "binary")):
            self.assertRaises(ScalarError, resolve, text, False, standard + tag)

    @given(st.text("0123456789+-_.eExXoObB:~ntT /", max_size=12))
    def test_any_text_has_a_type(self, text: str) -> None:
        """No text fails, and text that is typed as text stays the same."""
        value = resolve(text, True, None)
        if type(value) is str:
            self.assertEqual(value, text)


class TextTests(ConfigCase):
    """The canonical text of values."""

    def test_floats_have_the_fewest_digits(self) -> None:
        """No trailing `.0`, and an exponent below -4 and from 6 on."""
        table = {
            0.70: "0.7",
            3.0: "3",
            16384.0: "16384",
            100000.0: "100000",
            1000000.0: "1e+06",
            1234567.5: "1.2345675e+06",
            123456789.0: "1.23456789e+08",
            0.0001: "0.0001",
            1e-5: "1e-05",
            1.5e-7: "1.5e-07",
            65536.5: "65536.5",
            1e100: "1e+100",
            -2.5: "-2.5",
            math.inf: ".inf",
            -math.inf: "-.inf",
        }
        for number, text in table.items():
            self.assertEqual(text_of(number), text)
        self.assertEqual((text_of(-0.0), text_of(math.nan)), ("-0", ".nan"))

    def test_others(self) -> None:
        """Whole numbers are decimal, booleans lower case."""
        for value, text in ((4096, "4096"), (-5, "-5"), (True, "true"), (False, "false"), ("x", "x")):
            self.assertEqual(text_of(value), text)

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_floats_read_back(self, number: float) -> None:
        """The text reads back as the same number."""
        self.assertEqual(float(text_of(number)), number)


class KeyTests(ConfigCase):
    """What keys make of the values."""

    def test_a_text_key_takes_any_scalar(self) -> None:
        """Numbers, booleans and dates become their canonical text; a list does not."""
        table = {"42": "42", "3.10": "3.1", "0x10": "16", "010": "8", "true": "true", "yes": "yes", "~": ""}
        for text, value in (table | {"2024-01-01": "2024-01-01T00:00:00Z", "'007'": "007"}).items():
            self.assertEqual(self.model(f"name: {text}").name, value, text)
        self.refused(f"{MODEL}logLevel: [info]\n", "logLevel", "cannot unmarshal !!seq into string")

    def test_a_whole_number_cuts_fractions(self) -> None:
        """Any spelling of a number that fits is good; text, booleans and what is too large are not."""
        table = {"60.9": 60, "0x3c": 60, "1e3": 1000, "1_000": 1000, "0o17": 15, ".5": 0, "9223372036": 9223372036}
        for text, value in table.items():
            self.assertEqual(self.model(f"ttl: {text}").ttl, value, text)
        for bad in ('"30"', "soon", "true", "[1]", "99999999999999999999", ".inf", ".nan", "2024-01-01"):
            self.refused(f"{MODEL}globalTTL: {bad}\n", "globalTTL: cannot unmarshal", "into int")

    def test_a_boolean_may_be_an_old_word(self) -> None:
        """`yes`, `on` and their like count, quoted or not; `"true"` in quotes and 1 do not."""
        for word in ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "TRUE", '"yes"', "'on'"):
            self.assertTrue(self.model(f"unlisted: {word}").unlisted, word)
        for word in ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "'off'", "~"):
            self.assertFalse(self.model(f"unlisted: {word}").unlisted, word)
        for bad in ('"true"', "1", "0", "maybe", "tRUE", "[]", "1.0"):
            self.refused(f"models: {{a: {{cmd: 's ${{PORT}}', unlisted: {bad}}}}}\n", "models.a.unlisted", "into bool")

    def test_null_items_of_a_text_list_are_dropped(self) -> None:
        """A list of texts has no nulls; a scalar is no list."""
        self.assertEqual(self.model("aliases: [x, ~, null, 7, true, yes]").aliases, ("x", "7", "true", "yes"))
        self.refused("models: {a: {cmd: 's ${PORT}', aliases: one}}\n", "models.a.aliases", "`one` into []string")

    def test_metadata_keeps_its_types(self) -> None:
        """Nulls, nesting and numbers stay; a float without fraction is a whole number, as the reference lists it."""
        found = self.model(
            "metadata: {n: ~, l: [1, ~, {x: [true]}], e: {}, f: 3.0, g: 0.5, big: 1e21, t: ' x'}"
        ).metadata
        self.assertEqual(
            found, {"n": None, "l": [1, None, {"x": [True]}], "e": {}, "f": 3, "g": 0.5, "big": 1e21, "t": " x"}
        )
        self.assertIs(type(found["f"]), int)

    def test_metadata_that_json_cannot_carry_becomes_text(self) -> None:
        """Infinite numbers, dates and keys that are no text never break the listing."""
        found = self.model("metadata: {i: .inf, n: .nan, d: 2024-01-01, m: {8: small, ~: x, true: y}}").metadata
        self.assertEqual(
            found,
            {"i": ".inf", "n": ".nan", "d": "2024-01-01T00:00:00Z", "m": {"8": "small", "null": "x", "true": "y"}},
        )

    def test_an_empty_value_is_null_in_flow_style_too(self) -> None:
        """`{x: }` is the same as `x:` in block style."""
        self.assertEqual(self.model("metadata: {x: , y: 1}, ttl: ").metadata, {"x": None, "y": 1})

    def test_a_null_leaves_the_default(self) -> None:
        """No key minds a null."""
        keys = "aliases env filters metadata capabilities timeouts compat proxy checkEndpoint name description ttl"
        keys += " useModelName unlisted concurrencyLimit macros cmdStop sendLoadingState unloadTimeout kvCache sleep"
        keys += " keep memory on_startup healthCheckTimeout"
        self.assertEqual(self.model(", ".join(f"{key}: ~" for key in keys.split())), self.model(""))
        top = "healthCheckTimeout globalTTL unloadTimeout logLevel logTimeFormat captureBuffer metricsMaxInMemory"
        top += " sendLoadingState includeAliasesInList apiKeys macros groups profiles selectors peers hooks performance"
        top += (
            " upstream ui routing store matrix limits autoUnload fallback fallbackDelay budgets startPort logToStdout"
        )
        self.assertEqual(self.good("".join(f"{key}:\n" for key in top.split()) + MODEL), self.good(MODEL))
