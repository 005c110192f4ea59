"""Three stories of models that come and go, told by lswap itself: the worked examples of `docs/scheduling.md`.

Everything is real but processes, sockets and time (`tests.memory`); decisions are told as they are logged.
`python -m tests.service.stories` puts them into the document, and a test fails until that was done.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any, cast

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from lswap.service.router import Lease, Refused, Waiting
from tests.memory import MemoryLswap

__all__ = ["DOCUMENT", "STORIES", "Story", "with_stories"]

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "scheduling.md"
_WIDTH = 33


class Story:
    """What happens, and what lswap makes of it. Each step takes a second."""

    def __init__(self, config: str) -> None:
        self._config = config.strip()
        self._lswap = MemoryLswap(config)
        self._lswap.router.explain(True)
        for stand_in in self._lswap.models.values():
            stand_in.health = 503
        self._lines: list[str] = []
        #: What was told in this step.
        self._told: list[str] = []
        self._asked: list[Waiting] = []
        self._leases: dict[int, Lease] = {}

    @property
    def text(self) -> str:
        """As it stands in the document."""
        return "\n".join(["```yaml", self._config, "```", "", "```", *self._lines, "```"])

    def ask(self, model: str) -> None:
        """A request comes; they are numbered."""
        self._step(f"request {len(self._asked) + 1} for {model}", lambda: self._acquire(model))

    def leave(self, number: int) -> None:
        """Its client leaves while it waits."""
        self._step(f"the client of {number} leaves", self._asked[number - 1].cancel)

    def over(self, number: int) -> None:
        """A request that was let through is over."""
        self._step(f"{number} is over", self._leases.pop(number).release)

    def loaded(self, model: str) -> None:
        """A model answers its health check."""
        self._lswap.models[model].health = 200
        self._step(f"{model} is healthy", lambda: None)
        self._lswap.models[model].health = 503

    def later(self, seconds: float, said: str) -> None:
        """Time passes."""
        self._step(said, lambda: self._lswap.turn(seconds))

    def unload(self, model: str) -> None:
        """By hand."""
        self._step(f"{model} is unloaded by hand", lambda: self._lswap.router.unload((model,)))

    def _acquire(self, model: str) -> None:
        number = len(self._asked) + 1
        waiting: Waiting = self._lswap.router.acquire(model)
        self._asked.append(waiting)
        waiting.addCallbacks(lambda lease: self._granted(number, lease), lambda failure: self._ended(number, failure))

    def _granted(self, number: int, lease: Lease) -> None:
        self._leases[number] = lease
        self._told.append(f"{number} is let through to {lease.child.model.id}")

    def _ended(self, number: int, failure: Failure) -> None:
        if failure.check(Refused):
            self._told.append(f"{number} is refused: {failure.getErrorMessage()}")

    def _logged(self, event: LogEvent) -> None:
        if event.get("record"):
            first, *more = _in_words(json.loads(event["record"]))
            self._told += [f"{event['ticket']}: {first}", *[f"   {line}" for line in more]]

    def _step(self, said: str, action: Callable[[], object]) -> None:
        """Let it happen, until all is still; tell what came of it."""
        before = self._lswap.running()
        observer = cast(ILogObserver, self._logged)
        globalLogPublisher.addObserver(observer)
        try:
            action()
            now = self._lswap.reactor.seconds()
            self._lswap.turn(0.5)
        finally:
            globalLogPublisher.removeObserver(observer)
        running = self._lswap.running()
        if running != before:
            states = ", ".join([f"{name} ({state})" for name, state in running.items()])
            self._told.append(f"runs: {states or 'nothing'}")
        left = f"{now:3.0f} s  {said}"
        for told in self._told or ["-"]:
            self._lines.append(f"{left:{_WIDTH}}{told}")
            left = ""
        self._told = []
        self._lswap.turn(0.5)


def _in_words(record: dict[str, Any]) -> list[str]:
    """The record of a decision, in lines."""
    return [
        record["would"],
        *[f"wants {victim['model']} to go: {victim['why']}" for victim in record["unload"]],
        *[f"waits for {busy['model']}, {busy['inflight']} in flight" for busy in record["waitsFor"]],
    ]


def groups() -> Story:
    """One model at a time, beside a helper that stays."""
    story = Story(
        """
models:
  chat:  {cmd: "server --port ${PORT}"}
  code:  {cmd: "server --port ${PORT}"}
  embed: {cmd: "server --port ${PORT}"}
groups:
  big:    {swap: true, exclusive: true, members: [chat, code]}
  helper: {swap: false, exclusive: false, persistent: true, members: [embed]}
"""
    )
    story.ask("chat")
    story.ask("chat")
    story.loaded("chat")
    story.ask("code")
    story.ask("chat")
    story.ask("embed")
    story.loaded("embed")
    story.over(1)
    story.over(2)
    story.over(4)
    story.loaded("code")
    return story


def matrix() -> Story:
    """What is dear to load stays."""
    story = Story(
        """
models:
  small:  {cmd: "server --port ${PORT}"}
  medium: {cmd: "server --port ${PORT}"}
  tts:    {cmd: "server --port ${PORT}"}
  image:  {cmd: "server --port ${PORT}"}
matrix:
  evict_costs: {tts: 20, image: 5}
  sets:
    talk: (small | medium) & tts
    draw: small & image
"""
    )
    story.ask("small")
    story.ask("tts")
    story.loaded("tts")
    story.loaded("small")
    story.over(1)
    story.ask("medium")
    story.loaded("medium")
    story.over(3)
    story.ask("image")
    story.over(2)
    story.loaded("image")
    return story


def leaving() -> Story:
    """Loads that nobody waits for, idle times, and people."""
    story = Story(
        """
models:
  one:   {cmd: "server --port ${PORT}", ttl: 60}
  two:   {cmd: "server --port ${PORT}"}
"""
    )
    story.ask("two")
    story.leave(1)
    story.ask("one")
    story.loaded("one")
    story.over(2)
    story.later(59, "a quiet minute later")
    story.ask("two")
    story.unload("two")
    return story


STORIES: dict[str, Callable[[], Story]] = {"groups": groups, "matrix": matrix, "leaving": leaving}


def with_stories(text: str) -> str:
    """The document with these stories in their places."""
    for name, tell in STORIES.items():
        place = re.compile(rf"(<!-- story: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        parts = place.split(text)
        assert len(parts) == 4, f"the document has no place for {name}"
        text = "".join([*parts[:2], tell().text, "\n", *parts[2:]])
    return text


def main() -> None:
    """Put them in."""
    DOCUMENT.write_text(with_stories(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
