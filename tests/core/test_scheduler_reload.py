"""Reload as a difference, in the scheduler: models whose process is outdated, and models that are gone.

An outdated process finishes what it has and takes nothing new; requests that come later wait for the next one.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Effect, GiveUp, Grant, Idle, Moved, Refusal, Refuse, Stop, Swap
from lswap.core.policy import Policy
from lswap.core.scheduler import ModelRules
from tests.core.desk import Desk, Fixed, Others


def reload(
    desk: Desk, models: str = "a b c", outdated: str = "", policy: Policy | None = None, leaving: Collection[int] = ()
) -> list[Effect]:
    """Another configuration."""
    rules = {name: ModelRules() for name in models.split()}
    return desk.scheduler.replace(rules, policy or Others(), 1000, outdated.split(), leaving)


class OutdatedTests(SynchronousTestCase):
    """A model that runs and is changed."""

    def busy(self) -> Desk:
        """`a` serves request 1, and is outdated."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        self.assertEqual(reload(desk, outdated="a"), [])
        return desk

    def test_stops_at_once_when_idle(self) -> None:
        """Nobody uses it: it goes in the turn of the reload."""
        desk = Desk(Others())
        desk.up("a")
        self.assertEqual(reload(desk, outdated="a"), [Stop(("a",), "reload")])

    def test_finishes_its_requests(self) -> None:
        """It stops when the last one is over, and only once."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "a")
        self.assertEqual(reload(desk, outdated="a"), [])
        self.assertEqual(desk.served(1), [])
        self.assertEqual(desk.served(2), [Stop(("a",), "reload")])
        self.assertEqual(desk.stopping("a"), [])
        self.assertEqual(desk.stopped("a"), [])

    def test_new_ones_wait_for_the_new_process(self) -> None:
        """They are granted after a swap of the model against itself."""
        desk = self.busy()
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])
        self.assertEqual(desk.served(1), [Swap(1, "a", ("a",))])
        desk.stopping("a")
        desk.stopped("a")
        desk.starting("a")
        self.assertEqual(desk.ask(3, "a"), [])  # joins
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(2, "a"), Grant(3, "a")])
        self.assertEqual(desk.served(2), [])
        self.assertEqual(desk.served(3), [Idle("a", 0.0)])

    def test_plan(self) -> None:
        """The plan tells that the old process goes, and why."""
        desk = self.busy()
        plan = desk.scheduler.plan("a")
        self.assertEqual((plan.would, plan.waits_for), ("wait", (("a", 1),)))
        self.assertEqual(plan.unload, (("a", "its process was started by an older configuration"),))

    def test_taken_back(self) -> None:
        """A change that is taken back in time keeps the process; those who waited are let through."""
        desk = self.busy()
        desk.ask(2, "a")
        self.assertEqual(reload(desk), [Grant(2, "a")])
        desk.served(1)
        self.assertEqual(desk.served(2), [Idle("a", 0.0)])

    def test_in_the_way_of_others(self) -> None:
        """Until it is idle it takes its room, as before."""
        desk = self.busy()
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.served(1), [Swap(1, "b", ("a",))])

    def test_only_the_process_that_there_was(self) -> None:
        """What starts after the reload is not outdated any more."""
        desk = self.busy()
        desk.served(1)
        desk.stopping("a")
        desk.stopped("a")
        self.assertEqual(desk.ask(2, "a"), [Swap(1, "a", ())])
        desk.starting("a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(2, "a")])
        self.assertEqual(desk.ask(3, "a"), [Grant(3, "a")])

    def test_idle_times_do_not_matter(self) -> None:
        """It is stopped for the reload, not for its idle time: an end of that changes nothing."""
        desk = self.busy()
        self.assertEqual(desk.expired("a"), [])

    def test_dies_by_itself(self) -> None:
        """Then there is nothing to stop."""
        desk = self.busy()
        desk.stopping("a")
        desk.stopped("a")
        self.assertEqual(desk.served(1), [])
        self.assertEqual(desk.ask(2, "a"), [Swap(1, "a", ())])

    def test_not_while_shutting_down(self) -> None:
        """At the end of everything nothing is stopped twice."""
        desk = self.busy()
        desk.shut()
        self.assertEqual(desk.served(1), [])


class LoadingTests(SynchronousTestCase):
    """A model that is being loaded, and is changed."""

    def loading(self, *tickets: int) -> Desk:
        """Requests wait for `a`, which starts."""
        desk = Desk(Others())
        for ticket in tickets:
            desk.ask(ticket, "a")
        desk.starting("a")
        return desk

    def test_those_who_wait_get_the_old_process(self) -> None:
        """They came before the change; who comes later waits for the next process."""
        desk = self.loading(1)
        self.assertEqual(reload(desk, outdated="a"), [])
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])
        self.assertEqual(desk.ready("a"), [])
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Swap(2, "a", ("a",))])

    def test_nobody_comes_later(self) -> None:
        """It stops after those who waited."""
        desk = self.loading(1)
        reload(desk, outdated="a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Stop(("a",), "reload")])

    def test_nobody_waits(self) -> None:
        """A load for nobody of what nobody wants is given up at once, and once."""
        desk = self.loading(1)
        desk.leave(1)
        self.assertEqual(reload(desk, outdated="a"), [GiveUp(1, "reload")])
        self.assertEqual(reload(desk, outdated="a"), [])

    def test_nobody_waits_any_more(self) -> None:
        """When the last of those leaves, who came later does not wait for a load of the old configuration."""
        desk = self.loading(1)
        reload(desk, outdated="a")
        desk.ask(2, "a")
        self.assertEqual(desk.leave(1), [GiveUp(1)])
        desk.stopping("a")
        self.assertEqual(desk.ended(1, "aborted"), [Swap(2, "a", ())])

    def test_came_up_after_all(self) -> None:
        """A load that was given up too late leaves an idle process of the old configuration: it is stopped."""
        desk = self.loading(1)
        desk.leave(1)
        reload(desk, outdated="a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Stop(("a",), "reload")])

    def test_fails(self) -> None:
        """Its failure is that of those who waited for it; who came later gets a new start."""
        desk = self.loading(1)
        reload(desk, outdated="a")
        desk.ask(2, "a")
        desk.stopping("a")
        self.assertEqual(desk.ended(1, "boom"), [Refuse(1, Refusal.FAILED, "boom"), Swap(2, "a", ())])

    def test_taken_back(self) -> None:
        """Who came in between joins the load again."""
        desk = self.loading(1)
        reload(desk, outdated="a")
        desk.ask(2, "a")
        reload(desk)
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Grant(2, "a")])

    def test_before_its_process(self) -> None:
        """A swap that still makes room will start what the new configuration says: nothing is outdated."""
        desk = Desk(Others())
        desk.up("b")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ("b",))])
        reload(desk, outdated="a")
        self.assertEqual(desk.ask(2, "a"), [])
        desk.stopping("b")
        desk.stopped("b")
        desk.starting("a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Grant(2, "a")])


class RemovedTests(SynchronousTestCase):
    """A model that the configuration does not have any more."""

    def test_idle(self) -> None:
        """It is stopped at once, and takes room until it is gone."""
        desk = Desk(Others())
        desk.up("a")
        self.assertEqual(reload(desk, "b c"), [Stop(("a",), "reload")])
        self.assertEqual(desk.ask(1, "a"), [Refuse(1, Refusal.UNKNOWN)])
        self.assertEqual(desk.scheduler.running(), ("a",))
        self.assertEqual(desk.ask(2, "b"), [Swap(1, "b", ("a",))])
        desk.stopping("a")
        desk.stopped("a")
        self.assertEqual(desk.scheduler.running(), ("b",))

    def test_busy(self) -> None:
        """It finishes its requests, and is in the way of others meanwhile."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        self.assertEqual(reload(desk, "b c"), [])
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.served(1), [Swap(1, "b", ("a",))])

    def test_busy_and_nobody_waits(self) -> None:
        """Then it is stopped for the reload."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        reload(desk, "b c")
        self.assertEqual(desk.served(1), [Stop(("a",), "reload")])

    def test_comes_back(self) -> None:
        """Before it is gone it is an ordinary model again; its process stays if it is no other."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        reload(desk, "b c")
        self.assertEqual(reload(desk), [])
        self.assertEqual(desk.ask(2, "a"), [Grant(2, "a")])
        desk.served(1)
        self.assertEqual(desk.served(2), [Idle("a", 0.0)])

    def test_load_for_nobody(self) -> None:
        """It is given up."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.starting("a")
        self.assertEqual(reload(desk, "b c", leaving=[1]), [GiveUp(1, "reload")])

    def test_given_up_swap_ends(self) -> None:
        """A load of it that ended early leaves nothing behind."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.starting("a")
        reload(desk, "b c", leaving=[1])
        desk.stopping("a")
        self.assertEqual(desk.ended(1, "aborted"), [])
        desk.stopped("a")
        self.assertEqual(desk.scheduler.running(), ())
        self.assertNotIn("a", desk.scheduler._board.models)

    def test_given_up_swap_that_came_up(self) -> None:
        """A load of it that was given up too late: the process is stopped."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.starting("a")
        reload(desk, "b c", leaving=[1])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Stop(("a",), "reload")])


class LeavingTests(SynchronousTestCase):
    """Requests that a reload leads elsewhere leave in the step of the reload."""

    def test_no_start_by_the_old_rules(self) -> None:
        """Two requests leave: the second is not started for a moment because the first made room."""
        desk = Desk(Others())
        desk.up("c")
        desk.ask(1, "c")
        desk.ask(2, "a")
        desk.ask(3, "b")
        self.assertEqual(reload(desk, "c", leaving=[2, 3]), [])
        self.assertEqual(desk.scheduler.waiting(), 0)

    def test_room_is_given_by_the_new_rules(self) -> None:
        """Who stays in the queue goes on by the policy that is in force then."""
        desk = Desk(Others())
        desk.up("c")
        desk.ask(1, "c")
        desk.ask(2, "a")
        desk.ask(3, "b")
        self.assertEqual(reload(desk, policy=Fixed(), leaving=[2]), [Swap(1, "b", ())])

    def test_late(self) -> None:
        """A ticket that does not wait any more is none."""
        desk = Desk(Others())
        self.assertEqual(reload(desk, leaving=[7]), [])
