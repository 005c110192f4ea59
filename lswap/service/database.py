"""The table of activity in SQLite: its form, its rows, and what is asked of it. Blocks; one thread at a time.

Read `lswap.service.store` next, which runs it in a thread of its own. `sqlite3` is imported when a database is opened.
Source: HTTP reference, sections 14.1 to 14.3; configuration reference, section 7.3.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

__all__ = ["SORTS", "Database", "Query", "Row", "StoreError"]

#: Of our own form; a file with a higher one is not touched.
_VERSION = 1
_WAIT_FOR_LOCK = 0.05
_WHOLE, _REAL, _TEXT = "INTEGER NOT NULL DEFAULT 0", "REAL NOT NULL DEFAULT 0", "TEXT NOT NULL DEFAULT ''"
_COLUMNS = {
    "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "ts_created": _WHOLE,
    "model_id": _TEXT,
    "req_path": _TEXT,
    "resp_content_type": _TEXT,
    "resp_status_code": _WHOLE,
    "cache_tokens": _WHOLE,
    "draft_tokens": _WHOLE,
    "draft_acc_tokens": _WHOLE,
    "input_tokens": _WHOLE,
    "output_tokens": _WHOLE,
    "prompt_per_second": _REAL,
    "tokens_per_second": _REAL,
    "duration_ms": _WHOLE,
    "error_msg": _TEXT,
    "metadata_json": _TEXT,
}
_NAMES = ", ".join(_COLUMNS)
_INSERT = f"INSERT INTO activity ({', '.join(list(_COLUMNS)[1:])}) VALUES "
_VALUES = f"({', '.join('?' * (len(_COLUMNS) - 1))})"
#: Rows of one statement; SQLite has always taken 999 values. The interpreter changes hands with each.
_TOGETHER = 50

#: What can be sorted by, and the column that it is.
SORTS = {
    "id": "id",
    "time": "ts_created",
    "model": "model_id",
    "req_path": "req_path",
    "resp_status_code": "resp_status_code",
    "resp_content_type": "resp_content_type",
    "cached": "cache_tokens",
    "prompt": "input_tokens",
    "generated": "output_tokens",
    "drafted": "draft_tokens",
    "prompt_speed": "prompt_per_second",
    "gen_speed": "tokens_per_second",
    "duration": "duration_ms",
}


class StoreError(Exception):
    """The store cannot do what was asked; the text says why."""


class Row(msgspec.Struct):
    """One request that is over."""

    created: int
    model: str
    path: str
    content_type: str = ""
    status: int = 0
    cached: int = -1
    drafted: int = -1
    accepted: int = -1
    input: int = 0
    output: int = 0
    prompt_speed: float = -1.0
    output_speed: float = -1.0
    duration_ms: int = 0
    error: str = ""
    metadata: dict[str, str] = {}

    def values(self) -> tuple[Any, ...]:
        """In the order of the columns, without the ID."""
        *fields, metadata = msgspec.structs.astuple(self)
        fields.append(json.dumps(metadata, separators=(",", ":"), ensure_ascii=False))
        return tuple(_storable(field) if isinstance(field, str) else field for field in fields)


def _storable(text: str) -> str:
    """The text, if it is one; names in JSON may hold halves of characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Query(msgspec.Struct, frozen=True):
    """Which rows, in which order; all conditions hold together."""

    models: tuple[str, ...] = ()
    #: Seconds since 1970, both included.
    start: int | None = None
    end: int | None = None
    min_id: int | None = None
    max_id: int | None = None
    page: int = 1
    limit: int = 25
    sort: str = "id"
    order: Literal["asc", "desc"] = "desc"


class Database:
    """One open database."""

    def __init__(self, path: str | None, keep: int) -> None:
        """@param path: None for one in memory, of which the newest `keep` rows are kept.

        @raise StoreError: it cannot be opened.
        """
        import sqlite3  # noqa: PLC0415 - not needed before the first request

        self._errors: type[Exception] = sqlite3.Error
        self._keep = keep if path is None else None
        try:
            self._base = sqlite3.connect(
                path if path is not None else ":memory:",
                timeout=_WAIT_FOR_LOCK,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare()
            except BaseException:
                self._base.close()
                raise
        except sqlite3.Error as problem:
            raise StoreError(str(problem)) from problem

    def _prepare(self) -> None:
        run = self._base.execute
        version = run("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise StoreError(f"the file is of a newer lswap (form {version}, this one knows {_VERSION})")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if version == _VERSION:
            return
        run("BEGIN IMMEDIATE")
        try:
            columns = {row[1] for row in run("PRAGMA table_info(activity)")}
            if not columns:
                run(f"CREATE TABLE activity ({', '.join(f'{name} {kind}' for name, kind in _COLUMNS.items())})")
            elif "id" not in columns:
                raise StoreError("the file has a table activity that is not ours")
            for name, kind in _COLUMNS.items():
                if columns and name not in columns:
                    run(f"ALTER TABLE activity ADD COLUMN {name} {kind}")
            run("CREATE INDEX IF NOT EXISTS idx_activity_created_id ON activity (ts_created DESC, id DESC)")
            run(
                "CREATE INDEX IF NOT EXISTS idx_activity_model_created_id"
                " ON activity (model_id, ts_created DESC, id DESC)"
            )
            run(f"PRAGMA user_version = {_VERSION}")
            run("COMMIT")
        except BaseException:
            if self._base.in_transaction:
                run("ROLLBACK")
            raise

    def close(self) -> None:
        """Close it; what was added is in the file."""
        self._base.close()

    def keep(self, keep: int) -> None:
        """Keep another number of rows from now on, if the database is in memory."""
        if self._keep is not None:
            self._keep = keep

    # -- rows --------------------------------------------------------------------

    def add(self, rows: Sequence[Row]) -> list[int]:
        """Add rows, all or none; their IDs.

        @raise StoreError: locked by another program, or no room, or not writable.
        """
        run = self._base.execute
        try:
            run("BEGIN IMMEDIATE")
            try:
                last = 0
                for start in range(0, len(rows), _TOGETHER):
                    some = rows[start : start + _TOGETHER]
                    values = [value for row in some for value in row.values()]
                    last = int(run(_INSERT + ", ".join([_VALUES] * len(some)), values).lastrowid or 0)
                if self._keep is not None and rows:
                    run("DELETE FROM activity WHERE id <= ?", (last - self._keep,))
                run("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    run("ROLLBACK")
                raise
        except self._errors as problem:
            raise StoreError(str(problem)) from problem
        # The IDs of one transaction follow each other: nobody else writes meanwhile, and none is used again.
        return list(range(last - len(rows) + 1, last + 1))

    def page(self, query: Query) -> tuple[list[dict[str, Any]], int]:
        """The rows of one page as clients see them, and how many there are on all pages.

        @raise StoreError: it cannot be read.
        """
        where, values = _conditions(query)
        column, order = SORTS.get(query.sort, "id"), "ASC" if query.order == "asc" else "DESC"
        by = f"{column} {order}, id {order}" if column != "id" else f"id {order}"
        try:
            total = self._base.execute(f"SELECT count(*) FROM activity{where}", values).fetchone()[0]
            rows = self._base.execute(
                f"SELECT {_NAMES} FROM activity{where} ORDER BY {by} LIMIT ? OFFSET ?",
                (*values, query.limit, min((query.page - 1) * query.limit, 2**62)),
            ).fetchall()
        except self._errors as problem:
            raise StoreError(str(problem)) from problem
        return [_shown(row) for row in rows], int(total)

    def statistics(self, model: str) -> dict[str, Any]:
        """Sums and speeds of all rows, or of those of one model.

        @raise StoreError: it cannot be read.
        """
        where, values = (" WHERE model_id = ?", (model,)) if model else (" WHERE 1", ())
        sums = ", ".join(
            f"coalesce(sum(max({name}, 0)), 0)" for name in ("input_tokens", "output_tokens", "cache_tokens")
        )
        try:
            row = self._base.execute(f"SELECT count(*), {sums} FROM activity{where}", values).fetchone()
            return {
                "total_requests": row[0],
                "total_input_tokens": row[1],
                "total_output_tokens": row[2],
                "total_cache_tokens": row[3],
                "prompt_histogram": self._histogram("prompt_per_second", where, values),
                "gen_histogram": self._histogram("tokens_per_second", where, values),
            }
        except self._errors as problem:
            raise StoreError(str(problem)) from problem

    def _histogram(self, column: str, where: str, values: tuple[Any, ...]) -> dict[str, Any] | None:
        """Of the speeds over 0; counted by SQLite, so that a long history does not come into memory."""
        run = self._base.execute
        where = f"{where} AND {column} > 0"
        count, low, high = run(f"SELECT count(*), min({column}), max({column}) FROM activity{where}", values).fetchone()
        if not count:
            return None
        number = min(20, max(5, math.ceil(math.log2(count)) + 1)) if high > low else 1
        size = (high - low) / number if number > 1 else 0.0
        bins = [0] * number
        if size > 0:
            place = f"min(CAST(({column} - ?) / ? AS INTEGER), ?)"
            for bin_, times in run(
                f"SELECT {place} AS bin, count(*) FROM activity{where} GROUP BY bin", (low, size, number - 1, *values)
            ):
                bins[bin_] = times
        else:
            bins[0] = count

        def percentile(share: int) -> float:
            rank = share / 100 * (count - 1)
            first = math.floor(rank)
            found = run(
                f"SELECT {column} FROM activity{where} ORDER BY {column} LIMIT 2 OFFSET ?", (*values, first)
            ).fetchall()
            return float(found[0][0] + (found[-1][0] - found[0][0]) * (rank - first))

        return {
            "bins": bins,
            "min": _plain(low),
            "max": _plain(high),
            "binSize": _plain(size),
            "p50": _plain(percentile(50)),
            "p95": _plain(percentile(95)),
            "p99": _plain(percentile(99)),
        }


def _conditions(query: Query) -> tuple[str, tuple[Any, ...]]:
    parts: list[str] = []
    values: list[Any] = []
    if query.models:
        parts.append(f"model_id IN ({', '.join('?' * len(query.models))})")
        values += query.models
    for condition, value in (
        ("ts_created >= ?", query.start),
        ("ts_created <= ?", query.end),
        ("id >= ?", query.min_id),
        ("id <= ?", query.max_id),
    ):
        if value is not None:
            parts.append(condition)
            values.append(value)
    return (" WHERE " + " AND ".join(parts) if parts else ""), tuple(values)


def _shown(row: Sequence[Any]) -> dict[str, Any]:
    """A row as clients see it, but for `has_capture`."""
    cell = dict(zip(_COLUMNS, row, strict=True))
    try:
        moment = datetime.datetime.fromtimestamp(cell["ts_created"]).astimezone().isoformat()
    except (OverflowError, ValueError, OSError):
        moment = "1970-01-01T00:00:00Z"
    shown: dict[str, Any] = {
        "id": cell["id"],
        "timestamp": moment.replace("+00:00", "Z"),
        "model": cell["model_id"],
        "req_path": cell["req_path"],
        "resp_content_type": cell["resp_content_type"],
        "resp_status_code": cell["resp_status_code"],
        "tokens": {
            "cache_tokens": cell["cache_tokens"],
            "draft_tokens": cell["draft_tokens"],
            "draft_acc_tokens": cell["draft_acc_tokens"],
            "input_tokens": cell["input_tokens"],
            "output_tokens": cell["output_tokens"],
            "prompt_per_second": _plain(cell["prompt_per_second"]),
            "tokens_per_second": _plain(cell["tokens_per_second"]),
        },
        "duration_ms": cell["duration_ms"],
        "has_capture": False,
    }
    if cell["error_msg"]:
        shown["error_msg"] = cell["error_msg"]
    metadata = _metadata(cell["metadata_json"])
    if metadata:
        shown["metadata"] = metadata
    return shown


def _metadata(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _plain(value: float) -> float:
    """A whole number as JSON clients know it: without `.0`."""
    return int(value) if value == int(value) else value
