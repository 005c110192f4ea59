"""What the words of a command line mean (`lswap.options`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.options import FLAGS, Flag, OptionError, Settings, read, settle, usage


class ReadTests(SynchronousTestCase):
    """Go's flag syntax."""

    def refused(self, *words: str) -> OptionError:
        """The error that these words are refused with."""
        error: OptionError = self.assertRaises(OptionError, read, words)
        return error

    def test_value_as_next_word_or_after_equals_sign(self) -> None:
        """A value follows as the next word or after `=`, behind one dash or two."""
        for words in (["-config", "f"], ["--config", "f"], ["-config=f"], ["--config=f"], ["-c", "f"], ["--c=f"]):
            self.assertEqual(read(words), {"config": "f"}, words)

    def test_values_are_taken_as_they_are(self) -> None:
        """A value may hold `=`, be empty, or look like a flag."""
        self.assertEqual(read(["-config=a=b"]), {"config": "a=b"})
        self.assertEqual(read(["-config="]), {"config": ""})
        self.assertEqual(read(["-config", "-listen"]), {"config": "-listen"})
        self.assertEqual(read(["-config", "--"]), {"config": "--"})

    def test_last_of_repeated_flags_wins(self) -> None:
        """A flag may be repeated, in either of its names; the last one counts."""
        self.assertEqual(read(["-c", "a", "--config", "b"]), {"config": "b"})
        self.assertEqual(read(["-watch-config", "-watch-config=f"]), {"watch-config": False})

    def test_boolean_flags_take_their_value_after_the_equals_sign(self) -> None:
        """A boolean flag alone is true; twelve words are true or false."""
        self.assertEqual(read(["-watch-config", "-c", "f"]), {"watch-config": True, "config": "f"})
        for word in ("1", "t", "T", "true", "TRUE", "True"):
            self.assertEqual(read([f"--watch-config={word}"]), {"watch-config": True}, word)
        for word in ("0", "f", "F", "false", "FALSE", "False"):
            self.assertEqual(read([f"-watch-config={word}"]), {"watch-config": False}, word)

    def test_other_words_are_neither_true_nor_false(self) -> None:
        """Any other word, an empty one too, is refused with the reference's text."""
        for word in ("perhaps", "", "yes", "tRue"):
            error = self.refused(f"--watch-config={word}")
            self.assertEqual(str(error), f'invalid boolean value "{word}" for -watch-config: parse error')
            self.assertEqual(error.status, 2)

    def test_unknown_flag(self) -> None:
        """A flag that does not exist is named, with one dash."""
        for word in ("-nope", "--nope", "--nope=3"):
            error = self.refused("-c", "f", word)
            self.assertEqual((str(error), error.status), ("flag provided but not defined: -nope", 2))

    def test_value_missing(self) -> None:
        """A flag that lacks its value is named as it was written."""
        for word, name in (("--config", "config"), ("-c", "c"), ("-listen", "listen")):
            error = self.refused(word)
            self.assertEqual((str(error), error.status), (f"flag needs an argument: -{name}", 2))

    def test_bad_syntax(self) -> None:
        """Three dashes, or no name, are no flag."""
        for word in ("---config", "-=x", "--=x"):
            error = self.refused(word)
            self.assertEqual((str(error), error.status), (f"bad flag syntax: {word}", 2))

    def test_leftover_words_are_refused(self) -> None:
        """A word that is no flag is named, wherever it stands, so that no later flag gets lost."""
        for words in (["-watch-config", "true", "-c", "f"], ["true"], ["-c", "f", "true"], ["-c", "f", "--", "true"]):
            error = self.refused(*words)
            self.assertIn('"true"', str(error))
            self.assertEqual(error.status, 2)
        self.assertIn('"-"', str(self.refused("-")))

    def test_two_dashes_alone_end_the_flags(self) -> None:
        """`--` with nothing behind it is allowed."""
        self.assertEqual(read(["-c", "f", "--"]), {"config": "f"})

    def test_help_ends_the_reading(self) -> None:
        """What stands after a wish for help is not looked at; what stands before is."""
        for word in ("-h", "--h", "-help", "--help"):
            self.assertEqual(read(["-c", "f", word, "-nope"]), {"help": True}, word)
        self.assertEqual(str(self.refused("-nope", "-h")), "flag provided but not defined: -nope")

    @given(st.lists(st.text(max_size=12) | st.sampled_from([f"-{flag.name}" for flag in FLAGS]), max_size=6))
    def test_any_words_are_read_or_refused(self, words: list[str]) -> None:
        """No words can bring about anything but values or an OptionError."""
        try:
            found = read(words)
        except OptionError as error:
            self.assertEqual(error.status, 2)
        else:
            self.assertLessEqual(set(found), {flag.name for flag in FLAGS} | {"help"})


class SettleTests(SynchronousTestCase):
    """What flags mean together."""

    def refused(self, **values: str | bool) -> str:
        """The text that these flags are refused with; the exit code must be 1."""
        found = {name.replace("_", "-"): value for name, value in values.items()}
        error: OptionError = self.assertRaises(OptionError, settle, found)
        self.assertEqual(error.status, 1)
        return str(error)

    def test_a_source_is_needed(self) -> None:
        """Without a file and a folder there is nothing to run; empty names count as none."""
        text = "at least one of -config or -config-dir must be provided"
        self.assertEqual(self.refused(), text)
        self.assertEqual(self.refused(config="", config_dir=""), text)
        self.assertEqual(self.refused(tls_cert_file="x"), text)

    def test_defaults(self) -> None:
        """One source is enough; the port is 8080 on all addresses."""
        self.assertEqual(settle({"config": "f"}), Settings(config="f", listen=":8080"))
        self.assertEqual(settle({"config-dir": "d"}), Settings(config_dir="d", listen=":8080"))

    def test_given_values(self) -> None:
        """What is given arrives."""
        values: dict[str, str | bool] = {"config": "f", "config-dir": "d", "listen": "[::1]:9", "watch-config": False}
        expected = Settings(config="f", config_dir="d", listen="[::1]:9", umask=0o27)
        self.assertEqual(settle(values, umask=0o27), expected)

    def test_an_empty_address_is_the_default(self) -> None:
        """`-listen ""` is as good as none."""
        self.assertEqual(settle({"config": "f", "listen": ""}).listen, ":8080")

    def test_tls_needs_both_files(self) -> None:
        """One TLS file without the other is refused with the reference's text."""
        text = "both -tls-cert-file and -tls-key-file must be provided for TLS"
        self.assertEqual(self.refused(config="f", tls_cert_file="c"), text)
        self.assertEqual(self.refused(config="f", tls_key_file="k"), text)
        self.assertEqual(self.refused(config="f", tls_key_file="k", tls_cert_file=""), text)

    def test_tls(self) -> None:
        """With both files TLS is on, and the port is 8443 unless it is given."""
        files: dict[str, str | bool] = {"config": "f", "tls-cert-file": "c", "tls-key-file": "k"}
        self.assertEqual(settle(files), Settings(config="f", listen=":8443", tls_cert_file="c", tls_key_file="k"))
        self.assertEqual(settle({**files, "listen": ":9"}).listen, ":9")

    def test_folder(self) -> None:
        """Completes all paths that are not complete, and nothing else."""
        values: dict[str, str | bool] = {"config": "f", "config-dir": "/d", "tls-cert-file": "c", "tls-key-file": "k"}
        expected = Settings(
            config="/x/f", config_dir="/d", listen=":8443", tls_cert_file="/x/c", tls_key_file="/x/k", umask=2
        )
        self.assertEqual(settle(values, 2, "/x"), expected)
        self.assertIsNone(settle({"config": "f"}, folder="/x").config_dir)

    def test_watching(self) -> None:
        """Watching is off unless it is asked for."""
        self.assertFalse(settle({"config": "f"}).watch_config)
        self.assertTrue(settle({"config": "f", "watch-config": True}).watch_config)


class TextTests(SynchronousTestCase):
    """Help and version."""

    def test_usage_names_the_command_and_all_flags(self) -> None:
        """Every flag, its short form and its value are in the help."""
        text = usage("lswap")
        self.assertTrue(text.startswith("Usage: lswap [flags]\n"))
        for flag in FLAGS:
            self.assertIn(f"-{flag.name} {flag.value}".rstrip(), text)
            self.assertIn(flag.help, text)
        self.assertIn("-c, -config FILE", text)
        self.assertIn("-h, -help", text)

    def test_usage_of_a_command_with_other_flags(self) -> None:
        """A command may have flags of its own."""
        self.assertIn("-quick", usage("lswap x", (Flag("quick", "", "no questions"),)))

    def test_usage_fits_a_terminal(self) -> None:
        """No line is longer than a common terminal is wide."""
        self.assertLessEqual(max(map(len, usage("twistd [options of twistd] llamaswap").splitlines())), 100)
