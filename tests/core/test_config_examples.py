"""The example configurations: each loads without a word, and is what its first line says."""

from __future__ import annotations

import pathlib

from tests.core.config_case import ConfigCase

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
#: What an example needs that says so in its first line.
ENVIRON = {"LSWAP_KEY": "key-of-the-environment"}


class ExampleTests(ConfigCase):
    """The files of `examples/`."""

    def test_each_loads_without_a_warning(self) -> None:
        """No problem, no warning, and every model has a command."""
        paths = sorted(EXAMPLES.glob("*.yaml"))
        self.assertGreaterEqual(len(paths), 7)
        for path in paths:
            text = path.read_text()
            self.assertEqual(self.warned(text, ENVIRON), [], path.name)
            self.assertTrue(all(model.words for model in self.good(text, ENVIRON).models.values()), path.name)

    def test_the_first_line_says_what_it_is(self) -> None:
        """A comment, and the variables that it needs."""
        for path in EXAMPLES.glob("*.yaml"):
            text = path.read_text()
            first = text.partition("\n")[0]
            self.assertRegex(first, r"^# \S", path.name)
            self.assertEqual("${env.LSWAP_KEY}" in text, "LSWAP_KEY" in first, path.name)

    def test_two_are_large(self) -> None:
        """Two have about fifty models, and one of them a matrix."""
        sizes = {path.name: len(self.good(path.read_text(), ENVIRON).models) for path in EXAMPLES.glob("*.yaml")}
        self.assertEqual((sizes["collection.yaml"], sizes["matrix.yaml"]), (50, 49))
        self.assertEqual(self.good((EXAMPLES / "matrix.yaml").read_text()).router, "matrix")
