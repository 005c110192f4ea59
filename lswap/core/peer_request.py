"""What a peer gets of a request's headers: none that tell of the way so far, and the peer's key for the client's.

Source: HTTP reference, section 8.4, the column of peers. Read `lswap.core.headers` next.
"""

from __future__ import annotations

from lswap.core.headers import Headers, request_lines

__all__ = ["peer_lines"]

#: They tell of the proxies on the way, and of the client, which is none of the peer's business.
_WAY = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"})
_KEYS = frozenset({b"authorization", b"x-api-key"})


def peer_lines(headers: Headers, host: bytes, length: int | None, metered: bool, api_key: str) -> list[bytes]:
    """The header lines of a request as a peer gets them, each with its line end: see `request_lines`.

    With an `api_key` it takes the place of whatever keys the client sent; without one those go through.
    """
    dropped = _WAY | _KEYS if api_key else _WAY
    kept = [header for header in headers if header[0].lower() not in dropped]
    if api_key:
        key = api_key.encode()
        kept += [(b"Authorization", b"Bearer " + key), (b"X-Api-Key", key)]
    return request_lines(kept, None, length, metered, host)
