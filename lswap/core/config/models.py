"""The section `models`: ports, values, and what is wrong with each model.

Two passes in the order of the IDs: first the commands, to see who needs a port; then everything. Names that collide
are the business of `aliases`; read that next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec.structs import force_setattr

from lswap.core import command
from lswap.core.config import hooks, ports, urls
from lswap.core.config.context import Context
from lswap.core.config.layout import EVENTS
from lswap.core.config.model_node import ModelNode
from lswap.core.config.nodes import Map, Scalar, is_bad, is_null, texts_of
from lswap.core.config.parts import read_filters, read_timeouts
from lswap.core.kv_command import is_llama_server
from lswap.core.model import Capabilities, Compat, Model, Timeouts

__all__ = ["Globals", "read_models"]

_DEFAULT_STOP = "taskkill /f /t /pid ${PID}" if os.name == "nt" else ""
_MODALITIES = ("text", "audio", "image")
#: The model that takes many requests at once by its nature.
_COMFYUI = "comfyui_auto"
_COMFYUI_LIMIT = 50
_THIS_HOST = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


class Globals:
    """Values of the top level that models take over."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.ttl: float = values["global_ttl"]
        self.unload_timeout: float = values["unload_timeout"]
        self.health_check_timeout: float = values["health_check_timeout"]
        self.send_loading_state: bool = values["send_loading_state"]
        self.start_port: int = values["start_port"]
        self.budgets: Mapping[str, int] = values["budgets"]


def read_models(
    context: Context, defaults: Globals, general: hooks.GlobalHooks, before: Mapping[str, int]
) -> tuple[dict[str, Model], dict[str, ModelNode]]:
    """All models, complete but for the aliases that `aliases` adds; and their nodes, for later messages."""
    section = context.walker.mapping(context.root.get("models"), "models")
    nodes: dict[str, ModelNode] = {}
    for model_id in sorted(section.entries if section else (), key=str.encode):
        assert section is not None
        path, place = f"models.{model_id}", section.places[model_id]
        entry = section.entries[model_id]
        if is_null(entry):
            context.report.warn(
                place, path, "this model has no settings, so that it cannot be started", "give it a cmd"
            )
            nodes[model_id] = ModelNode(context, model_id, None, place)
        elif (mapping := context.walker.mapping(entry, path, "a model")) is not None:
            nodes[model_id] = ModelNode(context, model_id, mapping, place)
        if not model_id.strip():
            context.report.warn(place, path, "a blank name can hardly be asked for")
    _give_ports(context, nodes, defaults.start_port, before)
    models: dict[str, Model] = {}
    for model_id, node in nodes.items():
        node.expand()
        models[model_id] = _Builder(context, node, defaults, general).build()
    _warn_of_shared_ports(context, models, nodes)
    return models, nodes


def _give_ports(context: Context, nodes: Mapping[str, ModelNode], first: int, before: Mapping[str, int]) -> None:
    wanting = [model_id for model_id, node in nodes.items() if node.needs_port()]
    numbers = ports.allocate(wanting, first, before)
    for model_id, port in numbers.items():
        nodes[model_id].take_port(ports.HIGHEST if port is None else port)
    if left := [model_id for model_id, port in numbers.items() if port is None]:
        context.report.error(
            context.root.where("startPort"),
            "startPort",
            f"startPort {first} leaves no port for model {left[0]}"
            + (f" and {len(left) - 1} more" if left[1:] else ""),
            f"port numbers end at {ports.HIGHEST}",
        )


def _warn_of_shared_ports(context: Context, models: Mapping[str, Model], nodes: Mapping[str, ModelNode]) -> None:
    """A fixed port that another model was given: the two can never run side by side."""
    given = {model.port: model.id for model in models.values() if model.port is not None}
    for model in models.values():
        if model.port is not None or not model.proxy:
            continue
        try:
            url = urls.parse(model.proxy)
        except urls.UrlError:
            continue
        other = None if url.port is None else given.get(url.port)
        if other is not None and url.host in _THIS_HOST:
            node = nodes[model.id]
            message = f"model {model.id}: ${{PORT}} of model {other} is port {url.port} too"
            context.report.warn(node.body.where("proxy"), f"{node.path}.proxy", message, "change startPort")


class _Builder:
    """Reads one expanded model."""

    def __init__(self, context: Context, node: ModelNode, defaults: Globals, general: hooks.GlobalHooks) -> None:
        self._general = general
        self._context = context
        self._report = context.report
        self._node = node
        self._defaults = defaults
        self._values: dict[str, Any] = {}

    def build(self) -> Model:
        """The model; what is wrong with it is reported and has its default."""
        node = self._node
        values = self._values = self._context.walker.section(node.body, Model, node.path, more=("macros", *EVENTS))
        values["cmd"] = command.strip_comments(values.get("cmd", ""))
        values["cmd_stop"] = command.strip_comments(values.get("cmd_stop", _DEFAULT_STOP))
        values.setdefault("send_loading_state", self._defaults.send_loading_state)
        for key in ("name", "description"):
            values[key] = values.get(key, "").strip()
        self._times()
        self._limits()
        self._check_env()
        self._check_urls()
        self._check_capabilities()
        context, body = self._context, node.body
        values["filters"] = read_filters(context, body.get("filters"), f"{node.path}.filters", old_name=True)
        values["timeouts"] = read_timeouts(context, body.get("timeouts"), f"{node.path}.timeouts", Timeouts())
        values["hooks"] = self._general.of(node)
        values["sleep"] = hooks.read_sleep(context, body.get("sleep"), f"{node.path}.sleep")
        model = Model(id=node.id, port=node.port, **values)
        self._check_command(model)
        self._check_memory(model)
        return model

    def _error(self, key: str, message: str, hint: str = "") -> None:
        self._report.error(self._node.body.where(key), f"{self._node.path}.{key}", message, hint)

    def _warn(self, key: str, message: str, hint: str = "") -> None:
        self._report.warn(self._node.body.where(key), f"{self._node.path}.{key}", message, hint)

    def _times(self) -> None:
        values, name = self._values, self._node.id
        ttl = values.get("ttl", -1)
        if ttl < -1:
            self._error("ttl", f"model {name}: invalid TTL value {ttl}", "seconds, 0 for never, -1 for globalTTL")
        values["ttl"] = float(self._defaults.ttl if ttl < 0 else ttl)
        unload = values.get("unload_timeout", 0)
        if unload < 0:
            self._error(
                "unloadTimeout",
                f"model {name}: invalid unloadTimeout value {unload}",
                "seconds, 0 for the global value",
            )
        values["unload_timeout"] = float(unload if unload > 0 else self._defaults.unload_timeout)
        health = values.get("health_check_timeout")
        values["health_check_timeout"] = float(
            self._defaults.health_check_timeout if health is None else max(health, 1)
        )

    def _limits(self) -> None:
        values = self._values
        values["concurrency_limit"] = max(0, values.get("concurrency_limit", 0))
        if self._node.id == _COMFYUI:
            values["concurrency_limit"] = max(_COMFYUI_LIMIT, values["concurrency_limit"])
            values["compat"] = Compat(ignore_websockets=True)

    def _check_command(self, model: Model) -> None:
        if is_bad(self._node.body.get("cmd")):
            return
        if model.words:
            self._context.places[f"{self._node.path}.cmd"] = self._node.body.where("cmd")
        elif not self._node.nothing:
            self._warn("cmd", f"model {model.id}: empty command", "it cannot be started")
        if model.kv_cache.persist and not is_llama_server(model.words, model.kv_cache.engine):
            self._report.warn(
                self._node.body.where("kvCache"),
                f"{self._node.path}.kvCache.persist",
                f"model {model.id}: kvCache has no effect, as the command is no llama-server",
                "if it is one inside, write engine: llama-server",
            )

    def _check_memory(self, model: Model) -> None:
        node = self._node.body.get("memory")
        if isinstance(node, Scalar) and node.value == "auto":
            force_setattr(model, "memory_auto", True)
        for name in model.memory:
            if name not in self._defaults.budgets:
                hint = self._report.did_you_mean(name, self._defaults.budgets) or "name it in budgets"
                self._error("memory", f'memory: there is no budget "{name}"', hint)

    def _check_env(self) -> None:
        for at, (entry, place) in enumerate(texts_of(self._node.body.get("env"))):
            if "=" not in entry:
                path = f"{self._node.path}.env[{at}]"
                self._report.warn(place, path, "this entry has no effect", "expected NAME=value")

    def _check_urls(self) -> None:
        name, proxy = self._node.id, self._values.get("proxy", "")
        try:
            url = urls.parse(proxy)
        except urls.UrlError as error:
            self._error("proxy", f"model {name}: invalid proxy URL: {error}")
        else:
            known = not is_null(self._node.body.get("proxy")) and "proxy" in self._values
            if known and (url.scheme not in ("http", "https") or not url.host) and self._values["cmd"]:
                self._warn("proxy", "no server can be reached by this", "expected http://host:port")
        endpoint = self._values.get("check_endpoint", "/health").strip()
        if endpoint != "none":
            try:
                parts = urls.parse(endpoint)
            except urls.UrlError as error:
                self._error("checkEndpoint", f"model {name}: invalid checkEndpoint: {error}")
            else:
                endpoint = parts.path if parts.host else endpoint
        self._values["check_endpoint"] = endpoint

    def _check_capabilities(self) -> None:
        found = self._values.get("capabilities", Capabilities())
        for key, words in (("in", found.inputs), ("out", found.outputs)):
            for word in words or ():
                if word not in _MODALITIES:
                    self._fault(
                        key,
                        f'model {self._node.id}: capabilities.{key}: invalid modality "{self._report.shown(word)}",'
                        f" must be one of: {', '.join(_MODALITIES)}",
                    )
        if found.context < 0:
            self._fault("context", f"model {self._node.id}: capabilities.context: must be >= 0")

    def _fault(self, key: str, message: str) -> None:
        section = self._node.body.get("capabilities")
        assert isinstance(section, Map)
        self._report.error(section.where(key), f"{self._node.path}.capabilities.{key}", message)
