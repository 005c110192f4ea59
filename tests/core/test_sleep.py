"""The calls that put a server to sleep and wake it (`lswap.core.sleep`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.model import HookAction, Sleep, VllmSleep
from lswap.core.sleep import is_sleeping, to_sleep, to_wake


def calls(actions: tuple[HookAction, ...]) -> list[tuple[str, str, bytes | None]]:
    """Method, URL and body, in order."""
    return [(call.method, call.url, call.body) for action in actions for call in action.calls]


class ActionTests(SynchronousTestCase):
    """What is called."""

    def test_level_1(self) -> None:
        """One call each."""
        sleep = Sleep(vllm=VllmSleep(level=1))
        self.assertEqual(calls(to_sleep(sleep)), [("POST", "/sleep?level=1", None)])
        self.assertEqual(calls(to_wake(sleep, 120)), [("POST", "/wake_up", None)])

    def test_level_2(self) -> None:
        """The weights come back from disk, and may take as long as a start."""
        sleep = Sleep(vllm=VllmSleep(level=2))
        self.assertEqual(calls(to_sleep(sleep)), [("POST", "/sleep?level=2", None)])
        wake = to_wake(sleep, 600)
        self.assertEqual(
            calls(wake),
            [
                ("POST", "/wake_up?tags=weights", None),
                ("POST", "/collective_rpc", b'{"method": "reload_weights"}'),
                ("POST", "/wake_up?tags=kv_cache", None),
                ("POST", "/reset_prefix_cache", None),
            ],
        )
        self.assertEqual([action.timeout for action in wake], [60, 600, 60, 60])
        self.assertEqual([action.timeout for action in to_wake(sleep, 5)], [60, 60, 60, 60])
        self.assertEqual(wake[1].calls[0].headers, (("Content-Type", "application/json"),))

    def test_two_actions(self) -> None:
        """Those of the configuration, as they are."""
        one, two = HookAction(words=("s",)), HookAction(words=("w",))
        sleep = Sleep(sleep=(one,), wake=(two, one))
        self.assertEqual((to_sleep(sleep), to_wake(sleep, 5)), ((one,), (two, one)))


class AnswerTests(SynchronousTestCase):
    """vLLM's `/is_sleeping`."""

    def test_answers(self) -> None:
        """Yes, no, and whatever says neither."""
        for answer, meant in (
            (b'{"is_sleeping": true}', True),
            (b'{"is_sleeping":false, "more": 1}', False),
            (b'{"is_sleeping": "true"}', None),
            (b"{}", None),
            (b"[]", None),
            (b"null", None),
            (b"<html>", None),
            (b"\xff", None),
            (b"[" * 100_000, None),
        ):
            self.assertIs(is_sleeping(answer), meant, answer[:30])
