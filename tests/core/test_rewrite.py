"""Splicing another model's name into a body."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qsl, quote_plus

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.find_model import Found, ModelFinder
from lswap.core.rewrite import Parts, readdressed, renamed


def spliced(
    body: bytes,
    name: str,
    kind: bytes = b"application/json",
    how: Callable[[Found, int, str], Parts | None] = renamed,
) -> bytes | None:
    """The body with the name in the place of its own; None for one that is left alone."""
    finder = ModelFinder(b"POST", b"", kind)
    finder.feed(body)
    found = finder.find(None)
    assert found is not None
    parts = how(found, len(body), name)
    return None if parts is None else b"".join(p if isinstance(p, bytes) else body[slice(*p)] for p in parts)


class RenamedTests(SynchronousTestCase):
    """`renamed`."""

    def test_json(self) -> None:
        """The value alone changes, and is escaped as it must be."""
        for head, value, tail in (
            (b'{"model":', b'"a"', b"}"),
            (b'{ "n":1.0,\n"u":"\\u00e9", "model" : ', b"12", b' , "model":"b"}'),
            (b'{"x":{"model":true},"model":', b"true", b"}"),
        ):
            for name, written in {"org/b": b'"org/b"', 'q"\\\n': b'"q\\"\\\\\\n"', "é": '"é"'.encode()}.items():
                self.assertEqual(spliced(head + value + tail, name), head + written + tail)

    def test_upload(self) -> None:
        """In an upload the bytes of the field alone change."""
        head = b"--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n"
        body = head % b"x" + b"a\r\n" + head % b"model" + b"a\r\n--b--\r\n"
        changed = spliced(body, 'é "b"', b"multipart/form-data; boundary=b")
        self.assertEqual(changed, body.replace(b"model\r\n\r\na", 'model\r\n\r\né "b"'.encode()))

    def test_no_place(self) -> None:
        """A body whose name stands elsewhere is left alone: a form, or one whose query names the model."""
        self.assertIsNone(spliced(b"model=a", "b", b"application/x-www-form-urlencoded"))
        self.assertIsNone(renamed(Found(name="a"), 9, "b"))

    def test_ends(self) -> None:
        """A name at either end of the body leaves no more than an empty part there."""
        self.assertEqual(renamed(Found(name="a", span=(0, 3)), 3, "b"), [(0, 0), b"b", (3, 3)])

    @given(st.text(max_size=20), st.text(max_size=20))
    def test_any_name(self, before: str, after: str) -> None:
        """Whatever the names, the rest stays, and a parser reads the new one."""
        body = json.dumps({"x": before, "model": "old " + before, "y": [1]}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )
        changed = spliced(body, after.encode("utf-8", "replace").decode())
        assert changed is not None
        expected = {**json.loads(body), "model": after.encode("utf-8", "replace").decode()}
        self.assertEqual(json.loads(changed), expected)


class ReaddressedTests(SynchronousTestCase):
    """`readdressed`."""

    def test_form(self) -> None:
        """In a form the value of the first field alone changes, and is escaped as it must be."""
        kind = b"application/x-www-form-urlencoded"
        for name, written in (("org/b:c", b"org/b:c"), ("a&b=c d%", b"a%26b%3Dc+d%25"), ("é", b"%C3%A9")):
            body = b"x=%zz&model=%61&model=c&y"
            self.assertEqual(spliced(body, name, kind, readdressed), b"x=%zz&model=" + written + b"&model=c&y")

    def test_others(self) -> None:
        """JSON and uploads as `renamed` does; a name in the query has no place here."""
        self.assertEqual(spliced(b'{"model": "a"}', "b", how=readdressed), b'{"model": "b"}')
        body = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\na\r\n--b--\r\n'
        kind = b"multipart/form-data; boundary=b"
        self.assertEqual(spliced(body, "b c", kind, readdressed), body.replace(b"\na\r", b"\nb c\r"))
        self.assertIsNone(readdressed(Found(name="a"), 9, "b"))

    @given(
        st.lists(st.tuples(st.sampled_from("xyz"), st.text(max_size=9)), max_size=4), st.text("aé&= %+/", min_size=1)
    )
    def test_any_form(self, others: list[tuple[str, str]], name: str) -> None:
        """Whatever the names, the rest stays, and a parser reads the new one."""
        before = "".join(f"{key}={quote_plus(value, errors='replace')}&" for key, value in others)
        body = f"{before}model=old&z=1".encode()
        changed = spliced(body, name, b"application/x-www-form-urlencoded", readdressed)
        assert changed is not None
        expected = [*parse_qsl(before, True), ("model", name), ("z", "1")]
        self.assertEqual(parse_qsl(changed.decode(), True), expected)
