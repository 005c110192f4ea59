"""What is saved, restored, dropped and believed of KV caches (`lswap.core.kv`)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.core import kv

FILE = kv.FileFacts("/m/a.gguf", 100, 5, "abc")
INPUTS = kv.Inputs("a", ("llama-server", "-m", "/m/a.gguf"), {"LLAMA_ARG_CTX_SIZE": "1"}, (FILE,))
RECORD = kv.Record(
    "f" * 64, INPUTS, "b1", None, (kv.SavedSlot(0, 1000, 500, 10.0, 0.5), kv.SavedSlot(2, 300, 50, 99.0))
)


class FingerprintTests(SynchronousTestCase):
    """What makes two commands different."""

    def test_anything_counts(self) -> None:
        """Each of the inputs changes it, and the same gives the same."""
        change = msgspec.structs.replace
        others = [
            INPUTS,
            change(INPUTS, model="b"),
            change(INPUTS, command=("llama-server",)),
            change(INPUTS, environment={}),
            *(
                change(INPUTS, files=(change(FILE, **{field: value}),))
                for field, value in (("path", "/m/b"), ("size", 101), ("modified", 6), ("ends", "abd"))
            ),
            change(INPUTS, files=()),
        ]
        prints = [kv.fingerprint_of(inputs) for inputs in others]
        self.assertEqual(len(set(prints)), len(others))
        self.assertEqual(kv.fingerprint_of(msgspec.json.decode(msgspec.json.encode(INPUTS), type=kv.Inputs)), prints[0])
        self.assertTrue(kv.is_group_name(prints[0][: kv.FOLDER_DIGITS]))

    def test_names(self) -> None:
        """Only what a fingerprint can have named is taken for a folder of ours."""
        for name in ("", "0123", "0123456789abcdeg", "0123456789ABCDEF", "0123456789abcdef0"):
            self.assertFalse(kv.is_group_name(name), name)

    def test_which_file_changed(self) -> None:
        """The first that is another now; files that were not there before do not count."""
        touched = msgspec.structs.replace(FILE, modified=6)
        self.assertIsNone(kv.changed_since(RECORD, INPUTS))
        self.assertEqual(kv.changed_since(RECORD, msgspec.structs.replace(INPUTS, files=(touched,))), "/m/a.gguf")
        self.assertIsNone(kv.changed_since(RECORD, msgspec.structs.replace(INPUTS, files=(kv.FileFacts("/new"),))))


class RecordTests(SynchronousTestCase):
    """`record.json`."""

    def test_there_and_back(self) -> None:
        """What was written is read."""
        self.assertEqual(kv.read_record(kv.write_record(RECORD)), RECORD)

    def test_damaged(self) -> None:
        """What is none, or cannot be, is None."""
        good = kv.write_record(RECORD)
        damaged = [b"", b"{", b"[]", b'{"slots": 7}', b"null", b"\xff\xfe", good[:-20], b"[" * 100_000]
        for field, value in ((b'"slot": 2', b'"slot": 0'), (b'"slot": 2', b'"slot": -2')):
            self.assertIn(field, good)
            damaged.append(good.replace(field, value))
        damaged += [good.replace(b'"tokens": 1000', b'"tokens": 0'), good.replace(b'"bytes": 500', b'"bytes": 0')]
        for data in damaged:
            self.assertIsNone(kv.read_record(data), data[:40])

    def test_slots(self) -> None:
        """One is replaced, added, taken out; they stay in order."""
        newer = kv.SavedSlot(0, 1, 1, 1.0)
        self.assertEqual([saved.slot for saved in RECORD.with_slot(kv.SavedSlot(1, 5, 5, 5.0)).slots], [0, 1, 2])
        self.assertEqual(RECORD.with_slot(newer).slot(0), newer)
        self.assertEqual([saved.slot for saved in RECORD.without([0, 7]).slots], [2])
        self.assertIsNone(RECORD.slot(1))

    def test_expired(self) -> None:
        """Each slot has its own age."""
        self.assertEqual(kv.expired(RECORD, 50.0, 60.0), [])
        self.assertEqual(kv.expired(RECORD, 50.0, 60.1), [0])
        self.assertEqual(kv.expired(RECORD, 0.0, 100.0), [0, 2])


class SaveTests(SynchronousTestCase):
    """What is worth a save."""

    def test_least_tokens(self) -> None:
        """At least so many, and at least one."""
        for tokens, least, expected in (
            (255, 256, False),
            (256, 256, True),
            (0, 0, False),
            (1, 0, True),
            (None, 0, False),
        ):
            self.assertEqual(kv.worth_saving(tokens, least, None), expected, (tokens, least))

    def test_not_a_quarter(self) -> None:
        """One with more than four times the tokens is not given up for it."""
        for tokens, expected in ((250, True), (249, False), (5000, True)):
            self.assertEqual(kv.worth_saving(tokens, 1, RECORD.slot(0)), expected, tokens)

    def test_time(self) -> None:
        """Half a minute, and a second for each 100 MiB."""
        self.assertEqual(kv.save_limit(0), 30.0)
        self.assertEqual(kv.save_limit(1000 << 20), 40.0)


class QuotaTests(SynchronousTestCase):
    """What has to go."""

    def test_least_recently_used_first(self) -> None:
        """As many as it takes, and those in use never."""
        groups = [kv.Group("new", 50, 9.0), kv.Group("old", 50, 1.0), kv.Group("mid", 50, 5.0)]
        self.assertEqual(kv.outgrown(groups, 150, ()), [])
        self.assertEqual(kv.outgrown(groups, 149, ()), ["old"])
        self.assertEqual(kv.outgrown(groups, 99, ()), ["old", "mid"])
        self.assertEqual(kv.outgrown(groups, 99, {"old"}), ["mid", "new"])
        self.assertEqual(kv.outgrown(groups, 0, {"old", "mid", "new"}), [])

    @given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 100))), st.integers(0, 500), st.sets(st.integers(0, 9)))
    def test_always(self, sizes: list[tuple[int, float]], most: int, used: set[int]) -> None:
        """What is left fits, or all that is left is in use; nothing in use goes; nothing goes needlessly."""
        groups = [kv.Group(str(at), size, when) for at, (size, when) in enumerate(sizes)]
        in_use = {str(at) for at in used}
        gone = kv.outgrown(groups, most, in_use)
        left = [group for group in groups if group.key not in gone]
        self.assertFalse(set(gone) & in_use)
        self.assertTrue(sum(group.bytes for group in left) <= most or all(group.key in in_use for group in left))
        if gone:
            last = next(group for group in groups if group.key == gone[-1])
            self.assertGreater(sum(group.bytes for group in left) + last.bytes, most)


class EffectTests(SynchronousTestCase):
    """Whether restores are of use."""

    def test_two_in_a_row(self) -> None:
        """Two without effect are enough, of one fingerprint."""
        effect = kv.Effect()
        self.assertFalse(effect.answered("f", 0))
        self.assertFalse(effect.answered("g", 0))
        self.assertTrue(effect.answered("f", 0))

    def test_one_between(self) -> None:
        """One that had an effect makes good for one that had none."""
        effect = kv.Effect()
        for cached in (0, 5, 0, 1000, 0):
            self.assertFalse(effect.answered("f", cached))
