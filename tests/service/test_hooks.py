"""Hooks of a child (`lswap.service.hooks`, `lswap.service.stages`): order, failures, times, what cuts them short."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from lswap.core.events import State
from lswap.core.hooks import Cause, Outcome, Reason
from lswap.core.model import HookAction, Hooks, HttpCall, Model
from lswap.errors import HookError, StartError
from lswap.service.children import SHUTDOWN_HOOKS
from tests.service.child_case import PORT, UNLOAD, ChildCase
from tests.stand_in import FakeGroup

EVENTS = ("on_will_start", "on_startup", "on_will_stop", "on_stopped")


def cmd(*words: str, **settings: Any) -> HookAction:
    """A command."""
    return HookAction(words=words, **settings)


def post(url: str, **settings: Any) -> HookAction:
    """A call."""
    return HookAction(calls=(HttpCall(method="POST", url=url, **settings),))


class HookCase(ChildCase):
    """A child with hooks: each command is named for its event."""

    def setUp(self) -> None:
        """All four events have a command."""
        super().setUp()
        self.with_hooks(**{event: (cmd(event),) for event in EVENTS})

    def with_hooks(self, **hooks: tuple[HookAction, ...]) -> None:
        """Have a child with these hooks instead."""
        self.make(hooks=Hooks(**hooks))

    def hook(self, word: str) -> FakeGroup:
        """The last command with this word; it runs."""
        found = [group for group in self.processes.groups if group.words[0] == word]
        self.assertTrue(found, f"{word} was not started")
        return found[-1]

    def began(self) -> list[str]:
        """All commands that were started, in order."""
        return [group.words[0] for group in self.processes.groups]

    def end(self, word: str, code: int = 0) -> None:
        """The last command with this word ends."""
        self.hook(word).end(code)
        self.reactor.turn()

    def up(self) -> Deferred[None]:
        """Start it, up to `ready`."""
        asked = self.start()
        self.end("on_will_start")
        self.end("on_startup")
        self.successResultOf(asked)
        self.states.clear()
        return asked

    def stopping(self) -> Deferred[None]:
        """Have it up and told to stop: its first stop hook runs."""
        self.up()
        gone = self.child.stop(UNLOAD)
        self.reactor.turn()
        return gone


class OrderTests(HookCase):
    """Each phase waits for the one before."""

    def test_a_whole_life(self) -> None:
        """Spawn after on_will_start, waiters after on_startup, signal after on_will_stop, start after on_stopped."""
        asked = self.start()
        self.assertEqual((self.began(), self.states), (["on_will_start"], ["starting"]))
        self.end("on_will_start")
        self.assertEqual(self.began()[1:], ["server", "on_startup"])
        self.assertEqual(self.child.state, State.STARTING)
        self.assertNoResult(asked)
        self.end("on_startup")
        self.successResultOf(asked)
        self.assertEqual(self.states, ["starting", "ready"])
        gone = self.child.stop(UNLOAD)
        self.reactor.turn()
        self.assertEqual((self.began()[3:], self.child.state), (["on_will_stop"], State.STOPPING))
        self.assertEqual(self.group.stops, [])
        self.end("on_will_stop")
        self.successResultOf(gone)
        self.assertEqual(self.group.stops[0][0], 10.0)
        self.assertEqual((self.began()[4:], self.child.state), (["on_stopped"], State.STOPPED))
        self.end("on_stopped")
        self.assert_quiet()

    def test_nothing_configured(self) -> None:
        """An event without actions counts as run, in the same turn."""
        self.with_hooks()
        self.ready()
        gone = self.child.stop(UNLOAD)
        self.assertEqual(len(self.group.stops), 1)
        self.reactor.turn()
        self.successResultOf(gone)
        self.assertEqual((self.began(), self.doings), (["server"], []))

    def test_actions_in_order(self) -> None:
        """One after the other, calls and commands."""
        self.with_hooks(on_startup=(cmd("one"), post("/two"), cmd("three")))
        asked = self.start()
        self.end("one")
        self.assertEqual([request.target for request in self.server.requests], ["/two"])
        self.assertEqual(self.began(), ["server", "one"])
        self.server.request.answer(204)
        self.reactor.turn()
        self.end("three")
        self.successResultOf(asked)

    def test_several_calls_in_one_action(self) -> None:
        """In their order; the first that fails is the last."""
        calls = tuple(HttpCall(method=method, url=f"/{method}") for method in ("POST", "POST", "PUT"))
        self.with_hooks(on_startup=(HookAction(calls=calls),))
        asked = self.start()
        self.server.request.answer(200)
        self.reactor.turn()
        self.server.request.answer(500)
        self.reactor.turn()
        self.successResultOf(asked)
        self.assertEqual([request.target for request in self.server.requests], ["/POST", "/POST"])

    def test_a_start_waits_for_on_stopped(self) -> None:
        """Those who wait for the end do not; who wants it again does, and shows as starting."""
        gone = self.stopping()
        self.end("on_will_stop")
        self.successResultOf(gone)
        self.assertEqual(self.child.state, State.STOPPED)
        asked = self.child.ensure_ready()
        self.assertEqual(self.child.state, State.STARTING)
        self.assertEqual(self.began().count("on_will_start"), 1)
        self.end("on_stopped")
        self.end("on_will_start")
        self.end("on_startup")
        self.successResultOf(asked)
        self.assertEqual(self.began().count("server"), 2)

    def test_idle(self) -> None:
        """Only after on_stopped nothing goes on any more."""
        self.stopping()
        idle = self.child.when_idle()
        self.end("on_will_stop")
        self.assertNoResult(idle)
        self.end("on_stopped")
        self.successResultOf(idle)

    def test_a_process_that_dies_by_itself(self) -> None:
        """It has no on_will_stop, and on_stopped once, for `exit`."""
        self.up()
        self.group.end(3)
        self.reactor.turn()
        self.assertEqual(self.began()[3:], ["on_stopped"])
        self.assertEqual(self.hook("on_stopped").environment["LSWAP_REASON"], "exit")
        self.end("on_stopped")
        self.assert_quiet()

    def test_who_asks_during_on_startup(self) -> None:
        """Waits for its end with the others; one that leaves does no harm."""
        first = self.start()
        self.end("on_will_start")
        second, leaver = self.child.ensure_ready(), self.child.ensure_ready()
        leaver.addErrback(lambda _: None)
        leaver.cancel()
        self.assertNoResult(second)
        self.end("on_startup")
        self.successResultOf(first)
        self.successResultOf(second)


class FailureTests(HookCase):
    """Exit codes, statuses, times; `continue` and `abort`."""

    def test_continue(self) -> None:
        """A failure is a warning, and the others go on; at each event."""
        self.with_hooks(**{event: (cmd(f"bad-{event}"), cmd(event)) for event in EVENTS})
        asked = self.start()
        for event in EVENTS[:2]:
            self.end(f"bad-{event}", 3)
            self.end(event)
        self.successResultOf(asked)
        self.child.stop(UNLOAD)
        self.reactor.turn()
        for event in EVENTS[2:]:
            self.end(f"bad-{event}", 3)
            self.end(event)
        self.assertEqual([d.outcome for d in self.doings if d.outcome], [Outcome.FAILED, Outcome.OK] * 4)
        self.assert_quiet()

    def test_abort_before_the_spawn(self) -> None:
        """The start fails with what went wrong, nothing is spawned, the rest is left out; on_stopped runs."""
        self.with_hooks(on_will_start=(cmd("bad", on_error="abort"), cmd("more")), on_stopped=(cmd("on_stopped"),))
        asked = self.start()
        self.end("bad", 7)
        self.assertEqual(str(self.failureResultOf(asked, HookError).value), "on_will_start: cmd bad: exit code 7")
        self.assertEqual(self.began(), ["bad", "on_stopped"])
        self.assertEqual(self.hook("on_stopped").environment["LSWAP_REASON"], "failed")
        self.end("on_stopped")
        self.assertEqual(self.states, ["starting", "stopping", "stopped"])

    def test_abort_after_the_spawn(self) -> None:
        """The server is stopped, without on_will_stop. What it said is for the log, not for clients."""
        bad = HookAction(calls=(HttpCall(method="POST", url="/x"),), on_error="abort")
        self.with_hooks(on_startup=(bad, cmd("more")), on_will_stop=(cmd("will"),), on_stopped=(cmd("on_stopped"),))
        asked = self.start()
        self.server.request.answer(503, b"not  now\n")
        self.reactor.turn()
        error = self.failureResultOf(asked, HookError).value
        self.assertEqual(str(error), "on_startup: POST /x: status 503")
        self.assertEqual(self.doings[1].detail, "status 503: not now")
        self.assertEqual(self.began(), ["server", "on_stopped"])
        self.assertEqual([stop[0] for stop in self.group.stops], [5.0])

    def test_abort_at_the_end(self) -> None:
        """Nothing can veto a stop: the remaining actions are skipped, and it goes on."""
        bad = cmd("bad", on_error="abort")
        self.with_hooks(on_will_stop=(bad, cmd("more")), on_stopped=(bad, cmd("more")))
        self.ready()
        gone = self.child.stop(UNLOAD)
        self.reactor.turn()
        self.end("bad", 1)
        self.successResultOf(gone)
        self.end("bad", 1)
        self.assertEqual(self.began(), ["server", "bad", "bad"])
        self.assert_quiet()

    def test_time_is_over(self) -> None:
        """The command gets TERM and two seconds; only when it is gone the start goes on."""
        self.with_hooks(on_will_start=(cmd("slow", timeout=5.0), cmd("next")))
        self.start()
        slow = self.hook("slow")
        slow.obeys = False
        self.reactor.turn(4.9)
        self.assertEqual(slow.stops, [])
        self.reactor.turn(0.1)
        self.assertEqual([stop[0] for stop in slow.stops], [2.0])
        self.reactor.turn(1)
        self.assertEqual(self.began(), ["slow"])
        slow.end(None, 9)
        self.reactor.turn()
        self.assertEqual(self.began(), ["slow", "next"])
        done = self.doings[1]
        self.assertEqual((done.outcome, done.detail, done.seconds), (Outcome.TIMEOUT, "not done within 5 s", 5.0))

    def test_time_of_a_call_is_over(self) -> None:
        """The call is given up."""
        action = HookAction(calls=(HttpCall(method="GET", url="/x"),), timeout=1.0, on_error="abort")
        self.with_hooks(on_startup=(action,))
        asked = self.start()
        self.reactor.turn(1)
        self.assertEqual(str(self.failureResultOf(asked, HookError).value), "on_startup: GET /x: not done within 1 s")
        self.reactor.turn()
        self.assertTrue(self.server.request.aborted)

    def test_an_answer_that_never_ends(self) -> None:
        """Its time counts to the end of the body."""
        action = HookAction(calls=(HttpCall(method="GET", url="/x"),), timeout=3.0)
        self.with_hooks(on_startup=(action,))
        asked = self.start()
        self.server.request.begin()
        for _ in range(5):
            self.assertNoResult(asked)
            self.server.request.chunk(b"x" * 50_000)
            self.reactor.turn(0.6)
        self.successResultOf(asked)
        self.assertIs(self.doings[-1].outcome, Outcome.TIMEOUT)
        self.reactor.turn()
        self.assertTrue(self.server.request.aborted)

    def test_expected_statuses(self) -> None:
        """They take the place of 2xx."""
        for expect, status, good in (((), 299, True), ((), 300, False), ((404,), 404, True), ((404,), 200, False)):
            self.setUp()
            call = HttpCall(method="GET", url="/x", expect=expect)
            self.with_hooks(on_startup=(HookAction(calls=(call,)),))
            self.start()
            self.server.request.answer(status)
            self.reactor.turn()
            self.assertIs(self.doings[-1].outcome is Outcome.OK, good, (expect, status))

    def test_a_cut_answer(self) -> None:
        """It is a failure, though its status is good."""
        self.with_hooks(on_startup=(post("/x"),))
        self.start()
        self.server.request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        self.server.request.close()
        self.reactor.turn()
        self.assertIs(self.doings[-1].outcome, Outcome.FAILED)

    def test_a_command_that_cannot_be_started(self) -> None:
        """The text has no argument of it, which may be secret."""
        self.with_hooks(on_will_start=(cmd("nowhere", "--token", "hush", on_error="abort"),))
        self.processes.error = StartError("failed to start command 'nowhere --token hush': not found")
        why = self.why(self.start())
        self.assertTrue(why.startswith("on_will_start: cmd nowhere: it cannot be started"), why)
        self.assertNotIn("hush", why)

    def test_internal_fault(self) -> None:
        """At a start it costs the start; at a stop nothing."""
        self.with_hooks(on_will_start=(cmd("x"),))
        self.patch(self.child._hooks, "carry_out", None)
        self.assertIn("internal error during the start", self.why(self.start()))
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
        self.with_hooks(on_will_stop=(cmd("x"),), on_stopped=(cmd("x"),))
        self.ready()
        self.patch(self.child._hooks, "carry_out", None)
        gone = self.child.stop(UNLOAD)
        self.reactor.turn()
        self.successResultOf(gone)
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 2)
        self.assert_quiet()


class CallTests(HookCase):
    """What is sent."""

    def test_request(self) -> None:
        """Method, target below the proxy's path, headers and body, with the number of the process."""
        call = HttpCall(
            method="PUT",
            url="/hook?a=1&b=%2F&p=${PID}",
            body=b'{"pid":"${PID}"}',
            headers=(("Content-Type", "application/json"), ("X-N", "\u00fc${PID}")),
        )
        self.make(proxy=f"http://127.0.0.1:{PORT}/base", hooks=Hooks(on_startup=(HookAction(calls=(call,)),)))
        self.server.health = 200
        self.child.ensure_ready()
        self.reactor.turn()
        self.server.request.answer(200)  # the health check, which has the same path before its own
        self.reactor.turn(1)
        self.reactor.turn()
        request, pid = self.server.request, self.group.pid
        self.assertEqual((request.method, request.target), ("PUT", f"/base/hook?a=1&b=%2F&p={pid}"))
        self.assertEqual(self.doings[0].action, f"PUT /hook?a=1&b=%2F&p={pid}")
        self.assertEqual(request.body, b'{"pid":"%d"}' % pid)
        self.assertEqual(request.header("content-type"), "application/json")
        self.assertEqual(request.header("x-n"), f"\u00fc{pid}".encode().decode("latin-1"))

    def test_command(self) -> None:
        """Words and environment: what lswap has, what the model has, what the hook is told."""
        self.make(env=("OWN=1", "LSWAP_EVENT=fake"), hooks=Hooks(on_startup=(cmd("w", "--pid", "${PID}"),)))
        self.start()
        hook = self.hook("w")
        self.assertEqual(hook.words, ["w", "--pid", str(self.group.pid)])
        self.assertEqual(
            hook.environment,
            {
                "PATH": "/bin",
                "SHARED": "outer",
                "OWN": "1",
                "LSWAP_EVENT": "on_startup",
                "LSWAP_MODEL": "a",
                "LSWAP_PORT": str(PORT),
                "LSWAP_PROXY": f"http://127.0.0.1:{PORT}",
                "LSWAP_PID": str(self.group.pid),
                "LSWAP_REASON": "request",
                "LSWAP_OTHER": "",
            },
        )

    def test_no_process_no_number(self) -> None:
        """Before the spawn and after the end there is none."""
        self.with_hooks(on_will_start=(cmd("will", "${PID}"),), on_stopped=(cmd("stopped", "${PID}"),))
        self.start()
        self.assertEqual((self.hook("will").words, self.hook("will").environment["LSWAP_PID"]), (["will", ""], ""))
        self.end("will")
        self.child.stop(UNLOAD)
        self.reactor.turn()
        self.assertEqual(
            (self.hook("stopped").words, self.hook("stopped").environment["LSWAP_PID"]), (["stopped", ""], "")
        )

    def test_reasons(self) -> None:
        """Those of the start, then those of the end, the same for both of its events."""
        self.child.ensure_ready(Reason.PRELOAD)
        self.assertEqual(self.hook("on_will_start").environment["LSWAP_REASON"], "preload")
        self.end("on_will_start")
        self.child.ensure_ready(Reason.REQUEST)
        self.assertEqual(self.hook("on_startup").environment["LSWAP_REASON"], "preload")
        self.end("on_startup")
        self.group.obeys = False
        self.child.stop(Cause(Reason.SWAP, "b"))
        self.child.stop(UNLOAD)
        self.end("on_will_stop")
        self.child.stop(UNLOAD)
        self.group.end()
        for event in EVENTS[2:]:
            environment = self.hook(event).environment
            self.assertEqual((environment["LSWAP_REASON"], environment["LSWAP_OTHER"]), ("swap", "b"), event)

    def test_output(self) -> None:
        """Each line is marked with its event, whatever pieces it comes in; a line without end is bounded."""
        self.start()
        hook = self.hook("on_will_start")
        for piece in (b"on", b"e\ntw", b"o\n\nthr", b"ee"):
            hook.say(piece)
        hook.end()
        hook_lines = [line for line in self.logs.model("a").history().split(b"\n") if b"cmd on_will_start" not in line]
        marks = [b"[on_will_start] " + text for text in (b"one", b"two", b"", b"three")]
        self.assertEqual(hook_lines[:4], marks)
        self.reactor.turn()
        self.hook("on_startup").say(b"x" * 100_000)
        self.assertIn(b"[on_startup] " + b"x" * 100, self.logs.model("a").history())

    def test_a_child_that_a_command_leaves_behind(self) -> None:
        """The action is over when the program is; what is left of its group does not hold up the start."""
        asked = self.start()
        self.hook("on_will_start").exit(0)
        self.reactor.turn()
        self.assertEqual(self.began()[1:], ["server"])
        self.hook("on_will_start").vanish()
        self.reactor.turn()
        self.end("on_startup")
        self.successResultOf(asked)


class ShownTests(HookCase):
    """What people see."""

    def test_what_goes_on(self) -> None:
        """While it goes on, with its beginning; and afterwards, with its outcome."""
        self.start()
        began = self.reactor.seconds()
        doing = self.child.doing
        assert doing is not None
        self.assertEqual((doing.event, doing.action, doing.since), ("on_will_start", "cmd on_will_start", began))
        self.reactor.turn(1.5)
        self.end("on_will_start", 4)
        begun, ended = self.doings[:2]
        self.assertEqual((begun.seconds, begun.outcome), (None, None))
        self.assertEqual((ended.model, ended.event, ended.seconds), ("a", "on_will_start", 1.5))
        self.assertEqual((ended.outcome, ended.detail), (Outcome.FAILED, "exit code 4"))
        self.end("on_startup")
        self.assertIsNone(self.child.doing)
        history = self.logs.model("a").history()
        self.assertIn(b"[on_will_start] cmd on_will_start: ...\n", history)
        self.assertIn(b"[on_will_start] cmd on_will_start: failed after 1.50 s: exit code 4\n", history)
        self.assertIn(b"[on_startup] cmd on_startup: ok after 0.00 s\n", history)

    def test_one_who_listens_badly(self) -> None:
        """Costs nothing."""
        self.patch(self.child._doings, "_told", None)
        self.up()
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 4)


class CutTests(HookCase):
    """What comes while a hook runs."""

    def test_unload_during_on_will_start(self) -> None:
        """Waiters are told; the hook ends first, then on_stopped runs, for the reason of the stop."""
        asked = self.start()
        hook = self.hook("on_will_start")
        hook.obeys = False
        gone = self.child.stop(UNLOAD)
        self.assertIn("aborted", self.why(asked))
        self.assertEqual([stop[0] for stop in hook.stops], [2.0])
        self.assertNoResult(gone)
        self.assertEqual(self.child.state, State.STOPPING)
        hook.end(None, 15)
        self.successResultOf(gone)
        self.assertEqual(self.began(), ["on_will_start", "on_stopped"])
        self.assertEqual(self.hook("on_stopped").environment["LSWAP_REASON"], "unload")

    def test_unload_during_on_startup(self) -> None:
        """The server is stopped, the hook is cut; both are gone before on_stopped."""
        asked = self.start()
        self.end("on_will_start")
        hook, server = self.hook("on_startup"), self.group
        hook.obeys = server.obeys = False
        gone = self.child.stop(UNLOAD)
        self.assertIn("aborted", self.why(asked))
        server.end(None, 15)
        self.reactor.turn()
        self.assertNoResult(gone)
        hook.end(None, 15)
        self.successResultOf(gone)
        self.assertEqual(self.began()[3:], ["on_stopped"])

    def test_unload_during_on_will_stop(self) -> None:
        """A second stop changes nothing."""
        first = self.stopping()
        second = self.child.stop(UNLOAD)
        self.assertEqual(self.group.stops, [])
        self.end("on_will_stop")
        self.successResultOf(first)
        self.successResultOf(second)

    def test_crash_during_on_startup(self) -> None:
        """It is a failed start."""
        asked = self.start()
        self.end("on_will_start")
        self.group.say(b"out of memory\n")
        self.group.end(9)
        self.assertIn("exited prematurely: exit code 9; its last output: out of memory", self.why(asked))
        self.reactor.turn()
        self.assertEqual(self.began()[3:], ["on_stopped"])
        self.assertEqual(self.hook("on_stopped").environment["LSWAP_REASON"], "failed")

    def test_crash_during_on_will_stop(self) -> None:
        """The hooks go on, then on_stopped follows, once, for the reason that there was."""
        gone = self.stopping()
        self.group.end(9)
        self.reactor.turn()
        self.assertNoResult(gone)
        self.end("on_will_stop")
        self.successResultOf(gone)
        self.assertEqual(self.began()[4:], ["on_stopped"])
        self.assertEqual(self.hook("on_stopped").environment["LSWAP_REASON"], "unload")

    def test_start_during_on_will_stop(self) -> None:
        """It comes after the end."""
        self.stopping()
        asked = self.child.ensure_ready()
        self.assertEqual(self.child.state, State.STOPPING)
        for event in ("on_will_stop", "on_stopped", "on_will_start", "on_startup"):
            self.end(event)
        self.successResultOf(asked)

    def test_reload_during_hooks(self) -> None:
        """New hooks of the same process count from the next event on; those of another process from the next start."""
        fields = {name: getattr(self.model, name) for name in Model.__struct_fields__ if name != "words"}
        self.stopping()
        self.assertFalse(self.child.adopt(Model(**(fields | {"hooks": Hooks(on_stopped=(cmd("new"),))}))))
        self.end("on_will_stop")
        self.assertEqual(self.began()[4:], ["new"])
        self.end("new")
        self.setUp()
        self.up()
        changed = Model(**(fields | {"cmd": "server --other", "hooks": Hooks(on_stopped=(cmd("new"),))}))
        self.assertTrue(self.child.adopt(changed))
        self.child.stop(Cause(Reason.RELOAD))
        self.reactor.turn()
        for event in EVENTS[2:]:
            self.assertEqual(self.hook(event).environment["LSWAP_REASON"], "reload")
            self.end(event)
        self.assertFalse(self.child.outdated)
        self.successResultOf(self.start())
        self.assertEqual(self.group.words, ["server", "--other"])

    def test_reload_while_on_stopped_runs(self) -> None:
        """There is no process that could be outdated, also when it is wanted again; the hook goes on."""
        fields = {name: getattr(self.model, name) for name in Model.__struct_fields__ if name != "words"}
        self.stopping()
        self.end("on_will_stop")
        asked = self.child.ensure_ready()
        self.assertFalse(self.child.adopt(Model(**(fields | {"cmd": "server --other", "hooks": Hooks()}))))
        self.assertNoResult(asked)
        self.end("on_stopped")
        self.successResultOf(asked)
        self.assertEqual(self.group.words, ["server", "--other"])


class ShutdownTests(HookCase):
    """The end of lswap."""

    def test_both_stop_hooks(self) -> None:
        """They run, then it is over."""
        self.up()
        over = self.child.shut()
        for event in EVENTS[2:]:
            self.reactor.turn()
            self.assertNoResult(over)
            self.assertEqual(self.hook(event).environment["LSWAP_REASON"], "shutdown")
            self.end(event)
        self.successResultOf(over)
        self.assertEqual(self.child.state, State.SHUTDOWN)
        self.assert_quiet()

    def test_while_each_hook_runs(self) -> None:
        """Start hooks are cut, stop hooks go on; each way leads to the end, with on_stopped once."""
        for at, event in enumerate(EVENTS):
            self.setUp()
            if at < 2:
                asked = self.start()
                asked.addErrback(lambda _: None)
                if at:
                    self.end("on_will_start")
            else:
                self.stopping()
                if event == "on_stopped":
                    self.end("on_will_stop")
            over = self.child.shut()
            self.reactor.turn()
            self.assertNoResult(over)
            if event == "on_will_stop":
                self.end("on_will_stop")
            self.end("on_stopped")
            self.successResultOf(over)
            self.assertEqual(self.began().count("on_stopped"), 1, event)
            self.assertEqual(self.processes.running, [])
            self.assertEqual(self.why(self.child.ensure_ready()), "lswap is shutting down")

    def test_all_hooks_together_are_bounded(self) -> None:
        """30 s over both events; the time of the process itself does not count."""
        self.with_hooks(
            on_will_stop=(cmd("will", timeout=300.0),), on_stopped=(cmd("stopped", timeout=300.0), cmd("more"))
        )
        self.ready()
        over = self.child.shut()
        self.reactor.turn(20)
        self.group.obeys = False
        self.end("will")
        self.reactor.turn(9)
        self.group.end()
        self.reactor.turn(SHUTDOWN_HOOKS - 20.1)
        self.assertEqual(self.hook("stopped").stops, [])
        self.reactor.turn(0.1)
        self.reactor.turn()
        self.successResultOf(over)
        self.assertEqual(self.began(), ["server", "will", "stopped"])
        self.assertIs(self.doings[-1].outcome, Outcome.FAILED)

    def test_bound_begins_while_a_hook_runs(self) -> None:
        """One that runs already has the same time."""
        self.with_hooks(on_will_stop=(cmd("will", timeout=300.0),))
        self.ready()
        self.child.stop(UNLOAD)
        self.reactor.turn(100)
        over = self.child.shut()
        self.reactor.turn(SHUTDOWN_HOOKS - 0.1)
        self.assertNoResult(over)
        self.reactor.turn(0.1)
        self.reactor.turn()
        self.successResultOf(over)

    def test_at_once(self) -> None:
        """A second signal: commands and server are killed, and no further hook runs."""
        self.up()
        over = self.child.shut()
        self.reactor.turn()
        self.child.kill()
        self.assertEqual((self.hook("on_will_stop").kills, self.group.kills), (1, 1))
        self.reactor.turn()
        self.successResultOf(over)
        self.assertNotIn("on_stopped", self.began())
        self.assert_quiet()

    def test_at_once_while_it_starts(self) -> None:
        """A start whose hooks are cut is none: nothing is spawned, nobody is let through."""
        for events, spawned in (((), 0), (("on_will_start",), 1)):
            self.setUp()
            asked = self.start()
            for event in events:
                self.end(event)
            self.child.kill()
            self.assertIn("lswap is shutting down", self.why(asked))
            self.reactor.turn()
            over = self.child.shut()
            self.reactor.turn()
            self.successResultOf(over)
            self.assertEqual(len(self.server.groups), spawned)
            self.assertNotIn("ready", self.states)
            self.assert_quiet()

    def test_what_a_hook_left_behind(self) -> None:
        """lswap does not end before it is gone."""
        self.with_hooks(on_will_stop=(cmd("will"),))
        self.ready()
        over = self.child.shut()
        self.reactor.turn()
        self.hook("will").exit(0)
        self.reactor.turn()
        self.assertNoResult(over)
        self.hook("will").vanish()
        self.successResultOf(over)
