"""All models of this machine: their owners, the router before them, and the configuration in force.

Takes another configuration over as a difference: what did not change keeps running and never notices. Read
`lswap.core.difference` for what counts as a change, `lswap.service.reload` for when, `lswap.service.router` next.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from twisted.logger import Logger

from lswap.core.difference import Difference, difference
from lswap.core.events import State
from lswap.core.model import Config
from lswap.core.plan_group import GroupPolicy
from lswap.core.plan_matrix import MatrixPolicy
from lswap.core.policy import Policy
from lswap.core.scheduler import ModelRules, Scheduler
from lswap.service.children import Child
from lswap.service.router import Router
from lswap.service.tools import Tools

__all__ = ["Fleet", "policy_of"]

#: What the eviction of a kept model costs, in a matrix: more than any number of others.
_PRICELESS = 1 << 40


class Fleet:
    """Owns the children; `children` has those of the configuration, and those that are on their way out of it."""

    _log = Logger()

    def __init__(self, config: Config, tools: Tools) -> None:
        self.config = config
        self._tools = tools
        #: Told of each new state of a model, before anything is done about it.
        self.watchers: list[Callable[[str, State], None]] = []
        scheduler = Scheduler(_rules(config), policy_of(config), config.limits.queue)
        self.router = Router(tools.reactor, scheduler, config.router)
        self.children: dict[str, Child] = {}
        self.router.children = self.children
        for model_id in config.models:
            self._add(model_id)

    def take_over(self, config: Config) -> Difference:
        """Make another configuration the one in force. Nothing that runs and did not change is touched."""
        # Whatever could fail comes first: there is no half of a configuration.
        made = difference(self.config, config)
        rules, policy = _rules(config), policy_of(config)
        self.config = config
        outdated = set()
        for model in config.models.values():
            child = self.children.get(model.id)
            if child is None:
                self._add(model.id)
            elif child.adopt(model):
                outdated.add(model.id)
        self.router.name = config.router
        self.router.replace(rules, policy, config.limits.queue, outdated, config.resolve)
        for model_id, child in list(self.children.items()):
            if model_id not in config.models and child.state in (State.STOPPED, State.SHUTDOWN):
                self._part_with(model_id, child)
        return made

    def state_of(self, model_id: str) -> State:
        """The state of a model's process."""
        child = self.children.get(model_id)
        return child.state if child is not None else State.STOPPED

    def _add(self, model_id: str) -> None:
        self.children[model_id] = Child(self.config.models[model_id], self._tools, self._state_changed)

    def _state_changed(self, model_id: str, state: State) -> None:
        for told in self.watchers:
            told(model_id, state)
        self.router.state_changed(model_id, state)
        child = self.children.get(model_id)
        if state is State.STOPPED and model_id not in self.config.models and child is not None:
            self._part_with(model_id, child)

    def _part_with(self, model_id: str, child: Child) -> None:
        """A model that the configuration does not have has ended: drop it once its last hook is over."""

        def drop(_: None) -> None:
            if model_id not in self.config.models and self.children.get(model_id) is child:
                del self.children[model_id]
                child.close()

        child.when_idle().addCallback(drop)


def _rules(config: Config) -> dict[str, ModelRules]:
    return {
        model.id: ModelRules(model.concurrency_limit, config.priorities.get(model.id, 0), model.keep)
        for model in config.models.values()
    }


def policy_of(config: Config) -> Policy:
    """Who has to go for whom, by this configuration."""
    if config.router == "matrix" and config.matrix is not None:
        # So that a set which spares what is kept wins over every one that does not.
        kept = {model.id: _PRICELESS for model in config.models.values() if model.keep}
        return MatrixPolicy(msgspec.structs.replace(config.matrix, costs={**config.matrix.costs, **kept}))
    return GroupPolicy(config.groups)
