"""What would happen, and who waits: `/api/plan` and `/api/queue`. Asks, changes nothing.

Source: what lswap adds, sections 5 and 6. `lswap.core.plan` makes the answers.
"""

from __future__ import annotations

from collections.abc import Callable

from klein import Klein
from twisted.internet.interfaces import IReactorTime

from lswap.core.model import Config
from lswap.core.scan_form import query_value
from lswap.service.router import Router
from lswap.web.answers import Fault, json_answer
from lswap.web.request import Request

__all__ = ["PlanRoutes"]


class PlanRoutes:
    """The two handlers; `add_to` puts them into the tree."""

    def __init__(self, clock: IReactorTime, config: Callable[[], Config], router: Router) -> None:
        self._clock = clock
        self._config = config
        self._router = router

    def add_to(self, app: Klein) -> None:
        """Put the routes into the tree."""
        app.route("/api/plan", methods=["GET"], endpoint="plan")(self.plan)
        app.route("/api/queue", methods=["GET"], endpoint="queue")(self.queue)

    def plan(self, request: Request) -> bytes:
        """What would happen to a request for `model` now."""
        name = query_value(request.uri.partition(b"?")[2], "model")
        if not name:
            raise Fault(400, "the query must name a model: /api/plan?model=...")
        model = self._config().resolve(name)
        if model is None:
            raise Fault(404, "model not found")
        return json_answer(request, self._router.record(name, model, self._router.plan(model)))

    def queue(self, request: Request) -> bytes:
        """The waiting requests, in the order of the queue."""
        now = self._clock.seconds()
        rows = [
            {
                "model": row.model,
                "position": row.position,
                "age": round(max(0.0, now - row.since), 3),
                "waitsFor": list(row.waits_for),
            }
            for row in self._router.queued()
        ]
        return json_answer(request, {"queue": rows})
