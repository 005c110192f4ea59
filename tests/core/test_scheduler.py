"""Who gets a model when: grants, swaps, the queue, limits, and what is no legal event.

The reference's cases have their letters and numbers (T, D, H). Read `tests.core.desk` for the few words that these
tests use; `Grant`, `Refuse` and the others are what comes back. `test_scheduler_ends` goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Grant, Refusal, Refuse, Swap
from lswap.core.events import Event, State
from lswap.core.scheduler import EventError
from tests.core.desk import Desk, Fixed, Moved, Others


class GrantTests(SynchronousTestCase):
    """A request and its model, nobody else."""

    def test_ready_model_is_granted_at_once(self) -> None:
        """T04: a request for a ready model is let through, and nothing is started."""
        desk = Desk(Fixed())
        desk.up("a")
        self.assertEqual(desk.ask(1, "a"), [Grant(1, "a")])
        self.assertEqual(desk.scheduler.inflight("a"), 1)

    def test_unknown_model_is_refused(self) -> None:
        """T06: a model that the configuration does not have is refused, and starts nothing."""
        desk = Desk(Fixed())
        self.assertEqual(desk.ask(1, "ghost"), [Refuse(1, Refusal.UNKNOWN)])

    def test_stopped_model_is_loaded_first(self) -> None:
        """T07: the request waits for a swap, and is granted when that has ended."""
        desk = Desk(Fixed())
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])
        self.assertEqual(desk.starting("a"), [])
        self.assertEqual(desk.ready("a"), [])
        self.assertEqual(desk.ended(1), [Grant(1, "a")])

    def test_requests_share_a_load(self) -> None:
        """T08: requests that come while the model loads join, and are granted in the order of arrival."""
        desk = Desk(Fixed())
        self.assertEqual([desk.ask(n, "a") for n in (3, 1, 2)], [[Swap(1, "a", ())], [], []])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(3, "a"), Grant(1, "a"), Grant(2, "a")])

    def test_failed_load_fails_its_waiters(self) -> None:
        """T09: all who wait for a load get its error."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.ask(2, "a")
        refused = [Refuse(1, Refusal.FAILED, "boom"), Refuse(2, Refusal.FAILED, "boom")]
        self.assertEqual(desk.ended(1, "boom"), refused)
        self.assertEqual(desk.scheduler.reserved("a"), 0)

    def test_failure_is_not_sticky(self) -> None:
        """The next request after a failed load starts the model again."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.ended(1, "boom")
        self.assertEqual(desk.ask(2, "a"), [Swap(2, "a", ())])

    def test_client_that_left_before_its_grant_is_a_served_one(self) -> None:
        """T16, D32: the router answers a grant that nobody takes with Served; the model is free at once."""
        desk = Desk(Fixed(b="a"))
        desk.ask(1, "a")
        desk.ask(2, "b")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Swap(2, "b", ("a",))])

    def test_model_that_is_stopping_is_started_anew(self) -> None:
        """T52: a request during a stop asks for the model at once; its owner ends the stop before it starts."""
        desk = Desk(Fixed())
        desk.up("a")
        desk.stopping("a")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])
        self.assertEqual(desk.ask(2, "a"), [])
        desk.stopped("a")
        desk.starting("a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Grant(2, "a")])

    def test_running_names_what_has_a_process_or_will(self) -> None:
        """T39: starting, ready and stopping models run, and the target of a swap; stopped ones do not."""
        desk = Desk(Fixed(), "a b c d e")
        desk.starting("e")
        desk.up("c", "d")
        desk.stopping("d")
        desk.ask(1, "a")
        self.assertEqual(desk.scheduler.running(), ("a", "c", "d", "e"))
        self.assertEqual(
            [desk.scheduler.state(name) for name in ("e", "b", "ghost")], [State.STARTING, State.STOPPED, State.STOPPED]
        )


class SwapTests(SynchronousTestCase):
    """Several models that cannot all run."""

    def test_second_model_waits_for_the_first(self) -> None:
        """T10: it waits for the load of the first and for its requests, then replaces it."""
        desk = Desk(Fixed(b="a"))
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.ready("a"), [])
        self.assertEqual(desk.ended(1), [Grant(1, "a")])
        self.assertEqual(desk.served(1), [Swap(2, "b", ("a",))])
        self.assertEqual(desk.queue(), "")

    def test_models_that_evict_nothing_load_together(self) -> None:
        """T11: two swaps that do not touch each other begin at once."""
        desk = Desk(Fixed())
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ())])
        self.assertEqual(desk.ask(2, "b"), [Swap(2, "b", ())])

    def test_shared_victim(self) -> None:
        """T12: two swaps do not stop the same model. The second begins when that is gone.

        The reference waits until the first swap is over, though the two models may run together.
        """
        desk = Desk(Fixed(a="x", b="x"), "a b x")
        desk.up("x")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ("x",))])
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.stopping("x"), [])
        self.assertEqual(desk.stopped("x"), [Swap(2, "b", ())])

    def test_victims_asked_for_meanwhile_come_back_together(self) -> None:
        """T13: requests for models that a swap stops wait for its end, then all start that can."""
        desk = Desk(Fixed(a="b c"))
        desk.up("b", "c")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ("b", "c"))])
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.ask(3, "c"), [Moved(3, 2)])
        desk.stopped("b")
        desk.stopped("c")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Swap(2, "b", ()), Swap(3, "c", ())])

    def test_interleaved_requests_cause_one_swap_a_model(self) -> None:
        """T14: requests a b c a b c run as a a b b c c."""
        desk = Desk(Others())
        order = "abcabc"
        begun = [effect for n, model in enumerate(order) for effect in desk.ask(n, model) if isinstance(effect, Swap)]
        granted: list[str] = []
        for number in (1, 2, 3):
            model = begun[-1].model
            for victim in begun[-1].evict:
                desk.stopped(victim)
            desk.ready(model)
            grants = [effect for effect in desk.ended(number) if isinstance(effect, Grant)]
            granted += [grant.model for grant in grants]
            for grant in grants:
                begun += [effect for effect in desk.served(grant.ticket) if isinstance(effect, Swap)]
        self.assertEqual(begun, [Swap(1, "a", ()), Swap(2, "b", ("a",)), Swap(3, "c", ("b",))])
        self.assertEqual("".join(granted), "aabbcc")

    def test_busy_victim_is_waited_for(self) -> None:
        """T15, H57: a swap begins when the last request of its victim is over, not before."""
        desk = Desk(Fixed(b="a"))
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "a")
        self.assertEqual(desk.ask(3, "b"), [Moved(3, 1)])
        self.assertEqual(desk.served(1), [])
        self.assertEqual(desk.served(2), [Swap(1, "b", ("a",))])

    def test_failed_load_lets_the_next_in(self) -> None:
        """D30: the error of one swap and the begin of the next are one step."""
        desk = Desk(Fixed(b="a"))
        desk.ask(1, "a")
        desk.ask(2, "b")
        desk.starting("a")
        desk.stopping("a")
        self.assertEqual(desk.ended(1, "boom"), [Refuse(1, Refusal.FAILED, "boom"), Swap(2, "b", ("a",))])

    def test_requests_for_the_loaded_model_pass_a_waiting_one(self) -> None:
        """D31: there is no starvation guard in this order of waiting."""
        desk = Desk(Fixed(b="a"))
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.ask(3, "a"), [Grant(3, "a")])
        self.assertEqual(desk.queue(), "b")

    def test_model_that_evicts_nothing_passes_a_waiting_one(self) -> None:
        """D33: a later request may go on while an earlier one has to wait."""
        desk = Desk(Fixed(b="a"))
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.ask(3, "c"), [Swap(1, "c", ())])

    def test_victim_asked_for_again_waits_its_turn(self) -> None:
        """D36: a model that is to be stopped is not granted any more, whatever its state still says."""
        desk = Desk(Others())
        desk.up("a")
        self.assertEqual(desk.ask(1, "b"), [Swap(1, "b", ("a",))])
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])
        desk.stopped("a")
        desk.ready("b")
        self.assertEqual(desk.ended(1), [Grant(1, "b")])
        self.assertEqual(desk.queue(), "a")
        self.assertEqual(desk.served(1), [Swap(2, "a", ("b",))])

    def test_waiters_are_granted_before_the_queue_is_looked_at(self) -> None:
        """Who waits for the fresh model is served before it is evicted for somebody in the queue."""
        desk = Desk(Others())
        desk.ask(1, "a")
        desk.ask(2, "b")
        desk.ask(3, "a")
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Grant(3, "a")])
        self.assertEqual(desk.served(1), [])
        self.assertEqual(desk.served(3), [Swap(2, "b", ("a",))])

    def test_ready_model_that_evicts_others_gets_a_swap(self) -> None:
        """A ready model whose policy still wants others gone: the swap only stops those."""
        desk = Desk(Fixed(a="b"))
        desk.up("a", "b")
        self.assertEqual(desk.ask(1, "a"), [Swap(1, "a", ("b",))])
        self.assertEqual(desk.ask(2, "a"), [])
        desk.stopped("b")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Grant(2, "a")])

    def test_ready_model_waits_for_busy_ones_that_it_evicts(self) -> None:
        """The same, with work in flight on the one that has to go."""
        desk = Desk(Fixed(a="b"))
        desk.up("a", "b")
        desk.ask(1, "b")
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])
        self.assertEqual(desk.served(1), [Swap(1, "a", ("b",))])

    def test_end_of_an_unknown_swap(self) -> None:
        """D37: a swap that nobody began ends without effect."""
        desk = Desk(Fixed(b="a"))
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.ended(7), [])
        self.assertEqual(desk.ended(7, "boom"), [])
        self.assertEqual(desk.queue(), "b")

    def test_swap_ends_once(self) -> None:
        """A second end of the same swap has no effect, though another swap loads the model by then."""
        desk = Desk(Fixed())
        desk.ask(1, "a")
        desk.ended(1, "boom")
        desk.ask(2, "a")
        self.assertEqual(desk.ended(1, "boom"), [])
        desk.ready("a")
        self.assertEqual(desk.ended(2), [Grant(2, "a")])

    def test_swap_may_let_in_an_earlier_request(self) -> None:
        """Some policies allow more when more runs: whoever can go on does, whether the swap is for a newcomer."""
        desk = Desk(Late())
        desk.up("a")
        desk.ask(1, "a")
        self.assertEqual(desk.ask(2, "b"), [Moved(2, 1)])
        self.assertEqual(desk.ask(3, "b"), [Moved(3, 2)])
        self.assertEqual(desk.ask(4, "c"), [Swap(1, "c", ()), Swap(2, "b", ())])
        desk.ready("b")
        self.assertEqual(desk.ended(2), [Grant(2, "b"), Grant(3, "b")])

    def test_swap_for_a_queued_request_may_let_in_an_earlier_one(self) -> None:
        """Or for a later one of the queue; those of one model keep their order."""
        desk = Desk(Late(), "a b c d")
        desk.up("a", "d")
        desk.ask(1, "a")
        desk.ask(2, "d")
        desk.ask(3, "b")
        desk.ask(4, "c")
        desk.ask(5, "b")
        self.assertEqual(desk.queue(), "b c b")
        self.assertEqual(desk.served(2), [Swap(1, "c", ("d",)), Swap(2, "b", ())])
        desk.ready("b")
        self.assertEqual(desk.ended(2), [Grant(3, "b"), Grant(5, "b")])


class Late:
    """A policy that lets `b` in beside `a` once `c` runs, too; `c` evicts `d`."""

    def evict(self, target: str, running: Sequence[str]) -> tuple[str, ...]:
        """What is in the way."""
        enemy = {"b": "" if "c" in running else "a", "c": "d"}.get(target)
        return tuple([name for name in running if name == enemy])


class QueueTests(SynchronousTestCase):
    """Order and places."""

    def test_priority_orders_the_queue(self) -> None:
        """T20: higher priority first, order of arrival within equal priority."""
        desk = Desk(Fixed(z="A B C D"), "z A B C D", priorities={"A": 10, "B": 5, "C": 5, "D": 1})
        desk.up("A", "B", "C", "D")
        desk.ask(1, "z")
        for ticket, model in enumerate("BDCA", 2):
            desk.ask(ticket, model)
        self.assertEqual(desk.queue(), "A B C D")

    def test_negative_priority_stands_behind_the_default(self) -> None:
        """A model without a priority has 0."""
        desk = Desk(Others(), "z low d", priorities={"low": -3})
        desk.ask(1, "z")
        desk.ask(2, "low")
        desk.ask(3, "d")
        self.assertEqual(desk.queue(), "d low")

    def test_places_are_told_when_they_change(self) -> None:
        """Each waiting request hears its place, and again only when that has changed."""
        desk = Desk(Others(), "z low d top", priorities={"low": -3, "top": 9})
        desk.ask(1, "z")
        self.assertEqual(desk.ask(2, "low"), [Moved(2, 1)])
        self.assertEqual(desk.ask(3, "d"), [Moved(3, 1), Moved(2, 2)])
        self.assertEqual(desk.ask(4, "low"), [Moved(4, 3)])
        self.assertEqual(desk.ask(5, "top"), [Moved(5, 1), Moved(3, 2), Moved(2, 3), Moved(4, 4)])
        self.assertEqual(desk.leave(2), [Moved(4, 3)])
        self.assertEqual(desk.leave(4), [])

    def test_places_move_up_when_the_first_goes_on(self) -> None:
        """The begin of a swap takes its requests out of the queue."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "a")
        for ticket, model in enumerate("bcb", 2):
            desk.ask(ticket, model)
        self.assertEqual(desk.served(1), [Swap(1, "b", ("a",)), Moved(3, 1)])

    def test_priority_does_not_touch_the_fast_path(self) -> None:
        """T05: it orders the queue and nothing else; a running request of a lower one goes on."""
        desk = Desk(Others(), priorities={"a": 7})
        desk.up("b")
        self.assertEqual(desk.ask(1, "b"), [Grant(1, "b")])
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])
        self.assertEqual(desk.ask(3, "b"), [Grant(3, "b")])

    def test_queue_tells_age_and_reason(self) -> None:
        """Each row has the time of arrival and the models that it waits for, busy ones and loading ones."""
        desk = Desk(Fixed(b="a c", c="d"), "a b c d")
        desk.up("a", "d")
        desk.ask(1, "a")
        desk.ask(2, "c")
        desk.now = 5.0
        desk.ask(3, "b")
        (row,) = desk.scheduler.queued()
        self.assertEqual((row.ticket, row.model, row.position, row.since), (3, "b", 1, 5.0))
        self.assertEqual(row.waits_for, ("a", "c"))
        self.assertEqual(desk.scheduler.waiting(), 2)


class LimitTests(SynchronousTestCase):
    """`concurrencyLimit` and the bound of the queue."""

    def test_limit_of_a_ready_model(self) -> None:
        """T24: over the limit is refused; a served request frees its slot."""
        desk = Desk(Fixed(), limits={"a": 1})
        desk.up("a")
        self.assertEqual(desk.ask(1, "a"), [Grant(1, "a")])
        self.assertEqual(desk.ask(2, "a"), [Refuse(2, Refusal.LIMIT)])
        desk.served(1)
        self.assertEqual(desk.ask(3, "a"), [Grant(3, "a")])

    def test_no_limit_means_no_limit(self) -> None:
        """T25, changed: without a limit of its own a model takes all that come; the reference stops at 10."""
        desk = Desk(Fixed())
        desk.up("a")
        self.assertEqual([desk.ask(n, "a") for n in range(40)], [[Grant(n, "a")] for n in range(40)])

    def test_as_many_as_the_limit(self) -> None:
        """T26: two of three."""
        desk = Desk(Fixed(), limits={"a": 2})
        desk.up("a")
        self.assertEqual([desk.ask(1, "a"), desk.ask(2, "a")], [[Grant(1, "a")], [Grant(2, "a")]])
        self.assertEqual(desk.ask(3, "a"), [Refuse(3, Refusal.LIMIT)])

    def test_limit_counts_the_waiters_of_a_load(self) -> None:
        """T27: who waits for a load holds a slot."""
        desk = Desk(Fixed(), limits={"a": 2})
        desk.ask(1, "a")
        desk.ask(2, "a")
        self.assertEqual(desk.ask(3, "a"), [Refuse(3, Refusal.LIMIT)])
        desk.ready("a")
        self.assertEqual(desk.ended(1), [Grant(1, "a"), Grant(2, "a")])

    def test_limit_counts_the_queue(self) -> None:
        """T28: who stands in the queue holds a slot."""
        desk = Desk(Fixed(a="b"), limits={"a": 2})
        desk.ask(1, "b")
        desk.ask(2, "a")
        desk.ask(3, "a")
        self.assertEqual(desk.ask(4, "a"), [Refuse(4, Refusal.LIMIT)])
        self.assertEqual(desk.queue(), "a a")
        desk.ready("b")
        desk.ended(1)
        self.assertEqual(desk.served(1), [Swap(2, "a", ("b",))])
        desk.ready("a")
        self.assertEqual(desk.ended(2), [Grant(2, "a"), Grant(3, "a")])

    def test_leaving_the_queue_frees_a_slot(self) -> None:
        """T29: the next one is let in."""
        desk = Desk(Fixed(a="b"), limits={"a": 1})
        desk.ask(1, "b")
        desk.ask(2, "a")
        self.assertEqual(desk.ask(3, "a"), [Refuse(3, Refusal.LIMIT)])
        desk.leave(2)
        self.assertEqual(desk.ask(4, "a"), [Moved(4, 1)])

    def test_failure_and_unload_free_their_slots(self) -> None:
        """Whichever way a request ends, it holds no slot afterwards."""
        desk = Desk(Fixed(), limits={"a": 1})
        desk.ask(1, "a")
        desk.ended(1, "boom")
        self.assertEqual(desk.ask(2, "a"), [Swap(2, "a", ())])
        desk.unload("a")
        self.assertEqual(desk.ask(3, "a"), [Swap(3, "a", ())])

    def test_full_queue_refuses_who_would_wait(self) -> None:
        """No more than the limit wait, in the queue and for swaps together, over all models."""
        desk = Desk(Others(), queue_limit=3)
        desk.ask(1, "a")
        desk.ask(2, "a")
        desk.ask(3, "b")
        self.assertEqual(desk.ask(4, "b"), [Refuse(4, Refusal.QUEUE_FULL)])
        self.assertEqual(desk.ask(5, "a"), [Refuse(5, Refusal.QUEUE_FULL)])
        desk.leave(2)
        self.assertEqual(desk.ask(6, "c"), [Moved(6, 2)])

    def test_full_queue_lets_through_who_need_not_wait(self) -> None:
        """A request for a ready model with nobody in its way is not concerned."""
        desk = Desk(Fixed(b="a"), queue_limit=1)
        desk.up("a")
        desk.ask(1, "a")
        desk.ask(2, "b")
        self.assertEqual(desk.ask(3, "a"), [Grant(3, "a")])
        self.assertEqual(desk.ask(4, "c"), [Refuse(4, Refusal.QUEUE_FULL)])


class IllegalTests(SynchronousTestCase):
    """Events that break the contract raise and change nothing."""

    def setUp(self) -> None:
        """One request in flight, one waiting for a load, one in the queue."""
        self.desk = Desk(Fixed(c="a"))
        self.desk.up("a")
        self.desk.ask(1, "a")
        self.desk.ask(2, "b")
        self.desk.ask(3, "c")

    def view(self) -> object:
        """All that can be seen from outside."""
        scheduler = self.desk.scheduler
        counts = [(scheduler.inflight(name), scheduler.reserved(name)) for name in "abc"]
        return counts, scheduler.waiting(), scheduler.queued(), scheduler.running(), scheduler.plan("c")

    def test_ticket_that_is_in_use(self) -> None:
        """Whether its request is in flight, waits for a load or stands in the queue."""
        before = self.view()
        for ticket in (1, 2, 3):
            self.assertRaises(EventError, self.desk.ask, ticket, "a")
        self.assertEqual(self.view(), before)
        self.assertEqual(self.desk.served(1), [Swap(2, "c", ("a",))])

    def test_served_before_granted(self) -> None:
        """A request that waits cannot be over otherwise than by leaving."""
        before = self.view()
        for ticket in (2, 3):
            self.assertRaises(EventError, self.desk.served, ticket)
        self.assertEqual(self.view(), before)

    def test_event_of_another_kind(self) -> None:
        """The vocabulary is closed."""
        before = self.view()
        self.assertRaises(EventError, self.desk.scheduler.handle, Event(0.0))
        self.assertEqual(self.view(), before)
