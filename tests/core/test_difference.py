"""What a new configuration changes (`lswap.core.difference`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Source, load
from lswap.core.difference import Difference, difference, same_process
from lswap.core.model import Config, Model


def config(text: str) -> Config:
    """A configuration without a problem."""
    loaded = load([Source("config.yaml", text.encode())], {})
    assert loaded.config is not None, loaded.problems
    return loaded.config


def model(rows: str = "", cmd: str = "server --port ${PORT} -m a") -> Model:
    """One model with these further keys, one a line."""
    lines = "".join(f"    {row}\n" for row in rows.splitlines())
    return config(f"macros: {{k: a}}\nmodels:\n  a:\n    cmd: {cmd}\n{lines}").models["a"]


class DifferenceTests(SynchronousTestCase):
    """Each model is in exactly one list."""

    def test_all_lists(self) -> None:
        """Changed, added, removed and kept models, each sorted by the bytes of their IDs."""
        old = config("models: {é: {cmd: s, proxy: 'http://h'}, z: {cmd: s, proxy: 'http://h'}, Z: {cmd: s, proxy: 'http://h'},"
                     " y: {cmd: s, proxy: 'http://h'}, gone: {cmd: s, proxy: 'http://h'}}")  # fmt: skip
        new = config("models: {new: {cmd: s, proxy: 'http://h'}, z: {cmd: s 2, proxy: 'http://h'}, y: {cmd: s, proxy: 'http://h'},"
                     " Z: {cmd: s 2, proxy: 'http://h'}, é: {cmd: s 2, proxy: 'http://h'}}")  # fmt: skip
        self.assertEqual(difference(old, new), Difference(("Z", "z", "é"), ("new",), ("gone",), ("y",)))

    def test_nothing(self) -> None:
        """A configuration against itself: all is kept."""
        same = config("models: {a: {cmd: 's ${PORT}'}, b: {cmd: 's ${PORT}'}}")
        self.assertEqual(difference(same, same), Difference((), (), (), ("a", "b")))

    def test_renamed(self) -> None:
        """Another ID is another model, whatever it runs."""
        made = difference(config("models: {a: {cmd: 's ${PORT}'}}"), config("models: {b: {cmd: 's ${PORT}'}}"))
        self.assertEqual((made.added, made.removed), (("b",), ("a",)))


class SameProcessTests(SynchronousTestCase):
    """What a process was started with."""

    def assert_same(self, old: Model, new: Model, same: bool = True) -> None:
        """Both ways round."""
        self.assertEqual((same_process(old, new), same_process(new, old)), (same, same))

    def test_changes(self) -> None:
        """Command, environment, proxy, check endpoint and stop command each make another process."""
        for row in (
            "env: [A=1]",
            "proxy: http://127.0.0.1:${PORT}",
            "checkEndpoint: /ready",
            "checkEndpoint: none",
            "cmdStop: kill ${PID}",
        ):
            self.assert_same(model(), model(row), False)
        self.assert_same(model(), model(cmd="server --port ${PORT} -m b"), False)
        self.assert_same(model("env: [A=1]"), model("env: [A=2]"), False)
        self.assert_same(model("env: [A=1, B=2]"), model("env: [A=1]"), False)
        self.assert_same(model("cmdStop: kill ${PID}"), model("cmdStop: kill -9 ${PID}"), False)

    def test_the_rest(self) -> None:
        """Whatever else a model says is no matter of its process."""
        rows = (
            "ttl: 3\naliases: [x]\nname: N\ndescription: D\nunlisted: true\nmetadata: {k: 1}\nconcurrencyLimit: 3\n"
            "unloadTimeout: 4\nfilters: {setParams: {p: 1}}\nuseModelName: q\nsendLoadingState: true\n"
            "timeouts: {connect: 7}\ncapabilities: {tools: true}"
        )
        self.assert_same(model(), model(rows))

    def test_spelling(self) -> None:
        """Quotes, blanks, macros, comments and the order of variables are spelling."""
        self.assert_same(model(), model(cmd="""server  --port ${PORT} '-m'   "${k}" """))
        self.assert_same(model(), model(cmd="|\n      # a comment\n      server --port ${PORT} \\\n        -m a"))
        self.assert_same(model("cmdStop: kill ${PID}"), model("cmdStop: kill  '${PID}'"))
        self.assert_same(model("env: [A=1, B=2]"), model("env: [B=2, A=1]"))
        self.assert_same(model("env: [A=1, A=2]"), model("env: [A=2]"))
