"""A machine that may be asleep (`lswap.service.sleeper`): how it is watched, woken, and waited for."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.vigil import HEARTBEAT
from lswap.errors import HostAsleep
from lswap.service.sleeper import LOOK_LIMIT, REPEAT, Bedroom, Sleeper
from tests.memory import MemoryReactor
from tests.sleeping import FakeWaker, Host


class SleeperCase(SynchronousTestCase):
    """A host that is down, watched."""

    bedroom = Bedroom(url="http://10.0.0.1:8080/base", api_key="k-5ecret", timeout=60)

    def setUp(self) -> None:
        """Nothing listens yet."""
        self.reactor = MemoryReactor()
        self.host = Host("host", self.reactor, ("10.0.0.1", 8080))
        self.waker = FakeWaker()
        self.sleeper = Sleeper(self.reactor, self.bedroom, self.waker)
        self.sleeper.start()
        self.reactor.turn()

    def tearDown(self) -> None:
        """Once stopped, nothing is left."""
        self.sleeper.stop()
        self.sleeper.stop()
        self.reactor.turn()
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertTrue(self.waker.closed)
        self.assertEqual(self.sleeper.waiting, 0)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in small steps."""
        for _ in range(round(seconds / 0.05)):
            self.reactor.turn(0.05)

    def awake(self) -> None:
        """Have the host up and known to be."""
        self.host.listen()
        self.sleeper.doubt()
        self.reactor.turn()
        self.assertTrue(self.sleeper.ready)


class WatchTests(SleeperCase):
    """Awake or asleep."""

    def test_not_ready_at_first(self) -> None:
        """Looks in vain are counted, and come at longer and longer intervals."""
        self.assertEqual((self.sleeper.ready, self.sleeper.failures), (False, 1))
        self.pass_time(60)
        self.assertTrue(10 < self.sleeper.failures < 16, self.sleeper.failures)

    def test_answers_of_the_health_check_make_it_ready(self) -> None:
        """The path of the URL does not matter; the key goes along."""
        self.awake()
        self.assertEqual(self.sleeper.failures, 0)
        check = self.host.checks[0]
        self.assertEqual((check.target, check.header("Authorization")), ("/wol-health", "Bearer k-5ecret"))

    def test_errors_do_not(self) -> None:
        """A server that is there and not well is not ready."""
        self.host.check = 503
        self.host.listen()
        self.pass_time(2)
        self.assertFalse(self.sleeper.ready)
        self.assertTrue(self.host.checks)

    def test_no_more_than_one_word_a_night(self) -> None:
        """The log tells of a change, and not of each look in vain."""
        with capturedLogs() as events:
            self.pass_time(600)
            self.awake()
            self.pass_time(20)
        told = [formatEvent(event) for event in events if event["log_level"] > LogLevel.debug]
        self.assertEqual(told, ["http://10.0.0.1:8080 is awake"])

    def test_the_end_of_its_stream_is_told_at_once(self) -> None:
        """The machine shuts down in order: one look makes sure, without waiting for the next heartbeat."""
        self.awake()
        self.assertEqual(len(self.host.streams), 1)
        self.host.shut()
        self.reactor.turn()
        self.assertEqual((self.sleeper.ready, self.sleeper.failures), (False, 1))

    def test_the_end_of_its_stream_alone_means_nothing(self) -> None:
        """The server may have its reasons; the stream is followed anew, but not in a hurry."""
        self.awake()
        for count in range(2, 5):
            self.host.streams[-1].close()
            self.reactor.turn()
            self.assertTrue(self.sleeper.ready)
            self.assertEqual(len(self.host.streams), count - 1)
            self.pass_time(HEARTBEAT + 0.2)
            self.assertEqual(len(self.host.streams), count)

    def test_a_host_without_events_is_told_by_its_health_check(self) -> None:
        """A key may be missing; two misses in a row are the end then."""
        self.host.events = 401
        self.awake()
        self.pass_time(10)
        self.assertEqual(len(self.host.streams), 1)
        checks = len(self.host.checks)
        while len(self.host.checks) == checks:
            self.pass_time(0.05)
        self.host.shut()
        self.pass_time(1)
        self.assertTrue(self.sleeper.ready)
        self.pass_time(3)
        self.assertFalse(self.sleeper.ready)
        self.host.listen()
        self.pass_time(5)
        self.assertEqual(len(self.host.streams), 2)

    def test_events_that_never_begin(self) -> None:
        """An answer that does not come is given up, and the health check goes on."""
        self.host.events = None
        self.awake()
        self.pass_time(10)
        self.assertTrue(self.sleeper.ready)
        self.assertEqual(len(self.host.streams), 1)

    def test_a_machine_that_fell_asleep_is_noticed_within_10_s(self) -> None:
        """Its connections stay open, and nothing comes any more."""
        self.awake()
        self.pass_time(3)
        self.host.sleep()
        self.pass_time(10)
        self.assertFalse(self.sleeper.ready)

    def test_its_stream_is_followed_anew(self) -> None:
        """After a sleep in which nothing was closed, the end of the next stream is noticed at once again."""
        self.awake()
        self.host.sleep()
        self.pass_time(10)
        self.host.silent = False
        self.pass_time(15)
        self.assertTrue(self.sleeper.ready)
        self.assertEqual(len(self.host.streams), 2)
        self.assertTrue(self.host.streams[0].aborted)
        self.host.shut()
        self.reactor.turn()
        self.assertFalse(self.sleeper.ready)

    def test_one_late_answer_is_no_sleep(self) -> None:
        """A heartbeat that is missed once does not make a busy server one that sleeps."""
        self.awake()
        self.host.check = None
        self.pass_time(HEARTBEAT + LOOK_LIMIT + 0.2)
        self.host.check = 200
        self.pass_time(5)
        self.assertTrue(self.sleeper.ready)
        self.assertEqual(self.sleeper.failures, 0)

    def test_a_connection_that_did_not_come_about_is_a_sign(self) -> None:
        """Told of one, it is asleep until it answers again."""
        self.awake()
        self.host.sleep()
        self.sleeper.vanished("no connection")
        self.assertFalse(self.sleeper.ready)


class WakeTests(SleeperCase):
    """Packets, and those who wait."""

    def wait(self) -> Deferred[bool]:
        """Wait for it."""
        return self.sleeper.when_awake()

    def test_nobody_waits_for_one_that_is_awake(self) -> None:
        """Nor is it woken."""
        self.awake()
        self.assertFalse(self.successResultOf(self.wait()))
        self.sleeper.wake()
        self.assertEqual(self.waker.wakes, 0)

    def test_all_go_on_when_it_is_awake(self) -> None:
        """In the order in which they came."""
        order: list[int] = []
        for number in range(3):
            self.wait().addCallback(lambda _, mine: order.append(mine), number)
        self.assertEqual((self.waker.wakes, self.sleeper.waiting), (3, 3))
        self.host.listen()
        self.pass_time(0.4)
        self.assertEqual((order, self.sleeper.waiting), ([0, 1, 2], 0))
        self.pass_time(10)
        self.assertEqual(self.waker.wakes, 3)

    def test_one_who_waits_has_it_looked_for_often(self) -> None:
        """However rarely it was looked for during the night."""
        self.pass_time(600)
        waiting = self.wait()
        self.host.listen()
        self.pass_time(0.5)
        self.assertTrue(self.successResultOf(waiting))

    def test_no_look_takes_long(self) -> None:
        """One that began while the machine did not answer at all hides its awakening for a moment only."""
        self.host.silent = True
        self.host.listen()
        waiting = self.wait()
        self.pass_time(10)
        self.assertGreaterEqual(self.sleeper.failures, 3)
        self.host.silent = False
        self.pass_time(LOOK_LIMIT + 0.4)
        self.assertTrue(self.successResultOf(waiting))

    def test_woken_again_while_somebody_waits(self) -> None:
        """A packet may be lost."""
        waiting = self.wait()
        self.pass_time(3 * REPEAT + 0.1)
        self.assertEqual(self.waker.wakes, 4)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.pass_time(60)
        self.assertEqual(self.waker.wakes, 4)

    def test_a_crowd_is_not_worth_more(self) -> None:
        """A thousand requests at once do not flood the network."""
        waiting = [self.wait() for _ in range(500)]
        self.assertEqual(self.waker.wakes, 10)
        self.pass_time(REPEAT + 0.1)
        self.assertEqual(self.waker.wakes, 11)
        for one in waiting:
            one.cancel()
            self.failureResultOf(one, CancelledError)

    def test_too_late(self) -> None:
        """Each waits for its own time."""
        early = self.wait()
        self.pass_time(30)
        late = self.wait()
        self.pass_time(30.1)
        problem = self.failureResultOf(early, HostAsleep).value
        self.assertEqual(str(problem), "the host did not wake up within 60 s")
        self.assertNoResult(late)
        self.pass_time(30.1)
        self.failureResultOf(late, HostAsleep)

    def test_too_many(self) -> None:
        """There is a bound."""
        waiting = [self.wait() for _ in range(1001)]
        self.failureResultOf(waiting[-1], HostAsleep)
        self.sleeper.stop()
        for one in waiting[:-1]:
            self.failureResultOf(one, HostAsleep)

    def test_somebody_who_asks_again(self) -> None:
        """A page that was opened counts as one who waits, for as long."""
        self.sleeper.wake()
        self.pass_time(59)
        wakes = self.waker.wakes
        self.assertEqual(wakes, 30)
        self.pass_time(60)
        self.assertLessEqual(self.waker.wakes, wakes + 1)

    def test_the_end(self) -> None:
        """Those who wait are told, and those who come later."""
        waiting = self.wait()
        self.sleeper.stop()
        self.failureResultOf(waiting, HostAsleep)
        self.failureResultOf(self.wait(), HostAsleep)
        self.sleeper.wake()
        self.assertEqual(self.waker.wakes, 1)


class PlainServerTests(SleeperCase):
    """A server that is no lswap."""

    bedroom = Bedroom(url="http://10.0.0.1:8080", check_path="/health")

    def test_its_own_health_check(self) -> None:
        """There is no stream to follow, and nobody asks for one."""
        self.host.check_path = "/health"
        self.awake()
        self.pass_time(5)
        self.assertEqual({check.target for check in self.host.checks}, {"/health"})
        self.assertIsNone(self.host.checks[0].header("Authorization"))


class SecretTests(SynchronousTestCase):
    """The key."""

    def test_never_shown(self) -> None:
        """Not even where somebody prints everything."""
        self.assertNotIn("k-5ecret", repr(SleeperCase.bedroom))
