"""Models that are kept: never stopped for others; who would need that is refused at once."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Effect, Grant, Refusal, Refuse, Swap
from lswap.core.scheduler import ModelRules
from tests.core.desk import Desk, Others


class KeepTests(SynchronousTestCase):
    """`a` is kept; every model excludes every other one."""

    def setUp(self) -> None:
        """Nothing runs."""
        self.desk = Desk(Others())
        self.rules = {"a": ModelRules(keep=True), "b": ModelRules(), "c": ModelRules()}
        self.desk.scheduler.replace(self.rules, Others(), 1000)

    def refused(self, ticket: int) -> list[Effect]:
        """What a request for another model gets."""
        return [Refuse(ticket, Refusal.KEPT, "a")]

    def test_ready(self) -> None:
        """Also while it is idle; the plan says the same."""
        self.desk.up("a")
        self.assertEqual(self.desk.ask(1, "b"), self.refused(1))
        plan = self.desk.scheduler.plan("b")
        self.assertEqual((plan.would, plan.refusal), ("refuse", Refusal.KEPT))
        self.assertEqual(self.desk.ask(2, "a"), [Grant(2, "a")])

    def test_loading(self) -> None:
        """It is kept from the moment on in which it is loaded, also when nobody waits for it any more."""
        self.assertEqual(self.desk.ask(1, "a"), [Swap(1, "a", ())])
        self.assertEqual(self.desk.ask(2, "b"), self.refused(2))
        self.desk.leave(1)
        self.assertEqual(self.desk.ask(3, "b"), self.refused(3))

    def test_unloaded_by_hand(self) -> None:
        """Then it goes, and others may have its room."""
        self.desk.up("a")
        self.desk.unload("a")
        self.assertEqual(self.desk.ask(1, "b"), [Swap(1, "b", ("a",))])

    def test_it_makes_room_for_itself(self) -> None:
        """It may send others away."""
        self.desk.up("b")
        self.assertEqual(self.desk.ask(1, "a"), [Swap(1, "a", ("b",))])

    def test_those_who_wait(self) -> None:
        """A request in the queue is refused when what it waits for is gone, but a kept model has come."""
        self.desk.up("b")
        self.desk.ask(1, "b")
        self.desk.ask(2, "a")
        self.desk.ask(3, "c")
        self.assertEqual(self.desk.queue(), "a c")
        effects = self.desk.served(1)
        self.assertEqual([effect for effect in effects if isinstance(effect, (Swap, Refuse))],
                         [Swap(1, "a", ("b",)), *self.refused(3)])  # fmt: skip
        self.assertEqual((self.desk.queue(), self.desk.scheduler.reserved("c")), ("", 0))

    def test_no_longer(self) -> None:
        """A reload that takes the word back lets others in."""
        self.desk.up("a")
        self.desk.scheduler.replace({**self.rules, "a": ModelRules()}, Others(), 1000)
        self.assertEqual(self.desk.ask(1, "b"), [Swap(1, "b", ("a",))])
