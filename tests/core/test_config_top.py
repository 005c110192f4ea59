"""The keys of the first level, and the small languages of their values."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import units, urls
from lswap.core.config.patterns import PatternError, compile_re2
from lswap.core.model import Config, Limits, Performance
from tests.core.config_case import MODEL, ConfigCase


class TopTests(ConfigCase):
    """Values of the first level."""

    def test_defaults(self) -> None:
        """Nothing at all is a good configuration, with the defaults of the reference."""
        config = self.good("")
        self.assertEqual((config.start_port, config.global_ttl, config.unload_timeout), (5800, 0, 10))
        self.assertEqual((config.log_level, config.log_to_stdout, config.log_time_format), ("info", "proxy", ""))
        self.assertEqual((config.metrics_max_in_memory, config.capture_buffer, config.store_path), (1000, 5, None))
        self.assertEqual((config.performance, config.limits), (Performance(disabled=False, every=5), Limits()))
        self.assertEqual((config.router, config.scheduler, config.auto_unload), ("group", "fifo", True))
        self.assertEqual(config.session_headers, ("X-Session-ID", "X-Litellm-Session-Id"))
        self.assertEqual(
            (config.include_aliases_in_list, config.send_loading_state, config.api_keys), (False, False, ())
        )

    def test_whole_numbers(self) -> None:
        """Some are raised to a least value, some are refused below it."""
        for text, seconds in (("120", 120), ("15", 15), ("1", 15), ("-5", 15), ("20.7", 20)):
            self.assertEqual(self.good(f"healthCheckTimeout: {text}\n").health_check_timeout, seconds)
        self.assertEqual(self.good("healthCheckTimeout: 20\n" + MODEL).models["a"].health_check_timeout, 20)
        self.assertEqual(self.good("unloadTimeout: 0\n").unload_timeout, 10)
        self.assertEqual(
            [self.good(f"metricsMaxInMemory: {n}\n").metrics_max_in_memory for n in (7, 0, -1)], [7, 1000, 1000]
        )
        self.assertEqual([self.good(f"captureBuffer: {n}\n").capture_buffer for n in (7, 0, -1)], [7, 0, 0])
        self.refused("globalTTL: -1\n", "config.yaml:1:12: globalTTL must be >= 0")
        self.refused("unloadTimeout: -1\n", "unloadTimeout must be >= 0")

    def test_words(self) -> None:
        """Levels and time formats in any case; others are told and count as the default."""
        config = self.good("logLevel: ' WARN '\nlogTimeFormat: ' RFC3339 '\nlogToStdout: both\nlogRequests: true\n")
        self.assertEqual((config.log_level, config.log_time_format, config.log_to_stdout), ("warn", "rfc3339", "both"))
        self.assertEqual(self.warned("logLevel: WARN\nlogTimeFormat: Kitchen\nlogRequests: true\n"), [])
        self.assertEqual((self.good("logLevel: loud\n").log_level, len(self.warned("logLevel: loud\n"))), ("info", 1))
        self.assertEqual(len(self.warned("logTimeFormat: stardate\n")), 1)
        forms = [self.good(text).log_format for text in ("", "logFormat: JSON\n", "logFormat: xml\n")]
        self.assertEqual((forms, len(self.warned("logFormat: xml\n"))), (["text", "json", "text"], 1))
        for bad in ("stdout", "Proxy", "''", "true"):
            self.refused(f"logToStdout: {bad}\n", "logToStdout must be one of: proxy, upstream, both, none")

    def test_performance(self) -> None:
        """A duration of at least five seconds, also where the monitor is off; nothing is five."""
        for text, seconds in (
            ("5s", 5),
            ("1m30s", 90),
            ("1.5m", 90),
            ("6000ms", 6),
            ("1h", 3600),
            ("0s", 5),
            ("'0'", 5),
            ("5000000us", 5),
        ):
            self.assertEqual(self.good(f"performance: {{every: {text}}}\n").performance, Performance(every=seconds))
        for text, told in (("4s", "4s"), ("4999ms", "4.999s"), ("-6s", "-6s"), ("1ns", "1ns")):
            self.refused(f"performance: {{every: {text}}}\n", f"performance: every must be at least 5s, got {told}")
        for bad in ("30", "1d", "'5 s'", "soon", "0", "[5s]", "''"):
            self.refused(f"performance: {{every: {bad}}}\n", "performance.every: cannot unmarshal")
        self.refused("performance: {disabled: true, every: 1s}\n", "every must be at least 5s")
        self.assertEqual(self.good("performance: {disabled: true}\n").performance, Performance(disabled=True))

    def test_store(self) -> None:
        """A path that is not empty; it is used without the blanks around it."""
        self.assertEqual(self.good("store: {path: ' /x/y.db '}\n").store_path, "/x/y.db")
        self.assertEqual(self.good("store:\n").store_path, None)
        for text in ("{path: ''}", "{path: '  '}", "{}", "{path: }"):
            self.refused(f"store: {text}\n", "store.path must not be empty")
        self.assertEqual(self.load("store: {path: /x}\n").places["store.path"], ("config.yaml", 1, 15))

    def test_session_headers(self) -> None:
        """Trimmed, without blanks, and without doubles in another case, of which the first spelling stays."""
        for text, headers in (
            ("[' X-Trace-ID ', '', x-trace-id, X-Session-ID]", ("X-Trace-ID", "X-Session-ID")),
            ("[]", ()),
            ("~", ()),
        ):
            self.assertEqual(self.good(f"ui: {{activity: {{session_id: {text}}}}}\n").session_headers, headers)
        self.assertEqual(len(self.good("ui: {activity: }\n").session_headers), 2)

    def test_ignore_paths(self) -> None:
        """The default where there are none, else those that are given; a bad one is told."""
        for text in ("", "upstream: {}\n", "upstream: {ignorePaths: []}\n", "upstream: {ignorePaths: ~}\n"):
            (default,) = self.good(text).ignore_paths
            for path in ("/foo.js", "/bar/baz.json", "/static/img.png", "/notes.txt", "/favicon.ico"):
                self.assertTrue(default.search(path), path)
            for path in ("/v1/chat/completions", "/v1/models", "/health", "/x.js/y", "/a.js\n"):
                self.assertFalse(default.search(path), path)
        first, second = self.good("upstream: {ignorePaths: ['^/static/.*', '\\.mp4$']}\n").ignore_paths
        self.assertTrue(first.search("/static/x") and second.search("/y.mp4"))
        self.assertFalse(first.search("/x/static/") or second.search("/y.mp4x"))
        self.refused(
            "upstream: {ignorePaths: [a, '[invalid(']}\n",
            "config.yaml:1:29:",
            'upstream.ignorePaths: invalid regular expression "[invalid("',
        )

    def test_limits(self) -> None:
        """Sizes in bytes or with a unit, times in seconds or with one."""
        found = self.good(
            "limits: {requestHead: 64K, requestBody: 1.5G, headTimeout: 90, idleTimeout: 2m, queue: 5}\n"
        ).limits
        wanted = Limits(request_head=64_000, request_body=1_500_000_000, head_timeout=90, idle_timeout=120, queue=5)
        self.assertEqual(found, wanted)
        for bad in (
            "requestHead: 5",
            "requestBody: lots",
            "headTimeout: 0",
            "idleTimeout: -1",
            "queue: -1",
            "queue: x",
        ):
            self.refused(f"limits: {{{bad}}}\n", f"limits.{bad.split(':')[0]}: ")

    def test_other_keys(self) -> None:
        """What lswap adds."""
        config = self.good("autoUnload: false\nincludeAliasesInList: true\nsendLoadingState: yes\n")
        self.assertEqual(
            (config.auto_unload, config.include_aliases_in_list, config.send_loading_state), (False, True, True)
        )

    def test_sections_of_the_wrong_kind(self) -> None:
        """Each is told with its name, once."""
        table = {
            "models": ("[]", "text", "5"),
            "groups": ("[a]", "text"),
            "macros": ("[a]", "text"),
            "peers": ("[a]", "text"),
            "selectors": ("[a]", "text"),
            "profiles": ("[a]", "text"),
            "hooks": ("[a]", "text", "{on_startup: {preload: a}}", "{models: [a]}"),
            "apiKeys": ("text", "{a: b}"),
            "performance": ("5s",),
            "upstream": ("[a]",),
            "ui": ("[a]",),
            "routing": ("group", "{router: x}", "{scheduler: x}", "{router: {settings: x}}"),
            "store": ("/x/y",),
            "limits": ("[a]",),
            "budgets": ("[a]", "{a: b}"),
            "logLevel": ("[info]",),
            "globalTTL": ("[1]", "soon"),
            "sendLoadingState": ("maybe",),
            "autoUnload": ("2",),
        }
        for key, bads in table.items():
            for bad in bads:
                found = self.told(f"{key}: {bad}\n")
                self.assertIn(f": {key}", found)
                self.assertEqual(len(found.splitlines()), 1, found)

    def test_unknown_keys(self) -> None:
        """At the top and within sections: a warning with line and nearest key, and nothing stops."""
        text = "heathCheckTimeout: 30\ngroups: {g: {swapp: false}}\nui: {x: 1}\nrouting: {routers: {}}\n"
        text += "hooks: {on_startup: {preloads: [x]}}\nlimits: {queu: 1}\n"
        found = self.warned(MODEL + text)
        self.assertEqual(len(found), 6, found)
        self.assertIn(
            'config.yaml:2:1: heathCheckTimeout: unknown key "heathCheckTimeout": did you mean "healthCheckTimeout"?',
            found[0],
        )
        for warning, path in zip(
            found[1:],
            ("groups.g.swapp", "ui.x", "routing.routers", "hooks.on_startup.preloads", "limits.queu"),
            strict=True,
        ):
            self.assertIn(path, warning)

    def test_a_configuration_is_a_value(self) -> None:
        """Equal texts make equal configurations."""
        self.assertEqual(self.good(MODEL), self.good(MODEL))
        self.assertNotEqual(self.good(MODEL), Config())


class UnitTests(SynchronousTestCase):
    """Sizes and times."""

    def test_sizes(self) -> None:
        """Powers of 1000, whole bytes."""
        for text, value in (("5", 5), ("20G", 20 * 10**9), ("1.5k", 1500), (" 2 MB ", 2 * 10**6), ("3TiB", 3 * 10**12)):
            self.assertEqual(units.size(text), value)
        for bad in ("", "G", "-1", "5X", "1e3", "99999999999T", "５"):
            self.assertIsNone(units.size(bad), bad)

    def test_seconds(self) -> None:
        """A number, with or without a unit."""
        for text, value in (("5", 5), ("0.5", 0.5), ("90s", 90), ("15m", 900), ("12h", 43200), ("7d", 604800)):
            self.assertEqual(units.seconds(text), value)
        for bad in ("", "d", "-1", "5w", "1h30m"):
            self.assertIsNone(units.seconds(bad), bad)

    def test_go_durations(self) -> None:
        """One or more numbers with units, and a sign."""
        for text, value in (
            ("1h2m3s", 3723),
            ("-1.5m", -90),
            ("+0", 0),
            (".5s", 0.5),
            ("5.s", 5),
            ("1µs", 1e-6),
            ("1us", 1e-6),
        ):
            self.assertAlmostEqual(units.go_duration(text) or 0, value)
        for bad in ("", "-", "5", "s", "1 s", "1d", "1s ", "1sx", "--1s", "9999999999999h"):
            self.assertIsNone(units.go_duration(bad), bad)

    def test_durations_as_text(self) -> None:
        """As Go writes them."""
        for value, text in (
            (4, "4s"),
            (90, "1m30s"),
            (4.999, "4.999s"),
            (3600, "1h0m0s"),
            (0.0015, "1.5ms"),
            (0, "0s"),
            (-6, "-6s"),
            (2e-9, "2ns"),
        ):
            self.assertEqual(units.go_duration_text(value), text)


class UrlTests(SynchronousTestCase):
    """What can be a URL."""

    def test_good_ones(self) -> None:
        """Parts of a URL, of a path, and of nothing."""
        for text, parts in (
            ("http://h:80/p?q#f", ("http", "h", 80, "/p")),
            ("HTTPS://u:p@[::1]:9", ("https", "::1", 9, "")),
            ("http://h:/", ("http", "h", None, "/")),
            ("/p%20q", ("", "", None, "/p%20q")),
            ("localhost:80", ("localhost", "", None, "")),
            ("", ("", "", None, "")),
        ):
            self.assertEqual(tuple(urls.parse(text)), parts)

    def test_bad_ones(self) -> None:
        """Each says why."""
        for text, reason in (
            ("://x", "missing protocol scheme"),
            ("http://h:port", "invalid port"),
            ("http://h:99999", "no port"),
            ("http://[::1", "missing ']' in host"),
            ("127.0.0.1:80", "first path segment in URL cannot contain colon"),
            ("http://a b", "invalid character"),
            ("/%zz", 'invalid URL escape "%zz"'),
            ("http://h\n", "invalid control character"),
        ):
            self.assertIn(reason, str(self.assertRaises(urls.UrlError, urls.parse, text)))

    @given(st.text("http:/@[]?#%.a0 \\\x00é", max_size=20))
    def test_any_text(self, text: str) -> None:
        """Either parts or a reason."""
        try:
            urls.parse(text)
        except urls.UrlError as error:
            self.assertTrue(str(error))


class PatternTests(SynchronousTestCase):
    """Regular expressions of RE2."""

    def test_the_same_things_match(self) -> None:
        """Where the two syntaxes differ, the meaning is RE2's."""
        for pattern, yes, no in (
            (r"\.js$", ["a.js"], ["a.js\n", "a.jsx"]),
            (r"(?m)^a$", ["b\na\nb"], ["ab"]),
            (r"a\z", ["ba"], ["a\n"]),
            (r"x(?i)abc|Q", ["xABC", "xq"], ["Xabc"]),
            (r"(?i:a)b", ["Ab"], ["AB"]),
            (r"(a(?i)b)c", ["aBc"], ["ABc", "aBC"]),
            (r"(?s).", ["\n"], []),
            (r"(?<n>a)(?P<m>b)", ["ab"], ["ba"]),
            (r"^[[:alpha:][:digit:]_]+$", ["a1_"], ["a-"]),
            (r"^[]a]+$", ["]a"], ["b"]),
            (r"^[^]a]$", ["b"], ["]", "a"]),
            (r"^\d$", ["5"], ["٥"]),
            (r"^\x41\x{42}[\x43]$", ["ABC"], ["abc"]),
            (r"^\Qa.b*\E+$", ["a.b**"], ["aXb"]),
            (r"a{,2}", ["a{,2}"], ["aa"]),
            (r"^a{2,3}?$", ["aa", "aaa"], ["a"]),
            (r"^(?:a|b)*?c$", ["abc", "c"], ["ab"]),
            (r"^[a&&b]$", ["&"], ["c"]),
            (r"^\/\-\_$", ["/-_"], []),
            (r"(?-s)^a.b$", ["axb"], ["a\nb"]),
            ("", [""], []),
            (r"^{$", ["{"], []),
        ):
            compiled = compile_re2(pattern)
            for text in yes:
                self.assertTrue(compiled.search(text), (pattern, text))
            for text in no:
                self.assertFalse(compiled.search(text), (pattern, text))

    def test_what_re2_refuses(self) -> None:
        """Look-around, references, possessive and doubled repetition, and broken syntax."""
        for pattern in (
            *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", r"(a)\1", "(?P=n)", "(?>a)", "a*+", "a**", "a{2}{3}", "a{1001}"),
            *(
                "[invalid(",
                "(a",
                "a)",
                "*a",
                "a|*",
                "(*a)",
                "[z-a]",
                "\\",
                "[a",
                "[[:foo:]]",
                r"\pL",
                r"[\p{Greek}]",
                "(?U)a",
            ),
            *(r"\C", r"\y", "(?P<1>a)", "(?P<a>x)(?P<a>y)", "a" * 5000, "(?#x)", r"[\x{110000}]", r"\x{ffffff}"),
        ):
            self.assertRaises(PatternError, compile_re2, pattern)

    @given(st.text(r"ab()[]{}?*+|^$\.:-,12iQEzpdP<>=!", max_size=14))
    def test_any_text(self, pattern: str) -> None:
        """Either a pattern or a reason, never another error."""
        try:
            self.assertIsInstance(compile_re2(pattern), re.Pattern)
        except PatternError as error:
            self.assertTrue(str(error))
