"""The life of one process (`lswap.core.child`): every input in every state, against a table of its own."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.child import ChildInputs, Life, Step, new_child
from lswap.core.events import State

INPUTS = ("start", "stop", "shut", "healthy", "failed", "exited", "gone")

#: How to get into each state, from stopped.
WAYS = {
    "stopped": "",
    "starting": "start",
    "ready": "start healthy",
    "stopping": "start healthy stop",
    "restarting": "start healthy stop start",
    "ending": "start healthy shut",
    "shutdown": "shut",
}

#: What others see in each state.
SHOWN = {
    "stopped": State.STOPPED,
    "starting": State.STARTING,
    "ready": State.READY,
    "stopping": State.STOPPING,
    "restarting": State.STOPPING,
    "ending": State.STOPPING,
    "shutdown": State.SHUTDOWN,
}

#: Each state with its inputs: what follows, as `state: steps`. An input that is not named changes nothing.
TABLE = {
    "stopped": {"start": "starting: spawn", "stop": "stopped: stopped", "shut": "shutdown: stopped"},
    "starting": {
        "healthy": "ready: ready",
        "failed": "stopping: failed abort",
        "exited": "stopping: failed abort",
        "stop": "stopping: failed abort",
        "shut": "ending: failed abort",
    },
    "ready": {"start": "ready: ready", "stop": "stopping: end", "exited": "stopping: end", "shut": "ending: end"},
    "stopping": {"start": "restarting:", "stop": "stopping: end", "gone": "stopped: stopped", "shut": "ending: end"},
    "restarting": {"stop": "stopping: failed end", "gone": "starting: stopped spawn", "shut": "ending: failed end"},
    "ending": {"start": "ending: failed", "stop": "ending: end", "shut": "ending: end", "gone": "shutdown: stopped"},
    "shutdown": {"start": "shutdown: failed", "stop": "shutdown: stopped", "shut": "shutdown: stopped"},
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


class TableTests(SynchronousTestCase):
    """Each cell of the table."""

    def test_inputs_are_all_there_are(self) -> None:
        """The machine has no input that is not tried here."""
        self.assertEqual({name for name in vars(ChildInputs) if not name.startswith("_")}, set(INPUTS))

    def test_ways_lead_where_they_should(self) -> None:
        """Before an input is tried, the machine is in the state that is meant."""
        for state, way in WAYS.items():
            self.assertIs(Subject(way).life.state, SHOWN[state], state)
        # Those that look alike are told apart by what a new start, or the end of the process, leads to.
        self.assertEqual(Subject(WAYS["stopping"]).tell("gone"), [Step.STOPPED])
        self.assertEqual(Subject(WAYS["restarting"]).tell("gone"), [Step.STOPPED, Step.SPAWN])
        self.assertEqual(Subject(WAYS["ending"]).tell("start"), [Step.FAILED])

    def test_each_input_in_each_state(self) -> None:
        """The steps that are due and the state that follows are those of the table, and nothing raises."""
        for state, way in WAYS.items():
            for told in INPUTS:
                then, steps = outcome(state, told)
                subject = Subject(way)
                self.assertEqual(subject.tell(told), steps, (state, told))
                self.assertIs(subject.life.state, SHOWN[then], (state, told))
                for probe in INPUTS:
                    # It is in that state when it takes each next input as one that was led there in the usual way.
                    self.assertEqual(
                        Subject(f"{way} {told}").tell(probe), Subject(WAYS[then]).tell(probe), (state, told, probe)
                    )


class LifeTests(SynchronousTestCase):
    """What holds on every road through the states."""

    @given(st.lists(st.sampled_from(INPUTS), max_size=40))
    def test_nobody_waits_in_vain(self, words: list[str]) -> None:
        """At any time: who waits was answered, or what he waits for is on its way. There are never two processes."""
        subject = Subject()
        until_ready = until_gone = process = False
        for word in words:
            until_ready |= word == "start"
            until_gone |= word in ("stop", "shut")
            process &= word != "gone" or subject.life.state is not State.STOPPING
            steps = subject.tell(word)
            if Step.SPAWN in steps:
                self.assertFalse(process)
                process = True
            until_ready &= not {Step.READY, Step.FAILED} & set(steps)
            until_gone &= Step.STOPPED not in steps
            if until_ready:
                self.assertIn(subject.life.state, (State.STARTING, State.STOPPING))
            if until_gone:
                self.assertIs(subject.life.state, State.STOPPING)
            if process:
                self.assertNotIn(subject.life.state, (State.STOPPED, State.SHUTDOWN))

    @given(st.lists(st.sampled_from(INPUTS), max_size=40))
    def test_a_shutdown_is_the_end(self, words: list[str]) -> None:
        """From anywhere, a shutdown comes to its end, and nothing starts again."""
        subject = Subject(" ".join([*words, "shut", "gone"]))
        self.assertIs(subject.life.state, State.SHUTDOWN)
        self.assertEqual(subject.tell("start"), [Step.FAILED])

    @given(st.lists(st.sampled_from(INPUTS), max_size=40))
    def test_a_stop_leads_to_stopped_and_a_start_to_ready(self, words: list[str]) -> None:
        """No state is a dead end, but the last one."""
        subject = Subject()
        for word in words:
            subject.tell(word)
        if "shut" not in words:
            subject.tell("stop")
            subject.tell("gone")
            self.assertIs(subject.life.state, State.STOPPED)
            self.assertEqual(subject.tell("start"), [Step.SPAWN])
            self.assertEqual(subject.tell("healthy"), [Step.READY])
            self.assertIs(subject.life.state, State.READY)

    def test_steps_are_handed_out_once(self) -> None:
        """What was taken is not due any more."""
        subject = Subject()
        subject.machine.start()
        self.assertEqual(subject.life.take(), [Step.SPAWN])
        self.assertEqual(subject.life.take(), [])

    def test_machines_are_independent(self) -> None:
        """One model's life does not touch another's."""
        one, other = Subject("start"), Subject()
        self.assertIs(one.life.state, State.STARTING)
        self.assertIs(other.life.state, State.STOPPED)
