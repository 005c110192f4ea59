"""The life of one process (`lswap.core.child`): every input in every state, against a table of its own."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.child import ChildInputs, Life, Step, new_child
from lswap.core.events import State

INPUTS = ("start", "rest", "stop", "shut", "healthy", "done", "failed", "exited", "spoilt", "gone")

#: How to get to `ready` from stopped.
UP = "start done healthy done"

#: How to get into each state, from stopped.
WAYS = {
    "stopped": "",
    "preparing": "start",
    "starting": "start done",
    "warming": "start done healthy",
    "ready": UP,
    "sleeping": f"{UP} rest",
    "recalled": f"{UP} rest start",
    "asleep": f"{UP} rest done",
    "waking": f"{UP} rest done start",
    "parting": f"{UP} stop",
    "parting+": f"{UP} stop start",
    "parting!": f"{UP} shut",
    "stopping": f"{UP} stop done",
    "stopping+": f"{UP} stop done start",
    "stopping!": f"{UP} shut done",
    "clearing": f"{UP} stop done gone",
    "clearing+": f"{UP} stop done gone start",
    "clearing!": f"{UP} shut done gone",
    "shutdown": "shut",
}

#: What others see in each state.
SHOWN = {
    "stopped": State.STOPPED,
    "preparing": State.STARTING,
    "starting": State.STARTING,
    "warming": State.STARTING,
    "ready": State.READY,
    "sleeping": State.SLEEPING,
    "recalled": State.SLEEPING,
    "asleep": State.ASLEEP,
    "waking": State.WAKING,
    "parting": State.STOPPING,
    "parting+": State.STOPPING,
    "parting!": State.STOPPING,
    "stopping": State.STOPPING,
    "stopping+": State.STOPPING,
    "stopping!": State.STOPPING,
    "clearing": State.STOPPED,
    "clearing+": State.STARTING,
    "clearing!": State.STOPPED,
    "shutdown": State.SHUTDOWN,
}

_ABORTS = {
    "failed": "stopping: failed abort",
    "exited": "stopping: failed abort",
    "rest": "stopping: failed abort",
    "stop": "stopping: failed abort",
    "shut": "stopping!: failed abort",
}

#: Each state with its inputs: what follows, as `state: steps`. An input that is not named changes nothing.
TABLE = {
    "stopped": {
        "start": "preparing: prepare",
        "rest": "stopped: stopped",
        "stop": "stopped: stopped",
        "shut": "shutdown: stopped",
    },
    "preparing": {"done": "starting: spawn", **_ABORTS},
    "starting": {"healthy": "warming: warm", **_ABORTS},
    "warming": {"done": "ready: ready", "spoilt": "stopping+: abort", **_ABORTS},
    "ready": {
        "start": "ready: ready",
        "rest": "sleeping: sleep",
        "stop": "parting: part",
        "exited": "stopping: end",
        "shut": "parting!: part",
    },
    "sleeping": {
        "start": "recalled:",
        "done": "asleep: away",
        "failed": "parting: part",
        "stop": "parting: part",
        "exited": "stopping: end",
        "shut": "parting!: part",
    },
    "recalled": {
        "rest": "sleeping: failed",
        "done": "waking: away wake",
        "failed": "parting+: part",
        "stop": "parting: failed part",
        "exited": "stopping+: end",
        "shut": "parting!: failed part",
    },
    "asleep": {
        "start": "waking: wake",
        "rest": "asleep: away",
        "stop": "parting: part",
        "exited": "stopping: end",
        "shut": "parting!: part",
    },
    "waking": {
        "done": "ready: ready",
        "failed": "parting+: part",
        "rest": "parting: failed part",
        "stop": "parting: failed part",
        "exited": "stopping+: end",
        "shut": "parting!: failed part",
    },
    "parting": {"start": "parting+:", "shut": "parting!:", "done": "stopping: end", "failed": "stopping: end"},
    "parting+": {
        "rest": "parting: failed",
        "stop": "parting: failed",
        "shut": "parting!: failed",
        "done": "stopping+: end",
        "failed": "stopping+: end",
    },
    "parting!": {"start": "parting!: failed", "done": "stopping!: end", "failed": "stopping!: end"},
    "stopping": {
        "start": "stopping+:",
        "rest": "stopping: end",
        "stop": "stopping: end",
        "shut": "stopping!: end",
        "gone": "clearing: stopped clear",
    },
    "stopping+": {
        "rest": "stopping: failed end",
        "stop": "stopping: failed end",
        "shut": "stopping!: failed end",
        "gone": "clearing+: stopped clear",
    },
    "stopping!": {
        "start": "stopping!: failed",
        "rest": "stopping!: end",
        "stop": "stopping!: end",
        "shut": "stopping!: end",
        "gone": "clearing!: stopped clear",
    },
    "clearing": {
        "start": "clearing+:",
        "rest": "clearing: stopped",
        "stop": "clearing: stopped",
        "shut": "clearing!: stopped",
        "done": "stopped:",
        "failed": "stopped:",
    },
    "clearing+": {
        "rest": "clearing: failed stopped",
        "stop": "clearing: failed stopped",
        "shut": "clearing!: failed stopped",
        "done": "preparing: prepare",
        "failed": "preparing: prepare",
    },
    "clearing!": {
        "start": "clearing!: failed",
        "rest": "clearing!: stopped",
        "stop": "clearing!: stopped",
        "shut": "clearing!: stopped",
        "done": "shutdown:",
        "failed": "shutdown:",
    },
    "shutdown": {
        "start": "shutdown: failed",
        "rest": "shutdown: stopped",
        "stop": "shutdown: stopped",
        "shut": "shutdown: stopped",
    },
}


def outcome(state: str, told: str) -> tuple[str, list[Step]]:
    """What the table says of an input in a state: the state that follows, and the steps that are due."""
    then, _, steps = TABLE[state].get(told, f"{state}:").partition(":")
    return then, [Step(word) for word in steps.split()]


class Subject:
    """A machine, and what is due."""

    def __init__(self, words: str = "") -> None:
        self.life = Life()
        self.machine = new_child(self.life)
        for word in words.split():
            self.tell(word)

    def tell(self, word: str) -> list[Step]:
        """Give an input; the steps that it makes due."""
        told: Callable[[], None] = getattr(self.machine, word)
        told()
        return self.life.take()


def mark(way: str) -> list[tuple[State, list[Step]]]:
    """What tells a state, reached by this way, from all others: what is shown and due on the roads out of it."""
    found = []
    for road in ("start", "rest", "stop", "shut", "healthy", "done", "failed", "exited", "gone"):
        for second in ("", "start", "done", "gone"):
            subject = Subject(way)
            steps = [step for word in (road, *second.split()) for step in subject.tell(word)]
            found.append((subject.life.state, steps))
    return found


class TableTests(SynchronousTestCase):
    """Each cell of the table."""

    def test_inputs_are_all_there_are(self) -> None:
        """The machine has no input that is not tried here."""
        self.assertEqual({name for name in vars(ChildInputs) if not name.startswith("_")}, set(INPUTS))

    def test_states_are_told_apart(self) -> None:
        """Before an input is tried, the machine is in the state that is meant; no two states are the same."""
        marks = {}
        for state, way in WAYS.items():
            self.assertIs(Subject(way).life.state, SHOWN[state], state)
            marks[state] = mark(way)
        for state, found in marks.items():
            self.assertEqual([other for other in marks if marks[other] == found], [state])

    def test_each_input_in_each_state(self) -> None:
        """The steps that are due and the state that follows are those of the table, and nothing raises."""
        marks = {state: mark(way) for state, way in WAYS.items()}
        for state, way in WAYS.items():
            for told in INPUTS:
                then, steps = outcome(state, told)
                subject = Subject(way)
                self.assertEqual(subject.tell(told), steps, (state, told))
                self.assertIs(subject.life.state, SHOWN[then], (state, told))
                self.assertEqual(mark(f"{way} {told}"), marks[then], (state, told))


#: What has to come to its end before the next step may be due.
WORK = {
    Step.PREPARE: "done failed",
    Step.SPAWN: "healthy failed",
    Step.WARM: "done failed",
    Step.SLEEP: "done failed",
    Step.WAKE: "done failed",
    Step.PART: "done",
    Step.END: "gone",
    Step.ABORT: "gone",
    Step.CLEAR: "done",
}


class Owner:
    """Answers the work that it is given, and checks that a life goes in its order."""

    def __init__(self, case: SynchronousTestCase) -> None:
        self._case = case
        self._subject = Subject()
        #: What goes on, and has to end before anything follows.
        self.work: Step | None = None
        self._begun = self._spawned = self._was_ready = False
        self._until_ready = self._until_away = self._until_gone = False

    def words(self) -> list[str]:
        """What may happen next."""
        words = ["start", "rest", "stop", "shut"]
        if self.work is not None:
            words += WORK[self.work].split() * 2
        if self._spawned and self.work not in (Step.END, Step.ABORT):
            words.append("exited")
        return words

    def tell(self, word: str) -> None:
        """Let it happen."""
        self._until_ready |= word == "start"
        self._until_away |= word == "rest"
        self._until_gone |= word in ("stop", "shut")
        if word == "gone":
            self._spawned = self._was_ready = False
        if self.work is not None and word in WORK[self.work].split():
            self.work = None
        steps = self._subject.tell(word)
        for step in steps:
            self._follow(step)
        self._until_ready &= not {Step.READY, Step.FAILED} & set(steps)
        self._until_away &= not {Step.AWAY, Step.STOPPED} & set(steps)
        self._until_gone &= Step.STOPPED not in steps

    def _follow(self, step: Step) -> None:
        case = self._case
        if step is Step.PREPARE:
            case.assertFalse(self._begun, "a life begins before the last one was over")
            self._begun = True
        elif step is Step.SPAWN:
            case.assertTrue(self._begun)
            case.assertFalse(self._spawned, "two processes")
            self._spawned = True
        elif step is Step.READY:
            self._was_ready = True
        elif step is Step.PART:
            case.assertTrue(self._was_ready, "on_will_stop twice, or of one that never was ready")
            self._was_ready = False
        elif step is Step.CLEAR:
            case.assertTrue(self._begun, "on_stopped twice, or without a start")
            case.assertFalse(self._spawned, "on_stopped while there is a process")
            self._begun = False
        if step in WORK:
            case.assertTrue(self.work is None or step in (Step.PART, Step.END, Step.ABORT), (self.work, step))
            self.work = step

    def check(self) -> None:
        """What holds between inputs."""
        case, state = self._case, self._subject.life.state
        if self._until_ready or self._until_away or self._until_gone:
            case.assertIsNotNone(self.work, "somebody waits, and nothing goes on")
        if self._until_ready:
            case.assertNotIn(state, (State.STOPPED, State.READY, State.ASLEEP, State.SHUTDOWN))
        if self._until_gone:
            case.assertIs(state, State.STOPPING)
        if self._spawned:
            case.assertNotIn(state, (State.STOPPED, State.SHUTDOWN))
        if state in (State.READY, State.ASLEEP, State.SHUTDOWN):
            case.assertIsNone(self.work)


class LifeTests(SynchronousTestCase):
    """What holds on every road through the states that an owner can take."""

    @given(st.data())
    def test_nobody_waits_in_vain(self, data: st.DataObject) -> None:
        """Who waits was answered, or what he waits for is on its way. The order of a life is kept, whatever comes."""
        owner = Owner(self)
        for _ in range(data.draw(st.integers(0, 40))):
            owner.tell(data.draw(st.sampled_from(owner.words())))
            owner.check()

    @given(st.lists(st.sampled_from(INPUTS), max_size=40))
    def test_a_shutdown_is_the_end(self, words: list[str]) -> None:
        """From anywhere, a shutdown comes to its end, and nothing starts again."""
        subject = Subject(" ".join([*words, "shut", "done", "gone", "done"]))
        self.assertIs(subject.life.state, State.SHUTDOWN)
        self.assertEqual(subject.tell("start"), [Step.FAILED])

    @given(st.lists(st.sampled_from(INPUTS), max_size=40))
    def test_a_stop_leads_to_stopped_and_a_start_to_ready(self, words: list[str]) -> None:
        """No state is a dead end, but the last one."""
        if "shut" not in words:
            subject = Subject(" ".join([*words, "stop", "done", "gone", "done"]))
            self.assertIs(subject.life.state, State.STOPPED)
            steps = [step for word in UP.split() for step in subject.tell(word)]
            self.assertEqual(steps, [Step.PREPARE, Step.SPAWN, Step.WARM, Step.READY])
            self.assertIs(subject.life.state, State.READY)

    def test_steps_are_handed_out_once(self) -> None:
        """What was taken is not due any more."""
        subject = Subject()
        subject.machine.start()
        self.assertEqual(subject.life.take(), [Step.PREPARE])
        self.assertEqual(subject.life.take(), [])

    def test_machines_are_independent(self) -> None:
        """One model's life does not touch another's."""
        one, other = Subject("start"), Subject()
        self.assertIs(one.life.state, State.STARTING)
        self.assertIs(other.life.state, State.STOPPED)
