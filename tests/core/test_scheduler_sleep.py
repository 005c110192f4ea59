"""Models that are put to sleep instead of stopped, in the scheduler: one that is asleep takes no room."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.effects import Effect, Grant, Idle, Moved, Stop, Swap
from lswap.core.events import State, StateChanged
from lswap.core.scheduler import ModelRules
from tests.core.desk import Desk, Others


class SleepTests(SynchronousTestCase):
    """`a` sleeps, `b` has its room."""

    def setUp(self) -> None:
        """One model at a time."""
        self.desk = Desk(Others())
        self.desk.up("a")
        self.assertEqual(self.desk.ask(1, "b"), [Swap(1, "b", ("a",))])
        self.tell("a", State.SLEEPING)
        self.tell("a", State.ASLEEP)
        self.desk.starting("b")
        self.desk.ready("b")
        self.assertEqual(self.desk.ended(1), [Grant(1, "b")])
        self.desk.served(1)

    def tell(self, model: str, state: State) -> list[Effect]:
        """The owner of a process reports."""
        return self.desk.scheduler.handle(StateChanged(self.desk.now, model, state))

    def reload(self, models: str = "a b c", outdated: str = "") -> list[Effect]:
        """Another configuration."""
        rules = {name: ModelRules() for name in models.split()}
        return self.desk.scheduler.replace(rules, Others(), 1000, outdated.split())

    def test_takes_no_room(self) -> None:
        """Requests for the other are granted at once, and nothing has to go for a third but the one that runs."""
        self.assertEqual(self.desk.scheduler.running(), ("b",))
        self.assertEqual(self.desk.ask(2, "b"), [Grant(2, "b")])
        self.desk.served(2)
        self.assertEqual(self.desk.ask(3, "c"), [Swap(2, "c", ("b",))])

    def test_wakes_in_a_swap(self) -> None:
        """It comes back like one that is started: the other has to go first, and it counts while it wakes."""
        self.assertEqual(self.desk.ask(2, "a"), [Swap(2, "a", ("b",))])
        self.desk.stopping("b")
        self.desk.stopped("b")
        self.tell("a", State.WAKING)
        self.assertEqual(self.desk.ask(3, "b"), [Moved(3, 1)])
        self.tell("a", State.READY)
        self.assertEqual(self.desk.ended(2), [Grant(2, "a")])

    def test_takes_no_room_while_it_is_stopped(self) -> None:
        """Nobody waits for the end of what had no room."""
        self.assertEqual(self.desk.unload("a"), [Stop(("a",), "unload")])
        self.desk.stopping("a")
        self.assertEqual(self.desk.ask(2, "b"), [Grant(2, "b")])
        self.desk.stopped("a")

    def test_takes_room_once_it_was_awake(self) -> None:
        """A wake that failed has taken its room already."""
        self.desk.ask(2, "a")
        self.desk.stopping("b")
        self.desk.stopped("b")
        self.tell("a", State.WAKING)
        self.desk.stopping("a")
        self.assertIn("a", self.desk.scheduler.running())

    def test_while_it_falls_asleep(self) -> None:
        """It is in the way until it sleeps, and the room is not given twice."""
        desk = Desk(Others())
        desk.up("a")
        desk.ask(1, "b")
        desk.scheduler.handle(StateChanged(0.0, "a", State.SLEEPING))
        self.assertIn("a", desk.scheduler.running())
        self.assertEqual(desk.ask(2, "a"), [Moved(2, 1)])

    def test_does_not_expire(self) -> None:
        """Its idle time is over already."""
        self.assertEqual(self.desk.expired("a"), [])

    def test_changed(self) -> None:
        """It is stopped at once, as it is idle; and only once."""
        self.assertEqual(self.reload(outdated="a"), [Stop(("a",), "reload")])
        self.assertEqual(self.reload(outdated="a"), [])
        self.desk.stopping("a")
        self.desk.stopped("a")

    def test_removed(self) -> None:
        """The same, and it is forgotten when it is gone."""
        self.assertEqual(self.reload("b c"), [Stop(("a",), "reload")])
        self.desk.stopping("a")
        self.desk.stopped("a")
        self.assertEqual(self.desk.scheduler.state("a"), State.STOPPED)

    def test_changed_while_it_falls_asleep(self) -> None:
        """It is stopped once it sleeps; requests that come meanwhile wait for the new process."""
        desk = Desk(Others())
        desk.up("a")
        desk.expired("a")
        self.desk = desk
        self.tell("a", State.SLEEPING)
        self.assertEqual(self.reload(outdated="a"), [])
        self.assertEqual(self.tell("a", State.ASLEEP), [Stop(("a",), "reload")])

    def test_comes_up_for_nobody(self) -> None:
        """Its idle time runs anew."""
        self.desk.ask(2, "a")
        self.desk.stopping("b")
        self.desk.stopped("b")
        self.tell("a", State.WAKING)
        self.desk.leave(2)
        self.tell("a", State.READY)
        self.assertEqual(self.desk.ended(2), [Idle("a", 0.0)])
