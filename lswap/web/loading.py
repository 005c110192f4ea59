"""The loading stream: tells a chat client that waits how its model is coming on, as events of its own stream.

Begins the answer, and so gives up status and headers of the model's server; `lswap.net.continuation` goes on from here.
Nothing waits for it: the texts are events, not typed, and a client that does not read just misses some.
Source: routing reference, section 8.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import cycle

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from lswap.core.framing import chunk
from lswap.web.answers import error_value, go_json
from lswap.web.request import Request

__all__ = ["TICK", "LoadingStream", "as_event", "delta", "error_events", "wants_loading"]

#: Seconds between two signs of life.
TICK = 0.75
_RULE = "\u2501" * 5
_REMARKS = (
    "Waking the weights, one layer at a time...",
    "Asking the memory bus to hurry up...",
    "Unpacking tensors, please mind the gap...",
    "Convincing the previous model to leave...",
    "Warming up the attention heads...",
    "Counting parameters. Still counting...",
    "Dusting off the tokenizer...",
    "Mapping pages that were quite comfortable on disk...",
    "Aligning matrices with their better halves...",
    "Reading the model card out loud...",
    "Negotiating with the driver...",
    "Stretching the context window...",
    "Filling the cache with good intentions...",
    "Looking for the end of the file...",
    "Quantizing expectations...",
    "Teaching the fans a new song...",
    "Sharpening the sampler...",
    "Checking that the GPU is plugged in...",
    "Turning it on, after turning it off...",
    "Almost there, in a model's sense of time...",
)


def wants_loading(path: bytes) -> bool:
    """Whether a forwarded path is one of chat, whose clients understand the events."""
    return path.startswith(b"/v1/chat/completions")


def delta(text: str) -> bytes:
    """One event with a piece of text, in the one shape that clients show while a model thinks."""
    return b"data: " + go_json({"choices": [{"delta": {"reasoning_content": text}}]}) + b"\n\n"


def error_events(status: int, message: str, code: str | None = None) -> bytes:
    """The end of a stream that cannot have an answer any more."""
    return b"data: " + go_json(error_value(status, message, code)) + b"\n\ndata: [DONE]\n\n"


def as_event(status: int, body: bytes) -> bytes:
    """An answer of the model's server that is no stream, as the end of one."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or (status >= 400 and "error" not in value):
        text = body.decode("utf-8", "replace").strip()[:2000]
        return error_events(status if status >= 400 else 502, text or f"the model's server answered {status}")
    return b"data: " + go_json(value) + b"\n\ndata: [DONE]\n\n"


@implementer(IPushProducer)
class LoadingStream:
    """One client's loading stream, from its head to the hand-over."""

    def __init__(self, clock: IReactorTime, request: Request, model: str, event: Callable[[], str]) -> None:
        """@param event: the hook, or else, that goes on around the model's process now; empty for none."""
        self._clock = clock
        self._request = request
        self._model = model
        self._event = event
        self._told_event = ""
        self._began = clock.seconds()
        self._position = 0
        self._told = 0
        self._paused = False
        self._ticks = 0
        self._next_remark = 1
        self._remarks = cycle(random.sample(_REMARKS, len(_REMARKS)))
        self._tick: IDelayedCall | None = None
        self._open = False
        #: Whether the head is out, and with it the status of the answer.
        self.begun = False

    def start(self) -> None:
        """Send the head and the first words."""
        request = self._request
        lines = [
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"X-Accel-Buffering: no\r\nDate: " + request.date() + b"\r\n"
        ]
        if request.cross_origin:
            lines.append(b"Access-Control-Allow-Origin: *\r\n")
        if request.http11:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        lines.append(b"Connection: close\r\n\r\n" if request.closing else b"\r\n")
        self._open = self.begun = True
        request.begin(200, lines)
        request.registerProducer(self, True)
        self._say(f"{_RULE}\n", f"llama-swap loading model: {self._model}\n")
        self._tick = self._clock.callLater(TICK, self._sign_of_life)

    def moved(self, position: int) -> None:
        """The request stands at another place of the queue; the newest is shown at the next tick."""
        self._position = position

    def finish(self) -> None:
        """The wait is over, whichever way: the closing words, and nothing more."""
        if self._close():
            took = self._clock.seconds() - self._began
            self._say("\n", f"Done! ({took:.2f}s)\n", f"{_RULE}\n", " \n")

    def fail(self, status: int, message: str, code: str | None = None) -> None:
        """There will be no answer: say so in an event, and end the stream."""
        self.finish()
        self._write(error_events(status, message, code))
        if self._request.http11:
            self._request.pass_on(b"0\r\n\r\n")
        self._request.end()

    def stop(self) -> None:
        """The client is gone."""
        self._close()

    def _close(self) -> bool:
        if not self._open:
            return False
        self._open = False
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._request.take_from(None)
        return True

    def _sign_of_life(self) -> None:
        self._tick = self._clock.callLater(TICK, self._sign_of_life)
        self._ticks += 1
        if self._paused:
            return
        event = self._event()
        if event and event != self._told_event:
            self._told_event = event
            self._say("\n", f"Now: {event}", " ")
        elif self._position and self._position != self._told:
            self._told = self._position
            self._say("\n", f"Queue position: #{self._position}", " ")
        elif self._ticks >= self._next_remark:
            self._say("\n", next(self._remarks), " ")
        else:
            self._say(".")
            return
        self._next_remark = self._ticks + random.randint(7, 12)

    def _say(self, *texts: str) -> None:
        self._write(b"".join(delta(text) for text in texts))

    def _write(self, data: bytes) -> None:
        pieces: Sequence[bytes] = chunk(data) if self._request.http11 else [data]
        self._request.pass_on(b"".join(pieces))

    def pauseProducing(self) -> None:
        """The client does not read: what is not said now is not said at all."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The client reads again."""
        self._paused = False

    def stopProducing(self) -> None:
        """The connection is being lost."""
        self._close()
