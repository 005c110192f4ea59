"""Tells the service manager how the service does: systemd's `sd_notify`, and its watchdog.

Touches one datagram socket, without ever waiting for it; what cannot be told is no fault of the service. Decides when
which word is due: beats come from the reactor, so that one which stands still is noticed. Source: sd_notify(3).
Read `lswap.life` next: it says what happens when.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, MutableMapping

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

__all__ = ["BEAT", "EXTENSION", "Supervisor"]

#: Seconds between two beats, or half of the watchdog's time where that is shorter.
BEAT = 5.0
#: Seconds that each beat asks for while the service starts or ends. Each step of both is bounded by itself.
EXTENSION = 15.0
#: Seconds until a datagram that had no room is sent again, and how many may wait; the oldest go first.
_RETRY, _MOST_WAITING = 0.1, 64
#: Bytes of a status; the manager shows it in one line.
_LONGEST_STATUS = 300


class Supervisor:
    """Whoever started us and wants to know. Without one nothing here has an effect."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        send: Callable[[bytes], bool] | None = None,
        watchdog: float = 0.0,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """@param send: sends a datagram at once; false if there was no room. Never blocks or raises. None: no manager.

        @param watchdog: seconds within which the manager wants to hear a beat; 0 if it does not care.
        """
        self._clock = clock
        self._send = send
        self._close = close
        self._watchdog = watchdog
        self._pause = min(BEAT, watchdog / 2) if watchdog else BEAT
        self._is_ready = self._is_stopping = False
        self._status = ""
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._retry: IDelayedCall | None = None
        self._next_beat: IDelayedCall | None = None

    @classmethod
    def of(cls, environ: MutableMapping[str, str], clock: IReactorTime) -> Supervisor:
        """The one that the environment tells of. That is taken out there: it is meant for this process alone."""
        address = environ.pop("NOTIFY_SOCKET", "")
        wanted, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        if not address.startswith(("/", "@")) or len(address) < 2:
            return cls(clock)
        ours = pid in ("", str(os.getpid())) and wanted.isascii() and wanted.isdigit() and len(wanted) < 20
        sender = _Sender("\0" + address[1:] if address[0] == "@" else address)
        return cls(clock, sender, int(wanted) / 1e6 if ours else 0.0, sender.close)

    def begin(self) -> None:
        """The start goes on; it may take its time. Without effect once begun."""
        if self._next_beat is None:
            self._beat_later()

    def ready(self) -> None:
        """The service can be used."""
        if not self._is_stopping:
            self._is_ready = True
            self._tell("READY=1")

    def reloading(self) -> None:
        """A reload begins."""
        if self._is_ready and not self._is_stopping:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def reloaded(self) -> None:
        """A reload is over, with whatever outcome."""
        if self._is_ready:
            self.ready()

    def stopping(self) -> None:
        """The end begins. Beats ask for time until `end`."""
        if not self._is_stopping:
            self._is_stopping = True
            self._tell("STOPPING=1", self._extension())
            self.begin()

    def status(self, text: str) -> None:
        """Have a line shown to people; no secrets. Control characters do not get through."""
        line = "".join(letter if letter.isprintable() else " " for letter in text)
        line = line.encode("utf-8", "replace")[:_LONGEST_STATUS].decode("utf-8", "ignore")
        if line != self._status:
            self._status = line
            self._tell(f"STATUS={line}")

    def end(self) -> None:
        """Nothing more is told."""
        for call in (self._retry, self._next_beat):
            if call is not None and call.active():
                call.cancel()
        self._retry = self._next_beat = None
        self._send = None
        self._close()

    # -- beats ---------------------------------------------------------------------

    def _beat(self) -> None:
        self._next_beat = None
        words = ["WATCHDOG=1"] if self._watchdog else []
        if not self._is_ready or self._is_stopping:
            words.append(self._extension())
        if words:
            if not self._waiting:
                self._tell(*words)
            self._beat_later()

    def _beat_later(self) -> None:
        if self._send is not None:
            self._next_beat = self._clock.callLater(self._pause, self._beat)

    @staticmethod
    def _extension() -> str:
        return f"EXTEND_TIMEOUT_USEC={round(EXTENSION * 1e6)}"

    # -- datagrams -----------------------------------------------------------------

    def _tell(self, *words: str) -> None:
        if self._send is not None:
            self._waiting.append("\n".join(words).encode())
            if self._retry is None:
                self._flush()

    def _flush(self) -> None:
        self._retry = None
        while self._waiting and self._send is not None:
            if not self._send(self._waiting[0]):
                self._retry = self._clock.callLater(_RETRY, self._flush)
                return
            self._waiting.popleft()


class _Sender:
    """Sends datagrams to an address. Opens its socket late: a daemon's first processes need none."""

    _log = Logger()

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._failed = False

    def __call__(self, data: bytes) -> bool:
        """Send it, if there is room; what nobody takes is sent, too."""
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(data, self._address)
        except BlockingIOError:
            return False
        except OSError as problem:
            if not self._failed:
                self._log.warn("the service manager cannot be told how we do: {problem}", problem=str(problem))
            self._failed = True
        return True

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
