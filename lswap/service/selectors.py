"""Selectors at work: keeps the counts of requests under way, and carries out what `lswap.core.selection` decides.

A spillover selector counts its own requests per target: one more with each choice, one less when that request ends. The
counts outlive a reload, as the requests do. Read `lswap.service.names` next: when a selector is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from twisted.logger import Logger

from lswap.core.events import State
from lswap.core.model import Config
from lswap.core.selection import Target, choose
from lswap.errors import LswapError

__all__ = ["NoTarget", "Pick", "Selectors"]


class NoTarget(LswapError):
    """A selector has nobody to send a request to; the text is for the client (503)."""


class _Ledger:
    """What one spillover selector has under way, by model; and how many ties it has broken."""

    __slots__ = ("busy", "turn")

    def __init__(self) -> None:
        self.busy: Counter[str] = Counter()
        self.turn = 0


class Pick:
    """A choice that was made, and the place that it takes. `release` it when the request is over."""

    __slots__ = ("_ledger", "model", "name", "selector", "why")

    def __init__(self, selector: str, target: Target, why: str, ledger: _Ledger | None) -> None:
        self.selector = selector
        #: The target as the selector lists it, and what it means.
        self.name = target.name
        self.model = target.model
        self.why = why
        self._ledger = ledger
        if ledger is not None:
            ledger.busy[target.model] += 1

    def release(self) -> None:
        """The request is over, whichever way. A second call does nothing."""
        ledger, self._ledger = self._ledger, None
        if ledger is None:
            return
        ledger.busy[self.model] -= 1
        if not ledger.busy[self.model]:
            del ledger.busy[self.model]


class Selectors:
    """All selectors of the configuration in force."""

    _log = Logger()

    def __init__(self, config: Callable[[], Config], state_of: Callable[[str], State]) -> None:
        """@param state_of: the state of a local model's process, by ID."""
        self._config = config
        self._state_of = state_of
        self._ledgers: dict[str, _Ledger] = {}

    def pick(self, selector_id: str) -> Pick:
        """Choose a target for one request, and count it there; the ID must be that of a selector.

        @raise NoTarget: all targets are about to go, or there are none.
        """
        config = self._config()
        selector = config.selectors[selector_id]
        ledger = None
        if selector.strategy == "spillover":
            ledger = self._ledgers.setdefault(selector_id, _Ledger())
        targets = [self._target(config, name) for name in selector.targets]
        busy, turn = (ledger.busy, ledger.turn) if ledger is not None else ({}, 0)
        choice = choose(selector.strategy, targets, busy, selector.spillover, turn)
        if choice is None:
            text = f'selector "{selector_id}" has no available spillover targets' if targets else ""
            raise NoTarget(text or "selector has no targets")
        if ledger is not None and choice.in_turn:
            ledger.turn += 1
        self._log.debug(
            "selector {selector} ({strategy}): {target}, {why}",
            selector=selector_id,
            strategy=selector.strategy,
            target=choice.target.name,
            why=choice.why,
        )
        return Pick(selector_id, choice.target, choice.why, ledger)

    def _target(self, config: Config, name: str) -> Target:
        model = config.resolve(name)
        if model is not None:
            return Target(name, model, self._state_of(model))
        peer = config.resolve_peer(name)
        return Target(name, "/".join(peer) if peer is not None else name, None)

    def under_way(self, selector_id: str) -> dict[str, int]:
        """Requests that a spillover selector has under way, by model; none for others."""
        ledger = self._ledgers.get(selector_id)
        return dict(ledger.busy) if ledger is not None else {}

    def reloaded(self) -> None:
        """Another configuration is in force: forget selectors that are gone. Their requests end by themselves."""
        known = self._config().selectors
        self._ledgers = {name: ledger for name, ledger in self._ledgers.items() if name in known}
