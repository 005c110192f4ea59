"""Which headers travel on: nothing is lost or invented, and nothing about framing gets through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.framing import ResponseHead, parse_head
from lswap.core.headers import (
    Headers,
    connection_tokens,
    interim_lines,
    is_upgrade,
    redacted,
    request_lines,
    response_lines,
    tokens,
)

HOP = {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te"} | {
    "transfer-encoding",
    "upgrade",
}
FOR = b"X-Forwarded-For: 10.0.0.1\r\n"


def sent(
    *headers: tuple[bytes, bytes], length: int | None = None, metered: bool = False, host: bytes | None = None
) -> list[bytes]:
    """The lines of a request that came with these headers."""
    return request_lines(list(headers), b"10.0.0.1", length, metered, host)


def answer(*lines: bytes, status: bytes = b"200 OK", method: bytes = b"GET") -> ResponseHead:
    """An answer's head."""
    return parse_head(b"\r\n".join([b"HTTP/1.1 " + status, *lines]), method)


def given_back(*lines: bytes, status: bytes = b"200 OK", method: bytes = b"GET", origin: bool = False) -> list[bytes]:
    """The lines that a client gets of an answer, less a `Date` of our own."""
    result = response_lines(answer(*lines, status=status, method=method), b"now", origin)
    return [line for line in result if line != b"Date: now\r\n"]


class TokenTests(SynchronousTestCase):
    """Lists in headers."""

    def test_tokens(self) -> None:
        """Items of all values, in lower case, without the space around them."""
        self.assertEqual(tokens([b"A, b\t,C", b"d"]), {b"a", b"b", b"c", b"d"})
        headers = [(b"Connection", b"X-Mine"), (b"x", b"no"), (b"CONNECTION", b"Close ,y")]
        self.assertEqual(connection_tokens(headers), {b"x-mine", b"close", b"y"})

    def test_upgrade(self) -> None:
        """A websocket is asked for by two headers together, however they are written."""
        for connection, upgrade, expected in (
            (b"Upgrade", b"websocket", True),
            (b"keep-alive, UPGRADE", b"h2c, WebSocket", True),
            (b"keep-alive", b"websocket", False),
            (b"Upgrade", b"h2c", False),
            (b"Upgrade", b"websockets", False),
        ):
            self.assertEqual(is_upgrade([(b"connection", connection), (b"upgrade", upgrade)]), expected)
        self.assertTrue(
            is_upgrade(
                [(b"Connection", b"x"), (b"Upgrade", b"h2c"), (b"connection", b"upgrade"), (b"upgrade", b"websocket")]
            )
        )
        self.assertFalse(is_upgrade([]))


class RequestTests(SynchronousTestCase):
    """`request_lines`."""

    def test_end_to_end_headers_stay(self) -> None:
        """Spelling, order and repetition stay, and nothing is added but the client's address."""
        lines = sent(
            (b"hOst", b"h:1"), (b"X-b", b""), (b"x-B", b"\xe9 "), (b"Cookie", b"a=b"), (b"Authorization", b"Bearer k")
        )
        expected = [
            b"hOst: h:1\r\n",
            b"X-b: \r\n",
            b"x-B: \xe9 \r\n",
            b"Cookie: a=b\r\n",
            b"Authorization: Bearer k\r\n",
            FOR,
        ]
        self.assertEqual(lines, expected)

    def test_hop_by_hop_headers_go(self) -> None:
        """Those of the standard, and those that `Connection` names."""
        hop = [(name.encode(), b"x") for name in HOP] + [(name.title().encode(), b"x") for name in HOP]
        self.assertEqual(sent(*hop), [FOR])
        self.assertEqual(
            sent((b"X-Mine", b"1"), (b"x-also", b"2"), (b"Y", b"3"), (b"Connection", b"x-mine, X-Also")),
            [b"Y: 3\r\n", FOR],
        )
        self.assertEqual(sent((b"Trailer", b"X"), (b"Expect", b"100-continue"), (b"Upgrade", b"websocket")), [FOR])

    def test_length_is_ours(self) -> None:
        """However the client framed its body, and whatever it says about that in `Connection`."""
        tricks = [
            [],
            [(b"Content-Length", b"7")],
            [(b"content-length", b"1"), (b"Content-Length", b"2")],
            [(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"7")],
            [(b"Connection", b"content-length, transfer-encoding"), (b"Content-Length", b"7")],
        ]
        for headers in tricks:
            self.assertEqual(sent(*headers, length=5), [FOR, b"Content-Length: 5\r\n"])
            self.assertEqual(sent(*headers, length=0), [FOR, b"Content-Length: 0\r\n"])
            self.assertEqual(sent(*headers), [FOR])

    def test_host(self) -> None:
        """One `Host` at most: the client's first, or the one that is given; `Connection` cannot take it away."""
        host = (b"Host", b"h")
        self.assertEqual(sent(host, (b"host", b"evil")), [b"Host: h\r\n", FOR])
        self.assertEqual(sent(host, (b"Connection", b"host, close")), [b"Host: h\r\n", FOR])
        self.assertEqual(sent((b"A", b"b"), host, host=b"ours:1"), [b"Host: ours:1\r\n", b"A: b\r\n", FOR])
        self.assertEqual(sent((b"A", b"b"), host=b"ours"), [b"Host: ours\r\n", b"A: b\r\n", FOR])

    def test_forwarded_for(self) -> None:
        """The client's address comes after what is there; `Connection` cannot take it away."""
        for before, line in {
            (): b"10.0.0.1",
            (b"1.2.3.4",): b"1.2.3.4, 10.0.0.1",
            (b"1.2.3.4, ::1",): b"1.2.3.4, ::1, 10.0.0.1",
            (b"1.2.3.4", b"5.6.7.8"): b"1.2.3.4, 5.6.7.8, 10.0.0.1",
            (b"",): b"10.0.0.1",
        }.items():
            headers = [(b"x-forwarded-FOR", value) for value in before]
            self.assertEqual(sent(*headers), [b"X-Forwarded-For: " + line + b"\r\n"])
            self.assertEqual(
                sent(*headers, (b"Connection", b"X-Forwarded-For")), [b"X-Forwarded-For: " + line + b"\r\n"]
            )

    def test_trailers_are_asked_for(self) -> None:
        """Of `TE` only the wish for trailers goes on."""
        wish = b"TE: trailers\r\nConnection: TE\r\n"
        self.assertEqual(sent((b"TE", b"trailers, deflate;q=0.5"), (b"Connection", b"TE")), [wish, FOR])
        self.assertEqual(sent((b"te", b"deflate")), [FOR])

    def test_codings_of_metered_requests(self) -> None:
        """A metered request asks for nothing that cannot be read here; others ask for what they like."""
        for asked, readable in {
            b"gzip, deflate, br": b"gzip, deflate",
            b"gzip;q=1.0 , br;q=0.9": b"gzip;q=1.0",
            b"GZIP": b"GZIP",
            **dict.fromkeys((b"br, zstd", b"identity", b"*", b"", b"x-gzip"), b"identity"),
        }.items():
            header = (b"accept-Encoding", asked)
            self.assertEqual(sent(header, metered=True), [b"accept-Encoding: " + readable + b"\r\n", FOR])
            self.assertEqual(sent(header), [b"accept-Encoding: " + asked + b"\r\n", FOR])
        self.assertEqual(sent(metered=True), [FOR])

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(
                    [*sorted(HOP), "Content-Length", "Host", "Trailer", "Expect", "X-Forwarded-For", "X-A", "Accept"]
                ),
                st.sampled_from(
                    ["close", "x-a", "content-length", "host", "chunked", "trailers", "5", "x-forwarded-for, te"]
                ),
            ),
            max_size=6,
        )
    )
    def test_no_trick_gets_through(self, headers: list[tuple[str, str]]) -> None:
        """Whatever a client combines, the upstream reads one length, one host at most, and no coding."""
        raw: Headers = [(name.encode(), value.encode()) for name, value in headers]
        lines = request_lines(raw, b"::1", 5, False, None)
        names = [line.partition(b":")[0].lower() for joined in lines for line in joined.split(b"\r\n") if line]
        self.assertEqual(names.count(b"content-length"), 1)
        self.assertEqual(names.count(b"host"), min(1, sum(name == "Host" for name, _ in headers)))
        self.assertFalse({name.encode() for name in HOP - {"te", "connection"}} & set(names))
        self.assertTrue(all(line.endswith(b"\r\n") for line in lines))


class ResponseTests(SynchronousTestCase):
    """`response_lines`."""

    def test_end_to_end_headers_stay(self) -> None:
        """Spelling, order and repetition stay."""
        lines = (b"SeT-cookie: a", b"X: ", b"Set-Cookie: b", b"Server: m", b"Vary: x", b"X-Accel-Buffering: yes")
        self.assertEqual(given_back(*lines), [line + b"\r\n" for line in lines])

    def test_hop_by_hop_headers_go(self) -> None:
        """Those of the standard, and those that `Connection` names; none of it changes the length."""
        hop = [f"{name}: x".encode() for name in HOP - {"transfer-encoding"}]
        self.assertEqual(given_back(*hop), [])
        mine = (b"Connection: X-Mine, content-length, date", b"x-mine: 1", b"Content-Length: 5", b"Date: then", b"Y: 2")
        self.assertEqual(given_back(*mine), [b"Content-Length: 5\r\n", b"Y: 2\r\n"])

    def test_length(self) -> None:
        """One plain length, and none beside chunks or for 204."""
        self.assertEqual(given_back(b"content-Length: 5 , 5", b"Content-Length: 5"), [b"content-Length: 5\r\n"])
        self.assertEqual(given_back(b"Content-Length: 5", b"Transfer-Encoding: chunked"), [])
        self.assertEqual(given_back(b"Content-Length: 0", status=b"204 x"), [])
        self.assertEqual(given_back(b"Content-Length: 5", status=b"304 x"), [b"Content-Length: 5\r\n"])
        self.assertEqual(given_back(b"Content-Length: 5", method=b"HEAD"), [b"Content-Length: 5\r\n"])

    def test_trailer(self) -> None:
        """Trailers are announced only where they can follow."""
        self.assertEqual(given_back(b"Trailer: X", b"Transfer-Encoding: chunked"), [b"Trailer: X\r\n"])
        self.assertEqual(given_back(b"Trailer: X", b"Content-Length: 5"), [b"Content-Length: 5\r\n"])

    def test_date(self) -> None:
        """A missing date is added, another one stays."""
        self.assertEqual(response_lines(answer(b"A: b"), b"now", False), [b"A: b\r\n", b"Date: now\r\n"])
        self.assertEqual(response_lines(answer(b"dAte: then"), b"now", False), [b"dAte: then\r\n"])

    def test_event_stream(self) -> None:
        """An event stream forbids buffering, once, whatever the model says."""
        for kind in (b"text/event-stream", b"Text/Event-Stream; charset=utf-8"):
            lines = given_back(b"X-accel-Buffering: yes", b"Content-Type: " + kind)
            self.assertEqual(lines, [b"Content-Type: " + kind + b"\r\n", b"X-Accel-Buffering: no\r\n"])

    def test_origin(self) -> None:
        """A request with an origin may read the answer, and is told so once."""
        lines = (b"access-control-allow-origin: http://x", b"Access-Control-Allow-Credentials: true", b"A: b")
        self.assertEqual(given_back(*lines, origin=True), [b"A: b\r\n", b"Access-Control-Allow-Origin: *\r\n"])
        self.assertEqual(given_back(*lines), [line + b"\r\n" for line in lines])

    def test_interim(self) -> None:
        """An interim answer says nothing about framing or the connection."""
        lines = (
            b"Link: </x>",
            b"Content-Length: 5",
            b"Transfer-Encoding: chunked",
            b"Connection: x-mine",
            b"X-Mine: 1",
            b"Upgrade: x",
        )
        self.assertEqual(interim_lines(answer(*lines, status=b"103 Early Hints")), [b"Link: </x>\r\n"])


class RedactedTests(SynchronousTestCase):
    """`redacted`."""

    def test_secrets_are_hidden(self) -> None:
        """Values of secret headers are never shown, in whatever case their names are."""
        for name in (b"Authorization", b"PROXY-authorization", b"cookie", b"SET-COOKIE", b"x-API-key"):
            shown = redacted([(name, b"sesame")])
            self.assertEqual(list(shown.values()), ["[REDACTED]"])

    def test_first_value_and_canonical_name(self) -> None:
        """Of equal names the first value; bytes that are no text are replaced."""
        shown = redacted([(b"x-sessionID", b"1"), (b"X-SESSIONID", b"2"), (b"a", b"\xff\xc3\xa9")])
        self.assertEqual(shown, {"X-Sessionid": "1", "A": "\ufffdé"})
