"""`docs/machines`: made from the machines in the code, current, and true."""

from __future__ import annotations

import pathlib

from twisted.trial.unittest import SynchronousTestCase

import lswap
from lswap.core.child import ChildInputs, Life, Transition, new_child, transitions
from tools import machines


def paths() -> dict[str, list[str]]:
    """The inputs that lead from the begin to each state, as `transitions` has it."""
    rows = list(transitions())
    found: dict[str, list[str]] = {rows[0].state: []}
    for _ in rows:  # as often as could be needed
        for row in rows:
            if row.state in found:
                found.setdefault(row.then, [*found[row.state], row.told])
    return found


class DrawingTests(SynchronousTestCase):
    """What is drawn is what is."""

    def test_current(self) -> None:
        """After a change of the machine, run `python -m tools.machines`."""
        self.assertEqual(machines.CHILD.read_text(encoding="utf-8"), machines.child_page())

    def test_every_machine_is_drawn(self) -> None:
        """No other module has one."""
        root = pathlib.Path(lswap.__file__).parent
        found = [path for path in root.rglob("*.py") if "TypeMachineBuilder(" in path.read_text(encoding="utf-8")]
        drawn = {path.stem for path in machines.CHILD.parent.glob("*.md")}
        self.assertEqual({path.stem for path in found}, drawn)

    def test_true(self) -> None:
        """The real machine does in each state with each input what is drawn; what is not drawn does nothing."""
        named = {(row.state, row.told): row for row in transitions()}
        inputs = [name for name in vars(ChildInputs) if not name.startswith("_")]
        for state, path in paths().items():
            for told in inputs:
                life = Life()
                machine = new_child(life)
                for step in path:
                    getattr(machine, step)()
                life.take()
                drawn = named.get((state, told)) or Transition(state, told, state, life.state, ())
                getattr(machine, told)()
                self.assertEqual((life.state, tuple(life.take())), (drawn.shown, drawn.steps), (state, told))
