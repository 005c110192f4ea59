"""Where a request names its model: which source counts, by method and media type, and what is done with it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.find_model import Found, ModelFinder, find_quickly

JSON = b"application/json"
FORM = b"application/x-www-form-urlencoded"
UPLOAD = b"multipart/form-data; boundary=b"
#: Beyond what the strict parser is shown.
LARGE = b'"x":"' + b"y" * 70_000 + b'",'


def upload(name: bytes = b"model", value: bytes = b"a") -> bytes:
    """A form of one field."""
    return b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n--b--\r\n' % (name, value)


def find(body: bytes | None, kind: bytes = JSON, query: bytes = b"", method: bytes = b"POST") -> Found | None:
    """What is found when the body is given whole: at first sight, if it can be."""
    quick = find_quickly(method, kind, body) if body is not None else None
    return quick or ModelFinder(method, query, kind).find(body)


def find_fed(body: bytes, kind: bytes = JSON, query: bytes = b"", size: int = 7) -> Found | None:
    """What is found when the body comes in pieces."""
    finder = ModelFinder(b"POST", query, kind)
    for start in range(0, len(body), size):
        finder.feed(body[start : start + size])
    return finder.find(None)


class SourceTests(SynchronousTestCase):
    """Body or query."""

    def assert_name(self, name: str | None, body: bytes, kind: bytes = JSON, query: bytes = b"") -> None:
        """The name is found, whether the body is given whole or in pieces."""
        for found in (find(body, kind, query), find_fed(body, kind, query)):
            self.assertEqual(None if found is None else found.name, name)

    def test_json_alone_decides(self) -> None:
        """With a JSON body the query does not count."""
        self.assert_name("a", b'{"model":"a"}', query=b"model=b")
        self.assert_name(None, b"{}", query=b"model=b")
        self.assert_name(None, b"", query=b"model=b")
        self.assert_name("a", b'{"model":"a"}', b"Application/JSON; charset=utf-8")
        self.assert_name("a", b'{"model":"a"}', b"x/y, application/json")

    def test_upload_after_the_query(self) -> None:
        """In an upload the query counts first."""
        self.assert_name("a", upload(), UPLOAD)
        self.assert_name("b", upload(), UPLOAD, b"model=b")
        self.assert_name("a", upload(), UPLOAD, b"model=&x=1")
        self.assert_name("b", upload(b"x"), UPLOAD, b"model=b")
        self.assert_name("b", b"rubbish", UPLOAD, b"model=b")
        self.assert_name(None, upload(value=b""), UPLOAD)

    def test_upload_without_boundary(self) -> None:
        """An upload whose media type is broken names no model, not even in the query."""
        self.assert_name(None, upload(), b"multipart/form-data", b"model=a")
        self.assert_name(None, upload(), b"multipart/form-data; boundary=", b"model=a")

    def test_form_before_the_query(self) -> None:
        """In a form the body counts first, also when it names nothing there."""
        self.assert_name("a", b"x=1&model=a", FORM, b"model=b")
        self.assert_name("b", b"x=1", FORM, b"model=b")
        self.assert_name(None, b"model=", FORM, b"model=b")
        self.assert_name("a", b"model=a", b"Application/X-WWW-Form-Urlencoded; charset=utf-8")

    def test_other_bodies_are_not_read(self) -> None:
        """With any other media type, or none, the query alone counts."""
        for kind in (b"", b"text/plain", b"application/octet-stream", b"\xff"):
            self.assert_name("b", b'{"model":"a"}', kind, b"model=b")
            self.assert_name(None, b'{"model":"a"}', kind)
            self.assertFalse(ModelFinder(b"POST", b"", kind).reads_body)

    def test_get_has_no_body(self) -> None:
        """For GET and HEAD the query counts, whatever the media type says."""
        for method in (b"GET", b"HEAD"):
            for kind in (JSON, FORM, UPLOAD, b"multipart/form-data"):
                self.assertEqual(find(None, kind, b"model=a&stream=true", method), Found(name="a", stream=True))
                self.assertFalse(ModelFinder(method, b"", kind).reads_body)
            self.assertIsNone(find(None, JSON, b"model=", method))

    def test_bodies_that_are_read(self) -> None:
        """Of JSON and forms the finder wants the body."""
        for kind in (JSON, FORM, UPLOAD):
            self.assertTrue(ModelFinder(b"POST", b"", kind).reads_body)


class JsonTests(SynchronousTestCase):
    """The member of a JSON body, small (a strict parser) and large (the scan): both find the same."""

    def found(self, members: bytes) -> Found | None:
        """The finding in an object of these members; with its place wherever that is told."""
        small, large = b"{" + members + b"}", b"{" + LARGE + members + b"}"
        results = {
            (found.name, found.json, found.stream) if found is not None else None
            for found in (
                find(small),
                find(large),
                find_fed(small),
                find_fed(small, size=1),
                find_fed(large, size=65536),
            )
        }
        self.assertEqual(len(results), 1, (members, results))
        return find_fed(small)

    def test_first_of_equal_keys(self) -> None:
        """The first counts, however it is spelled, and whatever else holds the word."""
        for members, name in {
            b'"model":"a","model":"b"': "a",
            b'"mo\\u0064el":"a","model":"b"': "a",
            b'"model":"a","mo\\u0064el":"b"': "a",
            b'"\\u006D\\u006fdel":"a","model":"b"': "a",
            b'"x":{"model":"b"},"model":"a"': "a",
            b'"x":"model","model":"a"': "a",
            b'"x":"\\"model\\":\\"b\\"","model":"a"': "a",
        }.items():
            found = self.found(members)
            assert found is not None
            self.assertEqual(found.name, name, members)

    def test_scalars(self) -> None:
        """A number or a truth value is taken as its text."""
        for text in (b"123", b"true", b"1.50"):
            found = self.found(b'"model":' + text)
            assert found is not None
            self.assertEqual((found.name, found.span), (text.decode(), (9, 9 + len(text))))

    def test_unusable(self) -> None:
        """Nothing is found where there is no name, or none that is closed."""
        for members in (
            *(b"", b'"model":""', b'"model":null', b'"model":["a"]', b'"model":{"model":"a"}', b'"Model":"a"'),
            *(b'"x":{"model":"a"}', b'"model"', b'"model":', b'"model":"a'),
        ):
            self.assertIsNone(self.found(members), members)
        for body in (b"[]", b"null", b'"a"', b"x", b"", b'[{"model":"a"}]'):
            self.assertIsNone(find(body), body)

    def test_not_quite_json(self) -> None:
        """What a strict parser refuses elsewhere does not matter."""
        for other in (b'"x":NaN', b'"x":"\xff"', b'"x":"\t"', b'"x":"\\ud800"', b'"x":[1,],', b'"x":1e999', b'"x":01'):
            found = self.found(other + b',"model":"a"')
            assert found is not None
            self.assertEqual(found.name, "a")
        for body in (
            b'\xef\xbb\xbf{"model":"a"}',
            b'{"model":"a"} trailing',
            b'{"model":"a","x":',
            b'{"model":"a","x":"\xc3',
        ):
            found = find(body)
            assert found is not None
            self.assertEqual(found.name, "a", body)

    def test_name_that_cannot_be_written(self) -> None:
        """Half of a surrogate pair does not get into a name."""
        found = self.found(b'"model":"a\\ud800"')
        assert found is not None
        self.assertEqual(found.name, "a?")

    def test_deep_body(self) -> None:
        """A body that nests deeper than any parser follows is searched all the same."""
        for deep in (b"[" * 60_000, b'{"":' * 12_000):
            self.assertIsNone(find(b'{"x":' + deep))
            found = find(b'{"model":"a","x":' + deep)
            assert found is not None
            self.assertEqual(found.name, "a")

    def test_stream(self) -> None:
        """True, a number but 0, or a string that reads as true ask for a stream; of two the first counts."""
        for value, streams in {
            **dict.fromkeys((b"true", b"1", b"-0.5", b'"true"', b'"1"', b'"T"', b'"TRUE"', b" true "), True),
            **dict.fromkeys(
                (b"false", b"0", b"0.0", b"null", b'"false"', b'"2"', b'"yes"', b'""', b"{}", b"[true]"), False
            ),
            **dict.fromkeys((b"nonsense", b'"' + b"x" * 5000 + b'"'), False),
            b'true,"stream":false': True,
            b'false,"stream":true': False,
            b'true,"stream_options":{"include_usage":true}': True,
        }.items():
            found = self.found(b'"stream":' + value + b',"model":"a"')
            assert found is not None
            self.assertEqual(found.stream, streams, value)

    @given(st.binary(max_size=100), st.sampled_from([JSON, FORM, UPLOAD, b""]))
    def test_any_bytes(self, body: bytes, kind: bytes) -> None:
        """No body makes it raise, and pieces do not matter."""
        whole, fed = find(body, kind, body), find_fed(body, kind, body, 3)
        self.assertEqual(whole and whole.name, fed and fed.name)

    @given(
        st.dictionaries(st.sampled_from(["model", "stream", "x"]), st.text(max_size=5) | st.booleans() | st.integers())
    )
    def test_real_json(self, value: dict[str, object]) -> None:
        """In real JSON the strict parser and the scan agree."""
        body = json.dumps(value).encode()
        whole, fed = find(body), find_fed(body)
        self.assertEqual(whole and (whole.name, whole.stream), fed and (fed.name, fed.stream))


class PlaceTests(SynchronousTestCase):
    """Where the name stands, for the one who replaces it."""

    def test_place_in_json(self) -> None:
        """The place has the quotes; a body that a strict parser could read tells none."""
        body = b'{ "model" : "a" }'
        self.assertEqual(find_fed(body), Found(name="a", span=(12, 15), json=True))
        self.assertEqual(find(body), Found(name="a", json=True))

    def test_place_in_an_upload(self) -> None:
        """The place is that of the field, unless the query decides."""
        body = upload()
        start = body.index(b"a\r\n--b--")
        self.assertEqual(find(body, UPLOAD), Found(name="a", span=(start, start + 1)))
        self.assertEqual(find(body, UPLOAD, b"model=b&stream=true"), Found(name="b", stream=True))

    def test_place_in_a_form(self) -> None:
        """A form tells another kind of place, that of the value as it is written."""
        self.assertEqual(find(b"x=1&%6dodel=%61&y", FORM), Found(name="a", form_span=(12, 15)))
        self.assertEqual(find(b"model=", FORM), None)
