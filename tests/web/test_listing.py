"""The records of `/v1/models` and the rows of `modelStatus` (`lswap.web.listing`)."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.model import Capabilities
from lswap.web.listing import Listing, capability_fields
from tests.memory import MemoryLswap, config_of

CONFIG = """
models:
  full:
    cmd: server --port ${PORT}
    name: "  Full é <name> "
    description: " What it is "
    aliases: [zz, " ", "org/full"]
    capabilities: {in: [text, image], out: [text], tools: true, context: 32768}
    metadata: {size: 7, none: null, tags: [a, 1], type: mine, aliases: mine, capabilities: mine, context_length: 1}
  plain:
    cmd: server --port ${PORT}
    name: "  "
    metadata: {architecture: x, context_length: 5}
  hidden:
    cmd: server --port ${PORT}
    unlisted: true
    aliases: [hidden-too]
groups: {all: {swap: false, members: [full, plain, hidden]}}
peers:
  z: {proxy: "http://127.0.0.1:9", models: [shared, "org/owl"], apiKey: hush}
  y: {proxy: "http://127.0.0.1:9", models: [shared]}
selectors:
  pin: {strategy: pin, targets: [zz, plain]}
  warm: {strategy: warm, targets: [plain, zz], name: " Warm ", description: about, metadata: {k: 1, type: mine}}
  wide: {strategy: spillover, settings: {spillover: 2}, targets: [z/shared, plain]}
  shy: {strategy: pin, targets: [full], unlisted: true}
profiles:
  day:
    pins:
      new: full
      to-shy: shy
      off: ""
      full: plain
      zz: plain
      hidden: full
      org/owl: full
      shared: full
      warm: full
"""


class ListingCase(SynchronousTestCase):
    """A configuration with one of everything; nothing runs."""

    config = CONFIG

    def setUp(self) -> None:
        """Made anew for each test."""
        self.lswap = MemoryLswap(self.config)
        service = self.lswap.service
        self.listing = Listing(
            lambda: service.config, lambda: service.router.children, service.profiles, lambda: 1790000000.9
        )

    def records(self) -> dict[str, dict[str, Any]]:
        """All of them, by ID; in order."""
        return {record["id"]: record for record in self.listing.records()}

    def loaded(self) -> list[str]:
        """The IDs of those that are loaded."""
        return [name for name, record in self.records().items() if record["status"] == {"value": "loaded"}]


class RecordTests(ListingCase):
    """What a record holds."""

    def test_order(self) -> None:
        """That of the IDs' bytes; without what is unlisted, and without aliases."""
        names = ["full", "pin", "plain", "warm", "wide", "y/shared", "z/org/owl", "z/shared"]
        self.assertEqual(list(self.records()), names)

    def test_model(self) -> None:
        """All fields in their order; what is configured wins over metadata of the same name."""
        record = self.records()["full"]
        self.assertEqual(
            record,
            {
                "id": "full",
                "object": "model",
                "created": 1790000000,
                "owned_by": "llama-swap",
                "name": "Full é <name>",
                "description": "What it is",
                "architecture": {
                    "input_modalities": ["text", "image"],
                    "output_modalities": ["text"],
                    "modality": "text+image->text",
                },
                "capabilities": {"vision": True, "function_calling": True},
                "supported_parameters": ["tools", "tool_choice"],
                "context_length": 32768,
                "meta": {
                    "llamaswap": {
                        "type": "model",
                        "aliases": ["zz", " ", "org/full"],
                        "size": 7,
                        "none": None,
                        "tags": ["a", 1],
                    },
                    "n_ctx": 32768,
                },
                "status": {"value": "unloaded"},
            },
        )
        order = ["id", "object", "created", "owned_by", "name", "description", "architecture", "capabilities"]
        self.assertEqual(list(record), [*order, "supported_parameters", "context_length", "meta", "status"])

    def test_bare_model(self) -> None:
        """What is not configured is left out, and metadata that looks like it stays metadata."""
        self.assertEqual(
            self.records()["plain"],
            {
                "id": "plain",
                "object": "model",
                "created": 1790000000,
                "owned_by": "llama-swap",
                "meta": {"llamaswap": {"type": "model", "architecture": "x", "context_length": 5}},
                "status": {"value": "unloaded"},
            },
        )

    def test_peer(self) -> None:
        """Under its qualified name, always unloaded, and without the peer's key."""
        record = self.records()["z/org/owl"]
        self.assertEqual(record["name"], "z: org/owl")
        self.assertEqual(record["meta"], {"llamaswap": {"type": "peer", "peerID": "z"}})
        self.assertEqual(record["status"], {"value": "unloaded"})
        self.assertNotIn("hush", json.dumps(self.listing.records()))

    def test_selector(self) -> None:
        """Strategy and targets as they are written; the setting for spillover only."""
        records = self.records()
        self.assertEqual((records["warm"]["name"], records["warm"]["description"]), ("Warm", "about"))
        expected: dict[str, dict[str, Any]] = {
            "warm": {"strategy": "warm", "targets": ["plain", "zz"], "k": 1},
            "pin": {"strategy": "pin", "targets": ["zz", "plain"]},
            "wide": {"strategy": "spillover", "targets": ["z/shared", "plain"], "spillover": 2},
        }
        for name, told in expected.items():
            self.assertEqual(records[name]["meta"], {"llamaswap": {"type": "selector", **told}})

    def test_pins(self) -> None:
        """Names that exist by the active profile alone are listed while it is active; others stay what they are."""
        before = self.records()
        self.lswap.service.profiles.activate("day")
        records = self.records()
        # `shared` is offered by two peers, so that its bare name means nothing by itself.
        self.assertEqual(set(records) - set(before), {"new", "shared", "to-shy"})
        self.assertEqual({name: records[name] for name in before}, before)
        for name in ("new", "shared", "to-shy"):
            self.assertEqual(
                records[name],
                {
                    "id": name,
                    "object": "model",
                    "created": 1790000000,
                    "owned_by": "llama-swap",
                    "meta": {"llamaswap": {"type": "profile"}},
                    "status": {"value": "unloaded"},
                },
            )
        self.lswap.service.profiles.activate(None)
        self.assertEqual(self.records(), before)


class AliasTests(ListingCase):
    """With `includeAliasesInList`."""

    config = "includeAliasesInList: true\n" + CONFIG

    def test_aliases(self) -> None:
        """Each that is not blank has a record like its model's, but for the kind; those of hidden models have none."""
        records = self.records()
        self.assertEqual([name for name in records if "zz" in name or "org/full" in name], ["org/full", "zz"])
        self.assertNotIn("hidden-too", records)
        self.assertNotIn(" ", records)
        full = records["full"]
        for alias in ("zz", "org/full"):
            record = records[alias]
            told: dict[str, Any] = {
                "type": "alias",
                "modelID": "full",
                "size": 7,
                "none": None,
                "tags": ["a", 1],
                "aliases": "mine",
            }
            self.assertEqual(record["meta"], {"llamaswap": told, "n_ctx": 32768})
            self.assertEqual({**record, "id": "full", "meta": full["meta"]}, full)

    def test_status(self) -> None:
        """That of the model."""
        self.lswap.ready("full")
        self.assertEqual(self.loaded(), ["full", "org/full", "pin", "warm", "zz"])

    def test_one(self) -> None:
        """Asked for by an alias, its own record comes."""
        record = self.listing.record("zz")
        assert record is not None
        self.assertEqual((record["id"], record["meta"]["llamaswap"]["type"]), ("zz", "alias"))


class StatusTests(ListingCase):
    """What is loaded, and the rows of `modelStatus`."""

    def test_selectors(self) -> None:
        """Loaded while a target is; `pin` looks at its first target alone."""
        self.assertEqual(self.loaded(), [])
        self.lswap.ready("plain")
        self.assertEqual(self.loaded(), ["plain", "warm", "wide"])
        self.lswap.ready("full")
        self.assertEqual(self.loaded(), ["full", "pin", "plain", "warm", "wide"])

    def test_starting_and_stopping(self) -> None:
        """A model is loaded while it has a process; a selector only while that is on its way up, or there."""
        self.lswap.models["full"].health = 503
        self.lswap.client().chat("full")
        self.assertEqual(self.loaded(), ["full", "pin", "warm"])
        self.lswap.models["full"].health = 200
        self.lswap.turn(1)
        self.lswap.models["full"].group.obeys = False
        self.lswap.router.unload(("full",))
        self.assertEqual(self.lswap.running(), {"full": "stopping"})
        self.assertEqual(self.loaded(), ["full"])
        self.lswap.models["full"].group.end()
        self.assertEqual(self.loaded(), [])

    def test_rows(self) -> None:
        """Local models by ID, hidden ones too, then those of peers; no selectors, no pins, no aliases."""
        self.lswap.ready("hidden")
        self.lswap.service.profiles.activate("day")
        rows = self.listing.status()
        self.assertEqual([row["id"] for row in rows], ["full", "hidden", "plain", "y/shared", "z/org/owl", "z/shared"])
        full, hidden, plain, peer = rows[:4]
        self.assertEqual(
            full,
            {
                "id": "full",
                "name": "Full é <name>",
                "description": "What it is",
                "state": "stopped",
                "unlisted": False,
                "peerID": "",
                "aliases": ["zz", " ", "org/full"],
                "capabilities": {"vision": True, "function_calling": True},
                "context_length": 32768,
            },
        )
        self.assertEqual((hidden["state"], hidden["unlisted"]), ("ready", True))
        self.assertNotIn("capabilities", plain)
        self.assertEqual(
            peer, {"id": "y/shared", "name": "", "description": "", "state": "", "unlisted": False, "peerID": "y"}
        )

    def test_after_shutdown(self) -> None:
        """A model that is ended for good is shown as stopped."""
        self.lswap.router.shut_down()
        self.assertEqual({row["state"] for row in self.listing.status()}, {"stopped", ""})


class OneTests(ListingCase):
    """The record of one name."""

    def test_names(self) -> None:
        """By any name that a client may use; hidden ones are found; a name that is none of these is not."""
        for name, found in (
            ("full", "full"),
            ("zz", "full"),
            ("org/full", "full"),
            ("hidden", "hidden"),
            ("hidden-too", "hidden"),
            ("z/shared", "z/shared"),
            ("org/owl", "z/org/owl"),
            ("warm", "warm"),
            ("shy", "shy"),
        ):
            record = self.listing.record(name)
            assert record is not None, name
            self.assertEqual(record["id"], found)
        for name in ("shared", "new", "off", "", "nosuch"):
            self.assertIsNone(self.listing.record(name), name)

    def test_pins(self) -> None:
        """A name that the active profile brings is found while it is active; a disabled one is not."""
        self.lswap.service.profiles.activate("day")
        record = self.listing.record("new")
        assert record is not None
        self.assertEqual(record["meta"], {"llamaswap": {"type": "profile"}})
        self.assertIsNone(self.listing.record("off"))


class CapabilityTests(SynchronousTestCase):
    """`capability_fields`."""

    def test_flags(self) -> None:
        """Which inputs and outputs make which flag."""
        for inputs, outputs, flags in (
            (("image",), (), ["vision"]),
            ((), ("audio",), []),
            (("audio",), ("text",), ["audio_transcriptions"]),
            (("text",), ("image",), ["image_generation"]),
            (("image",), ("image",), ["vision", "image_to_image"]),
            (("text", "image"), ("text", "audio"), ["vision", "audio_speech"]),
        ):
            fields = capability_fields(Capabilities(inputs=inputs or None, outputs=outputs or None))
            self.assertEqual(list(fields.get("capabilities", {})), flags)
            self.assertEqual("modality" in fields["architecture"], bool(inputs and outputs))

    def test_single(self) -> None:
        """Each of the others by itself; nothing for nothing."""
        for known, fields in (
            (Capabilities(), {}),
            (Capabilities(reranker=True), {"capabilities": {"reranker": True}}),
            (Capabilities(context=9), {"context_length": 9}),
            (
                Capabilities(tools=True),
                {"capabilities": {"function_calling": True}, "supported_parameters": ["tools", "tool_choice"]},
            ),
        ):
            self.assertEqual(capability_fields(known), fields)


class RouteTests(ListingCase):
    """The answers."""

    def test_list(self) -> None:
        """Both routes have the records; a HEAD has their length; `<` is escaped as clients know it."""
        client = self.lswap.client()
        for target in ("/v1/models", "/models", "/v1/models?x=1"):
            answer = client.ask("GET", target)
            self.assertEqual((answer.status, answer.header("Content-Type")), (200, "application/json"))
            value = json.loads(answer.body)
            self.assertEqual((list(value), value["object"]), (["data", "object"], "list"))
            self.assertEqual([record["id"] for record in value["data"]], list(self.records()))
            self.assertIn(b"\\u003cname\\u003e", answer.body)
            client.send("HEAD", target)
            head = client.read()
            self.assertEqual((head.status, head.header("Content-Length")), (200, str(len(answer.body))))

    def test_origin(self) -> None:
        """To a page of another origin the header that lets it read the answer, exactly once; to others none."""
        client = self.lswap.client()
        page = "http://app.example:3000"
        for target, told in (("/v1/models", page), ("/models", page), ("/v1/models/full", "*"), ("/v1/models/x", "*")):
            answer = client.ask("GET", target, headers=[("Origin", page)])
            self.assertEqual(answer.all("Access-Control-Allow-Origin"), [told])
            self.assertEqual(client.ask("GET", target).all("Access-Control-Allow-Origin"), [])

    def test_one(self) -> None:
        """Names with slashes, escaped or not; 404 for no name."""
        client = self.lswap.client()
        for name in ("z/org/owl", "z%2Forg%2Fowl", "org/owl"):
            answer = client.ask("GET", f"/v1/models/{name}")
            self.assertEqual((answer.status, json.loads(answer.body)["id"]), (200, "z/org/owl"))
        answer = client.ask("GET", "/v1/models/nosuch")
        self.assertEqual((answer.status, json.loads(answer.body)["error"]["message"]), (404, "model not found"))

    def test_empty(self) -> None:
        """Without models the list is empty."""
        answer = MemoryLswap("models: {}").get("/v1/models")
        self.assertEqual(answer.body, b'{"data":[],"object":"list"}\n')

    def test_after_a_reload(self) -> None:
        """The list is that of the configuration in force."""
        config = config_of('models: {fresh: {cmd: "server --port ${PORT}"}}').config
        assert config is not None
        self.lswap.service._take_over(config)
        self.assertEqual(list(self.records()), ["fresh"])
        self.assertIn("fresh", [row["id"] for row in self.listing.status()])
