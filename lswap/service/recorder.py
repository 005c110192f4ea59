"""Makes the row of activity, and the capture, of each metered request.

While an answer passes, a meter only keeps its pieces (`lswap.core.kept`), bounded; after the end, the thread of the
store unpacks, reads and packs them. Read `lswap.core.usage` and `lswap.service.captures` next.
Source: HTTP reference, sections 3, 13 and 14.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from lswap.core.framing import CHUNKED, LENGTH, ResponseHead
from lswap.core.kept import TAIL, Kept, Room
from lswap.core.model import Config
from lswap.core.usage import PackingError, Usage, error_message, of_answer, of_ends, shortened, unpacked
from lswap.net.body import Body
from lswap.service.captures import Captures, Wanted, pack, wanted
from lswap.service.counters import Counters
from lswap.service.database import Row
from lswap.service.events import Bus
from lswap.service.exchange import Exchange
from lswap.service.kv_run import KvRun
from lswap.service.store import Store

__all__ = ["CLIENT_LEFT", "Meter", "Recorder"]

#: Status of a request whose client left before there was an answer.
CLIENT_LEFT = 499
#: Bytes that all answers under way may take up in meters.
_ROOM = 64 << 20
#: Bytes of an answer that are kept to be read, when no capture is.
_TO_READ = 1 << 20
#: A capture is tried for bodies of up to so many times the budget: that much packing can be hoped for.
_HOPE = 4
_MOST = 32 << 20
#: A request's body that is in a file is read back, in the reactor's thread, up to this size.
_FROM_DISK = 4 << 20
_SMALL = 64 << 10
_READABLE = re.compile(rb"json|event-stream|text|^$", re.IGNORECASE)


class Finding(NamedTuple):
    """What an answer holds beside its row."""

    #: The capture; None for no such.
    packed: bytes | None
    #: Tokens of the prompt that the server had cached; -1 where it does not tell.
    cached: int
    kv: KvRun | None


class Meter:
    """One metered request. `head` and `end` are called by its road; `piece` is the tap of its relay."""

    __slots__ = (
        "_body",
        "_capturing",
        "_coding",
        "_complete",
        "_content_type",
        "_ended",
        "_exchange",
        "_kept",
        "_recorder",
        "_taken",
        "_wanted",
        "error",
        "path",
    )

    def __init__(self, recorder: Recorder, exchange: Exchange, path: str, body: Body | None) -> None:
        """@param path: as it is forwarded, without the query.  @param body: the request's, as it is sent."""
        self._recorder = recorder
        self._exchange = exchange
        self._kept: Kept | None = None
        self._complete = False
        self._content_type = b""
        self._coding = ""
        self._ended = 0.0
        self._capturing = recorder.capturing
        self._wanted = wanted(path)
        self._body = body
        #: A small body is taken now, without a copy: it is gone when its client leaves.
        self._taken = self._request_body() if body is not None and body.length <= _SMALL else None
        self.path = path
        #: Why there is no whole answer, if somebody knows.
        self.error = ""

    def head(self, head: ResponseHead) -> Callable[[bytes], None] | None:
        """The head of the answer is here; what gets each piece of the body, None when nobody needs them."""
        kind = head.value(b"content-type") or b""
        self._content_type = kind
        self._coding = (head.value(b"content-encoding") or b"").decode("latin-1")
        limit = self._recorder.limit(self._wanted) if 200 <= head.status < 300 else 0
        if head.framing == LENGTH and head.length > limit:
            limit = 0  # known to be too long to be kept whole
        if not limit and _READABLE.search(kind) is None:
            return None
        self._kept = Kept(
            self._recorder.room, limit or (_TO_READ if head.status < 300 else TAIL), head.framing == CHUNKED
        )
        return self._kept.add

    def granted(self) -> None:
        """A model of this machine serves the request."""
        self._exchange.metadata["fifo_priority"] = str(self._recorder.priority(self._exchange.model))

    def end(self, complete: bool) -> None:
        """The request is over; `complete` if its answer is whole."""
        self._complete = complete
        self._ended = self._recorder.now()
        if self._kept is not None:
            self._kept.release()
        if self._taken is None:
            self._taken = self._request_body()
        self._body = None
        self._recorder.store(self)

    def _request_body(self) -> bytes | None:
        """The request's body, if it is wanted and there is hope that it fits."""
        body = self._body
        limit = self._recorder.limit(self._wanted, request=True)
        if body is None or not limit or body.length > (limit if body.in_memory else min(limit, _FROM_DISK)):
            return None
        try:
            return b"".join(body.gathered() if body.in_memory else body.pieces())
        except OSError:
            return None

    # -- in the thread of the store ------------------------------------------------

    def read(self) -> tuple[Row, Finding]:
        """The row with its figures, and what else was found."""
        row, packed = self._read()
        return row, Finding(packed, row.cached, self._exchange.kv)

    def _read(self) -> tuple[Row, bytes | None]:
        row = self._row()
        failed = not 200 <= row.status < 300
        answer: bytes | None = None
        readable = True
        usage = Usage()
        if self._kept is not None:
            whole, tail = self._kept.parts()
            if self._kept.cut:
                if self._coding.lower() in ("", "identity"):
                    usage = of_ends(whole, tail, row.content_type)
            else:
                try:
                    answer = unpacked(whole, self._coding, self._complete)
                except PackingError as problem:
                    readable = False
                    row.error = row.error or shortened(f"response decompression failed: {problem}")
        if failed:
            row.error = row.error or error_message(answer or b"", row.status)
            answer, usage = None, Usage()
        elif answer is not None:
            usage = of_answer(answer, row.content_type, row.path)
        # A whole answer without figures cost nothing that is known of; of a broken one nothing is known.
        unknown = 0 if self._complete or failed else -1
        row.input = usage.input if usage.known else unknown
        row.output = usage.output if usage.known else unknown
        row.cached, row.drafted, row.accepted = usage.cached, usage.drafted, usage.accepted
        row.prompt_speed, row.output_speed = usage.prompt_speed, usage.output_speed
        row.duration_ms = max(row.duration_ms, int(usage.own_ms))
        # What is left of an answer that is too long would pass for the whole.
        whole_wanted = not failed and self._wanted.response
        if not self._capturing or not readable or (whole_wanted and answer is None):
            return row, None
        exchange = self._exchange
        kept = answer if whole_wanted else None
        return row, pack(row.path, exchange.headers, self._taken, exchange.answered, kept)

    def _row(self) -> Row:
        """What is known without the answer's body."""
        exchange = self._exchange
        status, error = exchange.status, self.error
        if not status:
            status = CLIENT_LEFT
            error = error or "the client left before there was an answer"
        elif not self._complete and not error:
            error = "the client left before the answer was whole"
        return Row(
            created=int(exchange.began + (self._ended - exchange.began_at)),
            model=exchange.model,
            path=self.path,
            content_type=self._content_type.decode("utf-8", "replace"),
            status=status,
            duration_ms=exchange.elapsed_ms(self._ended),
            error=shortened(error),
            metadata=exchange.metadata,
        )


class Recorder:
    """Makes meters, and hands what they found to store, counters, captures and bus."""

    def __init__(
        self,
        clock: IReactorTime,
        store: Store,
        captures: Captures,
        bus: Bus,
        counters: Counters,
        config: Callable[[], Config],
    ) -> None:
        """@param config: the one in force."""
        self.now = clock.seconds
        self.room = Room(_ROOM)
        self._store = store
        self._captures = captures
        self._bus = bus
        self._counters = counters
        self._config = config

    def meter(self, exchange: Exchange, path: str, body: Body | None) -> Meter:
        """For a request that is about to be dispatched; its `end` makes the row."""
        return Meter(self, exchange, path, body)

    def priority(self, model: str) -> int:
        """Of a model in the queue."""
        return self._config().priorities.get(model, 0)

    def limit(self, wanted: Wanted, *, request: bool = False) -> int:
        """Bytes up to which a body is kept for a capture."""
        if not (wanted.request if request else wanted.response):
            return 0
        return min(self._captures.budget * _HOPE, _MOST)

    @property
    def capturing(self) -> bool:
        """Whether captures are kept."""
        return self._captures.budget > 0

    def store(self, meter: Meter) -> None:
        """Give a request that is over to the store, whose thread reads it."""
        config = self._config()

        def read() -> tuple[Row, Finding]:
            row, found = meter.read()
            # A name that a client made up is no label: each would stay for ever.
            known = config.resolve(row.model) is not None or config.resolve_peer(row.model) is not None
            self._count(row, row.model if known else "")
            return row, found

        self._store.add(read, self._stored)

    def _count(self, row: Row, model: str) -> None:
        """For `/metrics`; in the thread of the store."""
        key = row.metadata.get("key", "")
        self._counters.add("lswap_requests", (model, key, str(row.status)))
        for kind, tokens in (("input", row.input), ("output", row.output)):
            if tokens > 0:
                self._counters.add("lswap_tokens", (model, key, kind), tokens)

    def _stored(self, number: int, found: Finding) -> None:
        if found.packed is not None:
            self._captures.put(number, found.packed)
        if found.kv is not None and found.cached >= 0:
            found.kv.answered(found.cached)
        self._bus.publish("activity", {"id": number})
