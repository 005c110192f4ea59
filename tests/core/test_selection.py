"""Which target of a selector gets a request (`lswap.core.selection`)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import State
from lswap.core.selection import Choice, Target, choose

LETTERS = {
    "-": State.STOPPED,
    "s": State.STARTING,
    "r": State.READY,
    "g": State.STOPPING,
    "x": State.SHUTDOWN,
    "p": None,
}


def targets(states: str) -> list[Target]:
    """Targets a, b, c ... whose states are these letters; `p` is a peer's model."""
    return [Target(name, name, LETTERS[letter]) for name, letter in zip("abcdef", states, strict=False)]


def chosen(strategy: str, states: str, busy: dict[str, int] | None = None, limit: int = 1, turn: int = 0) -> str | None:
    """The name of the target, or None."""
    choice = choose(strategy, targets(states), busy or {}, limit, turn)
    return choice.target.name if choice is not None else None


class Desk:
    """A spillover selector at work: counts as `lswap.service.selectors` does."""

    def __init__(self, states: str, limit: int) -> None:
        self.states = states
        self.busy: Counter[str] = Counter()
        self._limit = limit
        self._turn = 0

    def take(self) -> str:
        """One request comes."""
        choice = choose("spillover", targets(self.states), self.busy, self._limit, self._turn)
        assert choice is not None
        self._turn += choice.in_turn
        self.busy[choice.target.model] += 1
        return choice.target.name

    def take_many(self, count: int) -> str:
        """Many come."""
        return "".join(self.take() for _ in range(count))


class PinTests(SynchronousTestCase):
    """Strategy `pin`."""

    def test_first(self) -> None:
        """The first target, whatever the states."""
        for states in ("---", "-rr", "grr", "xrs", "prr"):
            self.assertEqual(chosen("pin", states), "a")

    def test_none(self) -> None:
        """Without targets there is none."""
        self.assertIsNone(chosen("pin", ""))


class WarmTests(SynchronousTestCase):
    """Strategy `warm`."""

    def test_states(self) -> None:
        """The first that is ready, else the first that is starting, else the first."""
        for states, name in (
            ("s-r", "c"),
            ("srr", "b"),
            ("ss-", "a"),
            ("-ss", "b"),
            ("---", "a"),
            ("g--", "a"),
            ("gs-", "b"),
            ("xgr", "c"),
        ):
            self.assertEqual(chosen("warm", states), name, states)

    def test_none(self) -> None:
        """Without targets there is none."""
        self.assertIsNone(chosen("warm", ""))


class SpilloverTests(SynchronousTestCase):
    """Strategy `spillover`."""

    def test_woken_one_after_the_other(self) -> None:
        """A target takes as many as the limit before the next is woken; when all are full they take turns."""
        self.assertEqual(Desk("---", 2).take_many(6), "aabbcc")
        crowd = Desk("---", 1).take_many(9)
        self.assertEqual(crowd[:3], "abc")
        self.assertEqual(Counter(crowd), {"a": 3, "b": 3, "c": 3})

    def test_after_a_release(self) -> None:
        """Two for a, one for b; one of a ends: with all of them ready the idle one is next."""
        desk = Desk("---", 2)
        self.assertEqual(desk.take_many(3), "aab")
        desk.busy["a"] -= 1
        desk.states = "rrr"
        self.assertEqual(desk.take(), "c")

    def test_ready_ones_take_turns(self) -> None:
        """Requests one at a time go round."""
        desk = Desk("rr-", 1)
        names = ""
        for _ in range(4):
            names += desk.take()
            desk.busy.clear()
        self.assertEqual(names, "abab")

    def test_least_busy(self) -> None:
        """The fewest requests win, below the limit and above it."""
        for busy, name in (({"a": 2, "b": 1, "c": 2}, "b"), ({"a": 5, "b": 5, "c": 4}, "c")):
            self.assertEqual(chosen("spillover", "rrr", busy, limit=3), name)

    def test_cold_ones(self) -> None:
        """One that is cold is woken when each active one is full, and not before."""
        self.assertEqual(chosen("spillover", "-r-", {}), "b")
        self.assertEqual(chosen("spillover", "-r-", {"b": 1}), "a")
        self.assertEqual(chosen("spillover", "-s-", {"b": 1}, limit=2), "b")
        self.assertEqual(chosen("spillover", "grr", {"b": 1, "c": 1}), "b")

    def test_peers(self) -> None:
        """A peer's model is active while it has requests; when they are over the first is cold again."""
        desk = Desk("pp", 1)
        self.assertEqual(desk.take_many(2), "ab")
        desk.busy.clear()
        self.assertEqual(desk.take(), "a")
        self.assertEqual(chosen("spillover", "rp", {"a": 1}), "b")

    def test_none(self) -> None:
        """All about to go: nobody, even with requests under way."""
        for states in ("", "g", "gx", "xx"):
            self.assertIsNone(chosen("spillover", states, {"a": 3}))

    @given(
        st.text("-srgxp", max_size=6),
        st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5)),
        st.integers(1, 4),
        st.integers(0, 99),
    )
    def test_any(self, states: str, busy: dict[str, int], limit: int, turn: int) -> None:
        """Never one that is about to go; one that is not active only if no active one has room; else the least busy."""
        choice = choose("spillover", targets(states), busy, limit, turn)
        usable = [target for target in targets(states) if target.state not in (State.STOPPING, State.SHUTDOWN)]
        self.assertEqual(choice is None, not usable)
        if choice is None:
            return
        self.assertIn(choice.target, usable)
        active = [target for target in usable if target.state in (State.READY, State.STARTING) or target.model in busy]
        least = min((busy.get(target.model, 0) for target in active), default=limit)
        if choice.target in active:
            self.assertEqual(busy.get(choice.target.model, 0), least)
            self.assertTrue(least < limit or active == usable)
        else:
            self.assertGreaterEqual(least, limit)
            self.assertEqual(choice.target, next(target for target in usable if target not in active))


class WhyTests(SynchronousTestCase):
    """A decision explains itself."""

    def test_why(self) -> None:
        """Each in its own words."""
        a, b = targets("-r")
        for choice, expected in (
            (choose("pin", [a, b], {}, 1, 0), Choice(a, "the first, always")),
            (choose("warm", [a, b], {}, 1, 0), Choice(b, "the first that is ready")),
            (choose("warm", [a], {}, 1, 0), Choice(a, "the first, as none is ready or starting")),
            (choose("spillover", [a], {}, 1, 0), Choice(a, "the first cold one, as none is active")),
            (
                choose("spillover", [a, b], {"b": 3}, 2, 0),
                Choice(a, "the first cold one, as each active one has 2 or more"),
            ),
            (
                choose("spillover", [a, b], {"b": 1}, 2, 0),
                Choice(b, "the least busy of 1 active: 1 under way, limit 2", in_turn=True),
            ),
        ):
            self.assertEqual(choice, expected)
