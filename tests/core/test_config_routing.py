"""Groups, matrix, router and scheduler; and what is loaded by itself."""

from __future__ import annotations

from lswap.core.matrix import All, Leaf, Matrix, MatrixSet, OneOf, Reference
from lswap.core.model import Fair, Group
from tests.core.config_case import ConfigCase

AB = "models: {a: {cmd: 's ${PORT}', aliases: [al]}, b: {cmd: 's ${PORT}'}, c: {cmd: 's ${PORT}'}}\n"
DEFAULT = "(default)"


class GroupTests(ConfigCase):
    """The final groups."""

    def groups(self, text: str) -> dict[str, Group]:
        """The groups of three models."""
        return self.good(AB + text).groups

    def test_without_any(self) -> None:
        """All models are in the default group, which swaps and is exclusive."""
        for text in (
            "",
            "groups: {}\n",
            "routing: {}\n",
            "routing: {router: {use: '', settings: {}}, scheduler: {use: ''}}\n",
        ):
            self.assertEqual(self.groups(text), {DEFAULT: Group(id=DEFAULT, members=("a", "b", "c"))})
        self.assertEqual(self.good("").groups, {DEFAULT: Group(id=DEFAULT)})

    def test_defaults_and_keys(self) -> None:
        """A group swaps and is exclusive unless it says otherwise; the rest is in the default group, sorted."""
        found = self.groups("groups: {g: {swap: no, exclusive: false, persistent: true, members: [c]}, h: {}, i: ~}\n")
        self.assertEqual(found["g"], Group(id="g", swap=False, exclusive=False, persistent=True, members=("c",)))
        self.assertEqual((found["h"], found["i"]), (Group(id="h"), Group(id="i")))
        self.assertEqual(found[DEFAULT].members, ("a", "b"))

    def test_both_spellings_are_one(self) -> None:
        """At the top, or below routing.router.settings, with or without `use`."""
        inside = "{g: {swap: false, members: [a]}}"
        wanted = self.groups(f"groups: {inside}\n")
        for use in ("", "use: group, "):
            self.assertEqual(self.groups(f"routing: {{router: {{{use}settings: {{groups: {inside}}}}}}}\n"), wanted)
        self.assertEqual(self.groups("groups: {}\nmatrix: ~\nrouting: {router: {use: group}}\n"), self.groups(""))

    def test_an_alias_stands_for_its_model(self) -> None:
        """Also twice, which is told."""
        self.assertEqual(self.groups("groups: {g: {members: [al, b]}}\n")["g"].members, ("a", "b"))
        self.refused(
            AB + "groups: {g: {members: [al, a]}}\n", "groups.g.members[1]: duplicate model member a found in group: g"
        )

    def test_members_that_do_not_exist(self) -> None:
        """They are told at load, with the nearest name."""
        for text in (
            "groups: {g: {members: [bb]}}\n",
            "routing: {router: {settings: {groups: {g: {members: [bb]}}}}}\n",
        ):
            self.refused(AB + text, 'groups.g.members[0]: group g: no model config for "bb"')

    def test_members_of_two_groups(self) -> None:
        """A model has one place."""
        told = "groups.h.members[1]: model member a is used in multiple groups: g and h"
        self.refused(AB + "groups: {g: {members: [a]}, h: {members: [b, a]}}\n", told)
        self.refused(AB + "groups: {g: {members: [a, a]}}\n", "duplicate model member a found in group: g")

    def test_the_reserved_name(self) -> None:
        """Members of a group of that name stay in the default group, which is as always; it is told."""
        text = "groups: {(default): {swap: false, members: [c]}, g: {members: [b]}}\n"
        self.assertEqual(self.groups(text)[DEFAULT], Group(id=DEFAULT, members=("a", "c")))
        self.assertIn("groups.(default)", self.warned(AB + text)[0])

    def test_bad_kinds(self) -> None:
        """Each is told with its path."""
        for text, path in (
            ("{g: {members: a}}", "groups.g.members"),
            ("{g: {swap: perhaps}}", "groups.g.swap"),
            ("{g: [a, b]}", "groups.g"),
            ("[a]", "groups"),
            ("{g: {members: [[a]]}}", "groups.g.members[0]"),
        ):
            self.refused(f"{AB}groups: {text}\n", f"{path}: cannot unmarshal")


class RouterTests(ConfigCase):
    """Which rules count."""

    OLD, NEW = "groups: {g: {members: [a]}}\n", "routing: {router: {settings: {groups: {g: {members: [a]}}}}}\n"
    MATRIX = "matrix: {sets: {s: a & b}}\n"

    def test_conflicts(self) -> None:
        """The two spellings exclude each other, and so do the two routers."""
        for text in (
            self.OLD + self.NEW,
            self.OLD + "routing: {router: {use: group}}\n",
            self.MATRIX + "routing: {router: {use: matrix}}\n",
            self.MATRIX + "routing: {router: {settings: {matrix: {sets: {s: a}}}}}\n",
            "matrix: {}\nrouting: {router: {use: group}}\n",
        ):
            told = "config uses both the legacy top-level 'matrix'/'groups' keys and the new 'routing.router' block"
            self.refused(AB + text, f"{told}; please migrate")
        self.refused(AB + self.OLD + self.MATRIX, "config cannot use both 'groups' and 'matrix'")
        self.refused(
            AB + "routing: {router: {use: matrix}}\n",
            "routing.router.use is 'matrix' but routing.router.settings.matrix is not set",
        )
        self.refused(
            AB + "routing: {router: {use: bogus}}\n", 'routing.router.use: unknown router "bogus" (valid: group, matrix'
        )

    def test_a_scheduler_conflicts_with_nothing(self) -> None:
        """It may stand beside the old keys."""
        self.good(AB + self.OLD + "routing: {scheduler: {use: fifo}}\n")

    def test_a_matrix_that_is_not_used(self) -> None:
        """Is not even looked at; without `use` that is told."""
        text = "routing: {router: {%ssettings: {groups: {g: {members: [a]}}, matrix: {sets: {s: 'broken ('}}}}}\n"
        config = self.good(AB + text % "use: group, ")
        self.assertEqual((config.router, config.matrix, len(config.groups)), ("group", None, 2))
        self.assertEqual(self.warned(AB + text % "use: group, "), [])
        self.assertEqual(len(self.warned(AB + text % "")), 1)

    def test_groups_that_are_not_used(self) -> None:
        """With a matrix there are none."""
        settings = "{groups: {g: {members: [nobody]}}, matrix: {sets: {s: a & b}}}"
        text = f"routing: {{router: {{use: matrix, settings: {settings}}}}}\n"
        config = self.good(AB + text)
        self.assertEqual((config.router, config.groups), ("matrix", {}))
        self.assertEqual(config.matrix, Matrix(sets=(MatrixSet("s", All((Leaf("a"), Leaf("b")))),)))
        self.assertEqual(self.good(AB + self.MATRIX).matrix, config.matrix)

    def test_budget(self) -> None:
        """Groups are constraints above budgets; there is no default group."""
        text = "budgets: {gpu: 24G}\nrouting: {router: {use: budget, settings: {groups: {g: {members: [a]}}}}}\n"
        config = self.good(AB + text)
        self.assertEqual((config.router, config.groups), ("budget", {"g": Group(id="g", members=("a",))}))
        self.refused(AB + "routing: {router: {use: budget}}\n", "routing.router.use is 'budget' but budgets is not set")
        self.assertIsNotNone(
            self.good(AB + text.replace("groups: {g: {members: [a]}}", "matrix: {sets: {s: a}}")).matrix
        )


class MatrixTests(ConfigCase):
    """The section `matrix`."""

    TEXT = AB.replace("c:", "'org/c:Q4':") + "matrix: {%s}\n"

    def matrix(self, inside: str) -> Matrix:
        """The matrix with these keys."""
        found = self.good(self.TEXT % inside).matrix
        assert found is not None
        return found

    def test_names_become_models(self) -> None:
        """A var comes before a model of the same name; costs are reported by model."""
        found = self.matrix(
            "vars: {x: a, b: a, c4: 'org/c:Q4'}, evict_costs: {x: 50, c4: 3}, sets: {s: 'x | b & c4 | +t', t: a}"
        )
        leaf = Leaf("org/c:Q4")
        self.assertEqual(found.costs, {"a": 50, "org/c:Q4": 3})
        self.assertEqual(found.sets[1], MatrixSet("s", OneOf((Leaf("a"), All((Leaf("a"), leaf)), Reference("t")))))

    def test_sets_keep_their_order(self) -> None:
        """As defined, but what is referenced comes before what refers to it."""
        names = [one.name for one in self.matrix("sets: {z: a, s10: +x & a, s2: b, x: +y, y: b, B: a}").sets]
        self.assertEqual(names, ["z", "y", "x", "s10", "s2", "B"])

    def test_what_is_good(self) -> None:
        """Blanks, names of 32 characters, nulls, deep references, letters of any alphabet."""
        for inside in (
            "sets: {s: '  ( a|b )&a ' }",
            f"vars: {{{'v' * 32}: a, y.2-z: b}}, sets: {{s: '{'v' * 32} & y.2-z'}}",
            "sets: {mega: '+mid & b', mid: '+low', low: 'a | b'}",
            "vars: ~, evict_costs: ~, sets: {s: a}",
            "evict_costs: {a: 7}, sets: {s: a}",
        ):
            self.matrix(inside)
        self.good(
            "models: {größe_1.b-c: {cmd: 's ${PORT}'}, 模型: {cmd: 's ${PORT}'}}\n"
            "matrix: {sets: {s: 'größe_1.b-c & 模型'}}\n"
        )

    def test_two_costs_of_one_model(self) -> None:
        """The later one counts, and it is told."""
        text = self.TEXT % "vars: {x: a}, evict_costs: {x: 5, a: 7}, sets: {s: a}"
        matrix = self.good(text).matrix
        assert matrix is not None
        self.assertEqual(matrix.costs, {"a": 7})
        self.assertIn("matrix.evict_costs.a: model a has two costs", self.warned(text)[0])

    def test_what_is_not(self) -> None:
        """Each has the message of the reference, with the path of what is wrong."""
        long = "v" * 33
        for inside, told in (
            ("", "matrix: matrix must define at least one set"),
            ("sets: {}", "matrix must define at least one set"),
            ("vars: {x: a}", "matrix must define at least one set"),
            ("sets: [a]", "matrix.sets: matrix: sets must be a mapping"),
            ("sets: a", "sets must be a mapping"),
            ("sets: {p: [a, b]}", "matrix.sets.p: cannot unmarshal !!seq"),
            (
                "vars: {bad_name: a}, sets: {s: a}",
                'var key "bad_name" must contain only alphanumeric, '
                "'-' or '.' characters and be 1-32 characters long",
            ),
            (f"vars: {{{long}: a}}, sets: {{s: a}}", f'var key "{long}" must contain'),
            ("vars: {'': a}, sets: {s: a}", 'var key "" must contain'),
            ("vars: {x: nobody}, sets: {s: x}", 'matrix.vars.x: matrix: var key "x" references unknown model "nobody"'),
            ("vars: {x: al}, sets: {s: x}", 'references unknown model "al"'),
            ("evict_costs: {a: 0}, sets: {s: a}", 'evict_cost for "a" must be a positive integer, got 0'),
            ("evict_costs: {nobody: 1}, sets: {s: a}", 'evict_costs: unknown var or model "nobody"'),
            ("evict_costs: {a: much}, sets: {s: a}", "matrix.evict_costs.a: cannot unmarshal"),
            ("sets: {p: a & nobody}", 'matrix.sets.p: matrix: set "p": unknown var or model "nobody"'),
            ("sets: {p: al & b}", 'set "p": unknown var or model "al"'),
            ("sets: {p: a & +nope}", 'set "p" references undefined set "nope"'),
            ("sets: {one: +two, two: +one}", 'circular reference detected involving set "one"'),
            ("sets: {one: +one}", 'circular reference detected involving set "one"'),
            ("sets: {p: ' '}", 'set "p": empty DSL expression'),
            ("sets: {p: (a}", 'set "p": parse: missing closing parenthesis'),
        ):
            found = self.told(self.TEXT % inside)
            self.assertIn(told, found)
            self.assertEqual(len(found.splitlines()), 1, found)

    def test_sets_that_describe_too_much(self) -> None:
        """Ten out of forty, factor by factor, cannot be compared; ten times four others, or any three of forty, can."""
        models = [f"m{number}" for number in range(40)]
        text = "models: {" + ", ".join(f"{name}: {{cmd: c, proxy: 'http://h'}}" for name in models) + "}\n"
        some = "(" + " | ".join(models) + ")"
        fours = ["(" + " | ".join(models[at : at + 4]) + ")" for at in range(0, 40, 4)]
        for factors, good in (([some] * 10, False), (fours, True), ([some] * 3, True)):
            matrix = f"matrix: {{sets: {{s: '{' & '.join(factors)}'}}}}\n"
            if good:
                self.assertIsNotNone(self.good(text + matrix).matrix)
            else:
                told = self.told(text + matrix)
                self.assertIn("config.yaml:2:", told)
                self.assertIn('matrix.sets.s: matrix: set "s": more than 1,000,000,000 choices', told)
                self.assertIn("factors without common models", told)


class SchedulerTests(ConfigCase):
    """Who is served next."""

    def test_priorities_are_by_model(self) -> None:
        """An alias stands for its model, whose own entry comes first."""
        text = "routing: {scheduler: {use: fifo, settings: {fifo: {priority: {al: 5, b: -1%s}}}}}\n"
        self.assertEqual(self.good(AB + text % "").priorities, {"a": 5, "b": -1})
        self.assertEqual(self.good(AB + text % ", a: 7").priorities, {"a": 7, "b": -1})

    def test_mistakes(self) -> None:
        """Unknown schedulers, unknown models, words for numbers."""
        path = "routing.scheduler.settings.fifo.priority"
        self.refused(
            AB + "routing: {scheduler: {use: lifo}}\n", 'routing.scheduler.use: unknown scheduler "lifo" (valid: fifo'
        )
        for name in ("nobody", "den/owl"):
            text = f"routing: {{scheduler: {{settings: {{fifo: {{priority: {{{name}: 1}}}}}}}}}}\n"
            text += "peers: {den: {proxy: 'http://h', models: [owl]}}\n"
            self.refused(AB + text, f'{path} references unknown model "{name}"')
        self.refused(
            AB + "routing: {scheduler: {settings: {fifo: {priority: {a: high}}}}}\n", f"{path}.a: cannot unmarshal"
        )

    def test_fair(self) -> None:
        """Its settings, with weights of keys that have names."""
        top = "apiKeys: [{name: me, key: k-1}]\n" + AB
        fair = "{maxWait: 2m, minLoaded: 5, maxQueue: 7, weights: {me: 2}}"
        text = f"routing: {{scheduler: {{use: fair, settings: {{fair: {fair}}}}}}}\n"
        config = self.good(top + text)
        self.assertEqual(
            (config.scheduler, config.fair), ("fair", Fair(max_wait=120, min_loaded=5, max_queue=7, weights={"me": 2}))
        )
        self.assertEqual(self.warned(top + text), [])
        self.assertEqual(len(self.warned(top + text.replace("me: 2", "mee: 2"))), 1)
        for bad in ("maxWait: -1", "maxQueue: x", "minLoaded: soon"):
            self.refused(f"routing: {{scheduler: {{settings: {{fair: {{{bad}}}}}}}}}\n", f"fair.{bad.split(':')[0]}")


class StartupTests(ConfigCase):
    """What is loaded without being asked for."""

    def preload(self, names: str) -> str:
        """The section that loads these names."""
        return f"hooks: {{on_startup: {{preload: [{names}]}}}}\n"

    def test_names_become_models(self) -> None:
        """Trimmed, aliases resolved, blanks and nulls dropped, order and doubles kept."""
        text = AB + "groups: {g: {swap: false, members: [a, b]}}\n"
        self.assertEqual(self.good(text + self.preload("' b ', '', ~, al, a")).preload, ("b", "a", "a"))

    def test_unknown_names_are_refused(self) -> None:
        """With the nearest one; peers and selectors cannot be loaded and are left out with a warning."""
        self.refused(AB + self.preload("nobody"), 'hooks.on_startup.preload[0]: preload: unknown model "nobody"')
        more = "peers: {p: {proxy: 'http://h', models: [m]}}\nselectors: {s: {strategy: pin, targets: [a]}}\n"
        text = AB + more + self.preload("m, p/m, s, a")
        self.assertEqual(self.good(text).preload, ("a",))
        self.assertEqual(len(self.warned(text)), 3)

    def test_a_preload_that_would_evict_another_is_told(self) -> None:
        """By the groups, or by the matrix."""
        for top in (
            "",
            "groups: {g: {members: [a, b]}}\n",
            "groups: {g: {members: [a]}}\n",
            "matrix: {sets: {s: a | b}}\n",
        ):
            self.assertIn("preload: b cannot be loaded beside a", self.warned(AB + top + self.preload("a, b"))[0])
        for top in (
            "groups: {g: {swap: false, members: [a, b]}}\n",
            "groups: {g: {persistent: true, members: [a]}}\n",
            "groups: {g: {members: [a]}, h: {exclusive: false, members: [b]}}\n",
            "matrix: {sets: {s: a & b}}\n",
        ):
            self.assertEqual(self.warned(AB + top + self.preload("a, b")), [], top)

    def test_fallback(self) -> None:
        """A model or an alias."""
        self.assertEqual(self.good(AB + "fallback: al\nfallbackDelay: 1m\n").fallback, "a")
        self.assertEqual((self.good(AB).fallback, self.good(AB + "fallbackDelay: 1m\n").fallback_delay), (None, 60))
        self.refused(AB + "fallback: nobody\n", 'config.yaml:2:11: fallback: unknown model "nobody"')
        self.refused(AB + "fallbackDelay: -1\n", "fallbackDelay")
