"""A simulated kubelet's knowledge of itself and its machine, and of pods that start or stop."""

from __future__ import annotations

from copy import copy

import msgspec

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.node import NodeCondition
from kubectl_nodelife.sim.machine_facts import MachineFacts


class Kubelet:
    """One kubelet: whether it lives, since when and how often it renews, when it posts next, and
    the conditions that it sees. `facts`: what it reports of its machine; None: what the Node shows.
    """

    __slots__ = ("alive", "conditions", "every_ns", "facts", "first_ns", "name", "post_ns")

    def __init__(self, name: str, conditions: dict[str, NodeCondition], every_ns: int) -> None:
        self.name = name
        self.conditions = conditions
        self.every_ns = every_ns
        self.facts: MachineFacts | None = None
        self.alive = False
        self.first_ns = 0
        self.post_ns = 0

    def copy(self) -> Kubelet:
        """Another one that knows the same."""
        other = copy(self)
        other.conditions = dict(self.conditions)
        return other


class Heard(msgspec.Struct, frozen=True):
    """A kubelet that is there already at t=0, and goes on: its next renewal and the interval of
    them, and its next status post that nothing calls for; ns.
    """

    first_ns: int
    every_ns: int
    post_ns: int


class Ending(msgspec.Struct, frozen=True, gc=False):
    """A pod that is being stopped: which one, when it will be gone, and who deleted it."""

    uid: str
    at_ns: int
    cause: Action | None


class Start(msgspec.Struct, frozen=True, gc=False):
    """A pod that is bound and does not run yet: which one, when it will run, and who made it."""

    uid: str
    at_ns: int
    cause: Action | None
