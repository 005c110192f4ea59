"""lswap's own routes: liveness, what runs, unloading, logs, the in-flight list. All on klein.

Source: HTTP reference, sections 2.2, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from lswap.core.access import may_use
from lswap.core.events import State
from lswap.core.model import Config
from lswap.service.exchange import InFlight
from lswap.service.logs import Logs
from lswap.service.reload import Outcome
from lswap.service.router import Router
from lswap.web.answers import Fault, json_answer, prepare, redirect
from lswap.web.events import EventStreams
from lswap.web.live import LiveStreams, stream_log
from lswap.web.request import Request

__all__ = ["Admin", "Parts"]

_log = Logger()
_T = TypeVar("_T")
_GET = ["GET"]
_POST = ["POST"]


class Parts(msgspec.Struct, frozen=True):
    """What the routes look at."""

    clock: Any
    config: Callable[[], Config]
    router: Router
    inflight: InFlight
    logs: Logs
    streams: LiveStreams
    events: EventStreams
    #: Reads the configuration anew; fires with what became of it.
    reload: Callable[[], Deferred[Outcome]]
    #: What this is: version, commit, date.
    about: dict[str, str]


class Admin:
    """The handlers; `add_to` puts them into the tree."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock: IReactorTime = parts.clock

    def add_to(self, app: Klein) -> None:
        """Put the routes into the tree."""
        for path, methods, handler in (
            ("/", _GET, self.root),
            ("/ui", _GET, self.page_folder),
            ("/ui/", _GET, self.page),
            ("/ui/<path:rest>", _GET, self.page),
            ("/upstream", _GET, self.upstream_root),
            ("/health", _GET, self.health),
            ("/wol-health", _GET, self.health),
            ("/running", _GET, self.running),
            ("/unload", _GET, self.unload_all_plain),
            ("/logs", _GET, self.history),
            ("/logs/stream", _GET, self.log_stream),
            ("/logs/stream/<path:source>", _GET, self.log_stream),
            ("/api/version", _GET, self.version),
            ("/api/models/unload", _POST, self.unload_all),
            ("/api/models/unload/<path:model>", _POST, self.unload_one),
            ("/api/inflight/<number>/cancel", _POST, self.cancel),
            ("/api/events", _GET, self.events),
            ("/api/config/reload", _POST, self.reload),
        ):
            app.route(path, methods=methods, endpoint=f"admin {path}")(handler)

    # -- small things --------------------------------------------------------------

    def root(self, request: Request) -> bytes:
        """To the page."""
        return redirect(request, 302, b"/ui")

    def page_folder(self, request: Request) -> bytes:
        """To the page with its slash."""
        return redirect(request, 307, b"/ui/")

    def page(self, request: Request, rest: str = "") -> bytes:
        """A plain page until there is a better one."""
        if "." in rest.rpartition("/")[2]:
            raise Fault(404, "no such file")
        return prepare(request, 200, "text/html; charset=utf-8", _PAGE)

    def upstream_root(self, request: Request) -> bytes:
        """To the list of models."""
        return redirect(request, 302, b"/ui/models")

    def health(self, request: Request) -> bytes:
        """Alive, whatever the models do."""
        return prepare(request, 200, "text/plain; charset=utf-8", b"OK")

    def version(self, request: Request) -> bytes:
        """What this is."""
        return json_answer(request, self._parts.about)

    # -- models ------------------------------------------------------------------------

    def running(self, request: Request) -> bytes:
        """The processes that live, sorted by model."""
        rows = []
        for model_id, child in sorted(self._parts.router.children.items()):
            if child.state in (State.STOPPED, State.SHUTDOWN):
                continue
            model = child.model
            row: dict[str, Any] = {
                "model": model_id,
                "state": child.state.value,
                "cmd": model.cmd,
                "proxy": model.proxy,
                "ttl": int(model.ttl),
                "name": model.name,
                "description": model.description,
            }
            doing = child.doing
            if doing is not None:
                seconds = round(self._clock.seconds() - doing.since, 3)
                row["doing"] = {"event": doing.event, "action": doing.action, "seconds": seconds}
            if child.kv is not None:
                row["kvCache"] = child.kv.shown()
            rows.append(row)
        return json_answer(request, {"running": rows})

    def unload_all_plain(self, request: Request) -> Deferred[bytes]:
        """Stop everything; answers when it is gone."""
        done = self._unload_all(request)
        return done.addCallback(lambda _: prepare(request, 200, "text/plain; charset=utf-8", b"OK"))

    def unload_all(self, request: Request) -> Deferred[bytes]:
        """The same, for programs."""
        return self._unload_all(request).addCallback(lambda _: json_answer(request, {"msg": "ok"}))

    def _unload_all(self, request: Request) -> Deferred[None]:
        """All that the request's key is good for."""
        models = tuple(model for model in self._parts.router.children if may_use(request.api_key, model))
        return _unhurried(self._parts.router.unload(models))

    def unload_one(self, request: Request, model: str) -> Deferred[bytes]:
        """Stop one model, by ID or alias."""
        found = self._parts.config().resolve(model)
        if found is None:
            raise Fault(404, "model not found")
        if not may_use(request.api_key, found):
            raise Fault(403, f"this API key does not allow model {found}")
        done = _unhurried(self._parts.router.unload((found,)))
        return done.addCallback(lambda _: prepare(request, 200, "text/plain; charset=utf-8", b"OK"))

    # -- logs and events ---------------------------------------------------------------------

    def history(self, request: Request) -> bytes:
        """The combined history."""
        if "text/html" in request.accepts():
            return redirect(request, 302, b"/ui/")
        return prepare(request, 200, "text/plain", self._parts.logs.combined.history())

    def log_stream(self, request: Request, source: str = "") -> Any:
        """A log as it is written: combined, `proxy`, `upstream`, or a model's."""
        logs = self._parts.logs
        log = {"": logs.combined, "proxy": logs.proxy, "upstream": logs.upstream}.get(source)
        if log is None:
            found = self._longest(source)
            if found is None:
                raise Fault(400, "invalid logger. Use 'proxy', 'upstream' or a model's ID")
            log = logs.model(found)
        request.endless = True
        query = request.uri.partition(b"?")[2]
        skip = any(pair.partition(b"=")[0] == b"no-history" for pair in query.split(b"&"))
        return stream_log(request, log, not skip, self._parts.streams)

    def _longest(self, source: str) -> str | None:
        """The model that the longest run of leading segments names."""
        config = self._parts.config()
        while source:
            found = config.resolve(source)
            if found is not None:
                return found
            source = source.rpartition("/")[0]
        return None

    def events(self, request: Request) -> Any:
        """The event stream of the page."""
        return self._parts.events.serve(request)

    # -- requests under way ---------------------------------------------------------------------

    def cancel(self, request: Request, number: str) -> bytes:
        """End a request under way."""
        exchange = self._parts.inflight.find(number)
        if exchange is None or exchange.cancel is None:
            raise Fault(404, "inflight request not found")
        exchange.cancel()
        return json_answer(request, {"msg": "ok"})

    # -- configuration --------------------------------------------------------------------------

    def reload(self, request: Request) -> Deferred[bytes]:
        """Read the configuration anew; tells the difference, or all that is wrong with it."""
        return _unhurried(self._parts.reload()).addCallback(self._reloaded, request)

    def _reloaded(self, outcome: Outcome, request: Request) -> bytes:
        if outcome.difference is not None:
            return json_answer(request, msgspec.to_builtins(outcome.difference))
        count = len(outcome.problems)
        message = f"failed to reload config: {count} problem{'' if count == 1 else 's'}; the old one stays in force"
        error = {"message": message, "problems": msgspec.to_builtins(outcome.problems)}
        return json_answer(request, {"error": error}, 422)


def _unhurried(work: Deferred[_T]) -> Deferred[_T]:
    """Wait for shared work without being able to cancel it: a client that leaves must not stop an unload."""
    waiter: Deferred[_T] = Deferred()

    def tell(result: Any) -> None:
        if not waiter.called:
            waiter.callback(result)
        elif isinstance(result, Failure):
            _log.failure("internal error in work that nobody waits for any more", result)

    work.addBoth(tell)
    return waiter


_PAGE = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>lswap</title></head>
<body><h1>lswap</h1><ul>
<li><a href="/v1/models">models</a></li>
<li><a href="/running">running</a></li>
<li><a href="/logs/stream">log</a></li>
<li><a href="/api/events">events</a></li>
</ul></body></html>
"""
