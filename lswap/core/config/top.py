"""The keys of the first level that are values, not sections with names in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lswap.core.config import units
from lswap.core.config.context import Context
from lswap.core.config.convert import ABSENT, fields_of, unknown_key
from lswap.core.config.layout import Document as Keys
from lswap.core.config.layout import Store, Upstream
from lswap.core.config.nodes import Map, Scalar, Seq, is_null
from lswap.core.config.patterns import PatternError, compile_re2
from lswap.core.config.scalars import BAD
from lswap.core.log_format import LINE_FORMATS, TIME_FORMATS
from lswap.core.model import Performance

__all__ = ["read_top"]

_LEAST_HEALTH_CHECK = 15
_LEAST_EVERY = 5.0
_STDOUT = ("proxy", "upstream", "both", "none")
_LEVELS = ("debug", "info", "warn", "error")
#: Sections that other modules read.
_ELSEWHERE = {
    "apiKeys",
    "groups",
    "hooks",
    "macros",
    "matrix",
    "models",
    "peers",
    "profiles",
    "routing",
    "selectors",
}


def read_top(context: Context) -> dict[str, Any]:
    """The fields of the configuration that are simple values."""
    return _Top(context).read()


class _Top:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._report = context.report
        self._root = context.root
        self._values: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        fields = fields_of(Keys)
        for key, node in self._root.entries.items():
            field = fields.get(key)
            if field is None:
                self._unknown(key)
            elif key not in _ELSEWHERE:
                expanded = self._context.expand(node, key)
                value = field.convert(self._context.walker, expanded, key)
                if value is not ABSENT:
                    self._values[field.name] = value
                self._root.entries[key] = expanded
        take = self._values.get
        result: dict[str, Any] = {
            "global_ttl": self._at_least("globalTTL", take("global_ttl", 0), 0, "globalTTL must be >= 0"),
            "unload_timeout": self._at_least(
                "unloadTimeout", take("unload_timeout", 0), 0, "unloadTimeout must be >= 0"
            )
            or 10.0,
            "health_check_timeout": float(max(_LEAST_HEALTH_CHECK, take("health_check_timeout", 120))),
            "start_port": int(
                self._at_least(
                    "startPort", take("start_port", 5800), 1, "startPort must be greater than 1", "1 is possible"
                )
            ),
            "log_to_stdout": self._log_to_stdout(take("log_to_stdout", "proxy")),
            "log_level": self._word("logLevel", take("log_level", ""), _LEVELS, "info"),
            "log_time_format": self._word("logTimeFormat", take("log_time_format", ""), sorted(TIME_FORMATS), ""),
            "log_format": self._word("logFormat", take("log_format", ""), LINE_FORMATS, "text"),
            "metrics_max_in_memory": take("metrics_max_in_memory", 0) if take("metrics_max_in_memory", 0) > 0 else 1000,
            "capture_buffer": max(0, take("capture_buffer", 5)),
            "performance": self._performance(take("performance", Performance())),
            "store_path": self._store(take("store")),
            "session_headers": self._session_headers(),
            "ignore_paths": self._ignore_paths(take("upstream", Upstream())),
            "budgets": take("budgets", {}),
            "send_loading_state": take("send_loading_state", False),
        }
        same = ("include_aliases_in_list", "limits", "auto_unload", "fallback", "fallback_delay")
        result |= {name: self._values[name] for name in same if name in self._values}
        return {name: value for name, value in result.items() if value is not ABSENT}

    def _unknown(self, key: str) -> None:
        """Unknown keys of the first level may hold anchors, which is no mistake."""
        if key.startswith(("x-", ".", "_")):
            return
        fields = fields_of(Keys)
        if self._has_anchor(key) and not self._report.nearest(key, fields, likeness=0.8):
            return
        unknown_key(self._report, self._root, key, "", fields)

    def _has_anchor(self, key: str) -> bool:
        start = self._root.places[key]
        later = [p.at for p in self._root.places.values() if p.file == start.file and p.at > start.at]
        end = min(later, default=1 << 62)
        return any(p.file == start.file and start.at < p.at < end for p in self._context.document.anchored)

    def _at_least(self, key: str, value: float, least: float, message: str, hint: str = "") -> float:
        if value < least:
            self._report.error(self._root.where(key), key, message, hint)
            return least
        return float(value)

    def _log_to_stdout(self, word: str) -> str:
        if word in _STDOUT:
            return word
        message = f"logToStdout must be one of: {', '.join(_STDOUT)}"
        self._report.error(self._root.where("logToStdout"), "logToStdout", message)
        return "proxy"

    def _word(self, key: str, text: str, known: Sequence[str], default: str) -> str:
        """A word in any case; another one is told and counts as the default."""
        word = text.strip().lower()
        if word in known:
            return word
        if word:
            counts = f'it counts as "{default}"' if default else "it has no effect"
            message = f'"{self._report.shown(text)}" is not known, {counts}'
            self._report.warn(self._root.where(key), key, message, f"one of: {', '.join(known)}")
        return default

    def _section(self, key: str) -> Map:
        node = self._root.get(key)
        return node if isinstance(node, Map) else Map()

    def _performance(self, found: Performance) -> Performance:
        if found.every == 0:
            return msgspec.structs.replace(found, every=_LEAST_EVERY)
        if found.every < _LEAST_EVERY:
            message = f"performance: every must be at least 5s, got {units.go_duration_text(found.every)}"
            self._report.error(self._section("performance").where("every"), "performance.every", message)
            return Performance()
        return found

    def _store(self, found: Store | None) -> str | None:
        if found is None:
            return None
        node = self._section("store").get("path")
        if isinstance(node, Scalar) and node.value is BAD:
            return None
        path = (found.path or "").strip()
        place = self._section("store").where("path")
        if not path and (node is None or isinstance(node, Scalar)):
            self._report.error(place, "store.path", "store.path must not be empty")
            return None
        self._context.places["store.path"] = place
        return path

    def _session_headers(self) -> Any:
        """Trimmed, without blanks and without doubles in another case; a null list switches the lookup off."""
        activity = self._section("ui").get("activity")
        if not isinstance(activity, Map) or "session_id" not in activity.entries:
            return ABSENT
        if is_null(activity.entries["session_id"]):
            return ()
        headers = (name.strip() for name in self._values["ui"].activity.session_id)
        return tuple({name.lower(): name for name in reversed([*filter(None, headers)])}.values())[::-1]

    def _ignore_paths(self, found: Upstream) -> Any:
        node = self._section("upstream").get("ignorePaths")
        items = [item for item in node.items if not is_null(item)] if isinstance(node, Seq) else []
        patterns = []
        for at, text in enumerate(found.ignore_paths):
            try:
                patterns.append(compile_re2(text))
            except PatternError as error:
                place = items[at].place if len(items) == len(found.ignore_paths) else self._root.where("upstream")
                shown = self._report.shown(text)
                message = f'upstream.ignorePaths: invalid regular expression "{shown}": {error}'
                self._report.error(place, "upstream.ignorePaths", message)
        return tuple(patterns) if found.ignore_paths else ABSENT
