"""Requests and answers as they were, of the newest activity: packed, in memory, within a budget of bytes.

Secrets in headers are blanked before anything is kept; bodies are kept as they are.
Source: HTTP reference, section 14.4.
"""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict
from typing import Any

import msgspec

from lswap.core.headers import Headers, redacted

__all__ = ["Captured", "Captures", "Wanted", "pack", "shown", "wanted"]

#: Routes of which less than all is kept: the request's body, the answer's body.
_LESS = {
    "/v1/audio/speech": (True, False),
    "/v1/images/generations": (True, False),
    "/sdapi/v1/txt2img": (True, False),
    "/v1/audio/voices": (False, True),
    "/v1/audio/transcriptions": (False, True),
    "/v1/images/edits": (False, False),
    "/sdapi/v1/img2img": (False, False),
}
#: Quick rather than small: it happens for each request.
_LEVEL = 1
#: Bytes that are not worth compressing: setting the compressor up costs more than they do.
_SMALL = 4096
#: The first byte of a packed capture: what follows is compressed, or as it is.
_COMPRESSED, _PLAIN = b"z", b"p"


class Wanted(msgspec.Struct, frozen=True):
    """Which bodies are kept; headers always are."""

    request: bool
    response: bool


_ALL = Wanted(True, True)
_TABLE = {path: Wanted(*what) for path, what in _LESS.items()}


def wanted(path: str) -> Wanted:
    """What is kept of a request to this path, below `/upstream` without the model."""
    return _TABLE.get(path, _ALL)


class Captured(msgspec.Struct):
    """One request and its answer."""

    path: str
    request_headers: dict[str, str]
    request_body: bytes | None
    response_headers: dict[str, str] | None
    response_body: bytes | None


def pack(path: str, request: Headers, body: bytes | None, response: Headers, answer: bytes | None) -> bytes:
    """A capture, packed. Takes a while for a large one."""
    answered = redacted(response)
    if answer is not None:
        answered.pop("Content-Encoding", None)  # it is kept unpacked
    captured = Captured(path, redacted(request), body, answered, answer)
    data = msgspec.msgpack.encode(captured)
    return _PLAIN + data if len(data) <= _SMALL else _COMPRESSED + zlib.compress(data, _LEVEL)


def shown(number: int, packed: bytes) -> dict[str, Any]:
    """A capture as clients see it. Takes a while for a large one."""
    data = packed[1:] if packed.startswith(_PLAIN) else zlib.decompress(packed[1:])
    captured = msgspec.msgpack.decode(data, type=Captured)
    return {
        "id": number,
        "req_path": captured.path,
        "req_headers": captured.request_headers,
        "req_body": _text(captured.request_body),
        "resp_headers": captured.response_headers,
        "resp_body": _text(captured.response_body),
    }


def _text(body: bytes | None) -> str | None:
    return base64.b64encode(body).decode("ascii") if body is not None else None


class Captures:
    """The packed captures by the ID of their row, oldest first."""

    def __init__(self, budget: int) -> None:
        """@param budget: bytes, packed; 0 or less keeps none."""
        #: Bytes that all of them may have, packed; 0 when captures are off.
        self.budget = max(0, budget)
        self._packed: OrderedDict[int, bytes] = OrderedDict()
        self._used = 0

    def allow(self, budget: int) -> None:
        """Another budget; the oldest make room."""
        self.budget = max(0, budget)
        self._make_room(0)

    def put(self, number: int, packed: bytes) -> None:
        """Keep one; the oldest make room. One that is larger than all the room is not kept, and displaces nothing."""
        if len(packed) > self.budget:
            return
        self._make_room(len(packed))
        self._packed[number] = packed
        self._used += len(packed)

    def _make_room(self, size: int) -> None:
        while self._packed and self._used + size > self.budget:
            _, oldest = self._packed.popitem(last=False)
            self._used -= len(oldest)

    def get(self, number: int) -> bytes | None:
        """The packed capture of a row."""
        return self._packed.get(number)

    def __contains__(self, number: int) -> bool:
        return number in self._packed

    def clear(self) -> None:
        """Forget all."""
        self._packed.clear()
        self._used = 0
