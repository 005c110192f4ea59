"""KV caches kept across swaps (`lswap.service.kv` and `kv_run`): real files and client, a server in memory."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Coroutine
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.hooks import Doing, Outcome
from lswap.core.kv_answers import parse_slots
from lswap.core.model import Config, KvCache, Model
from lswap.net import kv_files
from lswap.net.agent import UpstreamAgent
from lswap.net.dial import Origin
from lswap.net.upstream import Upstream
from lswap.service.doings import Doings
from lswap.service.kv import KvCaches
from lswap.service.kv_run import KvRun
from lswap.service.logs import Logs
from tests.slot_server import TOKEN, SlotServer
from tests.stand_in import StandIn
from tests.wires import MemoryReactor

PORT = 5800
BASE = f"http://127.0.0.1:{PORT}"


class KvCase(SynchronousTestCase):
    """A model `a`, the server of its present process, and a folder."""

    def setUp(self) -> None:
        """Nothing was saved yet."""
        self.root = pathlib.Path(self.mktemp())
        self.root.mkdir()
        self.folder = self.root.resolve() / "kv"
        self.weights = self.root.resolve() / "a.gguf"
        self.weights.write_bytes(b"weights")
        self.reactor = MemoryReactor()
        self.stand_in = StandIn("a", self.reactor, ("127.0.0.1", PORT))
        self.stand_in.listen()
        self.server = SlotServer(self.stand_in)
        self.upstream = Upstream(self.reactor, Origin(BASE))
        self.addCleanup(self.upstream.close)
        self.thread: Callable[..., Deferred[Any]] = maybeDeferred
        self.now = 1_000_000.0
        self.begin()
        self.model = self.make()
        self.told: list[Doing] = []
        self.doings = Doings(self.reactor, Logs(lambda data: None), self.told.append)
        self.logged: list[tuple[str, str]] = []
        observer: Any = self._observe
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def begin(self) -> None:
        """lswap itself starts."""
        self.caches = KvCaches(
            self.reactor,
            HTTPClient(UpstreamAgent(lambda _: self.upstream)),
            self.in_thread,
            {"HOME": str(self.root)},
            lambda: self.now,
        )

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """The disk is asked."""
        return self.thread(function, *args)

    def _observe(self, event: Any) -> None:
        level = event.get("log_level")
        if level in (LogLevel.warn, LogLevel.info):
            self.logged.append((level.name, event["log_format"].format(**event)))

    @property
    def warnings(self) -> list[str]:
        """What was warned of since it was asked last."""
        found = [text for level, text in self.logged if level == "warn"]
        self.logged.clear()
        return found

    def make(self, name: str = "a", cmd: str = "", **cache: Any) -> Model:
        """A model with a llama-server and kept caches."""
        settings: dict[str, Any] = {"persist": True, "dir": str(self.folder), "min_tokens": 10, **cache}
        model = Model(id=name, cmd=cmd or f"llama-server --port {PORT} -m {self.weights}", kv_cache=KvCache(**settings))
        self.caches.use(Config(models={name: model}))
        return model

    def wait(self, work: Any, seconds: float = 0.0) -> Any:
        """Let the server answer until a coroutine has come to its end, or nothing more happens."""
        done = Deferred.fromCoroutine(work)
        self.turn(seconds)
        return self.successResultOf(done)

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, and the server answer."""
        self.reactor.turn(seconds)
        while self.server.work():
            self.reactor.turn()

    def opened(self, model: Model | None = None) -> Coroutine[Any, Any, KvRun | None]:
        """What is to be done before a start."""
        return self.caches.open(model or self.model, {}, self.doings)

    def start(self, model: Model | None = None) -> KvRun:
        """A process starts, and is ready."""
        run = self.wait(self.opened(model))
        assert isinstance(run, KvRun)
        words = run.words
        self.server.folder = words[words.index("--slot-save-path") + 1] if "--slot-save-path" in words else ""
        self.server.slots = dict.fromkeys(self.server.slots, 0)
        self.wait(run.restore(BASE))
        return run

    def stop(self, run: KvRun, model: Model | None = None) -> None:
        """It is stopped."""
        self.wait(run.save(model or self.model))
        self.wait(run.close(crashed=False))

    def saved(self, tokens: int = 100, model: Model | None = None) -> KvRun:
        """A whole life, at whose end the first slot has so many tokens; what was told and asked is forgotten."""
        run = self.start(model)
        self.server.slots[0] = tokens
        self.stop(run, model)
        self.logged.clear()
        self.server.calls.clear()
        return run

    def files(self) -> dict[str, int]:
        """The slots that are kept on the disk, by name, with their sizes."""
        return {path.name: path.stat().st_size for path in sorted(self.folder.rglob("slot-*"))}

    def sizes(self) -> list[int]:
        """The sizes of all slots that are kept."""
        return sorted(path.stat().st_size for path in self.folder.rglob("slot-*"))


class SaveAndRestoreTests(KvCase):
    """From one process to the next."""

    def test_there_and_back(self) -> None:
        """What was in the slots is there again, and told."""
        self.server.slots = {0: 0, 1: 0, 2: 0}
        run = self.start()
        self.assertEqual(self.server.calls, [])
        self.server.slots = {0: 100, 1: 9, 2: 50}
        self.stop(run)
        self.assertEqual(self.server.calls, ["list", "props", "save 0", "save 2"])
        self.assertEqual(self.files(), {"slot-0.bin": 1000, "slot-2.bin": 500})
        self.server.calls.clear()
        run = self.start()
        self.assertEqual(self.server.calls, ["props", "restore 0", "restore 2"])
        self.assertEqual(self.server.slots, {0: 100, 1: 0, 2: 50})
        self.assertEqual((run.shown(), run.restoring), ({"state": "on", "reason": ""}, False))
        self.assertEqual(self.warnings, [])
        figures = self.caches.figures.of("a")
        self.assertEqual((figures.saved_tokens, figures.restored_tokens, figures.bytes), (150, 150, 1500))
        self.assertEqual({op: count for op, (count, _) in figures.seconds.items()}, {"save": 1, "restore": 1})
        ended = [(done.action, done.outcome) for done in self.told if done.outcome is not None]
        self.assertEqual(ended, [("kvCache save", Outcome.OK), ("kvCache restore", Outcome.OK)])

    def test_not_wanted(self) -> None:
        """A model without `persist` has none of it."""
        self.assertIsNone(self.wait(self.opened(self.make(persist=False))))
        self.assertFalse(self.folder.exists())

    def test_no_llama_server(self) -> None:
        """Is left as it is; the configuration was warned of already."""
        model = self.make(cmd="vllm serve x")
        run = self.start(model)
        self.stop(run, model)
        self.assertEqual(run.words, ("vllm", "serve", "x"))
        self.assertEqual(run.shown()["state"], "off")
        self.assertEqual((self.server.calls, self.warnings), ([], []))

    def test_default_folder(self) -> None:
        """Is that of the service."""
        self.assertIn(f"{self.root}/.local/state/lswap/kv/", self.start(self.make(dir=None)).words[-1])

    def test_own_folder_of_the_command(self) -> None:
        """Is used, and nothing is appended."""
        mine = self.root.resolve() / "mine"
        mine.mkdir()
        model = self.make(cmd=f"llama-server --port {PORT} -m {self.weights} --slot-save-path {mine}")
        self.saved(100, model)
        run = self.start(model)
        self.assertEqual(run.words, model.words)
        self.assertEqual(self.server.slots[0], 100)

    def test_another_process_of_the_same(self) -> None:
        """lswap itself may have ended between them, and the port may be another."""
        self.saved()
        self.begin()
        self.start(self.make(cmd=f"llama-server --port 1234 -m {self.weights}"))
        self.assertEqual(self.server.calls, ["props", "restore 0"])

    def test_another_build(self) -> None:
        """Does not get what an older one saved, which is deleted; it gets what it saved itself."""
        self.saved()
        self.server.build = "b2"
        run = self.start()
        self.assertEqual(self.server.calls, ["props"])
        self.assertEqual((self.files(), self.warnings), ({}, []))
        self.server.slots[0] = 70
        self.stop(run)
        self.start()
        self.assertEqual(self.server.slots[0], 70)

    def test_build_that_changed_unseen(self) -> None:
        """A build that tells only before the stop what it is: nothing of another one stays beside what it saves."""
        self.server.slots = {0: 0, 1: 0}
        run = self.start()
        self.server.slots = {0: 100, 1: 100}
        self.stop(run)
        self.server.how = {"props": 500}
        run = self.start()
        self.assertEqual((len(self.files()), self.server.slots), (2, {0: 0, 1: 0}))
        self.assertIn("nothing is restored: GET /props", self.warnings[0])
        self.server.how = {}
        self.server.build = "b2"
        self.server.slots = {0: 100, 1: 0}
        self.stop(run)
        self.assertEqual(list(self.files()), ["slot-0.bin"])

    def test_deleted_while_it_runs(self) -> None:
        """By `lswap kv clear`, for instance: what is gone is in the way of nothing."""
        self.server.slots = {0: 0, 1: 0}
        run = self.start()
        self.server.slots = {0: 1000, 1: 100}
        self.stop(run)
        run = self.start()
        for path in self.folder.rglob("*.*"):
            path.unlink()
        self.server.slots = {0: 20, 1: 0}
        self.stop(run)
        self.start()
        self.assertEqual((self.server.slots, self.warnings), ({0: 20, 1: 0}, []))

    def test_model_file_that_only_the_server_knows(self) -> None:
        """Is looked at where the server says it is."""
        self.server.model_path = str(self.weights)
        model = self.make(cmd="llama-server -hf org/model")
        self.saved(model=model)
        self.start(model)
        self.assertEqual(self.server.calls, ["props", "restore 0"])
        self.server.calls.clear()
        self.weights.write_bytes(b"others!")
        self.start(model)
        self.assertEqual(self.server.calls, ["props"])

    def test_model_file_that_changed(self) -> None:
        """Is told once; what is saved from then on is restored."""
        self.saved()
        self.weights.write_bytes(b"other weights")
        run = self.start()
        self.assertEqual(self.server.calls, [])
        (warning,) = self.warnings
        self.assertIn(f"a: kvCache: {self.weights} has changed", warning)
        self.stop(run)
        self.stop(self.start())
        self.assertEqual(self.warnings, [])
        self.saved(70)
        self.start()
        self.assertEqual(self.server.slots[0], 70)

    def test_api_key(self) -> None:
        """The server's own key goes with each call, wherever it comes from; and into no record."""
        keys = self.root / "keys"
        keys.write_text("from-file\nother\n")
        for option, key in (("--api-key told,x", "told"), (f"--api-key-file {keys}", "from-file")):
            self.saved(model=self.make(cmd=f"llama-server --port {PORT} {option}"))
            self.assertEqual(self.server.headers["Authorization"], f"Bearer {key}")
            self.assertEqual([path for path in self.folder.rglob("*.json") if key in path.read_text()], [])

    def test_reload(self) -> None:
        """What the configuration says at the end counts, not what it said at the start."""
        run = self.start()
        self.server.slots[0] = 100
        self.wait(run.save(self.make(persist=False)))
        self.wait(run.save(self.make(min_tokens=101)))
        self.assertEqual(self.files(), {})
        self.wait(run.save(self.make()))
        self.assertEqual(self.files(), {"slot-0.bin": 1000})

    def test_much_smaller_one(self) -> None:
        """Does not replace what is kept, also when the server saves less than it listed."""
        self.saved(1000)
        self.saved(200)
        self.assertEqual(self.files(), {"slot-0.bin": 10_000})
        self.saved(300)
        self.assertEqual(self.files(), {"slot-0.bin": 3000})

    def test_age(self) -> None:
        """What is too old is not restored."""
        self.saved()
        self.now += 7 * 86400 + 1
        self.start()
        self.assertEqual((self.server.calls, self.files()), ([], {}))


class TroubleTests(KvCase):
    """Whatever happens, the model goes on, and one warning says why."""

    def assert_warned(self, *parts: str) -> None:
        """Exactly one warning, with the model's ID and these words."""
        found = self.warnings
        self.assertEqual(len(found), 1, found)
        for part in ("a: kvCache: ", *parts):
            self.assertIn(part, found[0])

    def assert_doing(self, event: str, action: str) -> None:
        """Whoever watches sees that this goes on."""
        doing = self.doings.current
        assert doing is not None
        self.assertEqual((doing.model, doing.event, doing.action), ("a", event, action))

    def assert_done(self, outcome: Outcome, seconds: float, detail: str) -> None:
        """It is over, with this end."""
        self.assertIsNone(self.doings.current)
        done = self.told[-1]
        self.assertEqual((done.outcome, round(done.seconds or 0.0, 3)), (outcome, seconds))
        self.assertIn(detail, done.detail)

    def test_no_such_call(self) -> None:
        """Off for this start; the same warning does not come again, and the next start tries again."""
        for status in (501, 404):
            self.setUp()
            self.server.how = {"list": status}
            run = self.saved_with_warning(f"answered {status}", "--slots")
            self.assertEqual(run.shown()["state"], "off")
            self.stop(run)
            self.stop(self.start())
            self.assertEqual(self.server.calls, ["list", "list"])
            self.assertEqual(self.warnings, [])
            self.assertNotEqual(self.caches.figures.of("a").off, "")

    def saved_with_warning(self, *parts: str) -> KvRun:
        """A life at whose end something goes wrong."""
        run = self.start()
        self.server.slots[0] = 100
        self.wait(run.save(self.model))
        self.assert_warned(*parts)
        return run

    def test_list_that_fails(self) -> None:
        """Nothing is saved."""
        for how, part in ((500, "answered 500"), ("cut", "cut")):
            self.setUp()
            self.server.how = {"list": how}
            run = self.saved_with_warning(part)
            self.assertEqual((self.server.calls, self.files(), run.shown()["state"]), (["list"], {}, "on"))

    def test_list_that_hangs(self) -> None:
        """Ten seconds are enough."""
        self.server.how = {"list": "hang"}
        run = self.start()
        done = Deferred.fromCoroutine(run.save(self.model))
        self.turn()
        self.assert_doing("on_will_stop", "kvCache save")
        self.turn(9.9)
        self.assertNoResult(done)
        self.turn(0.2)
        self.successResultOf(done)
        self.assert_done(Outcome.FAILED, 10.1, "nothing is saved")
        self.assert_warned("no answer in time")

    def test_save_that_fails(self) -> None:
        """What was kept before stays, nothing else is left; each is told with its own words."""
        self.saved(90)
        before = self.files()
        for how, part in (
            (400, "answered 400"),
            (500, "refused"),
            (501, "answered 501"),
            ("zero", "0 tokens"),
            ("short", "bytes instead of"),
            ("missing", "-1 bytes instead of"),
            ("cut", "cut"),
        ):
            self.server.how = {"save": how}
            run = self.start()
            self.server.slots[0] = 100
            self.stop(run)
            self.assert_warned("slot 0 could not be saved", part)
            self.assertEqual(self.files(), before)
        self.assertEqual(self.caches.figures.of("a").saved_tokens, 90)

    def test_save_that_hangs(self) -> None:
        """Half a minute, and no other slot is tried; what it wrote is deleted."""
        self.server.slots = {0: 0, 1: 0}
        run = self.start()
        self.server.slots = {0: 100, 1: 100}
        self.server.how = {"save": "hang"}
        done = Deferred.fromCoroutine(run.save(self.model))
        self.turn()
        self.turn(29.9)
        self.assertNoResult(done)
        self.turn(0.2)
        self.successResultOf(done)
        self.assert_warned("slot 0 was not saved in time")
        self.assertEqual((self.server.calls, self.files()), (["list", "props", "save 0"], {}))

    def test_save_that_goes_on(self) -> None:
        """One that has written much may take longer."""
        run = self.start()
        self.server.slots[0] = 100
        self.server.how = {"save": "grow"}
        done = Deferred.fromCoroutine(run.save(self.model))
        self.turn()
        (new,) = self.folder.rglob("*.new")
        os.truncate(new, 1000 << 20)
        self.turn(30.1)
        self.assertNoResult(done)
        self.turn(10.1)
        self.successResultOf(done)
        self.assertEqual(self.files(), {})

    def test_save_that_is_cut_short(self) -> None:
        """Leaves nothing behind, and no timer."""
        run = self.start()
        self.server.slots[0] = 100
        self.server.how = {"save": "hang"}
        done = Deferred.fromCoroutine(run.save(self.model))
        self.turn()
        done.cancel()
        self.failureResultOf(done, CancelledError)
        self.turn()
        self.assertEqual((self.files(), self.warnings), ({}, []))
        self.assertEqual([call for call in self.reactor.getDelayedCalls() if call.getTime() > 20], [])

    def test_disk(self) -> None:
        """A folder that vanished or cannot be written is named, with what to do about it."""
        run = self.start()
        os.rename(self.folder, self.root / "gone")
        self.server.slots[0] = 100
        self.stop(run)
        self.assert_warned("slot 0 could not be saved", "No such file", "is the disk of")
        self.assertFalse(self.folder.exists())
        self.stop(self.start())
        self.assertTrue(self.folder.exists())

    def test_disk_that_is_full(self) -> None:
        """What the system says is told."""

        def full(function: Callable[..., Any], *args: Any) -> Any:
            if function is kv_files.commit:
                raise OSError(28, "No space left on device", "x")
            return function(*args)

        self.thread = lambda function, *args: maybeDeferred(full, function, *args)
        self.saved_with_warning("No space left on device")

    def test_disk_that_hangs(self) -> None:
        """Ten seconds each, and after two of them it is not asked any more: each holds a thread."""
        asked: list[Deferred[Any]] = []

        def hang(*args: Any) -> Deferred[Any]:
            asked.append(Deferred())
            return asked[-1]

        self.thread = hang
        for attempts in (1, 2, 2):
            done = Deferred.fromCoroutine(self.opened())
            self.turn(10.1)
            run = self.successResultOf(done)
            assert run is not None
            self.assertEqual((run.words, run.shown()["state"]), (self.model.words, "off"))
            self.assertEqual(len(asked), attempts)
        self.assert_warned("no answer in time", "kvCache.dir")
        for late in asked:
            late.callback(None)
        self.thread = maybeDeferred
        self.assertEqual(self.start().shown()["state"], "on")

    def test_folder_that_cannot_be_made(self) -> None:
        """The model starts as it would without."""
        self.folder.write_text("")
        run = self.start()
        self.stop(run)
        self.assertEqual((run.words, self.server.calls), (self.model.words, []))
        self.assertEqual(run.shown()["state"], "off")
        self.assert_warned(str(self.folder), "kvCache.dir")

    def test_restore_that_fails(self) -> None:
        """The file is deleted, so that it is not tried again; other slots are restored."""
        self.server.slots = {0: 0, 1: 0}
        for how, part in ((400, "answered 400"), (500, "answered 500"), ("cut", "cut")):
            run = self.start()
            self.server.slots = {0: 100, 1: 100}
            self.stop(run)
            self.logged.clear()
            self.server.calls.clear()
            self.server.how = {"restore": how}
            run = self.wait(self.opened())
            done = Deferred.fromCoroutine(run.restore(BASE))
            self.turn()
            for _ in range(2 if how == "cut" else 0):
                self.assertNoResult(done)
                self.turn(1.0)
            self.successResultOf(done)
            self.wait(run.close(crashed=False))
            self.assertEqual(self.server.calls, ["props", "restore 0", "restore 1"])
            found = self.warnings
            self.assertEqual(len(found), 2)
            self.assertIn(part, found[0])
            self.assertEqual(self.files(), {})
            self.server.how = {}
            self.server.calls.clear()
            self.wait(self.start().close(crashed=False))
            self.assertEqual(self.server.calls, [])

    def test_restore_that_hangs(self) -> None:
        """A minute for all of them; the file that held it up is deleted."""
        self.saved()
        self.server.how = {"restore": "hang"}
        run = self.wait(self.opened())
        done = Deferred.fromCoroutine(run.restore(BASE))
        self.turn()
        self.assert_doing("on_startup", "kvCache restore")
        self.turn(59.9)
        self.assertNoResult(done)
        self.turn(0.2)
        self.successResultOf(done)
        self.assert_warned("slot 0", "60 s")
        self.assert_done(Outcome.TIMEOUT, 60.1, "slot 0")
        self.assertFalse(run.restoring)
        self.assertEqual(self.files(), {})

    def test_props_that_hang_or_fail(self) -> None:
        """A build that does not tell what it is gets nothing, and saves nothing; what was kept stays."""
        self.server.how = {"props": 404}
        self.saved_with_warning("nothing is saved: GET /props")
        self.assertEqual(self.files(), {})
        self.server.how = {}
        self.saved()
        self.server.how = {"props": 500}
        self.start()
        self.assert_warned("nothing is restored: GET /props")
        self.assertEqual((self.server.slots[0], len(self.files())), (0, 1))
        self.begin()
        self.server.how = {"props": "hang"}
        run = self.wait(self.opened())
        done = Deferred.fromCoroutine(run.restore(BASE))
        self.turn()
        self.turn(10.1)
        self.successResultOf(done)
        self.assert_warned("GET /props")

    def test_one_slot_of_two(self) -> None:
        """Its trouble is told once, whatever becomes of the other; again when it has gone well in between."""
        self.server.slots = {0: 0, 1: 0}
        told = []
        for how in ("short", "short", None, "short"):
            run = self.start()
            self.server.slots = {0: 100, 1: 100}
            self.server.how_of = {1: how} if how else {}
            self.stop(run)
            told.append(len(self.warnings))
        self.assertEqual(told, [1, 0, 0, 1])

    def test_long_list(self) -> None:
        """Older builds tell the whole prompts; it is not read in the reactor's thread."""
        asked: list[Any] = []

        def note(function: Callable[..., Any], *args: Any) -> Deferred[Any]:
            asked.append(function)
            return maybeDeferred(function, *args)

        self.thread = note
        self.server.prompt = "x" * (1 << 20)
        self.saved()
        self.assertIn(parse_slots, asked)
        self.assertEqual(len(self.files()), 1)

    def test_server_that_dies_of_a_restore(self) -> None:
        """Does not get that file again."""
        self.saved()
        self.server.how = {"restore": "hang"}
        run = self.wait(self.opened())
        done = Deferred.fromCoroutine(run.restore(BASE))
        self.turn()
        self.assertTrue(run.restoring)
        done.cancel()
        self.failureResultOf(done, CancelledError)
        self.wait(run.close(crashed=True))
        self.assert_warned("slot 0: the server ended while it was restored")
        self.assertEqual(self.files(), {})

    def test_server_that_dies_of_a_file_that_stays(self) -> None:
        """Is not started with it for ever: the feature is off then."""
        self.saved()
        self.server.how = {"restore": "hang"}
        run = self.wait(self.opened())
        done = Deferred.fromCoroutine(run.restore(BASE))
        self.turn()
        done.cancel()
        self.failureResultOf(done, CancelledError)

        def read_only(function: Callable[..., Any], *args: Any) -> Any:
            if function is kv_files.forget:
                raise OSError(30, "Read-only file system", "x")
            return function(*args)

        self.thread = lambda function, *args: maybeDeferred(read_only, function, *args)
        self.wait(run.close(crashed=True))
        run = self.wait(self.opened())
        self.assertEqual((run.words, run.shown()["state"]), (self.model.words, "off"))

    def test_restore_that_is_cut_short(self) -> None:
        """By a stop: the file is not to blame."""
        self.saved()
        self.server.how = {"restore": "hang"}
        run = self.wait(self.opened())
        done = Deferred.fromCoroutine(run.restore(BASE))
        self.turn()
        done.cancel()
        self.failureResultOf(done, CancelledError)
        self.wait(run.close(crashed=False))
        self.assertEqual((len(self.files()), self.warnings), (1, []))

    def test_internal_fault(self) -> None:
        """A bug of ours is logged, and costs the caches only."""
        run = self.start()
        self.server.slots[0] = 100

        def broken(*args: Any) -> Any:
            raise ZeroDivisionError

        self.thread = lambda *args: maybeDeferred(broken)
        self.wait(run.save(self.model))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class EffectTests(KvCase):
    """Whether restores are of use."""

    def round(self, cached: int) -> KvRun:
        """A restore, and the first answer after it."""
        run = self.start()
        run.answered(cached)
        self.server.slots[0] = 100
        return run

    def test_two_without_effect(self) -> None:
        """Off from then on: for the process that runs, and for the next ones of the same command."""
        self.saved()
        self.stop(self.round(0))
        self.assertEqual(self.warnings, [])
        run = self.round(0)
        self.assertEqual(run.shown()["state"], "off")
        self.assertIn("two restores", run.shown()["reason"])
        self.assertEqual(self.caches.figures.of("a").off, run.shown()["reason"])
        (warning,) = self.warnings
        self.assertIn("a: kvCache: two restores in a row had no effect", warning)
        self.server.calls.clear()
        self.stop(run)
        run = self.start()
        self.stop(run)
        self.assertEqual((self.server.calls, run.shown()["state"]), ([], "off"))
        self.assertEqual(self.start(self.make(cmd="llama-server -c 5")).shown()["state"], "on")

    def test_one_without_effect(self) -> None:
        """Is not enough, also when another follows after one with."""
        self.saved()
        for cached in (0, 50, 0, 1, 0):
            run = self.round(cached)
            self.assertEqual(run.shown()["state"], "on")
            self.stop(run)

    def test_first_answer_counts(self) -> None:
        """Later ones say nothing of the restore, and none does where nothing was restored."""
        run = self.start()
        for _ in range(5):
            run.answered(0)
        self.server.slots[0] = 100
        self.stop(run)
        run = self.round(5)
        for _ in range(5):
            run.answered(0)
        self.assertEqual(run.shown()["state"], "on")


class QuotaTests(KvCase):
    """What may stay on the disk."""

    def test_least_recently_used(self) -> None:
        """Goes when another one is saved."""
        first = self.make("a", max_bytes=15_000)
        self.saved(1000, first)
        os.utime(next(self.folder.rglob("record.json")), (1, 1))
        second = self.make("b", max_bytes=15_000)
        self.saved(1000, second)
        self.assertEqual(self.sizes(), [1000 * TOKEN])
        self.assertNotIn("restore 0", self.calls_of(first))
        self.assertIn("restore 0", self.calls_of(second))

    def calls_of(self, model: Model) -> list[str]:
        """What a start asks the server."""
        self.server.calls.clear()
        self.wait(self.start(model).close(crashed=False))
        return list(self.server.calls)

    def test_in_use(self) -> None:
        """Stays, whatever it takes."""
        first, second = self.make("a", max_bytes=15_000), self.make("b", max_bytes=15_000)
        self.saved(1000, first)
        running = self.start(first)
        self.saved(1000, second)
        self.assertEqual(len(self.sizes()), 2)
        self.stop(running, first)

    def test_larger_than_the_quota(self) -> None:
        """Is not kept, and what was kept before stays; from then on the server is not even asked."""
        model = self.make(max_bytes=5000)
        self.saved(400, model)
        run = self.start(model)
        self.server.slots[0] = 1000
        self.stop(run, model)
        (warning,) = self.warnings
        self.assertIn("raise maxBytes", warning)
        self.assertEqual(self.sizes(), [4000])
        self.server.calls.clear()
        run = self.start(model)
        self.server.slots[0] = 1000
        self.stop(run, model)
        self.assertEqual(self.server.calls, ["props", "restore 0", "list"])

    def test_old_ones(self) -> None:
        """Go by themselves, when lswap starts and every hour."""
        self.saved()
        self.caches.start(Config(models={"a": self.model}))
        self.turn(1)
        self.assertEqual(len(self.sizes()), 1)
        self.now += 7 * 86400 + 1
        self.turn(3601)
        self.assertEqual(self.files(), {})
        self.caches.stop()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_relative_folder(self) -> None:
        """Is the same place by either name: what is in use stays."""
        self.saved()
        run = self.start(self.make(dir=os.path.relpath(self.folder)))
        self.now += 7 * 86400 + 1
        self.caches.start(Config(models={"a": self.make(dir=os.path.relpath(self.folder))}))
        self.turn(1)
        self.caches.stop()
        self.assertEqual(len(self.sizes()), 1)
        self.wait(run.close(crashed=False))

    def test_models_that_are_gone(self) -> None:
        """Are forgotten with a reload; their files have their time."""
        self.saved()
        self.caches.use(Config())
        self.assertEqual((list(self.caches.figures.collect()), len(self.sizes())), ([], 1))
