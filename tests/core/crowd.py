"""A scheduler at which many requests wait, and what one more request may do there: for its cost.

`a` is busy, `w0` to `w3` wait for its room, `x` is ready and in nobody's way, `y` is being loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from lswap.core.events import Arrived, Event, Left, Served, State, StateChanged
from lswap.core.scheduler import ModelRules, Scheduler
from tests.core.desk import Fixed

__all__ = ["CROWDS", "Crowd"]

#: How many wait.
CROWDS = (10, 100, 1000)
_WAITING = ("w0", "w1", "w2", "w3")


class Crowd:
    """Each method is the whole life of one request, after which as many wait as before."""

    def __init__(self, waiting: int) -> None:
        rules = {name: ModelRules() for name in ("a", "x", "y", *_WAITING)}
        rules["w3"] = ModelRules(priority=1)
        self._scheduler = Scheduler(rules, Fixed(**dict.fromkeys(_WAITING, "a")), 10_000)
        self._tickets = 0
        self._models = cycle(_WAITING[:3])
        self._tell(StateChanged(0.0, "a", State.READY))
        self._tell(StateChanged(0.0, "x", State.READY))
        self._arrive("a")
        self._arrive("y")
        self._first = self._tickets + 1
        for _ in range(waiting):
            self._arrive(next(self._models))
        assert len(self._scheduler.queued()) == waiting

    @property
    def lives(self) -> dict[str, Callable[[], None]]:
        """What may happen to a request, in words."""
        return {
            "served at once": self.served_at_once,
            "served at once, others too": self.served_beside,
            "queues last, leaves": self.queues_last,
            "queues in front, leaves": self.queues_in_front,
            "queues last, the first leaves": self.the_first_leaves,
            "waits for a load, leaves": self.joins,
            "planned": self.planned,
        }

    def served_at_once(self) -> None:
        """By a model that is idle otherwise: at its end, those who wait are looked at."""
        self._tell(Served(0.0, self._arrive("x")))

    def served_beside(self) -> None:
        """By a model that has others."""
        self._tell(Served(0.0, self._arrive("a")))

    def queues_last(self) -> None:
        """Behind all."""
        self._tell(Left(0.0, self._arrive("w0")))

    def queues_in_front(self) -> None:
        """Before all, by its priority."""
        self._tell(Left(0.0, self._arrive("w3")))

    def the_first_leaves(self) -> None:
        """The one that has waited longest; all others move up."""
        self._tell(Left(0.0, self._first))
        self._first += 1
        self._arrive(next(self._models))

    def joins(self) -> None:
        """One more for a load."""
        self._tell(Left(0.0, self._arrive("y")))

    def planned(self) -> None:
        """Asked for only."""
        self._scheduler.plan("w1")

    def _arrive(self, model: str) -> int:
        self._tickets += 1
        self._tell(Arrived(0.0, self._tickets, model))
        return self._tickets

    def _tell(self, event: Event) -> None:
        self._scheduler.handle(event)
