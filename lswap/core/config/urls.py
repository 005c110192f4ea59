"""Whether a text can be the URL of a server, by the rules that decide it in the reference."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Url", "UrlError", "parse", "without_password"]

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_BAD_IN_HOST = re.compile(r"[ \"<>\\^`{|}]")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_PORT = re.compile(r"(?::[0-9]*)?")
_USER = re.compile(r"//[^/@\s]*@")


class UrlError(ValueError):
    """Why a text is no URL."""


class Url(NamedTuple):
    """The parts that matter here."""

    scheme: str
    host: str
    port: int | None
    path: str


def parse(text: str) -> Url:
    """The parts of a URL; UrlError says what is wrong with it. Relative ones are URLs too."""
    if _CONTROL.search(text):
        raise UrlError("invalid control character in URL")
    rest, _, _fragment = text.partition("#")
    scheme = ""
    if match := _SCHEME.fullmatch(rest):
        scheme, rest = match[1].lower(), match[2]
    elif rest.startswith(":"):
        raise UrlError("missing protocol scheme")
    rest, _, _query = rest.partition("?")
    if not rest.startswith("/") and scheme:
        return Url(scheme, "", None, "")  # opaque, like `localhost:80`
    if not rest.startswith("/") and ":" in rest.partition("/")[0]:
        raise UrlError("first path segment in URL cannot contain colon")
    host, port = "", None
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        host, port = _host(authority)
        rest = slash + path
    _check_escapes(rest)
    return Url(scheme, host, port, rest)


def _host(authority: str) -> tuple[str, int | None]:
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        inside, bracket, rest = host[1:].partition("]")
        if not bracket:
            raise UrlError("missing ']' in host")
        name = inside
    else:
        name, colon, digits = host.partition(":")
        rest = colon + digits
    if not _PORT.fullmatch(rest):
        raise UrlError(f'invalid port "{rest}" after host')
    if found := _BAD_IN_HOST.search(name):
        raise UrlError(f'invalid character "{found[0]}" in host name')
    _check_escapes(name)
    port = int(rest[1:]) if len(rest) > 1 else None
    if port is not None and port > 65535:
        raise UrlError(f"there is no port {rest[1:8]}")
    return name, port


def _check_escapes(text: str) -> None:
    if match := _ESCAPE.search(text):
        raise UrlError(f'invalid URL escape "{text[match.start() : match.start() + 3]}"')


def without_password(text: str) -> str:
    """A URL as it may be shown: without user and password."""
    return _USER.sub("//", text)
