"""Another configuration for models that run (`lswap.service.fleet`, `Router.replace`, `Child.adopt`).

Everything is real but the processes and the sockets (`tests.memory`).
"""

from __future__ import annotations

import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.config import Source, load
from lswap.core.difference import Difference
from lswap.core.effects import Refusal
from lswap.core.model import Config
from lswap.service.router import Lease, Refused
from tests.memory import MemoryLswap, config_of


def model(name: str, more: str = "", flags: str = "") -> str:
    """One line of `models`."""
    return f"  {name}: {{cmd: 'server --port ${{PORT}} --name {name}{flags}'{', ' + more if more else ''}}}\n"


def models(*lines: str, top: str = "") -> str:
    """A configuration."""
    return top + "models:\n" + "".join(lines)


A, B, C = model("a"), model("b"), model("c")
NEW_A = model("a", flags=" --new")


class FleetCase(SynchronousTestCase):
    """Models that run, and a hand that changes the configuration."""

    def start(self, *lines: str, top: str = "") -> None:
        """Begin."""
        self.lswap = MemoryLswap(models(*lines, top=top))

    def take_over(self, *lines: str, top: str = "", turn: bool = True) -> Difference:
        """Another configuration, with the ports that there were, as a reload loads it."""
        fleet = self.lswap.service.fleet
        ports = {child.model.id: child.model.port for child in fleet.children.values() if child.model.port}
        loaded = load([Source("config.yaml", models(*lines, top=top).encode())], {}, ports)
        assert loaded.config is not None, loaded.problems
        made = fleet.take_over(loaded.config)
        if turn:
            self.lswap.turn()
        return made

    def ask(self, name: str, called: str = "") -> Deferred[Lease]:
        """Ask for a model."""
        asked: Deferred[Lease] = self.lswap.router.acquire(name, called)
        self.lswap.turn()
        return asked

    def lease(self, name: str) -> Lease:
        """A model that is given at once."""
        return self.successResultOf(self.ask(name))

    def load(self, *names: str) -> None:
        """Ready and idle."""
        for name in names:
            self.lease(name).release()

    def starts(self, name: str) -> int:
        """How many processes it has had."""
        return len(self.lswap.models[name].groups)

    def running(self) -> dict[str, str]:
        """Model to state."""
        return self.lswap.running()


class KeptTests(FleetCase):
    """What did not change is not touched."""

    def test_runs_on(self) -> None:
        """Its process, its requests and its connections."""
        self.start(A)
        lease = self.lease("a")
        upstream = lease.child.upstream
        self.assertEqual(self.take_over(A, B), Difference((), ("b",), (), ("a",)))
        self.assertIs(self.lease("a").child, lease.child)
        self.assertIs(lease.child.upstream, upstream)
        self.assertEqual((self.starts("a"), self.lswap.models["a"].group.stops), (1, []))

    def test_load_goes_on(self) -> None:
        """So does a load under way, with those who wait for it."""
        self.start(A)
        self.lswap.models["a"].health = None
        asked = self.ask("a")
        self.take_over(A, B)
        self.assertNoResult(asked)
        self.lswap.models["a"].checks[-1].answer(200)
        self.lswap.turn(1)
        self.successResultOf(asked)
        self.assertEqual(self.starts("a"), 1)

    def test_one_of_many(self) -> None:
        """Of many models that run, one that changed is stopped, and nobody else hears of it."""
        names = [f"m{number}" for number in range(30)]
        top = f"groups: {{g: {{swap: false, members: [{', '.join(names)}]}}}}\n"
        self.start(*map(model, names), top=top)
        self.load(*names)
        told: list[str] = []
        self.lswap.service.fleet.watchers.append(lambda name, state: told.append(name))
        made = self.take_over(model("m0", flags=" --new"), *map(model, names[1:]), top=top)
        self.assertEqual((made.changed, len(made.kept)), (("m0",), 29))
        self.assertEqual(set(told), {"m0"})
        self.assertEqual(sorted(self.running()), sorted(names[1:]))

    def test_other_values_count_at_once(self) -> None:
        """TTL, limits and timeouts are in force without a restart."""
        self.start(A)
        self.load("a")
        self.take_over(model("a", "ttl: 5, concurrencyLimit: 1, timeouts: {connect: 7, responseHeader: 9}"))
        child = self.lswap.child("a")
        assert child.upstream is not None
        self.assertEqual(child.upstream.header_timeout, 9)
        held = self.lease("a")
        refused = self.failureResultOf(self.ask("a"), Refused).value
        assert isinstance(refused, Refused)
        self.assertIs(refused.reason, Refusal.LIMIT)
        held.release()
        self.lswap.turn(4.9)
        self.assertEqual(self.running(), {"a": "ready"})
        self.lswap.turn(0.2)
        self.assertEqual(self.running(), {})

    def test_idle_times(self) -> None:
        """They run from the last request, not from the reload; a longer one, or none, is heard in time."""
        self.start(model("a", "ttl: 10"))
        self.load("a")
        self.lswap.turn(8)
        self.take_over(model("a", "ttl: 20"))
        self.lswap.turn(11)
        self.assertEqual(self.running(), {"a": "ready"})
        self.take_over(A)
        self.lswap.turn(100)
        self.assertEqual(self.running(), {"a": "ready"})
        self.take_over(model("a", "ttl: 30"))
        self.assertEqual(self.running(), {})

    def test_half_a_configuration(self) -> None:
        """One that cannot be carried out changes nothing."""
        self.start(A)
        self.load("a")
        config = config_of(models(NEW_A, B)).config
        assert config is not None
        impossible: Config = msgspec.structs.replace(config, groups=None)
        self.assertRaises(AttributeError, self.lswap.service.fleet.take_over, impossible)
        self.assertEqual((sorted(self.lswap.service.config.models), self.running()), (["a"], {"a": "ready"}))
        self.load("a")


class ChangedTests(FleetCase):
    """What changed is replaced when that disturbs nobody."""

    def test_idle(self) -> None:
        """It stops at once, and starts when it is asked for."""
        self.start(A)
        self.load("a")
        self.take_over(NEW_A)
        self.assertEqual((self.running(), self.starts("a")), ({}, 1))
        self.load("a")
        self.assertEqual(self.lswap.models["a"].group.words[-1], "--new")

    def test_busy(self) -> None:
        """It serves what it has; who comes later gets the new process."""
        self.start(A)
        old = self.lease("a")
        self.take_over(NEW_A)
        new = self.ask("a")
        self.assertNoResult(new)
        self.assertTrue(self.lswap.child("a").outdated)
        old.release()
        self.lswap.turn()
        self.assertEqual(self.successResultOf(new).child.model.words[-1], "--new")
        self.assertFalse(self.lswap.child("a").outdated)

    def test_taken_back(self) -> None:
        """In time: the process stays, and those who waited are let through."""
        self.start(A)
        old = self.lease("a")
        self.take_over(NEW_A)
        new = self.ask("a")
        self.assertEqual(self.take_over(A).changed, ("a",))
        self.successResultOf(new).release()
        old.release()
        self.lswap.turn()
        self.assertEqual((self.running(), self.starts("a")), ({"a": "ready"}, 1))

    def test_twice(self) -> None:
        """The newest configuration is the one that counts."""
        self.start(A)
        old = self.lease("a")
        self.take_over(NEW_A)
        self.take_over(model("a", flags=" --newest"))
        new = self.ask("a")
        old.release()
        self.lswap.turn()
        self.assertEqual(self.successResultOf(new).child.model.words[-1], "--newest")
        self.assertEqual(self.starts("a"), 2)

    def test_while_it_loads(self) -> None:
        """Those who waited get that process; it is replaced afterwards."""
        self.start(A)
        self.lswap.models["a"].health = None
        before = self.ask("a")
        self.take_over(NEW_A)
        after = self.ask("a")
        self.lswap.models["a"].health = 200
        self.lswap.models["a"].checks[-1].answer(200)
        self.lswap.turn(1)
        self.successResultOf(before).release()
        self.assertNoResult(after)
        self.lswap.turn()
        self.assertEqual(self.successResultOf(after).child.model.words[-1], "--new")

    def test_while_it_loads_for_nobody(self) -> None:
        """That load is given up."""
        self.start(A)
        self.lswap.models["a"].health = None
        self.ask("a").addErrback(lambda _: None).cancel()
        self.assertEqual(self.running(), {"a": "starting"})
        self.take_over(NEW_A)
        self.assertEqual(self.running(), {})

    def test_while_it_stops(self) -> None:
        """What starts next is what the configuration says then."""
        self.start(A)
        self.load("a")
        self.lswap.models["a"].group.obeys = False
        self.lswap.router.unload(("a",))
        asked = self.ask("a")
        self.take_over(NEW_A)
        self.lswap.models["a"].group.end()
        self.lswap.turn()
        self.assertEqual(self.successResultOf(asked).child.model.words[-1], "--new")

    def test_another_address(self) -> None:
        """Requests to the new process go where it listens."""
        self.start(model("a", "proxy: 'http://127.0.0.1:7001'"))
        self.load("a")
        self.take_over(model("a", "proxy: 'http://127.0.0.1:7002'"))
        lease = self.lease("a")
        assert lease.child.upstream is not None
        self.assertEqual(lease.child.upstream.origin.port, 7002)


class RemovedTests(FleetCase):
    """What is gone from the configuration."""

    def test_idle(self) -> None:
        """It stops at once, and leaves nothing."""
        self.start(A, B)
        self.load("a")
        self.assertEqual(self.take_over(B).removed, ("a",))
        self.assertEqual(list(self.lswap.service.fleet.children), ["b"])

    def test_never_started(self) -> None:
        """So does one without a process."""
        self.start(A, B)
        self.take_over(B)
        self.assertEqual(list(self.lswap.service.fleet.children), ["b"])

    def test_busy(self) -> None:
        """It finishes; others wait for its room; then it is gone."""
        self.start(A, B)
        lease = self.lease("a")
        self.take_over(B)
        other = self.ask("b")
        self.assertNoResult(other)
        lease.release()
        self.lswap.turn()
        self.successResultOf(other)
        self.assertEqual(list(self.lswap.service.fleet.children), ["b"])

    def test_loading(self) -> None:
        """Its load ends, and who waited for it is told that there is no such model."""
        self.start(A, B)
        self.lswap.models["a"].health = None
        asked = self.ask("a")
        self.take_over(B)
        refused = self.failureResultOf(asked, Refused).value
        assert isinstance(refused, Refused)
        self.assertIs(refused.reason, Refusal.UNKNOWN)
        self.assertEqual((self.running(), list(self.lswap.service.fleet.children)), ({}, ["b"]))
        self.assertEqual(self.lswap.leftovers(), [])

    def test_comes_back(self) -> None:
        """While it still runs: it is the same process."""
        self.start(A, B)
        lease = self.lease("a")
        self.take_over(B)
        self.take_over(A, B)
        self.assertIs(self.lease("a").child, lease.child)
        self.assertEqual(self.starts("a"), 1)

    def test_its_port(self) -> None:
        """While its process may live nobody else gets its port."""
        self.start(A)
        port = self.lswap.child("a").model.port
        self.lease("a")
        self.take_over(B)
        self.assertNotEqual(self.lswap.child("b").model.port, port)


class QueuedTests(FleetCase):
    """Requests that wait while the configuration changes."""

    def wait(self, *names: str) -> list[Deferred[Lease]]:
        """`c` is busy; these wait."""
        self.held = self.lease("c")
        return [self.ask(name) for name in names]

    def test_follow_their_name(self) -> None:
        """An alias leads a request to where it points after the reload; its age stays."""
        self.start(model("a", "aliases: [x]"), B, C)
        self.held = self.lease("c")
        asked = self.ask("a", "x")
        self.lswap.turn(5)
        self.take_over(A, model("b", "aliases: [x]"), C)
        row = self.lswap.router.queued()[0]
        self.assertEqual((row.model, self.lswap.reactor.seconds() - row.since), ("b", 5.0))
        self.held.release()
        self.lswap.turn()
        self.assertEqual(self.successResultOf(asked).child.model.id, "b")
        self.assertEqual(self.starts("a"), 0)

    def test_name_is_gone(self) -> None:
        """Those are refused, the others keep their places; nothing that is gone starts for a moment."""
        self.start(A, B, C)
        first, second, third = self.wait("a", "b", "a")
        self.take_over(B, C)
        for asked in (first, third):
            refused = self.failureResultOf(asked, Refused).value
            assert isinstance(refused, Refused)
            self.assertIs(refused.reason, Refusal.UNKNOWN)
        self.assertNoResult(second)
        self.held.release()
        self.lswap.turn()
        self.successResultOf(second)
        self.assertEqual(self.starts("a"), 0)

    def test_room_by_the_new_rules(self) -> None:
        """Where the new configuration lets models live together nobody waits any more."""
        self.start(A, B, C)
        (asked,) = self.wait("a")
        self.take_over(A, B, C, top="groups: {g: {swap: false, members: [a, b, c]}}\n")
        self.successResultOf(asked)
        self.assertEqual(self.running(), {"a": "ready", "c": "ready"})

    def test_client_leaves_afterwards(self) -> None:
        """A request that was led elsewhere can still be cancelled."""
        self.start(model("a", "aliases: [x]"), B, C)
        self.held = self.lease("c")
        asked = self.ask("a", "x")
        self.take_over(A, model("b", "aliases: [x]"), C)
        asked.addErrback(lambda _: None)
        asked.cancel()
        self.held.release()
        self.lswap.turn()
        self.assertEqual(self.lswap.leftovers(), [])
        self.assertEqual(self.running(), {"c": "ready"})


class HookTests(FleetCase):
    """A removed model whose last hook runs."""

    def test_it_is_dropped_after_that(self) -> None:
        """The shutdown would not wait for it otherwise; one that comes back meanwhile is the same one."""
        hooked = model("a", "on_stopped: {cmd: gone}")
        for comes_back in (False, True):
            self.start(hooked, B)
            self.load("a")
            self.take_over(B)
            self.assertEqual(self.running(), {})
            children = self.lswap.service.fleet.children
            self.assertIn("a", children)
            if comes_back:
                self.take_over(hooked, B)
            self.lswap.processes.groups[-1].end(0)
            self.lswap.turn()
            self.assertEqual("a" in children, comes_back)

    def test_one_that_sleeps(self) -> None:
        """Removed or changed while it sleeps, it is stopped; changed in nothing that matters, it sleeps on."""
        sleepy = "sleep: {sleep: {cmd: zzz}, wake: {cmd: rise}}"
        for lines, state in (
            ([B], None),
            ([model("a", sleepy, flags=" --new"), B], None),
            ([model("a", sleepy + ", ttl: 7"), B], "asleep"),
        ):
            self.start(model("a", sleepy), B)
            self.load("a")
            self.ask("b")
            self.lswap.processes.groups[-1].end(0)
            self.lswap.turn()
            self.assertEqual(self.running()["a"], "asleep")
            self.take_over(*lines)
            self.assertEqual(self.running().get("a"), state)
