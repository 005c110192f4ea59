"""Profiles and selectors at work (`lswap.service.profiles`, `.selectors`, `.names`)."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import ILogObserver, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Source, load
from lswap.core.events import State
from lswap.core.model import Config
from lswap.service.names import Aim, Names
from lswap.service.profiles import Profiles
from lswap.service.selectors import NoTarget, Selectors

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}", aliases: [also-a]}
  b: {cmd: "server --port ${PORT}", compat: {ignoreWebsockets: true}}
  c: {cmd: "server --port ${PORT}"}
groups: {all: {swap: false, members: [a, b, c]}}
peers: {p: {proxy: "http://127.0.0.1:9", models: [m]}}
selectors:
  first: {strategy: pin, targets: [also-a, b]}
  warm: {strategy: warm, targets: [a, b]}
  share: {strategy: spillover, targets: [also-a, b, p/m]}
  socks: {strategy: spillover, targets: [b]}
profiles:
  day: {pins: {llm: a, pick: share, off: "", b: c, chain: llm, first: c}}
  night: {pins: {llm: b}}
"""


def config_of(text: str) -> Config:
    """The configuration that a text means."""
    loaded = load([Source("config.yaml", text.encode())], {})
    assert loaded.config is not None, loaded.problems
    return loaded.config


class NamesCase(SynchronousTestCase):
    """Names of a configuration whose models' states are made up."""

    def setUp(self) -> None:
        """Nothing runs."""
        self.config = config_of(CONFIG.replace("chain: llm, ", ""))
        self.states: dict[str, State] = {}
        self.profiles = Profiles(lambda: self.config)
        self.selectors = Selectors(lambda: self.config, lambda model: self.states.get(model, State.STOPPED))
        self.names = Names(lambda: self.config, self.profiles, self.selectors)

    def aim(self, name: str, websocket: bool = False) -> Aim:
        """Where a name leads to; it must not be disabled."""
        aim = self.names.aim(name, websocket)
        assert aim is not None
        return aim

    def reload(self, text: str) -> None:
        """Another configuration comes into force."""
        self.config = config_of(text)
        self.names.reloaded()


class ProfileTests(NamesCase):
    """The active profile."""

    def test_none_at_first(self) -> None:
        """No name is pinned."""
        self.assertIsNone(self.profiles.active)
        self.assertEqual(dict(self.profiles.pins), {})
        self.assertEqual(self.aim("llm").name, "llm")

    def test_change(self) -> None:
        """The pins are those of the active one; who watches is told of real changes only, after they are made."""
        told: list[tuple[str | None, str | None]] = []
        self.profiles.watch(lambda name: told.append((name, self.profiles.active)))
        for name in ("day", "day", "night", None, None):
            self.profiles.activate(name)
            self.assertEqual(self.profiles.active, name)
        self.assertEqual(told, [("day", "day"), ("night", "night"), (None, None)])

    def test_unknown(self) -> None:
        """It is refused, and the active one stays."""
        self.profiles.activate("day")
        self.assertRaises(KeyError, self.profiles.activate, "nosuch")
        self.assertEqual(self.profiles.active, "day")

    def test_reload(self) -> None:
        """None is active afterwards, and who watches is told."""
        self.profiles.activate("day")
        told: list[str | None] = []
        self.profiles.watch(told.append)
        self.reload(CONFIG.replace("chain: llm, ", ""))
        self.assertIsNone(self.profiles.active)
        self.assertEqual(told, [None])

    def test_watcher_that_fails(self) -> None:
        """The others are told all the same."""
        told: list[str | None] = []

        def broken(name: str | None) -> None:
            raise RuntimeError("made up")

        self.profiles.watch(broken)
        self.profiles.watch(told.append)
        self.profiles.activate("day")
        self.assertEqual(told, ["day"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class OrderTests(NamesCase):
    """First the pin, once; then the selector, once."""

    def test_pins(self) -> None:
        """A pin leads to its target, over a real model or a selector too; other names stay."""
        self.profiles.activate("day")
        for name, found in (("llm", "a"), ("b", "c"), ("first", "c"), ("c", "c"), ("nosuch", "nosuch")):
            aim = self.aim(name)
            self.assertEqual((aim.name, aim.selector), (found, None))

    def test_disabled(self) -> None:
        """A pin without a target leads nowhere."""
        self.profiles.activate("day")
        self.assertIsNone(self.names.aim("off"))

    def test_pin_to_a_selector(self) -> None:
        """Then the selector chooses."""
        self.profiles.activate("day")
        aim = self.aim("pick")
        self.assertEqual((aim.name, aim.selector), ("also-a", "share"))

    def test_selector_alone(self) -> None:
        """The target is given as it is listed, so an alias stays one; profiles do not count for it."""
        self.assertEqual(self.aim("first").name, "also-a")
        self.profiles.activate("day")
        self.states["b"] = State.READY
        self.assertEqual(self.aim("warm").name, "b")


class SelectorTests(NamesCase):
    """The counts of a spillover selector."""

    def test_counted_by_model(self) -> None:
        """Each choice takes a place, and its end gives it back, once."""
        aims = [self.aim("share") for _ in range(3)]
        self.assertEqual([aim.name for aim in aims], ["also-a", "b", "p/m"])
        self.assertEqual(self.selectors.under_way("share"), {"a": 1, "b": 1, "p/m": 1})
        for aim in aims[:2]:
            aim.release()
            aim.release()
        self.assertEqual(self.selectors.under_way("share"), {"p/m": 1})

    def test_others_count_nothing(self) -> None:
        """`pin` and `warm` need no places."""
        for name in ("first", "warm", "a"):
            self.aim(name)
            self.assertEqual(self.selectors.under_way(name), {})

    def test_no_target(self) -> None:
        """All about to go: the error names the selector, and no place is taken."""
        self.states["b"] = State.STOPPING
        error = self.assertRaises(NoTarget, self.names.aim, "socks")
        self.assertEqual(str(error), 'selector "socks" has no available spillover targets')
        self.assertEqual(self.selectors.under_way("socks"), {})

    def test_ignored_websockets(self) -> None:
        """One to a model that ignores them holds no place; one to another model does."""
        self.assertEqual(self.aim("socks", websocket=True).name, "b")
        self.assertEqual(self.selectors.under_way("socks"), {})
        self.aim("share", websocket=True)
        self.assertEqual(self.selectors.under_way("share"), {"a": 1})

    def test_reload(self) -> None:
        """Requests under way count on, and end without harm, also when their selector is gone."""
        aims = [self.aim("share"), self.aim("socks")]
        self.reload("\n".join(line for line in CONFIG.splitlines() if "socks:" not in line and "pick:" not in line))
        self.assertEqual(self.selectors.under_way("share"), {"a": 1})
        self.assertEqual(self.selectors.under_way("socks"), {})
        for aim in aims:
            aim.release()
        self.assertEqual(self.selectors.under_way("share"), {})

    def test_explained(self) -> None:
        """The decision is logged with its reason."""
        events: list[dict[str, Any]] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.states["b"] = State.READY
        self.aim("warm")
        event = next(event for event in events if event.get("selector") == "warm")
        self.assertEqual((event["log_level"].name, event["target"]), ("debug", "b"))
        self.assertEqual(event["why"], "the first that is ready")

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["ask", "socket", "end", "end again", "state", "reload"]),
                st.integers(0, 30),
                st.sampled_from(list(State)),
            ),
            max_size=60,
        )
    )
    def test_places_come_back(self, steps: list[tuple[str, int, State]]) -> None:
        """Whatever happens, the counts are those of the requests under way, and return to nothing."""
        self.setUp()
        under_way: list[Aim] = []
        over: list[Aim] = []
        for step, number, state in steps:
            if step in ("ask", "socket"):
                try:
                    aim = self.aim("share", websocket=step == "socket")
                except NoTarget:
                    continue
                ignored = step == "socket" and aim.name == "b"
                (over if ignored else under_way).append(aim)
            elif step == "end" and under_way:
                over.append(under_way.pop(number % len(under_way)))
                over[-1].release()
            elif step == "end again" and over:
                over[number % len(over)].release()
            elif step == "state":
                self.states["abc"[number % 3]] = state
            elif step == "reload":
                self.names.reloaded()
            counted = Counter({"also-a": "a"}.get(aim.name, aim.name) for aim in under_way)
            self.assertEqual(self.selectors.under_way("share"), dict(counted))
        for aim in under_way:
            aim.release()
        self.assertEqual(self.selectors.under_way("share"), {})
