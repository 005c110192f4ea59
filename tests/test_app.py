"""The whole service (`lswap.app`): its start, its signals, and the order and the bounds of its end, in memory."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from unittest import mock

from twisted.internet.defer import CancelledError
from twisted.internet.error import CannotListenError
from twisted.logger import capturedLogs

from lswap import app
from lswap.app import DRAIN_LIMIT, CannotListen, LswapService, make_service
from lswap.core.kv import SavedSlot
from lswap.core.kv_command import read_command
from lswap.net.guard import Guard
from lswap.net.kv_files import begin, commit, open_place
from lswap.net.supervisor import Supervisor
from lswap.net.upstream import Upstream
from lswap.options import Settings
from tests.memory import MemoryClient, MemoryLswap, MemoryReactor, config_of
from tests.signals import SignalCase

CONFIG = """
unloadTimeout: 5
models:
  a: {cmd: "server --port ${PORT}"}
  b: {cmd: "server --port ${PORT}"}
groups: {all: {swap: false, members: [a, b]}}
"""

KEPT = "kvCache: {persist: true, dir: %s}"


class AppCase(SignalCase):
    """A service on a made-up machine."""

    def setUp(self) -> None:
        """It is not started yet."""
        super().setUp()
        self.patch(app, "raise_file_limit", lambda: None)
        # The collector is for real processes; here it would cost half a second each time.
        self.patch(app, "gc", mock.Mock())
        self.lswap = MemoryLswap(CONFIG)
        self.reactor = self.lswap.reactor
        self.service = self.lswap.service
        self.addCleanup(self.reactor.forget)

    def assert_ended(self) -> None:
        """All of it is over, and nothing is left."""
        assert self.ended is not None
        self.successResultOf(self.ended)
        self.reactor.turn()
        self.assertEqual(self.lswap.processes.running, [])
        self.assertEqual(self.service.site.channels, set())
        self.assertEqual(self.lswap.leftovers(), [])
        self.assertFalse(self.reactor.ports[-1].open)
        self.assertEqual(self.current_handlers(), self.handlers)
        self.reactor.processes[0].exit()
        self.reactor.turn(100)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def going_on(self) -> None:
        """It has not ended yet."""
        assert self.ended is not None
        self.assertNoResult(self.ended)


class StartTests(AppCase):
    """From settings to an open port."""

    def test_start(self) -> None:
        """The port opens first, then comes the guard; no model starts. Warnings are told."""
        with capturedLogs() as logged:
            self.service.privilegedStartService()
            self.assertEqual([port.port for port in self.reactor.ports], [8080])
            self.assertEqual(self.reactor.processes, [])
            self.service.startService()
        self.assertEqual(len(self.reactor.processes), 1)
        self.assertEqual(self.lswap.processes.groups, [])
        self.assertTrue(self.service.running)
        texts = [event["log_format"].format_map(event) for event in logged if event.get("log_format")]
        self.assertIn("lswap listening on http://127.0.0.1:8080", texts)
        self.signal()
        self.assert_ended()

    def test_old_kv_caches(self) -> None:
        """What is too old goes at the start, whether its model is ever wanted or not."""
        folder = pathlib.Path(self.mktemp()).resolve()
        self.lswap = MemoryLswap(f"models: {{a: {{cmd: llama-server, proxy: 'http://h', {KEPT % folder}}}}}")
        self.reactor, self.service = self.lswap.reactor, self.lswap.service
        opened = open_place("a", read_command(["llama-server"], {}), str(folder), 1e12, 0.0)
        (pathlib.Path(opened.place.folder) / begin(opened.place, 0)).write_bytes(b"x")
        commit(opened.place, opened.record, SavedSlot(0, 1, 1, 0.0))
        self.start()
        self.assertEqual(list(folder.rglob("*.*")), [])
        self.signal()
        self.assert_ended()

    def test_start_without_privileges(self) -> None:
        """A runner that knows only one step of starting gets an open port too, and only one."""
        self.service.startService()
        self.assertEqual(len(self.reactor.ports), 1)
        self.signal()
        self.assert_ended()

    def test_lines_for_programs(self) -> None:
        """With `logFormat: json` the log is made of objects."""
        lswap = MemoryLswap("logFormat: json\n" + CONFIG)
        lswap.service.startService()
        self.addCleanup(lswap.logs.detach)
        lswap.client().ask("GET", "/health")
        lswap.turn()
        lines = lswap.logs.proxy.history().splitlines()
        self.assertTrue(all(json.loads(line)["level"] for line in lines))
        self.assertIn("/health", json.loads(lines[-1])["message"])

    def test_debug(self) -> None:
        """With `logLevel: debug` each decision is told, from the first on."""
        service = make_service(Settings(config="c"), config_of("logLevel: debug\n" + CONFIG), MemoryReactor())
        service.startService()
        with capturedLogs() as logged:
            waiting = service.router.acquire("a")
        waiting.addErrback(lambda failure: failure.trap(CancelledError))
        waiting.cancel()
        self.assertTrue([event for event in logged if '"would": "start"' in event.get("record", "")])
        self.successResultOf(service.stopService())

    def test_warnings(self) -> None:
        """What is odd in the configuration is told in the log."""
        service = make_service(Settings(config="c"), config_of("nonsense: 1\n" + CONFIG), MemoryReactor())
        with capturedLogs() as logged:
            service.startService()
        self.assertTrue([event for event in logged if "nonsense" in event.get("problem", "")])
        self.successResultOf(service.stopService())

    def test_port_is_taken(self) -> None:
        """The program ends with a text; no handler of signals and no process stays."""
        self.reactor.listen_error = CannotListenError("127.0.0.1", 8080, OSError(98, "Address already in use"))
        problem = self.assertRaises(CannotListen, self.service.privilegedStartService)
        self.assertIn("127.0.0.1:8080", str(problem))
        self.assertEqual(self.current_handlers(), self.handlers)
        self.assertEqual(self.reactor.processes, [])

    def test_fails_half_way(self) -> None:
        """What was begun is taken back: the port, the handlers."""

        def broken(guard: Guard) -> None:
            raise RuntimeError("a bug")

        self.patch(Guard, "start", broken)
        self.service.privilegedStartService()
        self.assertRaises(RuntimeError, self.service.startService)
        self.assertFalse(self.reactor.ports[-1].open)
        self.reactor.turn()
        self.assertEqual(self.current_handlers(), self.handlers)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_umask(self) -> None:
        """Models get the mask that the command was told."""
        before = os.umask(0o022)
        self.addCleanup(os.umask, before)
        service = LswapService(Settings(config="c", umask=0o027), config_of(CONFIG), MemoryReactor())
        service.startService()
        self.assertEqual(os.umask(0o022), 0o027)
        self.successResultOf(service.stopService())

    def test_pools(self) -> None:
        """Control calls to a model's server share its connections; others have their own, which end with lswap."""
        self.start()
        from lswap.net.dial import Origin

        port = self.lswap.models["a"].address[1]
        for host in ("localhost", "127.0.0.1", "[::1]"):
            ours = self.service._pool_of(Origin(f"http://{host}:{port}/x"))
            self.assertIs(ours, self.lswap.child("a").upstream, host)
        other = self.service._pool_of(Origin("http://elsewhere:1"))
        self.assertIs(self.service._pool_of(Origin("http://elsewhere:1/y")), other)
        closed: list[Upstream] = []
        close = Upstream.close

        def note(upstream: Upstream) -> None:
            closed.append(upstream)
            close(upstream)

        self.patch(Upstream, "close", note)
        self.signal()
        self.assert_ended()
        self.assertEqual(set(map(id, closed)), {id(other), *(id(self.lswap.child(name).upstream) for name in "ab")})


class EndTests(AppCase):
    """The end, by signals."""

    def setUp(self) -> None:
        """It runs, model a is ready, and there is a client."""
        super().setUp()
        self.start()
        self.lswap.ready("a")
        self.client = self.lswap.client()

    def test_idle(self) -> None:
        """Nothing to wait for: it is over as soon as the model is gone, with whatever idle connections there are."""
        used = self.lswap.client()
        used.ask("GET", "/health")
        partial = self.lswap.client()
        partial.raw(b"GET /health HTTP/1.1\r\n")
        self.signal()
        self.assert_ended()
        for client in (self.client, used, partial):
            self.assertTrue(client.gone)

    def test_each_signal(self) -> None:
        """Both kinds of stop are the same; a hangup is none."""
        self.signal(signal.SIGHUP)
        self.assertEqual(self.reactor.stops, 0)
        self.flushLoggedErrors()
        self.signal(signal.SIGINT)
        self.assert_ended()

    def test_reactor_that_stops_already(self) -> None:
        """A signal after that is no error."""
        self.reactor.stop()
        self.signal()
        self.assertEqual(self.reactor.stops, 2)
        self.ended = self.service.stopService()
        self.reactor.turn()
        self.assert_ended()

    def test_requests_come_to_their_end(self) -> None:
        """Those under way are served, also those that are received or wait; the models stay for them."""
        served, waiting, received = (self.lswap.client() for _ in range(3))
        served.chat("a")
        self.lswap.models["b"].health = 503
        waiting.chat("b")
        received.raw(b"POST /upstream/a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nh")
        self.signal()
        self.assertFalse(self.reactor.ports[-1].open)
        self.going_on()
        self.assertEqual(self.lswap.running(), {"a": "ready", "b": "starting"})
        received.raw(b"i")
        self.lswap.models["b"].health = 200
        self.reactor.turn(1)
        for request in (*self.lswap.models["a"].requests, *self.lswap.models["b"].requests):
            request.answer(200, b"bye")
        for client in (served, waiting, received):
            answer = client.read()
            self.assertEqual((answer.body, answer.complete), (b"bye", True))
            self.assertTrue(client.gone)
        self.assert_ended()

    def test_last_bytes(self) -> None:
        """A slow client gets its answer to the last byte, though no request is under way any more."""
        self.client.chat("a")
        self.client.socket.room = 1000
        self.lswap.models["a"].request.answer(200, b"x" * 50_000)
        self.reactor.turn()
        self.assertEqual(len(self.lswap.inflight), 0)
        self.signal()
        self.reactor.turn(1)
        self.going_on()
        answer = self.client.read()
        self.assertEqual((len(answer.body), answer.complete), (50_000, True))
        self.assert_ended()

    def test_last_error(self) -> None:
        """So does one whose request ends with an error in the very turn in which everything else is over."""
        self.lswap.models["a"].group.end()
        self.reactor.turn()
        self.lswap.models["b"].health = 503
        self.client.chat("b")
        self.signal()
        self.lswap.models["b"].group.end(7)
        self.assertEqual(self.client.read().status, 500)
        self.assert_ended()

    def test_next_request_of_a_connection(self) -> None:
        """After its answer the connection is closed, though more has come already."""
        self.client.raw(b"GET /upstream/a/1 HTTP/1.1\r\nHost: h\r\n\r\nGET /upstream/a/2 HTTP/1.1\r\nHost: h\r\n\r\n")
        self.signal()
        self.lswap.models["a"].request.answer(200, b"bye")
        self.assertEqual(self.client.read().body, b"bye")
        self.assertTrue(self.client.gone)
        self.assertEqual(len(self.lswap.models["a"].requests), 1)
        self.assert_ended()

    def test_streams_end(self) -> None:
        """Who only reads along does not hold up the end, be he ever so slow."""
        readers = []
        for room in (1 << 20, 10):
            for target in ("/logs/stream", "/api/events"):
                client = self.lswap.client()
                client.socket.room = room
                client.send("GET", target)
                readers.append(client)
        self.signal()
        self.going_on()
        self.reactor.turn(2)
        self.assert_ended()
        for client in readers[:2]:
            self.assertTrue(client.read().complete)

    def test_unloading(self) -> None:
        """Who waits for a model's end is answered."""
        self.lswap.models["a"].group.obeys = False
        self.client.send("GET", "/unload")
        self.signal()
        self.going_on()
        self.lswap.models["a"].group.end()
        self.assertEqual(self.client.read().body, b"OK")
        self.assert_ended()

    def test_time_is_over(self) -> None:
        """After 30 s those who wait are told, those who are served are cut, and the models end."""
        served, answering, waiting = (self.lswap.client() for _ in range(3))
        served.chat("a")
        answering.chat("a")
        self.lswap.models["a"].request.begin()
        self.lswap.models["a"].request.chunk(b"half")
        self.lswap.models["b"].health = 503
        waiting.chat("b")
        self.signal()
        self.reactor.turn(DRAIN_LIMIT - 1)
        self.going_on()
        self.assertEqual(self.lswap.running(), {"a": "ready", "b": "starting"})
        self.reactor.turn(1)
        self.assertEqual(waiting.read().status, 500)
        self.assertIn(served.read().status, (502, 503))
        answer = answering.read()
        self.assertEqual((answer.body, answer.complete), (b"half", False))
        self.assert_ended()

    def test_server_elsewhere_does_not_end(self) -> None:
        """A request that not even the end of its model ends is told; who does not read gets a second."""
        self.client.chat("a")
        self.patch(self.lswap.models["a"], "shut", lambda: None)
        self.lswap.models["a"].group.at_end = lambda: None
        stalled = self.lswap.client()
        stalled.socket.room = 10
        stalled.chat("a")
        self.signal()
        self.reactor.turn(DRAIN_LIMIT)
        self.assertEqual(self.client.read().status, 503)
        self.reactor.turn(1)
        self.assert_ended()

    def test_slow_model(self) -> None:
        """It has its time."""
        self.lswap.models["a"].group.obeys = False
        self.signal()
        self.assertEqual([stop[0] for stop in self.lswap.models["a"].group.stops], [5.0])
        self.reactor.turn(5)
        self.going_on()
        self.lswap.models["a"].group.end(None, 9)
        self.reactor.turn()
        self.assert_ended()

    def test_model_that_never_ends(self) -> None:
        """Not even that holds up the end for ever."""
        group = self.lswap.models["a"].group
        group.obeys = False
        self.signal()
        self.reactor.turn(5 + 14)
        self.going_on()
        with capturedLogs() as logged:
            self.reactor.turn(1)
        self.assertIn("a model did not end in time; the guard will see to it", [e["log_format"] for e in logged])
        group.end(None, 9)
        self.assert_ended()

    def test_second_signal(self) -> None:
        """At once: requests are cut, models killed, nothing is waited for but their end."""
        self.client.chat("a")
        stalled = self.lswap.client()
        stalled.socket.room = 10
        stalled.chat("a")
        for request in self.lswap.models["a"].requests:
            request.begin()
        self.reactor.turn()
        group = self.lswap.models["a"].group
        group.obeys = False
        self.signal()
        self.going_on()
        self.signal()
        self.assertGreaterEqual(group.kills, 1)
        self.reactor.turn()
        self.assert_ended()
        self.assertFalse(self.client.read().complete)
        self.assertTrue(stalled.gone)

    def test_second_signal_while_models_end(self) -> None:
        """Then they are killed; a third one does no harm."""
        group = self.lswap.models["a"].group
        group.obeys = False
        self.signal()
        self.assertEqual(group.kills, 0)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        self.reactor.turn()
        self.assert_ended()

    def test_second_signal_while_one_loads(self) -> None:
        """A model that is being started is killed as well, and no other is started."""
        self.lswap.models["b"].health = 503
        self.client.chat("b")
        self.signal()
        self.signal()
        self.reactor.turn()
        self.assert_ended()
        self.assertEqual(len(self.lswap.models["b"].groups), 1)

    def test_internal_fault(self) -> None:
        """A bug in one step of the end is logged, and the others are done all the same."""

        def broken() -> None:
            raise RuntimeError("a bug")

        self.patch(self.service._streams, "end_all", broken)
        self.signal()
        self.assert_ended()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_request_after_the_drain(self) -> None:
        """A request in the last instant is answered, with an error if need be; never left hanging."""
        late = MemoryClient(self.reactor, self.service.site)
        self.service.router.shut_down()
        late.chat("a")
        answer = late.read()
        self.assertEqual(answer.status, 500)
        self.assertIn("shutting down", json.loads(answer.body)["error"]["message"])
        self.signal()
        self.assert_ended()


class SupervisedTests(AppCase):
    """What the service manager hears."""

    def setUp(self) -> None:
        """One that listens; the configuration is a file."""
        super().setUp()
        self.path = pathlib.Path(self.mktemp())
        self.path.write_text(CONFIG)
        self.lswap = MemoryLswap(CONFIG, path=str(self.path))
        self.reactor, self.service = self.lswap.reactor, self.lswap.service
        self.addCleanup(self.reactor.forget)
        self.heard: list[str] = []
        self.service.supervisor = Supervisor(self.reactor, self.take)

    def take(self, data: bytes) -> bool:
        """One datagram; what the clock says is left out."""
        self.heard += data.decode().partition("\nMONOTONIC_USEC=")[0].splitlines()
        return True

    def new(self) -> list[str]:
        """What was heard since the last call."""
        heard, self.heard = self.heard, []
        return [word for word in heard if not word.startswith("EXTEND_TIMEOUT_USEC=")]

    def test_life(self) -> None:
        """Ready once the reactor runs and the port is open, never before; the models; the end, first of all."""
        self.service.privilegedStartService()
        self.service.startService()
        self.assertEqual(self.new(), ["STATUS=no model runs"])
        self.reactor.turn()
        self.assertEqual(self.new(), ["READY=1"])
        self.lswap.ready("a")
        self.assertEqual(self.new(), ["STATUS=starting: a", "STATUS=ready: a"])
        self.signal()
        self.assertEqual(self.new(), ["STOPPING=1", "STATUS=stopping: a", "STATUS=no model runs"])
        self.assert_ended()

    def test_reload(self) -> None:
        """It is told around each reload; one that is refused stays in the status until a better one."""
        self.start()
        self.new()
        self.signal(signal.SIGHUP)
        self.assertEqual(self.new(), ["RELOADING=1", "READY=1"])
        self.path.write_text("models: 1\n")
        self.signal(signal.SIGHUP)
        told = "STATUS=the latest configuration was refused, with 1 problem; no model runs"
        self.assertEqual(self.new(), ["RELOADING=1", told, "READY=1"])
        self.path.write_text(CONFIG)
        self.signal(signal.SIGHUP)
        self.assertEqual(self.new(), ["RELOADING=1", "STATUS=no model runs", "READY=1"])
        self.signal()
        self.assert_ended()

    def test_failed_start(self) -> None:
        """Who has no port is not ready."""
        self.reactor.listen_error = CannotListenError("127.0.0.1", 8080, OSError(98, "Address already in use"))
        self.assertRaises(CannotListen, self.service.privilegedStartService)
        self.reactor.turn()
        self.assertEqual(self.new(), [])
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_environment(self) -> None:
        """What is meant for this process alone reaches no model, no hook and no copy of the environment."""
        told = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
        told |= {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
        self.patch(os, "environ", {**os.environ, **told})
        service = MemoryLswap(CONFIG).service
        self.assertEqual({*told} & {*os.environ}, set())
        self.assertEqual({*told} & {*service._tools.environment}, set())
