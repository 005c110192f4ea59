"""Macros: declaring them, the order in which they are replaced, their types, and what is left over."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from lswap.core.config.macros import Budget, Macros
from lswap.core.config.problems import NOWHERE, Report
from lswap.core.model import Model
from tests.core.config_case import MODEL, ConfigCase


def one(inside: str, top: str = "", name: str = "owl") -> str:
    """A configuration of one model."""
    return f"{top}models: {{{name}: {{{inside}}}}}\n"


def serving(inside: str = "", top: str = "", name: str = "owl") -> str:
    """The same, with a command that uses a port."""
    return one("cmd: 'run ${PORT}'" + (f", {inside}" if inside else ""), top, name)


class DeclaringTests(ConfigCase):
    """Which macros there may be."""

    def test_bad_declarations(self) -> None:
        """Each rule has its message; in a model it begins with the model."""
        long = "n" * 64
        rows = (
            ("bad.name: 1", "macro name 'bad.name' contains invalid characters, must match pattern ^[a-zA-Z0-9_-]+$"),
            ("'a b': 1", "macro name 'a b' contains invalid characters"),
            ("'': 1", "macro name '' contains invalid characters"),
            ("ü: 1", "macro name 'ü' contains invalid characters"),
            (f"{long}: 1", f"macro name '{long}' exceeds maximum length of 63 characters"),
            ("n: ~", "macro 'n' has invalid type null, must be a scalar type (string, int, float, or bool)"),
            ("n: [1]", "macro 'n' has invalid type list, must be a scalar type"),
            ("n: {a: 1}", "macro 'n' has invalid type map, must be a scalar type"),
            ("n: 2024-01-01", "macro 'n' has invalid type timestamp, must be a scalar type"),
            ("n: 'x ${n}'", "macro 'n' contains self-reference"),
            ("PORT: 1", "macro name 'PORT' is reserved"),
            ("MODEL_ID: x", "macro name 'MODEL_ID' is reserved"),
            ("PID: 1", "macro name 'PID' is reserved"),
        )
        for text, told in rows:
            self.refused(serving(top=f"macros: {{{text}}}\n"), told)
            self.refused(serving(f"macros: {{{text}}}"), f"model owl: {told}")

    def test_a_block_is_a_mapping(self) -> None:
        """A list or a text is told."""
        self.refused("macros: [a]\n", "macros must be a mapping")
        self.refused(serving("macros: text"), "model owl: macros must be a mapping")

    def test_a_bad_macro_is_told_once(self) -> None:
        """Where it is used nothing more is said."""
        self.assertEqual(len(self.told(serving("name: '${n}'", "macros: {n: [1]}\n")).splitlines()), 1)

    def test_good_names_and_values(self) -> None:
        """63 characters, digits, any case; values of any length and of several lines."""
        name = "Az09_-" + "n" * 57
        text = f"macros:\n  {name}: ok\n  port: 1\n  '1': digit\n  l: |\n    one\n    two\n  x: {'x' * 3000}\n"
        found = self.good(
            text + serving(f"metadata: {{a: '${{{name}}}', b: '${{port}}', c: '${{1}}', d: '${{l}}', e: '${{x}}'}}")
        )
        self.assertEqual(
            found.models["owl"].metadata, {"a": "ok", "b": 1, "c": "digit", "d": "one\ntwo\n", "e": "x" * 3000}
        )

    def test_unused_macros_may_hold_anything(self) -> None:
        """Also what does not exist, and each other; used, it is told."""
        macros = "macros: {a: 'x ${b}', b: 'y ${a}', c: '${nowhere}'}\n"
        self.good(serving(top=macros))
        self.refused(serving("name: '${b}'", macros), "unknown macro '${b}' found in owl.name")

    def test_blocks_may_be_anchors_and_merges(self) -> None:
        """A whole block may be shared; a merged one keeps its order, and own values replace in place."""
        shared = "x: &s {a: 1, b: 'b${a}'}\n"
        self.assertEqual(self.good(shared + "macros: *s\n" + serving("name: '${b}'")).models["owl"].name, "b1")
        text = shared + "macros:\n  <<: *s\n  a: 2\n"
        self.assertEqual(self.good(text + serving("name: '${b}'")).models["owl"].name, "b2")

    def test_a_models_own_block_replaces_the_one_it_would_merge(self) -> None:
        """A merge is shallow for macros too."""
        base = "x: &b {cmd: 'run ${PORT}', macros: {a: 1}}\n"
        self.good(base + "models: {owl: {<<: *b, name: '${a}'}}\n")
        self.refused(base + "models: {owl: {<<: *b, macros: {c: 2}, name: '${a}'}}\n", "${a}")


class ReplacingTests(ConfigCase):
    """What becomes of a value: the worked examples of the reference, by their numbers there."""

    def owl(self, text: str) -> Model:
        """The model of that name."""
        return self.good(text).models["owl"]

    def test_a_command_and_its_default_proxy(self) -> None:
        """Example 1: macros and the port in one text."""
        owl = self.owl(one('cmd: "${bin} -t ${thr} -p ${PORT}"', "macros: {bin: /opt/srv/run, thr: 6}\n"))
        self.assertEqual((owl.cmd, owl.proxy), ("/opt/srv/run -t 6 -p 5800", "http://localhost:5800"))

    def test_exact_values_keep_the_macros_type(self) -> None:
        """Examples 2 and 3: alone it has the type, within text and with blanks it is text; also through a chain."""
        owl = self.owl(
            serving(
                'metadata: {a: "${ctx}", b: "${ctx} tok", c: " ${ctx}", d: "${half}",'
                ' e: ["${ok}", {f: "ok=${ok}"}], x: "${deep}"}',
                'macros: {ctx: 4096, half: "0.5", ok: true, n: 9, alias: "${n}", deep: "${alias}"}\n',
            )
        )
        wanted = {"a": 4096, "b": "4096 tok", "c": " 4096", "d": "0.5", "e": [True, {"f": "ok=true"}], "x": 9}
        self.assertEqual(owl.metadata, wanted)
        self.assertIs(owl.metadata["e"][0], True)

    def test_macros_may_use_those_before_them(self) -> None:
        """Examples 4 and 5: the order of declaration decides."""
        macros = 'macros: {root: /m, dir: "${root}/q4", file: "${dir}/w.gguf"}\n'
        self.assertEqual(self.owl(one("cmd: 'run ${PORT} ${file}'", macros)).cmd, "run 5800 /m/q4/w.gguf")
        wrong = 'macros: {file: "${dir}/w.gguf", dir: /m}\n'
        self.refused(
            one("cmd: 'run ${PORT} ${file}'", wrong), "unknown macro '${dir}' found in owl.cmd", "declared before"
        )

    def test_a_models_macro_takes_the_place_of_the_global_one(self) -> None:
        """Examples 6 and 7: it wins also inside of global ones, and keeps their position."""
        models = self.good(
            'macros: {gpu: 0, dev: "--device CUDA${gpu}"}\nmodels:\n'
            '  elk: {macros: {gpu: 3}, cmd: "run ${PORT} ${dev}"}\n'
            '  owl: {cmd: "run ${PORT} ${dev}"}\n'
        ).models
        self.assertEqual([m.cmd for m in models.values()], ["run 5800 --device CUDA3", "run 5801 --device CUDA0"])
        self.refused(
            one('macros: {args: "-ngl ${ngl}"}, cmd: "run ${PORT} ${args}"', 'macros: {args: "-a", ngl: 99}\n'),
            "'${ngl}'",
        )

    def test_a_models_macros_see_the_global_ones(self) -> None:
        """Examples 8 and 9: not the reverse."""
        own = 'macros: {one: "-ngl ${ngl}", all: "${one} --id ${MODEL_ID}"}, cmd: "run ${PORT} ${all}"'
        self.assertEqual(self.owl(one(own, "macros: {ngl: 99}\n")).cmd, "run 5800 -ngl 99 --id owl")
        self.refused(serving('macros: {L: l}, name: "${G}"', 'macros: {G: "g-${L}"}\n'), "unknown macro '${L}'")
        self.assertEqual(self.owl(serving('macros: {L: l}, name: "${G}"', 'macros: {L: x, G: "g-${L}"}\n')).name, "g-l")

    def test_model_id_and_port_work_through_macros(self) -> None:
        """Example 10: a port in a macro counts as use in the command."""
        text = 'macros: {d: "docker run --name ${MODEL_ID} -p ${PORT}:80 img"}\n'
        text += 'models: {owl: {cmd: "${d}"}, x/elk:Q8: {cmd: "${d}"}}\n'
        commands = [model.cmd for model in self.good(text).models.values()]
        self.assertEqual(
            commands, ["docker run --name owl -p 5800:80 img", "docker run --name x/elk:Q8 -p 5801:80 img"]
        )

    def test_comment_lines_go_first(self) -> None:
        """Example 11: a port or macro in a comment line is none; comments that macros bring in are dropped too."""
        self.refused('models:\n  owl:\n    cmd: "# ${PORT}\\nserver"\n', "proxy uses ${PORT} but cmd does not")
        owl = self.owl(
            "macros:\n  m: |\n    a\n    # b\n    c\n"
            "models:\n  owl:\n    cmd: |\n      # ${nope} ${m}\n      run ${PORT} \\\n      ${m}\n"
        )
        self.assertEqual(owl.words, ("run", "5800", "a", "c"))

    def test_pid_is_for_the_stop_command(self) -> None:
        """Example 12: it stays there, and is unknown elsewhere."""
        macros = 'macros: {kill: "kill -9 ${PID}"}\n'
        self.assertEqual(self.owl(serving("cmdStop: '${kill}'", macros)).cmd_stop, "kill -9 ${PID}")
        self.refused(one("cmd: 'run ${PORT} ${kill}'", macros), "unknown macro '${PID}' found in owl.cmd")
        self.refused(serving("metadata: {x: '${PID}'}"), "model owl metadata: unknown macro '${PID}'")

    def test_keys_stay_but_those_of_set_params_by_id(self) -> None:
        """Example 13: those are names, and become aliases."""
        inside = 'metadata: {"${k}": v}, filters: {setParamsByID: {"${MODEL_ID}-${k}-${PORT}": {"${k}": 0}}}'
        owl = self.owl(serving(inside, "macros: {k: fast}\n"))
        self.assertEqual((owl.metadata, owl.aliases), ({"${k}": "v"}, ("owl-fast-5800",)))
        self.assertEqual(owl.filters.set_params_by_id, {"owl-fast-5800": {"${k}": 0}})
        twice = "filters: {setParamsByID: {'${k}': {t: 1}, fast: {t: 2}}}"
        told = 'model owl filters.setParamsByID: keys "${k}" and "fast" resolve to the same value'
        self.refused(serving(twice, "macros: {k: fast}\n"), told)

    def test_shared_blocks_are_replaced_at_each_place(self) -> None:
        """Example 15: an anchor is no value yet; also merged into lists and mappings."""
        text = (
            "x: &s {tag: '${who}', in: ['${mode}']}\nmodels:\n"
            "  elk: {cmd: 'run ${PORT}', macros: {who: b, mode: text}, metadata: *s, capabilities: {in: ['${mode}']}}\n"
            "  owl: {cmd: 'run ${PORT}', macros: {who: a, mode: image}, metadata: {<<: [*s], own: 1}}\n"
        )
        models = self.good(text).models
        self.assertEqual(models["elk"].metadata, {"tag": "b", "in": ["text"]})
        self.assertEqual(models["owl"].metadata, {"tag": "a", "in": ["image"], "own": 1})

    def test_the_type_has_to_fit_the_key(self) -> None:
        """Examples 16, 17, 18 and 22: a macro is never read as YAML again."""
        self.assertEqual(self.owl(serving("ttl: '${T}'", "macros: {T: 60}\n")).ttl, 60)
        self.refused(
            serving("ttl: '${T}'", 'macros: {T: "60"}\n'), "models.owl.ttl: cannot unmarshal !!str `60` into int"
        )
        self.assertTrue(self.owl(serving("unlisted: '${T}'", 'macros: {T: "yes"}\n')).unlisted)
        self.refused(serving("unlisted: '${T}'", 'macros: {T: "true"}\n'), "models.owl.unlisted", "into bool")
        self.assertEqual(
            self.owl(serving("metadata: {l: '${l}'}", 'macros: {l: "[1, 2]"}\n')).metadata, {"l": "[1, 2]"}
        )
        self.assertEqual(self.good("startPort: '${F}'\nmacros: {F: 6200}\n" + serving()).models["owl"].port, 6200)
        self.refused("startPort: '${F}'\nmacros: {F: '6200'}\n", "startPort: cannot unmarshal !!str")

    def test_names_may_be_composed(self) -> None:
        """Example 19: by accident of the order, and people use it."""
        self.assertEqual(self.owl(one("cmd: 'run ${PORT} ${${m}}'", "macros: {m: MODEL_ID}\n")).cmd, "run 5800 owl")
        macros = "macros: {small: 1024, big: 4096, pick: big}\n"
        self.assertEqual(self.owl(serving("metadata: {x: 'n=${${pick}}'}", macros)).metadata, {"x": "n=4096"})

    def test_patterns_of_paths_take_macros(self) -> None:
        """Example 25: text within a regular expression."""
        config = self.good("macros: {EXT: 'js|css'}\nupstream: {ignorePaths: ['\\.(${EXT})$']}\n")
        self.assertTrue(config.ignore_paths[0].search("/a.css"))

    def test_other_dollars_and_braces_stay(self) -> None:
        """Only `${name}` is a macro, and there is no escape."""
        texts = ["$HOME", "${a", "${ n }", "${}", "${a.b}", "$n", "{n}", "100%", "$(n)"]
        owl = self.owl(serving(f"metadata: {{t: {texts!r}, twice: '$${{n}}'}}", "macros: {n: 5}\n"))
        self.assertEqual(owl.metadata, {"t": texts, "twice": "$5"})

    def test_numbers_as_text(self) -> None:
        """A float within text has the fewest digits."""
        macros = "macros: {a: 0.70, b: 16384.0, c: 1e6, d: 1e-5, e: 0x10, f: True}\n"
        owl = self.owl(serving("name: '${a} ${b} ${c} ${d} ${e} ${f}'", macros))
        self.assertEqual(owl.name, "0.7 16384 1e+06 1e-05 16 true")

    def test_mappings_with_keys_that_are_no_text_are_replaced_too(self) -> None:
        """A number as a key hides nothing."""
        owl = self.owl(serving("metadata: {deep: {1: one, x: '${n}'}}", "macros: {n: 5}\n"))
        self.assertEqual(owl.metadata, {"deep": {"1": "one", "x": 5}})

    def test_all_fields_and_sections_take_macros(self) -> None:
        """Models with their own, everything else with the global ones."""
        config = self.good(
            """
macros: {secs: 77, yes: true, label: L, in: image, ctx: 4096, t: 5, key: k-1, m: fox, up: "http://h", period: 6s,
  expr: "f & fox2", pat: "2*"}
globalTTL: "${secs}"
sendLoadingState: "${yes}"
logLevel: "${label}"
apiKeys: ["${key}", {name: "${label}", key: "${key}x", models: ["${pat}"]}]
ui: {activity: {session_id: ["${label}"]}}
performance: {every: "${period}"}
hooks: {on_startup: {preload: ["${m}"]}}
limits: {queue: "${t}"}
matrix: {vars: {f: "${m}"}, evict_costs: {f: "${t}"}, sets: {s: "${expr}"}}
peers:
  den:
    proxy: "${up}"
    models: ["${label}"]
    apiKey: "${key}"
    filters: {stripParams: "${m}", setParams: {n: "${secs}"}}
    timeouts: {connect: "${t}"}
selectors: {all: {strategy: pin, targets: ["${m}", "den/${label}"], name: "S ${m}", metadata: {n: "${secs}"}}}
profiles: {p: {description: "about ${m}", pins: {x: "${m}"}}}
models:
  fox:
    cmd: "s ${PORT}"
    unloadTimeout: "${t}"
    concurrencyLimit: "${t}"
    env: ["FAKEUP_L=${label}"]
    aliases: ["${label}-alias"]
    description: "about ${label}"
    useModelName: "up-${label}"
    timeouts: {connect: "${t}"}
    capabilities: {in: ["${in}"], tools: "${yes}", context: "${ctx}"}
    filters: {stripParams: "${label}, top_k", setParams: {max_tokens: "${t}", stop: ["${label}"]}}
    on_startup: {http: {POST: "/x/${label}", json: {n: "${t}"}}, timeout: "${t}"}
  fox2: {cmd: "s ${PORT}", unlisted: "${yes}"}
"""
        )
        fox, den = config.models["fox"], config.peers["den"]
        self.assertEqual((fox.ttl, fox.unload_timeout, fox.concurrency_limit, fox.timeouts.connect), (77, 5, 5, 5))
        self.assertEqual((fox.env, fox.aliases, fox.use_model_name), (("FAKEUP_L=L",), ("L-alias",), "up-L"))
        self.assertEqual(
            (fox.capabilities.inputs, fox.capabilities.context, fox.filters.strip_params),
            (("image",), 4096, ("L", "top_k")),
        )
        self.assertEqual(fox.filters.set_params, {"max_tokens": 5, "stop": ["L"]})
        self.assertEqual((fox.hooks.on_startup[0].calls[0].body, fox.hooks.on_startup[0].timeout), (b'{"n":5}', 5))
        self.assertEqual(
            (den.proxy, den.models, den.api_key, den.filters.set_params), ("http://h", ("L",), "k-1", {"n": 77})
        )
        self.assertEqual((config.selectors["all"].targets, config.profiles["p"].pins), (("fox", "den/L"), {"x": "fox"}))
        self.assertEqual((config.preload, config.performance.every, config.limits.queue), (("fox",), 6, 5))
        self.assertEqual([key.key for key in config.api_keys], ["k-1", "k-1x"])


class LeftoverTests(ConfigCase):
    """What no macro replaced."""

    def test_every_field_of_a_model(self) -> None:
        """The message names model and field, in the words of the reference."""
        found = "unknown macro '${nope}' found in owl."
        for key in ("cmdStop", "proxy", "checkEndpoint", "name", "description"):
            self.refused(serving(f"{key}: 'x${{nope}}'"), f"models.owl.{key}: {found}{key}")
        self.refused(serving("filters: {stripParams: '${nope}'}"), f"{found}filters.stripParams")
        self.refused(one("cmd: 'run ${PORT} ${nope}'"), f"{found}cmd")
        for inside, told in (
            ("metadata: {x: {y: ['${nope}']}}", "model owl metadata: "),
            ("capabilities: {in: ['${nope}']}", "model owl capabilities: "),
            ("env: ['A=${nope}']", "model owl env: "),
            ("aliases: [x, '${nope}']", "model owl aliases: "),
            ("ttl: '${nope}'", "model owl ttl: "),
            ("timeouts: {connect: '${nope}'}", "model owl timeouts.connect: "),
            ("filters: {setParams: {a: ['${nope}']}}", "model owl filters.setParams.a: "),
            ("unheard: {of: '${nope}'}", "model owl unheard.of: "),
            ("on_startup: {cmd: '${nope}'}", "model owl on_startup.cmd: "),
        ):
            self.refused(serving(inside), f"{told}unknown macro '${{nope}}'")
        key = "filters: {setParamsByID: {'${nope}': {a: 1}}}"
        self.refused(serving(key), "unknown macro '${nope}' found in model owl filters.setParamsByID key")

    def test_every_section(self) -> None:
        """Elsewhere the path tells; sections that nobody knows are exempt."""
        for text, path in (
            ("globalTTL: '${nope}'", "globalTTL"),
            ("apiKeys: ['${nope}']", "apiKeys[0]"),
            ("startPort: '${nope}'", "startPort"),
            ("hooks: {on_startup: {preload: ['${nope}']}}", "hooks.on_startup.preload[0]"),
            ("groups: {g: {members: ['${nope}']}}", "groups.g.members[0]"),
            ("peers: {p: {proxy: 'http://h', models: [m], apiKey: '${nope}'}}", "peers.p.apiKey"),
            (
                "peers: {p: {proxy: 'http://h', models: [m], filters: {setParams: {x: '${nope}'}}}}",
                "peers.p.filters.setParams.x",
            ),
            ("selectors: {s: {strategy: pin, targets: ['${nope}']}}", "selectors.s.targets[0]"),
            ("profiles: {p: {pins: {x: '${nope}'}}}", "profiles.p.pins.x"),
            ("matrix: {sets: {s: '${nope}'}}", "matrix.sets.s"),
            ("ui: {activity: {session_id: ['${nope}']}}", "ui.activity.session_id[0]"),
            ("performance: {every: '${nope}'}", "performance.every"),
            ("store: {path: '${nope}'}", "store.path"),
            ("upstream: {ignorePaths: ['${nope}']}", "upstream.ignorePaths[0]"),
            ("routing: {router: {use: '${nope}'}}", "routing.router.use"),
        ):
            told = self.told(MODEL + text + "\n")
            self.assertIn(f"{path}: unknown macro '${{nope}}'", told)
            self.assertEqual(len(told.splitlines()), 1, told)
        self.good(MODEL + "mine: ['${nope}']\n")

    def test_the_names_that_lswap_gives(self) -> None:
        """`PORT` and `MODEL_ID` exist in models only, and `PORT` where the command uses it."""
        told = "macro '${PORT}' should have been substituted in owl.checkEndpoint"
        self.refused(one("cmd: s, proxy: 'http://h:1', checkEndpoint: '/h/${PORT}'"), told)
        self.refused(
            one("cmd: s, proxy: 'http://h:1', metadata: {p: '${PORT}'}"), "model owl metadata: unknown macro '${PORT}'"
        )
        self.refused("apiKeys: ['k-${MODEL_ID}']\n", "apiKeys[0]: unknown macro '${MODEL_ID}'", "in models only")

    def test_near_names_are_told(self) -> None:
        """A macro that is misspelt, in the wrong case, or another model's."""
        self.refused(serving("name: '${ctxx}'", "macros: {ctx: 1}\n"), "did you mean '${ctx}'?")
        self.refused(serving("name: '${CTX}'", "macros: {ctx: 1}\n"), "'${CTX}'", "did you mean '${ctx}'?")
        self.refused(
            "models: {elk: {cmd: s, proxy: x, macros: {m: 1}}, owl: {cmd: 'run ${PORT} ${m}'}}\n",
            "'${m}' found in owl.cmd",
        )


class OrderTests(ConfigCase):
    """The order of replacement against a plain model of it."""

    @given(
        st.dictionaries(
            st.sampled_from(["a", "b", "c", "d"]),
            st.lists(st.sampled_from(["x", "$", "{", "}", "${a}", "${b}", "${c}", "${d}"]), max_size=5).map("".join)
            | st.integers(0, 99)
            | st.booleans(),
            max_size=4,
        ),
        st.lists(st.sampled_from(["y", "}", "${a}", "${b}", "${c}", "${d}", "${${"]), max_size=6).map("".join),
    )
    def test_last_in_first_out(self, declared: dict[str, str | int | bool], text: str) -> None:
        """One macro after the other, from the last to the first, each over the whole value."""
        expected: str | int | bool = text
        for name, value in reversed(declared.items()):
            if expected == f"${{{name}}}":
                expected = value
            elif isinstance(expected, str):
                plain = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
                expected = re.sub(re.escape(f"${{{name}}}"), lambda match, plain=plain: plain, expected)  # type: ignore[misc]
            if not isinstance(expected, str):
                break
        found = Macros(declared, Report(), Budget(1000)).text(text, NOWHERE, "")
        self.assertEqual((type(found), found), (type(expected), expected))
