"""Changes a request's body by splicing: the bytes that need not change stay as they are.

Gives parts for `lswap.net.body.Body`: new bytes, and slices of what the client sent.
"""

from __future__ import annotations

import json
from urllib.parse import quote_plus

from lswap.core.find_model import Found

__all__ = ["Parts", "readdressed", "renamed"]

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


def readdressed(found: Found, length: int, name: str) -> Parts | None:
    """The same for a name that a profile or a selector has changed: in every kind of body; None if it stands elsewhere.

    A form in URL encoding is changed too, or the model server would be asked for the old name.
    """
    if found.form_span is None:
        return renamed(found, length, name)
    start, end = found.form_span
    return [(0, start), quote_plus(name, safe="/:").encode(), (end, length)]
