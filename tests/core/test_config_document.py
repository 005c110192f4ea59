"""Text → tree: the document as a whole, anchors, merge keys, repeated keys, bounds, and the places of messages."""

from __future__ import annotations

import time
import tracemalloc

from lswap.core.config import Problem, Source, load
from lswap.core.config.problems import Text
from tests.core.config_case import MODEL, ConfigCase

PORT = "cmd: 's ${PORT}'"


class DocumentTests(ConfigCase):
    """What a file may look like."""

    def test_an_empty_file_is_a_configuration_without_models(self) -> None:
        """Nothing, comments, a marker and nulls all mean the defaults."""
        for text in ("", "# nothing\n", "---\n", "models:\n", "models: {}\n", "~\n", "---\n...\n"):
            self.assertEqual(self.good(text).models, {})

    def test_a_lonely_text_is_ignored_with_a_warning(self) -> None:
        """A bare scalar contributes nothing; that is hardly meant."""
        self.assertEqual(len(self.warned("config\n")), 1)

    def test_a_list_on_top_is_refused(self) -> None:
        """The top level is a mapping."""
        self.refused("- a\n", "config config.yaml: top-level YAML must be a mapping")

    def test_only_the_first_document_counts(self) -> None:
        """What follows `---` is not even looked at."""
        self.assertEqual(list(self.good(MODEL + "---\nmodels: [\n").models), ["a"])

    def test_byte_order_marks_and_crlf(self) -> None:
        """Marks of UTF-8 and UTF-16 are fine, and so are the line ends of Windows."""
        text = (MODEL + "logLevel: debug\n").replace("\n", "\r\n")
        for data in (b"\xef\xbb\xbf" + text.encode(), b"\xff\xfe" + text.encode("utf-16-le")):
            loaded = self.load(data)
            assert loaded.config is not None
            self.assertEqual(loaded.config.log_level, "debug")

    def test_bytes_that_are_no_text_are_refused_where_they_are(self) -> None:
        """Invalid UTF-8 is told with its line and column."""
        self.assertIn("config.yaml:2:8: failed to parse config config.yaml", self.told(b"# x\n# abcde\xe9\n"))
        self.assertIn("invalid UTF-8", self.told(b"\xff\xfea"))

    def test_broken_yaml_is_told_with_its_place(self) -> None:
        """Each of these has a line and a column, and is no exception."""
        failed = "failed to parse config config.yaml"
        rows = {
            "models:\n\ta:\n": "config.yaml:2:1",
            "models: *nowhere\n": f"config.yaml:1:9: {failed}: unknown anchor",
            "models:\n  a: &a\n    metadata: *a\n": f"config.yaml:3:15: {failed}: anchor contains itself",
            'models:\n  a:\n    cmd: "s\n': "config.yaml:4:",
            "apiKeys: [a, b\nmodels: {}\n": "config.yaml:2:",
            "models:\n  a:\n    cmd: s ${PORT}\n   ttl: 1\n  b: {}\n": "config.yaml:4:",
            "a: \x01\n": f"config.yaml:1:4: {failed}: control characters are not allowed (U+0001)",
            "? [a]\n: b\n": f"config.yaml:1:3: {failed}: a key must be text",
            "a: {<<: 5}\n": "map merge requires map or sequence of maps",
            "globalTTL: !!int soon\n": f"config.yaml:1:12: {failed}: cannot decode !!str as a !!int",
        }
        for text, told in rows.items():
            self.assertIn(told, self.told(text), text)

    def test_no_message_of_the_parser_quotes_the_file(self) -> None:
        """An unquoted secret that looks like an alias or a tag is not shown."""
        for text in ("apiKeys: [*hunter2secret]\n", "apiKeys: [!hunter2secret!x y]\n", "apiKeys: [%hunter2secret]\n"):
            self.assertNotIn("hunter2", self.told(text))

    def test_repeated_keys_are_refused(self) -> None:
        """The same key twice in one mapping names both lines, at any depth, also where nobody looks."""
        rows = {
            "globalTTL: 1\nglobalTTL: 2\n": ("config.yaml:2:1: globalTTL: ", "line 1"),
            "models:\n  a: {cmd: 's ${PORT}'}\n  a: {}\n": ("config.yaml:3:3: models.a: ", "line 2"),
            "models:\n  a:\n    cmd: s ${PORT}\n    metadata:\n      l:\n      - x: 1\n        x: 2\n": (
                "config.yaml:7:9: models.a.metadata.l[0].x: ",
                "line 6",
            ),
            "mine: {a: 1, a: 2}\n": ("config.yaml:1:14: mine.a: ", 'mapping key "a" already defined at line 1'),
            "models: {1: {cmd: 's ${PORT}'}, '1': {}}\n": ("models.1: ", "already defined"),
        }
        for text, words in rows.items():
            self.refused(text, *words)

    def test_model_names_that_are_no_text_are_taken_as_written(self) -> None:
        """A number, boolean or date is a name like any other, in its own spelling."""
        text = "".join(f"  {name}: {{{PORT}}}\n" for name in ("70", "1.10", "true", "2024-01-01", "yes", "'a b'"))
        self.assertEqual(set(self.good("models:\n" + text).models), {"70", "1.10", "true", "2024-01-01", "yes", "a b"})

    def test_unknown_tags_are_ignored(self) -> None:
        """A scalar under one is text, a collection stays what it is."""
        found = self.model("metadata: {t: !c x, n: !c 5, m: !env {a: 1}, i: !!int '60', s: !!str 5}").metadata
        self.assertEqual(found, {"t": "x", "n": "5", "m": {"a": 1}, "i": 60, "s": "5"})


class AnchorTests(ConfigCase):
    """Anchors, aliases and merge keys."""

    def test_an_anchor_may_be_anything(self) -> None:
        """Scalars, lists and whole models can be named and used again."""
        found = self.good(
            f"n: &n 5\nl: &l [x, y]\nm: &m {{{PORT}, ttl: *n, metadata: {{a: *n, b: [*n, *l]}}}}\nmodels: {{a: *m}}\n"
        )
        self.assertEqual((found.models["a"].ttl, found.models["a"].metadata), (5, {"a": 5, "b": [5, ["x", "y"]]}))

    def test_merge_keys_fill_in(self) -> None:
        """Own keys win wherever they stand, the first of several sources wins, and a merge is shallow."""
        models = self.good(
            f"""
base: &base {{{PORT}, name: base, description: base, metadata: {{base: true}}}}
more: &more {{description: more, aliases: [other]}}
models:
  first: {{name: own, <<: *base}}
  last:
    <<: *base
    name: own
  several: {{<<: [*more, *base]}}
  shallow: {{<<: *base, metadata: {{own: true}}}}
"""
        ).models
        self.assertEqual((models["first"].name, models["last"].name), ("own", "own"))
        self.assertEqual((models["several"].name, models["several"].description), ("base", "more"))
        self.assertEqual(models["several"].aliases, ("other",))
        self.assertEqual(models["shallow"].metadata, {"own": True})

    def test_a_quoted_merge_key_is_a_key(self) -> None:
        """Only the plain `<<` merges; as a value it is text."""
        self.assertEqual(self.model("metadata: {'<<': 1, x: <<}").metadata, {"<<": 1, "x": "<<"})

    def test_unknown_keys_with_anchors_are_no_mistake(self) -> None:
        """Sections that only hold anchors, and those that begin with `x-`, get no warning; others do."""
        self.assertEqual(self.warned(f"base: &b {{{PORT}}}\nx-other: {{a: 1}}\n_y: 1\nmodels: {{a: *b}}\n"), [])
        self.assertEqual(len(self.warned(MODEL + "other: {a: 1}\n")), 1)
        self.assertEqual(len(self.warned(MODEL + "model: &m {a: 1}\n")), 1)


class BoundTests(ConfigCase):
    """A small file takes neither a second nor a hundred megabytes."""

    def check(self, text: str, told: str = "", memory: bool = False) -> None:
        """Load a small text within bounds, and find these words in what is told."""
        self.assertLess(len(text), 12_000)
        begun = time.process_time()
        loaded = self.load(text)
        self.assertLess(time.process_time() - begun, 1.0)
        self.assertIn(told, "\n".join(map(str, loaded.problems)))
        if memory:
            tracemalloc.start()
            try:
                self.load(text)
                self.assertLess(tracemalloc.get_traced_memory()[1], 100 << 20)
            finally:
                tracemalloc.stop()

    def laughs(self, leaf: str, levels: int, last: str) -> str:
        """Levels of lists, each nine times the one before it."""
        rows = [f"a0: &a0 [{','.join([leaf] * 9)}]"]
        rows += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
        return "\n".join(rows) + f"\nmodels: {{m: {{{PORT}, metadata: {{x: *a{levels - 1}}}}}}}\n" + last

    def test_aliases_cannot_grow_without_bound(self) -> None:
        """A billion laughs are refused, as many as are allowed are no burden."""
        self.check(self.laughs("x", 90, ""), "aliases make this document too large")
        self.check(self.laughs("'${MODEL_ID}'", 5, ""), memory=True)

    def test_merge_keys_cannot_either(self) -> None:
        """Each level merges the one before it twice."""
        rows = [f"a{i}: &a{i} {{k{i}: 1, <<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 200)]
        self.check("\n".join(["a0: &a0 {x: 1}", *rows]), "too large")

    def test_nesting_is_bounded(self) -> None:
        """Deep documents are refused before they hurt, aliases followed."""
        for text in (
            "[" * 10_000,
            "{a: " * 2_900,
            "- " * 5_000,
            "? " * 5_000,
            "a:\n" + "".join(f"{' ' * i}b:\n" for i in range(120)),
        ):
            self.check(text, "config.yaml:1" if "b" not in text else "nested more than 100 levels deep")
        chain = "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [[[[*a{i - 1}]]]]\n" for i in range(1, 60))
        self.check(chain, "nested more than 100 levels deep")

    def test_macros_cannot_grow_without_bound(self) -> None:
        """Neither one value nor all of them together."""
        bomb = "macros:\n  m0: xxxxxxxxxx\n" + "".join(f"  m{i}: '{f'${{m{i - 1}}}' * 10}'\n" for i in range(1, 60))
        users = "".join(f"  a{i}: {{cmd: 's ${{PORT}} ${{m{i % 60}}}'}}\n" for i in range(100))
        self.check(bomb + "models:\n" + users, "too large", memory=True)
        chain = f"macros:\n  m0: {'x' * 2000}\n" + "".join(f"  m{i}: '${{m{i - 1}}} '\n" for i in range(1, 300))
        self.check(chain + f"models: {{a: {{cmd: 's ${{PORT}} {'${m299}' * 20}'}}}}\n")

    def test_variables_cannot_either(self) -> None:
        """A long variable that is used often is refused."""
        loaded = load([Source("c", ("a: " + "${env.X}" * 1000).encode())], {"X": "y" * 100_000})
        self.assertIn("makes this file too large", str(loaded.problems[0]))

    def test_shared_blocks_with_mistakes_are_told_in_measure(self) -> None:
        """The number of messages is bounded."""
        keys = ", ".join(f"k{i}: {{}}" for i in range(300))
        users = "".join(f"  a{i}: {{{PORT}, filters: {{setParamsByID: *s}}}}\n" for i in range(90))
        self.check(f"s: &s {{{keys}}}\nmodels:\n{users}", "more problems", memory=True)

    def test_many_wrong_names_take_no_time(self) -> None:
        """The search for the nearest name is bounded."""
        models = "".join(f"  model-{i}: {{{PORT}}}\n" for i in range(150))
        members = ", ".join(f"modell-{i}x" for i in range(300))
        self.check(f"models:\n{models}groups: {{g: {{members: [{members}]}}}}\n", "no model config")

    def test_a_thousand_models_are_fast(self) -> None:
        """A second and a half is the limit on a slow machine; this leaves room for a busy one."""
        models = "".join(
            f"  m{i}:\n    cmd: |\n      # x\n      ${{run}} -m ${{dir}}/m{i}.gguf --ctx ${{ctx}}\n"
            f"    aliases: [a{i}, b{i}]\n"
            f"    metadata: {{x: 1, y: '${{PORT}}'}}\n    filters: {{stripParams: 'a, b', setParams: {{t: 0.5}}}}\n"
            for i in range(1000)
        )
        begun = time.process_time()
        config = self.good(f"macros: {{run: 'srv --port ${{PORT}}', dir: /m, ctx: 8192}}\nmodels:\n{models}")
        self.assertLess(time.process_time() - begun, 1.5)
        self.assertEqual(len(config.models), 1000)


class PlaceTests(ConfigCase):
    """Where messages point to."""

    def test_all_problems_come_at_once_by_place(self) -> None:
        """The files in their order, in each the lines in theirs."""
        loaded = self.load(
            {
                "b.yaml": "startPort: -4\nunloadTimeout: -1\nmodels:\n  a:\n    cmd: s ${PORT}\n    ttl: -7\n",
                "a.yaml": "models:\n  b:\n    cmd: s ${nothing} ${PORT}\nlogToStdout: screen\n",
            }
        )
        places = [(p.file, p.line) for p in loaded.problems]
        self.assertEqual(places, [("b.yaml", 1), ("b.yaml", 2), ("b.yaml", 6), ("a.yaml", 3), ("a.yaml", 4)])

    def test_a_problem_is_one_line(self) -> None:
        """Its text has the parts that there are; a path that begins the message is not said twice."""
        self.assertEqual(str(Problem("f", 1, 2, "p", "m", "h")), "f:1:2: p: m: h")
        self.assertEqual(str(Problem("f", 0, 0, "", "m", "")), "f: m")
        self.assertEqual(str(Problem("", 0, 0, "p.q", "p.q is bad", "")), "p.q is bad")

    def test_columns_count_characters(self) -> None:
        """Letters of any alphabet are one column each."""
        self.assertIn("config.yaml:1:21:", self.told("mine: [é, 日, 😀, &x, *y]\n"))

    def test_replaced_variables_do_not_move_columns(self) -> None:
        """Places are those of the text as written."""
        text = 'models: {a: {cmd: "s ${PORT} ${env.LONG}", ttl: soon}}\n'
        for value in ("", "x" * 300):
            told = self.told(text, {"LONG": value})
            self.assertIn(f"config.yaml:1:{text.index('soon') + 1}: models.a.ttl", told)

    def test_a_macro_is_told_where_it_stands(self) -> None:
        """In a command of many lines, past its comments; one that came from a macro, where the value begins."""
        text = "macros: {m: 'x ${nope}'}\nmodels:\n  a:\n    cmd: |\n      # ${nope}\n"
        text += "      s ${PORT} \\\n        --x ${nope}\n    name: ${m}\n"
        told = self.told(text)
        self.assertIn("config.yaml:7:13: models.a.cmd: unknown macro", told)
        self.assertIn("config.yaml:8:11: models.a.name: unknown macro", told)
        self.assertIn("config.yaml:1:14: apiKeys[0]: unknown macro", self.told("apiKeys: ['k ${nope}']\n"))

    def test_the_way_back_to_the_raw_text(self) -> None:
        """An index behind a replacement is shifted, one within it is its beginning."""
        text = Text("f", "ab${X}cd\n${Y}e", [(2, 4, 1), (9, 4, 7)])
        self.assertEqual([text.original(i) for i in (0, 2, 3, 5, 6, 12, 13)], [0, 2, 6, 8, 9, 9, 13])
        self.assertEqual(text.position(13), (2, 5))

    def test_control_characters_do_not_reach_a_terminal(self) -> None:
        """Names are shown without them."""
        told = self.told('models: {"a\\e[31m\\n": {cmd: "s ${PORT}", ttl: soon}}\n')
        self.assertTrue(told.isprintable(), told)
