"""Changes a request's body by splicing: the bytes that need not change stay as they are.

Gives parts for `lswap.net.body.Body`: new bytes, and slices of what the client sent.
"""

from __future__ import annotations

import json

from lswap.core.find_model import Found

__all__ = ["renamed"]

Parts = list[bytes | tuple[int, int]]


def renamed(found: Found, length: int, name: str) -> Parts | None:
    """The body of `length` bytes with another model's name in the place of the client's; None to leave it alone.

    JSON and multipart only: a form in URL encoding goes as it is, as with the reference.
    """
    if found.span is None:
        return None
    start, end = found.span
    value = json.dumps(name, ensure_ascii=False).encode() if found.json else name.encode()
    return [(0, start), value, (end, length)]
