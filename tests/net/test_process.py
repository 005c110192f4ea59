"""Tests for `lswap.net.process` with made-up processes; real ones are in `tests.integration`."""

from __future__ import annotations

import os
import signal

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogLevel, capturedLogs

from lswap.net.process import DRAIN, PIPE_WAIT, POLL, UNKILLABLE, Exit, Group
from tests.net.processes import KILL, PROGRAM, TERM, ProcessCase


class EndTests(ProcessCase):
    """What follows when a leader ends by itself."""

    def test_words(self) -> None:
        """An exit has words for a user."""
        self.assertEqual(Exit(code=17, signal=None).words, "exit code 17")
        self.assertEqual(Exit(code=0, signal=None).words, "exit code 0")
        self.assertEqual(Exit(code=None, signal=9).words, "killed by signal 9")

    def test_all_in_one_turn(self) -> None:
        """Without children: the last output, the exit and the end come in this order in the same turn."""
        self.spawn()
        self.process.write_output(b"early ")
        self.process.write_output(b"words", descriptor=2)
        self.reactor.turn()
        self.process.write_output(b"last words")
        self.process.exit(17)
        self.assertEqual(self.witness.events, [b"early words", b"last words", Exit(code=17, signal=None), "gone"])
        self.assertEqual(self.process.signals, [])
        self.assert_clean()

    def test_killed_from_outside(self) -> None:
        """A signal is told as one."""
        self.spawn()
        self.process.exit(None, signal.SIGSEGV)
        self.assertEqual(self.witness.exits, [Exit(code=None, signal=signal.SIGSEGV)])

    def test_end_of_output_is_no_exit(self) -> None:
        """A process may close its output and live on."""
        self.spawn()
        self.process.close_output()
        self.reactor.turn()
        self.wait(3)
        self.assertEqual((self.witness.events, self.process.signals), ([], []))
        self.process.exit(0)
        self.assertEqual(self.witness.events, [Exit(code=0, signal=None), "gone"])

    def test_polite_child(self) -> None:
        """The exit is told at once; children that are left get SIGTERM, and the end follows theirs."""
        self.spawn()
        self.process.children = {5001: {TERM}}
        self.process.exit(1, keep_open=True)
        self.assertEqual(self.witness.events, [Exit(code=1, signal=None)])
        self.assertEqual(self.process.signals, [TERM])
        self.wait(DRAIN / 2)
        self.assertFalse(self.witness.gone)
        self.process.write_output(b"bye from the child")
        self.process.close_output()
        self.process.children.clear()
        self.wait(2 * POLL)
        self.assertEqual(self.witness.events, [Exit(code=1, signal=None), b"bye from the child", "gone"])
        self.assertEqual(self.process.signals, [TERM])
        self.assert_clean()

    def test_stubborn_child(self) -> None:
        """A child that ignores SIGTERM is killed after the drain."""
        group = self.spawn()
        self.process.children = {5001: {TERM}}
        self.process.exit(0)
        self.wait(DRAIN - 2 * POLL)
        self.assertEqual((self.process.signals, self.witness.gone), ([TERM], False))
        self.assertEqual(self.told(), f"+{group.pid}\n")
        self.wait(4 * POLL)
        self.assertEqual((self.process.signals, self.witness.gone), ([TERM, KILL], True))
        self.assertEqual(self.told(), f"-{group.pid}\n")
        self.assert_clean()

    def test_end_of_output_means_look_now(self) -> None:
        """When the last one who could write has gone, the group is looked at without the usual pause."""
        self.spawn()
        self.process.children = {5001: {TERM}}
        self.process.exit(0, keep_open=True)
        self.reactor.turn(POLL / 10)
        self.process.children.clear()
        self.process.close_output()
        self.reactor.turn()
        self.reactor.turn()
        self.assertTrue(self.witness.gone)

    def test_stranger_holds_the_pipe(self) -> None:
        """Somebody outside the group who holds the pipe delays the end by half a second at most."""
        self.spawn()
        self.process.exit(0, keep_open=True)
        self.assertEqual(self.witness.events, [Exit(code=0, signal=None)])
        self.process.write_output(b"from a daemon")
        self.reactor.turn(PIPE_WAIT - 0.01)
        self.assertEqual(self.witness.events, [Exit(code=0, signal=None), b"from a daemon"])
        self.reactor.turn(0.02)
        self.assertTrue(self.witness.gone)
        self.assertRaises(BrokenPipeError, self.process.write_output, b"x")
        self.assert_clean()

    def test_stranger_lets_go(self) -> None:
        """When that stranger lets go, the end is told at once."""
        self.spawn()
        self.process.exit(0, keep_open=True)
        self.process.close_output()
        self.reactor.turn()
        self.assertTrue(self.witness.gone)
        self.assert_clean()

    def test_failing_listener(self) -> None:
        """A listener that raises at the output and at the exit is told the rest all the same."""
        self.witness.at_output = self.witness.at_exit = lambda: 1 // 0
        self.spawn()
        self.process.write_output(b"1")
        self.process.exit(0)
        self.assertEqual(self.witness.events, [b"1", Exit(code=0, signal=None), "gone"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
        self.assert_clean()


class StopTests(ProcessCase):
    """What follows when somebody wants the end."""

    def test_polite(self) -> None:
        """SIGTERM to the group; nothing more when it ends within the grace."""
        group = self.spawn()
        self.process.children = {5001: set()}
        group.stop(10)
        self.assertEqual((self.process.signals, self.process.children), ([TERM], {}))
        self.reactor.turn()
        self.assertEqual(self.witness.events, [Exit(code=None, signal=TERM), "gone"])
        self.wait(12)
        self.assertEqual(self.process.signals, [TERM])
        self.assert_clean()

    def test_slow_but_willing(self) -> None:
        """A process that needs most of its grace gets it."""
        group = self.spawn()
        self.process.ignores = {TERM}
        group.stop(10)
        self.wait(9.9)
        self.process.exit(0)
        self.assertEqual((self.process.signals, self.witness.events), ([TERM], [Exit(code=0, signal=None), "gone"]))
        self.assert_clean()

    def test_stubborn(self) -> None:
        """SIGKILL to the group when the grace is over."""
        group = self.spawn()
        self.process.ignores = {TERM}
        self.process.children = {5001: {TERM}}
        group.stop(3)
        self.wait(2.9)
        self.assertEqual(self.process.signals, [TERM])
        self.wait(0.2)
        self.assertEqual(self.process.signals, [TERM, KILL])
        self.assertEqual(self.witness.events, [Exit(code=None, signal=KILL), "gone"])
        self.assert_clean()

    def test_at_once(self) -> None:
        """A grace of 0 kills at once, without a SIGTERM, and without a stop command."""
        for grace in (0.0, -1.0):
            self.rebuild()
            group = self.spawn()
            group.stop(grace, [PROGRAM])
            self.assertEqual((self.process.signals, len(self.reactor.processes)), ([KILL], 1))
            self.reactor.turn()
            self.assertTrue(self.witness.gone)

    def test_kill(self) -> None:
        """`kill` sends SIGKILL once, and is safe at any time."""
        group = self.spawn()
        group.kill()
        group.kill()
        group.stop(5)
        self.assertEqual(self.process.signals, [KILL])
        self.reactor.turn()
        group.kill()
        group.stop(0)
        self.assertEqual((self.process.signals, self.witness.gone), ([KILL], True))
        self.assert_clean()

    def test_second_stop(self) -> None:
        """A second stop sends nothing; it can shorten the grace, never lengthen it."""
        group = self.spawn()
        self.process.ignores = {TERM}
        group.stop(5)
        self.wait(1)
        group.stop(60)
        group.stop(2, [PROGRAM])
        group.stop(3)
        self.assertEqual(len(self.reactor.processes), 1)
        self.wait(1.9)
        self.assertEqual(self.process.signals, [TERM])
        self.wait(0.2)
        self.assertEqual(self.process.signals, [TERM, KILL])

    def test_second_stop_at_once(self) -> None:
        """A second stop without grace kills now."""
        group = self.spawn()
        self.process.ignores = {TERM}
        group.stop(5)
        group.stop(0)
        self.assertEqual(self.process.signals, [TERM, KILL])

    def test_before_the_group_exists(self) -> None:
        """In the first instant, before it leads its group, the process itself is signalled."""
        for stop, number in [(lambda group: group.stop(5), TERM), (lambda group: group.kill(), KILL)]:
            self.rebuild()
            group = self.spawn()
            self.process.leads = False
            stop(group)
            self.assertEqual(self.process.signals, [number])
            self.reactor.turn()
            self.assertTrue(self.witness.gone)

    def test_leader_first(self) -> None:
        """When the leader ends within the grace, its children have the drain, and no second SIGTERM."""
        group = self.spawn()
        self.process.children = {5001: {TERM}}
        group.stop(60)
        self.reactor.turn()
        self.assertEqual(len(self.witness.exits), 1)
        self.wait(DRAIN - 2 * POLL)
        self.assertEqual(self.process.signals, [TERM])
        self.wait(4 * POLL)
        self.assertEqual((self.process.signals, self.witness.gone), ([TERM, KILL], True))
        self.assert_clean()

    def test_leader_late(self) -> None:
        """Children have no more than what is left of the grace."""
        group = self.spawn()
        self.process.ignores = {TERM}
        self.process.children = {5001: {TERM}}
        group.stop(5)
        self.wait(4.5)
        self.process.exit(0)
        self.wait(0.4)
        self.assertEqual(self.process.signals, [TERM])
        self.wait(0.2)
        self.assertEqual((self.process.signals, self.witness.gone), ([TERM, KILL], True))

    def test_stop_after_the_exit(self) -> None:
        """While the rest of a group drains, a stop can shorten that; it sends nothing itself."""
        group = self.spawn()
        self.process.children = {5001: {TERM}}
        self.process.exit(0)
        group.stop(30, [PROGRAM])
        group.stop(0.5)
        self.assertEqual((self.process.signals, len(self.reactor.processes)), ([TERM], 1))
        self.wait(0.6)
        self.assertEqual((self.process.signals, self.witness.gone), ([TERM, KILL], True))

    def test_stop_inside_the_exit(self) -> None:
        """A listener may stop or kill inside `process_exited`."""
        for act, expected in [(lambda group: group.kill(), [KILL]), (lambda group: group.stop(0.1), [TERM, KILL])]:
            self.rebuild()
            group = self.spawn()
            self.process.children = {5001: {TERM}}
            self.witness.at_exit = lambda act=act, group=group: act(group)  # type: ignore[misc]
            self.process.exit(0)
            self.wait(0.2)
            self.assertEqual((self.process.signals, self.witness.gone), (expected, True))
            self.assert_clean()

    def test_unkillable(self) -> None:
        """What even SIGKILL does not end is given up with an error that names it, and the end is told."""
        group = self.spawn()
        self.process.ignores = {TERM, KILL}
        self.process.children = {5001: {KILL}}
        group.stop(1)
        self.wait(1 + UNKILLABLE - 0.1)
        self.assertEqual(self.witness.events, [])
        with capturedLogs() as logs:
            self.wait(0.2 + PIPE_WAIT)
        self.assertEqual([event["log_level"] for event in logs], [LogLevel.error])
        self.assertEqual(logs[0]["pids"], [group.pid])
        self.assertEqual(self.witness.events, [Exit(code=None, signal=KILL), "gone"])
        self.assert_clean()
        self.process.exit(0)
        self.assertEqual(self.witness.events, [Exit(code=None, signal=KILL), "gone"])

    def test_kill_is_the_last_signal(self) -> None:
        """After SIGKILL nothing is sent any more, also when the leader ends before its children."""
        group = self.spawn()
        self.process.children = {5001: {TERM, KILL}}
        group.kill()
        self.reactor.turn()
        self.assertEqual(len(self.witness.exits), 1)
        self.process.children.clear()
        self.wait(2 * POLL)
        self.assertEqual((self.process.signals, self.witness.gone), ([KILL], True))
        self.assert_clean()

    def test_unkillable_child(self) -> None:
        """The same for a child whose leader is gone."""
        self.spawn()
        self.process.children = {5001: {TERM, KILL}}
        self.process.exit(0)
        with capturedLogs() as logs:
            self.wait(DRAIN + UNKILLABLE + 0.1)
        self.assertEqual([(event["log_level"], event["pids"]) for event in logs], [(LogLevel.error, [5001])])
        self.assertEqual(self.witness.events, [Exit(code=0, signal=None), "gone"])
        self.assert_clean()


#: What can happen to a process, in any order.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stop"), st.sampled_from([0.0, 0.3, 1.0, 5.0])),
        st.tuples(st.just("command"), st.sampled_from([0.3, 1.0, 5.0])),
        st.tuples(st.just("kill")),
        st.tuples(st.just("exit"), st.booleans()),
        st.tuples(st.just("child ends")),
        st.tuples(st.just("command ends"), st.sampled_from([0, 1])),
        st.tuples(st.just("output")),
        st.tuples(st.just("close")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.4, 2.0])),
    ),
    max_size=12,
)


class AnyOrderTests(ProcessCase):
    """Whatever happens, in whatever order, the end is told once and nothing is left."""

    @given(
        steps=STEPS,
        leader=st.sets(st.sampled_from([TERM, KILL])),
        child=st.none() | st.sets(st.sampled_from([TERM, KILL])),
    )
    def test_any_order(self, steps: list[tuple[object, ...]], leader: set[int], child: set[int] | None) -> None:
        """One exit, then one end as the last word; no descriptor, timer, reader or group is left."""
        self.tearDown()
        before = os.listdir("/proc/self/fd")
        self.build()
        with capturedLogs():
            group = self.spawn()
            self.process.ignores = set(leader)
            self.process.children = {} if child is None else {5001: set(child)}
            for step in steps:
                self.take(group, step)
            group.stop(1)
            self.wait(1 + 2 * UNKILLABLE)
        self.assertEqual([event for event in self.witness.events if not isinstance(event, bytes)][1:], ["gone"])
        self.assertEqual((self.witness.events[-1], len(self.witness.exits)), ("gone", 1))
        self.assert_clean()
        lines = self.told().split()
        self.assertEqual(
            sorted(line[1:] for line in lines if line[0] == "+"), sorted(x[1:] for x in lines if x[0] == "-")
        )
        self.assertLessEqual(self.process.signals.count(TERM), 1)
        self.assertLessEqual(self.process.signals.count(KILL), 1)
        self.tearDown()
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def take(self, group: Group, step: tuple[object, ...]) -> None:
        """One step."""
        match step:
            case ("stop", float(grace)):
                group.stop(grace)
            case ("command", float(grace)):
                group.stop(grace, [PROGRAM])
            case ("kill",):
                group.kill()
            case ("exit", bool(keep_open)):
                self.process.exit(1, keep_open=keep_open)
            case ("child ends",):
                self.process.children.clear()
            case ("command ends", int(code)) if len(self.reactor.processes) > 1:
                self.reactor.processes[1].exit(code)
            case ("output",) if self.process.descriptors:
                try:
                    self.process.write_output(b"x")
                except BrokenPipeError:
                    self.assertTrue(self.witness.exits)
            case ("close",):
                self.process.close_output()
            case ("wait", float(seconds)):
                self.reactor.turn(seconds)
