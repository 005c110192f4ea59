"""The store of activity: `lswap.service.database`, and `lswap.service.store` in its thread."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from lswap.service import store
from lswap.service.database import Database, Query, Row, StoreError
from lswap.service.store import Store


def row(model: str = "a", **more: Any) -> Row:
    """A row."""
    return Row(created=1_700_000_000, model=model, path="/v1/x", **more)


class DatabaseTests(SynchronousTestCase):
    """The table and what is asked of it."""

    def setUp(self) -> None:
        """A path for a file."""
        self.path = os.path.abspath(self.mktemp())

    def ids(self, base: Database, **query: Any) -> list[int]:
        """The IDs that a query finds."""
        return [found["id"] for found in base.page(Query(**query))[0]]

    def test_row(self) -> None:
        """What goes in comes out; what is empty is left out."""
        base = Database(None, 10)
        self.assertEqual(base.add([row(input=3, output_speed=2.0, metadata={"k": "\ud800"}, error="\u20ac")]), [1])
        (found,), total = base.page(Query())
        self.assertEqual((total, found["tokens"]["input_tokens"], found["tokens"]["tokens_per_second"]), (1, 3, 2))
        self.assertEqual((found["metadata"], found["error_msg"]), ({"k": "?"}, "\u20ac"))
        base.add([row()])
        self.assertNotIn("error_msg", base.page(Query(limit=1))[0][0])

    def test_memory_keeps_the_newest(self) -> None:
        """As many as it is told."""
        base = Database(None, 2)
        base.add([row() for _ in range(5)])
        self.assertEqual(self.ids(base), [5, 4])

    def test_file_keeps_all(self) -> None:
        """Also after it was opened anew, also by others; IDs go on, and it is in WAL mode."""
        base = Database(self.path, 1)
        base.add([row(), row()])
        base.close()
        base = Database(self.path, 1)
        self.assertEqual(base.add([row()]), [3])
        self.assertEqual(self.ids(base), [3, 2, 1])
        other = sqlite3.connect(self.path)
        self.addCleanup(other.close)
        self.assertEqual(other.execute("PRAGMA journal_mode").fetchone(), ("wal",))
        self.assertEqual(other.execute("SELECT count(*) FROM activity").fetchone(), (3,))

    def test_older_form(self) -> None:
        """Columns that are missing are added; the rows stay."""
        other = sqlite3.connect(self.path)
        other.execute("CREATE TABLE activity (id INTEGER PRIMARY KEY AUTOINCREMENT, model_id TEXT NOT NULL)")
        other.execute("INSERT INTO activity (id, model_id) VALUES (41, 'old')")
        other.commit()
        other.close()
        base = Database(self.path, 1)
        self.assertEqual(base.add([row()]), [42])
        self.assertEqual([found["model"] for found in base.page(Query(order="asc"))[0]], ["old", "a"])

    def test_newer_form(self) -> None:
        """A file of a newer lswap is left alone."""
        other = sqlite3.connect(self.path)
        other.execute("PRAGMA user_version = 99")
        other.close()
        self.assertRaises(StoreError, Database, self.path, 1)

    def test_locked(self) -> None:
        """Told soon; nothing is half done."""
        base = Database(self.path, 1)
        other = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(other.close)
        other.execute("BEGIN IMMEDIATE")
        self.assertRaises(StoreError, base.add, [row()])
        self.assertEqual(self.ids(base), [])
        other.execute("ROLLBACK")
        self.assertEqual(base.add([row()]), [1])

    def test_conditions(self) -> None:
        """All of them hold together; pages count what they leave."""
        base = Database(None, 10)
        base.add([row("a", output=1), row("b", output=9), row("a", output=5)])
        self.assertEqual(self.ids(base, models=("a",), min_id=2), [3])
        self.assertEqual(self.ids(base, models=("a", "b"), max_id=2), [2, 1])
        self.assertEqual(self.ids(base, start=1_700_000_001), [])
        self.assertEqual(self.ids(base, start=1_700_000_000, end=1_700_000_000), [3, 2, 1])
        self.assertEqual(self.ids(base, sort="generated"), [2, 3, 1])
        self.assertEqual(self.ids(base, sort="model", order="asc"), [1, 3, 2])
        self.assertEqual(base.page(Query(limit=2, page=2))[1], 3)
        self.assertEqual(self.ids(base, limit=2, page=2), [1])
        self.assertEqual(self.ids(base, page=10**18), [])

    def test_statistics(self) -> None:
        """Sums without what is unknown; five bins at least, percentiles between neighbours."""
        base = Database(None, 10)
        base.add([row(output_speed=float(speed), input=2, cached=-1) for speed in (10, 20, 30, 50)])
        base.add([row(input=-1, output=-1, cached=3)])
        found = base.statistics("")
        self.assertEqual((found["total_requests"], found["total_input_tokens"], found["total_cache_tokens"]), (5, 8, 3))
        shown = found["gen_histogram"]
        self.assertEqual((shown["bins"], shown["binSize"], shown["p50"]), ([1, 1, 1, 0, 1], 8, 25))
        self.assertAlmostEqual(shown["p99"], 49.4)
        self.assertIsNone(found["prompt_histogram"])
        self.assertIsNone(base.statistics("b")["gen_histogram"])

    def test_many_rows(self) -> None:
        """More than one statement takes: each has its own ID, in order."""
        base = Database(None, 1000)
        base.add([row()])
        self.assertEqual(base.add([row(output=number) for number in range(120)]), list(range(2, 122)))
        shown, total = base.page(Query(min_id=60, max_id=60))
        self.assertEqual((total, shown[0]["tokens"]["output_tokens"]), (1, 58))
        self.assertEqual(base.add([]), [])

    def test_statistics_of_one_value(self) -> None:
        """One bin without a width."""
        base = Database(None, 10)
        base.add([row(output_speed=2.5)] * 2)
        shown = base.statistics("a")["gen_histogram"]
        self.assertEqual((shown["bins"], shown["binSize"], shown["p99"]), ([2], 0, 2.5))


class StoreTests(TestCase):
    """The thread, with the real reactor."""

    def setUp(self) -> None:
        """A store in a file."""
        self.path = os.path.abspath(self.mktemp())
        self.store = Store(installed, self.path, 1)  # type: ignore[arg-type]
        self.addCleanup(self.store.stop)

    def add(self, **more: Any) -> Deferred[tuple[int, Any]]:
        """Add a row; fires when it is stored."""
        stored: Deferred[tuple[int, Any]] = Deferred()
        self.store.add(lambda: (row(**more), "more"), lambda number, extra: stored.callback((number, extra)))
        return stored

    async def test_order(self) -> None:
        """A question sees all that was added before it."""
        self.store.add(lambda: (row("x"), None), lambda number, extra: None)
        rows, total = await self.store.ask(lambda base: base.page(Query()))
        self.assertEqual((rows[0]["model"], total), ("x", 1))
        self.assertEqual(await self.add(), (2, "more"))

    async def test_nobody_waits_while_rows_are_gathered(self) -> None:
        """A question has its answer, and the end comes, as if nothing were gathered."""
        self.patch(store, "_GATHER", 3600.0)
        self.store.add(lambda: (row(), None), lambda number, extra: None)
        _, total = await self.store.ask(lambda base: base.page(Query()))
        self.assertEqual(total, 1)
        self.store.add(lambda: (row(), None), lambda number, extra: None)
        await self.store.stop()
        base = Database(self.path, 1)
        self.addCleanup(base.close)
        self.assertEqual(base.page(Query())[1], 2)

    test_nobody_waits_while_rows_are_gathered.timeout = 30  # type: ignore[attr-defined]

    async def test_fault_after_it(self) -> None:
        """Who cannot bear to hear of its row costs nobody else the news."""

        def bad(number: int, extra: Any) -> None:
            raise RuntimeError("boom")

        self.store.add(lambda: (row(), None), bad)
        self.assertEqual(await self.add(), (2, "more"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    async def test_fault(self) -> None:
        """A row that cannot be made costs itself, and a question that fails tells why."""

        def bad() -> Any:
            raise ValueError("bad")

        self.store.add(bad, lambda number, extra: None)
        await self.add()
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        await self.assertFailure(self.store.ask(lambda base: bad()), ValueError)

    async def test_locked(self) -> None:
        """Adding never waits; the row is written once the lock is gone."""
        await self.add()
        other = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.addCleanup(other.close)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        stored = self.add()
        self.assertLess(time.monotonic() - began, 0.05)
        _, total = await self.store.ask(lambda base: base.page(Query()))
        self.assertEqual(total, 1)
        other.execute("ROLLBACK")
        self.assertEqual((await stored)[0], 2)

    async def test_another_file(self) -> None:
        """A reload leads on; what was added before is in the old one."""
        await self.add()
        self.store.use(self.path + "2", 1)
        self.assertEqual((await self.add())[0], 1)

    async def test_end(self) -> None:
        """What was given before is written, what comes later is not done; twice does no harm."""
        self.store.add(lambda: (row("last"), None), lambda number, extra: None)
        await self.store.stop()
        await self.store.stop()
        self.store.add(lambda: (row("late"), None), lambda number, extra: None)
        base = Database(self.path, 1)
        self.assertEqual([found["model"] for found in base.page(Query())[0]], ["last"])
        base.close()
