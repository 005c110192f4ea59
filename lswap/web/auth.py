"""Lets requests in, or answers 401, 403 and 429: the API keys at the door of the tree.

Every route of the tree needs a key unless `lswap.core.access.OPEN` names it, so a route that is added later is guarded
without a word. What is no route at all is answered 404 or 405 without a key, as nothing is told by that. The decisions
are those of `lswap.core.access`; keys come from the configuration in force at each request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.python.failure import Failure

from lswap.core.access import ANY, OPEN, KeyRing, forwarded, may_use, presented, right_for
from lswap.core.headers import Headers
from lswap.core.model import ApiKey, Config
from lswap.core.routes import GETS, POSTS, is_model_route
from lswap.web.answers import CHALLENGE, UNAUTHORIZED, prepare_error, send_error
from lswap.web.request import Request

if TYPE_CHECKING:
    from klein import Klein

__all__ = ["Gate", "KeyUse", "refuse_model"]

_UPSTREAM = b"/upstream/"
_MODEL_ROUTES = frozenset({*POSTS, *GETS})


class Gate:
    """Asked once when a head is complete and its body is still to come, and once before the tree answers."""

    def __init__(self, config: Callable[[], Config], app: Klein) -> None:
        self._config = config
        self._app: Any = app
        self._keys: tuple[ApiKey, ...] = ()
        self._ring = KeyRing(())

    def _in_force(self) -> KeyRing | None:
        """The keys of now; None when none is configured, and nobody needs one."""
        keys = self._config().api_keys
        if keys is not self._keys:
            self._keys, self._ring = keys, KeyRing(keys)
        return self._ring if keys else None

    def refuses_early(self, method: bytes, path: bytes, headers: Headers) -> bool:
        """Whether it is certain from the head alone that the request will get a 401.

        Only for what leads to a model, where bodies are large; other paths may turn out to be no route.
        """
        ring = self._in_force()
        if ring is None or method == b"OPTIONS":
            return False
        if not path.startswith(_UPSTREAM) and not is_model_route(method, path):
            return False
        return ring.find(presented(headers)) is None

    def admit(self, request: Request) -> bytes | None:
        """The body of the refusal, set up; None lets the request in.

        What is let in has its key in `request.api_key`, and headers without any key of ours.
        """
        ring = self._in_force()
        if ring is None:
            return None
        right = self._right(request)
        if right is None:
            return None
        key = ring.find(presented(request.raw_headers))
        if key is None:
            body = prepare_error(request, 401, UNAUTHORIZED)
            request.setHeader(*CHALLENGE)
            return body
        if not key.allow if right == ANY else right not in key.allow:
            needed = "any right" if right == ANY else f"the right {right!r}"
            return prepare_error(request, 403, f"this API key does not have {needed}")
        request.api_key = key
        request.set_headers(forwarded(request.raw_headers, ring))
        return None

    def _right(self, request: Request) -> str | None:
        """The right that a request needs; None where no key is needed."""
        method: bytes = request.method
        path: bytes = request.path
        if path.startswith(_UPSTREAM) or is_model_route(method, path):
            return right_for(method, "", infers=True)
        # Loaded with the tree that is asked; programs without one do not pay for it.
        from werkzeug.exceptions import HTTPException  # noqa: PLC0415
        from werkzeug.routing import RequestRedirect  # noqa: PLC0415

        try:
            adapter = self._app.url_map.bind("lswap", path_info=_decoded(request), default_method=method.decode())
            rule, _ = adapter.match(return_rule=True)
        except (HTTPException, RequestRedirect, UnicodeDecodeError):
            return None  # the tree will say so
        route = str(rule.rule)
        if route in OPEN:
            return None
        infers = route in _MODEL_ROUTES or route.startswith("/comfyui")
        return right_for(method, route, infers)


def _decoded(request: Request) -> str:
    """The path as klein looks it up."""
    return (b"/" + b"/".join(request.postpath)).decode("utf-8")


class KeyUse:
    """Counts the requests under way of keys that may have only so many."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def admits(self, request: Request) -> bool:
        """Count a request until its answer is over; False when its key has as many as it may, which it was told."""
        key: ApiKey | None = request.api_key
        if key is None or not key.max_parallel:
            return True
        count = self._count.get(key.key, 0)
        if count >= key.max_parallel:
            send_error(request, 429, "Too many requests", "concurrency_limit", {"Retry-After": "1"}, always_json=True)
            return False
        self._count[key.key] = count + 1
        request.notifyFinish().addBoth(self._leave, key.key)
        return True

    def _leave(self, _: Failure | None, secret: str) -> None:
        count = self._count[secret] - 1
        if count:
            self._count[secret] = count
        else:
            del self._count[secret]

    def __len__(self) -> int:
        return len(self._count)


def refuse_model(request: Request, model: str) -> bool:
    """Answer with 403 if the request's key is not good for a model, by its ID; whether it was."""
    if may_use(request.api_key, model):
        return False
    send_error(request, 403, f"this API key does not allow model {model}")
    return True
