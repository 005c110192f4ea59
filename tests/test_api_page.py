"""The page about the API: a row for every route of the tree, whose example works and whose right is the one needed."""

from __future__ import annotations

import base64
import pathlib
import re
import shlex
from typing import Any, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.model_parts import Performance
from lswap.core.routes import forwarded_path
from tests.memory import Answer, MemoryLswap

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/api.md"
RIGHTS = ("infer", "read", "admin")
CONFIG = """
apiKeys:
  - all
  - {key: infer, allow: [infer]}
  - {key: read, allow: [read]}
  - {key: admin, allow: [admin]}
models:
  m: {cmd: "server --port ${PORT}", aliases: [alias]}
  comfyui_auto: {cmd: "server --port ${PORT}"}
groups: {both: {swap: false, members: [m, comfyui_auto]}}
profiles: {coding: {pins: {llm: m}}}
"""
KINDS = {
    "JSON": "application/json",
    "text": "text/plain",
    "events": "text/event-stream",
    "page": "text/html",
}
MODELS = "the model's"
BODY = b"as the model says"
SYSTEM = {
    "timestamp": "2026-02-01T00:00:00Z",
    "cpu_util_per_core": [],
    **dict.fromkeys(("mem_total_mb", "mem_used_mb", "mem_free_mb", "swap_total_mb", "swap_used_mb"), 1),
    **dict.fromkeys(("load_avg_1", "load_avg_5", "load_avg_15"), 1.5),
    "net_io": [],
}


class Row(NamedTuple):
    """One row of the page."""

    method: str
    path: str
    right: str
    answer: str
    example: str


def rows() -> list[Row]:
    """All rows that tell of a route."""
    found = re.findall(r"^\| `(\w+) (\S+)` \| (\w+) \| (.*) \| `(curl .*)` \|$", PAGE.read_text(), re.MULTILINE)
    return [Row(*one) for one in found]


class Sent(NamedTuple):
    """What a line of curl sends."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def curl(line: str) -> Sent:
    """The request of an example. It knows the options that the page uses, and raises for others."""
    words = iter(shlex.split(line.replace("$L", "http://lswap"))[1:])
    method, target, headers, body = "", "", [], b""
    form: list[str] = []
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "--json":
            body = next(words).encode()
            headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
        elif word == "-F":
            form.append(next(words))
        elif word.startswith("http://lswap/"):
            target = word.removeprefix("http://lswap")
        elif word != "-N":
            raise ValueError(f"curl's {word} is not known here")
    if form:
        parts = []
        for field in form:
            name, _, value = field.partition("=")
            file = f'; filename="{value[1:]}"' if value.startswith("@") else ""
            parts.append(f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{value}\r\n')
        body = "".join([*parts, "--b--\r\n"]).encode()
        headers = [("Content-Type", "multipart/form-data; boundary=b")]
    return Sent(method or ("POST" if body else "GET"), target, headers, body)


class PageCase(SynchronousTestCase):
    """lswap in memory, of which all can be asked that the page asks."""

    def setUp(self) -> None:
        """No lswap yet."""
        self.config = pathlib.Path(self.mktemp())
        self.config.write_text(CONFIG)

    def fresh(self) -> MemoryLswap:
        """One request was answered and has a row and a capture; one is under way, as number 2."""
        lswap = MemoryLswap(CONFIG, path=str(self.config))
        lswap.service.monitor._reader = lambda first: (SYSTEM, [])
        lswap.service.monitor.configure(Performance())
        for model in lswap.models.values():
            model.says = BODY
        lswap.client().chat("m", [("Authorization", "Bearer all")])
        lswap.models["m"].says = None
        self.waiting = lswap.client()
        self.waiting.chat("m", [("Authorization", "Bearer all")])
        lswap.models["m"].says = BODY
        lswap.models["m"].requests.clear()
        return lswap

    def ask(self, lswap: MemoryLswap, row: Row, key: str | None) -> Answer:
        """What the example of a row gets, with a key of this right."""
        sent = curl(row.example)
        password = base64.b64encode(f"somebody:{key}".encode()).decode()
        headers = [*sent.headers, *([("Authorization", f"Basic {password}")] if key is not None else [])]
        client = lswap.client()
        client.send(sent.method, sent.target, sent.body, headers)
        lswap.turn(0.1)
        answer = client.read()
        client.leave()
        return answer


class RouteTests(PageCase):
    """The rows are those of the tree."""

    def test_every_route_has_its_row(self) -> None:
        """Each once; and no row tells of what does not exist."""
        front: Any = self.fresh().service.site.resource
        tree = {("any", "/upstream/{model}/{path}")}
        for rule in front._tree._app.url_map.iter_rules():
            path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
            methods = {"any"} if rule.methods is None else set(rule.methods) - {"HEAD"}
            tree |= {(method, path) for method in methods}
        told = [(row.method, row.path) for row in rows()]
        self.assertEqual(sorted(told), sorted(tree))

    def test_examples_ask_for_their_routes(self) -> None:
        """Method and path of an example are those of its row."""
        for row in rows():
            sent = curl(row.example)
            if row.method != "any":
                self.assertEqual(sent.method, row.method, row)
            pattern = re.sub(r"\\\{\w+\\\}", ".+", re.escape(row.path))
            self.assertRegex(sent.target.partition("?")[0], f"^{pattern}$")


class ExampleTests(PageCase):
    """The examples work."""

    def test_answers(self) -> None:
        """With a key of the right that the row names: the status and the kind that it names."""
        for row in rows():
            lswap = self.fresh()
            right = {"any": "infer", "none": None}.get(row.right, row.right)
            answer = self.ask(lswap, row, right)
            if row.answer == MODELS:
                self.assertEqual((answer.status, answer.body), (200, BODY), row)
                served = [served for model in lswap.models.values() for served in model.requests]
                target = curl(row.example).target
                wanted = re.sub(r"^/upstream/m|^/comfyui", "", forwarded_path(target.encode()).decode())
                self.assertEqual([one.target for one in served], [wanted])
                continue
            status, _, rest = row.answer.partition(" ")
            self.assertEqual(answer.status, int(status), (row, answer))
            kind = rest.partition(" ")[0].strip(":,")
            if kind:
                self.assertEqual((answer.header("Content-Type") or "").partition(";")[0], KINDS[kind], row)

    def test_rights(self) -> None:
        """Without a key, and with one that lacks the right, each route but the open ones refuses."""
        lswap = self.fresh()
        for row in rows():
            expected = 401 if row.right != "none" else int(row.answer.partition(" ")[0])
            self.assertEqual(self.ask(lswap, row, None).status, expected, row)
            for right in RIGHTS if row.right in RIGHTS else ():
                if right != row.right:
                    self.assertEqual(self.ask(lswap, row, right).status, 403, (row, right))
        self.assertEqual(lswap.models["m"].requests, [])
