"""The table of routes that lead to a model: method, path, and what is cut off its front before it goes upstream.

Source: HTTP reference, section 2.1. `lswap.web.openai` serves it; `/upstream/...` asks whether a rest is in it.
"""

from __future__ import annotations

__all__ = ["GETS", "POSTS", "forwarded_path", "is_model_route"]

POSTS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/rerank",
    "/reranking",
    "/v1/rerank",
    "/v1/reranking",
    "/infill",
    "/completion",
    "/v1/audio/speech",
    "/v1/audio/voices",
    "/v1/images/generations",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
    "/audioapi/v1/tasks/run",
    "/v/chat/completions",
    "/v/responses",
    "/v/completions",
    "/v/messages",
    "/v/messages/count_tokens",
    "/v/embeddings",
    "/v/rerank",
    "/v/reranking",
    "/v1/audio/transcriptions",
    "/v1/images/edits",
)
GETS = ("/v1/audio/voices", "/sdapi/v1/loras", "/props")

_POSTS = frozenset(path.encode() for path in POSTS)
_GETS = frozenset(path.encode() for path in GETS)


def forwarded_path(target: bytes) -> bytes:
    """The target as the model server gets it: without the front of `/v/...` and `/audioapi/...`."""
    if target.startswith(b"/v/"):
        return target[2:]
    if target.startswith(b"/audioapi/"):
        return target[9:]
    return target


def is_model_route(method: bytes, path: bytes) -> bool:
    """Whether a request would be one of the table."""
    return path in (_GETS if method in (b"GET", b"HEAD") else _POSTS if method == b"POST" else ())
