"""Opens the port: from the words of `--listen` to an endpoint, and from there to a port or a clear error.

Touches the listening socket. Decides what an address without a host means. Read `lswap.app` next.
Source: command line reference, section 1.1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint, serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.python.failure import Failure

from lswap.errors import LswapError
from lswap.net.inherited import PREFIX, Inherited, InheritedEndpoint

__all__ = ["CannotListen", "endpoint_for", "open_port"]

#: Connections that may wait to be accepted; a burst of clients must not be turned away by the kernel.
_BACKLOG = 4096
_SCHEMES = ("unix:", "ssl:", "tls:", PREFIX, "tcp:", "tcp6:", "haproxy:")


class CannotListen(SystemExit, LswapError):
    """The port cannot be opened. The caller's fault, or that of whoever has it.

    Ends the program with its text and status 1, under any command. Being an `Exception` too, it is one that a daemon
    tells its parent about, and that takes the pid file with it.
    """


def endpoint_for(listen: str, reactor: Any, sockets: Sequence[Inherited] = ()) -> IStreamServerEndpoint:
    """The endpoint for `--listen`: `host:port` first, then endpoint strings with a known prefix.

    An empty host means all addresses, IPv6 ones included where the machine has them. `sockets` are what `systemd:` may
    mean.

    @raise ValueError: it is neither.
    """
    host, colon, port = listen.rpartition(":")
    if colon and port.isascii() and port.isdigit() and int(port) < 65536 and not (host + ":").startswith(_SCHEMES):
        host = host.removeprefix("[").removesuffix("]")
        if ":" in host or (not host and os.path.exists("/proc/net/if_inet6")):
            return TCP6ServerEndpoint(reactor, int(port), _BACKLOG, host or "::")
        return TCP4ServerEndpoint(reactor, int(port), _BACKLOG, host)
    if listen.startswith(PREFIX):
        return InheritedEndpoint(reactor, listen, sockets)
    if listen.startswith(_SCHEMES) and not listen.endswith(":"):
        endpoint: IStreamServerEndpoint = serverFromString(reactor, listen)
        return endpoint
    raise ValueError(f"-listen {listen}: expected host:port, or an endpoint such as unix:/run/lswap.sock")


def open_port(
    listen: str, factory: IProtocolFactory, reactor: Any, sockets: Sequence[Inherited] = ()
) -> IListeningPort:
    """Listen there; `sockets` are what `systemd:` may mean.

    @raise CannotListen: the address is no address, or is not to be had.
    """
    results: list[Any] = []
    try:
        listening: Deferred[IListeningPort] = endpoint_for(listen, reactor, sockets).listen(factory)
    except (LookupError, TypeError, ValueError) as problem:
        raise CannotListen(f"lswap: {problem}") from None
    listening.addBoth(results.append)
    if not results:
        raise CannotListen(f"lswap: cannot listen on {listen}: this kind of endpoint does not open at once")
    if isinstance(results[0], Failure):
        why = results[0].value
        reason = why.socketError if isinstance(why, CannotListenError) else why
        raise CannotListen(f"lswap: cannot listen on {listen}: {reason}")
    port: IListeningPort = results[0]
    return port
