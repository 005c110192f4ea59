"""Activity for people and programs: `/api/metrics/activity`, `/api/metrics/stats`, `/api/captures/{id}`.

Checks what is asked; the store answers (`lswap.service.store`), in its own thread. Source: HTTP reference, sections
14.2 to 14.4.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from lswap.service.captures import Captures, shown
from lswap.service.database import SORTS, Query, StoreError
from lswap.service.store import Store
from lswap.web.answers import Fault, go_json, json_answer, prepare
from lswap.web.request import Request

__all__ = ["add_activity", "query_of", "query_values", "rfc3339"]

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:[.,](\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,18}")
#: Rows that are made into JSON in the reactor's thread.
_FEW = 100
_MOST_FIELDS = 1000


def rfc3339(text: str) -> datetime.datetime | None:
    """The time that a text tells, with its zone; None if it tells none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    try:
        return datetime.datetime.fromisoformat(
            f"{day}T{clock}.{(fraction or '0')[:6].ljust(6, '0')}{'+00:00' if zone in 'Zz' else zone}"
        )
    except ValueError:
        return None


def query_values(request: Request) -> list[tuple[str, str]]:
    """The pairs of a query; blank values are left out.

    @raise Fault: there are far too many.
    """
    query = request.uri.partition(b"?")[2].decode("latin-1")
    try:
        pairs = parse_qsl(query, errors="replace", max_num_fields=_MOST_FIELDS)
    except ValueError as problem:
        raise Fault(400, "too many query parameters") from problem
    return [(name, value.strip()) for name, value in pairs if value.strip()]


def query_of(pairs: list[tuple[str, str]]) -> Query:
    """What a query asks for.

    @raise Fault: a value is not one.
    """
    first: dict[str, str] = {}
    for name, value in pairs:
        first.setdefault(name, value)
    start, end = _time(first, "start"), _time(first, "end")
    if start is not None and end is not None and start > end:
        raise Fault(400, "start must be before end")
    min_id, max_id = _number(first, "min_id"), _number(first, "max_id")
    if min_id is not None and max_id is not None and min_id > max_id:
        raise Fault(400, "min_id must be <= max_id")
    limit = first.get("limit", "25")
    if not limit.lstrip("-").isdecimal():
        raise Fault(400, "invalid limit")
    if not _DIGITS.fullmatch(limit) or not 1 <= int(limit) <= 999:
        raise Fault(400, "limit must be between 1 and 999")
    sort, order = first.get("sort", "id"), first.get("order", "desc").lower()
    if sort not in SORTS:
        raise Fault(400, "invalid sort column")
    if order not in ("asc", "desc"):
        raise Fault(400, "order must be asc or desc")
    return Query(
        models=tuple(value for name, value in pairs if name == "model"),
        start=start,
        end=end,
        min_id=min_id,
        max_id=max_id,
        page=_number(first, "page") or 1,
        limit=int(limit),
        sort=sort,
        order="asc" if order == "asc" else "desc",
    )


def _number(values: dict[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not _DIGITS.fullmatch(text) or int(text) < 1:
        raise Fault(400, f"{name} must be >= 1")
    return int(text)


def _time(values: dict[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    found = rfc3339(text)
    if found is None:
        raise Fault(400, f"invalid '{name}' timestamp, use RFC3339 format")
    return int(found.timestamp() // 1)


def _out_of_order(failure: Failure) -> Any:
    failure.trap(StoreError)
    raise Fault(503, f"the activity store cannot be read: {failure.getErrorMessage()}")


def add_activity(app: Klein, store: Store, captures: Captures) -> None:
    """Put the routes into the tree."""

    def activity(request: Any) -> Deferred[bytes]:
        query = query_of(query_values(request))

        def answer(found: tuple[list[dict[str, Any]], int]) -> bytes | Deferred[bytes]:
            rows, total = found
            for row in rows:  # here, as a capture is there once its row's event is out
                row["has_capture"] = row["id"] in captures
            pages = -(-total // query.limit)
            value = {"data": rows, "page": query.page, "limit": query.limit, "total": total, "total_pages": pages}
            if len(rows) <= _FEW:
                return json_answer(request, value)
            encoded = store.aside(lambda: go_json(value) + b"\n")
            return encoded.addCallback(lambda body: prepare(request, 200, "application/json", body))

        asked: Deferred[Any] = store.ask(lambda database: database.page(query))
        return asked.addCallbacks(answer, _out_of_order)

    def statistics(request: Any) -> Deferred[bytes]:
        model = dict(reversed(query_values(request))).get("model", "")
        asked: Deferred[Any] = store.ask(lambda database: database.statistics(model))
        return asked.addCallbacks(lambda value: json_answer(request, value), _out_of_order)

    def capture(request: Any, number: str) -> Deferred[bytes]:
        if not _DIGITS.fullmatch(number.removeprefix("-")):
            raise Fault(400, "invalid capture ID")
        packed = captures.get(int(number))
        if packed is None:
            raise Fault(404, "capture not found")
        encoded = store.aside(lambda: go_json(shown(int(number), packed)))
        return encoded.addCallback(lambda body: prepare(request, 200, "application/json", body))

    routes: tuple[tuple[str, Callable[..., Deferred[bytes]]], ...] = (
        ("/api/metrics/activity", activity),
        ("/api/metrics/stats", statistics),
        ("/api/captures/<number>", capture),
    )
    for path, handler in routes:
        app.route(path, methods=["GET"], endpoint=f"activity {path}")(handler)
