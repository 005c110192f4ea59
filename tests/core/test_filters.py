"""Filters of request bodies (`lswap.core.filters`, `lswap.core.edit_json`, `lswap.core.json_text`)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core.edit_json import Edit, EditError, Parts, Step, encoded, parse_path, spliced
from lswap.core.filters import Edits, edit_of
from lswap.core.model import Config, Filters, Model

NAMES = ["a", "b", "é", "model", "0", "1", 'q"\\']


def filters(strip: tuple[str, ...] = (), put: dict[str, Any] | None = None, **by_id: dict[str, Any]) -> Filters:
    """Filters in short."""
    return Filters(strip_params=strip, set_params=put or {}, set_params_by_id=by_id)


def parts_of(body: bytes, edit: Edit) -> Parts:
    """All steps of an edit at once."""
    work = spliced(body, edit)
    while True:
        try:
            next(work)
        except StopIteration as done:
            parts: Parts = done.value
            return parts


def joined(body: bytes, parts: Parts) -> bytes:
    """The bytes that parts stand for."""
    return b"".join(part if isinstance(part, bytes) else body[part[0] : part[1]] for part in parts)


def sent(body: bytes, given_filters: Filters, requested: str = "m", name: str | None = None) -> bytes:
    """What a body becomes."""
    edit = edit_of(given_filters, requested, name)
    return joined(body, parts_of(body, edit)) if edit is not None else body


def remove(value: Any, path: tuple[str, ...]) -> None:
    """The plain way to strip, on parsed JSON."""
    name, *rest = path
    key: Any = name
    if isinstance(value, list):
        if not (name.isdigit() and int(name) < len(value)):
            return
        key = int(name)
    elif not isinstance(value, dict) or name not in value:
        return
    if rest:
        remove(value[key], tuple(rest))
    else:
        del value[key]


def put(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """The plain way to set, on parsed JSON; the value that takes the place of the old one."""
    if not path:
        return new
    name, *rest = path
    if not isinstance(value, (dict, list)):
        value = [] if name.isdigit() else {}
    if isinstance(value, list):
        if not name.isdigit():
            raise EditError("", by_client=False)
        index = int(name)
        there = index < len(value)
        value += [None] * (index + 1 - len(value))
        value[index] = put(value[index] if there else None, tuple(rest), new)
    else:
        value[name] = put(value.get(name), tuple(rest), new)
    return value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([0.5, 1e300, "x", 'a"]}\\', "é\n", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)
STEPS = st.lists(st.tuples(PATHS, st.none() | VALUES.map(lambda value: [value])), max_size=5)


class PropertyTests(SynchronousTestCase):
    """Whatever the body and the steps are."""

    @settings(max_examples=150)
    @given(OBJECTS, STEPS, st.sampled_from([None, 0, 3]), st.booleans())
    def test_as_on_parsed_json(self, value: dict[str, Any], steps: list[Any], indent: int | None, ascii_: bool) -> None:
        """The spliced bytes parse to what the same steps make of the parsed body, in the same order of keys."""
        body = json.dumps(value, indent=indent, ensure_ascii=ascii_).encode()
        steps.sort(key=lambda step: step[1] is not None)  # removals come first, as with filters
        edit = Edit([Step(path, encoded(new[0]) if new is not None else None, "") for path, new in steps])
        try:
            for path, new in steps:
                if new is None:
                    remove(value, path)
                else:
                    put(value, path, json.loads(json.dumps(new[0])))
        except EditError:
            self.assertRaises(EditError, parts_of, body, edit)
            return
        result = json.loads(joined(body, parts_of(body, edit)))
        self.assertEqual(json.dumps(result), json.dumps(value))

    @settings(max_examples=100)
    @given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\a1 \n', max_size=60).map(str.encode), STEPS)
    def test_any_bytes(self, body: bytes, steps: list[Any]) -> None:
        """Nothing breaks on what is no JSON, and slices stay inside, in order."""
        edit = Edit([Step(path, encoded(new[0]) if new is not None else None, "") for path, new in steps])
        try:
            parts = parts_of(body, edit)
        except EditError:
            return
        places = [place for part in parts if isinstance(part, tuple) for place in part]
        self.assertEqual(places, sorted(places))
        self.assertTrue(all(0 <= place <= len(body) for place in places))

    def test_removals_come_first(self) -> None:
        """In whatever order the steps are given: an index does not mean what another step has put there."""
        steps = [Step(("a", "0"), b"1", ""), Step(("a", "0"), None, "")]
        for order in (steps, steps[::-1]):
            self.assertEqual(joined(b'{"a":[]}', parts_of(b'{"a":[]}', Edit(order))), b'{"a":[1]}')

    @settings(max_examples=50)
    @given(OBJECTS, st.sampled_from([None, 2]))
    def test_untouched(self, value: dict[str, Any], indent: int | None) -> None:
        """A body in which nothing is found goes as one slice."""
        body = json.dumps(value, indent=indent).encode() + b"\n"
        edit = edit_of(filters(("nowhere", "a.nowhere", "é.1.nowhere")), "m", None)
        assert edit is not None
        self.assertEqual(parts_of(body, edit), [(0, len(body))])


class BytesTests(SynchronousTestCase):
    """Which bytes change."""

    def test_bytes(self) -> None:
        """Spacing, number forms, escapes and order stay; commas go with what is removed; new members stand last."""
        for body, given_filters, result in (
            (b'{"t":1, "p":2 , "x":1.0}', filters(("t", "p")), b'{  "x":1.0}'),
            (b'{"a":1E2,"t":1,"p":2}', filters(("t", "p")), b'{"a":1E2}'),
            (b'{"t":1,"p":2}', filters(("t", "p")), b"{}"),
            (b'{"t":1}', filters(("t",), {"n": 1}), b'{"n":1}'),
            (b"{ }", filters((), {"n": None}), b'{"n":null }'),
            (b'{\n  "u": "\\u00e9"\n}', filters((), {"n": [1, "é"]}), '{\n  "u": "\\u00e9","n":[1,"é"]\n}'.encode()),
            (b'{"n" : 1.0 ,"x":2}', filters((), {"n": {"k": 1}}), b'{"n" : {"k":1} ,"x":2}'),
            (b'{"m":[{"c":1},{"c":2, "r":0}]}', filters(("m.1.c",), {"m.0.c": 3}), b'{"m":[{"c":3},{ "r":0}]}'),
            (b'{"m":[0,1,2,3]}', filters(("m.0", "m.1")), b'{"m":[1,3]}'),
            (b'{"m":[0 ]}', filters((), {"m.2": 1}), b'{"m":[0,null,1 ]}'),
            (b'{"m":5}', filters((), {"m.x.1": 1}), b'{"m":{"x":[null,1]}}'),
            (b'{"a.b":1,"a":{"b":2}}', filters(("a\\.b",)), b'{"a":{"b":2}}'),
        ):
            self.assertEqual(sent(body, given_filters), result, body)

    def test_not_quite_json(self) -> None:
        """A BOM, NaN, trailing commas, control characters and what follows the object stay as they are."""
        for body, result in (
            (b'\xef\xbb\xbf{"t":NaN,"z":-Infinity}', b'\xef\xbb\xbf{"z":-Infinity,"n":1}'),
            (b'{"a":1,}', b'{"a":1,"n":1}'),
            (b'{"a":1,"t":2,}', b'{"a":1,"n":1}'),
            (b'{"t":2,}', b'{"n":1}'),
            (b'{"a":"\x00\n\t","t":1} more', b'{"a":"\x00\n\t","n":1} more'),
            (b'{"t":1,"a":[1,2', b'{"a":[1,2'),
            (b'{"a":"x', b'{"a":"x'),
        ):
            self.assertEqual(sent(body, filters(("t",), {"n": 1})), result, body)

    def test_duplicates(self) -> None:
        """Of equal keys all are changed, however they are spelled."""
        body = b'{"t":1,"model":"m","\\u0074":2,"k":1,"\\u006b":2,"t":3,"model":"x"}'
        self.assertEqual(
            sent(body, filters(("t",), {"k": 5}), name="real"), b'{"model":"real","k":5,"\\u006b":5,"model":"real"}'
        )

    def test_too_many_duplicates(self) -> None:
        """Thousands of them are refused, as the client's fault."""
        with self.assertRaises(EditError) as caught:
            sent(b"{" + b'"t":1,' * 5000 + b'"z":1}', filters(("t",)))
        self.assertTrue(caught.exception.by_client)

    def test_name_in_a_list(self) -> None:
        """It has no place there: the settings' fault, told with the parameter."""
        with self.assertRaises(EditError) as caught:
            sent(b'{"m":[1]}', filters((), {"m.x": 1}))
        self.assertFalse(caught.exception.by_client)
        self.assertEqual(str(caught.exception), "error setting parameter m.x in request")

    def test_large_values(self) -> None:
        """Values beyond any block, with escapes at every place of its end, are passed over rightly."""
        for size in (100, 4096, 32766, 32767, 32768, 32769, 70000):
            for filling in (b"x" * size, b"x" * size + b'\\"' * 300, b"\\\\" * size, b'\\"' * size):
                for value in (b'"' + filling + b'"', b'[{"k":"' + filling + b'"},[]]', b"[" * size + b"]" * size):
                    body = b'{"a":' + value + b',"t":1}'
                    self.assertEqual(sent(body, filters(("t",))), b'{"a":' + value + b"}")
        for filling in (b" " * 70000, b"1" * 70000):
            self.assertEqual(sent(b'{"a":' + filling + b'1,"t":1}', filters(("t",))), b'{"a":' + filling + b"1}")


class OrderTests(SynchronousTestCase):
    """What is done, in which order."""

    def test_order(self) -> None:
        """Name, strip, set, set by the requested name; each sorted, later ones win."""
        given_filters = filters(("k",), {"k": 1, "a.b": 1, "a": {"c": 0}}, m={"k": 2}, other={"k": 3})
        self.assertEqual(
            sent(b'{"model":"m","k":0}', given_filters, name="real"), b'{"model":"real","a":{"c":0,"b":1},"k":2}'
        )
        self.assertEqual(sent(b'{"k":0}', given_filters, "third"), b'{"a":{"c":0,"b":1},"k":1}')

    def test_model_is_left_alone(self) -> None:
        """No filter strips or sets it, nor anything in it."""
        given_filters = filters(("model", "model.x"), {"model": "evil", "model.y": 1}, m={"model": "evil"})
        self.assertIsNone(edit_of(given_filters, "m", None))

    def test_paths(self) -> None:
        """Dots separate, a backslash takes that from them."""
        self.assertEqual(parse_path("a.b\\.c.0"), ("a", "b.c", "0"))
        self.assertEqual(parse_path("a\\"), ("a",))

    def test_edits_are_kept(self) -> None:
        """One edit for each use in a configuration; another configuration makes its own; none without filters."""
        model = Model(id="m", filters=filters(("t",), {}, n={"k": 1}))
        config, edits = Config(models={"m": model}), Edits()
        first = edits.find(config, model.filters, "m", None)
        self.assertIs(edits.find(config, model.filters, "alias", None), first)
        self.assertIsNot(edits.find(config, model.filters, "n", None), first)
        self.assertIsNot(edits.find(config, model.filters, "m", "real"), first)
        self.assertIsNot(edits.find(Config(), model.filters, "m", None), first)
        self.assertIsNone(edits.find(config, Filters(), "m", None))
