"""The profile in force: which names are pinned to which targets just now.

None is active at the start, nor after a reload; nothing is stored. Read `lswap.service.names` next: where pins count.
Source: HTTP reference, sections 7.2 and 10.5; configuration reference, section 8.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from twisted.logger import Logger

from lswap.core.model import Config

__all__ = ["Profiles"]

_NO_PINS: Mapping[str, str] = MappingProxyType({})


class Profiles:
    """Knows the active profile, and tells who wants to know of a change."""

    _log = Logger()

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._active: str | None = None
        self._watchers: list[Callable[[str | None], object]] = []

    @property
    def active(self) -> str | None:
        """The name of the active profile."""
        return self._active

    @property
    def pins(self) -> Mapping[str, str]:
        """Requested name to target, of the active profile; an empty target disables the name."""
        profile = self._config().profiles.get(self._active) if self._active is not None else None
        return profile.pins if profile is not None else _NO_PINS

    def watch(self, told: Callable[[str | None], object]) -> None:
        """From now on call `told` with the active profile after each real change."""
        self._watchers.append(told)

    def activate(self, name: str | None) -> None:
        """Make a profile the active one, or none. Requests under way keep what they have.

        @raise KeyError: there is no such profile; the active one stays.
        """
        if name is not None and name not in self._config().profiles:
            raise KeyError(name)
        self._set(name)

    def reloaded(self) -> None:
        """Another configuration is in force: no profile is active."""
        self._set(None)

    def _set(self, name: str | None) -> None:
        if name == self._active:
            return
        self._active = name
        self._log.info("active profile: {name}", name="none" if name is None else name)
        for told in list(self._watchers):
            try:
                told(name)
            except Exception:
                self._log.failure("internal error while telling of a change of profile")
