"""Whatever is in a file: problems or a configuration, never an exception, and never for long."""

from __future__ import annotations

import os
import pathlib
import random
import time
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lswap.core.config import Loaded, Source, load
from lswap.core.config.convert import fields_of
from lswap.core.config.layout import Document
from lswap.core.model import Config, Model
from tests.core.config_case import ConfigCase

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
ENVIRON = {"SET": "value", "EMPTY": "", "NUMBER": "5", "ODD": 'a: "b" \\ # [', "LSWAP_KEY": "key-1", "HOME": "/home/me"}
#: More of them, for a longer search: LSWAP_EXAMPLES=5000.
QUICK = settings(
    max_examples=int(os.environ.get("LSWAP_EXAMPLES", "60")),
)

#: Words that mean something somewhere, so that random configurations go deep.
KEYS = sorted({*fields_of(Document), *fields_of(Model)})
WORDS = [
    "a",
    "b",
    "c",
    "a/b",
    "none",
    "pin",
    "spillover",
    "matrix",
    "group",
    "fair",
    "5",
    "5s",
    "20G",
    "yes",
    "http://h:1",
    "/x",
]
WORDS += [
    "${PORT}",
    "${a}",
    "${MODEL_ID}-x",
    "${PID}",
    "${nope}",
    "a & b | +c",
    "run ${PORT} 'x",
    "K=v",
    "${env.SET}",
    "${env.NO}",
]
INNER = [
    "proxy",
    "models",
    "targets",
    "strategy",
    "members",
    "swap",
    "vars",
    "sets",
    "evict_costs",
    "use",
    "settings",
    "router",
]
INNER += [
    "scheduler",
    "fifo",
    "priority",
    "groups",
    "matrix",
    "pins",
    "http",
    "POST",
    "cmd",
    "json",
    "timeout",
    "on_startup",
]
INNER += [
    "preload",
    "key",
    "keyFile",
    "env",
    "allow",
    "name",
    "a",
    "b",
    "in",
    "context",
    "setParams",
    "setParamsByID",
    "sleep",
    "wake",
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70000),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=6),
    st.dates(),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(INNER + KEYS) | st.text(max_size=4), inner, max_size=4),
    ),
    max_leaves=12,
)
models = st.dictionaries(
    st.sampled_from("abc"), st.dictionaries(st.sampled_from(KEYS), values, max_size=5) | values, max_size=3
)
documents = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(KEYS, values),
        "models": models,
        "macros": st.dictionaries(st.sampled_from(["a", "b", "c", "PORT"]), scalars, max_size=3),
    },
)


def texts() -> list[str]:
    """The texts of all examples."""
    return [path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))]


class AnyInputTests(ConfigCase):
    """Properties of every load."""

    def check(self, *sources: bytes) -> Loaded:
        """Load, and look at what has to be true of every result."""
        begun = time.process_time()
        loaded = load([Source(f"{at}.yaml", text) for at, text in enumerate(sources)], ENVIRON)
        self.assertLess(time.process_time() - begun, 2.0)
        self.assertEqual(loaded.config is None, bool(loaded.problems))
        for problem in (*loaded.problems, *loaded.warnings):
            self.assertTrue(problem.message)
            self.assertTrue(str(problem).isprintable())
            self.assertNotIn("\ue000", str(problem))
            self.assertEqual(bool(problem.file), problem.line > 0)
        if loaded.config is not None:
            self.check_config(loaded.config)
        return loaded

    def check_config(self, config: Config) -> None:
        """Names lead to models, members exist, ports are different."""
        ports = [model.port for model in config.models.values() if model.port is not None]
        self.assertEqual(len(ports), len(set(ports)))
        for name, model_id in config.names.items():
            self.assertIn(model_id, config.models)
            self.assertEqual(config.resolve(name), model_id)
        members = [member for group in config.groups.values() for member in group.members]
        self.assertEqual(len(members), len(set(members)))
        if config.router == "group":
            self.assertEqual(set(members), set(config.models))
        self.assertLessEqual(set(config.preload), set(config.models))
        for model in config.models.values():
            self.assertNotIn("${PORT}", model.cmd)

    @QUICK
    @given(documents)
    def test_random_configurations(self, document: dict[str, Any]) -> None:
        """Any keys with any values."""
        self.check(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace"))

    @QUICK
    @given(documents, documents)
    def test_random_configurations_of_two_files(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        """Also merged."""
        self.check(*(yaml.safe_dump(one).encode("utf-8", "replace") for one in (first, second)))

    @QUICK
    @given(st.binary(max_size=200))
    def test_random_bytes(self, data: bytes) -> None:
        """Most of these are no text at all."""
        self.check(data)

    @QUICK
    @given(st.text("ab:-[]{}&*!|>'\"%@#,?$ \n\t<~01.", max_size=80))
    def test_random_yaml(self, text: str) -> None:
        """Characters that mean something in YAML."""
        self.check(text.encode())

    @QUICK
    @given(st.integers(0, 1 << 32), st.integers(1, 6))
    def test_damaged_files(self, seed: int, times: int) -> None:
        """Good files with bytes deleted, inserted and replaced, lines doubled and moved."""
        chance = random.Random(seed)
        data = bytearray(chance.choice(texts()).encode())
        for _ in range(times):
            at = chance.randrange(len(data))
            match chance.randrange(5):
                case 0:
                    del data[at : at + chance.randrange(1, 20)]
                case 1:
                    data[at:at] = chance.choice(
                        [
                            b"\n",
                            b" ",
                            b"  ",
                            b"- ",
                            b": ",
                            b"'",
                            b'"',
                            b"[",
                            b"}",
                            b"*x",
                            b"&x ",
                            b"${a}",
                            b"\xff",
                            b"\t",
                        ]
                    )
                case 2:
                    data[at] = chance.randrange(256)
                case _:
                    lines = data.split(b"\n")
                    line = lines[chance.randrange(len(lines))]
                    lines.insert(chance.randrange(len(lines)), line)
                    data = bytearray(b"\n".join(lines))
            if not data:
                return
        self.check(bytes(data))

    @QUICK
    @given(documents)
    def test_the_same_text_gives_the_same_result(self, document: dict[str, Any]) -> None:
        """There is no state between loads."""
        text = yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace")
        first, second = self.check(text), self.check(text)
        self.assertEqual(repr(first), repr(second))
