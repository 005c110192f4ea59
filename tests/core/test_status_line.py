"""What lswap does, in one line (`lswap.core.status_line`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import State
from lswap.core.status_line import status_line


class StatusLineTests(SynchronousTestCase):
    """The line."""

    def test_states(self) -> None:
        """Models by state, those that can be used first, each state's in the order of their names."""
        states = {"c": State.STARTING, "b": State.READY, "a": State.READY, "d": State.STOPPED, "e": State.ASLEEP}
        self.assertEqual(status_line(states), "ready: a, b; starting: c; asleep: e")

    def test_nothing_runs(self) -> None:
        """Which is said, too."""
        self.assertEqual(status_line({"a": State.STOPPED, "b": State.SHUTDOWN}), "no model runs")
        self.assertEqual(status_line({}), "no model runs")

    def test_many(self) -> None:
        """The line stays short."""
        states = {f"m{number:02}": State.READY for number in range(20)}
        self.assertEqual(status_line(states), "ready: m00, m01, m02, m03, m04, m05, m06, m07 and 12 more")

    def test_refused_configuration(self) -> None:
        """Comes first, beside what runs."""
        told = "the latest configuration was refused, with"
        self.assertEqual(status_line({}, 1), f"{told} 1 problem; no model runs")
        self.assertEqual(status_line({"a": State.READY}, 2), f"{told} 2 problems; ready: a")
