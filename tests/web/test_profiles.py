"""Profiles and selectors as a client meets them (`lswap.web.profiles`, `lswap.web.openai`, `lswap.web.upstream`)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lswap.web.upstream import pinned_path
from tests.memory import MemoryLswap, Served, config_of

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}", aliases: [also-a, 'q"uote & co']}
  b: {cmd: "server --port ${PORT}", useModelName: real-b}
  org/c: {cmd: "server --port ${PORT}"}
groups: {all: {swap: false, members: [a, b, org/c]}}
selectors:
  first: {strategy: pin, targets: [also-a]}
  share: {strategy: spillover, targets: [a, b]}
  one: {strategy: spillover, targets: [org/c]}
profiles:
  work:
    description: at work
    pins: {llm: a, odd: 'q"uote & co', b: a, deep: org/c, org: b, org/x: a, off: "", pick: first, to-b: b}
  play: {pins: {llm: b}}
"""
CHAT = "/v1/chat/completions"
JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
PARTS = ("Content-Type", "multipart/form-data; boundary=cut")


class ProfilesCase(SynchronousTestCase):
    """Three ready models that answer everything with their names."""

    def setUp(self) -> None:
        """No profile is active."""
        self.lswap = MemoryLswap(CONFIG)
        self.lswap.ready("a", "b", "org/c")
        for name, model in self.lswap.models.items():
            model.says = name.encode()
        self.client = self.lswap.client()

    def put(self, body: bytes) -> tuple[int, Any]:
        """Ask for another profile: the status, and the answer or the message of the error."""
        answer = self.client.ask("PUT", "/api/profiles/active", body)
        self.assertEqual(answer.header("Content-Type"), "application/json")
        value = json.loads(answer.body)
        return answer.status, value["error"]["message"] if "error" in value else value

    def use(self, name: str | None) -> None:
        """Make a profile the active one."""
        self.assertEqual(self.put(json.dumps({"name": name}).encode()), (200, {"active": name}))

    def sent(self, name: str, *args: Any) -> Served:
        """Ask, with what `MemoryClient.ask` takes; what this model got."""
        answer = self.client.ask(*args)
        self.assertEqual((answer.status, answer.body), (200, name.encode()), args)
        return self.lswap.models[name].request

    def refused(self, *args: Any) -> tuple[int, str]:
        """Ask for what is refused: status and message."""
        answer = self.client.ask(*args)
        return answer.status, json.loads(answer.body)["error"]["message"]

    def under_way(self, selector: str) -> dict[str, int]:
        """The places that are taken at a selector."""
        return self.lswap.service.names.selectors.under_way(selector)

    def hold(self, *names: str) -> None:
        """From now on these models answer nothing by themselves."""
        for name in names:
            self.lswap.models[name].says = None


class RouteTests(ProfilesCase):
    """`/api/profiles`."""

    def test_list(self) -> None:
        """All of them, sorted, with their pins, and which one is active."""
        self.use("work")
        answer = self.client.ask("GET", "/api/profiles")
        value = json.loads(answer.body)
        self.assertEqual((answer.status, value["active"]), (200, "work"))
        self.assertEqual(value["profiles"][0], {"id": "play", "description": "", "pins": {"llm": "b"}})
        work = value["profiles"][1]
        self.assertEqual((work["id"], work["description"], work["pins"]["off"]), ("work", "at work", ""))

    def test_choose(self) -> None:
        """By name; none by null or an empty name; what stands after the value does not count."""
        for body, active in (
            (b'{"name":"work"}', "work"),
            (b'{"name":null}', None),
            (b' \n{"name":"play","more":[1]} {"name":"work"} rubbish', "play"),
            (b'{"name":""}', None),
        ):
            self.assertEqual(self.put(body), (200, {"active": active}))
            self.assertEqual(self.lswap.service.profiles.active, active)

    def test_refused(self) -> None:
        """What is no request for a profile, in the words of the reference; the active one stays."""
        self.use("work")
        for body, status, message in (
            (b'{"name":"nosuch"}', 404, 'profile "nosuch" not found'),
            (b"{}", 400, "profile name is required"),
            (b"null", 400, "profile name is required"),
            (b'{"name":5}', 400, "profile name must be a string or null"),
            (b'{"name":["work"]}', 400, "profile name must be a string or null"),
            (b"rubbish", 400, "invalid profile request"),
            (b"", 400, "invalid profile request"),
            (b"[]", 400, "invalid profile request"),
            (b'"work"', 400, "invalid profile request"),
            (b'{"name":"wor', 400, "invalid profile request"),
            (b'{"name":"\xff"}', 400, "invalid profile request"),
            (b"[" * 60_000, 400, "invalid profile request"),
            (b" " * 2_000_000 + b'{"name":"play"}', 400, "invalid profile request"),
        ):
            self.assertEqual(self.put(body), (status, message), body[:40])
        self.assertEqual(self.lswap.service.profiles.active, "work")

    def test_reload(self) -> None:
        """None is active afterwards."""
        self.use("work")
        config = config_of(CONFIG).config
        assert config is not None
        self.lswap.service._take_over(config)
        self.assertEqual(json.loads(self.client.ask("GET", "/api/profiles").body)["active"], None)
        self.assertEqual(self.refused("GET", "/props?model=llm"), (404, "no router for requested model"))


class PinTests(ProfilesCase):
    """A pinned name, wherever it stands."""

    def test_only_while_active(self) -> None:
        """Without its profile the name means nothing."""
        self.assertEqual(self.refused("GET", "/props?model=llm"), (404, "no router for requested model"))
        self.use("work")
        self.sent("a", "GET", "/props?model=llm")
        self.use("play")
        self.sent("b", "GET", "/props?model=llm")
        self.assertEqual(self.refused("GET", "/props?model=deep"), (404, "no router for requested model"))

    def test_json(self) -> None:
        """The value is replaced and no other byte, however large the body is."""
        self.use("work")
        for pad in (b"", b"p" * 100_000, b"p" * 1_200_000):
            body = b'{ "deep":{"model":"llm"},\n "model" : "%b" , "n":1.0, "u":"\\u00e9' + pad + b'"}'
            for name, model, written in (
                (b"llm", "a", b"a"),
                (b"odd", "a", b'q\\"uote & co'),
                (b"to-b", "b", b"real-b"),
            ):
                request = self.sent(model, "POST", CHAT, body % name, [JSON])
                self.assertEqual(request.body, body % written)
                self.assertEqual(request.header("Content-Length"), str(len(request.body)))

    def test_upload(self) -> None:
        """In an upload the bytes of the field are replaced; the boundary, files and other fields stay."""
        self.use("work")
        head = b'--cut\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n'
        file = head % (b"file", b'; filename="llm"\r\nContent-Type: audio/wav') + bytes(range(256)) + b"\r\n"
        for name, model, written in ((b"odd", "a", b'q"uote & co'), (b"to-b", "b", b"real-b")):
            body = head % (b"prompt", b"") + b"llm\r\n" + head % (b"model", b"") + b"%b\r\n" + b"%b--cut--\r\n"
            request = self.sent(model, "POST", "/v1/audio/transcriptions", body % (name, file), [PARTS])
            self.assertEqual(request.body, body % (written, file))
            self.assertEqual(request.header("Content-Type"), PARTS[1])

    def test_form(self) -> None:
        """In a form too, escaped as it must be; also in one that comes in pieces."""
        self.use("work")
        request = self.sent("a", "POST", CHAT, b"x=%zz&model=odd&y", [FORM])
        self.assertEqual(request.body, b"x=%zz&model=q%22uote+%26+co&y")
        self.assertEqual(request.header("Content-Length"), str(len(request.body)))
        large = b"x=" + b"y" * 1_200_000 + b"&model=%b&z=1"
        self.assertEqual(self.sent("a", "POST", CHAT, large % b"llm", [FORM]).body, large % b"a")

    def test_query(self) -> None:
        """In the query of a GET, a HEAD and a POST; the body of the latter stays."""
        self.use("work")
        self.assertEqual(self.sent("a", "GET", "/props?x=%zz;&model=llm&y").target, "/props?x=%zz;&model=a&y")
        self.client.send("HEAD", "/props?model=llm")
        self.assertEqual(self.client.read().status, 200)
        request = self.sent("a", "POST", CHAT + "?model=odd", b'{"model":"llm"}', [("Content-Type", "text/plain")])
        self.assertEqual((request.target, request.body), (CHAT + "?model=q%22uote%20%26%20co", b'{"model":"llm"}'))

    def test_shadowing(self) -> None:
        """A pin counts over a real model, leads to selectors, and not to other pins."""
        self.use("work")
        self.assertEqual(self.sent("a", "POST", CHAT, b'{"model":"b"}', [JSON]).body, b'{"model":"a"}')
        self.assertEqual(self.sent("a", "POST", CHAT, b'{"model":"pick"}', [JSON]).body, b'{"model":"also-a"}')
        self.assertEqual(self.sent("b", "POST", CHAT, b'{"model":"to-b"}', [JSON]).body, b'{"model":"real-b"}')

    def test_untouched(self) -> None:
        """A name that no pin has is left alone."""
        self.use("work")
        body = b'{"model" : "also-a"}'
        self.assertEqual(self.sent("a", "POST", CHAT, body, [JSON]).body, body)

    def test_disabled(self) -> None:
        """A name without target is as good as none."""
        self.use("work")
        expected = (404, "no model id could be identified")
        self.assertEqual(self.refused("POST", CHAT, b'{"model":"off"}', [JSON]), expected)
        self.assertEqual(self.refused("GET", "/props?model=off"), expected)
        self.assertEqual(self.refused("GET", "/upstream/off/x"), (404, "model not found"))

    def test_under_way(self) -> None:
        """A request goes on to where it went when it came."""
        self.use("work")
        self.hold("a")
        self.client.chat("llm")
        other = self.lswap.client()
        other.ask("PUT", "/api/profiles/active", b'{"name":"play"}')
        self.lswap.models["a"].request.answer(200, b"late")
        self.assertEqual(self.client.read().body, b"late")


class UpstreamTests(ProfilesCase):
    """Pins below `/upstream`."""

    def test_path(self) -> None:
        """The longest pin is replaced; rest, query and body stay."""
        self.use("work")
        for target, model, rest in (
            ("llm/x%2Fy?q=1;2", "a", "/x%2Fy?q=1;2"),
            ("deep/z", "org/c", "/z"),
            ("org/x/z", "a", "/z"),
            ("org%2Fx/z", "a", "/z"),
            ("org/z", "b", "/z"),
            ("b/llm/z", "a", "/llm/z"),
            ("odd/%zz", "a", "/%zz"),
            ("also-a/z", "a", "/z"),
        ):
            request = self.sent(model, "POST", f"/upstream/{target}", b'{"model":"llm"}', [JSON])
            self.assertEqual((request.target, request.body), (rest, b'{"model":"llm"}'))

    def test_redirect(self) -> None:
        """It shows the new name."""
        self.use("work")
        answer = self.client.ask("GET", "/upstream/deep?x=1")
        self.assertEqual((answer.status, answer.header("Location")), (301, "/upstream/org/c/?x=1"))

    def test_selectors(self) -> None:
        """They mean nothing here, pinned or not."""
        self.use("work")
        for name in ("first", "pick"):
            self.assertEqual(self.refused("GET", f"/upstream/{name}/x"), (404, "model not found"))

    def test_pinned_path(self) -> None:
        """The path alone: nothing left after an exact name; None for a disabled one; others as they were."""
        pins = {"author": "x", "author/public": "target", "é": "a b%", "off": ""}
        for rest, found in (
            (b"author/public/v1/chat", b"target/v1/chat"),
            (b"author%2Fpublic/api/x%2Fy", b"target/api/x%2Fy"),
            (b"author/other", b"x/other"),
            (b"author", b"x"),
            (b"authors/x", b"authors/x"),
            (b"%C3%A9/x", b"a%20b%25/x"),
            (b"none/author", b"none/author"),
        ):
            self.assertEqual(pinned_path(b"/upstream/" + rest, pins), b"/upstream/" + found)
        self.assertIsNone(pinned_path(b"/upstream/off/x", pins))
        self.assertEqual(pinned_path(b"/upstream/off/x", {}), b"/upstream/off/x")


class SelectorTests(ProfilesCase):
    """A selector's name in a request."""

    def test_renamed(self) -> None:
        """The request is changed to the target's name; the selector stands beside it in the list."""
        self.hold("a")
        self.client.send("POST", CHAT, b'{ "y":1.0,"model":  "first"}', [JSON])
        self.assertEqual(self.lswap.models["a"].request.body, b'{ "y":1.0,"model":  "also-a"}')
        entry = self.lswap.inflight.snapshot(0)[0]
        self.assertEqual((entry["model"], entry["metadata"]["selector"]), ("a", "first"))

    def test_pinned(self) -> None:
        """A pin that leads to a selector is noted as the selector."""
        self.use("work")
        self.hold("a")
        self.client.chat("pick")
        self.assertEqual(self.lswap.inflight.snapshot(0)[0]["metadata"]["selector"], "first")

    def test_none_without_selector(self) -> None:
        """Other requests have no such note."""
        self.hold("a")
        self.client.chat("a")
        self.assertNotIn("selector", self.lswap.inflight.snapshot(0)[0].get("metadata", {}))

    def test_shared(self) -> None:
        """Two at once go to two models; the places come back with the answers."""
        self.hold("a", "b")
        clients = [self.lswap.client() for _ in range(2)]
        for client in clients:
            client.chat("share")
        self.assertEqual(self.under_way("share"), {"a": 1, "b": 1})
        self.lswap.models["b"].request.answer(200, b"done")
        self.assertEqual(clients[1].read().body, b"done")
        self.assertEqual(self.under_way("share"), {"a": 1})
        clients[0].leave()
        self.assertEqual(self.under_way("share"), {})

    def test_stream(self) -> None:
        """A stream keeps its place until its end, and one that is cut gives it back."""
        self.hold("a", "b")
        for cut in (False, True):
            self.client.chat("share")
            request = next(model.request for model in self.lswap.models.values() if model.requests)
            request.begin()
            request.chunk(b"data: 1\n\n")
            self.lswap.turn()
            self.assertEqual(sum(self.under_way("share").values()), 1)
            if cut:
                request.close()
            else:
                request.chunk(b"")
            self.lswap.turn()
            self.assertEqual(self.under_way("share"), {})
            for model in self.lswap.models.values():
                model.requests.clear()

    def test_client_that_does_not_read(self) -> None:
        """The place is free when the model has done its part, whatever is still to be read."""
        self.hold("org/c")
        self.client.socket.room = 10
        self.client.chat("one")
        request = self.lswap.models["org/c"].request
        request.begin()
        request.chunk(b"x" * 1000)
        request.close()
        self.lswap.turn()
        self.assertFalse(self.client.gone)
        self.assertEqual(self.under_way("one"), {})

    def test_nobody_there(self) -> None:
        """503 while all targets are about to go."""
        self.lswap.models["org/c"].group.obeys = False
        self.lswap.router.unload(("org/c",))
        answer = self.client.ask("POST", CHAT, b'{"model":"one"}', [JSON])
        error = json.loads(answer.body)["error"]
        self.assertEqual((answer.status, error["code"]), (503, "service_unavailable"))
        self.assertEqual(error["message"], 'selector "one" has no available spillover targets')
        self.assertEqual(self.under_way("one"), {})

    def test_failed_start(self) -> None:
        """A request that fails gives its place back."""
        self.lswap.router.unload(("org/c",))
        self.lswap.turn()
        self.lswap.models["org/c"].health = None
        self.lswap.models["org/c"].listens = False
        self.client.chat("one")
        self.assertEqual(self.under_way("one"), {"org/c": 1})
        self.lswap.models["org/c"].group.end(3)
        self.lswap.turn()
        self.assertEqual(self.client.read().status, 500)
        self.assertEqual(self.under_way("one"), {})


class PlaceTests(SynchronousTestCase):
    """Whatever becomes of the requests of a selector, all places come back."""

    @settings(max_examples=25)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["ask", "answer", "leave", "reset", "die", "unload", "cancel", "reload"]),
                st.integers(0, 20),
            ),
            max_size=25,
        )
    )
    def test_places_come_back(self, steps: list[tuple[str, int]]) -> None:
        """Requests come, end in all ways, models die: the places are those of the requests under way, then none."""
        lswap = MemoryLswap(CONFIG)
        clients = []
        places = lswap.service.names.selectors.under_way
        for step, number in steps:
            model = lswap.models["ab"[number % 2]]
            if step == "ask":
                clients.append(lswap.client())
                clients[-1].chat("share")
            elif step == "answer" and model.requests:
                model.requests.pop(number % len(model.requests)).answer(200, b"x")
            elif step in ("leave", "reset") and clients:
                getattr(clients.pop(number % len(clients)), step)()
            elif step == "die" and model.groups:
                model.group.end(3)
            elif step == "unload":
                lswap.router.unload((model.name,))
            elif step == "cancel":
                for entry in lswap.inflight.snapshot(0)[:1]:
                    lswap.client().ask("POST", f"/api/inflight/{entry['id']}/cancel")
            elif step == "reload":
                config = config_of(CONFIG).config
                assert config is not None
                lswap.service._take_over(config)
            lswap.turn()
            self.assertEqual(sum(places("share").values()), len(lswap.inflight))
        for client in clients:
            client.leave()
        lswap.turn(1)
        self.assertEqual((places("share"), lswap.leftovers()), ({}, []))
