"""What the words of `lswap-vllm` mean: a command and its flags in, frozen settings out, or a text of what is wrong.

Decides only; imports nothing of Twisted. Read `lswap.vllm.cli` next.
Source: utilities reference, sections 2, 2.1, 2.5 and 2.7.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lswap.core.config.units import go_duration
from lswap.options import Flag, OptionError, flags_of, server_url, usage, whole

__all__ = ["COMMANDS", "OVERVIEW", "Command", "VllmSettings", "help_text", "settings_of"]

_SERVER, _SLEEP, _FRONT, _START = "The vLLM server", "Sleep", "The proxy", "The start"
_URL = Flag("vllm-url", "URL", "base URL of the server", group=_SERVER)
_LEVEL = Flag("sleep-level", "N", "1 keeps the weights in RAM, 2 drops them; 1", group=_SLEEP)
_FOLDER = Flag("state-dir", "DIR", "for locks, what is known of the daemon, its log", group=_SERVER)
_HEALTH = Flag("health-path", "PATH", "answers 200 when the server is ready; /health", group=_SERVER)


class Command(msgspec.Struct, frozen=True):
    """One of the commands."""

    name: str
    does: str
    flags: tuple[Flag, ...]
    words: str = "[flags]"
    example: str = ""


COMMANDS = (
    Command(
        "serve",
        "wake the server, or start it, pass requests on, and put it to sleep at the end",
        (
            _URL,
            _HEALTH,
            Flag("journal-unit", "UNIT", "systemd user unit whose journal is shown", group=_SERVER),
            _FOLDER,
            Flag("listen", "ADDRESS", "host:port of the proxy; opened when the server is ready", group=_FRONT),
            Flag("wait-timeout", "TIME", "how long a start or a wake may take; 120s", group=_START),
            Flag("dry-run", "", "say what would be done, and exit", group=_START),
            _LEVEL,
        ),
        "[flags] -- DAEMON [arguments]",
        "lswap-vllm serve --vllm-url http://127.0.0.1:8000 --listen :${PORT} -- vllm serve org/model "
        "--enable-sleep-mode",
    ),
    Command(
        "sleep",
        "put the server to sleep, then end its wrapper",
        (_URL, _FOLDER, _LEVEL, Flag("stop-pid", "PID", "the wrapper, which gets SIGTERM afterwards", group=_SLEEP)),
        example="lswap-vllm sleep --vllm-url http://127.0.0.1:8000 --stop-pid ${PID}",
    ),
    Command(
        "status",
        "say what is known of the server; exit code 0 if it answers",
        (_URL, _HEALTH, _FOLDER),
        example="lswap-vllm status --vllm-url http://127.0.0.1:8000",
    ),
    Command(
        "stop",
        "end a server that `serve` has started",
        (_URL, _FOLDER, Flag("grace", "TIME", "from SIGTERM to SIGKILL; 30s", group=_SERVER)),
        example="lswap-vllm stop --vllm-url http://127.0.0.1:8000",
    ),
)
OVERVIEW = (
    "Usage: lswap-vllm COMMAND [flags]\n\n"
    + "".join(f"  {command.name:<8}{command.does}\n" for command in COMMANDS)
    + "\nlswap-vllm COMMAND -help tells the flags of each. In the configuration of lswap:\n"
    f"  cmd: {COMMANDS[0].example}\n"
    f"  cmdStop: {COMMANDS[1].example}\n"
)


class VllmSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the command line says; what a command has no flag for has its default. Times in seconds."""

    #: Without slashes at its end.
    url: str
    state_dir: str = ""
    health_path: str = "/health"
    listen: str = ""
    sleep_level: int = 1
    wait_timeout: float = 120.0
    grace: float = 30.0
    journal_unit: str = ""
    stop_pid: int = 0
    dry_run: bool = False
    #: Words of the daemon.
    daemon: tuple[str, ...] = ()

    @property
    def uses_tls(self) -> bool:
        """Whether anything is encrypted."""
        return self.url.startswith("https:") or self.listen.startswith(("ssl:", "tls:"))


def help_text(command: Command) -> str:
    """What `COMMAND -help` prints."""
    return usage(f"lswap-vllm {command.name}", command.flags, f"\nExample:\n  {command.example}\n", command.words)


def settings_of(command: Command, words: Sequence[str]) -> VllmSettings | None:
    """The settings; None when help is asked for.

    @raise OptionError: with the first thing that is wrong.
    """
    values, rest = flags_of(words, command.flags)
    if "help" in values:
        return None
    given = {name: value for name, value in values.items() if isinstance(value, str)}
    daemon = tuple(rest[1:] if rest[:1] == ["--"] else rest)
    settings = VllmSettings(
        url=given.get("vllm-url", "").rstrip("/"),
        state_dir=given.get("state-dir", ""),
        health_path=given.get("health-path", "/health"),
        listen=given.get("listen", ""),
        sleep_level=whole("sleep-level", given.get("sleep-level", "1")),
        wait_timeout=_time("wait-timeout", given.get("wait-timeout", "120s")),
        grace=_time("grace", given.get("grace", "30s")),
        journal_unit=given.get("journal-unit", ""),
        stop_pid=whole("stop-pid", given.get("stop-pid", "0")),
        dry_run=values.get("dry-run") is True,
        daemon=daemon,
    )
    _check(command, settings)
    return settings


def _check(command: Command, settings: VllmSettings) -> None:
    serves = command.name == "serve"
    if not settings.url:
        raise OptionError("--vllm-url is required", 1)
    if serves and not settings.listen:
        raise OptionError("--listen is required", 1)
    if serves and not settings.daemon:
        raise OptionError("a daemon command is required, after --", 1)
    if not serves and settings.daemon:
        raise OptionError(f'unexpected argument "{settings.daemon[0]}": only flags are taken', 2)
    server_url("--vllm-url", settings.url, "http://127.0.0.1:8000")
    path = settings.health_path
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise OptionError(f"--health-path {settings.health_path}: expected a path such as /health", 1)
    if not 0 <= settings.sleep_level <= 2:
        raise OptionError(f"--sleep-level {settings.sleep_level}: expected 1 or 2", 1)


def _time(name: str, text: str) -> float:
    seconds = go_duration(text)
    if seconds is None:
        raise OptionError(f'invalid value "{text}" for flag -{name}: parse error', 2)
    return max(0.0, min(seconds, 86400.0))
