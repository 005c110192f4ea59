"""Sockets that the service manager has opened for this process: socket activation, as systemd does it.

Touches inherited descriptors. A port that is made of one leaves alone what is the manager's: the path of a UNIX socket,
its mode, its queue, and the socket itself, which others use after us. Source: sd_listen_fds(3).
Read `lswap.net.listen` next.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import msgspec
from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from zope.interface import implementer

__all__ = ["PREFIX", "Inherited", "InheritedEndpoint", "inherited_sockets"]

PREFIX = "systemd:"
#: The first descriptor.
_FIRST = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_FORM = "expected systemd:index=0 or systemd:name=NAME, with domain=INET, INET6 or UNIX or without"


class Inherited(msgspec.Struct, frozen=True):
    """One of them."""

    fd: int
    #: As the socket unit says, by default the name of that unit; empty where nobody gave it one.
    name: str


def inherited_sockets(
    environ: MutableMapping[str, str], at_start: Mapping[str, str] | None = None
) -> tuple[Inherited, ...]:
    """Those that the environment tells of. That is taken out of `environ`: it is meant for this process alone.

    @param at_start: the environment that the process was started with; asked of the system when not given, as Twisted
        takes the variables away for itself as soon as it is imported, and then drops sockets without names.
    """
    told = dict(environ)
    for name in _VARIABLES:
        environ.pop(name, None)
    told |= _environment_at_start() if at_start is None else at_start
    count = told.get("LISTEN_FDS", "")
    if told.get("LISTEN_PID") != str(os.getpid()) or not (count.isascii() and count.isdigit() and len(count) < 5):
        return ()
    names = told.get("LISTEN_FDNAMES", "").split(":")
    return tuple(
        Inherited(_FIRST + number, names[number] if number < len(names) else "") for number in range(int(count))
    )


def _environment_at_start() -> dict[str, str]:
    try:
        with open("/proc/self/environ", "rb") as file:
            lines = os.fsdecode(file.read()).split("\0")
    except OSError:
        return {}
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


@implementer(IStreamServerEndpoint)
class InheritedEndpoint:
    """One of the sockets, as an endpoint."""

    def __init__(self, reactor: Any, listen: str, sockets: Sequence[Inherited]) -> None:
        """@param listen: `systemd:index=0` or `systemd:name=lswap.socket`, with or without the `domain` of Twisted.

        @raise ValueError: there is none such.
        """
        self._reactor = reactor
        self._fd, self._family = _found(listen, sockets)

    def listen(self, factory: IProtocolFactory) -> Deferred[IListeningPort]:
        """See `IStreamServerEndpoint`. Once only: the descriptor is used up."""
        return maybeDeferred(self._adopt, factory)

    def _adopt(self, factory: IProtocolFactory) -> IListeningPort:
        os.set_blocking(self._fd, False)
        port: Any
        if self._family is socket.AF_UNIX:
            port = _UnixPort._fromListeningDescriptor(self._reactor, self._fd, factory)  # type: ignore[no-untyped-call]
            port.startListening()
        else:
            port = self._reactor.adoptStreamPort(self._fd, self._family, factory)
        os.close(self._fd)  # the port has its own
        return port  # type: ignore[no-any-return]


class _UnixPort(unix.Port):
    """A UNIX port of somebody else: Twisted's own changes its mode and its queue, and deletes it in the end."""

    startListening = tcp.Port.startListening
    connectionLost = tcp.Port.connectionLost


def _found(listen: str, sockets: Sequence[Inherited]) -> tuple[int, socket.AddressFamily]:
    """The descriptor that is meant, and its family; what a `domain` says has to be true.

    @raise ValueError: there is none such.
    """
    wanted = dict(word.partition("=")[::2] for word in listen.removeprefix(PREFIX).split(":"))
    domain, index, name = wanted.pop("domain", ""), wanted.pop("index", None), wanted.pop("name", None)
    well_formed = domain in ("", "INET", "INET6", "UNIX") and not wanted
    if not well_formed or (index is None) == (name is None) or not (index is None or _is_index(index)):
        raise ValueError(f"-listen {listen}: {_FORM}")
    if not sockets:
        raise ValueError(
            f"-listen {listen}: no socket was passed to this process (LISTEN_FDS and LISTEN_PID tell of none): "
            "is it started by its socket unit?"
        )
    found = [one for number, one in enumerate(sockets) if number == int(index or 0)] if index is not None else []
    found += [one for one in sockets if one.name == name]
    if not found:
        names = ", ".join(f"{number} ({one.name or 'no name'})" for number, one in enumerate(sockets))
        raise ValueError(f"-listen {listen}: there is no such socket; passed to this process: {names}")
    return found[0].fd, _family_of(listen, found[0].fd, domain)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5


def _family_of(listen: str, fd: int, domain: str) -> socket.AddressFamily:
    try:
        with socket.socket(fileno=os.dup(fd)) as known:
            family, kind = known.family, known.type
            listens = known.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as problem:
        raise ValueError(f"-listen {listen}: descriptor {fd} is no socket: {problem.strerror}") from None
    if family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX) or kind != socket.SOCK_STREAM or not listens:
        raise ValueError(f"-listen {listen}: a socket is needed that listens (ListenStream=, and not Accept=yes)")
    if domain and family != getattr(socket, f"AF_{domain}"):
        raise ValueError(f"-listen {listen}: the socket is of the domain {family.name.removeprefix('AF_')}")
    return socket.AddressFamily(family)
