"""What the tests of the configuration share: loading a text, and looking at what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Loaded, Source, load
from lswap.core.model import Config, Model

__all__ = ["ConfigCase"]

#: A model that needs nothing else.
MODEL = "models: {a: {cmd: 's ${PORT}'}}\n"


class ConfigCase(SynchronousTestCase):
    """Loads texts as files `config.yaml`, or several by their names."""

    def load(
        self, text: str | bytes | Mapping[str, str], environ: Mapping[str, str] = {}, ports: Mapping[str, int] = {}
    ) -> Loaded:
        """What becomes of a text, or of several as {file name: text}."""
        files = text if isinstance(text, Mapping) else {"config.yaml": text}
        sources = [Source(name, t if isinstance(t, bytes) else t.encode()) for name, t in files.items()]
        return load(sources, environ, ports)

    def good(
        self, text: str | Mapping[str, str], environ: Mapping[str, str] = {}, ports: Mapping[str, int] = {}
    ) -> Config:
        """The configuration of a text without mistakes."""
        loaded = self.load(text, environ, ports)
        self.assertEqual([str(problem) for problem in loaded.problems], [], text)
        assert loaded.config is not None
        return loaded.config

    def model(self, inside: str, top: str = "", environ: Mapping[str, str] = {}) -> Model:
        """The model `fox` with `${PORT}` in its command, and this inside of a flow mapping."""
        more = f", {inside}" if inside else ""
        return self.good(f"{top}models: {{fox: {{cmd: 's ${{PORT}}'{more}}}}}\n", environ).models["fox"]

    def told(self, text: str | bytes | Mapping[str, str], environ: Mapping[str, str] = {}) -> str:
        """All problems of a text with mistakes, one a line."""
        loaded = self.load(text, environ)
        self.assertIsNone(loaded.config, f"accepted: {text!r}")
        self.assertNotEqual(loaded.problems, ())
        return "\n".join(str(problem) for problem in loaded.problems)

    def refused(self, text: str | Mapping[str, str], *words: str, environ: Mapping[str, str] = {}) -> None:
        """A text with mistakes, of which all these words are told."""
        told = self.told(text, environ)
        for word in words:
            self.assertIn(word, told)

    def all_refused(self, rows: Iterable[tuple[str, ...]]) -> None:
        """Rows of (text, words that are told)."""
        for text, *words in rows:
            self.refused(text, *words)

    def all_good(self, texts: Iterable[str]) -> None:
        """Texts without mistakes."""
        for text in texts:
            self.good(text)

    def warned(self, text: str | Mapping[str, str], environ: Mapping[str, str] = {}) -> list[str]:
        """The warnings about a text without mistakes."""
        self.good(text, environ)
        return [str(warning) for warning in self.load(text, environ).warnings]
