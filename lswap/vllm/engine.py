"""The calls to a vLLM server: is it healthy, does it sleep, sleep, wake up. Each is bounded in time.

vLLM has them with `--enable-sleep-mode` and `VLLM_SERVER_DEV_MODE=1` in its environment.
Source: utilities reference, section 2.3; vLLM's documentation of its sleep mode.
"""

from __future__ import annotations

import json
from typing import Any

import treq
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.interfaces import IReactorTime

from lswap.errors import LswapError
from lswap.net.health import status_of, until_healthy

__all__ = ["CALL_LIMIT", "CHECK_LIMIT", "Engine", "EngineError"]

#: Seconds for one question.
CHECK_LIMIT = 5.0
#: Seconds for what moves the weights of a model.
CALL_LIMIT = 60.0


class EngineError(LswapError):
    """The server did not do what it was asked for. The server's fault."""


class Engine:
    """One server."""

    def __init__(self, clock: IReactorTime, client: HTTPClient, url: str, health_path: str) -> None:
        self._clock = clock
        self._client = client
        self._url = url
        self._health = url + health_path

    async def health(self) -> str:
        """Nothing when it is ready, else what is wrong."""
        try:
            status = await status_of(self._clock, self._client, self._health, CHECK_LIMIT)
        except CancelledError:
            raise
        except TookTooLong:
            return f"no answer within {CHECK_LIMIT:g} s"
        except Exception as problem:
            return str(problem) or type(problem).__name__
        return "" if status == 200 else f"status {status}"

    def until_healthy(self, limit: float) -> Deferred[None]:
        """Fires when it is ready; fails with StartError after `limit` seconds. May be cancelled."""
        return until_healthy(self._clock, self._client, self._health, limit)

    async def sleeps(self) -> bool | None:
        """Whether it says that it sleeps; None when it does not say."""
        asked: Deferred[Any] = Deferred.fromCoroutine(self._is_sleeping())
        try:
            answer = await asked.addTimeout(CHECK_LIMIT, self._clock)
        except CancelledError:
            raise
        except Exception:
            return None
        return answer if isinstance(answer, bool) else None

    async def _is_sleeping(self) -> Any:
        answer: Any = await self._client.get(self._url + "/is_sleeping", allow_redirects=False)
        said = json.loads(await treq.content(answer))
        return said.get("is_sleeping") if answer.code == 200 and isinstance(said, dict) else None

    async def sleep(self, level: int) -> None:
        """Put it to sleep. The level goes into the query, where vLLM reads it.

        @raise EngineError: it did not.
        """
        await self._call(f"/sleep?level={level}", CALL_LIMIT)

    async def wake(self, level: int, limit: float = CALL_LIMIT) -> None:
        """Wake it up from the sleep of this level; the second has dropped the weights, which are loaded again.

        @raise EngineError: it did not. After level 2 it may be of no use then, until it has slept again.
        """
        if level < 2:
            await self._call("/wake_up", limit)
            return
        await self._call("/wake_up?tags=weights", limit)
        try:
            await self._call("/collective_rpc", limit, b'{"method":"reload_weights"}')
            await self._call("/wake_up?tags=kv_cache", limit)
            await self._call("/reset_prefix_cache", limit)
        except EngineError:
            await self._again_to_sleep(level)
            raise

    async def _again_to_sleep(self, level: int) -> None:
        """A server without its weights would answer nonsense."""
        try:
            await self.sleep(level)
        except EngineError:
            return  # the failure that led here is told

    async def _call(self, target: str, limit: float, body: bytes = b"") -> None:
        headers: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
        try:
            status = await status_of(
                self._clock, self._client, self._url + target, max(0.1, limit), headers, "POST", body
            )
        except CancelledError:
            raise
        except TookTooLong:
            raise EngineError(f"POST {target}: no answer within {limit:g} s") from None
        except Exception as problem:
            raise EngineError(f"POST {target}: {str(problem) or type(problem).__name__}") from problem
        if not 200 <= status < 300:
            raise EngineError(f"POST {target}: status {status}")
