"""What the loader is given and what it has to say: sources, problems, and the collector that all stages share.

Decides how a place in a source is told (line and column of the text as written, before `${env.X}` was replaced) and
that no secret ever gets into a message. Read `lswap.core.config` next: the order of the stages.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

__all__ = ["HIDDEN", "NOWHERE", "Place", "Problem", "Report", "Source", "Text"]

#: Stands in a message where a value is secret.
HIDDEN = "(hidden)"

#: Errors that are kept, and as many warnings; who has more does not read them.
_MOST = 500

#: Words that a load compares to find the nearest one; without a bound, a thousand mistakes take seconds.
_COMPARISONS = 20_000

#: Characters of a value that a message shows.
_LONGEST_VALUE = 60

#: Characters in which the place of a macro is looked for.
_LONGEST_SEARCH = 1 << 14

#: Shorter texts are no secrets worth the damage that hiding them would do to messages.
_SHORTEST_SECRET = 4


class Source(msgspec.Struct, frozen=True):
    """One configuration file, read already."""

    path: str
    text: bytes


class Problem(msgspec.Struct, frozen=True, order=True):
    """Something wrong with a configuration, as it is shown to the person who wrote it.

    `line` and `column` count from 1; 0 is "no place". `path` is the key (`models.fox.ttl`), `hint` what would be right.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """`file:line:column: path: message: hint`, without the parts that are empty.

        The path is left out where the message itself begins with it.
        """
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        path = "" if self.message.startswith((f"{self.path} ", f"{self.path}:")) else self.path
        return ": ".join(part for part in (place, path, self.message, self.hint) if part)


class Place(NamedTuple):
    """A character of a source: number of the file, index into its text after `${env.X}` was replaced."""

    file: int
    at: int


#: Values that were not written anywhere.
NOWHERE = Place(-1, 0)


class Text:
    """The text of one source before and after `${env.X}` was replaced, and the way back from one to the other."""

    def __init__(
        self, path: str, raw: str, edits: Iterable[tuple[int, int, int]] = (), replaced: str | None = None
    ) -> None:
        """`edits`: one (index in the raw text, length there, length of the replacement) for each one, in order."""
        self.path = path
        self._raw = raw
        self._replaced = raw if replaced is None else replaced
        self._starts: list[int] = []
        self._edits: list[tuple[int, int, int]] = []
        #: Where something was replaced by nothing.
        self.emptied: list[int] = []
        shift = 0
        for index, length, new in edits:
            self._starts.append(index + shift)
            self._edits.append((index, length, new))
            if new == 0:
                self.emptied.append(index + shift)
            shift += new - length
        self._lines: list[int] | None = None

    def original(self, index: int) -> int:
        """The index in the raw text that belongs to one in the replaced text."""
        at = bisect.bisect_right(self._starts, index) - 1
        if at < 0:
            return index
        start, length, new = self._edits[at]
        beyond = index - self._starts[at] - new
        return start if beyond < 0 else start + length + beyond

    def holds(self, index: int, text: str) -> bool:
        """Whether a text stands at about this place of the raw text; line breaks and quotes may differ."""
        start = self.original(index)
        line = text.partition("\n")[0]
        return bool(line) and line in self._raw[start : start + len(line) + 200]

    def find(self, index: int, use: str) -> int:
        """Where a macro is used, from the beginning of a value on; that beginning if it cannot be told.

        Comment lines of a command are passed over.
        """
        end = index + _LONGEST_SEARCH
        at = self._replaced.find(use, index, end)
        while at >= 0:
            start = max(index, self._replaced.rfind("\n", index, at) + 1)
            if not self._replaced[start:at].lstrip().startswith("#"):
                return at
            at = self._replaced.find(use, at + 1, end)
        return index

    def position(self, index: int) -> tuple[int, int]:
        """Line and column, both from 1, of an index into the replaced text. Only `\\n` ends a line, as in editors."""
        if self._lines is None:
            self._lines = [-1]
            at = self._raw.find("\n")
            while at >= 0:
                self._lines.append(at)
                at = self._raw.find("\n", at + 1)
        raw = min(self.original(index), len(self._raw))
        line = bisect.bisect_left(self._lines, raw)
        return line, raw - self._lines[line - 1]


class Report:
    """Collects problems and warnings of all stages; one a load."""

    def __init__(self) -> None:
        self.texts: list[Text] = []
        self._errors: dict[Problem, None] = {}
        self._warnings: dict[Problem, None] = {}
        self._secrets: set[str] = set()
        self._comparisons = _COMPARISONS
        self._left_out = 0

    def hide(self, secret: str) -> None:
        """Never show this text, wherever it may turn up."""
        secret = secret.strip()
        if len(secret) >= _SHORTEST_SECRET:
            self._secrets.add(secret)

    def shown(self, value: str) -> str:
        """A value as it may stand in a message: short, and without secrets."""
        if self._secrets and any(secret in value for secret in self._secrets):
            return HIDDEN
        return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 3] + "..."

    def did_you_mean(self, word: str, known: Iterable[str]) -> str:
        """A hint with the known word that is most like this one; empty if none is."""
        near = self.nearest(word, known)
        return f'did you mean "{near}"?' if near and near != word else ""

    def nearest(self, word: str, known: Iterable[str], likeness: float = 0.6) -> str:
        """The known word that is most like this one; empty if none is, or after many such questions.

        `likeness`: from 0, anything, to 1, the same but for case, `_` and `-`.
        """
        folded = {_folded(name): name for name in known}
        bare = _folded(word[:64])
        if bare in folded:
            return folded[bare]
        self._comparisons -= len(folded)
        found = difflib.get_close_matches(bare, folded, 1, likeness) if self._comparisons > 0 else []
        return folded[found[0]] if found else ""

    def error(self, place: Place, path: str, message: str, hint: str = "") -> None:
        """The configuration cannot be used."""
        if len(self._errors) < _MOST:
            self._errors[self._problem(place, path, message, hint)] = None
        else:
            self._left_out += 1

    def warn(self, place: Place, path: str, message: str, hint: str = "") -> None:
        """It can be used, but hardly as it was meant."""
        if len(self._warnings) < _MOST:
            self._warnings[self._problem(place, path, message, hint)] = None

    def written(self, place: Place, text: str) -> bool:
        """Whether a value stands in its source as it is, not as `${env.X}`."""
        return place.file >= 0 and self.texts[place.file].holds(place.at, text)

    def use_of(self, name: str, value: str, place: Place) -> Place:
        """The place of `${name}` within a value of possibly many lines; its beginning if it came from a macro."""
        use = f"${{{name}}}"
        if place.file < 0 or use not in value:
            return place
        return Place(place.file, self.texts[place.file].find(place.at, use))

    def locate(self, place: Place) -> tuple[str, int, int]:
        """File, line and column; empty and zero for `NOWHERE`."""
        if place.file < 0:
            return "", 0, 0
        text = self.texts[place.file]
        return text.path, *text.position(place.at)

    @property
    def count(self) -> int:
        """How many errors there are by now."""
        return len(self._errors)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All errors, by place; files in the order of the sources."""
        found = self._sorted(self._errors)
        more = Problem("", 0, 0, "", f"and {self._left_out} more problems")
        return (*found, more) if self._left_out else found

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """All warnings, by place."""
        return self._sorted(self._warnings)

    def _sorted(self, found: Iterable[Problem]) -> tuple[Problem, ...]:
        order = {text.path: number for number, text in enumerate(self.texts)}
        clean = {
            Problem(p.file, p.line, p.column, self._clean(p.path), self._clean(p.message), self._clean(p.hint)): None
            for p in found
        }
        return tuple(sorted(clean, key=lambda p: (order.get(p.file, -1), p.line, p.column)))

    def _problem(self, place: Place, path: str, message: str, hint: str) -> Problem:
        return Problem(*self.locate(place), path, message, hint)

    def _clean(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    """No control character reaches a terminal."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _folded(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
