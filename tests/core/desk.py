"""A scheduler and the hand that feeds it, for tests: one short call for each event, the effects as the answer.

Behind the effects stands what changed in the queue (`Moved`), so that a test sees who waits now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lswap.core.effects import Effect
from lswap.core.events import Arrived, Event, Expired, Left, Served, ShutDown, State, StateChanged, SwapEnded, Unload
from lswap.core.policy import Policy
from lswap.core.scheduler import ModelRules, Scheduler

__all__ = ["Desk", "Fixed", "Moved", "Others"]


class Moved(Effect, frozen=True):
    """A request stands at this place of the queue now, and did not before; 1 is the first. No effect of a scheduler."""

    ticket: int
    position: int


class Fixed:
    """A policy from a table: target to the models that cannot stay beside it, in one string."""

    def __init__(self, **victims: str) -> None:
        self._victims = {target: names.split() for target, names in victims.items()}

    def evict(self, target: str, running: Sequence[str]) -> tuple[str, ...]:
        """Those of the table that run."""
        return tuple([name for name in running if name in self._victims.get(target, ()) and name != target])


class Others:
    """A policy that lets one model run at a time."""

    def evict(self, target: str, running: Sequence[str]) -> tuple[str, ...]:
        """All but the target."""
        return tuple([name for name in running if name != target])


class Desk:
    """Feeds a scheduler by hand. `now` is the time of the next event."""

    def __init__(
        self,
        policy: Policy,
        models: str = "a b c",
        limits: Mapping[str, int] | None = None,
        priorities: Mapping[str, int] | None = None,
        queue_limit: int = 1000,
    ) -> None:
        limits, priorities = limits or {}, priorities or {}
        rules = {name: ModelRules(limits.get(name, 0), priorities.get(name, 0)) for name in models.split()}
        self.scheduler = Scheduler(rules, policy, queue_limit)
        self.now = 0.0
        self._places: dict[int, int] = {}

    def ask(self, ticket: int, model: str) -> list[Effect]:
        """A request comes."""
        return self._tell(Arrived(self.now, ticket, model))

    def leave(self, ticket: int) -> list[Effect]:
        """Its client goes away."""
        return self._tell(Left(self.now, ticket))

    def served(self, ticket: int) -> list[Effect]:
        """A granted request is over."""
        return self._tell(Served(self.now, ticket))

    def starting(self, model: str) -> list[Effect]:
        """A process reports."""
        return self._tell(StateChanged(self.now, model, State.STARTING))

    def ready(self, model: str) -> list[Effect]:
        """A process reports."""
        return self._tell(StateChanged(self.now, model, State.READY))

    def stopping(self, model: str) -> list[Effect]:
        """A process reports."""
        return self._tell(StateChanged(self.now, model, State.STOPPING))

    def stopped(self, model: str) -> list[Effect]:
        """A process reports."""
        return self._tell(StateChanged(self.now, model, State.STOPPED))

    def ended(self, swap: int, error: str | None = None) -> list[Effect]:
        """The task of a swap is over."""
        return self._tell(SwapEnded(self.now, swap, error))

    def unload(self, *models: str) -> list[Effect]:
        """Somebody unloads by hand."""
        return self._tell(Unload(self.now, models))

    def expired(self, model: str) -> list[Effect]:
        """An idle time runs out."""
        return self._tell(Expired(self.now, model))

    def shut(self) -> list[Effect]:
        """The end is near."""
        return self._tell(ShutDown(self.now))

    def up(self, *models: str) -> None:
        """These models run already."""
        for model in models:
            self.ready(model)

    def queue(self) -> str:
        """The models of the queue, in its order."""
        return " ".join(row.model for row in self.scheduler.queued())

    def moves(self) -> list[Effect]:
        """The places that changed since the last call."""
        before, self._places = self._places, {row.ticket: row.position for row in self.scheduler.queued()}
        return [Moved(ticket, place) for ticket, place in self._places.items() if before.get(ticket) != place]

    def _tell(self, event: Event) -> list[Effect]:
        return [*self.scheduler.handle(event), *self.moves()]
