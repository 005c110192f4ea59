"""What lswap says of its models: the records of `/v1/models`, and the rows of the event `modelStatus`.

What only a reload changes is made once for each configuration; state and time are put in when somebody asks.
Source: HTTP reference, sections 9 and 12.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from klein import Klein

from lswap.core.access import leads_to, may_use
from lswap.core.events import State
from lswap.core.model import ApiKey, Capabilities, Config, Model, Selector
from lswap.service.children import Child
from lswap.service.profiles import Profiles
from lswap.web.answers import Fault, json_answer
from lswap.web.request import Request

__all__ = ["Listing", "add_listing", "capability_fields"]

#: A model in one of these states has a process, and so memory.
_LOADED = (State.STARTING, State.READY, State.SLEEPING, State.WAKING, State.STOPPING)
#: A selector counts as loaded while a target is in one of these.
_USABLE = (State.STARTING, State.READY, State.WAKING)
#: Metadata with these keys give way when the capabilities of a model are configured.
_TOLD_OTHERWISE = ("architecture", "capabilities", "supported_parameters", "context_length")


class _Entry(msgspec.Struct, frozen=True):
    """A record without its time and status."""

    fields: dict[str, Any]
    #: The models whose state decides the status, and the states that mean "loaded".
    models: tuple[str, ...] = ()
    loaded: tuple[State, ...] = _LOADED


class _Table(msgspec.Struct, frozen=True):
    """What one configuration says."""

    config: Config
    #: By ID; those that are listed, and those that are not but can be asked for.
    listed: dict[str, _Entry]
    unlisted: dict[str, _Entry]
    #: The rows of peers' models in `modelStatus`.
    peers: list[dict[str, Any]]


class Listing:
    """Makes the records."""

    def __init__(
        self,
        config: Callable[[], Config],
        children: Callable[[], Mapping[str, Child]],
        profiles: Profiles,
        now: Callable[[], float] = time.time,
    ) -> None:
        """@param now: seconds since the epoch, for `created`."""
        self._config = config
        self._children = children
        self._profiles = profiles
        self._now = now
        self._made: _Table | None = None

    def records(self) -> list[dict[str, Any]]:
        """All that is listed, in the order of the IDs' bytes."""
        table = self._table()
        entries = {**table.listed, **self._pins(table.config)}
        states, created = self._states(), int(self._now())
        return [_record(name, entries[name], states, created) for name in sorted(entries, key=_bytes)]

    def record(self, name: str) -> dict[str, Any] | None:
        """What a client may ask for by this name: a listed record, a hidden one, or that of the model it means."""
        table = self._table()
        entry = table.listed.get(name) or table.unlisted.get(name) or self._pins(table.config).get(name)
        if entry is None:
            model = table.config.resolve(name)
            peer = table.config.resolve_peer(name)
            name = model if model is not None else "/".join(peer or ())
            entry = table.listed.get(name) or table.unlisted.get(name)
        return _record(name, entry, self._states(), int(self._now())) if entry is not None else None

    def shows(self, name: str, key: ApiKey | None) -> bool:
        """Whether a client with this key sees the record with this ID: it may use one of the models behind it."""
        if key is None or key.models is None:
            return True
        return any(may_use(key, model) for model in leads_to(self._config(), name, self._profiles.pins))

    def status(self) -> list[dict[str, Any]]:
        """The rows of `modelStatus`: local models (hidden ones and those on their way out too), then those of peers."""
        rows = [_status_row(self._children()[name]) for name in sorted(self._children(), key=_bytes)]
        return rows + self._table().peers

    def _states(self) -> dict[str, State]:
        return {name: child.state for name, child in self._children().items()}

    def _pins(self, config: Config) -> dict[str, _Entry]:
        """The names that exist by the active profile alone."""
        return {
            pin: _Entry({"meta": {"llamaswap": {"type": "profile"}}})
            for pin, target in self._profiles.pins.items()
            if target
            and config.resolve(pin) is None
            and config.resolve_peer(pin) is None
            and pin not in config.selectors
        }

    def _table(self) -> _Table:
        config = self._config()
        if self._made is None or self._made.config is not config:
            self._made = _table_of(config)
        return self._made


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "replace")


def _record(name: str, entry: _Entry, states: Mapping[str, State], created: int) -> dict[str, Any]:
    loaded = any(states.get(model) in entry.loaded for model in entry.models)
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "llama-swap",
        **entry.fields,
        "status": {"value": "loaded" if loaded else "unloaded"},
    }


def _table_of(config: Config) -> _Table:
    listed: dict[str, _Entry] = {}
    unlisted: dict[str, _Entry] = {}
    for model in config.models.values():
        told: dict[str, Any] = {"type": "model"}
        if model.aliases:
            told["aliases"] = list(model.aliases)
        (unlisted if model.unlisted else listed)[model.id] = _model_entry(model, told)
    if config.include_aliases_in_list:
        for model in config.models.values():
            if not model.unlisted:
                for alias in filter(None, map(str.strip, model.aliases)):
                    listed.setdefault(alias, _model_entry(model, {"type": "alias", "modelID": model.id}))
    peers: list[dict[str, Any]] = []
    for peer in config.peers.values():
        for name in peer.models:
            full = f"{peer.id}/{name}"
            meta = {"llamaswap": {"type": "peer", "peerID": peer.id}}
            listed[full] = _Entry({"name": f"{peer.id}: {name}", "meta": meta})
            peers.append(_row(full, "", "", "", False, peer.id))
    for selector in config.selectors.values():
        (unlisted if selector.unlisted else listed)[selector.id] = _selector_entry(config, selector)
    peers.sort(key=lambda row: _bytes(row["id"]))
    return _Table(config, listed, unlisted, peers)


# -- records --------------------------------------------------------------------------


def _texts(part: Model | Selector) -> dict[str, Any]:
    """Name and description, where there are such."""
    texts = {"name": part.name.strip(), "description": part.description.strip()}
    return {key: text for key, text in texts.items() if text}


def _model_entry(model: Model, told: dict[str, Any]) -> _Entry:
    known = model.capabilities
    metadata = model.metadata
    if known.configured:
        metadata = {key: value for key, value in metadata.items() if key not in _TOLD_OTHERWISE}
    meta: dict[str, Any] = {"llamaswap": _sorted({**metadata, **told})}
    if known.context > 0:
        meta["n_ctx"] = known.context
    return _Entry({**_texts(model), **capability_fields(known), "meta": meta}, (model.id,))


def _selector_entry(config: Config, selector: Selector) -> _Entry:
    told: dict[str, Any] = {"type": "selector", "strategy": selector.strategy, "targets": list(selector.targets)}
    if selector.strategy == "spillover":
        told["spillover"] = selector.spillover
    meta = {"llamaswap": _sorted({**selector.metadata, **told})}
    deciding = selector.targets[:1] if selector.strategy == "pin" else selector.targets
    models = tuple(model for model in map(config.resolve, deciding) if model is not None)
    return _Entry({**_texts(selector), "meta": meta}, models, _USABLE)


def _sorted(table: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(table.items()))


def capability_fields(known: Capabilities) -> dict[str, Any]:
    """What a record tells of a model's capabilities; empty when nothing is configured."""
    inputs, outputs = known.inputs or (), known.outputs or ()
    fields: dict[str, Any] = {}
    architecture: dict[str, Any] = {}
    if inputs:
        architecture["input_modalities"] = list(inputs)
    if outputs:
        architecture["output_modalities"] = list(outputs)
    if inputs and outputs:
        architecture["modality"] = "+".join(inputs) + "->" + "+".join(outputs)
    if architecture:
        fields["architecture"] = architecture
    flags = {
        "vision": "image" in inputs,
        "audio_transcriptions": "audio" in inputs and "text" in outputs,
        "audio_speech": "text" in inputs and "audio" in outputs,
        "image_generation": "text" in inputs and "image" in outputs,
        "image_to_image": "image" in inputs and "image" in outputs,
        "function_calling": known.tools,
        "reranker": known.reranker,
    }
    can = {flag: True for flag, on in flags.items() if on}
    if can:
        fields["capabilities"] = can
    if known.tools:
        fields["supported_parameters"] = ["tools", "tool_choice"]
    if known.context > 0:
        fields["context_length"] = known.context
    return fields


# -- rows -----------------------------------------------------------------------------


def _row(name: str, title: str, description: str, state: str, unlisted: bool, peer: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": title,
        "description": description,
        "state": state,
        "unlisted": unlisted,
        "peerID": peer,
    }


def _status_row(child: Child) -> dict[str, Any]:
    model = child.model
    state = State.STOPPED if child.state is State.SHUTDOWN else child.state
    row = _row(model.id, model.name, model.description, state.value, model.unlisted, "")
    if model.aliases:
        row["aliases"] = list(model.aliases)
    told = capability_fields(model.capabilities)
    row.update((key, told[key]) for key in ("capabilities", "context_length") if key in told)
    return row


# -- routes ---------------------------------------------------------------------------


def add_listing(app: Klein, listing: Listing) -> None:
    """Put the routes of the listing into the tree."""

    def models(request: Any) -> bytes:
        records = [record for record in listing.records() if listing.shows(record["id"], request.api_key)]
        origin = request.header(b"origin")
        if origin is not None:  # scripts look for their own origin here, as the reference tells it
            request.setHeader(b"Access-Control-Allow-Origin", origin)
        return json_answer(request, {"data": records, "object": "list"})

    def one_model(request: Request, model: str) -> bytes:
        record = listing.record(model)
        if record is None:
            raise Fault(404, "model not found")
        if not listing.shows(record["id"], request.api_key):
            raise Fault(403, f"this API key does not allow model {record['id']}")
        return json_answer(request, record)

    for path in ("/v1/models", "/models"):
        app.route(path, methods=["GET"], endpoint=f"listing {path}")(models)
    app.route("/v1/models/<path:model>", methods=["GET"], endpoint="listing one")(one_model)
