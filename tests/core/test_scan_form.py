"""The search for the field `model` in forms and queries: right in pieces of any size, and in bounded time."""

from __future__ import annotations

import functools
from itertools import pairwise
from urllib.parse import quote_plus, urlencode

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.scan_form import MultipartScan, UrlencodedScan, boundary_of, query_value, query_with
from tests.core.timing import best_time

#: Longer names are not looked at.
KEEP = 4096


def multipart(body: bytes, *cuts: int, boundary: bytes = b"b") -> MultipartScan:
    """A scan of an upload that comes in pieces, cut at these places."""
    found = MultipartScan(boundary)
    start = 0
    for cut in sorted(cuts):
        found.feed(body[start:cut])
        start = max(start, cut)
    found.feed(body[start:])
    return found


def urlencoded(body: bytes, *cuts: int) -> str | None:
    """The model that a form names which comes in pieces, cut at these places."""
    found = UrlencodedScan()
    start = 0
    for cut in sorted(cuts):
        found.feed(body[start:cut])
        start = max(start, cut)
    found.feed(body[start:])
    found.finish()
    return found.name


def upload(*parts: tuple[bytes, bytes], boundary: bytes = b"b") -> bytes:
    """A whole upload of parts: the lines of each head, without their ends, and the content."""
    return b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary, *part) for part in parts) + b"--%s--\r\n" % boundary


def field(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A part with a plain value."""
    return b'Content-Disposition: form-data; name="%s"' % name, value


FILE = (
    b'Content-Disposition: form-data; name="file"; filename="f.wav"\r\nContent-Type: audio/wav',
    b"\0\r\n--\r\n--x\r\n",
)


class BoundaryTests(SynchronousTestCase):
    """The boundary in a media type."""

    def test_boundary(self) -> None:
        """Quoted or not, in any case, wherever it stands among the parameters."""
        for kind, boundary in {
            b"multipart/form-data; boundary=x-1": b"x-1",
            b"multipart/form-data;BOUNDARY=x": b"x",
            b'multipart/form-data; charset=utf-8; boundary="q d"': b"q d",
            b'multipart/form-data; boundary="a\\"b" ; x=1': b'a"b',
            b'multipart/form-data; x="; boundary=evil"; boundary=good': b"good",
            b"multipart/form-data; boundary=1; boundary=2": b"1",
        }.items():
            self.assertEqual(boundary_of(kind), boundary, kind)

    def test_none(self) -> None:
        """A media type without a usable one has none."""
        for rest in (b"", b";", b"; boundary", b"; boundary=", b'; boundary=""', b"; x=boundary=y", b'; "; boundary=x'):
            self.assertIsNone(boundary_of(b"multipart/form-data" + rest), rest)
        self.assertIsNone(boundary_of(b"multipart/form-data; boundary=" + b"x" * 5000))

    @given(st.binary(max_size=60))
    def test_any_bytes(self, text: bytes) -> None:
        """No media type makes it raise."""
        boundary_of(b"multipart/form-data; boundary=" + text)
        boundary_of(text)


class MultipartTests(SynchronousTestCase):
    """Uploads."""

    def name(self, body: bytes, boundary: bytes = b"b") -> str | None:
        """The name that is found, whole and byte by byte; its place must hold it."""
        whole = multipart(body, boundary=boundary)
        single = multipart(body, *range(len(body)), boundary=boundary)
        self.assertEqual((whole.name, whole.start, whole.end), (single.name, single.start, single.end))
        if whole.name is not None:
            self.assertEqual(body[whole.start : whole.end].decode("utf-8", "replace"), whole.name)
        return whole.name

    def test_field_among_files(self) -> None:
        """The field is found before and after files, whatever these hold."""
        self.assertEqual(self.name(upload(FILE, field(b"model", b"a"))), "a")
        self.assertEqual(self.name(upload(field(b"x", b"model"), field(b"model", "é b".encode()), FILE)), "é b")
        self.assertEqual(self.name(b"preamble\r\n" + upload(field(b"model", b""))), "")
        self.assertIsNone(self.name(upload(FILE, field(b"xmodel", b"a"))))

    def test_first_counts(self) -> None:
        """Of two fields the first; nothing counts after the closing delimiter."""
        self.assertEqual(self.name(upload(field(b"model", b"a"), field(b"model", b"b"))), "a")
        self.assertIsNone(self.name(upload(field(b"x", b"a")) + upload(field(b"model", b"a"))))

    def test_heads_in_all_spellings(self) -> None:
        """Header names and parameters in any case and order, quoted or not."""
        for head in (
            b"content-disposition:form-data;name=model",
            b'Content-Type: text/plain\r\nCONTENT-DISPOSITION: Form-Data ; Name = "model"\r\nX: y',
            b'Content-Disposition: form-data; x="; name=y"; name="model"',
            b'Content-Disposition: form-data; filename=""; name="model"',
        ):
            self.assertEqual(self.name(upload((head, b"a"))), "a", head)

    def test_heads_of_others(self) -> None:
        """A file is no field, nor is what merely looks like one."""
        for head in (
            b'Content-Disposition: form-data; name="model"; filename="model"',
            b'Content-Disposition: form-data; name="file"; x="; name=model"',
            b'Content-Disposition: attachment; name="model"',
            b'X-Content-Disposition: form-data; name="model"',
            b'Content-Disposition: form-data; filename="name=model',
            b"",
        ):
            self.assertIsNone(self.name(upload((head, b"a"))), head)

    def test_delimiter(self) -> None:
        """Only a whole delimiter ends a part: a longer word is content, space after it is borne."""
        value = b"x\r\n--bb\r\n--b \r\n"[:9]
        self.assertEqual(self.name(upload(field(b"model", value))), value.decode())
        evil = b"\r\n--bX\r\n" + b'Content-Disposition: form-data; name="model"\r\n\r\nevil\r\n--b-\r\n'
        self.assertEqual(self.name(upload((FILE[0], evil), field(b"model", b"a"))), "a")
        spaced = upload(field(b"x", b"1"), field(b"model", b"a")).replace(b"--b\r\n", b"--b \t\r\n")
        self.assertEqual(self.name(spaced), "a")
        self.assertEqual(self.name(upload(field(b"model", b"a"), boundary=b".*+"), b".*+"), "a")

    def test_unfinished(self) -> None:
        """A field that does not end is none."""
        body = upload(field(b"model", b"a"))
        for size in range(len(body) - 4):
            self.assertIsNone(self.name(body[:size]), body[:size])
        for rubbish in (b"", b"rubbish", b"--b", b"--b--\r\n", b"\r\n" * 50):
            self.assertIsNone(self.name(rubbish))

    def test_long_parts(self) -> None:
        """A name or a head beyond all measure ends the search; the limits are the same in all pieces."""
        at_limit, beyond = upload(field(b"model", b"x" * KEEP)), upload(field(b"model", b"x" * (KEEP + 1)))
        for cuts in ((), range(len(beyond)), range(0, len(beyond), 4090), (50,), (4100,), (4150,)):
            self.assertEqual(multipart(at_limit, *cuts).name, "x" * KEEP)
            self.assertIsNone(multipart(beyond, *cuts).name)
        head = b"X: %s\r\n" % (b"y" * 65000) + field(b"model", b"")[0]
        self.assertEqual(multipart(upload((head, b"a"))).name, "a")
        self.assertEqual(multipart(upload((head, b"a")), *range(0, 65000, 999)).name, "a")
        for long in (b"X: %s" % (b"y" * 70000), b"X: y\r\n" * 12000):
            body = upload((long, b"1"), field(b"model", b"a"))
            self.assertIsNone(multipart(body).name)
            self.assertIsNone(multipart(body, *range(0, len(body), 777)).name)
            self.assertTrue(multipart(body).over)

    def test_many_parts(self) -> None:
        """The field is looked for in a thousand parts."""
        self.assertEqual(multipart(upload(*[field(b"x", b"1")] * 999, field(b"model", b"a"))).name, "a")
        self.assertIsNone(multipart(upload(*[field(b"x", b"1")] * 1000, field(b"model", b"a"))).name)

    @given(
        st.lists(st.tuples(st.sampled_from([b"model", b"x", b"prompt"]), st.binary(max_size=30)), max_size=4),
        st.lists(st.integers(0, 400), max_size=8),
    )
    @example([(b"model", b"a\r\n--b")], [])
    def test_uploads(self, fields: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
        """In any upload the first field of the name is found, in any pieces."""
        boundary = b"7d0-bound"
        body = upload(*(field(*each) for each in fields), boundary=boundary)
        found = multipart(body, *cuts, boundary=boundary)
        expected = next((value for name, value in fields if name == b"model"), None)
        self.assertEqual(found.name, None if expected is None else expected.decode("utf-8", "replace"))

    @given(
        st.lists(
            st.sampled_from(
                [b"--b", b"\r\n", b"--", b" ", b"x", b"\r", b"\n", *field(b"model", b"\xff"), b"\r\n--b\r\n"]
            ),
            max_size=30,
        ).map(b"".join),
        st.lists(st.integers(0, 400), max_size=8),
    )
    def test_junk(self, body: bytes, cuts: list[int]) -> None:
        """Nothing raises on broken uploads, and pieces do not matter."""
        whole, pieces = multipart(body), multipart(body, *cuts)
        self.assertEqual((whole.name, whole.start, whole.end), (pieces.name, pieces.start, pieces.end))

    def test_no_piece_takes_long(self) -> None:
        """A piece of 64 KiB takes less than 10 ms of computing, and memory does not grow."""
        for repeated in (
            b"\0",
            b"\r\n",
            b"\r\n--b ",
            b"\r\n--",
            b"\r\n--b\r\n%s\r\n\r\nx" % field(b"x", b"")[0],
            b"\r\n--b\r\n\r\n",
            b"\r\n--b\t\t\t\t",
        ):
            piece = (repeated * (65536 // len(repeated) + 1))[:65536]
            found = MultipartScan(b"b")
            self.assertLess(best_time(functools.partial(found.feed, piece), 0.010), 0.010, repeated)


class UrlencodedTests(SynchronousTestCase):
    """Forms in URL encoding."""

    def name(self, body: bytes) -> str | None:
        """The name that is found, whole and byte by byte."""
        whole = urlencoded(body)
        self.assertEqual(whole, urlencoded(body, *range(len(body))), body)
        return whole

    def test_field(self) -> None:
        """The first field of the name, decoded."""
        for body, name in {
            b"model=a": "a",
            b"x=1&model=a&model=b": "a",
            b"model=": "",
            b"model": "",
            b"model&x=1": "",
            b"&&model=a%20b+c&": "a b c",
            b"%6do%64el=%C3%A9": "é",
            b"model=\xc3\xa9": "é",
            b"model=%ff%zz%": "\ufffd%zz%",
            b"model=a=b;c": "a=b;c",
        }.items():
            self.assertEqual(self.name(body), name, body)

    def test_none(self) -> None:
        """Without the field there is no name."""
        for body in (
            b"",
            b"x=1",
            b"models=a",
            b"xmodel=a",
            b"Model=a",
            b"x=model=a",
            b"mode=l",
            b"model%20=a",
            b"x;model=a",
        ):
            self.assertIsNone(self.name(body), body)

    def test_long_values(self) -> None:
        """A name beyond all measure is none, in whatever pieces it comes, and ends the search."""
        for key in (b"model=", b"%6d%6f%64%65%6c="):
            at_limit, beyond = key + b"x" * KEEP, key + b"x" * (KEEP + 1)
            for cuts in ((), (4100,), (4110,), (4115,), (4118,), range(5000)):
                self.assertEqual(urlencoded(at_limit + b"&model=b", *cuts), "x" * KEEP)
                self.assertIsNone(urlencoded(beyond + b"&model=b", *cuts))
                self.assertIsNone(urlencoded(beyond, *cuts))
        self.assertEqual(urlencoded(b"x=" + b"y" * 99_999 + b"&model=a", *range(0, 99_999, 333)), "a")

    def test_long_form(self) -> None:
        """No length of a form hides its name."""
        self.assertEqual(urlencoded(b"x=" + b"y" * (11 << 20) + b"&model=a"), "a")

    @given(st.text("xé&=%+ ", max_size=9), st.text("yz&=", max_size=9), st.lists(st.integers(0, 60), max_size=6))
    def test_place(self, before: str, value: str, cuts: list[int]) -> None:
        """The place is that of the value as it is written, in whatever pieces it comes."""
        written = urlencode({"": value})[1:].encode()
        head = urlencode({"x": before}).encode() + b"&model="
        for tail in (b"", b"&model=other"):
            body = head + written + tail
            found = UrlencodedScan()
            for start, end in pairwise([0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]):
                found.feed(body[start:end])
            found.finish()
            self.assertEqual((found.name, body[found.start : found.end]), (value, written))
            self.assertEqual(found.start, len(head))

    @given(st.lists(st.tuples(st.sampled_from(["model", "x", "é"]), st.text(max_size=9)), max_size=5), st.data())
    def test_forms(self, fields: list[tuple[str, str]], data: st.DataObject) -> None:
        """In any form the first field of the name is found, in any pieces; a query is searched alike."""
        safe = [(name, value.encode("utf-8", "replace").decode()) for name, value in fields]
        body = urlencode(safe).encode()
        expected = next((value for name, value in safe if name == "model"), None)
        self.assertEqual(urlencoded(body, *data.draw(st.lists(st.integers(0, len(body)), max_size=6))), expected)
        self.assertEqual(query_value(body, "model"), expected)

    @given(
        st.lists(st.sampled_from([b"&", b"=", b"model", b"%6d", b"odel", b"%", b"+", b"\xff", b"x"]), max_size=20).map(
            b"".join
        ),
        st.lists(st.integers(0, 60), max_size=6),
    )
    def test_junk(self, body: bytes, cuts: list[int]) -> None:
        """Nothing raises on broken forms, and pieces do not matter."""
        self.assertEqual(urlencoded(body), urlencoded(body, *cuts))

    def test_no_piece_takes_long(self) -> None:
        """A piece of 64 KiB takes less than 10 ms of computing."""
        for repeated in (b"x", b"&", b"&mode", b"&x=1", b"&%6d", b"&models=1"):
            piece = (repeated * (65536 // len(repeated) + 1))[:65536]
            found = UrlencodedScan()
            self.assertLess(best_time(functools.partial(found.feed, piece), 0.010), 0.010, repeated)
            self.assertFalse(found.over)


class QueryTests(SynchronousTestCase):
    """Query strings."""

    def test_first_value(self) -> None:
        """The first well-formed pair of the name, decoded."""
        for query, value in {
            b"model=a": "a",
            b"x=1&model=a&model=b": "a",
            b"%6dodel=org%2Fa+b:Q4": "org/a b:Q4",
            b"model=\xc3\xa9": "é",
            b"model=%C3%A9%ff": "é\ufffd",
            b"model": "",
            b"model=&model=a": "",
            b"model=a;b&model=c": "c",
            b"model=%zz&model=c": "c",
            b"model=a%&model=c": "c",
            b"model=a=b": "a=b",
        }.items():
            self.assertEqual(query_value(query, "model"), value, query)

    def test_none(self) -> None:
        """Without the name there is no value."""
        for query in (b"", b"&", b"models=a", b"xmodel=a", b"x=1;model=a", b"model;=a", b"MODEL=a"):
            self.assertIsNone(query_value(query, "model"), query)

    @given(st.binary(max_size=80))
    def test_any_bytes(self, query: bytes) -> None:
        """No query makes it raise, and a well-formed first pair counts."""
        value = query_value(b"model=" + query, "model")
        first = query.partition(b"&")[0]
        if b"%" not in first and b";" not in first:
            self.assertEqual(value, first.replace(b"+", b" ").decode("utf-8", "replace"))

    def test_long_queries_take_no_time(self) -> None:
        """A query of 1 MiB takes less than 50 ms of computing."""
        for repeated in (b"&", b"model=;&", b"&model=%", b"model=%41&"[:9], b"&x=1"):
            query = repeated * ((1 << 20) // len(repeated))
            for name in ("stream", "model"):
                work = functools.partial(query_value, query, name)
                self.assertLess(best_time(work, 0.050), 0.050, repeated)

    def test_long_values(self) -> None:
        """A value beyond all measure is none."""
        self.assertEqual(query_value(b"model=" + b"x" * 4000, "model"), "x" * 4000)
        self.assertIsNone(query_value(b"model=" + b"x" * 5000, "model"))

    def test_replaced(self) -> None:
        """`query_with` replaces what counts, and no other byte; pairs that are not well-formed stay."""
        for query, changed in {
            b"model=a": b"model=org/b",
            b"x=%zz;&%6dodel=a+%41&model=c&y": b"x=%zz;&%6dodel=org/b&model=org/b&y",
            b"model&a=model": b"model=org/b&a=model",
            b"model=a;b&models=a": b"model=a;b&models=a",
            b"": b"",
        }.items():
            self.assertEqual(query_with(query, "model", "org/b"), changed)

    @given(st.binary(max_size=40), st.text("aé&=%+ /;#", min_size=1))
    def test_replaced_is_found(self, query: bytes, name: str) -> None:
        """Whatever the name, it is the one that is found afterwards."""
        self.assertEqual(query_value(query_with(b"x=1&model=a&" + query, "model", name), "model"), name)

    def test_replacing_takes_no_time(self) -> None:
        """A query of 1 MiB takes less than 50 ms of computing."""
        for repeated in (b"&model=a", b"&x=1", b"&"):
            query = repeated * ((1 << 20) // len(repeated))
            work = functools.partial(query_with, query, "model", "b")
            self.assertLess(best_time(work, 0.050), 0.050, repeated)

    def test_escapes_of_the_name(self) -> None:
        """Each letter of the name may be escaped."""
        for spelled in ("%73tream", "s%74re%61m", "%73%74%72%65%61%6D"):
            self.assertEqual(query_value(f"{spelled}={quote_plus('true')}".encode(), "stream"), "true")
