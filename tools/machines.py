"""Makes the drawings in `docs/machines` from the machines in the code.

Run it as `python -m tools.machines` after a change of a machine; a test fails until then. The drawings are Mermaid,
which most places that show Markdown show as pictures.
"""

from __future__ import annotations

import inspect
import pathlib
import re
from collections.abc import Iterable, Sequence
from enum import Enum

from lswap.core import child
from lswap.core.child import Transition

__all__ = ["CHILD", "child_page", "main"]

CHILD = pathlib.Path(__file__).resolve().parent.parent / "docs" / "machines" / "child.md"


def child_page() -> str:
    """The text of `docs/machines/child.md`."""
    rows = list(child.transitions())
    intro = inspect.getdoc(child) or ""
    return "\n".join(
        [
            f"# {intro.partition(chr(10))[0].partition(':')[0]}",
            "",
            "Made from `lswap/core/child.py` by `python -m tools.machines`. Arrows are named `inputs / steps`: what is",
            "told to the machine, and what it wants done. An input that is drawn nowhere at a state is ignored there.",
            "",
            "```mermaid",
            *_drawing(rows),
            "```",
            "",
            "All of it, in words; a dot is an input that is ignored:",
            "",
            *_table(rows),
            "",
            "What others see (`/running`): " + "; ".join(_shown(rows)) + ".",
            "",
            "| input | means |",
            "|---|---|",
            *[f"| {name} | {_doc(child.ChildInputs, name)} |" for name in _inputs(rows)],
            "",
            "| step | means |",
            "|---|---|",
            *[f"| {name} | {text} |" for name, text in _comments(child.Step).items()],
            "",
        ]
    )


def _drawing(rows: Iterable[Transition]) -> list[str]:
    """The moves from state to state, and what is done without a move; those that only differ in the input as one."""
    arrows: dict[tuple[str, str, str], list[str]] = {}
    begin = None
    for row in rows:
        begin = begin or row.state
        if row.state != row.then or row.steps:
            arrows.setdefault((row.state, row.then, _steps(row)), []).append(row.told)
    lines = ["stateDiagram-v2", f"    [*] --> {begin}"]
    for (state, then, steps), told in arrows.items():
        lines.append(f"    {state} --> {then}: {', '.join(told)}" + (f" / {steps}" if steps else ""))
    return lines


def _table(rows: Sequence[Transition]) -> list[str]:
    inputs = _inputs(rows)
    cells = {(row.state, row.told): row for row in rows}
    lines = [f"| state | {' | '.join(inputs)} |", "|---" * (len(inputs) + 1) + "|"]
    for state in dict.fromkeys(row.state for row in rows):
        told = [_cell(cells.get((state, name))) for name in inputs]
        lines.append(f"| **{state}** | {' | '.join(told)} |")
    return lines


def _cell(row: Transition | None) -> str:
    if row is None:
        return "·"
    steps = _steps(row)
    return f"{row.then}: {steps}" if steps else row.then


def _steps(row: Transition) -> str:
    return ", ".join(step.value for step in row.steps)


def _inputs(rows: Iterable[Transition]) -> list[str]:
    told = {row.told for row in rows}
    return [name for name in vars(child.ChildInputs) if name in told]


def _shown(rows: Iterable[Transition]) -> list[str]:
    shown = dict.fromkeys((row.then, row.shown.value) for row in rows)
    return [f"{state} as `{name}`" for state, name in shown if state != name] + ["each other state as itself"]


def _doc(cls: type, name: str) -> str:
    return inspect.getdoc(getattr(cls, name)) or ""


def _comments(cls: type[Enum]) -> dict[str, str]:
    """The members of an enumeration by value, with their `#:` comments."""
    found = re.findall(r'((?:^ *#: .*\n)+) *\w+ = "(.*)"$', inspect.getsource(cls), re.MULTILINE)
    return {value: " ".join(re.findall(r"#: (.*)", text)) for text, value in found}


def main() -> None:
    """Write them."""
    CHILD.parent.mkdir(exist_ok=True)
    CHILD.write_text(child_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
