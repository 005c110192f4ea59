"""What is known of models, swaps and requests, and the one decision that is made from it.

`Board.place` says what happens to a request for a model, and changes nothing: the scheduler acts on it and a plan only
tells it, so the two cannot differ. The other methods note facts. Nothing here makes an effect; read
`lswap.core.scheduler` next, which turns events into calls of this module and its answers into effects.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

import attrs
import msgspec

from lswap.core.effects import Refusal
from lswap.core.events import State
from lswap.core.policy import Policy

__all__ = ["ActiveSwap", "Board", "Decision", "ModelRules", "ModelView", "Request", "Step"]

#: A model in one of these has no process.
_GONE = frozenset({State.STOPPED, State.SHUTDOWN})
#: A model in one of these is, or is on its way to be, of use.
_UP = frozenset({State.STARTING, State.READY, State.WAKING})
#: A model in one of these keeps its process, and so the configuration that this was started by.
_KEPT = _UP | {State.SLEEPING, State.ASLEEP}


class ModelRules(msgspec.Struct, frozen=True, gc=False):
    """What the configuration says of one model, as far as it matters here."""

    #: Requests at the same time, waiting ones included; 0 is no limit.
    concurrency_limit: int = 0
    #: Place in the queue: higher goes first.
    priority: int = 0
    #: It never goes for another one.
    keep: bool = False


@attrs.define(eq=False)
class Request:
    """One client request that waits."""

    ticket: int
    model: ModelView
    priority: int
    #: When it arrived, on the clock of the events.
    since: float
    #: It stands in the queue; otherwise it waits for the end of its model's swap.
    queued: bool = False
    #: Its rank among those that were ever in the queue: lower goes first.
    rank: tuple[int, int] = (0, 0)


@attrs.define(eq=False)
class ActiveSwap:
    """A swap that was asked for and has not ended."""

    id: int
    model: ModelView
    evict: tuple[str, ...]
    #: Who is granted the model when it is ready, by ticket, in the order of arrival.
    waiters: dict[int, Request] = attrs.Factory(dict)
    #: It was told to end early: nobody may join it any more.
    given_up: bool = False
    #: The outdated process of its model has to go first: what it loads afterwards is what the rules describe.
    renews: bool = False

    def collides(self, target: str, evict: tuple[str, ...]) -> bool:
        """Whether loading `target` instead of `evict` has to wait until this swap is over."""
        return self.wants_room_of(target) or self.model.name in evict or any(model in self.evict for model in evict)

    def wants_room_of(self, target: str) -> bool:
        """Whether this swap stops `target`."""
        return target in self.evict


@attrs.define(eq=False)
class ModelView:
    """What is known of one model."""

    name: str
    #: None when the configuration does not have it: it runs out, but takes no new request.
    rules: ModelRules | None
    #: As last reported by the owner of its process.
    state: State = State.STOPPED
    #: It was told to stop, and the report that it does has not come yet.
    leaving: bool = False
    #: It fell asleep, and does not take room until it wakes up; not even while it is stopped.
    vacant: bool = False
    #: Its process was started by an older configuration: it finishes what it has, and takes nothing new.
    outdated: bool = False
    #: It serves requests. Kept in step with `state`, `leaving` and `outdated`, like `up`.
    ready: bool = False
    #: It serves requests, or will.
    up: bool = False
    #: Granted requests that are not over.
    inflight: int = 0
    #: Requests that wait or are in flight.
    reserved: int = 0
    #: The swap that loads it.
    swap: ActiveSwap | None = None
    #: Swaps of it that were forgotten and have not reported their end: what they did last may be news to come.
    forgotten: int = 0
    #: Since when nothing is in flight, if it is ready.
    idle_since: float = 0.0
    #: The policy's last answer for this model, and to which version of the running set.
    evict: tuple[str, ...] = ()
    evict_version: int = -1

    @property
    def present(self) -> bool:
        """It takes room, or soon will."""
        return self.swap is not None or self.forgotten > 0 or (self.state not in _GONE and not self.vacant)

    @property
    def spent(self) -> bool:
        """It runs, nobody uses it, and nobody may any more: its process has no reason to be."""
        over = self.outdated or self.rules is None
        rests = self.state in (State.READY, State.ASLEEP)
        return over and rests and not self.leaving and not self.inflight and self.swap is None

    @property
    def stays(self) -> bool:
        """It may not be stopped for others: it is kept, and of use or about to be."""
        kept = self.rules is not None and self.rules.keep
        return kept and (self.up or (self.swap is not None and not self.swap.given_up))

    @property
    def idle(self) -> bool:
        """It is ready, and nobody uses it or waits for it."""
        return self.ready and not self.reserved


class Step(enum.Enum):
    """What happens to a request next."""

    #: It is let through.
    SERVE = "serve"
    #: It waits for the end of a swap that loads its model already.
    JOIN = "join"
    #: A swap for it begins.
    START = "start"
    #: It waits in the queue.
    WAIT = "wait"
    #: It is turned away.
    REFUSE = "refuse"


class Decision(msgspec.Struct, frozen=True):
    """What happens to a request, and why."""

    step: Step
    #: The running models that have to go for it; when it is refused as `KEPT`, those that may not.
    evict: tuple[str, ...] = ()
    #: Those of `evict` that have requests in flight: one reason for WAIT.
    busy: tuple[str, ...] = ()
    #: Swaps that have to end first: the other reason for WAIT.
    behind: tuple[ActiveSwap, ...] = ()
    #: The reason for REFUSE.
    refusal: Refusal | None = None


_SERVE = Decision(Step.SERVE)
_JOIN = Decision(Step.JOIN)
_REFUSE = {refusal: Decision(Step.REFUSE, refusal=refusal) for refusal in Refusal}


class Board:
    """All that is known, and the decision made from it."""

    def __init__(self, models: Mapping[str, ModelRules], policy: Policy, queue_limit: int) -> None:
        self.models: dict[str, ModelView] = {}
        #: Swaps by number, in the order in which they began.
        self.swaps: dict[int, ActiveSwap] = {}
        #: The models of forgotten swaps that have not reported their end.
        self.forgotten: dict[int, ModelView] = {}
        #: Requests that wait, in the queue or for a swap, by ticket.
        self.waiting: dict[int, Request] = {}
        #: Nothing is let in any more.
        self.closing = False
        #: Something happened that may let a queued request go on: the queue has to be looked at.
        self.changed = False
        self._present: set[str] = set()
        self._running: tuple[str, ...] | None = ()
        self._version = 0
        self.adopt(models, policy, queue_limit)

    # -- the decision: reads only ------------------------------------------------------------------------------------

    def admit(self, model: str) -> Decision:
        """What happens to a request for `model` that arrives now."""
        view = self.models.get(model)
        if self.closing:
            return _REFUSE[Refusal.SHUTTING_DOWN]
        if view is None or view.rules is None:
            return _REFUSE[Refusal.UNKNOWN]
        limit = view.rules.concurrency_limit
        if limit and view.reserved >= limit:
            return _REFUSE[Refusal.LIMIT]
        decision = self.place(view)
        if decision.step is Step.REFUSE:
            return decision
        if decision is not _SERVE and len(self.waiting) >= self._queue_limit:
            return _REFUSE[Refusal.QUEUE_FULL]
        return decision

    def place(self, model: ModelView) -> Decision:
        """What happens to a request for `model` that has been admitted: a new one, or one from the queue."""
        own = model.swap
        if own is not None:
            # A swap that was told to end early may end either way: nobody new is to share its fate.
            # One whose process is outdated ends with a server that is not what a new one asks for.
            joinable = not own.given_up and (own.renews or not model.outdated)
            return _JOIN if joinable else Decision(Step.WAIT, behind=(own,))
        evict = self.evict(model)
        behind: tuple[ActiveSwap, ...] = ()
        if self.swaps:
            behind = tuple([swap for swap in self.swaps.values() if swap.collides(model.name, evict)])
        if not evict:
            if not behind:
                return _SERVE if model.ready else Decision(Step.START)
            return Decision(Step.WAIT, behind=behind)
        kept = tuple([victim for victim in evict if victim != model.name and self.models[victim].stays])
        if kept:
            return Decision(Step.REFUSE, kept, refusal=Refusal.KEPT)
        busy = tuple([victim for victim in evict if self.models[victim].inflight])
        return Decision(Step.WAIT if behind or busy else Step.START, evict, busy, behind)

    def evict(self, model: ModelView) -> tuple[str, ...]:
        """The policy's answer for this model as things stand; asked for once for each change of the running set."""
        if model.evict_version != self._version:
            model.evict = self.policy.evict(model.name, self.running_beside(model))
            if model.outdated:
                model.evict = (model.name, *model.evict)
            model.evict_version = self._version
        return model.evict

    def running_beside(self, model: ModelView) -> tuple[str, ...]:
        """What the policy is told: all models that take room or soon will, sorted.

        The model itself counts only while it is up. One that is on its way out has to be let in anew: others may have
        been let in since, because it was leaving.
        """
        running = self.running()
        return running if model.up else tuple([name for name in running if name != model.name])

    def running(self) -> tuple[str, ...]:
        """All models that take room or soon will, sorted."""
        if self._running is None:
            self._running = tuple(sorted(self._present))
        return self._running

    # -- facts -------------------------------------------------------------------------------------------------------

    def adopt(
        self, models: Mapping[str, ModelRules], policy: Policy, queue_limit: int, outdated: Collection[str] = ()
    ) -> None:
        """Take new rules. A model that is gone from them is kept in view until it is gone from the machine.

        `outdated` are the models whose process, if it runs, is not what the rules describe any more.
        """
        self.policy = policy
        self._queue_limit = queue_limit
        for view in list(self.models.values()):
            view.rules = models.get(view.name)
            over = view.name in outdated and view.state in _KEPT
            if over is not view.outdated:
                view.outdated = over
                self._refresh(view)
            if view.rules is None:
                self.forget(view)
        for name, rules in models.items():
            self.models.setdefault(name, ModelView(name, rules))
        self._new_version()

    def forget(self, model: ModelView) -> None:
        """Drop the view of a model that the configuration does not have, once nothing depends on it."""
        if model.rules is None and model.state in _GONE and not model.present and not model.reserved:
            del self.models[model.name]

    def observe(self, name: str, state: State) -> ModelView | None:
        """The owner of a process reports; the model if that is news."""
        view = self.models.get(name)
        if view is None:
            if state in _GONE:
                return None
            view = self.models[name] = ModelView(name, None)
        elif view.state is state:
            return None
        view.vacant = state is State.ASLEEP or (view.vacant and state is State.STOPPING)
        view.state = state
        if state not in _UP:
            view.leaving = False
            if view.swap is not None:
                view.swap.renews = False
        if state not in _KEPT:
            view.outdated = False
        self._refresh(view)
        return view

    def dismiss(self, name: str) -> None:
        """It is told to stop. It is of no use from here on, and takes room until its owner says otherwise."""
        view = self.models.get(name)
        if view is not None and view.state in _KEPT:
            view.leaving = True
            self._refresh(view)

    def keep(self, model: ModelView) -> None:
        """It is ready after a swap: a stop from before that swap was overtaken by it."""
        if model.leaving:
            model.leaving = False
            self._refresh(model)

    def begin(self, swap: ActiveSwap) -> None:
        """A swap begins."""
        self.swaps[swap.id] = swap
        swap.model.swap = swap
        swap.renews = swap.model.outdated
        self._refresh(swap.model)
        for victim in swap.evict:
            self.dismiss(victim)

    def end(self, swap: ActiveSwap) -> None:
        """A swap is over."""
        del self.swaps[swap.id]
        swap.model.swap = None
        self._refresh(swap.model)
        self.changed = True

    def disown(self, swap: ActiveSwap) -> None:
        """Nobody is to hear of a swap any more. Its model takes room until the swap reports its end all the same."""
        self.forgotten[swap.id] = swap.model
        swap.model.forgotten += 1
        self.end(swap)

    def end_forgotten(self, swap: int) -> None:
        """A swap is over that is not known, or not any more."""
        model = self.forgotten.pop(swap, None)
        if model is not None:
            model.forgotten -= 1
            self._refresh(model)
            self.forget(model)

    def _refresh(self, view: ModelView) -> None:
        """Bring everything that follows from a view into step with it."""
        up = view.state in _UP and not view.leaving and not view.outdated
        view.ready = up and view.state is State.READY
        present = view.present
        if up == view.up and present == (view.name in self._present):
            return
        view.up = up
        if present:
            self._present.add(view.name)
        else:
            self._present.discard(view.name)
        self._new_version()

    def _new_version(self) -> None:
        self._running = None
        self._version += 1
        self.changed = True
