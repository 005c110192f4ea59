"""What every eviction policy has to keep, whatever it decides. Mix it into the tests of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from lswap.core.policy import ExplainingPolicy, Policy

__all__ = ["PolicyContract"]

_NAMES = "abcdefgh"


def _situations() -> Iterator[tuple[str, list[str]]]:
    """Every target with every set of running models."""
    for size in range(len(_NAMES) + 1):
        for running in itertools.combinations(_NAMES, size):
            for target in _NAMES:
                yield target, list(running)


class PolicyContract:
    """The contract of `lswap.core.policy.Policy`. Models are called `a` to `h`; some of them should be unknown."""

    def make_policy(self) -> Policy:
        """The policy under test."""
        raise NotImplementedError

    def test_victims_run_and_keep_their_order(self) -> None:
        """The answer is a part of what runs, in its order, without the target."""
        policy = self.make_policy()
        for target, running in _situations():
            victims = policy.evict(target, running)
            assert victims == tuple([name for name in running if name in victims]), (target, running)
            assert target not in victims, (target, running)

    def test_nothing_more_has_to_go(self) -> None:
        """When the victims are gone the target evicts nothing, neither before it runs nor afterwards."""
        policy = self.make_policy()
        for target, running in _situations():
            victims = policy.evict(target, running)
            rest = [name for name in running if name not in victims]
            assert policy.evict(target, rest) == (), (target, running)
            assert policy.evict(target, sorted({target, *rest})) == (), (target, running)

    def test_same_question_same_answer(self) -> None:
        """A policy keeps nothing that changes its mind; a list or a tuple is the same to it."""
        forward, backward = self.make_policy(), self.make_policy()
        answers = [forward.evict(target, running) for target, running in _situations()]
        again = [backward.evict(target, tuple(running)) for target, running in reversed(list(_situations()))]
        assert answers == again[::-1]

    def test_every_victim_has_a_reason(self) -> None:
        """A sentence for each."""
        policy = self.make_policy()
        assert isinstance(policy, ExplainingPolicy)
        for target, running in _situations():
            for victim in policy.evict(target, running):
                assert policy.why(target, victim, running), (target, running)
