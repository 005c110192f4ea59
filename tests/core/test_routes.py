"""The table of routes that lead to a model."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.routes import GETS, POSTS, forwarded_path, is_model_route


class RouteTests(SynchronousTestCase):
    """The table, and what is made of it."""

    def test_table(self) -> None:
        """No route stands twice, and each begins at the root."""
        self.assertEqual((len(POSTS), len(GETS)), (28, 3))
        for paths in (POSTS, GETS):
            self.assertEqual(len(set(paths)), len(paths))
            self.assertTrue(all(path.startswith("/") and not path.endswith("/") for path in paths))

    def test_is_model_route(self) -> None:
        """By method and path; HEAD goes with GET, and other methods have none."""
        for path in POSTS:
            self.assertTrue(is_model_route(b"POST", path.encode()))
            self.assertEqual(is_model_route(b"GET", path.encode()), path in GETS)
        for path in GETS:
            self.assertTrue(is_model_route(b"GET", path.encode()) and is_model_route(b"HEAD", path.encode()))
            self.assertFalse(is_model_route(b"PUT", path.encode()))
        for path in ("", "/", "/v1/chat/completions/", "/v1/chat", "/V1/chat/completions", "/v1/chat/completions?x"):
            self.assertFalse(is_model_route(b"POST", path.encode()), path)

    def test_forwarded_path(self) -> None:
        """The short forms lose their front, query and escapes stay."""
        for target, forwarded in {
            b"/v1/chat/completions?x=/v/": b"/v1/chat/completions?x=/v/",
            b"/v/chat/completions?x=%2F": b"/chat/completions?x=%2F",
            b"/v/messages/count_tokens": b"/messages/count_tokens",
            b"/audioapi/v1/tasks/run?": b"/v1/tasks/run?",
            b"/props?model=/v/x": b"/props?model=/v/x",
        }.items():
            self.assertEqual(forwarded_path(target), forwarded)
