"""Keys and rights (`lswap.core.access`)."""

from __future__ import annotations

import base64

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.access import ANY, KeyRing, forwarded, leads_to, may_use, presented, right_for
from lswap.core.model import ApiKey, Config, Model, Peer, Selector


def basic(text: bytes, scheme: bytes = b"Basic") -> tuple[bytes, bytes]:
    """A header with user and password."""
    return (b"Authorization", scheme + b" " + base64.b64encode(text))


class PresentedTests(SynchronousTestCase):
    """The key that a request shows."""

    def test_forms(self) -> None:
        """Password, token, header; the first that is not empty counts."""
        plain = (b"X-Api-Key", b"x")
        for headers, key in (
            ([], b""),
            ([(b"authorization", b"Bearer tok")], b"tok"),
            ([(b"Authorization", b"bEARER tok")], b"tok"),
            ([(b"Authorization", b"Bearer  tok")], b" tok"),
            ([(b"Authorization", b"Bearer tok"), plain], b"tok"),
            ([basic(b"user:pw"), plain], b"pw"),
            ([basic(b"user:pw:more", b"bAsIc")], b"pw:more"),
            ([basic(b"user:"), plain], b"x"),
            ([basic(b"nocolon"), plain], b"x"),
            ([(b"Authorization", b"Basic !!!"), plain], b"x"),
            ([(b"Authorization", b"Basic dTpw"[:-1]), plain], b"x"),
            ([(b"Authorization", b"Bearer"), plain], b"x"),
            ([(b"Authorization", b"Digest x"), plain], b"x"),
            ([(b"Authorization", b"Bearer one"), (b"Authorization", b"Bearer two")], b"one"),
            ([(b"Cookie", b"x-api-key=x"), (b"Api-Key", b"x")], b""),
        ):
            self.assertEqual(presented(headers), key, headers)


class RingTests(SynchronousTestCase):
    """The keys."""

    def test_find(self) -> None:
        """Whole keys only, by their bytes in UTF-8; of equal ones the first."""
        first, second = ApiKey(key="k", name="1"), ApiKey(key="é", name="2")
        ring = KeyRing([first, second, ApiKey(key="k", name="3")])
        self.assertIs(ring.find(b"k"), first)
        self.assertIs(ring.find("é".encode()), second)
        for wrong in (b"", b"K", b"kk", b"\xe9", b"k "):
            self.assertIsNone(ring.find(wrong))

    def test_empty_key(self) -> None:
        """A key that is empty is none, whatever a client shows."""
        self.assertIsNone(KeyRing([ApiKey(key="")]).find(b""))

    def test_forwarded(self) -> None:
        """Every header that shows a key of ours stays here; other credentials go on."""
        ring = KeyRing([ApiKey(key="k"), ApiKey(key="l")])
        other = [(b"Authorization", b"Bearer theirs"), (b"Cookie", b"k"), (b"X-Other", b"k")]
        ours = [(b"authorization", b"Bearer k"), basic(b"u:l"), (b"X-API-KEY", b"k")]
        self.assertEqual(forwarded([*ours, *other], ring), other)


class RightsTests(SynchronousTestCase):
    """What a key allows."""

    def test_models(self) -> None:
        """Shell patterns for whole IDs; a star takes slashes too; no key or no list is all, an empty list none."""
        for pattern, allowed in (
            ("*", "a org/c"),
            ("org/*", "org/c"),
            ("?", "a"),
            ("[ab]", "a"),
            ("or", ""),
            ("A", ""),
        ):
            key = ApiKey(key="k", models=(pattern,))
            self.assertEqual([model for model in ("a", "org/c") if may_use(key, model)], allowed.split(), pattern)
        self.assertTrue(may_use(None, "a"))
        self.assertTrue(may_use(ApiKey(key="k"), "a"))
        self.assertFalse(may_use(ApiKey(key="k", models=()), "a"))

    def test_rights(self) -> None:
        """Models need infer, what changes something admin, listings anything, the rest read."""
        for method, route, infers, right in (
            (b"GET", "", True, "infer"),
            (b"POST", "", True, "infer"),
            (b"GET", "/running", False, "read"),
            (b"HEAD", "/logs", False, "read"),
            (b"GET", "/unload", False, "admin"),
            (b"HEAD", "/unload", False, "admin"),
            (b"POST", "/api/new", False, "admin"),
            (b"PUT", "/api/profiles/active", False, "admin"),
            (b"GET", "/v1/models", False, ANY),
            (b"GET", "/models", False, ANY),
            (b"GET", "/v1/models/<path:model>", False, ANY),
        ):
            self.assertEqual(right_for(method, route, infers), right, route)

    def test_names(self) -> None:
        """A name of the listing stands for its model, or for those that it may lead to."""
        config = Config(
            models={"a": Model(id="a", aliases=("b",))},
            peers={"p": Peer(id="p", models=("m",))},
            selectors={"s": Selector(id="s", strategy="pin", targets=("b", "m", "s"))},
        )
        pins = {"pin": "s", "off": "", "a": "m"}
        for name, models in (
            ("a", ["a"]),
            ("b", ["a"]),
            ("p/m", ["p/m"]),
            ("m", ["p/m"]),
            ("s", ["a", "p/m"]),
            ("pin", ["a", "p/m"]),
            ("off", []),
            ("nothing", []),
        ):
            self.assertEqual(leads_to(config, name, pins), models, name)
