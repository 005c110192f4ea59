"""Wakes a machine: by magic packets, or by a command that somebody has written for it.

Touches UDP, the list of network interfaces, processes (`lswap.net.process`). Decides nothing: `lswap.service.sleeper`
says when. A failure is told in the log, once until it works again, for the next packet may get through.
What is sent is made by `lswap.core.magic`.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.magic import Destination
from lswap.errors import StartError
from lswap.net.process import Exit, Group, Processes

__all__ = ["COMMAND_LIMIT", "COMMAND_PAUSE", "CommandWaker", "PacketWaker", "Waker", "broadcast_addresses"]

#: Whoever is on the same network as the interface of the default route.
_EVERYBODY = Destination("255.255.255.255")
#: Questions to the kernel about an interface, and flags that answer one of them (netdevice(7)).
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_UP, _BROADCAST = 0x1, 0x2
#: Seconds that a wake command may take, and that lie between the beginnings of two.
COMMAND_LIMIT = 60.0
COMMAND_PAUSE = 10.0
#: Seconds from SIGTERM to SIGKILL for one that took longer.
_GRACE = 5.0
#: Bytes of its last output that are told when it fails.
_TAIL = 1000


class Waker(Protocol):
    """What wakes one machine."""

    def wake(self) -> None:
        """Do it, soon; never raises. To be repeated until the machine answers."""

    def close(self) -> None:
        """Give back what is held. May be called twice."""


def broadcast_addresses() -> list[Destination]:
    """The broadcast addresses of all interfaces that have one, that of everybody first.

    Asks the kernel in a few microseconds (psutil would cost 4 MB); on other systems than Linux it knows the first only.
    """
    found = {_EVERYBODY: None}
    if sys.platform == "linux":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                try:
                    address = _of_interface(asking, _SIOCGIFADDR, name)
                    network = ipaddress.IPv4Interface((address, _of_interface(asking, _SIOCGIFNETMASK, name))).network
                    flags = int.from_bytes(_ask(asking, _SIOCGIFFLAGS, name)[16:18], sys.byteorder)
                except (OSError, ValueError):
                    continue  # it has no IPv4 address, or went away
                if flags & _UP and flags & _BROADCAST and network.prefixlen < 31:
                    found[Destination(str(network.broadcast_address))] = None
    return list(found)


def _ask(asking: socket.socket, question: int, interface: str) -> bytes:
    request = struct.pack("256s", interface.encode()[:15])
    return fcntl.ioctl(asking.fileno(), question, request)


def _of_interface(asking: socket.socket, question: int, interface: str) -> str:
    return socket.inet_ntoa(_ask(asking, question, interface)[20:24])


class PacketWaker:
    """Sends packets to some places, or by every interface that can broadcast."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        packets: Sequence[bytes],
        destinations: Sequence[Destination] = (),
        everywhere: Callable[[], list[Destination]] = broadcast_addresses,
    ) -> None:
        """@param everywhere: asked at each packet when there are no `destinations`, as interfaces come and go."""
        self._reactor = reactor
        self._packets = packets
        self._destinations = destinations
        self._everywhere = everywhere
        self._port: Any = None
        self._closed = False
        #: Where it does not work, which was told.
        self._failing: set[Destination] = set()

    def wake(self) -> None:
        """See `Waker.wake`."""
        try:
            destinations = self._destinations or self._everywhere()
        except OSError:
            self._failed(Failure(), _EVERYBODY)
            return
        for destination in destinations:
            resolved = self._reactor.resolve(destination.host)
            resolved.addCallback(self._send, destination)
            resolved.addErrback(self._failed, destination)

    def _send(self, address: str, destination: Destination) -> None:
        if self._closed:
            return  # while the name was looked up
        if self._port is None:
            self._port = self._reactor.listenUDP(0, _Sender())
        for packet in self._packets:
            self._port.write(packet, (address, destination.port))
        self._failing.discard(destination)

    def _failed(self, failure: Failure, destination: Destination) -> None:
        if destination not in self._failing:
            self._failing.add(destination)
            self._log.warn(
                "cannot send a magic packet to {host}:{port}: {problem}",
                host=destination.host,
                port=destination.port,
                problem=failure.getErrorMessage(),
            )

    def close(self) -> None:
        """See `Waker.close`."""
        self._closed = True
        port, self._port = self._port, None
        if port is not None:
            port.stopListening()


class _Sender(DatagramProtocol):
    """The socket; what comes back is nobody's business."""

    noisy = False
    transport: Any

    def startProtocol(self) -> None:
        self.transport.setBroadcastAllowed(True)


class CommandWaker:
    """Runs a command; one at a time, and not again within `COMMAND_PAUSE` seconds."""

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, processes: Processes, words: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._clock = clock
        self._processes = processes
        self._words = words
        self._environment = environment
        self._group: Group | None = None
        self._limit: IDelayedCall | None = None
        self._began: float | None = None
        self._tail = b""

    def wake(self) -> None:
        """See `Waker.wake`."""
        now = self._clock.seconds()
        if self._group is not None or (self._began is not None and now - self._began < COMMAND_PAUSE):
            return
        self._began = now
        self._tail = b""
        try:
            self._group = self._processes.spawn(self._words, self._environment, self)
        except StartError as problem:
            self._log.warn("wake command: {problem}", problem=str(problem))
        else:
            self._limit = self._clock.callLater(COMMAND_LIMIT, self._late)

    def _late(self) -> None:
        self._limit = None
        self.close()

    def close(self) -> None:
        """See `Waker.close`."""
        if self._group is not None:
            self._group.stop(_GRACE)

    # -- what the process tells ------------------------------------------------

    def process_output(self, data: bytes) -> None:
        """It says something."""
        self._tail = (self._tail + data)[-_TAIL:]

    def process_exited(self, exit: Exit) -> None:
        """It has ended."""
        if exit.code != 0:
            said = self._tail.decode("utf-8", "replace").strip()
            words = exit.words + (f": {said}" if said else "")
            self._log.warn("wake command {program} failed: {words}", program=self._words[0], words=words)

    def process_gone(self) -> None:
        """Nothing of it is left."""
        self._group = None
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()
