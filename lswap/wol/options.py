"""What the words of `lswap-wol` mean: flags in, frozen settings out, or a text that says what is wrong.

Decides only; imports nothing of Twisted. Read `lswap.wol.tap` next. Source: utilities reference, sections 1.1 and 1.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from lswap.core import command
from lswap.core.magic import Destination, destination, listed, packets_for
from lswap.core.model_parts import Hiding
from lswap.options import Flag, OptionError, read, server_url, usage, whole

__all__ = ["FLAGS", "KEY_VARIABLE", "LEVELS", "WolSettings", "help_text", "settings_of"]

#: Where the key is looked for when no flag tells it: a command line can be read by everybody on the machine.
KEY_VARIABLE = "LSWAP_WOL_API_KEY"
LEVELS = ("debug", "info", "warn", "error")
#: Seconds; nobody waits for longer than a day, and a clock can be asked for no more than some years.
_LONGEST = 86400
_HOST, _WAKING, _FRONT = "The host", "How it is woken", "The proxy"
FLAGS = (
    Flag("upstream", "URL", "base URL of the server on the host, such as http://192.168.1.13:8080", group=_HOST),
    Flag("health-path", "PATH", "answers 200 when the server is ready; /wol-health", group=_HOST),
    Flag("api-key", "KEY", f"sent when the host is watched, only then; or in {KEY_VARIABLE}", group=_HOST),
    Flag("mac", "ADDRESS", "hardware address, or several with commas between them", group=_WAKING),
    Flag("broadcast", "HOST[:PORT]", "where packets go, or several; every network, port 9", group=_WAKING),
    Flag("password", "WORD", "SecureOn password, as ba:dc:0f:fe:e0:00 or 192.0.2.1", group=_WAKING),
    Flag("wake-command", "COMMAND", "run this instead of sending packets", group=_WAKING),
    Flag("listen", "ADDRESS", "host:port, or :port for all addresses; :8080", group=_FRONT),
    Flag("timeout", "SECONDS", "how long a request may wait for the host; 60", group=_FRONT),
    Flag("log", "LEVEL", "debug, info, warn or error; info", group=_FRONT),
    Flag("version", "", "print the version and exit", group=_FRONT),
)
_EXAMPLE = """
Example, with the host at 192.168.1.13 and clients that use port 8080 of this machine:
  lswap-wol -mac ba:dc:0f:fe:e0:00 -upstream http://192.168.1.13:8080
"""


class WolSettings(Hiding, msgspec.Struct, frozen=True, kw_only=True):
    """All that the command line says."""

    hidden = frozenset({"api_key", "packets"})

    upstream: str
    health_path: str
    api_key: str
    #: One for each address; none with a command.
    packets: tuple[bytes, ...]
    #: Where they go; none is every network.
    destinations: tuple[Destination, ...]
    #: Words of the wake command; none with packets.
    wake_command: tuple[str, ...]
    listen: str
    #: Seconds.
    timeout: float
    log_level: str

    @property
    def uses_tls(self) -> bool:
        """Whether anything is encrypted."""
        return self.upstream.startswith("https:") or self.listen.startswith(("ssl:", "tls:"))


def help_text(name: str) -> str:
    """What `-help` prints."""
    return usage(name, FLAGS, _EXAMPLE)


def settings_of(words: Sequence[str], environ: Mapping[str, str]) -> WolSettings | str:
    """The settings, or `help` or `version` when that is asked for.

    @raise OptionError: with the first thing that is wrong.
    """
    values = read(words, FLAGS)
    for asked in ("help", "version"):
        if values.get(asked):
            return asked
    given = {name: value for name, value in values.items() if isinstance(value, str)}
    timeout = whole("timeout", given.get("timeout", "60"))
    level = given.get("log", "info")
    if level not in LEVELS:
        raise OptionError(f"-log {level}: expected {', '.join(LEVELS[:-1])} or {LEVELS[-1]}", 1)
    listen = given.get("listen", ":8080")
    if not listen:
        raise OptionError("-listen must not be empty", 1)
    words_to_run = tuple(command.split(given.get("wake-command", "")))
    if "wake-command" in given and not words_to_run:
        raise OptionError("-wake-command is empty", 1)
    if not given.get("mac") and not words_to_run:
        raise OptionError("-mac is required (or -wake-command)", 1)
    if timeout < 1:
        raise OptionError(f"-timeout {timeout}: must be at least 1", 1)
    packets = () if words_to_run else _packets(given)
    with _naming("broadcast"):
        destinations = listed(given.get("broadcast", ""), destination)
    return WolSettings(
        upstream=_upstream(given.get("upstream", "")),
        health_path=_path(given.get("health-path", "/wol-health")),
        api_key=_key(given.get("api-key") or environ.get(KEY_VARIABLE, "")),
        packets=packets,
        destinations=destinations,
        wake_command=words_to_run,
        listen=listen,
        timeout=float(min(timeout, _LONGEST)),
        log_level=level,
    )


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Say of a bad value which flag has it."""
    try:
        yield
    except ValueError as problem:
        raise OptionError(f"-{flag} {problem}", 1) from None


def _packets(given: Mapping[str, str]) -> tuple[bytes, ...]:
    with _naming("password"):
        packets_for("", given.get("password", ""))
    with _naming("mac"):
        packets = packets_for(given["mac"], given.get("password", ""))
    if not packets:
        raise OptionError("-mac is required (or -wake-command)", 1)
    return packets


def _upstream(text: str) -> str:
    if not text:
        raise OptionError("-upstream is required", 1)
    return server_url("-upstream", text, "http://192.168.1.13:8080")


def _path(text: str) -> str:
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text:
        raise OptionError(f"-health-path {text}: expected a path such as /health", 1)
    return text


def _key(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise OptionError("-api-key has characters that no header may have", 1)
    return text
