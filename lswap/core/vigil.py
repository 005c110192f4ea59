"""Whether a machine that may fall asleep is awake: answers and misses in, a verdict and the time of the next look out.

Pure: no clock, no socket. `lswap.service.sleeper` asks the machine and tells what came of it.
Source: utilities reference, sections 1.3 and 1.7.
"""

from __future__ import annotations

__all__ = ["HEARTBEAT", "Vigil"]

#: Seconds between two looks at a machine that is awake.
HEARTBEAT = 2.0
#: Misses in a row after which an awake one counts as asleep: one alone may be bad luck.
_MISSES = 2
#: Seconds until the look that follows a first miss.
_SOON = 0.5
#: Seconds between two looks while somebody waits.
_WAITING = 0.25
#: Seconds between two looks while nobody does: the first, doubled each time, up to the last.
_FIRST, _LONGEST = 0.1, 10.0


class Vigil:
    """What is believed of one machine."""

    def __init__(self) -> None:
        #: Whether it is awake.
        self.ready = False
        #: Misses since it was last awake, as far as they count.
        self.failures = 0
        self._misses = 0
        #: Misses in a row while nobody waited.
        self._idle = 0

    def answered(self) -> bool:
        """It has answered well; whether that is news."""
        news = not self.ready
        self.ready = True
        self.failures = self._misses = self._idle = 0
        return news

    def missed(self, certain: bool = False) -> bool:
        """It did not answer, or badly; whether it counts as asleep now, and did not before.

        `certain`: there was another sign of its end, so that one miss is enough.
        """
        self._misses += 1
        if self.ready and not certain and self._misses < _MISSES:
            return False
        self.failures += 1
        news, self.ready = self.ready, False
        return news

    def pause(self, waited_for: bool) -> float:
        """Seconds until the next look. `waited_for`: somebody waits for it to wake up."""
        if self.ready:
            return _SOON if self._misses else HEARTBEAT
        if waited_for:
            self._idle = 0
            return _WAITING
        self._idle += 1
        doubled: int = 1 << min(self._idle - 1, 10)
        return min(_LONGEST, _FIRST * doubled)
