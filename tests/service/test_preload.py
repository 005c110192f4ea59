"""Models that are loaded without a request (`lswap.service.preload`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.service.preload import Preloader
from tests.memory import MemoryLswap, config_of

MODELS = """
models:
  a: {cmd: "server --port ${PORT}"}
  b: {cmd: "server --port ${PORT}"}
  c: {cmd: "server --port ${PORT}"}
"""
TOGETHER = "groups: {all: {swap: false, members: [a, b, c]}}\n"


def hook(*names: str) -> str:
    """The list of models to preload."""
    return f"hooks: {{on_startup: {{preload: [{', '.join(names)}]}}}}\n"


class PreloadCase(SynchronousTestCase):
    """Models, and their preloader."""

    def start(self, *names: str, top: str = TOGETHER) -> None:
        """Build; nothing is preloaded yet."""
        self.lswap = MemoryLswap(top + hook(*names) + MODELS)
        self.preloader = Preloader(self.lswap.service.fleet)

    def preload(self) -> None:
        """Begin, and let happen what happens at once."""
        self.preloader.start()
        self.lswap.turn()

    def order(self) -> list[str]:
        """Which models were started, in order."""
        return [group.listener.model.id for group in self.lswap.processes.groups]  # type: ignore[attr-defined]


class PreloadTests(PreloadCase):
    """One after the other, never at the cost of one another."""

    def test_in_order(self) -> None:
        """All of the list, in its order; no request reaches a server."""
        self.start("b", "a")
        self.preload()
        self.assertEqual((self.order(), self.lswap.running()), (["b", "a"], {"a": "ready", "b": "ready"}))
        self.assertEqual([model.requests for model in self.lswap.models.values()], [[], [], []])
        self.assertEqual(self.lswap.leftovers(), [])

    def test_one_after_the_other(self) -> None:
        """The next one begins when the one before is ready."""
        self.start("a", "b")
        self.lswap.models["a"].health = None
        self.preload()
        self.assertEqual(self.order(), ["a"])
        self.lswap.models["a"].checks[-1].answer(200)
        self.lswap.turn(1)
        self.assertEqual(self.order(), ["a", "b"])

    def test_nothing(self) -> None:
        """An empty list."""
        self.start()
        self.preload()
        self.assertEqual(self.order(), [])

    def test_never_evicts_its_own(self) -> None:
        """Of models that exclude each other the first one stays."""
        self.start("a", "b", top="")
        self.preload()
        self.assertEqual((self.order(), self.lswap.running()), (["a"], {"a": "ready"}))

    def test_evicts_others(self) -> None:
        """What runs and is on no list has to go, when it is idle."""
        self.start("a", top="")
        self.lswap.ready("c")
        self.preload()
        self.assertEqual(self.lswap.running(), {"a": "ready"})

    def test_waits_for_requests(self) -> None:
        """But its requests come first."""
        self.start("a", top="")
        held = self.lswap.router.acquire("c")
        self.lswap.turn()
        self.preload()
        self.assertEqual(self.lswap.running(), {"c": "ready"})
        self.successResultOf(held).release()
        self.lswap.turn()
        self.assertEqual(self.lswap.running(), {"a": "ready"})

    def test_failure(self) -> None:
        """One that does not start costs the others nothing."""
        self.start("a", "b")
        self.lswap.models["a"].listens = False
        self.lswap.models["a"].health = 500
        self.preload()
        self.lswap.models["a"].group.end(3)
        self.lswap.turn()
        self.assertEqual(self.lswap.running(), {"b": "ready"})

    def test_what_runs_stays(self) -> None:
        """A model that is ready is left alone, also by a second round."""
        self.start("a", "b")
        self.lswap.ready("a")
        self.preload()
        self.preload()
        self.assertEqual(self.order(), ["a", "b"])

    def test_stop(self) -> None:
        """At the end of lswap nothing more is begun; nobody waits any more."""
        self.start("a", "b")
        self.lswap.models["a"].health = None
        self.preload()
        self.preloader.stop()
        self.lswap.models["a"].checks[-1].answer(200)
        self.lswap.turn(1)
        self.assertEqual((self.order(), self.lswap.leftovers()), (["a"], []))

    def test_idle_time(self) -> None:
        """A preloaded model has its idle time like any other."""
        self.lswap = MemoryLswap(hook("a") + "globalTTL: 5\n" + MODELS)
        self.preloader = Preloader(self.lswap.service.fleet)
        self.preload()
        self.lswap.turn(4)
        self.assertEqual(self.lswap.running(), {"a": "ready"})
        self.lswap.turn(2)
        self.assertEqual(self.lswap.running(), {})


class ReloadTests(PreloadCase):
    """After a reload the list is gone through again."""

    def reload(self, *names: str, change: str = "") -> None:
        """Another list, and perhaps another command of this model."""
        models = MODELS.replace(f'{change}: {{cmd: "server', f'{change}: {{cmd: "server --new') if change else MODELS
        config = config_of(TOGETHER + hook(*names) + models).config
        assert config is not None
        self.lswap.service.fleet.take_over(config)
        self.preload()

    def test_new_names(self) -> None:
        """What came to the list is loaded; what left it stays as long as it may."""
        self.start("a")
        self.preload()
        self.reload("b")
        self.assertEqual(self.lswap.running(), {"a": "ready", "b": "ready"})

    def test_changed(self) -> None:
        """A preloaded model that changed starts anew at once."""
        self.start("a")
        self.preload()
        self.reload("a", change="a")
        self.assertEqual((self.order(), self.lswap.running()), (["a", "a"], {"a": "ready"}))
        self.assertIn("--new", self.lswap.models["a"].group.words)

    def test_changed_and_busy(self) -> None:
        """Or as soon as its requests are over."""
        self.start("a")
        self.preload()
        held = self.lswap.router.acquire("a")
        self.reload("a", change="a")
        self.assertEqual(self.order(), ["a"])
        self.successResultOf(held).release()
        self.lswap.turn()
        self.assertEqual((self.order(), self.lswap.running()), (["a", "a"], {"a": "ready"}))

    def test_during_a_preload(self) -> None:
        """A round under way gives way to the new one; a load under way is joined, not begun anew."""
        self.start("a", "b")
        self.lswap.models["a"].health = None
        self.preload()
        self.reload("a", "c")
        self.lswap.models["a"].checks[-1].answer(200)
        self.lswap.turn(1)
        self.assertEqual(self.order(), ["a", "c"])
