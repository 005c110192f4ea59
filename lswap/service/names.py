"""What a requested name leads to: first the pin of the active profile, once; then a selector, once.

What comes out is the name of a model, of an alias or of a peer's model (`Config.resolve`, `Config.resolve_peer`).
`docs/names.md` tells it to people. Read `lswap.service.selectors` next.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from lswap.core.model import Config
from lswap.service.profiles import Profiles
from lswap.service.selectors import Pick, Selectors

__all__ = ["Aim", "Names"]


class Aim:
    """Where a request goes. `release` it when the request is over."""

    __slots__ = ("_pick", "name", "selector")

    def __init__(self, name: str, pick: Pick | None = None) -> None:
        #: The name that takes the place of the requested one; often the same.
        self.name = name
        #: The ID of the selector that chose it.
        self.selector = pick.selector if pick is not None else None
        self._pick = pick

    def release(self) -> None:
        """The request is over, whichever way. A second call does nothing."""
        pick, self._pick = self._pick, None
        if pick is not None:
            pick.release()


class Names:
    """Profile and selectors, in their order."""

    _log = Logger()

    def __init__(self, config: Callable[[], Config], profiles: Profiles, selectors: Selectors) -> None:
        self._config = config
        self.profiles = profiles
        self.selectors = selectors

    def aim(self, requested: str, websocket: bool = False) -> Aim | None:
        """Where a request for this name goes; None when the active profile disables it.

        `websocket`: it asks to become one; where the model ignores those, it holds no place at its selector.

        @raise NoTarget: see `Selectors.pick`.
        """
        name = self.profiles.pins.get(requested)
        if name is None:
            name = requested
        else:
            self._log.debug(
                "profile {profile}: {requested} leads to {name}",
                profile=self.profiles.active,
                requested=requested,
                name=name or "nothing",
            )
        if not name:
            return None
        config = self._config()
        if name not in config.selectors:
            return Aim(name)
        pick = self.selectors.pick(name)
        model = config.models.get(pick.model)
        if websocket and model is not None and model.compat.ignore_websockets:
            pick.release()
        return Aim(pick.name, pick)

    def reloaded(self) -> None:
        """Another configuration is in force."""
        self.profiles.reloaded()
        self.selectors.reloaded()
