"""What the words of `lswap-vllm` mean (`lswap.vllm.options`, `lswap.vllm.cli`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.options import OptionError
from lswap.vllm import cli
from lswap.vllm.options import COMMANDS, VllmSettings, help_text, settings_of
from tests.test_tap import Outcome

URL = "http://127.0.0.1:8000"
NEEDED = ("--vllm-url", URL, "--listen", ":9")
SERVE, SLEEP, STATUS, STOP = COMMANDS


class SettingsTests(SynchronousTestCase):
    """`settings_of`."""

    def test_serve(self) -> None:
        """Defaults, and each flag; what follows the two dashes is the daemon's, byte for byte."""
        self.assertEqual(
            settings_of(SERVE, [*NEEDED, "--", "vllm"]), VllmSettings(url=URL, listen=":9", daemon=("vllm",))
        )
        words = ["-vllm-url=http://h/base//", "-listen", ":9", "--sleep-level=2", "-health-path", "/v1/models"]
        words += ["--wait-timeout=1m30s", "-journal-unit", "u.service", "--state-dir", "/s", "-dry-run"]
        daemon = ["vllm", "--", "-x", "", "a b", "--listen", "*"]
        self.assertEqual(
            settings_of(SERVE, [*words, "--", *daemon]),
            VllmSettings(
                url="http://h/base",
                listen=":9",
                sleep_level=2,
                health_path="/v1/models",
                wait_timeout=90.0,
                journal_unit="u.service",
                state_dir="/s",
                dry_run=True,
                daemon=tuple(daemon),
            ),
        )

    def test_daemon_without_the_dashes(self) -> None:
        """Its first word must not look like a flag."""
        settings = settings_of(SERVE, [*NEEDED, "vllm", "serve", "--port", "1"])
        assert settings is not None
        self.assertEqual(settings.daemon, ("vllm", "serve", "--port", "1"))

    def test_other_commands(self) -> None:
        """They have fewer flags."""
        self.assertEqual(
            settings_of(SLEEP, ["--vllm-url", URL, "--sleep-level", "2", "--stop-pid=7"]),
            VllmSettings(url=URL, sleep_level=2, stop_pid=7),
        )
        self.assertEqual(settings_of(STATUS, ["-vllm-url", URL]), VllmSettings(url=URL))
        self.assertEqual(settings_of(STOP, ["-vllm-url", URL, "-grace", "2s"]), VllmSettings(url=URL, grace=2.0))

    def test_mistakes(self) -> None:
        """The first is told: 1 for what is missing or makes no sense, 2 for what is no flag or no number."""
        for command, words, status, told in (
            (SERVE, (), 1, "--vllm-url is required"),
            (SERVE, ("--vllm-url", URL), 1, "--listen is required"),
            (SERVE, NEEDED, 1, "a daemon command is required"),
            (SERVE, (*NEEDED, "--"), 1, "a daemon command is required"),
            (SERVE, ("--vllm-url", "nonsense", "--listen", ":9", "x"), 1, "--vllm-url nonsense"),
            (SERVE, ("--vllm-url", "http://h:port", "--listen", ":9", "x"), 1, "--vllm-url http://h:port"),
            (SERVE, ("--vllm-url", "http://u:hush@h", "--listen", ":9", "x"), 1, "without user and password"),
            (SERVE, (*NEEDED, "-health-path", "x", "x"), 1, "--health-path x"),
            (SERVE, (*NEEDED, "-sleep-level", "3", "x"), 1, "--sleep-level 3"),
            (SERVE, (*NEEDED, "--wait-timeout", "soon", "x"), 2, 'invalid value "soon" for flag -wait-timeout'),
            (SERVE, (*NEEDED, "--nosuch"), 2, "not defined: -nosuch"),
            (SLEEP, (), 1, "--vllm-url is required"),
            (SLEEP, ("--vllm-url", URL, "--sleep-level", "deep"), 2, 'invalid value "deep" for flag -sleep-level'),
            (SLEEP, ("--vllm-url", URL, "--stop-pid", "x"), 2, 'invalid value "x" for flag -stop-pid'),
            (SLEEP, ("--vllm-url", URL, "word"), 2, 'unexpected argument "word"'),
            (SLEEP, ("--listen", ":9"), 2, "not defined: -listen"),
        ):
            error = self.assertRaises(OptionError, settings_of, command, words)
            self.assertIn(told, str(error))
            self.assertNotIn("hush", str(error))
            self.assertEqual(error.status, status, words)


class CommandTests(SynchronousTestCase):
    """The command line as a whole."""

    def test_without_a_command(self) -> None:
        """What there is, on standard error, with 1."""
        done = Outcome(lambda: cli.main([]))
        self.assertEqual((done.value, done.out), (1, ""))
        for command in COMMANDS:
            self.assertIn(f"\n  {command.name} ", done.err)

    def test_unknown(self) -> None:
        """It is named."""
        done = Outcome(lambda: cli.main(["dance", "-x"]))
        self.assertEqual((done.value, done.err), (1, "Unknown command: dance\n"))

    def test_help(self) -> None:
        """Of all, and of each: in groups, with an example; on standard output, with 0."""
        done = Outcome(lambda: cli.main(["--help"]))
        self.assertEqual((done.value, done.err), (0, ""))
        self.assertIn("cmdStop: ", done.out)
        for command in COMMANDS:
            done = Outcome(lambda name=command.name: cli.main([name, "-h"]))  # type: ignore[misc]
            self.assertEqual((done.value, done.err, done.out), (0, "", help_text(command)))
            self.assertIn("The vLLM server:\n", done.out)
            self.assertIn(f"\nExample:\n  lswap-vllm {command.name} ", done.out)
            for flag in command.flags:
                self.assertIn(f"-{flag.name} ", done.out)

    def test_version(self) -> None:
        """As all commands."""
        self.assertIn("version: ", Outcome(lambda: cli.main(["-version"])).out)

    def test_mistakes(self) -> None:
        """On standard error; the help follows words that are no flags."""
        done = Outcome(lambda: cli.main(["serve"]))
        self.assertEqual((done.value, done.err), (1, "lswap-vllm: --vllm-url is required\n"))
        done = Outcome(lambda: cli.main(["sleep", "-nosuch"]))
        self.assertEqual(done.value, 2)
        self.assertIn("Usage: lswap-vllm sleep", done.err)
