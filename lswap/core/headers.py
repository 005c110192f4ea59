"""Which headers travel on, and as what: hop-by-hop names, X-Forwarded-For, codings, redaction.

Pure functions over lists of (name, value) pairs as they stood on the wire. Sources: RFC 9110 section 7.6.1,
and the reference's table of proxied headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from lswap.core.framing import CHUNKED, LENGTH, ResponseHead

__all__ = [
    "Headers",
    "connection_tokens",
    "interim_lines",
    "is_upgrade",
    "redacted",
    "request_lines",
    "response_lines",
    "tokens",
    "upgrade_lines",
    "upgrade_tokens",
]

Headers = list[tuple[bytes, bytes]]

#: Never passed on, in either direction; what `Connection` names comes on top.
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: Not passed on as they are, but said anew, for each request that goes upstream. Naming one of them in `Connection`
#: changes nothing.
_OURS = _HOP | {b"trailer", b"content-length", b"expect", b"x-forwarded-for"}
#: Names of headers whose values nobody may see; what counts tokens is none.
_SECRET = re.compile(
    r"auth(?!or(?:$|-|s))|token(?!s)|secret|passw|cookie|credential|signature|api-?key|(?:^|-)key(?:$|-)"
)


def tokens(values: Iterable[bytes]) -> set[bytes]:
    """The comma-separated items of some header values, in lower case."""
    return {item.strip().lower() for value in values for item in value.split(b",")}


def connection_tokens(headers: Headers) -> set[bytes]:
    """The items of all `Connection` headers, in lower case."""
    return tokens(value for name, value in headers if name.lower() == b"connection")


def is_upgrade(headers: Headers) -> bool:
    """Whether a request asks to become a websocket (RFC 6455 section 4.1)."""
    return b"websocket" in upgrade_tokens(headers) and b"upgrade" in connection_tokens(headers)


def upgrade_tokens(headers: Headers) -> set[bytes]:
    """The protocols that all `Upgrade` headers name, in lower case."""
    return tokens(value for name, value in headers if name.lower() == b"upgrade")


def upgrade_lines(headers: Headers) -> list[bytes]:
    """The lines by which a request or a 101 goes on asking for, or agreeing to, what its `Upgrade` headers name."""
    named = b", ".join(value for name, value in headers if name.lower() == b"upgrade")
    return [b"Connection: Upgrade\r\nUpgrade: " + named + b"\r\n"]


def _readable_codings(value: bytes) -> bytes:
    """The items of an `Accept-Encoding` whose answers can be read here; `identity` when none is left."""
    items = [item.strip() for item in value.split(b",")]
    kept = [item for item in items if item.partition(b";")[0].strip().lower() in (b"gzip", b"deflate")]
    return b", ".join(kept) or b"identity"


def request_lines(
    headers: Headers, client: bytes | None, length: int | None, metered: bool, host: bytes | None
) -> list[bytes]:
    """The header lines of a request as it goes to a local model, each with its line end.

    `client` is the address that is appended to X-Forwarded-For; without one there is no such header. `length` is
    that of the body, None for no such header. A metered request asks for no coding that cannot be read here. `host`
    replaces the client's, if given. There is one `Host` at most, and no length or coding but ours, whatever the
    client wrote.
    """
    lows = [name.lower() for name, _ in headers]
    dropped = connection_tokens(headers) - {b"host"} if b"connection" in lows else ()
    lines: list[bytes] = []
    forwarded: list[bytes] = []
    trailers = False
    hosted = host is not None
    if host is not None:
        lines.append(b"Host: " + host + b"\r\n")
    for low, (name, value) in zip(lows, headers, strict=True):
        if low in _OURS:
            if low == b"x-forwarded-for" and value:
                forwarded.append(value)
            elif low == b"te" and b"trailers" in tokens([value]):
                trailers = True
            continue
        if low in dropped:
            continue
        if low == b"host":
            if hosted:
                continue
            hosted = True
        elif metered and low == b"accept-encoding":
            value = _readable_codings(value)
        lines.append(b"%b: %b\r\n" % (name, value))
    if trailers:
        lines.append(b"TE: trailers\r\nConnection: TE\r\n")
    if client is not None:
        lines.append(b"X-Forwarded-For: " + b", ".join([*forwarded, client]) + b"\r\n")
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    return lines


def response_lines(head: ResponseHead, date: bytes, origin: bool) -> list[bytes]:
    """The header lines of an answer as it goes to the client, less those of its framing and of the connection.

    A missing Date is added. An event stream forbids buffering to proxies in front. To a request with `Origin` the
    answer has exactly one `Access-Control-Allow-Origin`, whatever the model says.
    """
    dropped = head.connection
    lines: list[bytes] = []
    stream = dated = sized = False
    raw_chunks = head.framing == CHUNKED
    for name, value in head.headers:
        low = name.lower()
        if low == b"content-length":
            if raw_chunks or sized or head.status == 204:
                continue
            sized = True
            if head.framing == LENGTH:
                value = b"%d" % head.length
        elif low in _HOP or low in dropped or (low == b"trailer" and not raw_chunks):
            continue
        if origin and low in (b"access-control-allow-origin", b"access-control-allow-credentials"):
            continue
        if low == b"date":
            dated = True
        elif low == b"content-type" and b"text/event-stream" in value.lower():
            stream = True
        lines.append(name + b": " + value + b"\r\n")
    if stream:
        lines = [line for line in lines if not line.lower().startswith(b"x-accel-buffering:")]
        lines.append(b"X-Accel-Buffering: no\r\n")
    if not dated:
        lines.append(b"Date: " + date + b"\r\n")
    if origin:
        lines.append(b"Access-Control-Allow-Origin: *\r\n")
    return lines


def interim_lines(head: ResponseHead) -> list[bytes]:
    """The header lines of a 1xx answer as it goes to the client: none about framing or the connection."""
    return [
        name + b": " + value + b"\r\n"
        for name, value in head.headers
        if name.lower() not in _OURS and name.lower() not in head.connection
    ]


@lru_cache(maxsize=1024)
def _shown_as(name: bytes) -> tuple[str, bool]:
    """The canonical form of a name, and whether its values may be seen."""
    text = name.decode("latin-1")
    return "-".join(part.capitalize() for part in text.split("-")), _SECRET.search(text.lower()) is None


def redacted(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers for display: canonical names, the first value of each, secrets hidden."""
    shown: dict[str, str] = {}
    for name, value in headers:
        key, public = _shown_as(name)
        if key not in shown:
            shown[key] = value.decode("utf-8", "replace") if public else "[REDACTED]"
    return shown
