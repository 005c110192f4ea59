"""Eviction by groups: the table of the reference, and the same under a scheduler."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Effect, Grant, Swap
from lswap.core.model import Group
from lswap.core.plan_group import GroupPolicy
from tests.core.desk import Desk, Moved
from tests.core.policy_contract import PolicyContract

#: One group of each kind; `ivy` and `jay` are in none.
GROUPS = {
    "duo": Group(id="duo", members=("alpha", "beta")),
    "pack": Group(id="pack", swap=False, exclusive=False, members=("cat", "dog")),
    "wall": Group(id="wall", swap=False, members=("elm", "fir")),
    "keep": Group(id="keep", exclusive=False, persistent=True, members=("gnu", "hen")),
}


class TableTests(SynchronousTestCase):
    """Each row: what runs, the target, what is evicted."""

    def evicts(self, running: str, target: str, victims: str) -> None:
        """One row, in words separated by blanks."""
        self.assertEqual(GroupPolicy(GROUPS).evict(target, running.split()), tuple(victims.split()))

    def test_nothing_runs(self) -> None:
        """1: nothing to evict."""
        self.evicts("", "alpha", "")

    def test_swap_in_group(self) -> None:
        """2: members of a group that swaps replace each other."""
        self.evicts("alpha", "beta", "alpha")

    def test_exclusive_model_is_not_evicted_by_others(self) -> None:
        """3: a target that is not exclusive leaves an exclusive model running."""
        self.evicts("alpha", "cat", "")

    def test_ready_exclusive_target(self) -> None:
        """4: an exclusive target that runs already still evicts what came later."""
        self.evicts("alpha cat", "alpha", "cat")

    def test_no_swap(self) -> None:
        """5: members of a group without swap stay together."""
        self.evicts("cat", "dog", "")

    def test_exclusive_target(self) -> None:
        """6: all of another group have to go."""
        self.evicts("cat dog", "beta", "cat dog")

    def test_persistent(self) -> None:
        """7: a persistent model survives an exclusive target."""
        self.evicts("gnu", "beta", "")

    def test_persistent_in_its_own_group(self) -> None:
        """8: persistence does not protect inside the group."""
        self.evicts("gnu", "hen", "gnu")

    def test_default_group_is_exclusive(self) -> None:
        """9: a model in no group evicts all but persistent ones."""
        self.evicts("alpha dog gnu", "ivy", "alpha dog")

    def test_siblings_stay(self) -> None:
        """10: exclusive without swap keeps its own members."""
        self.evicts("elm", "fir", "")

    def test_exclusive_without_swap(self) -> None:
        """11: and evicts the others."""
        self.evicts("alpha cat elm", "fir", "alpha cat")

    def test_default_group_swaps(self) -> None:
        """12: models in no group replace each other."""
        self.evicts("ivy", "jay", "ivy")

    def test_target_that_is_not_exclusive(self) -> None:
        """13: evicts nothing of other groups."""
        self.evicts("jay", "gnu", "")

    def test_target_that_is_not_exclusive_among_many(self) -> None:
        """14: the same with several."""
        self.evicts("elm fir gnu", "cat", "")

    def test_model_that_is_being_loaded(self) -> None:
        """15: it counts as running."""
        self.evicts("alpha dog", "beta", "alpha dog")


class GroupPolicyTests(PolicyContract, SynchronousTestCase):
    """The rest, and the contract of policies."""

    def make_policy(self) -> GroupPolicy:
        """One letter for each kind; `g` and `h` are in no group."""
        groups = {
            "duo": Group(id="duo", members=("a", "b")),
            "pack": Group(id="pack", swap=False, exclusive=False, members=("c", "d")),
            "keep": Group(id="keep", exclusive=False, persistent=True, members=("e", "f")),
        }
        return GroupPolicy(groups)

    def test_model_in_two_groups(self) -> None:
        """T59: is an error."""
        groups = {"x": Group(id="x", members=("a", "b")), "y": Group(id="y", members=("b",))}
        error = self.assertRaises(ValueError, GroupPolicy, groups)
        self.assertEqual(str(error), "model 'b' is a member of 'x' and of 'y'")

    def test_model_twice_in_a_group(self) -> None:
        """Is an error, too."""
        self.assertRaises(ValueError, GroupPolicy, {"x": Group(id="x", members=("a", "a"))})

    def test_default_group_may_be_given(self) -> None:
        """Then its settings hold for all models that no group names, also for those that it does not list."""
        policy = GroupPolicy({"(default)": Group(id="(default)", swap=False, members=("a",))})
        self.assertEqual(policy.evict("a", ["b", "c"]), ())
        self.assertEqual(policy.group("b").id, "(default)")

    def test_no_groups(self) -> None:
        """One model at a time."""
        self.assertEqual(GroupPolicy({}).evict("a", ["b", "c"]), ("b", "c"))

    def test_reasons(self) -> None:
        """They name the group whose rule it is."""
        policy = GroupPolicy(GROUPS)
        self.assertEqual(policy.why("beta", "alpha", ["alpha"]), "group 'duo' runs one model at a time")
        self.assertEqual(policy.why("beta", "cat", ["cat"]), "group 'duo' of 'beta' is exclusive")


class ScheduledTests(SynchronousTestCase):
    """The same rules under a scheduler."""

    def desk(self, *groups: Group) -> Desk:
        """A desk with the models `a`, `b` and `c`."""
        return Desk(GroupPolicy({group.id: group for group in groups}))

    def ask_beside_ready(self, first: Group, *more: Group) -> list[Effect]:
        """`a` is ready; what a request for `b` does."""
        desk = self.desk(first, *more)
        desk.up("a")
        return desk.ask(1, "b")

    def test_one_group_that_swaps(self) -> None:
        """T60: the ready one is stopped for the other."""
        self.assertEqual(self.ask_beside_ready(Group(id="g", members=("a", "b"))), [Swap(1, "b", ("a",))])

    def test_group_without_swap_that_is_not_exclusive(self) -> None:
        """T61: nothing is stopped."""
        group = Group(id="g", swap=False, exclusive=False, members=("a", "b"))
        self.assertEqual(self.ask_beside_ready(group), [Swap(1, "b", ())])

    def test_two_exclusive_groups(self) -> None:
        """T62: the ready one is stopped for the other."""
        groups = Group(id="g", members=("a",)), Group(id="h", members=("b",))
        self.assertEqual(self.ask_beside_ready(*groups), [Swap(1, "b", ("a",))])

    def test_two_groups_that_are_not_exclusive(self) -> None:
        """T63: both start before either is ready."""
        desk = self.desk(Group(id="g", exclusive=False, members=("a",)), Group(id="h", exclusive=False, members=("b",)))
        self.assertEqual([desk.ask(1, "a"), desk.ask(2, "b")], [[Swap(1, "a", ())], [Swap(2, "b", ())]])

    def test_request_before_the_first_process_shows(self) -> None:
        """T64: a swap that was just decided counts, though no process has reported anything."""
        desk = self.desk(Group(id="g", members=("a", "b")))
        desk.ask(1, "a")
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Swap(2, "b", ("a",))])

    def test_persistent_group(self) -> None:
        """T65: its model stays for an exclusive target."""
        groups = Group(id="g", persistent=True, members=("a",)), Group(id="h", members=("b",))
        self.assertEqual(self.ask_beside_ready(*groups), [Swap(1, "b", ())])

    def test_exclusive_model_and_a_target_that_is_not(self) -> None:
        """T66: the exclusive one stays."""
        groups = Group(id="g", members=("a",)), Group(id="h", exclusive=False, members=("b",))
        self.assertEqual(self.ask_beside_ready(*groups), [Swap(1, "b", ())])

    def test_next_request_of_an_exclusive_model(self) -> None:
        """Row 4 of the table: it waits for the requests of what came later, then stops it."""
        desk = self.desk(Group(id="g", members=("a",)), Group(id="h", exclusive=False, members=("b",)))
        desk.up("a")
        desk.ask(1, "b")
        desk.ready("b")
        self.assertEqual(desk.ended(1), [Grant(1, "b")])
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])
        self.assertEqual(desk.served(1), [Swap(2, "a", ("b",))])
