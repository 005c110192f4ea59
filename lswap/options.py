"""What the words of a command line mean: flags in, frozen settings out, or a text that says what is wrong.

Decides only; prints nothing, reads no file, imports nothing of Twisted, so that a command may look at its words before
a reactor is chosen. Both commands use it: read `lswap.tap` (`twistd llamaswap`) or `lswap.cli` (`lswap`) next.
Source: command line reference, section 1.1.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from lswap.errors import LswapError

__all__ = [
    "FLAGS",
    "Flag",
    "OptionError",
    "Settings",
    "flags_of",
    "read",
    "server_url",
    "settle",
    "usage",
    "whole",
]

#: Words that a boolean flag takes after its equals sign.
_WORDS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


class OptionError(LswapError):
    """The command line cannot be followed. The caller's fault.

    `status` is the exit code that goes with it: 2 for words that are no flags, 1 for flags that do not go together.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Flag(msgspec.Struct, frozen=True):
    """One flag. `value` names its value in the help; an empty one makes it boolean. `group` is its heading there."""

    name: str
    value: str
    help: str
    short: str = ""
    group: str = ""


FLAGS = (
    Flag("config", "FILE", "the configuration", short="c"),
    Flag("config-dir", "DIR", "folder whose *.yaml and *.yml files are merged, after -config"),
    Flag("listen", "ADDRESS", "host:port; without it :8080, or :8443 with TLS"),
    Flag("watch-config", "", "reload when the configuration changes"),
    Flag("tls-cert-file", "FILE", "PEM certificate, with its chain"),
    Flag("tls-key-file", "FILE", "PEM private key"),
    Flag("version", "", "print the version and exit"),
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the command line says to the service."""

    config: str | None = None
    config_dir: str | None = None
    #: `host:port`, `:port` or an endpoint string; never empty.
    listen: str = ":8080"
    watch_config: bool = False
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    #: File creation mask for model servers; None leaves the one that the process has when it starts them.
    umask: int | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether the port that lswap listens on is to be encrypted."""
        return self.tls_cert_file is not None or self.listen.startswith(("ssl:", "tls:"))


def read(words: Sequence[str], flags: Sequence[Flag] = FLAGS) -> dict[str, str | bool]:
    """The flags among `words` with their values, as `flags_of` finds them; words that are no flags are refused.

    @raise OptionError: such a word, and what `flags_of` says.
    """
    found, rest = flags_of(words, flags)
    # The reference ignores these and whatever follows, so that flags get lost.
    surplus = next(iter(rest[1:] if rest[:1] == ["--"] else rest), None)
    if surplus is not None:
        raise OptionError(
            f'unexpected argument "{surplus}": only flags are taken, and true or false follows its flag after "="', 2
        )
    return found


def flags_of(words: Sequence[str], flags: Sequence[Flag]) -> tuple[dict[str, str | bool], list[str]]:
    """The flags before the first word that is none, with their values, and what follows, from that word or `--` on.

    One dash is as good as two; a value follows as the next word or after `=`, for a boolean only after `=`. The last
    of equal flags wins. The first `-h`, `-help` ends the reading, and only `help` is returned then.

    @raise OptionError: an unknown flag, one without its value, or a word for true or false that is neither.
    """
    known = {flag.name: flag for flag in flags} | {flag.short: flag for flag in flags if flag.short}
    found: dict[str, str | bool] = {}
    rest = list(words)
    while rest and rest[0] != "--" and len(rest[0]) > 1 and rest[0][0] == "-":
        word = rest.pop(0)
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise OptionError(f"bad flag syntax: {word}", 2)
        flag = known.get(name)
        if flag is None:
            if name in ("h", "help"):
                return {"help": True}, []
            raise OptionError(f"flag provided but not defined: -{name}", 2)
        if not flag.value:
            if equals and value not in _WORDS:
                raise OptionError(f'invalid boolean value "{value}" for -{name}: parse error', 2)
            found[flag.name] = _WORDS[value] if equals else True
        elif equals:
            found[flag.name] = value
        elif rest:
            found[flag.name] = rest.pop(0)
        else:
            raise OptionError(f"flag needs an argument: -{name}", 2)
    return found, rest


def settle(values: dict[str, str | bool], umask: int | None = None, folder: str = "") -> Settings:
    """Settings from flags that `read` found, defaults filled in; an empty value counts as not given.

    Paths are completed by `folder`, for a program that will be elsewhere when it uses them.

    @raise OptionError: flags that do not go together.
    """

    def text(name: str) -> str | None:
        value = values.get(name)
        return value if isinstance(value, str) and value else None

    def path(name: str) -> str | None:
        value = text(name)
        return os.path.join(folder, value) if value is not None else None

    if not text("config") and not text("config-dir"):
        raise OptionError("at least one of -config or -config-dir must be provided", 1)
    cert, key = path("tls-cert-file"), path("tls-key-file")
    if (cert is None) != (key is None):
        raise OptionError("both -tls-cert-file and -tls-key-file must be provided for TLS", 1)
    return Settings(
        config=path("config"),
        config_dir=path("config-dir"),
        listen=text("listen") or (":8443" if cert else ":8080"),
        watch_config=values.get("watch-config") is True,
        tls_cert_file=cert,
        tls_key_file=key,
        umask=umask,
    )


def usage(command: str, flags: Sequence[Flag] = FLAGS, more: str = "", words: str = "[flags]") -> str:
    """The help text of a command, ending in a newline; `words` follow it, and `more` the flags.

    Flags stand below their headings, in the order of the table.
    """
    lines = [f"Usage: {command} {words}"]
    flags = (*flags, Flag("help", "", "print this text and exit", short="h", group=flags[-1].group))
    width = max(20, *(len(f"-{flag.name} {flag.value}") for flag in flags))
    group = None
    for flag in flags:
        if flag.group != group:
            group = flag.group
            lines += ["", f"{group}:"] if group else [""]
        short = f"-{flag.short}, " if flag.short else "    "
        lines.append(f"  {short}{f'-{flag.name} {flag.value}'.rstrip():<{width}}  {flag.help}")
    lines += ["", "One dash or two, and -flag VALUE or -flag=VALUE, are the same."]
    return "\n".join(lines) + "\n" + more


def whole(name: str, text: str) -> int:
    """The value of a flag that is a whole number.

    @raise OptionError: it is none.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII):
        raise OptionError(f'invalid value "{text}" for flag -{name}: parse error', 2)
    return int(text)


def server_url(flag: str, text: str, example: str) -> str:
    """The value of a flag that is the base URL of a server, as it is.

    @raise OptionError: it is none, or has a user and a password, which nobody would be told.
    """
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise OptionError(f"{flag}: expected a URL without user and password, such as {example}", 1)
    if not good or not text.isascii() or not text.isprintable() or " " in text:
        raise OptionError(f"{flag} {text}: expected a URL such as {example}", 1)
    return text
