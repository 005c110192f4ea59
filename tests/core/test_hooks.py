"""What a hook is told, and what is told of it (`lswap.core.hooks`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.hooks import Cause, HookEvent, Reason, actions_of, filled, name_of_call, variables
from lswap.core.model import HookAction, Hooks, HttpCall, Model

PROXY = "http://localhost:5800/base"
MODEL = Model(id="a", cmd="server", proxy=PROXY)


class TextTests(SynchronousTestCase):
    """Names, numbers, environment."""

    def test_environment(self) -> None:
        """All that the specification names; what there is not is empty."""
        told = variables(HookEvent.WILL_STOP, MODEL, Cause(Reason.SWAP, "b"), 5800, 77)
        self.assertEqual(
            told,
            {
                "LSWAP_EVENT": "on_will_stop",
                "LSWAP_MODEL": "a",
                "LSWAP_PORT": "5800",
                "LSWAP_PROXY": PROXY,
                "LSWAP_PID": "77",
                "LSWAP_REASON": "swap",
                "LSWAP_OTHER": "b",
            },
        )
        told = variables(HookEvent.STOPPED, MODEL, Cause(Reason.EXIT), None, None)
        self.assertEqual((told["LSWAP_PORT"], told["LSWAP_PID"], told["LSWAP_OTHER"]), ("", "", ""))

    def test_number_of_the_process(self) -> None:
        """Everywhere in a text; nothing where there is none."""
        self.assertEqual(filled("${PID} a${PID}", 5), "5 a5")
        self.assertEqual(filled("x${PID}", None), "x")

    def test_names_of_calls(self) -> None:
        """The model's own server is shown with path and query, of all others the origin without a password."""
        for url, name in (
            ("/slots/0?action=save", "POST /slots/0?action=save"),
            ("http://localhost:5800/slots/0?action=save", "POST /slots/0?action=save"),
            ("https://hooks.example.com/T0/secret?token=x", "POST https://hooks.example.com"),
            ("http://me:secret@h:1/x", "POST http://h:1"),
            ("http://localhost:5801/x", "POST http://localhost:5801"),
        ):
            self.assertEqual(name_of_call(HttpCall(method="POST", url=url), PROXY), name)

    def test_causes(self) -> None:
        """As the log says them."""
        self.assertEqual(str(Cause(Reason.TTL)), "ttl")
        self.assertEqual(str(Cause(Reason.SWAP, "b")), "swap, to make room for b")

    def test_actions(self) -> None:
        """Those of the event."""
        action = HookAction(words=("x",))
        model = Model(id="a", cmd="server", hooks=Hooks(on_stopped=(action,)))
        self.assertEqual(actions_of(model, HookEvent.STOPPED), (action,))
        self.assertEqual(actions_of(model, HookEvent.STARTUP), ())
