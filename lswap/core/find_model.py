"""Where a request names its model: JSON member, form field or query, by method and media type.

Source: HTTP reference, section 7, with media types compared without regard to case. A body may come in pieces
(`ModelFinder.feed`), so that an upload of many megabytes is read once, while it arrives.
"""

from __future__ import annotations

import msgspec

from lswap.core.scan_form import MultipartScan, UrlencodedScan, boundary_of, query_value
from lswap.core.scan_json import JsonScan, Member

__all__ = ["Found", "ModelFinder", "find_quickly"]

_WANTED = frozenset({"model", "stream"})
#: A body up to this size is first shown to a strict parser, which is faster.
_SMALL = 65536
#: The beginning of an escaped letter, which a strict parser would read in a key, too.
_ESCAPED_K, _ESCAPED_P = b"\\u006", b"\\u007"


class Found(msgspec.Struct, frozen=True):
    """The name as the client wrote it (never empty), and where it stands in the body, if it does."""

    name: str
    #: Place of the value in the body, quotes included for JSON.
    span: tuple[int, int] | None = None
    #: The same for a form in URL encoding, which only a change of the name by profile or selector touches.
    form_span: tuple[int, int] | None = None
    json: bool = False
    stream: bool = False


class _Probe(msgspec.Struct):
    model: str
    stream: bool | int | float | str | None = None


_probe = msgspec.json.Decoder(_Probe)


class ModelFinder:
    """One request's search. Feed the body, or give it whole to `find`."""

    def __init__(self, method: bytes, query: bytes, content_type: bytes) -> None:
        self._query = query
        self._json: JsonScan | None = None
        self._form: MultipartScan | UrlencodedScan | None = None
        self._query_first = True
        self._nothing = False
        low = content_type.lower()
        if method in (b"GET", b"HEAD"):
            return
        if b"application/json" in low:
            self._json = JsonScan(_WANTED)
        elif b"multipart/form-data" in low:
            boundary = boundary_of(content_type)
            self._nothing = boundary is None
            self._form = MultipartScan(boundary or b"\0")
        elif b"application/x-www-form-urlencoded" in low:
            self._form = UrlencodedScan()
            self._query_first = False

    @property
    def reads_body(self) -> bool:
        """Whether the body has to be fed."""
        return self._json is not None or self._form is not None

    def feed(self, data: bytes) -> None:
        """The next piece of the body."""
        if self._json is not None:
            self._json.feed(data)
        elif self._form is not None:
            self._form.feed(data)

    def find(self, body: bytes | None) -> Found | None:
        """The result, when the body is over; `body` is the whole one if it was not fed."""
        if self._nothing:
            return None
        if self._json is not None:
            return self._find_json(self._json, body)
        if self._form is not None and body is not None:
            self._form.feed(body)
        if isinstance(self._form, UrlencodedScan):
            self._form.finish()
        in_query = query_value(self._query, "model")
        in_form = self._form.name if self._form is not None else None
        if in_form is not None and (not in_query or not self._query_first):
            if self._form is None or not in_form:
                return None
            span = (self._form.start, self._form.end)
            if isinstance(self._form, UrlencodedScan):
                return Found(name=in_form, form_span=span)
            return Found(name=in_form, span=span)
        streams = query_value(self._query, "stream") == "true"
        return Found(name=in_query, stream=streams) if in_query else None

    def _find_json(self, scan: JsonScan, body: bytes | None) -> Found | None:
        if body is not None:
            scan.feed(body)
        member = scan.members.get("model")
        if member is None or not member.text or (not member.is_string and member.text == "null"):
            return None
        stream = scan.members.get("stream")
        streams = stream is not None and _streams(stream)
        return Found(name=member.text, span=(member.start, member.end), json=True, stream=streams)


def find_quickly(method: bytes, content_type: bytes, body: bytes) -> Found | None:
    """What a whole small JSON body names, if that is certain at first sight; else it takes a `ModelFinder` to tell."""
    if method in (b"GET", b"HEAD") or b"application/json" not in content_type.lower():
        return None
    return _probed(body)


def _probed(body: bytes) -> Found | None:
    """What a strict parser finds in a small body, if that is certain to be what the scan would find."""
    if (
        len(body) > _SMALL
        or body.count(b'"model"') != 1
        or body.count(b'"stream"') > 1
        or _ESCAPED_K in body
        or _ESCAPED_P in body
    ):
        return None  # with a key twice the parser takes the last one, the scan the first
    try:
        probe = _probe.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if not probe.model:
        return None
    return Found(name=probe.model, json=True, stream=_asks(probe.stream))


def _streams(member: Member) -> bool:
    """Whether a member asks for a stream."""
    text = member.text
    if text is None or member.is_string or text == "true":
        return _asks(text)
    try:
        return _asks(float(text))
    except ValueError:
        return False


def _asks(value: bool | int | float | str | None) -> bool:
    """Whether a value of `stream` asks for one: true, a number but 0, or a string that reads as true."""
    return value.lower() in ("true", "t", "1") if isinstance(value, str) else bool(value)
