"""Stand-ins for tests: a reactor whose time and processes are made up.

Imported by tests only. What other test modules need in common has its place here too.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from typing import Any, AnyStr

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import (
    IAddress,
    IProcessProtocol,
    IProcessTransport,
    IReactorFDSet,
    IReactorProcess,
    IReadDescriptor,
    IWriteDescriptor,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["FakeGroups", "FakeProcess", "FakeReactor"]


@implementer(IProcessTransport)
class FakeProcess:
    """A made-up process. It has real descriptors, as it was given, and does nothing by itself.

    It dies of any signal that is not in `ignores`, in the next turn of the reactor.
    """

    def __init__(
        self,
        reactor: FakeReactor,
        protocol: IProcessProtocol,
        words: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Mapping[int, int],
    ) -> None:
        self.pid: int | None = reactor.next_pid()
        #: The pid, also after the end.
        self.number = self.pid
        self.words = list(words)
        self.environment = dict(environment)
        #: What it has open, by its own numbers.
        self.descriptors = {theirs: os.dup(ours) for theirs, ours in descriptors.items()}
        #: Signals that reached it, in order.
        self.signals: list[int] = []
        self.ignores: set[int] = set()
        #: Whether it leads a group yet.
        self.leads = True
        #: Other members of its group: pid, and the signals that it ignores.
        self.children: dict[int, set[int]] = {}
        self._reactor = reactor
        self._protocol = protocol

    @property
    def alive(self) -> bool:
        """Whether it has not exited."""
        return self.pid is not None

    def write_output(self, data: bytes, descriptor: int = 1) -> None:
        """Write to standard output."""
        os.write(self.descriptors[descriptor], data)

    def close_output(self) -> None:
        """Close what is open."""
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.descriptors.clear()

    def exit(self, code: int | None = 0, number: int | None = None, keep_open: bool = False) -> None:
        """End, by itself or by a signal. `keep_open`: somebody else still has the same descriptors."""
        if not self.alive:
            return
        if not keep_open:
            self.close_output()
        self.pid = None
        status: Exception
        if number is None and code == 0:
            status = ProcessDone(0)
        else:
            status = ProcessTerminated(code if number is None else None, number)
        reason = Failure(status)
        self._protocol.processExited(reason)
        self._protocol.processEnded(reason)

    def signalProcess(self, signalID: str | int) -> None:
        """For the code under test: send a signal to this process alone."""
        if not self.alive:
            raise ProcessExitedAlready
        number = signal.Signals[f"SIG{signalID}"] if isinstance(signalID, str) else signalID
        self.signals.append(number)
        if number not in self.ignores:
            self._reactor.callLater(0, self.exit, None, number)

    def closeStdin(self) -> None:
        """No such pipe."""

    def closeStdout(self) -> None:
        """No such pipe."""

    def closeStderr(self) -> None:
        """No such pipe."""

    def closeChildFD(self, descriptor: int) -> None:
        """No such pipe."""

    def writeToChild(self, childFD: int, data: bytes) -> None:
        """No such pipe."""

    def loseConnection(self) -> None:
        """No such pipe."""

    def write(self, data: bytes) -> None:
        """No such pipe."""

    def writeSequence(self, data: Any) -> None:
        """No such pipe."""

    def getPeer(self) -> IAddress:
        """No such thing."""
        raise NotImplementedError

    def getHost(self) -> IAddress:
        """No such thing."""
        raise NotImplementedError


@implementer(IReactorProcess, IReactorFDSet)
class FakeReactor(Clock):
    """Time that a test advances, processes that a test ends, descriptors that are watched once a `turn`."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[FakeProcess] = []
        #: What the next `spawnProcess` raises.
        self.spawn_error: Exception | None = None
        #: Whether a new process has exited (code 3) before `spawnProcess` returns.
        self.exits_at_once = False
        self._readers: list[IReadDescriptor] = []
        self._pid = 100_000

    def next_pid(self) -> int:
        """A number that no process had before."""
        self._pid += 1
        return self._pid

    def forget(self) -> None:
        """Close what the processes still have open; for the end of a test."""
        for process in self.processes:
            process.close_output()

    def turn(self, seconds: float = 0) -> None:
        """Let time pass, then read once from every watched descriptor that has something."""
        self.advance(seconds)
        ready = select.select([reader.fileno() for reader in self._readers], [], [], 0)[0] if self._readers else []
        for reader in list(self._readers):
            if reader.fileno() in ready:
                why = reader.doRead()
                if why:
                    self.removeReader(reader)
                    reader.connectionLost(Failure(why))

    def spawnProcess(
        self,
        processProtocol: IProcessProtocol,
        executable: bytes | str,
        args: Sequence[bytes | str],
        env: Mapping[AnyStr, AnyStr] | None = None,
        path: bytes | str | None = None,
        uid: int | None = None,
        gid: int | None = None,
        usePTY: bool = False,
        childFDs: Mapping[int, int | str] | None = None,
    ) -> FakeProcess:
        """For the code under test: make up a process."""
        if self.spawn_error is not None:
            error, self.spawn_error = self.spawn_error, None
            raise error
        words = [os.fsdecode(word) for word in args]
        assert words[0] == executable
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (env or {}).items()}
        descriptors = {theirs: int(ours) for theirs, ours in (childFDs or {}).items()}
        process = FakeProcess(self, processProtocol, words, environment, descriptors)
        self.processes.append(process)
        processProtocol.makeConnection(process)
        if self.exits_at_once:
            process.exit(3)
        return process

    def addReader(self, reader: IReadDescriptor) -> None:
        """For the code under test."""
        if reader not in self._readers:
            self._readers.append(reader)

    def removeReader(self, reader: IReadDescriptor) -> None:
        """For the code under test."""
        if reader in self._readers:
            self._readers.remove(reader)

    def addWriter(self, writer: IWriteDescriptor) -> None:
        """Not needed so far."""
        raise NotImplementedError

    def removeWriter(self, writer: IWriteDescriptor) -> None:
        """Not needed so far."""

    def removeAll(self) -> list[IReadDescriptor | IWriteDescriptor]:
        """Watch nothing any more."""
        readers, self._readers = self._readers, []
        return list(readers)

    def getReaders(self) -> list[IReadDescriptor]:
        """What is watched."""
        return list(self._readers)

    def getWriters(self) -> list[IWriteDescriptor]:
        """Nothing."""
        return []


class FakeGroups:
    """The process groups of a fake reactor: see `lswap.net.group.Groups`."""

    def __init__(self, reactor: FakeReactor) -> None:
        self._reactor = reactor

    def signal(self, group: int, number: int) -> bool:
        """Reaches the leader, if it leads a group by now, and its children; those that do not ignore it end."""
        process = self._leader(group)
        if process is None or not process.leads or not self.members(group):
            return False
        if process.alive:
            process.signalProcess(number)
        else:
            process.signals.append(number)
        for pid, ignores in list(process.children.items()):
            if number not in ignores:
                del process.children[pid]
        return True

    def living(self, group: int) -> list[int]:
        """See `members`."""
        return self.members(group)

    def members(self, group: int) -> list[int]:
        """The leader, if it is alive, and its children."""
        process = self._leader(group)
        if process is None:
            return []
        return [*([group] if process.alive else []), *process.children]

    def _leader(self, group: int) -> FakeProcess | None:
        return next((process for process in self._reactor.processes if process.number == group), None)
