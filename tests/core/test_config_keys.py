"""`apiKeys`, and that no secret is ever shown."""

from __future__ import annotations

from collections.abc import Mapping

from lswap.core.model import ApiKey
from tests.core.config_case import MODEL, ConfigCase


class KeyTests(ConfigCase):
    """Keys and their rights."""

    def keys(self, items: str, environ: Mapping[str, str] = {}, top: str = "") -> tuple[ApiKey, ...]:
        """The keys of a list."""
        return self.good(f"{top}apiKeys: [{items}]\n", environ).api_keys

    def test_plain_keys(self) -> None:
        """Texts, numbers, macros and variables, in their order; a tab and doubles are fine."""
        found = self.keys(
            "12345, '${k}', '${env.K}', twice, twice, \"a\\tb\"", {"K": "from-env"}, "macros: {k: from-macro}\n"
        )
        self.assertEqual([key.key for key in found], ["12345", "from-macro", "from-env", "twice", "twice", "a\tb"])
        self.assertEqual(found[0], ApiKey(key="12345", allow=("infer", "read", "admin")))
        self.assertEqual(self.good("apiKeys: []\n").api_keys, ())

    def test_bad_plain_keys(self) -> None:
        """Empty ones and spaces; a null is no way to switch authentication off."""
        for items in ("''", "one, '', two", "~", "${env.E}", '"${env.E}"', "one, ${env.E}"):
            self.refused(f"apiKeys: [{items}]\n", "empty api key found in apiKeys", environ={"E": ""})
        for items, at in (("'   '", 0), ("' k'", 0), ("'k '", 0), ("k, 'k 1'", 1)):
            self.refused(f"apiKeys: [{items}]\n", f"apiKeys[{at}]: api key cannot contain spaces")
        for bad in ("hush-hush", "{a: hush-hush}", "[[hush-hush]]"):
            told = self.told(f"apiKeys: {bad}\n")
            self.assertIn("apiKeys", told)
            self.assertNotIn("hush", told)

    def test_an_empty_variable_never_opens_the_server(self) -> None:
        """Wherever it stands for a key, unquoted; in a comment or another member it is none."""
        empty = {"E": "", "K": "k-1"}
        for text in (
            "apiKeys: ${env.E}\n",
            "apiKeys:\n- ${env.E}\n",
            "apiKeys:\n  [ ${env.E} ] # x\n",
            "apiKeys: ['[', \"]\", ${env.E}]\n",
            "{apiKeys: [${env.E}]}\n",
        ):
            self.refused(text, "empty api key found in apiKeys", environ=empty)
        for text in (
            "apiKeys: [k-1] # ${env.E}\nx-y: [${env.E}]\n",
            "apiKeys: [{key: k-1, name: ${env.E}, models: [a, ${env.E}]}]\n",
            "apiKeys: [${env.K}, '[', ']', \"${env.K}\"]\n",
            "apiKeys:\n# ${env.E}\n- k-1\n",
        ):
            self.good(text, empty)

    def test_keys_with_rights(self) -> None:
        """All members; a mapping without limits is a plain key with a name."""
        (key,) = self.keys(
            "{name: x, key: k-1, models: [a, 'org/*'], allow: [infer, read], weight: 2.5, maxParallel: 3}"
        )
        self.assertEqual(
            key,
            ApiKey(name="x", key="k-1", models=("a", "org/*"), allow=("infer", "read"), weight=2.5, max_parallel=3),
        )
        self.assertEqual(
            self.keys("{name: x, key: k-1}, {env: K}", {"K": "k-2"}), (ApiKey(name="x", key="k-1"), ApiKey(key="k-2"))
        )

    def test_key_files_are_read_later(self) -> None:
        """Their place is known to whoever reads them."""
        loaded = self.load("apiKeys:\n  - {name: x, keyFile: /run/key}\n")
        assert loaded.config is not None
        self.assertEqual(loaded.config.api_keys, (ApiKey(name="x", key_file="/run/key"),))
        self.assertEqual(loaded.places["apiKeys[0].keyFile"], ("config.yaml", 2, 24))

    def test_mistakes(self) -> None:
        """Each is told with its place."""
        for item, told in (
            ("{name: x}", "apiKeys[0]: needs exactly one of key, keyFile and env"),
            ("{key: k-1, keyFile: /x}", "apiKeys[0]: needs exactly one of key, keyFile and env"),
            ("{env: NOT_SET}", "apiKeys[0].env: environment variable 'NOT_SET' is not set"),
            ("{env: E}", "empty api key found in apiKeys"),
            ("{key: ''}", "apiKeys[0].key: empty api key found in apiKeys"),
            ("{key: }", "empty api key found in apiKeys"),
            ("{key: 'a b'}", "apiKeys[0].key: apiKeys[0]: api key cannot contain spaces"),
            ("{keyFile: }", "apiKeys[0].keyFile: keyFile is empty"),
            (
                "{key: k-1, allow: [infer, write]}",
                'apiKeys[0].allow: there is no right "write": one of: infer, read, admin',
            ),
            ("{key: k-1, model: [a]}", 'apiKeys[0]: unknown key "model": did you mean "models"?'),
            ("{key: k-1, maxParallel: -1}", "apiKeys[0].maxParallel: must be >= 0"),
            ("{key: k-1, weight: 0}", "apiKeys[0].weight: must be > 0"),
            ("{key: k-1, models: a}", "apiKeys[0].models: cannot unmarshal"),
            ("{key: [a]}", "apiKeys[0].key: cannot unmarshal"),
        ):
            self.refused(f"apiKeys: [{item}]\n", told, environ={"E": ""})

    def test_odd_ones_are_told(self) -> None:
        """A key that allows nothing, and one that stands twice with other rights."""
        self.assertIn("allows nothing", self.warned("apiKeys: [{key: k-1, allow: []}]\n")[0])
        self.assertIn("allows nothing", self.warned("apiKeys: [{key: k-1, models: []}]\n")[0])
        self.assertIn(
            "apiKeys[1]: the same key stands twice", self.warned("apiKeys: [k-1, {key: k-1, allow: [read]}]\n")[0]
        )
        self.assertEqual(self.warned("apiKeys: [k-1, k-1]\n"), [])


class SecretTests(ConfigCase):
    """No message shows a secret, whatever is wrong."""

    def check(self, text: str, environ: Mapping[str, str] = {}) -> None:
        """Something is told, but no secret; all secrets here begin alike."""
        loaded = self.load(text, environ)
        told = "\n".join(map(str, (*loaded.problems, *loaded.warnings)))
        self.assertTrue(told, text)
        self.assertNotIn("hush", told, text)

    def test_api_keys(self) -> None:
        """Also as names of members, as macros in other places, and as an unquoted something else."""
        for text in (
            "apiKeys: ['hush hush']\n",
            "apiKeys: [{key: hush-hush, allow: [hush-hush]}]\n",
            "apiKeys: [{hush-hush-hush-1: x}]\n",
            "apiKeys: [{'hush-hush-hush-1': x, 'hush-hush-hush-1': y}]\n",
            "apiKeys: [{key: {hush-hush: x}}]\n",
            "apiKeys: [*hush-hush]\n",
            "apiKeys: ['${t}']\nmacros: {t: hush-hush}\nglobalTTL: '${t}'\n",
            "apiKeys: ['x-${t}']\nmacros: {u: hush-hush, t: '${u}'}\nlogToStdout: '${t}'\n",
            "apiKeys: [hush-hush]\nlogToStdout: hush-hush\nhush-hush: 1\n",
            "apiKeys: [2024-01-01, 'hush hush', [hush-hush]]\n",
        ):
            self.check(text)

    def test_keys_of_peers(self) -> None:
        """Of the wrong kind, and used elsewhere."""
        for text in (
            "peers: {p: {proxy: 'http://h', models: [m], apiKey: [hush-hush]}}\n",
            "peers: {p: {proxy: 'http://hush-hush:port', models: [m], apiKey: hush-hush}}\n",
            "peers: {p: {proxy: '://${t}', models: [m], apiKey: '${t}'}}\nmacros: {t: hush-hush}\n",
        ):
            self.check(text)

    def test_environments_of_models(self) -> None:
        """Entries are never shown, and the values of those that are named like secrets not elsewhere either."""
        for inside in (
            "env: [hush-hush]",
            "env: {TOKEN: hush-hush}",
            "env: hush-hush",
            "env: [TOKEN=hush-hush], ttl: hush-hush",
        ):
            self.check(f"models: {{a: {{cmd: 's ${{PORT}}', {inside}}}}}\n")

    def test_variables(self) -> None:
        """Those that are named like secrets are not shown, wherever they stand."""
        for text in ("globalTTL: ${env.MY_TOKEN}\n", "logToStdout: ${env.API_KEY}\n", "hooks: ${env.PASSWORD}\n"):
            self.check(text, {"MY_TOKEN": "hush-hush", "API_KEY": "hush-hush", "PASSWORD": "hush-hush"})

    def test_sources_with_keys_in_them(self) -> None:
        """Those that hold one in clear are named, so that their permissions can be looked at."""
        macro = "apiKeys: ['${t}']\nmacros: {t: %s}\n"
        for text, found in (
            (MODEL, ()),
            ("apiKeys: [k-1]\n", ("config.yaml",)),
            ('apiKeys: ["k-1"]\n', ("config.yaml",)),
            ("apiKeys: [{name: x, key: k-1}]\n", ("config.yaml",)),
            ("apiKeys: [{name: x, env: K}, {keyFile: /x}, '${env.K}', ${env.K}]\n", ()),
            ("peers: {p: {proxy: 'http://h', models: [m], apiKey: k-1}}\n", ("config.yaml",)),
            ("peers: {p: {proxy: 'http://h', models: [m], apiKey: '${env.K}'}}\n", ()),
            (macro % "k-1", ("config.yaml",)),
            (macro % "${env.K}", ()),
        ):
            self.assertEqual(self.load(text, {"K": "key-of-env"}).secret_files, found, text)
