"""The owner of a model that keeps its KV cache (`lswap.service.children`, `lswap.service.kv`): when what is done."""

from __future__ import annotations

import pathlib

from twisted.internet.defer import Deferred

from lswap.core.events import State
from lswap.core.hooks import Cause, Reason
from lswap.core.model import HookAction, Hooks, HttpCall, KvCache
from lswap.errors import StartError
from tests.service.child_case import ChildCase
from tests.slot_server import SlotServer
from tests.stand_in import Served

SWAP = Cause(Reason.SWAP, "other")


class KvChildCase(ChildCase):
    """A child whose caches are kept."""

    def setUp(self) -> None:
        """A llama-server in memory."""
        super().setUp()
        self.folder = pathlib.Path(self.mktemp())
        self.slots = SlotServer(self.server)
        self.keep()

    def keep(self, hooks: Hooks = Hooks()) -> None:  # noqa: B008 - frozen
        """Have a child that keeps its caches."""
        cache = KvCache(persist=True, dir=str(self.folder), min_tokens=10)
        self.make(cmd="llama-server --port 5800", kv_cache=cache, hooks=hooks)

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, and the server answer."""
        self.reactor.turn(seconds)
        while self.slots.work():
            self.reactor.turn()

    def start(self, health: int | None = 200) -> Deferred[None]:
        """Ask for readiness, and let what follows happen."""
        self.server.health = health
        asked = self.child.ensure_ready()
        for _ in range(3):
            self.turn(0.1)
        if self.processes.groups:
            self.slots.folder = str(next(self.folder.resolve().iterdir()))
        return asked

    def used(self, tokens: int = 100) -> None:
        """A life at whose end something is saved."""
        self.successResultOf(self.start())
        self.slots.slots[0] = tokens
        gone = self.child.stop(SWAP)
        self.turn()
        self.turn()
        self.successResultOf(gone)
        self.slots.calls.clear()
        self.states.clear()


class OrderTests(KvChildCase):
    """What comes before what."""

    def test_words(self) -> None:
        """The process is told where to save."""
        self.start()
        words = self.group.words
        self.assertEqual(words[:3], ["llama-server", "--port", "5800"])
        self.assertEqual(words[3:], ["--slot-save-path", self.slots.folder])

    def test_save_before_the_stop(self) -> None:
        """The stop signal waits for it; whoever wants the model meanwhile gets a new process."""
        self.successResultOf(self.start())
        self.slots.slots[0] = 100
        gone = self.child.stop(SWAP)
        self.reactor.turn()
        self.assertEqual((self.child.state, self.group.stops), (State.STOPPING, []))
        doing = self.child.doing
        assert doing is not None
        self.assertEqual((doing.event, doing.action), ("on_will_stop", "kvCache save"))
        again = self.child.ensure_ready()
        self.turn()
        self.turn(0.1)
        self.assertEqual(self.slots.calls[:3], ["list", "props", "save 0"])
        self.successResultOf(gone)
        self.turn(0.1)
        self.turn(0.1)
        self.successResultOf(again)
        self.assertEqual(len(self.processes.groups), 2)

    def test_restore_before_the_first_request(self) -> None:
        """Those who wait are let through when it is over."""
        self.used()
        asked = self.child.ensure_ready()
        self.reactor.turn(0.1)
        self.reactor.turn(0.1)
        self.assertNoResult(asked)
        self.assertEqual((self.child.state, self.server.request.target), (State.STARTING, "/props"))
        self.turn(0.1)
        self.successResultOf(asked)
        self.assertEqual(self.slots.calls, ["props", "restore 0"])

    def test_inside_of_the_hooks(self) -> None:
        """Restored before the user's own actions, saved before them too."""
        call = HookAction(calls=(HttpCall(method="POST", url="/hook"),))
        seen: list[str] = []

        def answer(request: Served) -> None:
            seen.append(request.target)
            request.answer()

        self.slots.others = answer
        self.keep(Hooks(on_startup=(call,), on_will_stop=(call,)))
        self.used()
        self.start()
        paths = [request.target for request in self.server.requests]
        self.assertEqual(
            [path.partition("?")[2] or path for path in paths],
            ["/hook", "/slots", "/props", "action=save", "/hook", "/props", "action=restore", "/hook"],
        )

    def test_after_a_death(self) -> None:
        """Nothing can be saved."""
        self.successResultOf(self.start())
        self.slots.slots[0] = 100
        self.group.end(1)
        self.turn()
        self.assertEqual((self.slots.calls, self.child.state), ([], State.STOPPED))

    def test_stopped_while_it_restores(self) -> None:
        """The start is aborted, and what was kept is kept."""
        self.used()
        self.slots.how = {"restore": "hang"}
        asked = self.start()
        gone = self.child.stop(SWAP)
        self.failureResultOf(asked, StartError)
        self.turn()
        self.successResultOf(gone)
        self.slots.how = {}
        self.slots.calls.clear()
        self.successResultOf(self.start())
        self.assertEqual(self.slots.calls, ["props", "restore 0"])

    def test_death_after_the_restore(self) -> None:
        """While the hooks run is a failed start as ever, and not the fault of what was restored."""
        self.keep(Hooks(on_startup=(HookAction(calls=(HttpCall(method="POST", url="/hook"),)),)))
        self.slots.others = lambda request: request.answer()
        self.used()
        self.slots.others = lambda request: None
        asked = self.start()
        self.assertEqual(self.slots.calls, ["props", "restore 0"])
        self.group.end(3)
        self.turn()
        self.assertIn("exited prematurely", self.why(asked))
        self.assertEqual([path.name for path in self.folder.rglob("slot*")], ["slot-0.bin"])

    def test_killed_while_it_saves(self) -> None:
        """A second signal does not wait."""
        self.successResultOf(self.start())
        self.slots.slots[0] = 100
        self.slots.how = {"save": "hang"}
        gone = self.child.shut()
        self.turn()
        self.assertEqual(self.group.stops, [])
        self.child.kill()
        self.turn()
        self.successResultOf(gone)
        self.assertEqual(self.child.state, State.SHUTDOWN)
        self.assertEqual([path.name for path in self.folder.rglob("slot*")], [])

    def test_shutdown_bounds_it(self) -> None:
        """The end of lswap does not wait for ever either."""
        self.successResultOf(self.start())
        self.slots.slots[0] = 100
        self.slots.how = {"list": "hang", "save": "hang"}
        gone = self.child.shut()
        for _ in range(31):
            self.turn(1)
        self.successResultOf(gone)


class DeathTests(KvChildCase):
    """A server that dies of what it restores."""

    def test_started_anew(self) -> None:
        """Without that file; who waits is served, and need not know."""
        self.used()
        self.slots.how = {"restore": "hang"}
        asked = self.start()
        self.assertEqual(self.slots.calls, ["props", "restore 0"])
        self.group.end(None, 6)
        for _ in range(4):
            self.turn(0.1)
        self.successResultOf(asked)
        self.assertEqual(len(self.processes.groups), 3)
        self.assertEqual(self.slots.calls, ["props", "restore 0"])
        self.assertEqual([path.name for path in self.folder.rglob("slot*")], [])

    def test_connection_ends_first(self) -> None:
        """The news of the death may come after the end of the connection: the other files are not to blame."""
        self.slots.slots = {0: 0, 1: 0}
        self.successResultOf(self.start())
        self.slots.slots = {0: 100, 1: 100}
        self.child.stop(SWAP)
        self.turn()
        self.turn()
        self.slots.how = {"restore": "hang"}
        asked = self.start()
        self.server.shut()
        self.turn(0.5)
        self.group.end(None, 6)
        self.slots.how = {}
        for _ in range(4):
            self.turn(0.1)
        self.successResultOf(asked)
        self.assertEqual(self.slots.calls[-2:], ["props", "restore 1"])

    def test_death_of_something_else(self) -> None:
        """While nothing is restored, a death is a failed start as ever."""
        asked = self.start(health=503)
        self.group.end(3)
        self.turn()
        self.assertIn("exited prematurely", self.why(asked))
