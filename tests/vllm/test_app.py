"""The life of a wrapper (`lswap.vllm.app`): start, wake, share, sleep, and all that may go wrong."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess

from twisted.internet.error import CannotListenError

from lswap.net.birth import birth_of
from lswap.net.supervisor import BEAT, Supervisor
from lswap.vllm import state
from lswap.vllm.state import Record, ServerState
from tests.signals import Manager
from tests.vllm.vllm_case import PROGRAM, URL, VllmCase


class ColdStartTests(VllmCase):
    """No server is there."""

    def test_daemon_is_started(self) -> None:
        """In a session of its own, with our environment and vLLM's development mode; the port opens later."""
        service = self.serve()
        self.assertEqual(self.daemon.words, ["/usr/bin/setsid", PROGRAM, "serve"])
        self.assertEqual(self.daemon.environment, {"VLLM_SERVER_DEV_MODE": "1", "A": "1"})
        self.pass_time(3)
        self.assertEqual((self.reactor.ports, service.exit_code), ([], 0))
        self.vllm.listen()
        self.pass_time(0.5)
        self.assertEqual([port.port for port in self.reactor.ports], [9000])
        self.assertEqual(self.vllm.calls, [])
        self.successResultOf(self.end(service))
        self.assertEqual(self.daemon.signals, [])

    def test_supervisor(self) -> None:
        """It is asked for time until the port is open, and only then told that it is."""
        manager = Manager()
        service = self.made()
        service.supervisor = Supervisor(self.reactor, manager)
        self.begin(service)
        self.pass_time(BEAT + 0.5)
        extend = b"EXTEND_TIMEOUT_USEC=15000000"
        self.assertEqual(manager.heard, [b"STATUS=waiting for the server", extend])
        self.vllm.listen()
        self.pass_time(0.5)
        self.assertEqual(manager.heard[2:], [b"STATUS=listening on :9000", b"READY=1"])
        self.successResultOf(self.end(service))
        self.assertEqual(manager.heard[4:], [b"STOPPING=1\n" + extend])

    def test_no_proxy(self) -> None:
        """Proxy variables are for others: the server is on this machine."""
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            self.patch(os, "environ", {**os.environ, name: "http://192.0.2.1:3128"})
        self.vllm.listen()
        service = self.serve()
        self.pass_time(0.5)
        client = self.client(service)
        client.chat("m")
        self.reactor.turn()
        self.assertEqual(self.vllm.request.target, "/v1/chat/completions")
        client.leave()
        self.end(service)

    def test_mode_of_the_environment_wins(self) -> None:
        """Somebody may have set it."""
        service = self.serve()
        service.daemon.start([PROGRAM], {"VLLM_SERVER_DEV_MODE": "0"})
        self.assertEqual(self.daemon.environment, {"VLLM_SERVER_DEV_MODE": "0"})
        self.end(service)

    def test_what_it_says_is_shown(self) -> None:
        """Through its log file, as it has no pipe of ours."""
        service = self.serve()
        self.daemon.write_output(b"loading\n")
        self.daemon.write_output(b"still loading\n", 2)
        self.pass_time(0.2)
        self.assertIn(b"loading\nstill loading\n", self.said)
        self.end(service)

    def test_its_first_words_are_shown(self) -> None:
        """However little an earlier one has said."""
        path = ServerState(pathlib.Path(self.folder), URL).log
        path.write_bytes(b"old\n")
        service = self.serve()
        self.daemon.write_output(b"much more than the old one has said\n")
        self.pass_time(0.2)
        self.assertIn(b"much more than the old one has said\n", self.said)
        self.assertNotIn(b"old\n", self.said)
        self.end(service)

    def test_ends_during_the_start(self) -> None:
        """Noticed at once, with its last words."""
        service = self.serve()
        self.daemon.write_output(b"out of memory\n")
        self.daemon.exit(1)
        self.pass_time(0.1)
        self.assertTrue(self.given_up(service))
        self.assertIn(b"the daemon ended during its start: exit code 1", self.said)
        self.successResultOf(self.end(service))
        self.assertIn(b"out of memory\n", self.said)
        self.assertIsNone(service.state.record())

    def test_a_command_that_starts_it_elsewhere(self) -> None:
        """`systemd-run` ends well at once; the server comes all the same."""
        service = self.serve()
        self.daemon.exit(0)
        self.pass_time(2)
        self.assertEqual(service.exit_code, 0)
        self.vllm.listen()
        self.pass_time(0.5)
        self.assertEqual(len(self.reactor.ports), 1)
        self.successResultOf(self.end(service))

    def test_never_healthy(self) -> None:
        """Ended after a while, and forgotten."""
        service = self.serve(wait_timeout=5.0)
        self.vllm.health = 503
        self.vllm.statuses["/wake_up"] = 503
        self.vllm.listen()
        self.pass_time(5.5)
        self.assertTrue(self.given_up(service))
        self.assertIn(b"daemon did not become healthy", self.said)
        self.assertFalse(self.daemon.alive)
        self.assertEqual(self.daemon.signals[-1], signal.SIGKILL)
        self.assertIsNone(service.state.record())
        self.successResultOf(self.end(service))
        self.assertEqual(self.vllm.calls, [])

    def test_cannot_be_started(self) -> None:
        """An error with the reason."""
        service = self.serve(daemon=("/nonexistent/vllm",))
        self.assertTrue(self.given_up(service))
        self.assertIn(b"failed to start command '/nonexistent/vllm'", self.said)
        self.successResultOf(self.end(service))

    def test_stopped_during_the_start(self) -> None:
        """A daemon that nobody can use yet does not stay."""
        for interrupted in (False, True):
            service = self.serve()
            daemon = self.daemon
            ended = self.end(service, interrupted)
            self.pass_time(0.2)
            self.assertFalse(daemon.alive)
            self.successResultOf(ended)
            self.assertEqual((service.exit_code, daemon.signals), (0, [signal.SIGTERM]))

    def test_taken_port(self) -> None:
        """An error; the server, which nobody else uses, sleeps again."""
        self.reactor.listen_error = CannotListenError("", 9000, OSError(98, "Address already in use"))
        self.vllm.listen()
        service = self.serve()
        self.assertTrue(self.given_up(service))
        self.assertIn(b"cannot listen on :9000", self.said)
        self.successResultOf(self.end(service))
        self.assertTrue(self.vllm.asleep)


class WarmStartTests(VllmCase):
    """A server is there."""

    def test_awake(self) -> None:
        """Used as it is."""
        self.vllm.listen()
        service = self.serve()
        self.assertEqual((len(self.reactor.ports), self.vllm.calls, self.reactor.processes), (1, [], []))
        self.end(service)

    def test_asleep(self) -> None:
        """Woken."""
        self.vllm.asleep = True
        self.vllm.listen()
        service = self.serve()
        self.assertEqual((len(self.reactor.ports), self.vllm.calls), (1, ["POST /wake_up"]))
        self.end(service)

    def test_one_that_does_not_say(self) -> None:
        """Woken, to be sure; a failure of that is a warning only."""
        self.vllm.tells = False
        self.vllm.statuses["/wake_up"] = 404
        self.vllm.listen()
        service = self.serve()
        self.assertEqual((len(self.reactor.ports), self.vllm.calls), (1, ["POST /wake_up"]))
        self.assertIn(b"could not be woken", self.said)
        self.end(service)

    def test_still_loading(self) -> None:
        """It answers, but not well: waited for, and nothing is started."""
        self.vllm.health = 503
        self.vllm.listen()
        service = self.serve()
        self.pass_time(3)
        self.vllm.health = 200
        self.pass_time(0.5)
        self.assertEqual((len(self.reactor.ports), self.reactor.processes), (1, []))
        self.end(service)

    def test_healthy_no_more(self) -> None:
        """One that is healthy at first, and then not, is waited for a short time only."""
        self.vllm.asleep = True
        self.vllm.listen()
        self.vllm.statuses["/wake_up"] = None
        service = self.serve()
        self.vllm.health = 500
        self.pass_time(121)
        self.pass_time(11)
        self.assertTrue(self.given_up(service))
        self.end(service)

    def test_a_daemon_of_a_wrapper_that_was_killed(self) -> None:
        """It was left in the middle of its start: waited for, and no second one is started."""
        state = self.state()
        state.write_record(Record(pid=1, birth=birth_of(1) or "", words=("vllm",)))
        service = self.serve()
        self.pass_time(3)
        self.assertEqual(self.reactor.processes, [])
        self.vllm.listen()
        self.pass_time(0.5)
        self.assertEqual(len(self.reactor.ports), 1)
        self.end(service)

    def test_it_ends_while_it_is_waited_for(self) -> None:
        """Told at once."""
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.state().write_record(Record(pid=process.pid, birth=birth_of(process.pid) or ""))
        service = self.serve()
        self.pass_time(1)
        self.assertEqual(service.exit_code, 0)
        process.communicate()
        self.pass_time(1)
        self.assertTrue(self.given_up(service))
        self.end(service)

    def test_one_that_hangs(self) -> None:
        """It is ended when its time is over, so that the next wrapper can start another one."""
        first = self.serve()
        hanging = self.daemon
        first.state.acting.release()  # its wrapper was killed
        self.patch(state, "birth_of", lambda pid: "then" if hanging.alive else None)
        self.state().write_record(Record(pid=hanging.number or 0, birth="then"))
        service = self.serve(wait_timeout=5.0)
        self.pass_time(6)
        self.assertTrue(self.given_up(service))
        self.assertFalse(hanging.alive)
        self.assertIsNone(service.state.record())
        self.end(service)
        self.end(first)

    def test_a_record_of_somebody_else(self) -> None:
        """The number of the process was given anew, or the machine was restarted: a daemon is started."""
        for birth in ("boot:1", ""):
            self.state().write_record(Record(pid=os.getpid(), birth=birth))
            service = self.serve()
            self.assertEqual(self.daemon.words[1:], [PROGRAM, "serve"])
            self.end(service)
            self.pass_time(1)

    def state(self) -> ServerState:
        """The files of the server."""
        return ServerState(pathlib.Path(self.folder), URL)


class LevelTests(VllmCase):
    """What level 2 asks for."""

    def test_weights_are_loaded_again(self) -> None:
        """In the order that vLLM says, whoever has put it to sleep at that level."""
        self.vllm.asleep = True
        self.vllm.listen()
        service = self.serve(sleep_level=2)
        steps = ["/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache", "/reset_prefix_cache"]
        self.assertEqual(self.vllm.calls, [f"POST {step}" for step in steps])
        self.successResultOf(self.end(service))
        self.assertEqual(self.vllm.calls[-1], "POST /sleep?level=2")
        self.vllm.calls.clear()
        self.end(self.serve(sleep_level=1))
        self.assertEqual(self.vllm.calls, [*(f"POST {step}" for step in steps), "POST /sleep?level=1"])

    def test_weights_that_cannot_be_loaded(self) -> None:
        """It would answer nonsense: it sleeps again, and the wrapper ends with an error."""
        self.vllm.asleep = True
        self.vllm.statuses["/collective_rpc"] = 500
        self.vllm.listen()
        service = self.serve(sleep_level=2)
        self.assertTrue(self.given_up(service))
        self.assertEqual(self.reactor.ports, [])
        self.assertEqual(self.vllm.calls[-1], "POST /sleep?level=2")
        self.end(service)
        self.assertTrue(self.vllm.asleep)


class ServeTests(VllmCase):
    """Requests."""

    def test_passed_on(self) -> None:
        """As they are, Host included."""
        self.vllm.listen()
        service = self.serve()
        self.vllm.says = b"answer"
        client = self.client(service)
        answer = client.ask("POST", "/v1/a%2Fb?x=1", b"{}", [("Host", "front"), ("X-Mine", "1")])
        self.assertEqual(answer.body, b"answer")
        request = self.vllm.request
        self.assertEqual((request.method, request.target, request.body), ("POST", "/v1/a%2Fb?x=1", b"{}"))
        self.assertEqual((request.header("Host"), request.header("X-Mine")), ("front", "1"))
        self.end(service)

    def test_the_server_is_gone(self) -> None:
        """502, and the wrapper ends: whoever has started it will start both anew."""
        self.vllm.listen()
        service = self.serve()
        self.vllm.shut()
        client = self.client(service)
        answer = client.ask("GET", "/v1/models")
        self.assertEqual(answer.status, 502)
        self.assertTrue(json.loads(answer.body)["error"]["message"])
        self.assertTrue(self.given_up(service))
        self.successResultOf(self.end(service))
        self.assertEqual(self.vllm.calls, [])

    def test_a_connection_that_breaks(self) -> None:
        """502, and the wrapper stays: the server is there."""
        self.vllm.listen()
        service = self.serve()
        client = self.client(service)
        client.send("POST", "/v1/completions", b"{}")
        self.vllm.request.close()
        self.assertEqual(client.read().status, 502)
        self.assertEqual(service.exit_code, 0)
        self.end(service)

    def test_the_daemon_dies(self) -> None:
        """Without a request, too. What is left of its group ends with it."""
        service = self.serve()
        self.vllm.listen()
        self.pass_time(0.5)
        self.vllm.shut()
        self.daemon.children[200_000] = set()
        self.daemon.exit(None, 9)
        self.reactor.turn()
        self.assertTrue(self.given_up(service))
        ended = self.end(service)
        self.pass_time(0.1)
        self.successResultOf(ended)
        self.assertEqual(self.daemon.children, {})

    def test_the_start_command_ends_late(self) -> None:
        """A command that has started the server elsewhere may end while that serves."""
        service = self.serve()
        self.vllm.listen()
        self.pass_time(0.5)
        self.daemon.exit(0)
        self.reactor.turn()
        self.assertEqual(service.exit_code, 0)
        self.vllm.shut()
        self.end(service)


class EndTests(VllmCase):
    """Sleep, and how it goes wrong."""

    def test_sleep(self) -> None:
        """With the level in the query; the daemon stays, its level is remembered."""
        service = self.serve()
        self.vllm.listen()
        self.pass_time(0.5)
        self.successResultOf(self.end(service))
        self.assertEqual((self.vllm.calls, service.exit_code), (["POST /sleep?level=1"], 0))
        self.assertEqual((self.daemon.alive, service.state.level), (True, 1))

    def test_no_content_is_a_success(self) -> None:
        """204 is as good as 200."""
        self.vllm.listen()
        self.vllm.statuses["/sleep"] = 204
        self.successResultOf(self.end(self.serve()))
        self.assertNotIn(b"not put to sleep", self.said)

    def test_interrupt(self) -> None:
        """The server stays awake."""
        self.vllm.listen()
        self.successResultOf(self.end(self.serve(), interrupted=True))
        self.assertEqual(self.vllm.calls, [])

    def test_signals(self) -> None:
        """A hangup ends it as SIGTERM does; only SIGINT leaves the server awake."""
        self.vllm.listen()
        for number, calls in ((signal.SIGHUP, 1), (signal.SIGTERM, 1), (signal.SIGINT, 0)):
            service = self.serve()
            self.vllm.calls.clear()
            self.reactor.stops = 0
            signal.raise_signal(number)
            self.reactor.turn()
            self.assertEqual(self.reactor.stops, 1)
            self.successResultOf(self.end(service))
            self.assertEqual([call for call in self.vllm.calls if "/sleep" in call], ["POST /sleep?level=1"] * calls)

    def test_asleep_already(self) -> None:
        """`lswap-vllm sleep` came before: not again."""
        self.vllm.listen()
        service = self.serve()
        self.vllm.asleep = True
        self.successResultOf(self.end(service))
        self.assertEqual(self.vllm.calls, [])

    def test_after_the_last_answer(self) -> None:
        """Running answers come to their end first."""
        self.vllm.listen()
        service = self.serve()
        client = self.client(service)
        client.send("POST", "/v1/completions", b"{}")
        self.vllm.request.begin()
        ended = self.end(service)
        self.pass_time(5)
        self.assertEqual(self.vllm.calls, [])
        self.vllm.request.chunk(b"")
        self.reactor.turn()
        self.assertTrue(client.read().complete)
        self.successResultOf(ended)
        self.assertEqual(self.vllm.calls, ["POST /sleep?level=1"])

    def test_an_answer_without_end(self) -> None:
        """Cut after 10 s, which is an error; the server sleeps all the same."""
        self.vllm.listen()
        service = self.serve()
        client = self.client(service)
        client.send("POST", "/v1/completions", b"{}")
        self.vllm.request.begin()
        ended = self.end(service)
        self.pass_time(12)
        self.successResultOf(ended)
        self.assertEqual((service.exit_code, self.vllm.calls), (1, ["POST /sleep?level=1"]))

    def test_it_cannot_sleep(self) -> None:
        """A warning, and the end; bounded in time, also where no answer comes."""
        self.vllm.listen()
        for status, seconds in ((500, 0.0), (None, 61.0)):
            self.vllm.statuses["/sleep"] = status
            service = self.serve()
            ended = self.end(service)
            self.pass_time(seconds)
            self.successResultOf(ended)
            self.assertEqual(service.exit_code, 0)
        self.assertEqual(self.said.count(b"the server was not put to sleep"), 2)

    def test_impatience(self) -> None:
        """A signal while it is put to sleep ends the wait for that."""
        self.vllm.listen()
        self.vllm.statuses["/sleep"] = None
        service = self.serve()
        signal.raise_signal(signal.SIGTERM)
        self.reactor.turn()
        ended = self.end(service)
        self.assertNoResult(ended)
        signal.raise_signal(signal.SIGTERM)
        self.reactor.turn()
        self.successResultOf(ended)


class SharingTests(VllmCase):
    """Two wrappers of one server."""

    def test_one_starts_it(self) -> None:
        """The other waits for its turn, and finds it ready."""
        one, two = self.serve(), self.serve(listen=":9001")
        self.pass_time(3)
        self.assertEqual(len(self.reactor.processes), 1)
        self.vllm.listen()
        self.pass_time(1)
        self.assertEqual(sorted(port.port for port in self.reactor.ports), [9000, 9001])
        self.assertEqual(len(self.reactor.processes), 1)
        self.end(one)
        self.end(two)

    def test_the_last_one_puts_it_to_sleep(self) -> None:
        """Whoever ends first leaves it awake for the other."""
        self.vllm.listen()
        one, two = self.serve(), self.serve(listen=":9001")
        self.successResultOf(self.end(one))
        self.assertEqual(self.vllm.calls, [])
        self.successResultOf(self.end(two))
        self.assertEqual(self.vllm.calls, ["POST /sleep?level=1"])

    def test_one_that_waits_too_long(self) -> None:
        """It gives up, with an error."""
        one, two = self.serve(), self.serve(listen=":9001", wait_timeout=5.0)
        self.pass_time(5.1)
        self.assertTrue(self.given_up(two))
        self.end(two)
        self.assertTrue(self.daemon.alive)
        self.end(one)
        self.pass_time(1)

    def test_one_that_starts_keeps_it_awake(self) -> None:
        """The end of another waits for its turn, but not for long."""
        self.vllm.listen()
        one = self.serve()
        self.vllm.health = 503
        two = self.serve(listen=":9001")
        ended = self.end(one)
        self.pass_time(2.2)
        self.successResultOf(ended)
        self.assertEqual(self.vllm.asleep, False)
        self.end(two)
