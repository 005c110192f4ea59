"""Life-cycle hooks and sleep: actions of models and of all models, and every mistake at its place."""

from __future__ import annotations

from lswap.core.config.layout import EVENTS
from lswap.core.model import HookAction, Hooks, HttpCall, Model, Sleep, VllmSleep
from tests.core.config_case import ConfigCase


class HookCase(ConfigCase):
    """Models with hooks."""

    def fox(self, lines: str, top: str = "") -> Model:
        """The model with these lines."""
        return self.good(self.text(lines, top)).models["fox"]

    def text(self, lines: str, top: str = "") -> str:
        """One model with these lines, written without indentation."""
        body = "".join(f"    {line}\n" for line in lines.strip("\n").splitlines())
        return f"{top}models:\n  fox:\n    cmd: s ${{PORT}}\n{body}"

    def actions(self, value: str) -> tuple[HookAction, ...]:
        """The actions of one event."""
        return self.fox(f"on_startup: {value}").hooks.on_startup

    def call(self, inside: str) -> HttpCall:
        """The one call of an action that has these members."""
        (action,) = self.actions(f"{{http: {{{inside}}}}}")
        (call,) = action.calls
        return call


class ActionTests(HookCase):
    """What an action may be."""

    def test_the_request_of_the_documentation(self) -> None:
        """The short form, a list, calls and commands, defaults and settings."""
        fox = self.fox(
            """
on_will_stop:
  http:
    POST: "http://localhost:${PORT}/slots/0?action=save"
on_startup:
  - http: { POST: "/slots/0?action=restore", json: { filename: "${MODEL_ID}-0.bin" }, expect: [200, 400] }
    timeout: 60
    onError: continue
  - cmd: /usr/local/bin/warm-up --port ${PORT} --pid ${PID}
    onError: abort
"""
        )
        save = HttpCall(method="POST", url="http://localhost:5800/slots/0?action=save")
        self.assertEqual(fox.hooks.on_will_stop, (HookAction(calls=(save,)),))
        restore, warm_up = fox.hooks.on_startup
        self.assertEqual((restore.timeout, restore.on_error, restore.calls[0].expect), (60, "continue", (200, 400)))
        self.assertEqual(restore.calls[0].body, b'{"filename":"fox-0.bin"}')
        self.assertEqual(restore.calls[0].headers, (("Content-Type", "application/json"),))
        words = ("/usr/local/bin/warm-up", "--port", "5800", "--pid", "${PID}")
        self.assertEqual(warm_up, HookAction(words=words, on_error="abort"))

    def test_every_event(self) -> None:
        """All four are read; null and an empty list are no actions."""
        fox = self.fox("".join(f"{event}: {{cmd: 'run {event}'}}\n" for event in EVENTS))
        self.assertEqual(fox.hooks, Hooks(**{event: (HookAction(words=("run", event)),) for event in EVENTS}))
        self.assertEqual(self.fox("on_startup:\non_stopped: []").hooks, Hooks())

    def test_several_methods(self) -> None:
        """Also the same one several times, in the order written."""
        (action,) = self.fox(
            "on_startup:\n  http:\n    POST: /1\n    PUT: /2\n    POST: /3${PORT}\n    DELETE: /4\n    POST: /5"
        ).hooks.on_startup
        calls = [(call.method, call.url) for call in action.calls]
        self.assertEqual(calls, [("POST", "/1"), ("PUT", "/2"), ("POST", "/35800"), ("DELETE", "/4"), ("POST", "/5")])

    def test_bodies(self) -> None:
        """Any YAML value as JSON, null included, or a text; a content type of one's own is kept."""
        self.assertEqual(self.call("GET: /x").body, None)
        for text, body in (
            ("{a: [1, ~, 2.0]}", b'{"a":[1,null,2]}'),
            ("5", b"5"),
            ("~", b"null"),
            ("é", '"é"'.encode()),
        ):
            self.assertEqual(self.call(f"POST: /x, json: {text}").body, body)
        self.assertEqual(self.call("POST: /x, body: 'a=1&é'").body, "a=1&é".encode())
        call = self.call("POST: /x, json: {}, headers: {content-type: a/b, X-N: 5}")
        self.assertEqual(call.headers, (("content-type", "a/b"), ("X-N", "5")))

    def test_expected_statuses(self) -> None:
        """One or a list."""
        for text, statuses in (("204", (204,)), ("[200, 400]", (200, 400)), ("~", ())):
            self.assertEqual(self.call(f"GET: /x, expect: {text}").expect, statuses)

    def test_commands(self) -> None:
        """A text by the rules of `cmd`, or a list of words as they are."""
        self.assertEqual(self.actions("{cmd: \"a 'b c' # d\"}")[0].words, ("a", "b c", "#", "d"))
        self.assertEqual(self.actions("{cmd: [a, 'b c', 5, '']}")[0].words, ("a", "b c", "5", ""))

    def test_shared_actions(self) -> None:
        """An anchor serves several models, each with its own port."""
        text = "x-h: &h {http: {POST: '/${PORT}', PUT: /p}}\nmodels:\n" + "".join(
            f"  {name}: {{cmd: 's ${{PORT}}', on_startup: *h}}\n" for name in ("a", "b")
        )
        urls = [model.hooks.on_startup[0].calls[0].url for model in self.good(text).models.values()]
        self.assertEqual(urls, ["/5800", "/5801"])


class GlobalTests(HookCase):
    """`hooks.models`."""

    TOP = "hooks:\n  models:\n" + "".join(
        f"    {event}: {{cmd: 'global ${{MODEL_ID}} ${{PORT}} ${{PID}}'}}\n" for event in EVENTS
    )

    def test_they_are_the_outer_brackets(self) -> None:
        """First at starts, last at stops; with the macros of each model."""
        fox = self.fox("".join(f"{event}: {{cmd: own}}\n" for event in EVENTS), self.TOP)
        own, outer = HookAction(words=("own",)), HookAction(words=("global", "fox", "5800", "${PID}"))
        self.assertEqual((fox.hooks.on_will_start, fox.hooks.on_startup), ((outer, own), (outer, own)))
        self.assertEqual((fox.hooks.on_will_stop, fox.hooks.on_stopped), ((own, outer), (own, outer)))

    def test_they_see_a_models_own_macros(self) -> None:
        """As if they stood in the model."""
        fox = self.fox("macros: {m: mine}", "macros: {m: general}\nhooks: {models: {on_stopped: {cmd: '${m}'}}}\n")
        self.assertEqual(fox.hooks.on_stopped, (HookAction(words=("mine",)),))

    def test_preload_stays_what_it_is(self) -> None:
        """`hooks.on_startup` is no hook of this kind."""
        config = self.good(self.text("", "hooks: {on_startup: {preload: [fox]}, models: {on_startup: {cmd: x}}}\n"))
        self.assertEqual((config.preload, len(config.models["fox"].hooks.on_startup)), (("fox",), 1))

    def test_mistakes(self) -> None:
        """Told once however many models there are, also where there is none."""
        self.refused(
            "hooks:\n  models:\n    on_start: {cmd: x}\n",
            'config.yaml:3:5: hooks.models.on_start: unknown key "on_start"',
            "on_startup",
        )
        self.refused("hooks: {models: {on_startup: {cmd: ''}}}\n", "hooks.models.on_startup.cmd: empty command")
        models = "models: {a: {cmd: 's ${PORT}'}, b: {cmd: 's ${PORT}'}, c: {cmd: s, proxy: 'http://h'}}\n"
        told = self.told("hooks: {models: {on_startup: {cmd: 'x ${nope}'}}}\n" + models)
        self.assertEqual(told.count("${nope}"), 1)
        self.refused(
            "hooks: {models: {on_startup: {cmd: 'x ${PORT}'}}}\n" + models, "unknown macro '${PORT}' for model c"
        )


class MistakeTests(HookCase):
    """Each is told with its line and path."""

    def check(self, lines: str, *words: str) -> None:
        """The line with `HERE` is named, with these words."""
        text = self.text(lines)
        line = next(at for at, one in enumerate(text.splitlines(), 1) if "HERE" in one)
        told = self.told(text)
        self.assertIn(f"config.yaml:{line}:", told)
        for word in ("models.fox.on_startup", *words):
            self.assertIn(word, told)

    def test_members(self) -> None:
        """Unknown ones are errors: they might have been a limit."""
        self.check("on_startup:\n  cmd: x\n  retries: 3 # HERE", "on_startup.retries", 'unknown key "retries"')
        self.check("on_startup:\n  cmd: x\n  onerror: abort # HERE", 'did you mean "onError"?')
        self.check("on_startup:\n  http:\n    POST: /x\n    jsno: {} # HERE", "http.jsno", 'did you mean "json"?')
        self.check("on_startup:\n  http:\n    FETCH: /x # HERE", "http.FETCH", "no method")
        self.check("on_startup:\n  http:\n    post: /x # HERE", 'did you mean "POST"?')

    def test_kinds_of_actions(self) -> None:
        """Exactly one of http and cmd."""
        self.check("on_startup:\n  cmd: x # HERE\n  http: {POST: /x}", "an action has either http or cmd, not both")
        self.check("on_startup:\n  timeout: 3 # HERE", "an action needs http or cmd")
        self.check("on_startup: text # HERE", "cannot unmarshal !!str `text` into an action")
        self.check("on_startup:\n  http:\n    json: {} # HERE", "no method")
        self.check("on_startup:\n  http: # HERE", "no method")
        self.check("on_startup:\n  - {cmd: x}\n  - {cmd: ''} # HERE", "on_startup[1].cmd: empty command")
        self.check("on_startup:\n  cmd: [] # HERE", "empty command")

    def test_calls(self) -> None:
        """URLs, bodies, headers, statuses."""
        for url in ("hook/x", "localhost:80/x", "ftp://host/x", "http://", "http://h:port/", "'/x y'", "''", "~"):
            self.check(f"on_startup:\n  http:\n    POST: {url} # HERE", "on_startup.http.POST")
        self.check(
            "on_startup:\n  http:\n    POST: /1\n    PUT: /2\n    json: {} # HERE", "several methods in one action"
        )
        self.check("on_startup:\n  http:\n    POST: /1\n    json: {}\n    body: x # HERE", "either json or body")
        self.check(
            "on_startup:\n  http:\n    POST: /1\n    json: {}\n    json: {} # HERE",
            'mapping key "json" already defined at line 7',
        )
        self.check("on_startup:\n  http:\n    POST: /1\n    expect: 99 # HERE", "99 is no status")
        self.check("on_startup:\n  http:\n    POST: /1\n    headers: {'a b': x} # HERE", "name of a header")
        told = self.told(self.text('on_startup:\n  http:\n    POST: /1\n    headers: {X: "hush\\r\\nY: z"}'))
        self.assertIn("headers.X", told)
        self.assertNotIn("hush", told)

    def test_settings(self) -> None:
        """Times in their range, one of two words."""
        for value in ("-1", "0", "3601", "0.05"):
            self.check(
                f"on_startup:\n  cmd: x\n  timeout: {value} # HERE", "timeout must be between 0.1 and 3600 seconds"
            )
        self.check("on_startup:\n  cmd: x\n  timeout: soon # HERE", "on_startup.timeout: cannot unmarshal")
        self.check(
            "on_startup:\n  cmd: x\n  onError: ignore # HERE",
            'onError: "ignore" is not possible: one of: continue, abort',
        )
        self.assertEqual(self.actions("{cmd: x, timeout: 0.1}")[0].timeout, 0.1)

    def test_macros(self) -> None:
        """Those that do not exist are told as in any field."""
        self.check("on_startup:\n  cmd: x ${nope} # HERE", "model fox on_startup.cmd: unknown macro '${nope}'")


class SleepTests(HookCase):
    """`sleep`."""

    def test_both_ways(self) -> None:
        """vLLM's own, or two actions, whose default time is a minute."""
        self.assertIsNone(self.fox("").sleep)
        for text, level in (("{vllm: {level: 2}}", 2), ("{vllm: {}}", 1), ("{vllm: }", 1)):
            self.assertEqual(self.fox(f"sleep: {text}").sleep, Sleep(vllm=VllmSleep(level=level)))
        found = self.fox(
            "sleep:\n  sleep: {http: {POST: /s, json: {}}}\n  wake: [{cmd: w}, {cmd: v, timeout: 5}]\n  maxAsleep: 1h"
        ).sleep
        assert found is not None
        self.assertEqual((found.max_asleep, found.sleep[0].timeout, found.sleep[0].calls[0].url), (3600, 60, "/s"))
        self.assertEqual(found.wake, (HookAction(words=("w",), timeout=60), HookAction(words=("v",), timeout=5)))

    def test_mistakes(self) -> None:
        """Each is told with its path."""
        for text, told in (
            ("{}", "models.fox.sleep: sleep needs either vllm, or both sleep and wake"),
            ("{vllm: {}, sleep: {cmd: x}, wake: {cmd: x}}", "sleep needs either vllm, or both sleep and wake"),
            ("{sleep: {cmd: x}}", "models.fox.sleep: sleep has only sleep: both sleep and wake"),
            ("{wake: {cmd: x}}", "sleep has only wake"),
            ("{vllm: {level: 3}}", "models.fox.sleep.vllm.level: must be <= 2"),
            ("{sleep: {cmd: x}, wake: }", "models.fox.sleep.wake: no action"),
            ("{sleep: {cmd: x}, wake: {cmd: ''}}", "models.fox.sleep.wake.cmd: empty command"),
            ("{vllm: {}, maxAsleep: soon}", "models.fox.sleep.maxAsleep"),
            ("yes", "models.fox.sleep: cannot unmarshal"),
        ):
            self.assertIn(told, self.told(self.text(f"sleep: {text}")))
