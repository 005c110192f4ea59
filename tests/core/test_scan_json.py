"""The search for members in a JSON body: right on every kind of body, in pieces of any size, and in bounded time."""

from __future__ import annotations

import functools
import json
import time

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.scan_json import JsonScan, Member
from tests.core.timing import best_time

WANTED = frozenset({"model", "stream"})
#: Longer values are not kept.
KEEP = 4096


def scan(body: bytes, *cuts: int) -> JsonScan:
    """A scan of a body that comes in pieces, cut at these places."""
    found = JsonScan(WANTED)
    start = 0
    for cut in sorted(cuts):
        found.feed(body[start:cut])
        start = max(start, cut)
    found.feed(body[start:])
    return found


def plain(body: bytes) -> tuple[dict[str, Member], int]:
    """The same search, written as plainly as it can be: one byte after the other."""
    tokens: list[tuple[str, int, int]] = []  # kind, start, end
    pos = 0
    while pos < len(body):
        char, start = body[pos : pos + 1], pos
        pos += 1
        if char == b'"':
            while pos < len(body) and body[pos : pos + 1] != b'"':
                pos += 2 if body[pos : pos + 1] == b"\\" else 1
            if pos >= len(body):  # never closed
                tokens.append(("open", start, pos))
                break
            pos += 1
            tokens.append(("string", start, pos))
        elif char == b"\\" and body[pos : pos + 1] in (b'"', b"\\"):
            pos += 1
            tokens.append(("junk", start, pos))
        elif char in b"{}[]:,":
            tokens.append((char.decode(), start, pos))
        elif char not in b" \t\r\n":
            tokens.append(("junk", start, pos))
    members: dict[str, Member] = {}
    depth = number = 0
    while number < len(tokens) and len(members) < len(WANTED):
        kind, start, end = tokens[number]
        number += 1
        if kind in "[{" and depth == 0 and kind == "[":
            break
        if kind in "[{":
            depth += 1
        elif kind in "]}":
            depth -= 1
            if depth < 0:
                break
            if depth == 0:
                return members, end
        elif kind == "string" and depth == 1 and tokens[number : number + 1] and tokens[number][0] == ":":
            name = text_of(body[start:end])
            if name in WANTED and name not in members:
                member, number = value_at(body, tokens, number + 1)
                if member is not None:
                    members[name] = member
    return members, -1


def value_at(body: bytes, tokens: list[tuple[str, int, int]], number: int) -> tuple[Member | None, int]:
    """The value that begins with this token, and the token after it; for a container the container's own."""
    if number >= len(tokens) or tokens[number][0] in ("}", "]", ",", ":", "open"):
        return None, number
    kind, start, end = tokens[number]
    if kind == "string":
        text = text_of(body[start:end]) if end - start - 2 <= KEEP else None
        return Member(start=start, end=end, text=text, is_string=True), number + 1
    if kind in "{[":
        return Member(start=start, end=start + 1, text=None, is_string=False), number
    while number < len(tokens) and tokens[number][0] == "junk":
        end = tokens[number][2]
        number += 1
    if number >= len(tokens):
        return None, number  # it may go on
    size = tokens[number][1] - start
    value = body[start:end].decode("utf-8", "replace") if size <= KEEP else None
    return Member(start=start, end=end, text=value, is_string=False), number


def text_of(raw: bytes) -> str:
    """The text of a string, quotes included; as it stands if an escape is broken."""
    inner = raw[1:-1].decode("utf-8", "replace")
    try:
        loaded = str(json.loads(f'"{inner}"', strict=False))
    except ValueError:
        return inner
    return loaded.encode("utf-8", "replace").decode()


def cuts(body: bytes) -> st.SearchStrategy[list[int]]:
    """Places to cut a body at."""
    return st.lists(st.integers(0, len(body)), max_size=6)


#: Bodies made of what the search looks at, mostly broken.
JUNK = st.lists(
    st.sampled_from(
        [
            *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b" ", b"\n", b"1", b"true", b"\xc3\xa9", b"\0", b"{}"),
            *(b'"model"', b'"stream"', b'"model":"a"', b'"mod\\u0065l"', b'"m\\u006Fdel" : ', b"u006d", b'"\\""'),
        ]
    ),
    max_size=40,
).map(b"".join)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["model", '"model":"x"', "\\"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["model", "stream", "x", 'a"b', "é"]) | st.text(max_size=4), inner, max_size=4
        )
    ),
    max_leaves=12,
)


class FindTests(SynchronousTestCase):
    """What is found, on single bodies."""

    def found(self, body: bytes) -> Member | None:
        """The member `model`; the same whether the body comes whole or byte by byte."""
        whole, single = scan(body), scan(body, *range(len(body)))
        self.assertEqual(whole.members, single.members)
        self.assertEqual(whole.object_end, single.object_end)
        return whole.members.get("model")

    def assert_text(self, body: bytes, text: str | None, value: bytes) -> None:
        """This text is found, and its place is that of `value`."""
        member = self.found(body)
        assert member is not None, body
        self.assertEqual(member.text, text)
        self.assertEqual(body[member.start : member.end], value)

    def test_string_with_its_place(self) -> None:
        """The place of a string includes its quotes."""
        self.assert_text(b'{"model":"a"}', "a", b'"a"')
        self.assert_text(b'\xef\xbb\xbf\r\n {\t"x":1,\n"model" \r\n: \t"a b" , "y":2}', "a b", b'"a b"')
        self.assert_text(b'{"model":""}', "", b'""')

    def test_string_in_all_spellings(self) -> None:
        """Escapes in the value are read; broken ones stay, halves of surrogate pairs are replaced."""
        for spelled, text in [
            (rb"org\/a", "org/a"),
            (rb"\u00e9\n", "é\n"),
            ("é".encode(), "é"),
            (rb"\"\\", '"\\'),
            (rb"\\\"\\", '\\"\\'),
            (rb"\ud83d\ude00", "😀"),
            (rb"\ud800", "?"),
            (rb"\x", "\\x"),
            (b"\xff", "\ufffd"),
            (b"\t", "\t"),
        ]:
            self.assert_text(b'{"model":"' + spelled + b'"}', text, b'"' + spelled + b'"')

    def test_key_in_all_spellings(self) -> None:
        """A key may be escaped; letters count as they are written."""
        for key in (rb"mo\u0064el", rb"\u006dodel", rb"\u006D\u006F\u0064\u0065\u006c", rb"mode\u006C"):
            self.assert_text(b'{"' + key + b'":"a","model":"b"}', "a", b'"a"')
        for key in (b"Model", b"model ", b"models", rb"\u004dodel", rb"mo\\u0064el", rb"mo\"del", b"mod", b""):
            self.assertIsNone(self.found(b'{"' + key + b'":"a"}'), key)

    def test_scalars_as_they_stand(self) -> None:
        """A number or a truth value is given as its text."""
        for text in (b"123", b"-1.5e+3", b"true", b"null", b"NaN", b"1 2"):
            self.assert_text(b'{"model": ' + text + b" \n}", text.decode(), text)
            self.assert_text(b'{"model":' + text + b',"x":1}', text.decode(), text)

    def test_containers_have_no_text(self) -> None:
        """Of an object or a list only the beginning is told."""
        for text in (b'{"model":"a"}', b'["a"]'):
            member = self.found(b'{"model": ' + text + b"}")
            assert member is not None
            self.assertEqual((member.start, member.text, member.is_string), (10, None, False))

    def test_first_of_equal_keys_counts(self) -> None:
        """Whatever its value is, and however a later one is spelled."""
        self.assert_text(b'{"model":"a","model":"b"}', "a", b'"a"')
        self.assert_text(b'{"model":null,"mod\\u0065l":"b"}', "null", b"null")
        self.assert_text(b'{"model":[],"model":"b"}', None, b"[")

    def test_only_the_top_level_counts(self) -> None:
        """Not what is nested, not what stands in a string, not a value."""
        self.assert_text(b'{"x":{"model":"b"},"y":["model","b",{"model":1}],"model":"a"}', "a", b'"a"')
        self.assert_text(b'{"x":"\\"model\\":\\"b\\"","model":"a"}', "a", b'"a"')
        self.assert_text(b'{"x":"model","model":"a"}', "a", b'"a"')
        for body in (b'[{"model":"a"}]', b'["model","a"]', b'"model":"a"', b'{"x":1}{"model":"a"}', b""):
            self.assertIsNone(self.found(body), body)

    def test_member_without_a_value_is_none(self) -> None:
        """Nor one whose value does not end."""
        for body in (b'{"model":}', b'{"model":,"x":1}', b'{"model"', b'{"model":', b'{"model":"a', b'{"model":12'):
            self.assertIsNone(self.found(body), body)
        self.assert_text(b'{"model":,"model":"a"}', "a", b'"a"')

    def test_broken_text_elsewhere_does_not_matter(self) -> None:
        """What is not quite JSON is the model server's business."""
        for other in (b'"x":NaN', b'"x":"\xff"', b'"x":"\t\n"', b'"x":"\\ud800"', b'"x":[1,],', b"'y':1", b"/**/"):
            self.assert_text(b"{" + other + b',"model":"a"}', "a", b'"a"')
            self.assert_text(b'{"model":"a",' + other + b"}", "a", b'"a"')

    def test_long_values_are_not_kept(self) -> None:
        """A string or number beyond the limit is there, with its place, but without a text."""
        for value in (b'"' + b"x" * (KEEP + 1) + b'"', b"1" * (KEEP + 1)):
            self.assert_text(b'{"model":' + value + b',"model":"b"}', None, value)
        self.assert_text(b'{"model":"' + b"x" * KEEP + b'"}', "x" * KEEP, b'"' + b"x" * KEEP + b'"')
        self.assert_text(b'{"model":' + b" " * (KEEP + 9) + b'"a"}', "a", b'"a"')

    def test_both_members(self) -> None:
        """The search goes on until all are found, and not further."""
        found = scan(b'{"stream":true,"model":"a","x":')
        self.assertEqual([found.members[name].text for name in ("stream", "model")], ["true", "a"])
        self.assertTrue(found.over)
        self.assertFalse(scan(b'{"model":"a","x":').over)
        self.assertTrue(scan(b'{"model":"a"}').over)
        self.assertTrue(scan(b" [").over)

    def test_end_of_the_object(self) -> None:
        """The place just past the brace of the top-level object, where the search ends."""
        for body in (b'{"a":"}"}', b' {"x":[{}],"y":{"z":[]}}', b'{"a":"\\"}{"}', b"{}", b'{"":{"":{}}}'):
            for rest in (b"", b' ,"model":"a"}', b"}}"):
                found = scan(body + rest)
                self.assertEqual((found.object_end, found.members), (len(body), {}), body + rest)
                self.assertEqual(scan(body + rest, *range(len(body + rest))).object_end, len(body))


class EqualityTests(SynchronousTestCase):
    """The search against its plain twin."""

    @given(JUNK)
    @example(b'{"model\\')
    @example(b'\\"{"model":1}')
    def test_junk(self, body: bytes) -> None:
        """On broken bodies both find the same, and nothing raises."""
        found = scan(body)
        self.assertEqual((found.members, found.object_end), plain(body))

    @given(st.binary(max_size=200), st.data())
    def test_any_bytes(self, body: bytes, data: st.DataObject) -> None:
        """On any bytes both find the same, in any pieces."""
        found = scan(body, *data.draw(cuts(body)))
        self.assertEqual((found.members, found.object_end), plain(body))

    @given(JUNK, st.integers(50, 80), st.sampled_from([b'{"model":', b'["model":', b'"model":[],', b'"model":}']))
    def test_many_keys(self, body: bytes, count: int, key: bytes) -> None:
        """Many keys in a row, nested or not, change nothing."""
        body = b'{"x":' + key * count + body + b"}" * count + b',"model":1}'
        found = scan(body)
        self.assertEqual((found.members, found.object_end), plain(body))

    @given(JUNK, st.data())
    def test_pieces(self, body: bytes, data: st.DataObject) -> None:
        """The pieces that a body comes in do not matter."""
        whole, pieces = scan(body), scan(body, *data.draw(cuts(body)))
        single = scan(body, *range(len(body)))
        for other in (pieces, single):
            self.assertEqual((whole.members, whole.object_end), (other.members, other.object_end))

    @given(st.dictionaries(st.sampled_from(["model", "stream", "x", "y"]), VALUES), st.booleans(), st.data())
    def test_json(self, value: dict[str, object], ascii_only: bool, data: st.DataObject) -> None:
        """In real JSON the values are what a parser finds, and their places hold them."""
        body = json.dumps(value, ensure_ascii=ascii_only, indent=data.draw(st.sampled_from([None, 1]))).encode(
            "utf-8", "surrogatepass"
        )
        members = scan(body, *data.draw(cuts(body))).members
        for name in WANTED:
            expected = value.get(name)
            if name not in value:
                self.assertNotIn(name, members)
            elif isinstance(expected, (dict, list)):
                self.assertIsNone(members[name].text)
            else:
                member = members[name]
                self.assertEqual(json.loads(body[member.start : member.end]), expected)
                text = expected if isinstance(expected, str) else json.dumps(expected)
                self.assertEqual((member.text, member.is_string), (text, isinstance(expected, str)))


class CostTests(SynchronousTestCase):
    """The time a piece may take, so that the reactor is never held up."""

    #: What a reader of tokens would be slow on, and what is common: each a beginning, and what is repeated.
    DENSE = (
        (b'{"x":"', b"A"),
        (b'{"messages":[', b'{"role":"user","content":"Hello \\"you\\"\\n"},'),
        (b'{"input":[', b"[1,2],"),
        (b'{"input":[', b'"ab",'),
        (b'{"x":"', b"\\\\"),
        (b'{"x":"', b'\\"'),
        (b'{"x":', b"["),
        (b'{"x":[', b"[]"),
        (b"{", b'"a":1,'),
        (b"{", b'"a":[[]],'),
        (b'{"x":[', b'"model",'),
        (b'{"x":', b'{"model":'),
        (b"{", b'"\\u0061":1,'),
        (b'{"x":1', b'"'),
    )

    def test_no_piece_takes_long(self) -> None:
        """A piece of 64 KiB takes less than 10 ms of computing, whatever it is full of, and memory stays small."""
        for begin, repeated in self.DENSE:
            piece = (repeated * (65536 // len(repeated) + 1))[:65536]
            found = JsonScan(WANTED)
            found.feed(begin)
            self.assertLess(best_time(functools.partial(found.feed, piece), 0.010), 0.010, repeated)

    def test_time_grows_with_the_body_only(self) -> None:
        """The last piece of a large body takes no longer than the first ones."""
        found = JsonScan(WANTED)
        found.feed(b'{"messages":[')
        piece = b'{"role":"user","content":"Hello"},' * 1927
        times = []
        for _ in range(60):
            before = time.thread_time()
            found.feed(piece)
            times.append(time.thread_time() - before)
        self.assertLess(min(times[-20:]), 5 * min(times[:20]))
        found.feed(b'{}],"model":"a"}')
        self.assertEqual(found.members["model"].text, "a")
