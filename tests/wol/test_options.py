"""What the words of `lswap-wol` mean (`lswap.wol.options`, `lswap.wol.tap`)."""

from __future__ import annotations

from typing import Any, cast

from twisted.application.service import IServiceMaker
from twisted.plugin import IPlugin, getPlugins
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.magic import Destination, magic_packet
from lswap.options import OptionError
from lswap.wol import tap
from lswap.wol.options import FLAGS, KEY_VARIABLE, WolSettings, help_text, settings_of
from tests.memory import MemoryReactor
from tests.test_tap import Outcome, Parent

ADDRESS = "ba:dc:0f:fe:e0:00"
RAW = bytes.fromhex("badc0ffee000")
NEEDED = ("-mac", ADDRESS, "-upstream", "http://192.168.1.13:8080")


def settings(*words: str, **environ: str) -> WolSettings:
    """The settings for these words, after those that are needed."""
    found = settings_of([*NEEDED, *words], environ)
    assert isinstance(found, WolSettings)
    return found


class SettingsTests(SynchronousTestCase):
    """`settings_of`."""

    def refused(self, *words: str) -> OptionError:
        """The error that these words are refused with."""
        error: OptionError = self.assertRaises(OptionError, settings_of, words, {})
        return error

    def test_defaults(self) -> None:
        """Those of the reference."""
        self.assertEqual(
            settings(),
            WolSettings(
                upstream="http://192.168.1.13:8080",
                health_path="/wol-health",
                api_key="",
                packets=(magic_packet(RAW),),
                destinations=(),
                wake_command=(),
                listen=":8080",
                timeout=60.0,
                log_level="info",
            ),
        )

    def test_each_flag(self) -> None:
        """One dash or two, a word of its own or behind an equals sign."""
        found = settings(
            *("--listen=127.0.0.1:9", "-timeout", "5", "-log=debug", "--api-key", "k", "-health-path=/health"),
            *("-broadcast", "10.0.0.255, den:7", "-mac=badc.0ffe.e000,02:00:00:00:00:01", "-password=192.0.2.1"),
        )
        secret = bytes([192, 0, 2, 1])
        self.assertEqual(
            found.packets, (magic_packet(RAW, secret), magic_packet(bytes.fromhex("020000000001"), secret))
        )
        self.assertEqual(found.destinations, (Destination("10.0.0.255"), Destination("den", 7)))
        self.assertEqual(
            (found.listen, found.timeout, found.log_level, found.api_key, found.health_path),
            ("127.0.0.1:9", 5.0, "debug", "k", "/health"),
        )

    def test_wake_command(self) -> None:
        """It takes the place of an address."""
        found = settings_of(["-wake-command", "ssh den 'wake it'", "-upstream", "http://h"], {})
        assert isinstance(found, WolSettings)
        self.assertEqual((found.wake_command, found.packets), (("ssh", "den", "wake it"), ()))

    def test_key_of_the_environment(self) -> None:
        """A flag wins."""
        self.assertEqual(settings(**{KEY_VARIABLE: "mine"}).api_key, "mine")
        self.assertEqual(settings("-api-key", "other", **{KEY_VARIABLE: "mine"}).api_key, "other")

    def test_secrets_are_not_shown(self) -> None:
        """Neither key nor password, in whatever form."""
        shown = repr(settings("-api-key", "hush-hush", "-password", "192.0.2.77"))
        self.assertNotIn("hush-hush", shown)
        self.assertNotIn("packets=(b", shown)

    def test_the_first_mistake_is_told(self) -> None:
        """In the order of the reference; all of them end with 1."""
        for words, told in (
            (("-log", "loud"), "-log loud"),
            (("-log", "INFO"), "-log INFO"),
            (("-listen", ""), "-listen must not be empty"),
            ((), "-mac is required"),
            (("-mac", " , "), "-mac is required"),
            (("-wake-command", " "), "-wake-command is empty"),
            (("-mac", "nonsense", "-timeout", "0"), "-timeout 0"),
            (("-mac", "nonsense"), "-mac nonsense"),
            (("-mac", "02:00:5e:10:00:00:00:01"), "8 bytes cannot be woken"),
            (("-mac", ADDRESS, "-password", "hunter2"), "-password expected"),
            (("-mac", ADDRESS, "-broadcast", "1.2.3"), "-broadcast 1.2.3"),
            (("-mac", ADDRESS), "-upstream is required"),
            (("-mac", ADDRESS, "-upstream", "nonsense"), "-upstream nonsense"),
            (("-mac", ADDRESS, "-upstream", "ftp://h"), "-upstream ftp://h"),
            (("-mac", ADDRESS, "-upstream", "http://h:port"), "-upstream http://h:port"),
            (("-mac", ADDRESS, "-upstream", "http://h/a b"), "-upstream http://h/a b"),
            (("-mac", ADDRESS, "-upstream", "http://u:hush@h:port"), "-upstream: expected a URL without user"),
            ((*NEEDED, "-health-path", "health"), "-health-path health"),
            ((*NEEDED, "-api-key", "a\nb"), "-api-key"),
        ):
            error = self.refused(*words)
            self.assertIn(told, str(error))
            self.assertNotIn("hush", str(error))
            self.assertEqual(error.status, 1, words)

    def test_words_that_are_no_flags(self) -> None:
        """They end with 2, as a bad number does."""
        for words in (("-nosuch", "1"), ("word",), ("-timeout", "soon"), ("-timeout", "1.5"), ("-timeout",)):
            self.assertEqual(self.refused(*words).status, 2, words)


class HelpTests(SynchronousTestCase):
    """`-help`."""

    def test_groups_and_an_example(self) -> None:
        """Each flag below its heading, and a line to copy."""
        text = help_text("lswap-wol")
        for heading in ("The host:", "How it is woken:", "The proxy:"):
            self.assertEqual(text.count(heading), 1)
        for flag in FLAGS:
            self.assertIn(f"-{flag.name} ", text + " ")
        self.assertIn("\n  lswap-wol -mac ba:dc:0f:fe:e0:00 -upstream http://192.168.1.13:8080\n", text)
        self.assertLess(max(map(len, text.splitlines())), 120)


class TapTests(SynchronousTestCase):
    """`twistd lswap-wol`."""

    def parse(self, *words: str, parent: Parent | None = None) -> Outcome:
        """What comes of it when options read these words."""
        self.options = tap.Options()
        self.options.parent = parent
        return Outcome(lambda: self.options.parseOptions(list(words)))

    def test_plugin(self) -> None:
        """twistd finds it, without loading it."""
        (found,) = [cast(Any, maker) for maker in getPlugins(IPlugin) if getattr(maker, "tapname", "") == "lswap-wol"]
        self.assertTrue(IServiceMaker.providedBy(found))
        self.assertEqual(found.module, "lswap.wol.tap")

    def test_settings(self) -> None:
        """The words end in settings."""
        self.assertIsNone(self.parse(*NEEDED).status)
        self.assertEqual(self.options.settings, settings())

    def test_help_and_version(self) -> None:
        """On standard output, with 0."""
        done = self.parse("-h", parent=Parent())
        self.assertEqual((done.status, done.err), (0, ""))
        self.assertIn("Usage: twistd [options of twistd] lswap-wol [flags]", done.out)
        done = self.parse("-version")
        self.assertEqual(done.status, 0)
        self.assertIn("version: ", done.out)

    def test_mistakes(self) -> None:
        """On standard error, with 1; the help follows words that are no flags, with 2."""
        done = self.parse("-log", "loud")
        self.assertEqual((done.status, done.out), (1, ""))
        self.assertEqual(done.err.count("\n"), 1)
        done = self.parse("-nosuch")
        self.assertEqual(done.status, 2)
        self.assertIn("How it is woken:", done.err)

    def test_log(self) -> None:
        """twistd logs in our form."""
        parent = Parent()
        self.parse(*NEEDED, parent=parent)
        self.assertEqual(parent["logger"], "lswap.service.logs.observer_factory")

    def test_service(self) -> None:
        """It composes the service, and starts nothing."""
        self.parse(*NEEDED)
        reactor = MemoryReactor()
        service = tap.makeService(self.options, reactor)
        self.assertFalse(service.running)
        self.assertEqual(reactor.getDelayedCalls(), [])
