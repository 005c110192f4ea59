"""One owner for each model (`lswap.service.children`): real machine, health check and client; a made-up process."""

from __future__ import annotations

import inspect

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.events import State
from lswap.errors import StartError
from lswap.net.process import Exit, Group, Processes
from lswap.service import start
from tests.service.child_case import PORT, UNLOAD, ChildCase
from tests.stand_in import FakeGroup, FakeProcesses


class StartTests(ChildCase):
    """From nothing to ready, or to an error."""

    def test_ready_after_a_health_check(self) -> None:
        """The command is spawned as words, the endpoint polled, and the waiter goes on when it answers 200."""
        asked = self.start(health=None)
        self.assertNoResult(asked)
        self.assertEqual(self.group.words, ["server", "--port", str(PORT)])
        self.assertEqual(self.child.pid, self.group.pid)
        self.assertEqual(self.states, ["starting"])
        self.server.checks[0].answer(200)
        self.reactor.turn()
        self.successResultOf(asked)
        self.assertEqual(self.states, ["starting", "ready"])

    def test_not_ready_until_200(self) -> None:
        """Other answers, a server that does not listen yet, and one that does not answer mean: ask again."""
        self.server.listens = False
        asked = self.start(health=503)
        self.reactor.turn(1)
        self.server.listen()
        self.reactor.turn(1)
        for status in (204, 302, 500):
            self.server.health = status
            self.reactor.turn(1)
        self.assertNoResult(asked)
        self.assertEqual(self.child.state, State.STARTING)
        self.server.health = None
        self.reactor.turn(0.5)
        self.server.health = 200
        self.reactor.turn(5)
        self.reactor.turn(0.5)
        self.successResultOf(asked)

    def test_health_check_of_another_path(self) -> None:
        """The endpoint is appended to the path of the proxy URL; its query and a whole URL are understood."""
        for proxy, endpoint, target in (
            ("/base/", "/ok", "/base/ok"),
            ("", "ok?x=1", "/ok?x=1"),
            ("", f"http://127.0.0.1:{PORT}/deep/ok", "/deep/ok"),
        ):
            self.setUp()
            self.make(proxy=f"http://127.0.0.1:{PORT}{proxy}", check_endpoint=endpoint)
            self.start()
            self.assertEqual(self.server.requests[0].target, target)

    def test_no_health_check(self) -> None:
        """With `none` it is ready as soon as it is spawned."""
        self.make(check_endpoint=" none ")
        self.server.listens = False
        self.successResultOf(self.start())
        self.assertEqual(self.server.checks, [])

    def test_time_is_over(self) -> None:
        """After `healthCheckTimeout` the start has failed, and the process gets no more than five seconds to end."""
        self.make(health_check_timeout=15.0)
        asked = self.start(health=503)
        for _ in range(160):
            self.reactor.turn(0.1)
        why = self.why(asked)
        self.assertIn("health check timed out after 15s", why)
        self.assertIn("status 503", why)
        self.assertEqual([stop[0] for stop in self.group.stops], [5.0])
        self.assertEqual(self.states, ["starting", "stopping", "stopped"])

    def test_process_that_dies_while_it_loads(self) -> None:
        """The waiter is told at once: with the exit code, and with the last lines of output."""
        asked = self.start(health=503)
        self.group.say(b"x" * 5000 + b"\nerror: no such file: m\xc3\xa4.gguf\n")
        self.group.exit(17)
        why = self.why(asked)
        self.assertTrue(why.startswith("upstream command exited prematurely: exit code 17"), why)
        self.assertTrue(why.endswith("error: no such file: mä.gguf"), why)
        self.assertLess(len(why), 1000)
        self.assertEqual(self.child.state, State.STOPPING)
        self.group.vanish()
        self.assertEqual(self.child.state, State.STOPPED)
        self.assert_quiet()

    def test_process_that_dies_silently(self) -> None:
        """Without output there is nothing to quote."""
        asked = self.start(health=503)
        self.group.exit(None, 9)
        self.assertEqual(self.why(asked), "upstream command exited prematurely: killed by signal 9")

    def test_command_that_cannot_be_started(self) -> None:
        """The error of the spawn is that of the start, in the same turn; nothing is sticky."""
        self.processes.error = StartError("failed to start command 'server': No such file or directory")
        self.assertIn("No such file", self.why(self.start()))
        self.assertEqual(self.states, ["starting", "stopping", "stopped"])
        self.successResultOf(self.start())

    def test_model_that_cannot_be_started_as_configured(self) -> None:
        """What the configuration lacks is said, and nothing is spawned."""
        for changes, text in (
            ({"proxy": ""}, "upstream proxy missing"),
            ({"proxy": "nowhere"}, 'invalid proxy URL "nowhere"'),
            ({"cmd": "  # only a comment"}, "unable to get sanitized command: empty command"),
        ):
            self.make(**changes)
            self.assertIn(text, self.why(self.start()))
            self.assertEqual(self.child.state, State.STOPPED)
        self.assertEqual(self.processes.groups, [])

    def test_internal_fault_during_the_start(self) -> None:
        """A bug of ours is logged with its traceback and costs this start only."""
        self.processes.error = RuntimeError("a bug")
        self.assertIn("internal error during the start: a bug", self.why(self.start()))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.successResultOf(self.start())

    def test_environment(self) -> None:
        """The process gets what lswap has, then the model's own: the last of equal names, and none without a name."""
        self.make(env=("OWN=1", "SHARED=inner", "OWN=a=b", "EMPTY=", "=x", "BARE"))
        self.start()
        self.assertEqual(
            self.group.environment, {"PATH": "/bin", "SHARED": "inner", "OWN": "a=b", "EMPTY": "", "BARE": ""}
        )

    def test_output_goes_to_the_log(self) -> None:
        """Of any time, as it came."""
        self.ready()
        self.group.say(b"one\n")
        self.group.say(b"tw\xffo")
        self.assertEqual(self.logs.model("a").history(), b"one\ntw\xffo")
        self.assertEqual(self.logs.upstream.history(), b"one\ntw\xffo")

    def test_many_wait_for_one_start(self) -> None:
        """All who ask meanwhile share the start, and its end."""
        first = self.start(health=503)
        others = [self.child.ensure_ready() for _ in range(3)]
        self.server.health = 200
        self.reactor.turn(1)
        for asked in [first, *others]:
            self.successResultOf(asked)
        self.assertEqual(len(self.processes.groups), 1)

    def test_ready_already(self) -> None:
        """Then nothing is done, and nobody waits."""
        self.ready()
        self.successResultOf(self.child.ensure_ready())
        self.assertEqual((self.states, len(self.processes.groups)), ([], 1))

    def test_waiter_that_leaves(self) -> None:
        """The start goes on; the others are served."""
        leaver = self.start(health=503)
        stayer = self.child.ensure_ready()
        leaver.cancel()
        self.failureResultOf(leaver, CancelledError)
        self.server.health = 200
        self.reactor.turn(1)
        self.successResultOf(stayer)
        self.assertEqual(self.child.state, State.READY)

    def test_waiter_that_sends_another_away(self) -> None:
        """When one that goes on cancels the next one, in the same turn, nothing breaks."""
        first = self.start(health=503)
        second, third = self.child.ensure_ready(), self.child.ensure_ready()
        first.addCallback(lambda _: second.cancel())
        self.server.health = 200
        self.reactor.turn(1)
        self.failureResultOf(second, CancelledError)
        self.successResultOf(third)

    def test_spawn_in_the_middle_of_another_call(self) -> None:
        """Who asks again from inside a callback gets a start of its own, after the one that failed."""
        asked = self.start(health=503)
        again: list[Deferred[None]] = []
        asked.addErrback(lambda _: again.append(self.child.ensure_ready()))
        self.group.exit(3)
        self.assertEqual(len(self.processes.groups), 1)
        self.group.vanish()
        self.server.health = 200
        self.reactor.turn(1)
        self.successResultOf(again[0])
        self.assertEqual(len(self.processes.groups), 2)


class PortTests(ChildCase):
    """Is the port that was allocated for the model really free?"""

    def test_taken(self) -> None:
        """Somebody who answers there is named, and nothing is spawned."""
        self.patch(start, "holder_of", lambda port: f"python3 (pid {port})")
        self.server.listen()
        why = self.why(self.start())
        self.assertIn(f"port {PORT} is taken by python3 (pid {PORT})", why)
        self.assertEqual(self.processes.groups, [])
        self.reactor.turn()
        self.assertEqual(self.server.connections, 0)

    def test_taken_by_nobody_knows_whom(self) -> None:
        """The error says so too where the holder cannot be found."""
        self.patch(start, "holder_of", lambda port: None)
        self.server.listen()
        self.assertIn("is taken by another program", self.why(self.start()))

    def test_silent(self) -> None:
        """A port that neither takes nor refuses is tried for two seconds, then taken for free."""
        self.server.listen()
        self.server.silent = True
        self.child.ensure_ready()
        self.reactor.turn()
        self.assertEqual(self.processes.groups, [])
        self.reactor.turn(2)
        self.assertEqual(len(self.processes.groups), 1)

    def test_port_of_the_users_own(self) -> None:
        """A port that lswap has not allocated may be in use: by a container, or a server that stays."""
        self.make(port=None)
        self.server.listen()
        self.successResultOf(self.start())

    def test_stopped_while_it_looks(self) -> None:
        """A stop at that moment ends the start for good: no process appears behind the owner's back."""
        for proxy in (f"http://localhost:{PORT}", f"http://127.0.0.1:{PORT}"):
            self.make(proxy=proxy)
            asked = self.child.ensure_ready()
            gone = self.child.stop(UNLOAD)
            self.assertIn("aborted", self.why(asked))
            self.successResultOf(gone)
            self.assert_quiet()
            self.assertEqual(self.processes.groups, [])

    def test_stopped_while_it_asks_who_has_it(self) -> None:
        """The same while the answer about the holder is awaited."""
        self.thread = lambda *args: Deferred()
        self.server.listen()
        asked = self.child.ensure_ready()
        self.reactor.turn()
        self.assertEqual(self.child.state, State.STARTING)
        self.child.stop(UNLOAD)
        self.assertIn("aborted", self.why(asked))
        self.assertEqual(self.child.state, State.STOPPED)


class StopTests(ChildCase):
    """From any state to nothing."""

    def test_ready(self) -> None:
        """The group is told to stop, with the model's time; the waiter goes on when nothing is left of it."""
        self.ready()
        gone = self.child.stop(UNLOAD)
        self.assertEqual([(grace, words) for grace, words, _ in self.group.stops], [(10.0, [])])
        self.assertNoResult(gone)
        self.assertEqual(self.states, ["stopping"])
        self.group.exit(0)
        self.assertNoResult(gone)
        self.group.vanish()
        self.successResultOf(gone)
        self.assertEqual(self.states, ["stopping", "stopped"])
        self.assertIsNone(self.child.pid)

    def test_stop_command(self) -> None:
        """`cmdStop` is split as a command is, knows the pid, and has the environment of the model."""
        self.make(cmd_stop="docker stop -t 5 'box ${PID}'", env=("MARK=1",))
        self.ready()
        self.child.stop(UNLOAD)
        _, words, environment = self.group.stops[0]
        self.assertEqual(words, ["docker", "stop", "-t", "5", f"box {self.group.pid}"])
        self.assertEqual(environment, {"PATH": "/bin", "SHARED": "outer", "MARK": "1"})

    def test_starting(self) -> None:
        """The waiters for readiness are told at once; the process has five seconds at most."""
        for unload_timeout, grace in ((10.0, 5.0), (2.0, 2.0)):
            self.setUp()
            self.make(unload_timeout=unload_timeout)
            asked = self.start(health=503)
            gone = self.child.stop(UNLOAD)
            self.assertEqual(self.why(asked), "aborted: the model was stopped while it was starting")
            self.assertEqual([stop[0] for stop in self.group.stops], [grace])
            self.reactor.turn()
            self.successResultOf(gone)
            self.assert_quiet()

    def test_stopped(self) -> None:
        """There is nothing to do, and nobody waits."""
        self.successResultOf(self.child.stop(UNLOAD))
        self.successResultOf(self.child.stop(UNLOAD))
        self.assertEqual(self.states, [])

    def test_twice(self) -> None:
        """The second one waits for the same end."""
        self.ready()
        self.group.obeys = False
        first, second = self.child.stop(UNLOAD), self.child.stop(UNLOAD)
        self.group.end()
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(self.states, ["stopping", "stopped"])

    def test_start_meanwhile(self) -> None:
        """Who wants it while it ends gets a new process, when the old one is gone and not before."""
        self.ready()
        self.group.obeys = False
        gone = self.child.stop(UNLOAD)
        asked = self.child.ensure_ready()
        self.reactor.turn(1)
        self.assertEqual((self.child.state, len(self.processes.groups)), (State.STOPPING, 1))
        self.group.end()
        self.successResultOf(gone)
        self.reactor.turn()
        self.successResultOf(asked)
        self.assertEqual(len(self.processes.groups), 2)
        self.assertEqual(self.states, ["stopping", "starting", "ready"])

    def test_stop_after_a_start_meanwhile(self) -> None:
        """The last word counts: then it is not started again, and who waited for that is told."""
        self.ready()
        self.group.obeys = False
        self.child.stop(UNLOAD)
        asked = self.child.ensure_ready()
        gone = self.child.stop(UNLOAD)
        self.assertIn("aborted", self.why(asked))
        self.group.end()
        self.successResultOf(gone)
        self.assertEqual(self.child.state, State.STOPPED)

    def test_idle_connections_close(self) -> None:
        """What is kept open to the server is closed when its end begins."""
        self.ready()
        self.assertEqual(self.server.connections, 1)
        self.group.obeys = False
        self.child.stop(UNLOAD)
        self.reactor.turn()
        self.assertEqual(self.server.connections, 0)

    def test_dies_by_itself(self) -> None:
        """Then it is stopped, without anybody having asked; what is left of its group is ended too."""
        self.ready()
        self.group.exit(0)
        self.assertEqual(self.states, ["stopping"])
        self.group.vanish()
        self.assertEqual(self.states, ["stopping", "stopped"])
        self.assertEqual(len(self.group.stops), 1)
        self.successResultOf(self.start())

    def test_dies_during_its_stop(self) -> None:
        """That is the end that was wanted."""
        self.ready()
        gone = self.child.stop(UNLOAD)
        self.reactor.turn()
        self.successResultOf(gone)
        self.assertEqual(self.states, ["stopping", "stopped"])

    def test_kill(self) -> None:
        """By force, at once; nothing starts after that."""
        self.ready()
        self.child.kill()
        self.assertEqual(self.group.kills, 1)
        self.reactor.turn()
        self.assertEqual(self.why(self.start()), "lswap is shutting down")
        self.child.kill()
        self.assertEqual(len(self.processes.groups), 1)

    def test_when_gone(self) -> None:
        """It only waits, for the process that there is."""
        self.successResultOf(self.child.when_gone())
        self.ready()
        gone = self.child.when_gone()
        self.assertEqual(self.states, [])
        self.group.obeys = False
        self.child.stop(UNLOAD)
        asked = self.child.ensure_ready()
        self.group.end()
        self.successResultOf(gone)
        self.reactor.turn()
        self.successResultOf(asked)

    def test_internal_fault_at_the_end(self) -> None:
        """When the polite end cannot even be asked for, the process is killed instead, and the waiter goes on."""
        self.ready()
        self.patch(self.group, "stop", self.broken)
        gone = self.child.stop(UNLOAD)
        self.assertEqual(self.group.kills, 1)
        self.reactor.turn()
        self.successResultOf(gone)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def broken(self, *args: object) -> None:
        """A bug."""
        raise RuntimeError("a bug")

    def test_listener_that_fails(self) -> None:
        """Whoever is told of the states cannot hold up what they stand for."""
        self.on_state = self.broken
        self.successResultOf(self.start())
        gone = self.child.stop(UNLOAD)
        self.reactor.turn()
        self.successResultOf(gone)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 4)

    def test_stop_from_inside(self) -> None:
        """A listener that wants the opposite, in the middle of a change, is heard after it."""

        def against(state: State) -> None:
            if state is State.STARTING:
                self.child.stop(UNLOAD)

        self.on_state = against
        asked = self.start()
        self.assertIn("aborted", self.why(asked))
        self.assertEqual(self.states, ["starting", "stopping", "stopped"])
        self.assertEqual(self.processes.running, [])


class ShutTests(ChildCase):
    """The end for good."""

    def test_each_state(self) -> None:
        """From each state the waiter goes on when nothing is left; later starts are refused."""
        for prepare in (lambda: None, self.ready, self.starting, self.ready_and_stopping):
            self.setUp()
            prepare()
            gone = self.child.shut()
            self.reactor.turn()
            self.successResultOf(gone)
            self.assertEqual(self.child.state, State.SHUTDOWN)
            self.assertEqual(self.processes.running, [])
            self.assertEqual(self.why(self.child.ensure_ready()), "lswap is shutting down")
            self.successResultOf(self.child.stop(UNLOAD))
            self.successResultOf(self.child.shut())
            self.assertEqual(self.why(self.child.ensure_ready()), "lswap is shutting down")

    def starting(self) -> None:
        """It starts, and somebody waits for it."""
        self.start(503).addErrback(lambda _: None)

    def ready_and_stopping(self) -> None:
        """It ends already, and is wanted again."""
        self.ready()
        self.child.stop(UNLOAD)
        self.child.ensure_ready().addErrback(lambda _: None)

    def test_those_who_wait(self) -> None:
        """Whoever waits for readiness is told."""
        asked = self.start(health=503)
        self.child.shut()
        self.assertEqual(self.why(asked), "lswap is shutting down")
        self.reactor.turn()

    def test_restart_that_was_wanted(self) -> None:
        """A start that waits for the end of the old process does not come any more."""
        self.ready()
        self.child.stop(UNLOAD)
        asked = self.child.ensure_ready()
        self.child.shut()
        self.assertEqual(self.why(asked), "lswap is shutting down")
        self.reactor.turn(1)
        self.assertEqual(len(self.processes.groups), 1)

    def test_close(self) -> None:
        """All connections to the server are closed."""
        self.ready()
        self.child.close()
        self.reactor.turn()
        self.assertEqual(self.server.connections, 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.make(proxy="")
        self.child.close()


class VanishedTests(ChildCase):
    """Whether a process whose port refuses connections is dead."""

    def test_not_there(self) -> None:
        """Unless it is ready, the answer is known."""
        self.assertTrue(self.successResultOf(self.child.vanished(1)))
        self.start(health=503)
        self.assertTrue(self.successResultOf(self.child.vanished(1)))

    def test_dies_in_time(self) -> None:
        """The news of its death are the answer, before all of it is gone."""
        self.ready()
        asked = self.child.vanished(1)
        self.reactor.turn(0.9)
        self.assertNoResult(asked)
        self.group.exit(1)
        self.assertTrue(self.successResultOf(asked))
        self.group.vanish()
        self.assert_quiet()

    def test_lives_on(self) -> None:
        """After that time it is taken for alive."""
        self.ready()
        asked = self.child.vanished(1)
        self.reactor.turn(1)
        self.assertFalse(self.successResultOf(asked))
        self.group.end(1)

    def test_given_up(self) -> None:
        """Who does not want to know any more is told nothing, in whatever state it is by then."""
        self.ready()
        asked = self.child.vanished(1)
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.group.end(1)
        self.assert_quiet()


class FakeTests(SynchronousTestCase):
    """The made-up process takes what the real one takes."""

    def test_signatures(self) -> None:
        """Same methods, same arguments."""
        for real, fake, names in (
            (Processes, FakeProcesses, ("spawn",)),
            (Group, FakeGroup, ("stop", "kill")),
        ):
            for name in names:
                self.assertEqual(
                    list(inspect.signature(getattr(real, name)).parameters.values())[1:],
                    [
                        *list(inspect.signature(getattr(fake, name)).parameters.values())[1:],
                    ],
                    name,
                )

    def test_exit_has_words(self) -> None:
        """What a test says of an end is what users read."""
        self.assertEqual(Exit(code=17, signal=None).words, "exit code 17")
        self.assertEqual(Exit(code=None, signal=9).words, "killed by signal 9")
