"""The section `models`: defaults, values, ports, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

from lswap.core.config.ports import allocate
from lswap.core.model import Capabilities, Compat, Config, Filters, Group, KvCache, Model, Timeouts
from tests.core.config_case import MODEL, ConfigCase


class DefaultTests(ConfigCase):
    """What a model has that says nothing."""

    def test_a_model_of_one_line(self) -> None:
        """Every field has the default of the reference."""
        model = self.model("")
        self.assertEqual(
            model, Model(id="fox", cmd="s 5800", proxy="http://localhost:5800", port=5800, words=("s", "5800"))
        )
        self.assertEqual((model.check_endpoint, model.ttl, model.unload_timeout), ("/health", 0, 10))
        self.assertEqual((model.health_check_timeout, model.concurrency_limit, model.aliases), (120, 0, ()))
        self.assertEqual(model.timeouts, Timeouts(connect=30, keepalive=30, response_header=0, tls_handshake=10))
        self.assertEqual((model.timeouts.expect_continue, model.timeouts.idle_conn), (1, 90))
        self.assertFalse(model.capabilities.configured)

    def test_models_are_in_the_order_of_their_ids(self) -> None:
        """By bytes, whatever the order of the file."""
        text = "".join(f"  '{name}': {{cmd: 's ${{PORT}}'}}\n" for name in ("b2", "é", "a", "b10", "B", "x/y:F16"))
        self.assertEqual(list(self.good("models:\n" + text).models), ["B", "a", "b10", "b2", "x/y:F16", "é"])

    def test_configurations_made_by_hand_resolve_names(self) -> None:
        """The table of names is made from the models, always; also after a replacement."""
        config = Config(models={"a": Model(id="a", aliases=("x",)), "b": Model(id="b", aliases=("a",))})
        self.assertEqual([config.resolve(name) for name in ("a", "x", "b", "y")], ["a", "a", "b", None])

    def test_words_are_those_of_the_command(self) -> None:
        """A model made by hand has them too."""
        self.assertEqual(Model(id="a", cmd="run 'x y'").words, ("run", "x y"))

    def test_secrets_are_not_in_a_representation(self) -> None:
        """Configurations end in tracebacks; keys and environments do not."""
        config = self.good(
            "apiKeys: [hush-hush-1]\npeers: {p: {proxy: 'http://h', models: [m], apiKey: hush-hush-2}}\n"
            "models: {a: {cmd: 's ${PORT}', env: [T=hush-hush-3],"
            " on_startup: {http: {POST: /x, headers: {X: hush-hush-4}}}}}\n"
        )
        self.assertNotIn("hush", repr(config))


class ValueTests(ConfigCase):
    """The keys of a model."""

    def test_times_fall_back_to_the_global_ones(self) -> None:
        """-1 and silence are globalTTL, 0 is never; 0 and silence are the global unloadTimeout."""
        for inside, ttl in (("", 300), ("ttl: -1", 300), ("ttl: 0", 0), ("ttl: 600", 600), ("ttl: ~", 300)):
            self.assertEqual(self.model(inside, "globalTTL: 300\n").ttl, ttl, inside)
        for inside, seconds in (("", 25), ("unloadTimeout: 0", 25), ("unloadTimeout: 45", 45)):
            self.assertEqual(self.model(inside, "unloadTimeout: 25\n").unload_timeout, seconds)
        self.refused(MODEL.replace("}}", ", ttl: -7}}"), "models.a.ttl: model a: invalid TTL value -7")
        self.refused(MODEL.replace("}}", ", unloadTimeout: -1}}"), "model a: invalid unloadTimeout value -1")

    def test_a_models_own_health_check_timeout_counts(self) -> None:
        """At least one second; silence is the global value."""
        for inside, seconds in (("", 33), ("healthCheckTimeout: 7", 7), ("healthCheckTimeout: 0", 1)):
            self.assertEqual(self.model(inside, "healthCheckTimeout: 33\n").health_check_timeout, seconds)

    def test_sending_the_loading_state(self) -> None:
        """The global value holds for those who say nothing."""
        self.assertTrue(self.model("", "sendLoadingState: true\n").send_loading_state)
        self.assertFalse(self.model("sendLoadingState: false", "sendLoadingState: true\n").send_loading_state)

    def test_texts_for_listings_are_trimmed(self) -> None:
        """Blanks around names say nothing."""
        model = self.model("name: '  The A ', description: '  '")
        self.assertEqual((model.name, model.description), ("The A", ""))

    def test_limits(self) -> None:
        """Nothing and less is no limit of its own."""
        for text, limit in (("10", 10), ("0", 0), ("-1", 0), ("2.5", 2)):
            self.assertEqual(self.model(f"concurrencyLimit: {text}").concurrency_limit, limit)

    def test_comfyui_auto(self) -> None:
        """That ID has at least 50 requests and never minds websockets; others keep theirs."""
        for own, limit in (("", 50), ("concurrencyLimit: 10", 50), ("concurrencyLimit: 60", 60)):
            config = self.good(
                f"models: {{comfyui_auto: {{cmd: 's ${{PORT}}', compat: {{ignoreWebsockets: false}}, {own}}}}}\n"
            )
            model = config.models["comfyui_auto"]
            self.assertEqual((model.concurrency_limit, model.compat), (limit, Compat(ignore_websockets=True)))
        self.assertEqual(self.model("concurrencyLimit: 10").compat, Compat())

    def test_timeouts_default_one_by_one(self) -> None:
        """Zero is kept, a negative one counts as zero and is told."""
        self.assertEqual(
            self.model("timeouts: {connect: 45, responseHeader: 120, keepalive: 0}").timeouts,
            Timeouts(connect=45, response_header=120, keepalive=0),
        )
        text = "models: {a: {cmd: 's ${PORT}', timeouts: {connect: -5}}}\n"
        self.assertEqual(self.good(text).models["a"].timeouts, Timeouts(connect=0))
        self.assertIn("models.a.timeouts.connect", self.warned(text)[0])

    def test_capabilities(self) -> None:
        """Exact words, not negative; all empty is not configured."""
        found = self.model("capabilities: {in: [text, image], out: [text], tools: true, context: 32768}").capabilities
        self.assertEqual(found, Capabilities(inputs=("text", "image"), outputs=("text",), tools=True, context=32768))
        for empty in ("", "tools: false", "reranker: false, context: 0", "in: []"):
            self.assertFalse(self.model(f"capabilities: {{{empty}}}").capabilities.configured)
        self.assertTrue(self.model("capabilities: {reranker: true}").capabilities.configured)
        told = 'model fox: capabilities.in: invalid modality "video", must be one of: text, audio, image'
        self.refused("models: {fox: {cmd: 's ${PORT}', capabilities: {in: [text, video]}}}\n", told)
        self.refused(
            "models: {fox: {cmd: 's ${PORT}', capabilities: {out: [Text]}}}\n",
            'capabilities.out: invalid modality "Text"',
        )
        told = "model fox: capabilities.context: must be >= 0"
        self.refused("models: {fox: {cmd: 's ${PORT}', capabilities: {context: -1}}}\n", told)

    def test_filters(self) -> None:
        """Lists of names are trimmed, sorted and unique; `model` is never touched."""
        found = self.model(
            "filters: {stripParams: ' model, top_k,top_k, , a.b ,,', setParams: {z: 1, model: x, b: {c: [~]}}}"
        )
        self.assertEqual(found.filters, Filters(strip_params=("a.b", "top_k"), set_params={"b": {"c": [None]}, "z": 1}))
        self.assertEqual(list(found.filters.set_params), ["b", "z"])
        for text in ("''", "model", "' , ,'"):
            self.assertEqual(self.model(f"filters: {{stripParams: {text}}}").filters.strip_params, ())
        by_id = self.model("filters: {setParamsByID: {x: {model: m, b: 1, a: 2}, y: ~}}").filters.set_params_by_id
        self.assertEqual((by_id, list(by_id["x"])), ({"x": {"a": 2, "b": 1}, "y": {}}, ["a", "b"]))

    def test_the_old_spelling_of_strip_params(self) -> None:
        """It counts where the new one is absent or empty, without a word about it."""
        for text, names in (
            ("strip_params: top_k", ("top_k",)),
            ("strip_params: top_k, stripParams: ''", ("top_k",)),
            ("strip_params: top_k, stripParams: seed", ("seed",)),
        ):
            text = f"models: {{a: {{cmd: 's ${{PORT}}', filters: {{{text}}}}}}}\n"
            self.assertEqual(self.good(text).models["a"].filters.strip_params, names)
            self.assertEqual(self.warned(text), [])
        self.refused(
            "models: {a: {cmd: 's ${PORT}', filters: {stripParams: [a]}}}\n",
            "filters.stripParams: cannot unmarshal !!seq",
        )

    def test_numbers_that_json_does_not_have(self) -> None:
        """They could never be sent."""
        text = "models: {a: {cmd: 's ${PORT}', filters: {setParams: {x: [.inf]}, setParamsByID: {y: {z: .nan}}}}}\n"
        self.refused(
            text, "models.a.filters.setParams.x[0]: JSON has no", "models.a.filters.setParamsByID.y.z: JSON has no"
        )

    def test_the_stop_command(self) -> None:
        """Comment lines are dropped; of nothing but comments nothing is left."""
        text = "models:\n  a:\n    cmd: s ${PORT}\n    cmdStop: |\n      # how\n      stop ${PID}\n"
        text += "  b: {cmd: 's ${PORT}', cmdStop: '# x'}\n"
        models = self.good(text).models
        self.assertEqual((models["a"].cmd_stop, models["b"].cmd_stop), ("stop ${PID}\n", ""))

    def test_urls(self) -> None:
        """What cannot be a URL is refused, what leads nowhere is a warning."""
        for bad in ("://x", "http://h:port", "http://[::1", "127.0.0.1:80", "http://a b", "http://%zz", "http://h/%zz"):
            self.refused(
                f"models: {{fox: {{cmd: s, proxy: '{bad}'}}}}\n", "models.fox.proxy: model fox: invalid proxy URL: "
            )
        for odd in ("localhost", "''", "localhost:80", "ftp://h"):
            self.assertIn("models.a.proxy", self.warned(f"models: {{a: {{cmd: s, proxy: {odd}}}}}\n")[0])
        for good in ("http://127.0.0.1:9/base", "https://[::1]:80", "HTTP://h", "http://u:p@h:1/x?y"):
            self.assertEqual(self.warned(f"models: {{a: {{cmd: s, proxy: '{good}'}}}}\n"), [])

    def test_the_check_endpoint(self) -> None:
        """`none` in blanks is none, of a whole URL the path counts, and what is no URL is refused."""
        for text, endpoint in (
            ("' none '", "none"),
            ("/own?x=1", "/own?x=1"),
            ("http://h:1/p/q?r", "/p/q"),
            ("None", "None"),
        ):
            self.assertEqual(self.model(f"checkEndpoint: {text}").check_endpoint, endpoint)
        self.refused("models: {fox: {cmd: 's ${PORT}', checkEndpoint: '%zz'}}\n", "models.fox.checkEndpoint", "%zz")

    def test_entries_of_the_environment(self) -> None:
        """Any text is taken; one without `=` is told without being shown."""
        text = "models: {a: {cmd: 's ${PORT}', env: [A=1, A=2, B=, hush-hush, 7]}}\n"
        self.assertEqual(self.good(text).models["a"].env, ("A=1", "A=2", "B=", "hush-hush", "7"))
        self.assertEqual(len(self.warned(text)), 2)
        self.assertNotIn("hush", "".join(self.warned(text)))
        for bad in ("hush-hush", "{T: hush-hush}", "[[hush-hush]]"):
            told = self.told(f"models: {{a: {{cmd: 's ${{PORT}}', env: {bad}}}}}\n")
            self.assertIn("models.a.env", told)
            self.assertNotIn("hush", told)

    def test_kv_cache(self) -> None:
        """Sizes and ages have units; a command that is no llama-server is one warning."""
        text = (
            "models: {a: {cmd: '%s --port ${PORT}', kvCache: {persist: true, dir: /x, maxBytes: 20G, maxAge: 12h%s}}}\n"
        )
        found = self.good(text % ("/opt/llama-server", "")).models["a"].kv_cache
        self.assertEqual(found, KvCache(persist=True, dir="/x", max_bytes=20 * 10**9, max_age=43200))
        for program in ("/opt/llama-server", "llama-server.exe", "'C:\\llama-server.exe'"):
            self.assertEqual(self.warned(text % (program.replace("'", "''"), "")), [])
        self.assertEqual(self.warned(text % ("docker run llama-server", ", engine: llama-server")), [])
        warnings = self.warned(text % ("docker run llama-server", ""))
        self.assertEqual((len(warnings), "kvCache" in warnings[0]), (1, True))
        for bad in ("maxBytes: lots", "maxAge: -1", "minTokens: x", "engine: vllm", "maxBytes: 20 X"):
            text = f"models: {{a: {{cmd: 'llama-server ${{PORT}}', kvCache: {{{bad}}}}}}}\n"
            self.refused(text, f"models.a.kvCache.{bad.split(':')[0]}")

    def test_memory(self) -> None:
        """Sizes of budgets that exist, or `auto`."""
        top = "budgets: {gpu0: 24G, ram: 64000000000}\n"
        self.assertEqual(self.good(top + MODEL).budgets, {"gpu0": 24 * 10**9, "ram": 64 * 10**9})
        self.assertEqual(self.model("memory: {gpu0: 1.5G}", top).memory, {"gpu0": 1_500_000_000})
        self.assertTrue(self.model("memory: auto", top).memory_auto)
        self.refused(top + MODEL.replace("}}", ", memory: {gpu1: 1G}}}"), "models.a.memory", 'did you mean "gpu0"?')
        self.refused(top + MODEL.replace("}}", ", memory: lots}}"), "models.a.memory")

    def test_a_model_of_nothing(self) -> None:
        """An entry without settings, or without a command, is told and cannot be started; others can."""
        for entry in ("", " ~", " {proxy: 'http://h', cmd: '# x'}", " {proxy: 'http://h'}"):
            text = f"models:\n  a: {{cmd: 's ${{PORT}}'}}\n  b:{entry}\n"
            self.assertEqual(self.good(text).models["b"].words, ())
            self.assertEqual(len(self.warned(text)), 1, entry)
        self.refused("models: {fox: {}}\n", "model fox: proxy uses ${PORT} but cmd does not")

    def test_null_characters(self) -> None:
        """No command, entry of the environment or other text may have one: nothing could be done with it."""
        for inside in (
            'cmd: "s\\0"',
            'env: ["A=\\0"]',
            'cmdStop: "x\\0"',
            'on_startup: {cmd: "x\\0"}',
            'kvCache: {dir: "\\0"}',
        ):
            self.refused(f"models: {{a: {{proxy: 'http://h', {inside}}}}}\n", "models.a.", "null character")

    def test_a_model_that_is_no_mapping(self) -> None:
        """A list or a text is refused with its name."""
        for bad in ("[a]", "text", "5"):
            self.refused(f"models: {{fox: {bad}}}\n", "models.fox: cannot unmarshal")
            self.refused(f"models: {bad}\n", "models: cannot unmarshal")

    def test_every_key_of_the_wrong_kind(self) -> None:
        """Each is told with its path."""
        for key, bads in {
            "cmd": ("[a, b]", "{a: b}"),
            "cmdStop": ("[a]",),
            "proxy": ("[a]",),
            "aliases": ("one", "{a: b}"),
            "filters": ("[a]", "text"),
            "filters.setParams": ("[a]",),
            "filters.setParamsByID": ("[a]", "{x: 1}"),
            "metadata": ("[a]", "text"),
            "timeouts": ("30", "[1]"),
            "compat": ("[a]",),
            "capabilities": ("[a]", "text"),
            "capabilities.tools": ("maybe",),
            "capabilities.in": ("text",),
            "concurrencyLimit": ("many",),
            "kvCache": ("true",),
            "sleep": ("true",),
            "keep": ("maybe",),
        }.items():
            for bad in bads:
                outer, _, inner = key.partition(".")
                inside = f"{outer}: {{{inner}: {bad}}}" if inner else f"{outer}: {bad}"
                self.refused(f"models: {{a: {{cmd: 's ${{PORT}}', {inside}}}}}\n", f"models.a.{key}")

    def test_unknown_keys_are_warnings_with_the_nearest_one(self) -> None:
        """At any depth, in any case; they stop nothing."""
        for inside, near in (
            ("ttI: 3", "ttl"),
            ("TTL: -5", "ttl"),
            ("concurencyLimit: 3", "concurrencyLimit"),
            ("alias: [x]", "aliases"),
            ("on_start: {}", "on_startup"),
            ("check_endpoint: x", "checkEndpoint"),
        ):
            warnings = self.warned(f"models: {{a: {{cmd: 's ${{PORT}}', {inside}}}}}\n")
            self.assertIn(f'unknown key "{inside.split(":")[0]}": did you mean "{near}"?', warnings[0])
        self.assertIn(
            "models.a.timeouts.conect", self.warned("models: {a: {cmd: 's ${PORT}', timeouts: {conect: 1}}}\n")[0]
        )


class PortTests(ConfigCase):
    """The numbers that `${PORT}` gets."""

    def ports(self, text: str, before: Mapping[str, int] = {}) -> dict[str, int | None]:
        """The port of each model."""
        return {name: model.port for name, model in self.good(text, ports=before).models.items()}

    def test_consecutive_in_the_order_of_the_ids(self) -> None:
        """From startPort on; models that do not use it take none."""
        text = "startPort: 9000\nmodels:\n" + "".join(
            f"  {n}: {{cmd: 's ${{PORT}}'}}\n" for n in ("model2", "author/model:F16", "model1")
        )
        self.assertEqual(self.ports(text), {"author/model:F16": 9000, "model1": 9001, "model2": 9002})
        text = "models: {a: {cmd: 's ${PORT}'}, b: {cmd: s, proxy: 'http://h'}, c: {cmd: 's ${PORT}'}}\n"
        self.assertEqual(self.ports(text), {"a": 5800, "b": None, "c": 5801})

    def test_one_number_for_every_place(self) -> None:
        """Command, proxy, metadata, aliases and keys share it; a value of nothing else is a number."""
        model = self.model(
            "proxy: 'http://h:${PORT}', name: 'on ${PORT}', aliases: ['p${PORT}'],"
            " metadata: {x: '${PORT}', y: [':${PORT}']}"
        )
        self.assertEqual((model.proxy, model.name, model.aliases), ("http://h:5800", "on 5800", ("p5800",)))
        self.assertEqual(model.metadata, {"x": 5800, "y": [":5800"]})

    def test_a_proxy_needs_the_port_in_the_command(self) -> None:
        """The message is exactly the reference's."""
        told = "model fox: proxy uses ${PORT} but cmd does not - ${PORT} is only available when used in cmd"
        self.refused("models: {fox: {cmd: 's -p 1'}}\n", told)
        self.refused("models: {fox: {cmd: s, proxy: 'http://h:${PORT}'}}\n", told)
        self.assertEqual(len(self.told("models: {fox: {cmd: s, proxy: 'http://h:${PORT}'}}\n").splitlines()), 1)

    def test_a_reload_keeps_numbers(self) -> None:
        """As long as the ID exists and uses a port; a number that a removed model may still have is left alone."""
        text = (
            "startPort: 9000\nmodels: {a: {cmd: 's ${PORT}'}, m: {cmd: 's ${PORT}'}, n: {cmd: s, proxy: 'http://h'}}\n"
        )
        self.assertEqual(self.ports(text, {"m": 9000, "gone": 9001, "n": 9005}), {"a": 9002, "m": 9000, "n": None})
        self.assertEqual(self.ports(text, {"m": 8999}), {"a": 9000, "m": 9001, "n": None})
        self.assertEqual(self.ports(text, {"a": 9007, "m": 9007}), {"a": 9007, "m": 9000, "n": None})

    def test_numbers_run_out(self) -> None:
        """There is no port above 65535; a start beyond it matters only when a port is needed."""
        text = "startPort: 65535\nmodels: {a: {cmd: 's ${PORT}'}, b: {cmd: 's ${PORT}'}}\n"
        self.refused(text, "config.yaml:1:12: startPort 65535 leaves no port for model b")
        self.good("startPort: 99999\n")
        self.assertEqual(allocate(["a", "b"], 65535, {}), {"a": 65535, "b": None})

    def test_a_fixed_port_that_is_given_out_too(self) -> None:
        """Two models on one port are told."""
        text = "models: {a: {cmd: 's ${PORT}'}, b: {cmd: s, proxy: 'http://127.0.0.1:5800'}}\n"
        self.assertIn("${PORT} of model a is port 5800 too", self.warned(text)[0])

    def test_start_port(self) -> None:
        """At least one, and a number."""
        self.good("startPort: 1\n")
        for bad in ("0", "-99"):
            self.refused(f"startPort: {bad}\n", "startPort must be greater than 1")
        self.refused("startPort: abcd\n", "startPort: cannot unmarshal !!str `abcd` into int")


class ExampleTests(ConfigCase):
    """The complete example of the reference's documentation."""

    def test_it_gives_what_it_says(self) -> None:
        """Models, groups, selectors, preload and peers."""
        config = self.good(
            """
startPort: 7000
globalTTL: 900
macros: {srv: "/opt/infer/serve --port ${PORT}", ctx: 8192}
models:
  fox:
    macros: {ctx: 32768}
    cmd: |
      # long-context variant
      ${srv} --ctx ${ctx}
      --model '/data/fox model.bin'
    cmdStop: "stopper --pid ${PID} --name ${MODEL_ID}"
    aliases: [fast-fox]
    metadata: {ctx: "${ctx}", note: "port ${PORT}"}
    filters: {setParamsByID: {"${MODEL_ID}:terse": {max_tokens: 64}}}
  hen: {cmd: "hen-server -p 9001", proxy: "http://127.0.0.1:9001", ttl: 0}
peers: {den: {proxy: "https://den.example/api", apiKey: secret, models: [org/owl], timeouts: {connect: 5}}}
selectors: {any: {strategy: spillover, targets: [fox, org/owl]}}
routing: {router: {settings: {groups: {pool: {swap: false, members: [fox]}}}}}
hooks: {on_startup: {preload: [fast-fox]}}
"""
        )
        fox, hen, den = config.models["fox"], config.models["hen"], config.peers["den"]
        self.assertEqual(
            fox.words, ("/opt/infer/serve", "--port", "7000", "--ctx", "32768", "--model", "/data/fox model.bin")
        )
        self.assertEqual(
            (fox.proxy, fox.ttl, fox.cmd_stop), ("http://localhost:7000", 900, "stopper --pid ${PID} --name fox")
        )
        self.assertEqual((fox.aliases, fox.metadata), (("fast-fox", "fox:terse"), {"ctx": 32768, "note": "port 7000"}))
        self.assertEqual((hen.port, hen.ttl), (None, 0))
        self.assertEqual(
            config.groups,
            {
                "pool": Group(id="pool", swap=False, members=("fox",)),
                "(default)": Group(id="(default)", members=("hen",)),
            },
        )
        self.assertEqual((config.router, config.scheduler, config.preload), ("group", "fifo", ("fox",)))
        self.assertEqual(
            (config.selectors["any"].spillover, den.timeouts), (1, Timeouts(connect=5, response_header=60))
        )
