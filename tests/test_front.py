"""How a small front starts and ends (`lswap.front`), with `lswap-wol` as the one that does, in memory."""

from __future__ import annotations

import signal
from unittest import mock

from twisted.internet.error import CannotListenError

from lswap import front
from lswap.net.listen import CannotListen
from lswap.net.supervisor import Supervisor
from tests.memory import MemoryClient
from tests.signals import Manager, SignalCase
from tests.wol.wol_case import WolCase


class FrontCase(SignalCase, WolCase):
    """A front that is not started yet."""

    def setUp(self) -> None:
        """The host sleeps."""
        self.patch(front, "raise_file_limit", lambda: None)
        self.patch(front, "gc", mock.Mock())
        super().setUp()

    def going_on(self) -> None:
        """It has not ended yet."""
        assert self.ended is not None
        self.assertNoResult(self.ended)

    def assert_ended(self) -> None:
        """All of it is over, and nothing is left."""
        assert self.ended is not None
        self.successResultOf(self.ended)
        self.reactor.turn()
        self.assertEqual(self.service.site.channels, set())
        self.assertFalse(self.reactor.ports[-1].open)
        self.assertEqual(self.current_handlers(), self.handlers)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(self.service.exit_code, 0)
        self.assertTrue(self.waker.closed)

    def running_answer(self) -> MemoryClient:
        """A client whose answer has begun."""
        self.awake()
        client = self.client()
        client.send("GET", "/slow")
        self.host.request.begin()
        self.host.request.chunk(b"one")
        self.reactor.turn()
        return client


class StartTests(FrontCase):
    """The port."""

    def test_start_and_end(self) -> None:
        """It opens, and closes at the first signal; idle connections are closed at once."""
        self.start()
        self.assertEqual([port.port for port in self.reactor.ports], [8080])
        idle = self.client()
        idle.ask("GET", "/status")
        self.signal(signal.SIGINT)
        self.assert_ended()
        self.assertTrue(idle.closed)

    def test_start_in_one_step(self) -> None:
        """A runner that knows no privileges gets an open port too, and only one."""
        self.service.startService()
        self.assertEqual(len(self.reactor.ports), 1)
        self.signal()
        self.assert_ended()

    def test_port_is_taken(self) -> None:
        """The program ends with a text; no handler of signals stays."""
        self.reactor.listen_error = CannotListenError("", 8080, OSError(98, "Address already in use"))
        problem = self.assertRaises(CannotListen, self.service.privilegedStartService)
        self.assertIn("cannot listen on :8080", str(problem))
        self.assertEqual(self.current_handlers(), self.handlers)

    def test_supervisor(self) -> None:
        """It hears when the port is open, and when the end begins."""
        manager = Manager()
        self.service.supervisor = Supervisor(self.reactor, manager)
        self.start()
        self.assertEqual(manager.heard, [b"STATUS=listening on :8080", b"READY=1"])
        self.signal()
        self.assertTrue(manager.heard[2].startswith(b"STOPPING=1\n"), manager.heard)
        self.assert_ended()

    def test_hangup(self) -> None:
        """No reason to end."""
        self.start()
        self.signal(signal.SIGHUP)
        self.assertEqual(self.reactor.stops, 0)
        self.signal()
        self.assert_ended()


class EndTests(FrontCase):
    """Requests under way."""

    def test_a_running_answer_may_end(self) -> None:
        """It is waited for, and comes to its end."""
        self.start()
        client = self.running_answer()
        self.signal()
        self.reactor.turn(5)
        self.going_on()
        self.host.request.chunk(b"two")
        self.host.request.chunk(b"")
        self.reactor.turn()
        answer = client.read()
        self.assertEqual((answer.body, answer.complete), (b"onetwo", True))
        self.assert_ended()

    def test_one_that_does_not_end(self) -> None:
        """It is cut after a while, and looks so."""
        self.start()
        client = self.running_answer()
        self.signal()
        self.reactor.turn(self.service.drain_limit - 0.1)
        self.going_on()
        self.reactor.turn(0.1)
        self.reactor.turn(1)
        self.assertFalse(client.read().complete)
        self.reactor.turn(20)
        self.assert_ended()

    def test_second_signal(self) -> None:
        """At once."""
        self.start()
        client = self.running_answer()
        self.signal()
        self.going_on()
        self.signal()
        self.reactor.turn(0.1)
        self.assertFalse(client.read().complete)
        self.reactor.turn(20)
        self.assert_ended()

    def test_those_who_wait_are_told(self) -> None:
        """They hold nothing up."""
        self.start()
        client = self.client()
        client.send("GET", "/v1/models")
        self.signal()
        self.assertEqual(client.read().status, 503)
        self.assert_ended()

    def test_a_client_that_does_not_read(self) -> None:
        """It is not waited for longer than the others."""
        self.start()
        client = self.running_answer()
        self.host.request.chunk(b"x" * 1_000_000)
        self.reactor.turn()
        self.signal()
        self.reactor.turn(self.service.drain_limit)
        self.reactor.turn(2)
        self.assert_ended()
        self.assertTrue(client.closed)
