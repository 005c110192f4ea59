"""`twistd llamaswap`: its options and its service (`lswap.tap`)."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from twisted.application.service import IService, IServiceMaker
from twisted.internet.testing import MemoryReactorClock
from twisted.plugin import IPlugin, getPlugins
from twisted.python import usage
from twisted.scripts._twistd_unix import ServerOptions
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from lswap import __version__, tap
from lswap.options import FLAGS, Settings


class Outcome:
    """How a call ended that may end the program, and what it printed."""

    def __init__(self, call: Callable[[], object]) -> None:
        out, err = io.StringIO(), io.StringIO()
        self.status: object = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                self.value = call()
            except SystemExit as end:
                self.status = end.code
        self.out, self.err = out.getvalue(), err.getvalue()


class Parent(usage.Options):
    """As much of twistd's own options as matters."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.update({"nodaemon": 1, "logger": None, "logfile": None, "syslog": 0, "umask": None} | values)


def parsed(*words: str, parent: Parent | None = None) -> tap.Options:
    """Options that have read these words."""
    options = tap.Options()
    options.parent = parent
    options.parseOptions(list(words))
    return options


class OptionsTests(SynchronousTestCase):
    """The options alone."""

    def test_settings(self) -> None:
        """The words end in settings, and each option can be read by its name too."""
        options = parsed("-config", "f", "--config-dir=d", "-listen", ":9")
        self.assertEqual(
            options.settings, Settings(config="f", config_dir="d", listen=":9", umask=options.settings.umask)
        )
        self.assertEqual((options["config"], options["config-dir"], options["listen"]), ("f", "d", ":9"))
        self.assertIsNone(options["tls-key-file"])

    def test_words_of_the_process(self) -> None:
        """Without words, those of the process count."""
        self.patch(sys, "argv", ["lswap", "-c", "mine"])
        options = tap.Options()
        options.parseOptions()
        self.assertEqual(options.settings.config, "mine")

    def test_version(self) -> None:
        """The version goes to standard output, before anything else is checked, and is not Twisted's."""
        done = Outcome(lambda: parsed("-version"))
        self.assertEqual((done.status, done.err), (0, ""))
        self.assertTrue(done.out.startswith(f"version: {__version__} ("), done.out)
        self.assertEqual(Outcome(lambda: parsed("--version", "-tls-key-file", "k")).status, 0)
        self.assertEqual(Outcome(lambda: parsed("--version=false")).status, 1)

    def test_help(self) -> None:
        """Help names the command as it was called and all flags, and ends with 0."""
        done = Outcome(lambda: parsed("--help", parent=Parent()))
        self.assertEqual(done.status, 0)
        self.assertIn("Usage: twistd [options of twistd] llamaswap [flags]", done.out)
        for flag in FLAGS:
            self.assertIn(f"-{flag.name}", done.out)
        self.assertIn("Usage: lswap [flags]", Outcome(lambda: parsed("-h")).out)

    def test_words_that_are_no_flags(self) -> None:
        """Broken syntax: the error, then the help, on standard error; exit code 2."""
        done = Outcome(lambda: parsed("-c", "f", "--no-such-flag"))
        self.assertEqual((done.status, done.out), (2, ""))
        first, second, *_rest = done.err.splitlines()
        self.assertEqual(first, "flag provided but not defined: -no-such-flag")
        self.assertIn("Usage:", second)

    def test_flags_that_do_not_go_together(self) -> None:
        """A combination that makes no sense: one line, no help; exit code 1."""
        done = Outcome(lambda: parsed("-listen", ":9"))
        text = "at least one of -config or -config-dir must be provided\n"
        self.assertEqual((done.status, done.out, done.err), (1, "", text))

    def test_own_log_form_in_the_foreground(self) -> None:
        """`twistd -n` logs in our form, to standard output; `--logfile -` says the same."""
        for given in ({}, {"logfile": "-"}, {"nodaemon": 0, "debug": True}):
            parent = Parent(**given)
            parsed("-c", "f", parent=parent)
            self.assertEqual(parent["logger"], tap.OBSERVER_FACTORY, given)

    def test_log_options_of_twistd_win(self) -> None:
        """Whoever chose a logger, a file, syslog or a daemon gets that."""
        for given, logger in (
            ({"logger": "x.y"}, "x.y"),
            ({"logfile": "some.log"}, None),
            ({"syslog": 1}, None),
            ({"nodaemon": 0}, None),
        ):
            parent = Parent(**given)
            parsed("-c", "f", parent=parent)
            self.assertEqual(parent["logger"], logger, given)

    def test_observer_factory_exists(self) -> None:
        """The dotted name that twistd gets can be looked up."""
        from twisted.python.reflect import namedAny

        self.assertTrue(callable(namedAny(tap.OBSERVER_FACTORY)))

    def test_umask_in_force(self) -> None:
        """Models get the mask that was in force at the start, not the 077 of a daemon."""
        before = os.umask(0o026)
        try:
            settings = parsed("-c", "f", parent=Parent(nodaemon=0)).settings
            after = os.umask(0o026)
        finally:
            os.umask(before)
        self.assertEqual(settings.umask, 0o026)
        self.assertEqual(after, 0o026)

    def test_umask_that_twistd_was_told(self) -> None:
        """`twistd --umask` is meant for models too; 0 is a mask like others."""
        self.assertEqual(parsed("-c", "f", parent=Parent(umask=0o007)).settings.umask, 0o007)
        self.assertEqual(parsed("-c", "f", parent=Parent(umask=0)).settings.umask, 0)

    def test_other_folder(self) -> None:
        """twistd goes there before the configuration is read again: paths are completed before."""
        self.assertEqual(parsed("-c", "f", parent=Parent(rundir="x")).settings.config, os.path.abspath("f"))
        self.assertEqual(parsed("-c", "f", parent=Parent(rundir=".")).settings.config, "f")


class PluginTests(SynchronousTestCase):
    """What twistd finds."""

    def test_command(self) -> None:
        """The plugin `llamaswap` exists once, and leads to the options and the service here."""
        found = [maker for maker in getPlugins(IServiceMaker) if maker.tapname == "llamaswap"]
        self.assertEqual(len(found), 1)
        verifyObject(IServiceMaker, found[0])
        verifyObject(IPlugin, found[0])
        self.assertIs(found[0].options, tap.Options)
        self.assertIs(found[0].makeService, tap.makeService)

    def test_twistd_reads_our_words(self) -> None:
        """twistd hands on the words after `llamaswap` untouched, and takes our logger."""
        options = ServerOptions()
        options.parseOptions(["-n", "--pidfile=", "llamaswap", "-config", "f", "--watch-config=false"])
        self.assertEqual(options.subCommand, "llamaswap")
        self.assertEqual(options.subOptions.settings.config, "f")
        self.assertTrue(callable(options["logger"]))


class MakeServiceTests(SynchronousTestCase):
    """From settings to a service."""

    def outcome(self, text: str) -> Outcome:
        """What becomes of a configuration with this text."""
        path = pathlib.Path(self.mktemp())
        path.write_text(text)
        return Outcome(lambda: tap.makeService(parsed("-c", str(path)), MemoryReactorClock()))

    def test_good_configuration(self) -> None:
        """A service comes back; it has not started, and nothing was printed."""
        done = self.outcome("models: {a: {cmd: 'server --port ${PORT}'}}\n")
        self.assertIsNone(done.status, done.err)
        self.assertTrue(IService.providedBy(done.value))
        self.assertEqual((done.out, done.err), ("", ""))

    def test_all_problems_are_told(self) -> None:
        """Each problem has its line on standard error, then comes their number; exit code 1."""
        done = self.outcome("logToStdout: paper\nmodels:\n  a:\n    cmd: s ${PORT} ${nope}\n    ttl: -7\n")
        self.assertEqual((done.status, done.out), (1, ""))
        *problems, last = done.err.splitlines()
        self.assertEqual(last, f"failed to load config: {len(problems)} problems")
        for line in (1, 4, 5):
            self.assertTrue([text for text in problems if f":{line}:" in text], (line, problems))

    def test_one_problem_is_one(self) -> None:
        """The number and its noun agree."""
        self.assertTrue(self.outcome("logToStdout: paper\n").err.endswith("failed to load config: 1 problem\n"))

    def test_file_that_is_not_there(self) -> None:
        """A file that cannot be read is a problem like others."""
        done = Outcome(lambda: tap.makeService(parsed("-c", self.mktemp()), MemoryReactorClock()))
        self.assertEqual(done.status, 1)
        self.assertIn("failed to read config", done.err)
