"""Asking without acting, going on by other rules, and what the document says. Read `tests.core.desk` first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from lswap.core.board import Step
from lswap.core.effects import Effect, GiveUp, Grant, Moved, Refusal, Refuse, Swap
from lswap.core.events import Event, State, StateChanged
from lswap.core.policy import Policy
from lswap.core.scheduler import ModelRules, Plan
from tests.core.desk import Desk, Fixed, Others
from tests.core.policy_contract import PolicyContract


class PlanTests(SynchronousTestCase):
    """`plan` tells what would happen, and does nothing."""

    def test_serve(self) -> None:
        """A ready model with nobody in its way."""
        desk = Desk(Fixed())
        desk.up("a")
        self.assertEqual(desk.scheduler.plan("a"), Plan("serve"))

    def test_start(self) -> None:
        """Nothing runs; something idle runs."""
        desk = Desk(Others())
        self.assertEqual(desk.scheduler.plan("a"), Plan("start"))
        desk.up("b")
        self.assertEqual(desk.scheduler.plan("a"), Plan("start", unload=(("b", "it cannot run beside 'a'"),)))

    def test_start_that_is_under_way(self) -> None:
        """A load that it would join, with what is still to be stopped for it."""
        desk = Desk(Others())
        desk.up("b")
        desk.ask(1, "a")
        self.assertEqual(desk.scheduler.plan("a"), Plan("start", unload=(("b", "it cannot run beside 'a'"),), ahead=1))
        desk.stopped("b")
        self.assertEqual(desk.scheduler.plan("a"), Plan("start", ahead=1))

    def test_wait_for_a_busy_model(self) -> None:
        """What would be unloaded, and what is in flight there."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "a")
        plan = desk.scheduler.plan("b")
        self.assertEqual((plan.would, plan.waits_for, plan.ahead), ("wait", (("a", 2),), 0))
        self.assertEqual([name for name, _ in plan.unload], ["a"])

    def test_wait_for_another_load(self) -> None:
        """The model that is being loaded is named, with nothing in flight; those who wait come first."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.ask(2, "b")
        plan = desk.scheduler.plan("c")
        self.assertEqual((plan.would, plan.waits_for, plan.ahead), ("wait", (("a", 0),), 2))

    def test_wait_for_the_end_of_a_load_that_was_given_up(self) -> None:
        """The model itself is named."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.leave(1)
        desk.ask(2, "b")
        self.assertEqual(desk.scheduler.plan("a"), Plan("wait", waits_for=(("a", 0),), ahead=1))

    def test_refuse(self) -> None:
        """Unknown, over the limit, queue full."""
        desk = Desk(Others(), limits={"a": 1}, queue_limit=1)
        desk.ask(1, "a")
        refusals = [desk.scheduler.plan(name).refusal for name in ("ghost", "a", "b")]
        self.assertEqual(refusals, [Refusal.UNKNOWN, Refusal.LIMIT, Refusal.QUEUE_FULL])
        self.assertEqual({desk.scheduler.plan(name).would for name in ("ghost", "a", "b")}, {"refuse"})

    def test_reasons_come_from_the_policy(self) -> None:
        """A policy that can explain itself is asked with what it decided on."""

        class Explaining(Others):
            """Tells all that it is told."""

            def why(self, target: str, victim: str, running: object) -> str:
                """All of it."""
                return f"{target} {victim} {running}"

        desk = Desk(Explaining())
        desk.up("b", "c")
        unload = (("b", "a b ('b', 'c')"), ("c", "a c ('b', 'c')"))
        self.assertEqual(desk.scheduler.plan("a").unload, unload)


class ReplaceTests(SynchronousTestCase):
    """Going on by other rules."""

    def test_new_policy_lets_a_waiting_request_in(self) -> None:
        """The queue is looked at by the new rules."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        rules = {"a": ModelRules(), "b": ModelRules()}
        self.assertEqual(desk.scheduler.replace(rules, Fixed(), 10), [Swap(1, "b", ())])
        self.assertEqual(desk.ask(3, "c"), [Refuse(3, Refusal.UNKNOWN)])

    def test_queued_request_for_a_model_that_is_gone(self) -> None:
        """It is refused, and the others move up."""
        desk = Desk(Others())
        desk.up("a")
        for ticket, model in enumerate("abc"):
            desk.ask(ticket, model)
        rules = {"a": ModelRules(), "c": ModelRules()}
        self.assertEqual(desk.scheduler.replace(rules, Others(), 10), [Refuse(1, Refusal.UNKNOWN), Moved(2, 1)])
        self.assertEqual(desk.queue(), "c")

    def test_new_limits_count_for_the_next_request(self) -> None:
        """What was let in before stays in."""
        desk = Desk(Fixed(b="a"))
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "a")
        desk.ask(3, "b")
        rules = {name: ModelRules(concurrency_limit=2) for name in "ab"}
        self.assertEqual(desk.scheduler.replace(rules, Fixed(b="a"), 1), [])
        self.assertEqual(desk.ask(4, "a"), [Refuse(4, Refusal.LIMIT)])
        self.assertEqual(desk.ask(5, "b"), [Refuse(5, Refusal.QUEUE_FULL)])

    def test_model_that_is_gone_from_the_rules_is_in_the_way_until_it_is_stopped(self) -> None:
        """It finishes its requests, and takes room until its owner says otherwise."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.scheduler.replace({"b": ModelRules()}, Others(), 10)
        self.assertEqual(desk.ask(2, "a"), [Refuse(2, Refusal.UNKNOWN)])
        self.assertEqual(desk.ask(3, "b"), [Moved(3, 1)])
        self.assertEqual(desk.served(1), [Swap(1, "b", ("a",))])
        self.assertEqual(desk.scheduler.running(), ("a", "b"))
        desk.stopped("a")
        self.assertEqual(desk.scheduler.running(), ("b",))

    def test_waiters_of_a_load_are_refused_when_the_model_is_gone_from_the_rules(self) -> None:
        """A name that is gone is gone for all who wait, and the load has nobody left."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        told = desk.scheduler.replace({"b": ModelRules()}, Fixed(), 10)
        self.assertEqual(told, [Refuse(1, Refusal.UNKNOWN), GiveUp(1, "reload")])
        self.assertEqual(desk.ended(1, "aborted"), [])
        self.assertEqual(desk.scheduler.waiting(), 0)

    def test_model_that_comes_back(self) -> None:
        """Gone from the rules and named again while its request is in flight: nothing is forgotten."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.ask(1, "a")
        desk.scheduler.replace({}, Fixed(), 10)
        desk.scheduler.replace({"a": ModelRules()}, Fixed(), 10)
        self.assertEqual(desk.scheduler.inflight("a"), 1)
        self.assertEqual(desk.ask(2, "a"), [Grant(2, "a")])

    def test_nothing_is_kept_of_a_model_that_is_gone(self) -> None:
        """Once it has stopped and its last request is over, in either order, it is forgotten: memory is bounded."""
        for first in ("stopped", "served"):
            desk = Desk(Fixed())
            desk.up("a")
            desk.ask(1, "a")
            desk.scheduler.replace({}, Fixed(), 10)
            steps = {"stopped": lambda desk=desk: desk.stopped("a"), "served": lambda desk=desk: desk.served(1)}
            steps.pop(first)()
            self.assertIn("a", desk.scheduler._board.models)
            steps.popitem()[1]()
            self.assertEqual(list(desk.scheduler._board.models), [])

    def test_nothing_is_kept_of_a_model_that_was_unloaded_and_is_gone(self) -> None:
        """The end of its forgotten swap is the last that is heard of it."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.unload("a")
        desk.scheduler.replace({}, Fixed(), 10)
        self.assertIn("a", desk.scheduler._board.models)
        desk.ended(1, "aborted")
        self.assertEqual(list(desk.scheduler._board.models), [])

    def test_stranger_that_runs_is_in_the_way(self) -> None:
        """A model that no rule names counts as running while its owner says so."""
        desk = Desk(Others())
        desk.scheduler.handle(StateChanged(0.0, "stranger", State.READY))
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ("stranger",))])


class DocumentTests(SynchronousTestCase):
    """docs/scheduling.md says what is there."""

    def setUp(self) -> None:
        """The document, in a source tree only."""
        path = Path(__file__).parents[2] / "docs" / "scheduling.md"
        if not path.exists():
            raise SkipTest("no documents here")
        self.text = path.read_text(encoding="utf-8")

    def test_all_events_and_effects_have_a_row(self) -> None:
        """Each by its name, and no others."""
        rows = re.findall(r"^\| `(\w+)` \|", self.text, re.MULTILINE)
        kinds = [kind.__name__ for base in (Event, Effect) for kind in base.__subclasses__()]
        self.assertEqual(sorted(rows), sorted(kinds))

    def test_all_steps_have_a_row(self) -> None:
        """The words of the decision."""
        for step in Step:
            self.assertIn(f"\n| {step.value} | ", self.text)

    def test_example_of_a_policy(self) -> None:
        """It does what it says, and keeps the contract."""
        code = self.text.split("```python\n")[1].split("```")[0]
        names: dict[str, Any] = {"Sequence": Sequence}
        exec(code, names)
        at_most = names["AtMost"]

        class Contract(PolicyContract):
            def make_policy(self) -> Policy:
                made: Policy = at_most(3)
                return made

        contract = Contract()
        for name in dir(contract):
            if name.startswith("test_"):
                getattr(contract, name)()
        desk = Desk(at_most(2), "a b c")
        desk.up("a", "b")
        self.assertEqual(desk.ask(1, "c"), [Swap(1, "c", ("a",))])
