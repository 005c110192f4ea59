"""`lswap plan`: asks a running lswap what it would do with a request for a model, and says it in words.

Changes nothing. One HTTP call with the standard library, so that nothing here loads Twisted. `lswap.web.plan` answers;
read `lswap.core.plan` for what the members mean. Source: what lswap adds, section 5.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from lswap import options as words_of

__all__ = ["FLAGS", "HELP", "plan", "tell"]

#: Seconds that lswap has to connect, and to answer: it answers from memory.
_PATIENCE = 10.0
_LARGEST = 16 << 20
HELP = "MODEL is a model's ID or alias. Exit code: 0 for an answer, 1 for none, 2 for words that are no flags.\n"
FLAGS = (
    words_of.Flag("url", "URL", "where lswap is; without it http://127.0.0.1:8080"),
    words_of.Flag("key", "KEY", "API key; without it the value of LSWAP_API_KEY, if there is one"),
    words_of.Flag("json", "", "print the answer as it came"),
)


class _NoAnswerError(Exception):
    """There is no plan; the text says why."""


def plan(words: Sequence[str]) -> int:
    """Print what would happen to a request for a model; 0, or 1 when the server gives no plan."""
    try:
        model, values = _read(words)
    except words_of.OptionError as error:
        print(error, file=sys.stderr)
        return error.status
    if model is None:
        print(words_of.usage("lswap plan MODEL", FLAGS, HELP), end="")
        return 0
    url, key = values.get("url") or "http://127.0.0.1:8080", values.get("key") or os.environ.get("LSWAP_API_KEY", "")
    try:
        answer = _ask(str(url), model, str(key))
        text = answer if values.get("json") else tell(_parsed(answer))
    except _NoAnswerError as problem:
        print(f"lswap plan: {problem}", file=sys.stderr)
        return 1
    print(text.rstrip("\n"))
    return 0


def _read(words: Sequence[str]) -> tuple[str | None, dict[str, str | bool]]:
    """The model, which may stand before or behind the flags, and the flags; no model when help is asked for.

    @raise OptionError: no model, or words that are no flags.
    """
    rest = list(words)
    ahead = rest.pop(0) if rest and not rest[0].startswith("-") else None
    behind = None
    if ahead is None and rest and not rest[-1].startswith("-") and not _is_value(rest):
        behind = rest.pop()
    values = words_of.read(rest, FLAGS)
    if "help" in values:
        return None, values
    model = ahead or behind
    if not model:
        raise words_of.OptionError("lswap plan: name a model: lswap plan MODEL [flags]", 2)
    return model, values


def _is_value(words: Sequence[str]) -> bool:
    """Whether the last word is the value of the flag before it."""
    return len(words) > 1 and words[-2].lstrip("-") in {flag.name for flag in FLAGS if flag.value}


def _ask(url: str, model: str, key: str) -> str:
    """The body of the answer.

    @raise _NoAnswerError: no server, no usable URL, or an answer other than 200.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _NoAnswerError(f"{url} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise _NoAnswerError(f"{url} is no URL of a server: it must be http://HOST:PORT or https://HOST:PORT")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=ssl.create_default_context())
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    headers = {"Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/api/plan?model={quote(model, safe='')}", headers=headers)
        response = connection.getresponse()
        body = response.read(_LARGEST).decode("utf-8", "replace")
    except ValueError as error:  # an address or a key that cannot be sent; the text must not show the key
        raise _NoAnswerError("the URL or the key has characters that cannot be sent") from error
    except (OSError, http.client.HTTPException) as error:
        raise _NoAnswerError(f"no answer from {url}: {_words(error)}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise _NoAnswerError(f"{model}: {_message(body) or f'{url} answered {response.status}'}")
    return body


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing came within {_PATIENCE:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _message(body: str) -> str:
    """The text of an error in any of lswap's shapes."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return "" if "<" in body else body.strip()[:300]


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or "would" not in value:
        raise _NoAnswerError("the server's answer is no plan; is it lswap?")
    return value


def tell(answer: Mapping[str, Any]) -> str:
    """A plan in words, one fact a line."""
    would, refusal = answer["would"], answer.get("refusal")
    first = {
        "serve": "A request would be let through at once.",
        "start": "A request would have its model loaded at once, or join a load that goes on.",
        "wait": "A request would have to wait.",
        "refuse": f"A request would be turned away{f': {refusal}' if refusal else ''}.",
    }.get(would, f"A request would: {would}.")
    lines = [f"{answer.get('model', '')} is {answer.get('state', 'unknown')}. {first}"]
    for item in answer.get("unload") or ():
        lines.append(f"  stops {item['model']}: {item['why']}")
    for item in answer.get("waitsFor") or ():
        count = item["inflight"]
        what = f"{count} request{'' if count == 1 else 's'} in flight" if count else "it is being loaded"
        lines.append(f"  waits for {item['model']}: {what}")
    ahead = answer.get("ahead") or 0
    if ahead and would != "serve":
        lines.append(f"  {ahead} waiting request{'' if ahead == 1 else 's'} came earlier")
    return "\n".join(lines)
