"""Twisted's epoll reactor with less work for each event, and with connections that write through.

Twisted wraps each event in a context for its log, which nothing here reads. An event that only says "there is
something to read", as nearly all do, goes straight to its reader; every other one takes Twisted's way.
Measured: 5 to 8 us less for each piece of an answer, and two system calls less (`lswap.net.write_through`).
"""

from __future__ import annotations

import socket
from select import EPOLLIN
from typing import Any

from twisted.internet import tcp
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IConnector, IListeningPort
from twisted.internet.main import installReactor
from twisted.internet.protocol import ClientFactory, ServerFactory
from twisted.logger import Logger

from lswap.net.write_through import Connector, Port

__all__ = ["LeanReactor", "install"]

_Base: Any = EPollReactor


class LeanReactor(_Base):  # type: ignore[misc]
    """See the module."""

    _faults = Logger()

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, and dispatch them; `timeout` in seconds, None is for ever."""
        selectables = self._selectables
        events = self._poller.poll(-1 if timeout is None else timeout, len(selectables))
        get = selectables.get
        for descriptor, event in events:
            selectable = get(descriptor)
            if selectable is None:  # an earlier one of these events has closed it
                continue
            if event != EPOLLIN:
                self._doReadOrWrite(selectable, descriptor, event)
                continue
            try:
                why = selectable.doRead()
            except BaseException as fault:
                self._faults.failure("unhandled fault of a reader")
                why = fault
            if why:
                self._disconnectSelectable(selectable, why, True)

    doIteration = doPoll

    def listenTCP(self, port: int, factory: ServerFactory, backlog: int = 50, interface: str = "") -> IListeningPort:
        """See `IReactorTCP`."""
        listening: IListeningPort = Port(port, factory, backlog, interface, self)
        listening.startListening()
        return listening

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: ServerFactory) -> IListeningPort:
        """See `IReactorSocket`."""
        if addressFamily not in (socket.AF_INET, socket.AF_INET6):
            adopted: IListeningPort = super().adoptStreamPort(fileDescriptor, addressFamily, factory)
            return adopted
        listening: IListeningPort = Port._fromListeningDescriptor(  # type: ignore[no-untyped-call]
            self, fileDescriptor, addressFamily, factory
        )
        listening.startListening()
        return listening

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: ClientFactory,
        timeout: float = 30,
        bindAddress: tuple[str, int] | None = None,
    ) -> IConnector:
        """See `IReactorTCP`."""
        connector: tcp.Connector = Connector(host, port, factory, timeout, bindAddress, self)
        connector.connect()
        return connector


def install() -> None:
    """Make it the reactor of this process."""
    installReactor(LeanReactor())
