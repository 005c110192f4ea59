"""What puts a model's server to sleep and what wakes it, as hook actions: those of the configuration, or vLLM's own.

Decides the calls only; `lswap.service.sleep` makes them. Source: what lswap adds, section 3; vLLM's sleep mode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lswap.core.model import HookAction, HttpCall, Sleep

__all__ = ["IS_SLEEPING", "is_sleeping", "to_sleep", "to_wake"]

#: Where vLLM tells whether it sleeps.
IS_SLEEPING = "/is_sleeping"
#: Seconds that one of vLLM's calls may take, at least.
_CALL = 60.0


def to_sleep(sleep: Sleep) -> tuple[HookAction, ...]:
    """What puts it to sleep."""
    if sleep.vllm is None:
        return sleep.sleep
    return (_post(f"/sleep?level={sleep.vllm.level}"),)


def to_wake(sleep: Sleep, start_limit: float) -> tuple[HookAction, ...]:
    """What wakes it. `start_limit`: seconds that a start may take, which loading the weights anew may take as well."""
    if sleep.vllm is None:
        return sleep.wake
    if sleep.vllm.level == 1:
        return (_post("/wake_up"),)
    return (
        _post("/wake_up?tags=weights"),
        _post("/collective_rpc", {"method": "reload_weights"}, max(_CALL, start_limit)),
        _post("/wake_up?tags=kv_cache"),
        _post("/reset_prefix_cache"),
    )


def is_sleeping(answer: bytes) -> bool | None:
    """What vLLM's answer says; None for anything else."""
    try:
        found = json.loads(answer)["is_sleeping"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return found if isinstance(found, bool) else None


def _post(url: str, value: Mapping[str, str] | None = None, timeout: float = _CALL) -> HookAction:
    body = None if value is None else json.dumps(value).encode()
    headers = () if value is None else (("Content-Type", "application/json"),)
    return HookAction(calls=(HttpCall(method="POST", url=url, body=body, headers=headers),), timeout=timeout)
