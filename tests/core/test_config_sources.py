"""`${env.X}` in the raw text, and several sources in one configuration."""

from __future__ import annotations

from tests.core.config_case import MODEL, ConfigCase

A, B = "models: {a: {cmd: 's ${PORT}'}}\n", "models: {b: {cmd: 's ${PORT}'}}\n"


class EnvironmentTests(ConfigCase):
    """Variables are replaced before the text is read as YAML."""

    def test_they_work_everywhere(self) -> None:
        """In keys, values, macros and sections that nobody knows; several in one text."""
        config = self.good(
            """
macros: {root: "${env.A}/models"}
x-unknown: "${env.A}"
models:
  ${env.B}:
    cmd: "s ${PORT} ${root} ${env.A}${env.B}"
    macros: {own: "${env.B}"}
    metadata: {a: "${root}", b: ["${own}", {"${env.B}": 1}], d: "${env._x9}"}
""",
            {"A": "/data", "B": "beta", "_x9": "low"},
        )
        model = config.models["beta"]
        self.assertEqual(model.words[2:], ("/data/models", "/databeta"))
        self.assertEqual(model.metadata, {"a": "/data/models", "b": ["beta", {"beta": 1}], "d": "low"})

    def test_a_value_is_typed_by_yaml_unless_quoted(self) -> None:
        """A number in a variable is a number where it stands plain."""
        found = self.model(
            'metadata: {n: ${env.N}, q: "${env.N}", b: ${env.T}, e: "${env.E}"}', "", {"N": "42", "T": "true", "E": ""}
        )
        self.assertEqual(found.metadata, {"n": 42, "q": "42", "b": True, "e": ""})

    def test_quotes_and_backslashes_are_escaped_for_double_quotes(self) -> None:
        """In double quotes a value arrives unchanged, elsewhere with its escapes, as in the reference."""
        environ = {"Q": 'has "q" and \\b'}
        self.assertEqual(self.model('name: "${env.Q}"', "", environ).name, 'has "q" and \\b')
        self.assertEqual(
            self.good("models:\n  fox:\n    cmd: s ${PORT}\n    name: ${env.Q}\n", environ).models["fox"].name,
            'has \\"q\\" and \\\\b',
        )
        text = "a: b # c [d] {e} & * ! | > % @ `"
        self.assertEqual(self.model('name: "${env.Q}"', "", {"Q": text}).name, text)

    def test_a_variable_may_hold_macros_and_variables(self) -> None:
        """Macros come after the environment; a variable within a variable is replaced too, once."""
        found = self.model(
            'metadata: {x: "${env.V} ${MODEL_ID}"}', "macros: {M: mm}\n", {"V": "${M}-${env.W}", "W": "w"}
        )
        self.assertEqual(found.metadata, {"x": "mm-w fox"})
        self.refused(MODEL + "logLevel: ${env.V}\n", "'V' not set", environ={"V": "${env.V}"})
        self.refused(
            "models: {a: {cmd: '${env.V} ${PORT}'}}\n", "models.a.cmd", "'V' not set", environ={"V": "${env.V}"}
        )

    def test_an_unset_variable_is_told_where_it_stands(self) -> None:
        """With its name, line, column and key; in values, keys and macros, in any section."""
        for text, place in (
            ("models:\n  fox:\n    cmd: s ${PORT} ${env.NO}\n", "config.yaml:3:10: models.fox.cmd: "),
            ("macros: {m: '${env.NO}'}\n", "macros.m"),
            ("models: {fox: {macros: {m: '${env.NO}'}, cmd: 's ${PORT}'}}\n", "models.fox.macros.m"),
            ("apiKeys: ['${env.NO}']\n", "apiKeys[0]"),
            ("peers: {p: {proxy: 'http://h', models: [m], apiKey: ${env.NO}}}\n", "peers.p.apiKey"),
            ("other: '${env.NO}'\n", "other"),
            ("models: {'${env.NO}': {cmd: 's ${PORT}'}}\n", "models"),
            ("models:\n  fox:\n    cmd: |\n      s ${PORT}\n      # ${env.NO}\n", "models.fox.cmd"),
        ):
            self.refused(text, f"{place}", "environment variable 'NO' is not set")

    def test_what_depends_on_it_is_not_told_too(self) -> None:
        """One mistake, one message; other mistakes are still told."""
        told = self.told("startPort: ${env.NO}\nglobalTTL: -1\nmodels: {a: {cmd: 's ${env.NO}', aliases: ${env.NO}}}\n")
        self.assertEqual(told.count("\n"), 3, told)
        self.assertEqual(told.count("'NO' is not set"), 3)

    def test_set_but_empty_is_fine(self) -> None:
        """An empty value is a value."""
        self.assertEqual(self.model('name: "<${env.E}>"', "", {"E": ""}).name, "<>")

    def test_comments_do_not_count(self) -> None:
        """Whole lines, indented and trailing ones; also where the text is YAML only after the replacement."""
        text = "# ${env.NO}\nmodels:\n  fox:\n    # ${env.NO}\n    cmd: s ${PORT} # ${env.NO}\n"
        text += "    name: '${env.V} # kept'\n"
        self.assertEqual(self.good(text, {"V": "v"}).models["fox"].name, "v # kept")
        self.assertEqual(self.model("aliases: [${env.V}, x]", "# ${env.NO}\n", {"V": "v"}).aliases, ("v", "x"))

    def test_line_breaks_and_control_characters_are_refused(self) -> None:
        """They would change the structure of the text."""
        for value in ("a\nb", "a\rb", "a\0b"):
            self.refused(MODEL + 'logLevel: "${env.V}"\n', "'V' contains newlines or null bytes", environ={"V": value})
        self.refused(MODEL + 'logLevel: "${env.V}"\n', "characters that YAML does not know", environ={"V": "a\x1bb"})

    def test_other_shapes_are_plain_text(self) -> None:
        """Only `${env.NAME}` with the name of a variable is replaced."""
        texts = ["${env.1X}", "${env.}", "$env.X", "${ env.X }", "${env.X-Y}"]
        self.assertEqual(self.model(f"metadata: {{t: {texts!r}}}").metadata, {"t": texts})

    def test_marks_in_the_text_are_no_variables(self) -> None:
        """Characters of the private use area are like any others."""
        self.assertEqual(self.model("name: '\ue000X\ue000'").name, "\ue000X\ue000")


class MergeTests(ConfigCase):
    """Several sources, in their order."""

    def test_named_maps_are_united(self) -> None:
        """Models, groups, peers, selectors and profiles of all files count, and may refer to each other."""
        config = self.good(
            {
                "1": A + "groups: {g: {members: [b]}}\npeers: {p: {proxy: 'http://h', models: [m]}}\n"
                "selectors: {s: {strategy: pin, targets: [b]}}\nprofiles: {one: {pins: {x: b}}}\n",
                "2": B + "groups: {h: {members: [a]}}\npeers: {q: {proxy: 'http://h', models: [n]}}\n"
                "selectors: {t: {strategy: pin, targets: [a]}}\nprofiles: {two: {pins: {x: a}}}\n",
            }
        )
        names = (config.models, config.peers, config.selectors, config.profiles, config.groups)
        self.assertEqual([len(part) for part in names], [2, 2, 2, 2, 3])

    def test_the_same_entry_in_two_files_is_refused(self) -> None:
        """Each is defined by one file; the message names the second."""
        peer, selector = (
            "peers: {den: {proxy: 'http://h', models: [m]}}\n",
            "selectors: {s: {strategy: pin, targets: [a]}}\n",
        )
        group, profile = "groups: {pool: {members: []}}\n", "profiles: {pro: {pins: {x: a}}}\n"
        for text, name in (
            (A, 'models "a"'),
            (peer, 'peers "den"'),
            (selector, 'selectors "s"'),
            (group, 'groups "pool"'),
            (profile, 'profiles "pro"'),
        ):
            told = f"duplicate {name} found in second (already defined in another config source)"
            self.refused({"first": text, "second": text}, "second:1:", told)
        for text in ("matrix: {sets: {%s: a}}\n", "routing: {router: {settings: {matrix: {sets: {%s: a}}}}}\n"):
            self.refused({"1": A + text % "s", "2": text % "t"}, 'duplicate matrix "sets"')
        routing = "routing: {router: {settings: {groups: {pool: {members: []}}}}}\n"
        self.refused({"1": routing, "2": routing}, 'duplicate groups "pool"')

    def test_matrix_and_routing_may_be_split_by_their_children(self) -> None:
        """`vars` in one file and `sets` in another are one matrix."""
        config = self.good({"1": A + "matrix: {vars: {x: a}}\n", "2": B + "matrix: {sets: {s: 'x & b'}}\n"})
        self.assertEqual(config.router, "matrix")
        config = self.good(
            {
                "1": A + "routing: {router: {use: group, settings: {groups: {g: {members: [a]}}}}}\n",
                "2": B + "routing: {router: {settings: {groups: {h: {members: [b]}}}}, scheduler: {use: fifo}}\n",
            }
        )
        self.assertEqual(set(config.groups), {"g", "h", "(default)"})

    def test_other_mappings_are_merged_and_lists_joined(self) -> None:
        """Key by key, earlier sources first, nothing de-duplicated."""
        config = self.good(
            {
                "1": A
                + "apiKeys: [k1, k2]\nmacros: {x: 1, y: 2}\nui: {activity: {session_id: [X-A]}}\nmine: {a: {b: 1}}\n",
                "2": "apiKeys: [k3, k1]\nmacros: {y: 2, z: '${x}${y}'}\nui: {activity: {session_id: [X-B]}}\n"
                "mine: {a: {c: 2}}\n"
                "performance: {disabled: true}\nmodels: {b: {cmd: 's ${PORT}', metadata: {z: '${z}'}}}\n",
            }
        )
        self.assertEqual([key.key for key in config.api_keys], ["k1", "k2", "k3", "k1"])
        self.assertEqual((config.session_headers, config.models["b"].metadata), (("X-A", "X-B"), {"z": "12"}))

    def test_scalars_have_to_agree(self) -> None:
        """Same text and same type, whatever the quotes; else the second file is told."""
        self.good({"1": "globalTTL: 100\nlogLevel: debug\n", "2": 'globalTTL: 100\nlogLevel: "debug"\n'})
        for first, second, path in (
            ("globalTTL: 100", "globalTTL: 200", "globalTTL"),
            ("globalTTL: 5", "globalTTL: '5'", "globalTTL"),
            ("globalTTL: 5", "globalTTL: 05", "globalTTL"),
            ("macros: {m: 1}", "macros: {m: 2}", "macros.m"),
            ("performance: {every: 6s}", "performance: {every: 7s}", "performance.every"),
        ):
            told = f'conflict at "{path}": second sets a different value than a previous source'
            self.refused({"first": first + "\n", "second": second + "\n"}, "second:1:", told)

    def test_kinds_have_to_agree(self) -> None:
        """A list and a scalar, or a mapping and a list, are a conflict."""
        told = 'conflict at "startPort": incompatible YAML node kinds (kind 8 vs 2) introduced by 2'
        self.refused({"1": "startPort: 9000\n", "2": "startPort: [9000]\n"}, told)
        self.refused({"1": "apiKeys: [a]\n", "2": "apiKeys: {a: b}\n"}, 'conflict at "apiKeys"')
        self.refused({"1": A, "2": "models: [a]\n"}, 'conflict at "models": expected a mapping, introduced by 2')

    def test_every_null_yields(self) -> None:
        """An empty value and a written null, on either side, also in place of a whole section."""
        config = self.good(
            {
                "1": "apiKeys:\nglobalTTL: ~\nmacros:\nmodels:\ngroups: null\n",
                "2": A + "apiKeys: []\nglobalTTL: 5\nmacros: {m: 1}\n",
                "3": B + "apiKeys:\nglobalTTL: null\nmacros: ~\n",
                "4": "models:\n  # b: {cmd: x}\n",
            }
        )
        self.assertEqual((set(config.models), config.global_ttl), ({"a", "b"}, 5))

    def test_macros_follow_the_order_of_the_files(self) -> None:
        """A later file may use what an earlier one declares, not the reverse."""
        files = {
            "1": "macros: {root: /m}\n",
            "2": "macros: {file: '${root}/w'}\nmodels: {a: {cmd: 's ${PORT}', name: '${file}'}}\n",
        }
        self.assertEqual(self.good(files).models["a"].name, "/m/w")
        self.refused({"2": files["2"], "1": files["1"]}, "${root}", "declared before")

    def test_anchors_belong_to_their_file(self) -> None:
        """Two files may use the same name."""
        text = "x-%s: &base {cmd: 's ${PORT}', name: from %s}\nmodels: {%s: *base}\n"
        models = self.good({"1": text % ("one", "one", "a"), "2": text % ("two", "two", "b")}).models
        self.assertEqual((models["a"].name, models["b"].name), ("from one", "from two"))
        self.refused({"1": "x: &base {a: 1}\n", "2": "models: {a: *base}\n"}, "2:1:", "unknown anchor")

    def test_ports_are_given_over_all_files(self) -> None:
        """In the order of the IDs, wherever they stand."""
        models = self.good(
            {"1": "startPort: 9000\nmodels: {c: {cmd: 's ${PORT}'}, a: {cmd: 's ${PORT}'}}\n", "2": B}
        ).models
        self.assertEqual({name: model.port for name, model in models.items()}, {"a": 9000, "b": 9001, "c": 9002})

    def test_files_without_content_add_nothing(self) -> None:
        """Empty files, comments and nulls are fine beside others."""
        self.assertEqual(list(self.good({"1": "", "2": "# x\n", "3": "---\n", "4": "~\n", "5": A}).models), ["a"])

    def test_all_files_are_looked_at(self) -> None:
        """Two files that are no YAML are both told, in their order."""
        told = self.told({"one": "a: [\n", "two": A, "three": "b: }\n"})
        self.assertEqual([line.split(":")[0] for line in told.splitlines()], ["one", "three"])
