"""Which log gets what, from whom, and in which form."""

from __future__ import annotations

import threading
from collections.abc import Callable

from twisted.logger import (
    ILogObserver,
    LegacyLogObserverWrapper,
    Logger,
    LogLevel,
    LogPublisher,
    capturedLogs,
    formatEvent,
    globalLogPublisher,
)
from twisted.python import log as legacy
from twisted.python.failure import Failure
from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from lswap.core.log_format import Level
from lswap.service import logs as module
from lswap.service.logs import HISTORY, Log, Logs


class LogTests(SynchronousTestCase):
    """One log and its readers."""

    def setUp(self) -> None:
        """A log and what its reader got."""
        self.log = Log("test")
        self.got: list[bytes] = []

    def test_history_is_the_end_of_what_was_written(self) -> None:
        """A log keeps its last 100 KiB, raw."""
        self.log.write(b"first\n")
        self.assertEqual(self.log.history(), b"first\n")
        self.log.write(b"\xff" * HISTORY)
        self.log.write(b"last")
        self.assertEqual(self.log.history(), b"\xff" * (HISTORY - 4) + b"last")

    def test_readers_get_each_piece_at_once_and_unchanged(self) -> None:
        """Two readers get all that is written after they came, piece by piece, in order."""
        other: list[bytes] = []
        self.log.write(b"before")
        self.log.subscribe(self.got.append)
        self.log.subscribe(other.append)
        self.log.write(b"one")
        self.assertEqual(self.got, [b"one"])
        self.log.write(b"\x00\r two")
        self.assertEqual((self.got, other), ([b"one", b"\x00\r two"],) * 2)

    def test_empty_pieces_are_no_pieces(self) -> None:
        """Nothing written is nothing read."""
        self.log.subscribe(self.got.append)
        self.log.write(b"")
        self.assertEqual(self.got, [])

    def test_unsubscribed_reader_gets_no_more(self) -> None:
        """A reader can leave, also twice, without the others noticing; and the log knows when nobody is left."""
        other: list[bytes] = []
        leave = self.log.subscribe(self.got.append)
        leave_too = self.log.subscribe(other.append)
        leave()
        leave()
        self.log.write(b"x")
        self.assertEqual((self.got, other, self.log.watched), ([], [b"x"], True))
        leave_too()
        self.assertFalse(self.log.watched)

    def test_one_callable_may_read_twice(self) -> None:
        """Two subscriptions are two, also of the same callable."""
        leave = self.log.subscribe(self.got.append)
        self.log.subscribe(self.got.append)
        self.log.write(b"x")
        leave()
        self.log.write(b"y")
        self.assertEqual(self.got, [b"x", b"x", b"y"])

    def test_reader_that_raises_is_dropped_and_the_others_are_not(self) -> None:
        """A broken reader is logged and gets no more; the writer and the other readers do not notice."""
        calls: list[bytes] = []

        def broken(data: bytes) -> None:
            calls.append(data)
            raise ZeroDivisionError

        self.log.subscribe(broken)
        self.log.subscribe(self.got.append)
        self.log.write(b"one")
        self.log.write(b"two")
        self.assertEqual((calls, self.got), ([b"one"], [b"one", b"two"]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_reader_sent_away_by_an_earlier_one(self) -> None:
        """A reader that left while a piece is handed out does not get this piece any more."""
        self.log.subscribe(lambda data: leave())
        leave = self.log.subscribe(self.got.append)
        self.log.write(b"x")
        self.assertEqual(self.got, [])

    def test_reader_that_comes_while_a_piece_is_handed_out(self) -> None:
        """It has this piece in the history, and so must not get it again."""
        seen: list[bytes] = []

        def first(data: bytes) -> None:
            if not seen:
                seen.append(self.log.history())
                self.log.subscribe(seen.append)

        self.log.subscribe(first)
        self.log.write(b"one ")
        self.log.write(b"two")
        self.assertEqual(b"".join(seen), b"one two")

    def test_reader_that_comes_between_two_pieces_of_one_turn(self) -> None:
        """What is written while a piece is handed out is in the history already, and is not given twice either."""
        seen: list[bytes] = []

        def writes(data: bytes) -> None:
            if data == b"one ":
                self.log.write(b"echo ")
                seen.append(self.log.history())
                self.log.subscribe(seen.append)

        self.log.subscribe(writes)
        self.log.write(b"one ")
        self.log.write(b"two")
        self.assertEqual(b"".join(seen), b"one echo two")

    def test_order_is_the_same_for_all_when_a_reader_writes(self) -> None:
        """A reader whose reading causes a line of log does not make the next reader see the two swapped."""

        def writes(data: bytes) -> None:
            if data == b"cause ":
                self.log.write(b"effect ")

        self.log.subscribe(writes)
        self.log.subscribe(self.got.append)
        self.log.write(b"cause ")
        self.assertEqual(self.got, [b"cause ", b"effect "])

    def test_reader_that_answers_everything_comes_to_an_end(self) -> None:
        """A reader that writes about each piece it reads cannot keep the log busy for ever, and the log works on."""
        echo = True

        def writes(data: bytes) -> None:
            if echo:
                self.log.write(b"again ")

        self.log.subscribe(writes)
        self.log.subscribe(self.got.append)
        self.log.write(b"once ")
        self.assertLess(len(self.got), 1000)
        echo = False
        self.got.clear()
        self.log.write(b"done")
        self.assertEqual(self.got, [b"done"])


class LogsCase(SynchronousTestCase):
    """Logs whose standard output is a list."""

    def setUp(self) -> None:
        """Fresh logs, and a logger that only they hear."""
        self.stdout: list[bytes] = []
        self.logs = Logs(self.stdout.append)
        self.publisher = LogPublisher(self.logs.observer)
        self.log = Logger("lswap.test", observer=self.publisher)

    def lines(self) -> list[str]:
        """The lines of lswap's own log."""
        return self.logs.proxy.history().decode().splitlines()


class ModeTests(LogsCase):
    """`logToStdout`, and the four kinds of log."""

    def speak(self) -> None:
        """One line of each kind."""
        self.log.info("own")
        self.logs.model_output("m", b"model\n")

    def test_what_each_mode_shows(self) -> None:
        """The combined log and standard output have the same: what the mode says; an unknown mode acts as `proxy`."""
        for mode, shown in (
            ("proxy", b"[INFO] own\n"),
            ("upstream", b"model\n"),
            ("both", b"[INFO] own\nmodel\n"),
            ("none", b""),
            ("nonsense", b"[INFO] own\n"),
        ):
            self.setUp()
            self.logs.configure("info", mode, "")
            self.speak()
            self.assertEqual((self.logs.combined.history(), b"".join(self.stdout)), (shown, shown), mode)

    def test_single_logs_are_kept_in_every_mode(self) -> None:
        """Whatever is shown, each source has its own history."""
        for mode in ("proxy", "upstream", "both", "none"):
            self.setUp()
            self.logs.configure("info", mode, "")
            self.speak()
            self.assertEqual(self.logs.proxy.history(), b"[INFO] own\n", mode)
            self.assertEqual(self.logs.upstream.history(), b"model\n", mode)
            self.assertEqual(self.logs.model("m").history(), b"model\n", mode)

    def test_default_is_info_proxy_and_no_time(self) -> None:
        """Logs work before they are configured."""
        self.log.debug("hidden")
        self.speak()
        self.assertEqual(self.stdout, [b"[INFO] own\n"])

    def test_change_of_mode_keeps_the_histories(self) -> None:
        """A new configuration counts from the next line on; what is there stays."""
        self.speak()
        self.logs.configure("info", "both", "")
        self.speak()
        self.assertEqual(self.logs.combined.history(), b"[INFO] own\n" * 2 + b"model\n")

    def test_models_do_not_mix(self) -> None:
        """Each model has its log, made on first use; all of them together are the upstream log."""
        self.logs.model_output("a", b"of a\n")
        self.logs.model_output("b/c:d", b"of b\n")
        self.assertEqual(self.logs.model("a").history(), b"of a\n")
        self.assertEqual(self.logs.model("b/c:d").history(), b"of b\n")
        self.assertEqual(self.logs.model("unused").history(), b"")
        self.assertEqual(self.logs.upstream.history(), b"of a\nof b\n")

    def test_model_output_is_raw(self) -> None:
        """The output of models is not touched: no lines, no escapes, no level."""
        self.logs.configure("error", "both", "rfc3339")
        self.logs.model_output("a", b"\x1b[32m50 %\r\xff")
        for got in (self.logs.model("a").history(), self.logs.combined.history(), *self.stdout):
            self.assertEqual(got, b"\x1b[32m50 %\r\xff")

    def test_log_of_a_model_stays_the_same(self) -> None:
        """Who reads a model's log goes on reading over restarts, for it is one log for ever."""
        self.assertIs(self.logs.model("a"), self.logs.model("a"))

    def test_retain_forgets_models_that_are_gone(self) -> None:
        """Logs of models that a reload removed go, except while somebody reads them."""
        for name in "abc":
            self.logs.model_output(name, b"x")
        leave = self.logs.model("b").subscribe(lambda data: None)
        self.logs.retain({"a"})
        self.assertEqual([self.logs.model(n).history() for n in "abc"], [b"x", b"x", b""])
        leave()
        self.logs.retain(["a"])
        self.assertEqual(self.logs.model("b").history(), b"")


class ObserverTests(LogsCase):
    """Events of `twisted.logger` as lines."""

    def test_observer_is_one_that_twistd_accepts(self) -> None:
        """The observer provides the interface, or twistd would take it for one of the old kind."""
        verifyObject(ILogObserver, self.logs.observer)

    def test_levels_by_name(self) -> None:
        """Critical counts as an error."""
        self.logs.configure("debug", "proxy", "")
        for level in LogLevel.iterconstants():
            self.log.emit(level, "m")
        self.assertEqual(self.lines(), ["[DEBUG] m", "[INFO] m", "[WARN] m", "[ERROR] m", "[ERROR] m"])

    def test_threshold(self) -> None:
        """Lines below the configured level are dropped; an unknown level acts as info."""
        for name, count in (("debug", 5), ("info", 4), ("nonsense", 4), (" WARN ", 3), ("error", 2)):
            self.setUp()
            self.logs.configure(name, "proxy", "")
            for level in LogLevel.iterconstants():
                self.log.emit(level, "m")
            self.assertEqual((len(self.lines()), len(self.stdout)), (count, count), name)

    def test_filtered_message_is_not_even_formatted(self) -> None:
        """A line that is not wanted costs nothing."""

        def costly() -> str:
            raise AssertionError

        self.log.debug("{costly()}", costly=costly)
        self.assertEqual((self.lines(), self.logs.level), ([], Level.INFO))

    def test_fields(self) -> None:
        """Fields are filled in, with their attributes, items, conversions and calls."""
        self.log.info("{a} {b!r} {c[0]} {d.real} {e:>4}", a=1, b="b", c=["c"], d=4, e=5)
        self.log.info("{f()} {g.upper()} {a}", f=lambda: "called", g="text", a=1)
        self.assertEqual(self.lines(), ["[INFO] 1 'b' c 4    5", "[INFO] called TEXT 1"])

    def test_time_of_the_event(self) -> None:
        """The time stamp is of the moment the event was made, not of its writing."""
        self.logs.configure("info", "proxy", "rfc3339nano")
        self.logs.observe({"log_level": LogLevel.info, "log_format": "m", "log_time": 0.25})
        self.assertRegex(self.lines()[0], r"^19(69|70)-\d\d-\d\dT\d\d:\d\d:\d\d\.25\S+ \[INFO\] m$")

    def test_message_cannot_forge_a_line(self) -> None:
        """A field with a newline and terminal codes stays in its line."""
        self.log.info("GET {path}", path="/\n[ERROR] forged\x1b[31m")
        self.assertEqual(self.lines(), ["[INFO] GET /\\n[ERROR] forged\\x1b[31m"])

    def test_message_that_cannot_be_formatted(self) -> None:
        """A wrong format, a missing field, a field that raises: said in a line, without the fields' contents."""

        class Broken:
            def __str__(self) -> str:
                raise ZeroDivisionError

            __repr__ = __str__

        for template in ("{nosuch} {secret", "{nosuch}", "{0}", "{broken}", "{broken!r}", "{broken()}", "{a.b}"):
            self.log.info(template, secret="s3cret", broken=Broken(), a=1)
        for line in self.lines():
            self.assertRegex(line, r"^\[INFO\] message that cannot be formatted \(\w+\): \{.")
            self.assertNotIn("s3cret", line)
        self.assertEqual(len(self.lines()), 7)

    def test_bytes_as_format(self) -> None:
        """A format in bytes is text in UTF-8; one that is not is said to be none."""
        for template in ("größe {a}".encode(), b"\xff"):
            self.logs.observe({"log_level": LogLevel.info, "log_format": template, "log_time": 0.0, "a": 1})
        self.assertEqual(self.lines()[0], "[INFO] größe 1")
        self.assertIn("cannot be formatted (UnicodeDecodeError)", self.lines()[1])

    def test_event_without_anything(self) -> None:
        """An event without a message is no line, and missing keys do no harm."""
        self.logs.observe({})
        self.logs.observe({"log_level": LogLevel.info, "log_format": None})
        self.logs.observe({"log_level": None, "log_format": "no level, no time"})
        self.assertEqual(self.lines(), ["[INFO] no level, no time"])

    def test_failure_brings_its_traceback_indented(self) -> None:
        """The lines of a traceback cannot be taken for lines of log, not even those of the exception's text."""
        try:
            raise ValueError("bad\n[ERROR] forged")
        except ValueError:
            self.log.failure("no luck with {what}", what="it")
        first, *rest = self.lines()
        self.assertEqual(first, "[ERROR] no luck with it")
        self.assertIn("    builtins.ValueError: bad", rest)
        self.assertIn("test_logs.py", "".join(rest))
        for line in rest:
            self.assertTrue(line.startswith("    "), line)

    def test_failure_without_a_message(self) -> None:
        """A traceback alone gets a first line too."""
        self.log.failure("", Failure(ValueError("x")))
        self.assertEqual(self.lines()[0], "[ERROR] Unhandled error")

    def test_failure_that_has_no_traceback(self) -> None:
        """A failure that cannot be shown does not lose the line."""
        self.logs.observe({"log_level": LogLevel.critical, "log_format": "m", "log_failure": object()})
        self.assertEqual(self.lines(), ["[ERROR] m", "    (no traceback: AttributeError)"])


class ChatterTests(LogsCase):
    """What Twisted says about itself."""

    def setUp(self) -> None:
        """A Twisted-made logger, and the old kind of log beside it."""
        super().setUp()
        self.twisted = Logger("twisted.application.app.AppLogger", observer=self.publisher)
        self.legacy = legacy.LogPublisher(publishPublisher=self.publisher)

    def test_twisteds_own_words_are_for_debugging(self) -> None:
        """What Twisted says below a warning is debug; the rest keeps its level."""
        self.twisted.info("twistd {version} starting up", version="1")
        self.legacy.msg("Starting factory")
        self.twisted.warn("a warning")
        self.assertEqual(self.lines(), ["[WARN] a warning"])
        self.logs.configure("debug", "proxy", "")
        self.twisted.info("reactor class: {reactor}.", reactor="r")
        self.legacy.msg("Starting factory")
        self.assertEqual(self.lines()[1:], ["[DEBUG] reactor class: r.", "[DEBUG] Starting factory"])

    def test_other_names_keep_their_level(self) -> None:
        """Only the package `twisted` is meant, not what is called similarly."""
        Logger("twistedness", observer=self.publisher).info("m")
        Logger("stdout", observer=self.publisher).info("printed")
        self.assertEqual(self.lines(), ["[INFO] m", "[INFO] printed"])

    def test_errors_of_the_old_log_are_errors(self) -> None:
        """`log.err` gives an error: its reason in the line, the traceback set in below."""
        self.legacy.msg(failure=Failure(ValueError("x\n[INFO] forged")), why="no luck", isError=1)
        self.legacy.msg(failure=Failure(ValueError("y")), why=None, isError=1)
        self.legacy.msg("words\nonly", isError=1)
        own = [line for line in self.lines() if not line.startswith("    ")]
        self.assertEqual(own, ["[ERROR] no luck", "[ERROR] Unhandled error", "[ERROR] words\\nonly"])
        self.assertIn("    Failure: builtins.ValueError: x", self.lines())

    def test_event_that_an_old_observer_has_changed(self) -> None:
        """Beside an observer of the old kind (twistd's syslog), which adds keys, events look the same."""
        self.publisher.removeObserver(self.logs.observer)
        self.publisher.addObserver(LegacyLogObserverWrapper(lambda event: None))  # type: ignore[arg-type]
        self.publisher.addObserver(self.logs.observer)
        self.log.info("message {a}", a=1)
        self.log.failure("no luck {a}", Failure(ValueError("x")), a=2)
        self.assertEqual(self.lines()[:2], ["[INFO] message 1", "[ERROR] no luck 2"])


class ThreadTests(LogsCase):
    """Events from other threads: readers are touched in the reactor's thread only."""

    def from_thread(self, message: str) -> None:
        """Log in another thread, and wait until it has done so."""
        thread = threading.Thread(target=self.log.info, args=(message,))
        thread.start()
        thread.join()

    def test_line_waits_for_the_next_of_this_thread(self) -> None:
        """Without a reactor, a line of another thread comes before the next one of ours."""
        self.from_thread("theirs")
        self.assertEqual(self.lines(), [])
        self.log.info("ours")
        self.assertEqual(self.lines(), ["[INFO] theirs", "[INFO] ours"])

    def test_reactor_hands_it_over(self) -> None:
        """With a reactor, it is written in the reactor's next turn."""
        calls: list[Callable[[], None]] = []

        class Reactor:
            callFromThread = calls.append

        self.logs.use_reactor(Reactor())  # type: ignore[arg-type]
        self.log.info("ours")
        self.assertEqual(calls, [])
        self.from_thread("theirs")
        self.from_thread("theirs too")
        self.assertEqual(self.lines(), ["[INFO] ours"])
        for call in calls:
            call()
        self.assertEqual(self.lines(), ["[INFO] ours", "[INFO] theirs", "[INFO] theirs too"])

    def test_what_waits_is_bounded(self) -> None:
        """A thread that logs without end does not fill the memory; its latest lines are kept."""

        def many() -> None:
            for i in range(1000):
                self.log.info("{i}", i=i)

        thread = threading.Thread(target=many)
        thread.start()
        thread.join()
        self.log.info("ours")
        self.assertLess(len(self.lines()), 500)
        self.assertEqual(self.lines()[-2:], ["[INFO] 999", "[INFO] ours"])


class AttachTests(LogsCase):
    """In use by twistd, or beside the observer that twistd was given."""

    def setUp(self) -> None:
        """Make our logs those of the process."""
        super().setUp()
        self.patch(module, "_logs", self.logs)
        self.addCleanup(globalLogPublisher.removeObserver, self.logs.observer)
        self.everywhere = Logger("lswap.test")

    def test_factory_has_a_name_that_twistd_can_find(self) -> None:
        """`--logger` wants a dotted name of something that makes an observer."""
        observer = namedAny("lswap.service.logs.observer_factory")()
        verifyObject(ILogObserver, observer)
        self.assertIs(observer, self.logs.observer)
        self.assertIs(module.logs(), self.logs)

    def test_logs_are_made_on_first_use(self) -> None:
        """Before anything is configured, there are logs, always the same."""
        self.patch(module, "_logs", None)
        self.assertIsInstance(module.logs(), Logs)
        self.assertIs(module.logs(), module.logs())

    def test_attached_logs_hear_everything_and_say_nothing(self) -> None:
        """When twistd logs elsewhere, the histories are kept and standard output stays silent, about models too."""
        self.logs.configure("info", "both", "")
        self.logs.attach()
        self.logs.attach()
        self.everywhere.info("own")
        self.logs.model_output("m", b"model\n")
        self.assertEqual(self.logs.combined.history(), b"[INFO] own\nmodel\n")
        self.assertEqual(self.stdout, [])

    def test_attach_does_nothing_when_the_factory_is_in_use(self) -> None:
        """With our observer as twistd's, each event comes once, and is shown."""
        globalLogPublisher.addObserver(module.observer_factory())
        self.logs.attach()
        self.everywhere.info("own")
        self.assertEqual(self.stdout, [b"[INFO] own\n"])

    def test_ready_made_line_looks_like_any_other(self) -> None:
        """The short way for the line of a request gives the same line, escaped, at info, with the time of the clock."""
        self.logs._now = lambda: 0.5
        module.observer_factory()
        self.logs.info("GET /\n")
        self.logs.configure("warn", "proxy", "")
        self.logs.info("not wanted")
        self.logs.configure("info", "proxy", "rfc3339nano")
        self.logs.info("timed")
        self.assertEqual(self.lines()[0], "[INFO] GET /\\n")
        self.assertRegex(self.lines()[1], r"^19(69|70)-\S+:\d\d\.5\S+ \[INFO\] timed$")
        self.assertEqual(self.stdout, self.logs.proxy.history().splitlines(keepends=True))

    def test_ready_made_line_goes_where_twistd_logs(self) -> None:
        """When twistd logs elsewhere, the line of a request is in its log too, and in ours once."""
        self.logs.attach()
        with capturedLogs() as elsewhere:
            self.logs.info("GET {path}")
        self.assertEqual([formatEvent(event) for event in elsewhere], ["GET {path}"])
        self.assertEqual((self.lines(), self.stdout), (["[INFO] GET {path}"], []))

    def test_detached_logs_hear_nothing(self) -> None:
        """After `detach`, events of the process pass by; attaching works again."""
        self.logs.attach()
        self.logs.detach()
        self.everywhere.info("passes by")
        self.assertEqual(self.lines(), [])
        self.logs.attach()
        self.everywhere.info("own")
        self.assertEqual(self.lines(), ["[INFO] own"])

    def test_detach_leaves_twistds_own_observer_alone(self) -> None:
        """With our observer as twistd's, what is said after the service has stopped is still shown."""
        globalLogPublisher.addObserver(module.observer_factory())
        self.logs.attach()
        self.logs.detach()
        self.everywhere.error("late")
        self.assertEqual(self.stdout, [b"[ERROR] late\n"])

    def test_broken_reader_does_not_silence_the_observer(self) -> None:
        """The word about a reader of our own log that fails is in this log, once, after the line that it failed on."""
        self.logs.attach()

        def broken(data: bytes) -> None:
            raise ZeroDivisionError

        self.logs.proxy.subscribe(broken)
        self.everywhere.info("first")
        self.everywhere.info("second")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        own = [line for line in self.lines() if not line.startswith("    ")]
        self.assertEqual(
            own,
            ["[INFO] first", "[ERROR] a reader of the log proxy failed and gets no more of it", "[INFO] second"],
        )
