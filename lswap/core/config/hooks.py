"""Life-cycle hooks and sleep actions: one action or a list, global ones worked in.

Decides what an action may be (calls or a command, a time, what a failure means); every mistake is told at its own
place. An unknown member is an error here: a misspelt `onError` must not mean "continue".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from lswap.core import command
from lswap.core.config import macros, urls
from lswap.core.config.convert import ABSENT, plain, unknown_key
from lswap.core.config.layout import EVENTS, EventHooks
from lswap.core.config.nodes import Map, Node, Seq, is_null
from lswap.core.config.problems import HIDDEN, Place
from lswap.core.config.scalars import BAD, Value
from lswap.core.model import HookAction, Hooks, HttpCall, Sleep, VllmSleep

if TYPE_CHECKING:
    from lswap.core.config.context import Context
    from lswap.core.config.model_node import ModelNode

__all__ = ["GlobalHooks", "read_sleep"]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ACTION_KEYS = ("http", "cmd", "timeout", "onError")
HTTP_KEYS = ("json", "body", "headers", "expect")
SHORTEST, LONGEST = 0.1, 3600
SLEEP_TIMEOUT = 60.0
_ON_ERROR = ("continue", "abort")
_STARTS = EVENTS[:2]
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


class GlobalHooks:
    """`hooks.models`, worked into each model's own actions."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nodes: dict[str, Node] = {}
        self._shared: dict[str, tuple[HookAction, ...]] = {}
        self._told: set[tuple[Place, str]] = set()
        hooks = context.root.get("hooks")
        path = "hooks.models"
        section = context.walker.mapping(hooks.get("models"), path) if isinstance(hooks, Map) else None
        for event, node in section.entries.items() if section else ():
            if event in EVENTS:
                self._nodes[event] = node
            else:
                assert section is not None
                unknown_key(context.report, section, event, path, EVENTS, strict=True)

    def check_unused(self) -> None:
        """Look at the actions also where there is no model that they are for."""
        for event, node in self._nodes.items():
            if event not in self._shared:
                read_actions(self._context, node, f"hooks.models.{event}")

    def of(self, model: ModelNode) -> Hooks:
        """All actions of one model: the global ones first at starts and last at stops."""
        found: dict[str, tuple[HookAction, ...]] = {}
        for event in EVENTS:
            own = read_actions(self._context, model.body.get(event), f"{model.path}.{event}")
            general = self._general(event, model)
            found[event] = general + own if event in _STARTS else own + general
        return Hooks(**found)

    def _general(self, event: str, model: ModelNode) -> tuple[HookAction, ...]:
        node = self._nodes.get(event)
        if node is None:
            return ()
        path = f"hooks.models.{event}"

        def visit(text: str, place: Place, where: str) -> Value:
            value = model.macros.text(text, place, where)
            if not isinstance(value, str) or "${" not in value:
                return value
            left = [found for found in dict.fromkeys(macros.leftovers(value)) if found != ("PID", False)]
            for name, _ in left:
                if (place, name) not in self._told:
                    self._told.add((place, name))
                    message = f"unknown macro '${{{name}}}' for model {model.id}"
                    hint = self._context.macro_hint(name, model.macro_names)
                    at = self._context.report.use_of(name, text, place)
                    self._context.report.error(at, where, message, hint)
            return BAD if left else value

        expanded = macros.rewrite(node, path, visit)
        if expanded is not node:
            self._shared.setdefault(event, ())
            return read_actions(self._context, expanded, path)
        if event not in self._shared:
            self._shared[event] = read_actions(self._context, node, path)
        return self._shared[event]


def read_actions(context: Context, node: Node | None, path: str, timeout: float = 30.0) -> tuple[HookAction, ...]:
    """One action or a list of actions; `timeout` is the default."""
    if node is None or is_null(node):
        return ()
    items = [(node, path)]
    if isinstance(node, Seq):
        items = [(item, f"{path}[{at}]") for at, item in enumerate(node.items)]
    found = [_Action(context, item, where, timeout).read() for item, where in items]
    return tuple(action for action in found if action is not None)


class _Action:
    """Reads one action."""

    def __init__(self, context: Context, node: Node, path: str, timeout: float) -> None:
        self._context = context
        self._walker = context.walker
        self._report = context.report
        self._node = node
        self._path = path
        self._timeout = timeout

    def read(self) -> HookAction | None:
        """The action; None if it is none (told)."""
        node = self._walker.mapping(self._node, self._path, "an action")
        if node is None:
            return None
        for key in node.entries:
            if key not in ACTION_KEYS:
                unknown_key(self._report, node, key, self._path, ACTION_KEYS, strict=True)
        has_http, has_cmd = "http" in node.entries, "cmd" in node.entries
        if has_http and has_cmd:
            self._error(node.place, "", "an action has either http or cmd, not both")
        if not has_http and not has_cmd:
            self._error(node.place, "", "an action needs http or cmd")
        calls = self._http(node.entries["http"]) if has_http else ()
        words = self._cmd(node.entries["cmd"]) if has_cmd else ()
        return HookAction(
            calls=calls,
            words=words,
            timeout=self._seconds(node.get("timeout")),
            on_error=self._on_error(node.get("onError")),
        )

    def _error(self, place: Place, key: str, message: str, hint: str = "") -> None:
        self._report.error(place, f"{self._path}.{key}" if key else self._path, message, hint)

    def _seconds(self, node: Node | None) -> float:
        value = ABSENT if node is None else self._walker.number(node, f"{self._path}.timeout")
        if node is None or value is ABSENT:
            return self._timeout
        if not SHORTEST <= value <= LONGEST:
            self._error(node.place, "timeout", f"timeout must be between {SHORTEST} and {LONGEST} seconds")
        return float(value)

    def _on_error(self, node: Node | None) -> Any:
        text = ABSENT if node is None else self._walker.text(node, f"{self._path}.onError")
        if node is None or text is ABSENT:
            return "continue"
        if text not in _ON_ERROR:
            shown = self._report.shown(text)
            self._error(node.place, "onError", f'onError: "{shown}" is not possible', f"one of: {', '.join(_ON_ERROR)}")
            return "continue"
        return text

    def _cmd(self, node: Node) -> tuple[str, ...]:
        path = f"{self._path}.cmd"
        if isinstance(node, Seq):
            words: tuple[str, ...] = self._walker.texts(node, path)
        else:
            text = self._walker.text(node, path)
            if text is ABSENT and not is_null(node):
                return ()
            words = () if text is ABSENT else tuple(command.split(text))
        if not words or not words[0]:
            self._error(node.place, "cmd", "empty command")
        return words

    # -- http -----------------------------------------------------------------------

    def _http(self, node: Node) -> tuple[HttpCall, ...]:
        path = f"{self._path}.http"
        mapping = self._walker.mapping(node, path)
        if mapping is None:
            if is_null(node):
                self._error(node.place, "http", "no method", f"one of: {', '.join(METHODS)}")
            return ()
        self._context.may_repeat.add(mapping.place)
        written = [
            (place, key, mapping.entries[key]) for key, place in mapping.places.items() if key in mapping.entries
        ]
        written += [(place, key, value) for key, place, value in mapping.repeats]
        methods: list[tuple[str, Node]] = []
        for place, key, value in sorted(written, key=lambda entry: entry[0]):
            if key in METHODS:
                methods.append((key, value))
            elif key not in HTTP_KEYS:
                hint = self._report.did_you_mean(key, (*METHODS, *HTTP_KEYS)) or f"methods: {', '.join(METHODS)}"
                self._report.error(place, f"{path}.{key}", f'unknown key "{self._report.shown(key)}"', hint)
            elif mapping.places[key] != place:
                line = self._report.locate(mapping.places[key])[1]
                self._report.error(place, f"{path}.{key}", f'mapping key "{key}" already defined at line {line}')
        members = [key for key in HTTP_KEYS if key in mapping.entries]
        if not methods:
            self._error(mapping.place, "http", "no method", f"one of: {', '.join(METHODS)}")
        if len(methods) > 1 and members:
            place = mapping.places[members[0]]
            self._error(
                place,
                f"http.{members[0]}",
                f"several methods in one action cannot have {members[0]}",
                "make it a list of actions",
            )
        body, headers = self._body(mapping, path), self._headers(mapping.get("headers"), f"{path}.headers")
        if "json" in mapping.entries and not any(name.lower() == "content-type" for name, _ in headers):
            headers += (("Content-Type", "application/json"),)
        expect = self._expect(mapping.get("expect"), f"{path}.expect")
        return tuple(
            HttpCall(method=method, url=self._url(value, f"{path}.{method}"), body=body, headers=headers, expect=expect)
            for method, value in methods
        )

    def _url(self, node: Node, path: str) -> str:
        text = self._walker.text(node, path)
        if text is ABSENT:
            if is_null(node):
                self._report.error(node.place, path, "no URL")
            return ""
        url: str = text.strip()
        try:
            parts = urls.parse(url)
            good = url.startswith("/") or (parts.scheme in ("http", "https") and bool(parts.host))
            reason = "not a URL for this"
        except urls.UrlError as error:
            good, reason = False, f"not a URL: {error}"
        if not good or " " in url:
            self._report.error(node.place, path, reason, "expected http://, https:// or a path that starts with /")
        return url

    def _body(self, mapping: Map, path: str) -> bytes | None:
        if "json" in mapping.entries and "body" in mapping.entries:
            self._report.error(mapping.places["body"], f"{path}.body", "either json or body, not both")
        if "json" in mapping.entries:
            return msgspec.json.encode(plain(mapping.entries["json"]))
        text = ABSENT if "body" not in mapping.entries else self._walker.text(mapping.entries["body"], f"{path}.body")
        return None if text is ABSENT else text.encode("utf-8", "replace")

    def _headers(self, node: Node | None, path: str) -> tuple[tuple[str, str], ...]:
        mapping = self._walker.mapping(node, path)
        found: list[tuple[str, str]] = []
        for name, value in mapping.entries.items() if mapping else ():
            assert mapping is not None
            text = self._walker.text(value, f"{path}.{name}", secret=True)
            if not _TOKEN.fullmatch(name):
                self._report.error(mapping.places[name], path, "this cannot be the name of a header")
            elif text is not ABSENT and not _HEADER_VALUE.fullmatch(text):
                self._report.error(value.place, f"{path}.{name}", f"{HIDDEN} cannot be the value of a header")
            elif text is not ABSENT:
                found.append((name, text))
        return tuple(found)

    def _expect(self, node: Node | None, path: str) -> tuple[int, ...]:
        if node is None or is_null(node):
            return ()
        items = node.items if isinstance(node, Seq) else [node]
        found = [(item, self._walker.whole(item, path)) for item in items]
        for item, status in found:
            if status is not ABSENT and not 100 <= status <= 599:
                self._report.error(item.place, path, f"{status} is no status", "100 to 599")
        return tuple(status for _, status in found if status is not ABSENT)


def read_sleep(context: Context, node: Node | None, path: str) -> Sleep | None:
    """The key `sleep` of a model: vLLM's own way, or two actions."""
    mapping = context.walker.mapping(node, path)
    if mapping is None:
        return None
    values = context.walker.section(mapping, Sleep, path)
    vllm, pair = "vllm" in mapping.entries, [key for key in ("sleep", "wake") if key in mapping.entries]
    if vllm and is_null(mapping.entries["vllm"]):
        values["vllm"] = VllmSleep()
    for key in pair:
        actions = read_actions(context, mapping.entries[key], f"{path}.{key}", SLEEP_TIMEOUT)
        values[key] = actions
        if not actions and is_null(mapping.entries[key]):
            context.report.error(mapping.where(key), f"{path}.{key}", "no action")
    if vllm == bool(pair):
        context.report.error(mapping.place, path, "sleep needs either vllm, or both sleep and wake")
    elif pair and len(pair) < 2:
        context.report.error(mapping.place, path, f"sleep has only {pair[0]}", "both sleep and wake")
    return Sleep(**values)


# The names of the events are the fields of two structs; they have to agree.
assert tuple(EventHooks.__struct_fields__) == EVENTS == tuple(Hooks.__struct_fields__)
