"""`/upstream/<model>/<path>` (`lswap.web.upstream`): which model, and everything else byte for byte."""

from __future__ import annotations

import json
import time

from twisted.trial.unittest import SynchronousTestCase

from lswap.web.upstream import split_target
from tests.memory import MemoryLswap

CONFIG = """
models:
  a: {cmd: "server --port ${PORT}", aliases: ["x/y", "sp ace"], useModelName: other}
  org: {cmd: "server --port ${PORT}"}
  org/m: {cmd: "server --port ${PORT}"}
groups: {all: {swap: false, members: [a, org, org/m]}}
"""


class SplitTests(SynchronousTestCase):
    """Where the name ends."""

    def split(self, rest: str) -> tuple[str, bytes] | None:
        """Look at a path below the prefix."""
        names = {"a", "org", "org/m", "sp ace", "é", "."}
        return split_target(b"/upstream/" + rest.encode("latin-1"), lambda name: name if name in names else None)

    def test_longest_name_wins(self) -> None:
        """The longest run of leading segments that is a name; the rest keeps its escapes."""
        for rest, found in (
            ("a/x", ("a", b"/x")),
            ("a/", ("a", b"/")),
            ("a", ("a", b"")),
            ("org/m/v1/x", ("org/m", b"/v1/x")),
            ("org/m", ("org/m", b"")),
            ("org/n/m", ("org", b"/n/m")),
            ("org%2Fm/x", ("org/m", b"/x")),
            ("org%2fm/x%2Fy", ("org/m", b"/x%2Fy")),
            ("org%2Fn/x", ("org", b"/n/x")),
            ("%61/x", ("a", b"/x")),
            ("sp%20ace/%zz", ("sp ace", b"/%zz")),
            ("%C3%A9/x", ("é", b"/x")),
            ("\xc3\xa9/x", ("é", b"/x")),
            ("a//x", ("a", b"//x")),
            ("a/../x", ("a", b"/../x")),
            ("./x", (".", b"/x")),
            ("a/\xff", ("a", b"/\xff")),
        ):
            self.assertEqual(self.split(rest), found, rest)

    def test_no_name(self) -> None:
        """Nothing there that is one."""
        for rest in ("", "/", "/a/x", "b/x", "A/x", "%20a/x", "ax", "%zz", "\xe9/x", "a%00/x"):
            self.assertIsNone(self.split(rest), rest)

    def test_endless_target(self) -> None:
        """A target of a megabyte, full of slashes, is looked through in no time."""
        begun = time.process_time()
        for rest in ("a/" + "/" * 1_000_000, "b/" * 500_000, "%41" * 300_000, "/" * 1_000_000, "x" * 1_000_000):
            self.split(rest)
        self.assertEqual(self.split("a" + "/" * 1_000_000), ("a", b"/" * 1_000_000))
        self.assertLess(time.process_time() - begun, 0.5)


class UpstreamCase(SynchronousTestCase):
    """Ready models that answer everything."""

    def setUp(self) -> None:
        """They say who they are."""
        self.lswap = MemoryLswap(CONFIG)
        self.lswap.ready(*self.lswap.models)
        for name, model in self.lswap.models.items():
            model.says = name.encode()
        self.client = self.lswap.client()

    def test_passed_on(self) -> None:
        """Any method, any target, any body, whatever names are in it."""
        for method, rest, body in (
            ("GET", "/", b""),
            ("POST", "/v1/chat/completions?model=zz", b'{"model":"zz"}'),
            ("PUT", "//x/./../y?q=%zz;1", b"\0\xff" * 1000),
            ("DELETE", "/x", b""),
            ("PROPFIND", "/x#f", b"<x/>"),
            ("GET", "/\xc3\xa9/\xff", b"a GET with a body"),
        ):
            answer = self.client.ask(method, "/upstream/a" + rest, body)
            self.assertEqual((answer.status, answer.body), (200, b"a"))
            request = self.lswap.models["a"].request
            self.assertEqual((request.method, request.target, request.body), (method, rest, body))

    def test_models(self) -> None:
        """Aliases and names with slashes lead where they should."""
        for target, name in (("x/y/z", "a"), ("org/m/z", "org/m"), ("org/z", "org"), ("org%2Fm/z", "org/m")):
            self.assertEqual(self.client.ask("GET", "/upstream/" + target).body.decode(), name)

    def test_no_model(self) -> None:
        """404, and nothing is started."""
        for target in ("/upstream/", "/upstream/nosuch", "/upstream/nosuch/x", "/upstream//a/x"):
            answer = self.client.ask("POST", target, b'{"model":"a"}')
            error = json.loads(answer.body)["error"]
            self.assertEqual((answer.status, error["message"]), (404, "model not found"))

    def test_name_alone(self) -> None:
        """It is redirected to its slash, with the query; the method stays where that matters."""
        for method, target, status, location in (
            ("GET", "/upstream/a", 301, "/upstream/a/"),
            ("HEAD", "/upstream/a?x=1&y", 301, "/upstream/a/?x=1&y"),
            ("POST", "/upstream/org%2Fm?x", 308, "/upstream/org/m/?x"),
            ("PUT", "/upstream/sp%20ace", 308, "/upstream/sp%20ace/"),
        ):
            answer = self.client.ask(method, target)
            self.assertEqual((answer.status, answer.header("Location")), (status, location))

    def test_list_of_requests(self) -> None:
        """A request that would be an inference request is listed by its own path; others are not."""
        for model in self.lswap.models.values():
            model.says = None
        for method, rest, listed in (
            ("POST", "/v1/chat/completions?x", True),
            ("GET", "/props", True),
            ("GET", "/v1/chat/completions", False),
            ("POST", "/probe", False),
            ("POST", "//v1/chat/completions", False),
        ):
            client = self.lswap.client()
            client.send(method, "/upstream/a" + rest)
            rows = self.lswap.inflight.snapshot(0)
            self.assertEqual([row["req_path"] for row in rows], [rest.partition("?")[0]] if listed else [])
            self.assertEqual(len(self.lswap.inflight), 1)
            client.leave()

    def test_codings(self) -> None:
        """An inference request asks for no coding that cannot be read here; others are left alone."""
        for method, rest, kept in (
            ("POST", "/v1/messages", "gzip"),
            ("GET", "/props", "br, gzip"),
            ("POST", "/x", "br, gzip"),
        ):
            self.client.ask(method, "/upstream/a" + rest, b"", [("Accept-Encoding", "br, gzip")])
            self.assertEqual(self.lswap.models["a"].request.header("Accept-Encoding"), kept)
