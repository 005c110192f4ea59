"""Names: aliases, peers, selectors, profiles, and where they collide."""

from __future__ import annotations

from lswap.core.model import Filters, Peer, Profile, Selector, Timeouts, Wake
from tests.core.config_case import ConfigCase

AB = "models: {a: {cmd: 's ${PORT}', aliases: [al]}, b: {cmd: 's ${PORT}'}, c: {cmd: 's ${PORT}'}}\n"
PEERS = "peers: {den: {proxy: 'http://h', models: [owl, shared]}, hut: {proxy: 'http://h', models: [shared]}}\n"


def by_id(model: str, keys: str) -> str:
    """A model with these keys in setParamsByID."""
    return f"{model}: {{cmd: 's ${{PORT}}', filters: {{setParamsByID: {{{keys}}}}}}}"


class AliasTests(ConfigCase):
    """Other names of local models."""

    def test_the_same_alias_twice(self) -> None:
        """In two models, in one list, or by a macro."""
        told = "duplicate alias twin found in model: hen"
        self.refused(
            "models: {fox: {cmd: 's ${PORT}', aliases: [twin]}, hen: {cmd: 's ${PORT}', aliases: [twin]}}\n", told
        )
        self.refused("models: {hen: {cmd: 's ${PORT}', aliases: [twin, x, twin]}}\n", "models.hen.aliases[2]", told)
        self.refused(
            "macros: {m: twin}\nmodels: {fox: {cmd: 's ${PORT}', aliases: [twin]},"
            " hen: {cmd: 's ${PORT}', aliases: ['${m}']}}\n",
            told,
        )

    def test_resolution(self) -> None:
        """An ID first, else an alias; an alias of another model's name is never reached, and told."""
        text = "models: {a: {cmd: 's ${PORT}', aliases: [b, x, a]}, b: {cmd: 's ${PORT}'}}\n"
        config = self.good(text)
        self.assertEqual([config.resolve(name) for name in ("a", "b", "x", "nobody", "")], ["a", "b", "a", None, None])
        self.assertEqual([line.split(": ")[1] for line in self.warned(text)], ["models.a.aliases[0]"])

    def test_blank_names(self) -> None:
        """They are kept, as in the reference, and told."""
        self.assertIn("blank", self.warned("models: {' ': {cmd: 's ${PORT}'}}\n")[0])
        self.assertIn("blank", self.warned("models: {a: {cmd: 's ${PORT}', aliases: ['']}}\n")[0])

    def test_set_params_by_id_makes_aliases(self) -> None:
        """Each key but the model's own name, after the aliases that are written."""
        keys = "'${MODEL_ID}:high': {l: 3}, x: {l: 1}, a: {own: 1}"
        text = f"models: {{{by_id('a', keys).replace('filters', 'aliases: [x, y], filters')}}}\n"
        self.assertEqual(self.good(text).models["a"].aliases, ("x", "y", "a:high"))

    def test_set_params_by_id_collides(self) -> None:
        """With another model, with another's alias, with another's key."""
        told = "model fox filters.setParamsByID: key 'hen' conflicts with an existing model ID"
        self.refused(f"models: {{{by_id('fox', 'hen: {t: 1}')}, hen: {{cmd: 's ${{PORT}}'}}}}\n", told)
        told = "duplicate alias 'twin' in model fox filters.setParamsByID, already used by model hen"
        self.refused(
            f"models: {{{by_id('fox', 'twin: {t: 1}')}, hen: {{cmd: 's ${{PORT}}', aliases: [twin]}}}}\n", told
        )
        told = "duplicate alias 'twin' in model hen filters.setParamsByID, already used by model fox"
        self.refused(f"models: {{{by_id('fox', 'twin: {t: 1}')}, {by_id('hen', 'twin: {t: 1}')}}}\n", told)


class PeerTests(ConfigCase):
    """Other servers."""

    def test_all_keys(self) -> None:
        """Everything is kept; timeouts default to those of peers."""
        config = self.good(
            "peers: {den: {proxy: 'https://den:8443/p', apiKey: secret, models: [org/owl, 'x:y', org/owl],"
            " filters: {stripParams: 'b, a', setParams: {n: 5}, setParamsByID: {den/org/owl: {t: 1}}},"
            " timeouts: {connect: 5}}}\n"
        )
        self.assertEqual(
            config.peers["den"],
            Peer(
                id="den",
                proxy="https://den:8443/p",
                api_key="secret",
                models=("org/owl", "x:y"),
                filters=Filters(
                    strip_params=("a", "b"), set_params={"n": 5}, set_params_by_id={"den/org/owl": {"t": 1}}
                ),
                timeouts=Timeouts(connect=5, response_header=60),
            ),
        )
        self.assertEqual(self.good(PEERS).peers["den"].timeouts, Timeouts(response_header=60))

    def test_bad_peers(self) -> None:
        """Each message names the peer."""
        for inside, told in (
            ("models: [m]", "peers.den.proxy: proxy is required"),
            ("proxy: '', models: [m]", "peers.den.proxy: proxy is required"),
            (
                "proxy: '://invalid', models: [m]",
                "peers.den.proxy: invalid peer proxy URL (://invalid): missing protocol scheme",
            ),
            ("proxy: 'http://h:port', models: [m]", "invalid peer proxy URL"),
            ("proxy: 'http://h'", "peers.den.models: peer models can not be empty"),
            ("proxy: 'http://h', models: []", "peers.den.models: peer models can not be empty"),
            ("proxy: 'http://h', models: m", "peers.den.models: cannot unmarshal !!str `m` into []string"),
            ("proxy: [x], models: [m]", "peers.den.proxy: cannot unmarshal !!seq"),
            ("proxy: 'http://h', models: [m], timeouts: {connect: soon}", "peers.den.timeouts.connect: "),
            ("proxy: 'http://h', models: [m], filters: {stripParams: [a]}", "peers.den.filters.stripParams: "),
            ("proxy: 'http://h', models: [m], apiKey: [hush-hush]", "peers.den.apiKey: "),
        ):
            found = self.told(f"peers: {{den: {{{inside}}}}}\n")
            self.assertIn(told, found)
            self.assertEqual(len(found.splitlines()), 1, found)
            self.assertNotIn("hush", found)

    def test_wake(self) -> None:
        """How a peer is woken; an address of digits is a text, too."""
        inside = "proxy: 'http://h', models: [m], wake"
        wake = "{mac: 'ba:dc:0f:fe:e0:00, 02-00-00-00-00-01', broadcast: '10.0.0.255:7', password: 192.0.2.1}"
        self.assertEqual(
            self.good(f"peers: {{den: {{{inside}: {wake}}}}}\n").peers["den"].wake,
            Wake(mac="ba:dc:0f:fe:e0:00, 02-00-00-00-00-01", broadcast="10.0.0.255:7", password="192.0.2.1"),
        )
        wake = "{command: 'ssh den wake', timeout: 2m, checkEndpoint: /health}"
        self.assertEqual(
            self.good(f"peers: {{den: {{{inside}: {wake}}}}}\n").peers["den"].wake,
            Wake(command="ssh den wake", timeout=120, check_endpoint="/health"),
        )
        digits = self.good("peers:\n  den:\n    proxy: http://h\n    models: [m]\n    wake: {mac: 12:34:56:12:34:56}\n")
        self.assertEqual(digits.peers["den"].wake, Wake(mac="12:34:56:12:34:56"))
        self.assertIsNone(self.good(PEERS).peers["den"].wake)

    def test_bad_wakes(self) -> None:
        """Each message names the key; a misspelt key is an error; a password is not shown."""
        for inside, told in (
            ("{}", "peers.den.wake: wake needs either mac or command"),
            ("{mac: '02:00:00:00:00:01', command: x}", "peers.den.wake: wake needs either mac or command"),
            ("{mac: nonsense}", "peers.den.wake.mac: nonsense: expected a hardware address"),
            ("{mac: '02:00:5e:10:00:00:00:01'}", "peers.den.wake.mac: 02:00:5e:10:00:00:00:01: an address of 8 bytes"),
            ("{mac: '02:00:00:00:00:01', broadcast: 1.2.3}", "peers.den.wake.broadcast: 1.2.3: "),
            ("{mac: '02:00:00:00:00:01', password: hush-hush}", "peers.den.wake.password: expected a password"),
            ("{mac: '02:00:00:00:00:01', timeout: 0}", "peers.den.wake.timeout: "),
            ("{mac: '02:00:00:00:00:01', checkEndpoint: health}", "peers.den.wake.checkEndpoint: this is no path"),
            ("{mac: '02:00:00:00:00:01', brodcast: 10.0.0.255}", "peers.den.wake.brodcast: unknown key"),
            ("'02:00:00:00:00:01'", "peers.den.wake: cannot unmarshal"),
            ("{mac: [a]}", "peers.den.wake.mac: cannot unmarshal"),
        ):
            found = self.told(f"peers: {{den: {{proxy: 'http://h', models: [m], wake: {inside}}}}}\n")
            self.assertIn(told, found)
            self.assertNotIn("hush", found)

    def test_a_null_peer_is_left_out(self) -> None:
        """It has no models in the reference either; it is told."""
        self.assertEqual(self.good("peers:\n  den:\n").peers, {})
        self.assertIn("peers.den", self.warned("peers:\n  den:\n")[0])

    def test_passwords_in_urls_are_not_shown(self) -> None:
        """A URL may carry one."""
        self.assertNotIn("hush", self.told("peers: {den: {proxy: 'http://me:hush@h:port', models: [m]}}\n"))

    def test_lookup(self) -> None:
        """A qualified name first, compared whole; a bare one where only one peer has it."""
        config = self.good(
            "peers: {p1: {proxy: 'http://h', models: [shared, org/model, model]},"
            " p2: {proxy: 'http://h', models: [shared, unique, p1/model]}}\n"
        )
        table = {
            "p1/shared": ("p1", "shared"),
            "p2/shared": ("p2", "shared"),
            "p1/org/model": ("p1", "org/model"),
            "unique": ("p2", "unique"),
            "shared": None,
            "p1/model": ("p1", "model"),
            "p2/p1/model": ("p2", "p1/model"),
            "nobody": None,
        }
        self.assertEqual({name: config.resolve_peer(name) for name in table}, table)

    def test_qualified_names_are_reserved(self) -> None:
        """For models, aliases, generated aliases, selectors and pins; and two peers may not make the same."""
        told = "conflicts with fully qualified peer model name"
        self.refused("models: {den/owl: {cmd: 's ${PORT}'}}\n" + PEERS, f'model ID "den/owl" {told}')
        self.refused("models: {a: {cmd: 's ${PORT}', aliases: [den/owl]}}\n" + PEERS, f'model a alias "den/owl" {told}')
        self.refused(f"models: {{{by_id('a', 'den/owl: {t: 1}')}}}\n" + PEERS, f'model a alias "den/owl" {told}')
        self.refused(
            AB + PEERS + "selectors: {den/owl: {strategy: pin, targets: [a]}}\n", f'selector ID "den/owl" {told}'
        )
        self.refused(AB + PEERS + "profiles: {p: {pins: {den/owl: a}}}\n", f'profile p pin "den/owl" {told}')
        self.refused(
            "peers: {a: {proxy: 'http://h', models: [b/c]}, a/b: {proxy: 'http://h', models: [c]}}\n",
            'peer model name "a/b/c" is ambiguous between peers.a model "b/c" and peers.a/b model "c"',
        )

    def test_bare_names_are_free(self) -> None:
        """A peer's bare name may be anybody else's too."""
        self.good(
            "models: {owl: {cmd: 's ${PORT}', aliases: [shared]}}\n" + PEERS + "profiles: {p: {pins: {owl: shared}}}\n"
        )
        self.good(AB + PEERS + "selectors: {owl: {strategy: pin, targets: [a]}}\n")


class SelectorTests(ConfigCase):
    """Names that stand for one of several."""

    def selector(self, inside: str, rest: str = AB + PEERS) -> Selector:
        """The selector with these keys."""
        return self.good(f"{rest}selectors: {{sel: {{{inside}}}}}\n").selectors["sel"]

    def test_all_keys(self) -> None:
        """Everything is kept as written; spillover is 1 where it is not given."""
        found = self.selector(
            "strategy: spillover, targets: [a, owl], settings: {spillover: 4}, name: S, description: D,"
            " unlisted: true, metadata: {k: 1}"
        )
        self.assertEqual(
            found,
            Selector(
                id="sel",
                strategy="spillover",
                targets=("a", "owl"),
                spillover=4,
                name="S",
                description="D",
                unlisted=True,
                metadata={"k": 1},
            ),
        )
        self.assertEqual(self.selector("strategy: warm, targets: [a]").spillover, 1)

    def test_good_ones(self) -> None:
        """Aliases, peers by both names, doubles without spillover, settings that do not matter."""
        for inside in (
            "strategy: pin, targets: [al, den/owl, owl]",
            "strategy: warm, targets: [a, b, al]",
            "strategy: spillover, targets: [a, den/owl]",
            "strategy: spillover, targets: [den/owl, den/shared, hut/shared]",
            "strategy: pin, targets: [a, a], settings: {spillover: 0}",
        ):
            self.selector(inside)

    def test_bad_ones(self) -> None:
        """Each has the message of the reference."""
        for inside, told in (
            ("targets: [a]", "selectors.sel.strategy is required"),
            ("strategy: '', targets: [a]", "selectors.sel.strategy is required"),
            (
                "strategy: Warm, targets: [a]",
                'selectors.sel.strategy: unknown strategy "Warm" (valid: warm, pin, spillover)',
            ),
            ("strategy: pin", "selectors.sel.targets must contain at least one entry"),
            ("strategy: pin, targets: []", "selectors.sel.targets must contain at least one entry"),
            ("strategy: pin, targets: a", "selectors.sel.targets: cannot unmarshal !!str `a` into []string"),
            (
                "strategy: pin, targets: [a, other]",
                'selectors.sel.targets[1] references selector "other"; selector chaining is not supported',
            ),
            ("strategy: pin, targets: [sel]", 'selectors.sel.targets[0] references selector "sel"'),
            ("strategy: pin, targets: [nobody]", 'selectors.sel.targets[0] references unknown model "nobody"'),
            ("strategy: pin, targets: [shared]", 'selectors.sel.targets[0] references unknown model "shared"'),
            (
                "strategy: warm, targets: [a, owl]",
                'selectors.sel.targets[1] must resolve to a local model for strategy "warm"',
            ),
            (
                "strategy: spillover, targets: [owl], settings: {spillover: 0}",
                "selectors.sel.settings.spillover must be >= 1",
            ),
            (
                "strategy: spillover, targets: [owl], settings: {spillover: x}",
                "selectors.sel.settings.spillover: cannot unmarshal",
            ),
            (
                "strategy: spillover, targets: [owl, den/owl]",
                'selectors.sel.targets contains duplicate resolved model "den/owl"',
            ),
            ("strategy: spillover, targets: [a, al]", 'selectors.sel.targets contains duplicate resolved model "a"'),
        ):
            text = f"{AB}{PEERS}selectors: {{sel: {{{inside}}}, other: {{strategy: pin, targets: [a]}}}}\n"
            found = self.told(text)
            self.assertIn(told, found)
            self.assertEqual(len(found.splitlines()), 1, found)
        self.refused(AB + "selectors:\n  sel:\n", "selectors.sel.strategy is required")

    def test_bad_names(self) -> None:
        """A blank one, that of a model, of an alias, of a generated alias."""
        inside = "{strategy: pin, targets: [b]}}\n"
        self.refused(AB + f"selectors: {{' ': {inside}", "selectors: selector names cannot be empty")
        self.refused(AB + f"selectors: {{a: {inside}", 'selectors.a: name conflicts with model ID "a"')
        self.refused(AB + f"selectors: {{al: {inside}", 'selectors.al: name conflicts with model alias "al"')
        text = f"models: {{{by_id('b', 'made: {t: 1}')}}}\nselectors: {{made: {inside}"
        self.refused(text, 'selectors.made: name conflicts with model alias "made"')

    def test_spillover_needs_models_that_run_side_by_side(self) -> None:
        """In one group without swap; the default group swaps."""
        two = "selectors: {sel: {strategy: spillover, targets: [a, b]}}\n"
        self.refused(AB + two, "selectors.sel spillover targets must share a group with swap: false")
        self.good(AB + "groups: {g: {swap: false, members: [a, b]}}\n" + two)
        self.refused(AB + "groups: {g: {swap: true, members: [a, b]}}\n" + two, "must share a group with swap: false")
        apart = "groups: {g: {swap: false, members: [a]}, h: {swap: false, members: [b]}}\n"
        self.refused(AB + apart + two, "selectors.sel spillover targets must share one routing group")

    def test_spillover_with_a_matrix(self) -> None:
        """All local targets are in one choice of one set."""
        text = AB + "selectors: {sel: {strategy: spillover, targets: [a, b]}}\nmatrix: {vars: {x: a}, sets: {%s}}\n"
        for sets in ("s: x & b", "s: c, t: '(c | a) & (b | c)'", "s: +t & b, t: a | c"):
            self.good(text % sets)
        for sets in ("s: a | b", "s: a & c, t: b & c", "s: c"):
            self.refused(text % sets, "selectors.sel.targets must all appear together in one expanded matrix set")


class ProfileTests(ConfigCase):
    """Sets of pins."""

    def test_good_pins(self) -> None:
        """To models, aliases, peers and selectors; nothing disables a name; a pin may be anybody's name."""
        config = self.good(
            AB + PEERS + "selectors: {sel: {strategy: pin, targets: [a]}}\nprofiles: {day: {description: D, pins: "
            "{x: a, y: al, z: owl, q: den/shared, s: sel, off: '', no: ~, b: a, sel: b, 7: c}}}\n"
        )
        pins = {
            "x": "a",
            "y": "al",
            "z": "owl",
            "q": "den/shared",
            "s": "sel",
            "off": "",
            "no": "",
            "b": "a",
            "sel": "b",
            "7": "c",
        }
        self.assertEqual(config.profiles["day"], Profile(id="day", description="D", pins=pins))

    def test_bad_profiles(self) -> None:
        """Each has the message of the reference."""
        shape = "profile must be a mapping with description and pins; the legacy list syntax is no longer supported"
        for text, told in (
            ("{day: [a, b]}", shape),
            ("{day: a}", shape),
            ("{day: {description: x}}", "profiles.day.pins must contain at least one entry"),
            ("{day: {pins: {}}}", "profiles.day.pins must contain at least one entry"),
            ("{day: ~}", "profiles.day.pins must contain at least one entry"),
            ("{' ': {pins: {x: a}}}", "profiles: profile names cannot be empty"),
            ("{day: {pins: {' ': a}}}", "profiles.day.pins: pin names cannot be empty"),
            ("{day: {pins: {x: nobody}}}", 'profiles.day.pins.x references unknown model "nobody"'),
            ("{day: {pins: {x: ' a'}}}", 'profiles.day.pins.x references unknown model " a"'),
            ("{day: {pins: {x: shared}}}", 'profiles.day.pins.x references unknown model "shared"'),
            ("{day: {pins: {x: a, y: x}}}", 'profiles.day.pins.y references unknown model "x"'),
            ("{day: {pins: [a]}}", "profiles.day.pins: cannot unmarshal"),
        ):
            found = self.told(f"{AB}{PEERS}profiles: {text}\n")
            self.assertIn(told, found)
            self.assertEqual(len(found.splitlines()), 1, found)
