"""`lswap.core.command`: comment lines and words."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.command import split, strip_comments


def posix(text: str) -> list[str]:
    """Words by POSIX rules."""
    return split(text, windows=False)


def windows(text: str) -> list[str]:
    """Words by the rules of Windows."""
    return split(text, windows=True)


class StripCommentsTests(SynchronousTestCase):
    """Which lines are comments."""

    def test_lines_that_begin_with_a_hash_are_dropped(self) -> None:
        """A line is a comment when its first character that is not blank is `#`; order and blank lines stay."""
        self.assertEqual(strip_comments("a\n# x\n\n   # y\n\tb # c\n##\n"), "a\n\n\tb # c\n")

    def test_only_comments_leave_nothing(self) -> None:
        """Comments alone, and nothing at all, are the empty text."""
        self.assertEqual(strip_comments("# a\n  # b"), "")
        self.assertEqual(strip_comments(""), "")

    def test_quotes_do_not_protect_a_comment_line(self) -> None:
        """The rule is one of lines: also within a quoted text of several lines."""
        self.assertEqual(strip_comments("run 'a\n# b\nc'"), "run 'a\nc'")


class PosixTests(SynchronousTestCase):
    """Words by POSIX rules."""

    def check(self, table: dict[str, list[str]]) -> None:
        """Each text has these words."""
        for text, words in table.items():
            self.assertEqual(posix(text), words, text)

    def test_quotes(self) -> None:
        """Single quotes keep all, double quotes let some escapes through, and both may stand within a word."""
        self.check(
            {
                r"""run --a 'x y' --b "p \"q\" r" """: ["run", "--a", "x y", "--b", 'p "q" r'],
                r"""--gpus '"device=2,3"'""": ["--gpus", '"device=2,3"'],
                r"""--t '{"a": "b c"}' "it's" """: ["--t", '{"a": "b c"}', "it's"],
                r"""a"b c"d 'e'"f"g --x="1 2" --y='3 4'""": ["ab cd", "efg", "--x=1 2", "--y=3 4"],
                r"""'' "" a""b x""": ["", "", "ab", "x"],
                r"""'a\b\'c "a\b\n\$\`\\" """: ["a\\b\\c", "a\\b\\n$`\\"],
                "'x y'": ["x y"],
                "\"'x'\"": ["'x'"],
            }
        )

    def test_backslashes_outside_of_quotes(self) -> None:
        """A backslash makes the next character an ordinary one, and vanishes."""
        self.check({r"""a\ b \'c \" \\d \$e C:\x\y""": ["a b", "'c", '"', r"\d", "$e", "C:xy"]})

    def test_nothing_of_a_shell_is_done(self) -> None:
        """Variables, globs, pipes and comments within a line are plain text."""
        for text in ("$HOME ${HOME:-x} ~ *.py ?", "a | b > c < d && e ; f &", "$(id) `id` {a,b} (c) !d", "a # b #c"):
            self.assertEqual(posix(text), text.split())

    def test_only_blank_tab_and_newline_separate(self) -> None:
        """Other white space belongs to words."""
        self.check({"a\tb\nc  d": ["a", "b", "c", "d"], "a\u00a0b\vc\fd\re": ["a\u00a0b\vc\fd\re"]})

    def test_lines_are_one_command(self) -> None:
        """A newline separates words; a backslash at the end of a line is allowed, and comments may stand between."""
        self.check(
            {
                "run \\\n  --a 1 \\\n  # why\n  --b 2": ["run", "--a", "1", "--b", "2"],
                "--a 1\n--b 2": ["--a", "1", "--b", "2"],
                "--a\\\n--b": ["--a", "--b"],
                "--a \\  \n  --b": ["--a", "--b"],
                "--last \\\n": ["--last"],
                "--a 1 \\\n# x\n   # 'open\n--c 3": ["--a", "1", "--c", "3"],
                "--s 'one # two'\n--t \"two\n  three\"": ["--s", "one # two", "--t", "two\n  three"],
            }
        )

    def test_an_escaped_backslash_ends_no_line(self) -> None:
        """Two backslashes at the end of a line are one in the word, which gets no blank."""
        self.check({"a\\\\\nb": ["a\\", "b"], "a\\\\\\\nb": ["a\\", "b"]})

    def test_an_open_quote_runs_to_the_end(self) -> None:
        """A quote that is never closed is no error."""
        self.check({"a 'b c": ["a", "b c"], 'a "b c': ["a", "b c"], "a '": ["a", ""], "a\\": ["a"]})

    def test_nothing_has_no_words(self) -> None:
        """Blanks and comments alone are no words."""
        for text in ("", "  \n\t", "# a\n  # b"):
            self.assertEqual(posix(text), [])

    @given(st.text("ab \t\n'\"\\#$", max_size=30))
    def test_any_text_has_words(self, text: str) -> None:
        """No text fails, and no character comes from nowhere."""
        for word in posix(text) + windows(text):
            self.assertLessEqual(set(word), set(text) | {" "})

    @given(st.lists(st.text("ab '\"\\#$*\u00e9", min_size=1, max_size=8), min_size=1, max_size=5))
    def test_quoted_words_come_back(self, words: list[str]) -> None:
        """What is quoted as for a shell comes back as it was."""
        text = "x " + shlex.join(words)
        self.assertEqual(posix(text), ["x", *words])

    @given(st.text("ab \t'\"\\", max_size=30))
    def test_the_standard_library_agrees(self, text: str) -> None:
        """Where `shlex` takes a line, the words are the same, but for the two characters it does not escape."""
        try:
            expected = shlex.split(text)
        except ValueError:
            return
        if not text.rstrip().endswith("\\"):
            self.assertEqual(posix(text), expected)

    def test_long_commands_take_no_time(self) -> None:
        """A megabyte of anything is split in a pass."""
        for piece in ("'", '"', "\\", "a ", "#\n", '\\"'):
            split(piece * (1 << 17), windows=False)
            split(piece * (1 << 17), windows=True)


class WindowsTests(SynchronousTestCase):
    """Words by the rules of Windows."""

    def test_quotes_and_backslashes(self) -> None:
        """Only double quotes quote; backslashes mean something before one only."""
        table = {
            "C:\\x\\y": ["C:\\x\\y"],
            "a 'b c'": ["a", "'b", "c'"],
            "'\"x y\"'": ["'x y'"],
            '"a b" c': ["a b", "c"],
            '"a""b"': ['a"b'],
            'a\\\\"b c"': ["a\\b c"],
            'a\\\\\\"b': ['a\\"b'],
            'a\\"b': ['a"b'],
            '""': [""],
            "a\rb": ["a", "b"],
            "a \\\nb": ["a", "b"],
        }
        for text, words in table.items():
            self.assertEqual(windows(text), words, text)
