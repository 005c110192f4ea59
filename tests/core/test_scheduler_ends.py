"""How things end: clients that leave, models that are unloaded, idle or dead, and the end of lswap.

The reference's cases have their letters and numbers (T, D, H). Read `tests.core.desk` first.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import GiveUp, Grant, Idle, Moved, Refusal, Refuse, Stop, Swap
from lswap.core.scheduler import Plan
from tests.core.desk import Desk, Fixed, Others


class LeaveTests(SynchronousTestCase):
    """Clients that go away, and loads that nobody waits for any more."""

    def test_leaving_the_queue(self) -> None:
        """T21: the model of a client that left the queue is not loaded."""
        desk = Desk(Fixed(b="a"))
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.leave(2), [])
        self.assertEqual(desk.queue(), "")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Idle("a", 0.0)])

    def test_leaving_a_load(self) -> None:
        """T22, T53: the others who wait for it are served."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.ask(2, "a")
        self.assertEqual(desk.leave(1), [])
        self.assertEqual(desk.scheduler.waiting(), 1)
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(2, "a")])

    def test_leaving_after_the_grant(self) -> None:
        """T23: no effect; the request is in flight until it is served."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.ask(1, "a")
        self.assertEqual(desk.leave(1), [])
        self.assertEqual(desk.scheduler.inflight("a"), 1)

    def test_late_and_unknown_events(self) -> None:
        """T01 to T03, changed: what comes twice, late or for nobody has no effect."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.ask(1, "a")
        desk.served(1)
        late = [
            desk.leave(1),
            desk.served(1),
            desk.leave(9),
            desk.served(9),
            desk.expired("ghost"),
            desk.stopped("ghost"),
        ]
        self.assertEqual(late, [[]] * 6)
        self.assertEqual(desk.scheduler.reserved("a"), 0)

    def test_load_goes_on_without_waiters(self) -> None:
        """Nobody else needs the room: the load is finished, and joined by the next request."""
        desk = Desk(Others())
        desk.ask(1, "a")
        self.assertEqual(desk.leave(1), [])
        self.assertEqual(desk.ask(2, "a"), [])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(2, "a")])

    def test_abandoned_load_gives_way_to_a_newcomer(self) -> None:
        """The swap is told to end once; when it has, the newcomer goes on."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.leave(1)
        desk.starting("a")
        self.assertEqual(desk.ask(2, "b"), [GiveUp(1), Moved(2, 1)])
        self.assertEqual(desk.ask(3, "c"), [Moved(3, 2)])
        desk.stopping("a")
        self.assertEqual(desk.ended(1, "aborted"), [Swap(2, "b", ("a",)), Moved(3, 1)])

    def test_load_gives_way_when_its_last_waiter_leaves(self) -> None:
        """The same, when the other request came first."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.ask(2, "a")
        desk.ask(3, "b")
        self.assertEqual(desk.leave(1), [])
        self.assertEqual(desk.leave(2), [GiveUp(1)])

    def test_abandoned_swap_gives_its_victim_back(self) -> None:
        """A request for the model that an abandoned swap stops ends the swap, too."""
        desk = Desk(Fixed(a="b"))
        desk.up("b")
        desk.ask(1, "a")
        desk.leave(1)
        self.assertEqual(desk.ask(2, "b"), [GiveUp(1), Moved(2, 1)])
        desk.stopping("b")
        self.assertEqual(desk.ended(1, "aborted"), [Swap(2, "b", ())])

    def test_abandoned_swap_is_not_in_the_way_of_all(self) -> None:
        """A request that shares a victim with it waits for the victim only."""
        desk = Desk(Fixed(a="x", b="x"), "a b x")
        desk.up("x")
        desk.ask(1, "a")
        desk.leave(1)
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.stopped("x"), [Swap(2, "b", ())])

    def test_load_with_waiters_does_not_give_way(self) -> None:
        """Room is only taken from who does not need it."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.ask(2, "a")
        desk.leave(1)
        self.assertEqual(desk.ask(3, "b"), [Moved(3, 1)])

    def test_request_for_a_load_that_was_given_up(self) -> None:
        """It neither shares the fate of the old swap nor goes before the one that waited first."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.leave(1)
        desk.ask(2, "b")
        self.assertEqual(desk.ask(3, "a"), [Moved(3, 2)])
        self.assertEqual(desk.ended(1, "aborted"), [Swap(2, "b", ()), Moved(3, 1)])
        desk.ready("b")
        desk.ended(2)
        self.assertEqual(desk.served(2), [Swap(3, "a", ("b",))])

    def test_given_up_load_that_nobody_needed_after_all(self) -> None:
        """The one who wanted the room leaves: a new request for the first model starts it again afterwards."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.leave(1)
        desk.ask(2, "b")
        desk.ask(3, "a")
        self.assertEqual(desk.leave(2), [Moved(3, 1)])
        self.assertEqual(desk.ended(1, "aborted"), [Swap(2, "a", ())])

    def test_given_up_load_that_was_faster(self) -> None:
        """It became ready all the same: the one who waited first evicts it, the other waits for its turn."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.leave(1)
        desk.ask(2, "b")
        desk.ask(3, "a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Swap(2, "b", ("a",)), Moved(3, 1)])

    def test_given_up_load_that_was_faster_and_is_wanted(self) -> None:
        """It became ready all the same, and nobody else wants the room any more: it is used."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.leave(1)
        desk.ask(2, "b")
        desk.ask(3, "a")
        desk.leave(2)
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(3, "a")])


class UnloadTests(SynchronousTestCase):
    """Unloading by hand."""

    def test_waiters_of_a_load(self) -> None:
        """T18: they are refused, the swap is given up before the model is stopped."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.ask(2, "a")
        refused = [Refuse(1, Refusal.UNLOADED), Refuse(2, Refusal.UNLOADED)]
        self.assertEqual(desk.unload("a"), [*refused, GiveUp(1, "unload"), Stop(("a",), "unload")])

    def test_queued_requests(self) -> None:
        """T19: those for the model are refused, others are left alone."""
        desk = Desk(Fixed(b="a"))
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.unload("b"), [Refuse(2, Refusal.UNLOADED), Stop(("b",), "unload")])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Idle("a", 0.0)])

    def test_others_keep_their_order(self) -> None:
        """D38: who stays in the queue hears the new place."""
        desk = Desk(Others(), "a b c d")
        desk.up("a")
        for ticket, model in enumerate("abcdb"):
            desk.ask(ticket, model)
        effects = desk.unload("b")
        refused = [Refuse(1, Refusal.UNLOADED), Refuse(4, Refusal.UNLOADED)]
        self.assertEqual(effects, [*refused, Stop(("b",), "unload"), Moved(2, 1), Moved(3, 2)])
        self.assertEqual(desk.queue(), "c d")

    def test_requests_in_flight_are_not_touched(self) -> None:
        """D34, changed: the model is stopped at once, and who waits for it goes on when it is gone.

        The reference blocks until it is gone. The requests of the stopped model end by themselves.
        """
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.unload("a"), [Stop(("a",), "unload")])
        self.assertEqual(desk.stopping("a"), [])
        self.assertEqual(desk.stopped("a"), [Swap(1, "b", ())])
        self.assertEqual(desk.scheduler.inflight("a"), 1)
        self.assertEqual(desk.served(1), [])
        self.assertEqual(desk.scheduler.inflight("a"), 0)

    def test_late_end_of_an_unloaded_swap(self) -> None:
        """D35, changed: it does not fail the requests of the next swap."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.unload("a")
        self.assertEqual(desk.ask(2, "a"), [Swap(2, "a", ())])
        self.assertEqual(desk.ended(1, "aborted"), [])
        desk.ready("a")
        self.assertEqual(desk.ended(2), [Grant(2, "a")])

    def test_unload_of_everything(self) -> None:
        """T40: stopped models are named as well, which is harmless; nobody is left waiting."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        desk.ask(3, "c")
        refused = [Refuse(2, Refusal.UNLOADED), Refuse(3, Refusal.UNLOADED)]
        self.assertEqual(desk.unload("a", "b", "c"), [*refused, Stop(("a", "b", "c"), "unload")])
        self.assertEqual(desk.scheduler.waiting(), 0)

    def test_unload_of_nothing(self) -> None:
        """No names, no effect."""
        self.assertEqual(Desk(Fixed()).unload(), [])

    def test_unload_of_a_loading_model_lets_the_waiting_one_in(self) -> None:
        """The one who waited for the load to end goes on, and stops what is left of it."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.starting("a")
        desk.ask(2, "b")
        effects = [Refuse(1, Refusal.UNLOADED), GiveUp(1, "unload"), Stop(("a",), "unload"), Swap(2, "b", ("a",))]
        self.assertEqual(desk.unload("a"), effects)

    def test_unload_before_the_start(self) -> None:
        """While a swap still makes room its model has no process: when it has ended nothing of it is in the way."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "b")
        desk.stopping("a")
        self.assertEqual(desk.unload("b"), [Refuse(1, Refusal.UNLOADED), GiveUp(1, "unload"), Stop(("b",), "unload")])
        self.assertEqual(desk.ended(1, "aborted"), [])
        self.assertEqual(desk.ask(2, "a"), [Swap(2, "a", ())])

    def test_unload_of_a_start_that_has_not_been_reported(self) -> None:
        """Until a forgotten swap has ended its model may run without our knowing: others stop it, to be sure."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.unload("a")
        self.assertEqual(desk.ask(2, "b"), [Swap(2, "b", ("a",))])
        self.assertEqual(desk.ended(1, "aborted"), [])
        desk.stopped("a")
        desk.ready("b")
        self.assertEqual(desk.ended(2), [Grant(2, "b")])
        self.assertEqual(desk.ask(3, "b"), [Grant(3, "b")])

    def test_late_end_lets_a_waiting_one_in(self) -> None:
        """Requests of a life before may hold up others only as long as there may be a process."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.stopped("a")
        desk.ask(2, "a")
        desk.unload("a")
        self.assertEqual(desk.ask(3, "b"), [Moved(3, 1)])
        self.assertEqual(desk.ended(1, "aborted"), [Swap(2, "b", ())])

    def test_unloaded_model_is_not_granted_any_more(self) -> None:
        """From the unload on, not only from the report that the stop has begun."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.unload("a")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])

    def test_report_that_was_on_its_way(self) -> None:
        """A model that was unloaded while it started is not granted, though its last report comes late."""
        desk = Desk(Fixed())
        desk.starting("a")
        desk.unload("a")
        self.assertEqual(desk.ready("a"), [])
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])

    def test_unload_of_a_victim(self) -> None:
        """A model that is being stopped for another is stopped again, which is harmless; the swap goes on."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "b")
        self.assertEqual(desk.unload("a"), [Stop(("a",), "unload")])
        desk.stopped("a")
        desk.ready("b")
        self.assertEqual(desk.ended(1), [Grant(1, "b")])


class IdleTests(SynchronousTestCase):
    """When the idle time of a model runs, and what happens when it is over."""

    def test_from_the_end_of_the_last_request(self) -> None:
        """T108: the last of several, not the first."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "a")
        desk.now = 3.0
        self.assertEqual(desk.served(2), [])
        desk.now = 4.0
        self.assertEqual(desk.served(1), [Idle("a", 4.0)])

    def test_from_ready_when_nobody_waits(self) -> None:
        """A load that its client left, and a model that became ready outside a swap."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.leave(1)
        desk.now = 2.0
        self.assertEqual(desk.ready("a"), [Idle("a", 2.0)])
        desk.now = 3.0
        self.assertEqual(desk.ready("b"), [Idle("b", 3.0)])

    def test_not_while_somebody_waits(self) -> None:
        """A model that becomes ready for a request is not idle."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        self.assertEqual(desk.ready("a"), [])

    def test_not_when_the_model_goes_at_once(self) -> None:
        """A model that is evicted in the same step has no idle time."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.served(1), [Swap(1, "b", ("a",))])

    def test_not_when_the_model_is_dead(self) -> None:
        """The last request of a model that has died ends: there is nothing to unload."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.ask(1, "a")
        desk.stopped("a")
        self.assertEqual(desk.served(1), [])

    def test_expired_model_is_stopped(self) -> None:
        """Nothing in flight, nobody waiting, ready."""
        desk = Desk(Fixed())
        desk.up("a")
        self.assertEqual(desk.expired("a"), [Stop(("a",), "ttl")])
        self.assertEqual(desk.expired("a"), [])

    def test_expired_model_is_not_granted_any_more(self) -> None:
        """From the decision on, not only from the report that the stop has begun."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.expired("a")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])

    def test_busy_model_does_not_expire(self) -> None:
        """A request came in the instant before."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.ask(1, "a")
        self.assertEqual(desk.expired("a"), [])

    def test_model_that_is_not_ready_does_not_expire(self) -> None:
        """Neither one that starts nor one that has stopped."""
        desk = Desk(Fixed())
        desk.starting("a")
        self.assertEqual([desk.expired("a"), desk.expired("b")], [[], []])

    def test_model_that_is_waited_for_does_not_expire(self) -> None:
        """A request for it stands in the queue. When it leaves, the idle time counts from where it began."""
        desk = Desk(Fixed(a="b"))
        desk.now = 1.0
        desk.up("a", "b")
        desk.ask(1, "b")
        desk.now = 8.0
        desk.ask(2, "a")
        self.assertEqual(desk.expired("a"), [])
        desk.now = 9.0
        self.assertEqual(desk.leave(2), [Idle("a", 1.0)])
        self.assertEqual(desk.expired("a"), [Stop(("a",), "ttl")])

    def test_target_of_a_swap_does_not_expire(self) -> None:
        """A swap that only stops others is under way; afterwards the idle time is told again."""
        desk = Desk(Fixed(a="b"))
        desk.now = 1.0
        desk.up("a", "b")
        desk.ask(1, "a")
        self.assertEqual(desk.leave(1), [Idle("a", 1.0)])
        self.assertEqual(desk.expired("a"), [])
        desk.now = 9.0
        self.assertEqual(desk.ended(1), [Idle("a", 1.0)])

    def test_model_that_comes_back_is_as_good_as_new(self) -> None:
        """Once it has stopped, the order to stop is history."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.expired("a")
        desk.stopping("a")
        desk.stopped("a")
        desk.ask(1, "a")
        desk.leave(1)
        desk.starting("a")
        desk.now = 5.0
        self.assertEqual(desk.ready("a"), [Idle("a", 5.0)])
        self.assertEqual(desk.ended(1), [Idle("a", 5.0)])
        self.assertEqual(desk.ask(2, "a"), [Grant(2, "a")])

    def test_stop_that_was_overtaken_by_a_swap(self) -> None:
        """The owner never began the stop, because the model was wanted again: it is as good as before."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.expired("a")
        desk.ask(1, "a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.ask(2, "a"), [Grant(2, "a")])


class DeathTests(SynchronousTestCase):
    """Models that end by themselves."""

    def test_death_of_a_busy_model_lets_the_waiting_one_in(self) -> None:
        """What is gone blocks nobody, though its requests have not ended yet."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.stopped("a"), [Swap(1, "b", ())])
        self.assertEqual(desk.served(1), [])

    def test_dying_model_is_in_the_way_until_it_is_gone(self) -> None:
        """A process that is ending still holds its memory."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.stopping("a"), [])
        self.assertEqual(desk.stopped("a"), [Swap(1, "b", ())])

    def test_next_request_starts_it_again(self) -> None:
        """There is no restart by itself, and no failed state."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.stopped("a")
        self.assertEqual(desk.ask(2, "a"), [Swap(1, "a", ())])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(2, "a")])
        self.assertEqual(desk.scheduler.inflight("a"), 2)

    def test_same_state_again(self) -> None:
        """A report that is no news has no effect."""
        desk = Desk(Fixed())
        desk.up("a")
        self.assertEqual(desk.ready("a"), [])


class ShutDownTests(SynchronousTestCase):
    """The end of lswap."""

    def test_all_who_wait_are_refused(self) -> None:
        """T17, H58: those who wait for swaps first, then the queue. The swaps are given up: they start nothing."""
        desk = Desk(Fixed(c="a b"))
        for ticket, model in enumerate("aabbc"):
            desk.ask(ticket, model)
        refused = [Refuse(ticket, Refusal.SHUTTING_DOWN) for ticket in range(5)]
        self.assertEqual(
            desk.shut(), [*refused[:2], GiveUp(1, "shutdown"), *refused[2:4], GiveUp(2, "shutdown"), refused[4]]
        )
        self.assertEqual(desk.scheduler.waiting(), 0)

    def test_later_requests_are_refused(self) -> None:
        """T56: also for a ready model."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.shut()
        self.assertEqual(desk.ask(1, "a"), [Refuse(1, Refusal.SHUTTING_DOWN)])
        self.assertEqual(desk.scheduler.plan("a"), Plan("refuse", refusal=Refusal.SHUTTING_DOWN))

    def test_requests_in_flight_end_by_themselves(self) -> None:
        """They are counted down; nothing begins any more, no idle time either."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.shut(), [Refuse(2, Refusal.SHUTTING_DOWN)])
        self.assertEqual(desk.served(1), [])
        self.assertEqual(desk.scheduler.inflight("a"), 0)

    def test_twice(self) -> None:
        """The second has no effect."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.shut()
        self.assertEqual(desk.shut(), [])
        self.assertEqual(desk.ended(1, "aborted"), [])
