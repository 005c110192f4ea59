"""The routes of the profiles: which there are, and which one is active.

Source: HTTP reference, section 10.5. `lswap.service.profiles` keeps the active one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from klein import Klein

from lswap.core.model import Config
from lswap.service.profiles import Profiles
from lswap.web.answers import Fault, json_answer
from lswap.web.request import Request

__all__ = ["add_profiles"]

#: Bytes of a request to change the profile; more cannot be meant.
_LIMIT = 65536


def add_profiles(app: Klein, config: Callable[[], Config], profiles: Profiles) -> None:
    """Put the routes into the tree."""

    def listed(request: Any) -> bytes:
        known = config().profiles
        rows = [
            {"id": name, "description": known[name].description, "pins": dict(sorted(known[name].pins.items()))}
            for name in sorted(known)
        ]
        return json_answer(request, {"active": profiles.active, "profiles": rows})

    def choose(request: Any) -> bytes:
        name = _wanted(request)
        try:
            profiles.activate(name)
        except KeyError:
            raise Fault(404, f'profile "{name}" not found') from None
        return json_answer(request, {"active": profiles.active})

    app.route("/api/profiles", methods=["GET"], endpoint="profiles")(listed)
    app.route("/api/profiles/active", methods=["PUT"], endpoint="active profile")(choose)


def _wanted(request: Request) -> str | None:
    """The name that the body asks for; None for no profile. What stands after the first value is ignored."""
    spool = request.spool
    try:
        text = spool.whole().decode("utf-8") if spool.in_memory and spool.length <= _LIMIT else ""
        value, _ = json.JSONDecoder().raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        raise Fault(400, "invalid profile request") from None
    if value is None:
        raise Fault(400, "profile name is required")
    if not isinstance(value, dict):
        raise Fault(400, "invalid profile request")
    if "name" not in value:
        raise Fault(400, "profile name is required")
    name = value["name"]
    if name is not None and not isinstance(name, str):
        raise Fault(400, "profile name must be a string or null")
    return name or None
