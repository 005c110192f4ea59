"""Who may do what: finds the key in a request's head, compares it in constant time, and tells what a route asks for.

Pure functions over headers and keys; `lswap.web.auth` asks. A request shows one key: the first non-empty of the
password of `Authorization: Basic`, the token of `Authorization: Bearer`, and `x-api-key`. A wrong one is not rescued by
a right one in another place. Sources: HTTP reference, section 4; the key `apiKeys`.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from lswap.core.headers import Headers
from lswap.core.model import ApiKey, Config

__all__ = ["ANY", "OPEN", "KeyRing", "forwarded", "leads_to", "may_use", "presented", "right_for"]

#: Stands for "any right will do".
ANY = "any"
#: Routes that need no key: liveness, and the way to the page.
OPEN = frozenset({"/", "/ui", "/upstream", "/health", "/wol-health", "/favicon.ico"})
_LISTINGS = frozenset({"/v1/models", "/models"})
#: Changes something, though it is a GET.
_UNLOAD = "/unload"


def _of_authorization(value: bytes) -> bytes:
    """The key in an `Authorization` header; empty for none."""
    scheme, _, rest = value.partition(b" ")
    scheme = scheme.lower()
    if scheme == b"bearer":
        return rest
    if scheme == b"basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _in_header(name: bytes, value: bytes) -> bytes:
    """The key in a header of any name (in lower case); empty for none."""
    if name == b"authorization":
        return _of_authorization(value)
    return value if name == b"x-api-key" else b""


def presented(headers: Headers) -> bytes:
    """The key that a request shows; empty for none. Of equal headers the first counts."""
    authorization = plain = None
    for name, value in headers:
        low = name.lower()
        if authorization is None and low == b"authorization":
            authorization = value
        elif plain is None and low == b"x-api-key":
            plain = value
    return _of_authorization(authorization or b"") or plain or b""


class KeyRing:
    """The keys of one configuration."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._keys = [(_digest(key.key.encode("utf-8", "surrogateescape")), key) for key in keys if key.key]

    def find(self, shown: bytes) -> ApiKey | None:
        """The key that a client showed, if it is one of ours; of equal ones the first.

        Digests of equal length are compared, each with all, so that the time tells neither a key nor its length.
        """
        if not shown:
            return None
        digest = _digest(shown)
        found = None
        for ours, key in self._keys:
            if hmac.compare_digest(ours, digest) and found is None:
                found = key
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def forwarded(headers: Headers, ring: KeyRing) -> Headers:
    """The headers without those that show a key of ours; other credentials are for the model server."""
    return [header for header in headers if ring.find(_in_header(header[0].lower(), header[1])) is None]


def may_use(key: ApiKey | None, model: str) -> bool:
    """Whether a key is good for a model or peer's model, by its ID. Without a key (none is configured) all are."""
    if key is None or key.models is None:
        return True
    return any(_pattern(pattern).match(model) is not None for pattern in key.models)


def leads_to(config: Config, name: str, pins: Mapping[str, str]) -> list[str]:
    """The IDs of the models and peers' models (`peer/model`) that a name of the listing may lead to.

    A key sees a name in the listing if it may use one of them.
    """
    model, peer = config.resolve(name), config.resolve_peer(name)
    if model is not None:
        return [model]
    if peer is not None:
        return ["/".join(peer)]
    selector = config.selectors.get(name)
    if selector is not None:
        return [found for target in selector.targets for found in _of_target(config, target)]
    target = pins.get(name)
    return leads_to(config, target, {}) if target else []


def _of_target(config: Config, name: str) -> list[str]:
    return leads_to(config, name, {}) if name not in config.selectors else []


@functools.lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


def right_for(method: bytes, route: str, infers: bool) -> str:
    """The right that a route needs: `infer`, `read`, `admin` or `any`.

    `route` is the route's pattern in the tree, not what the client wrote; `infers` tells that it leads to a model.
    """
    if infers:
        return "infer"
    if method not in (b"GET", b"HEAD") or route == _UNLOAD:
        return "admin"
    if route in _LISTINGS or route.startswith("/v1/models/"):
        return ANY
    return "read"
