"""Reads the heads of requests for a client connection: each header kept as it came, what is malformed refused.

Decides what two servers could read differently, and whether the connection can be kept. `lswap.web.channel` is the rest
of the connection. Sources: RFC 9110, RFC 9112, the key `limits:`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from twisted.web import http

from lswap.core.headers import connection_tokens
from lswap.core.known_heads import HeadMemory, RequestHead, cut_length
from lswap.web.request import Request

__all__ = ["HeadReader"]

_MOST_HEADERS = 10_000
#: Digits of the largest length that makes sense; Python refuses to read thousands of them.
_LENGTH_DIGITS = 18
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
#: What needs more than to know its head.
_SPECIAL = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BARE = re.compile(rb"[\x00\r\n]")
_HOST = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=:%\[\]]*")
_ABSOLUTE = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)
#: The header lines of nearly all heads: no space before a colon, no folded line, none of the bytes above.
_PLAIN_HEADERS = re.compile(rb"(?:[%b]+:[^\x00\r\n]*\r\n)*" % re.escape(_TOKEN))
#: Stands in for the bytes of a target that Twisted does not take, though servers do.
_MASK = bytes(range(128)) + b"x" * 128
#: Twisted's class has no annotations.
_Base: Any = http.HTTPChannel


class HeadReader(_Base):  # type: ignore[misc]
    """The part of a connection that reads heads."""

    requestFactory = Request
    #: Whether the client was turned away.
    refused = False

    @abstractmethod
    def refuse(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        """Answer with an error before the request is whole, and close. How is the rest of the connection's business."""

    @abstractmethod
    def _admit_head(self, request: Request) -> bool:
        """A head is complete, and nothing is wrong with it; False when the request was refused all the same."""

    def _whole_head(self, data: bytes) -> bytes:
        """Take a head that came in one piece without the line buffer's copies; what is left for the ordinary way."""
        end = data.find(b"\r\n\r\n", 0, self.totalHeadersSize)
        if end <= 0:
            return data
        memory: HeadMemory[RequestHead] = self.factory.heads
        key, length = cut_length(data, end)
        known = memory.find(key)
        if known is not None:
            return self._known_head(known, length, data[end + 4 :])
        lines = data[:end].split(b"\r\n")
        if lines[0] and _PLAIN_HEADERS.fullmatch(data, len(lines[0]) + 2, end + 2):
            self.lineReceived(lines.pop(0))
            if self.refused or not self._keep(lines):
                return b""
            if self._repeatable():
                request = self.requests[-1]
                words = self._command, self._path, self._version
                persistent = self.checkPersistence(request, self._version)
                request.head = RequestHead(words, request.raw_headers, request.first_values, persistent)
                memory.keep(key, request.head)
        else:  # what is folded or malformed is Twisted's work
            for line in lines:
                self.lineReceived(line)
                if self.refused:
                    return b""
        if not self.refused:
            self.lineReceived(b"")
        return b"" if self.refused else data[end + 4 :]

    def _repeatable(self) -> bool:
        """Whether nothing but the length can make a difference between this head and the same one again."""
        request: Request = self.requests[-1]
        ordinary = self._path.startswith(b"/") and request.first_values.keys().isdisjoint(_SPECIAL)
        return ordinary and self._find_host(request)

    def _known_head(self, known: RequestHead, length: int, rest: bytes) -> bytes:
        """Take a head that was read before, and the body as far as it is there; what is left for the ordinary way.

        Does what Twisted does line by line: makes the request, and knows what follows.
        """
        request: Request = self.requestFactory(self, len(self.requests))
        self.requests.append(request)
        self._command, self._path, self._version = known.command, known.target, known.version
        request.take_head(known, length)
        self.length = max(0, length)
        if not self._admit_head(request):
            return b""
        self.persistent = known.persistent
        if len(rest) < self.length:
            self._maybeChooseTransferDecoder(b"Content-Length", b"%d" % length)
            self.setRawMode()
            return rest
        if length > 0:
            body, rest = (rest, b"") if len(rest) == length else (rest[:length], rest[length:])
            request.handleContentChunk(body)
            if self.refused:
                return b""
        self.allContentReceived()
        return rest

    def _odd_line(self, line: bytes) -> None:
        """A line with bytes beyond ASCII: they are taken as they are in a target, and refused elsewhere before it."""
        words = line.split(b" ")
        if self.requests or len(words) != 3:
            super().lineReceived(line)
            return
        super().lineReceived(b" ".join([words[0], words[1].translate(_MASK), words[2]]))
        if self.requests:
            self._path = words[1]

    def headerReceived(self, line: bytes) -> bool:
        """One header, kept as it came.

        A space before the colon, a bare CR or LF, a NUL, two lengths: that is how two servers come to read one head
        differently (RFC 9112, sections 5.1 and 6.1).
        """
        name, colon, value = line.partition(b":")
        if not colon or not name or name.translate(None, _TOKEN) or _BARE.search(value.strip(b" \t")):
            self._respondToBadRequestAndDisconnect()
            return False
        return self._keep((line,))

    def _keep(self, lines: Iterable[bytes]) -> bool:
        """Take well-formed header lines; False when the request was refused for one of them."""
        request = self.requests[-1]
        headers, firsts = request.raw_headers, request.first_values
        for line in lines:
            name, _, value = line.partition(b":")
            value = value.strip(b" \t")
            low = name.lower()
            if low in _FRAMING and not self._framing(low, value):
                return False
            headers.append((name, value))
            firsts.setdefault(low, value)
        if len(headers) > _MOST_HEADERS:
            self.refuse(431, f"request head has more than {_MOST_HEADERS} headers")
            return False
        return True

    def _framing(self, low: bytes, value: bytes) -> bool:
        """A header that tells where the body ends; False when the request was refused for it."""
        if low == b"content-length":
            if value.isdigit() and len(value) > _LENGTH_DIGITS:
                self._too_large()
                return False
            return bool(self._maybeChooseTransferDecoder(b"Content-Length", value))
        if value.lower() != b"chunked" or self._version != b"HTTP/1.1":
            self._respondToBadRequestAndDisconnect()
            return False
        return bool(self._maybeChooseTransferDecoder(b"Transfer-Encoding", value))

    def _find_host(self, request: Request) -> bool:
        """See that there is exactly one usable host; that of an absolute target wins (RFC 9112, section 3.2)."""
        hosts = request.values(b"host")
        if len(hosts) > 1 or (not hosts and self._version == b"HTTP/1.1"):
            return False
        if not self._path.startswith(b"/"):
            absolute = _ABSOLUTE.fullmatch(self._path)
            if absolute is not None:
                hosts = [absolute[1].rpartition(b"@")[2]]
                self._path = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
                others = [header for header in request.raw_headers if header[0].lower() != b"host"]
                request.set_headers([(b"Host", hosts[0]), *others])
        return not hosts or _HOST.fullmatch(hosts[0]) is not None

    def checkPersistence(self, request: Request, version: bytes) -> bool:
        """Whether the connection stays open after the answer."""
        if version != b"HTTP/1.1":
            return False
        return request.header(b"connection") is None or b"close" not in connection_tokens(request.raw_headers)

    # -- what is refused ---------------------------------------------------------------

    def lineLengthExceeded(self, line: bytes) -> None:
        """A line beyond `limits.requestHead`."""
        self.refuse(431, "request head is larger than limits.requestHead")

    def _respondToBadRequestAndDisconnect(self) -> None:
        if self._receivedHeaderSize > self.totalHeadersSize:
            self.refuse(431, "request head is larger than limits.requestHead")
        else:
            self.refuse(400, "malformed HTTP request")

    def _too_large(self) -> None:
        self.refuse(413, "request body is larger than limits.requestBody")
