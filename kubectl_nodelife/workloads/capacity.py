"""Room for replacements, added up over nodes: a necessary condition, quick to ask while packing.

Only sums of cpu, memory and pod slots; whether each pod finds a node of its own is the simulated
scheduler's to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Final, Self

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.quantity import Amounts, amounts

COUNTED: Final = ("cpu", "memory")
PODS: Final = "pods"


_NOTHING: Final[tuple[Amounts, Amounts]] = ({}, {})


class CapacityLeft:
    """Free amounts over the nodes that take pods. `keep`: the share of each that stays free."""

    def __init__(self, keep: float = 0.0) -> None:
        self._keep = keep
        self._free: Amounts = {}
        self._total: Amounts = {}
        self._lost: dict[str, tuple[Amounts, Amounts]] = {}
        """(free, total) of the nodes whose room is lost when they are drained, by name."""

    def copy(self) -> Self:
        """Another one with as much left."""
        other = copy(self)
        other._free, other._total = dict(self._free), dict(self._total)
        other._lost = dict(self._lost)
        return other

    def add(self, node: Node, used: Mapping[str, int], *, until_drained: bool = False) -> None:
        """A node takes pods; `used` of it (by resource, and `pods`) is taken.

        `until_drained`: no more once it is drained itself.
        """
        allocatable = amounts(node.status.allocatable)
        total = {resource: allocatable.get(resource, 0) for resource in (*COUNTED, PODS)}
        free = {resource: amount - used.get(resource, 0) for resource, amount in total.items()}
        if until_drained:
            self._lost[node.name] = (free, total)
        for resource, amount in total.items():
            self._total[resource] = self._total.get(resource, 0) + amount
            self._free[resource] = self._free.get(resource, 0) + free[resource]

    def holds(self, moving: Mapping[str, int], pods: int, node: str = "") -> bool:
        """True if so much for so many pods finds room without the node that they leave.

        The share to keep stays free.
        """
        free, total = self._lost.get(node, _NOTHING)
        for resource in COUNTED:
            wanted = moving.get(resource, 0)
            rest = self._free.get(resource, 0) - free.get(resource, 0) - wanted
            keep = self._keep * (self._total.get(resource, 0) - total.get(resource, 0))
            if wanted and rest < keep:
                return False
        return not pods or self._free.get(PODS, 0) - free.get(PODS, 0) >= pods

    def take(self, moving: Mapping[str, int], pods: int, node: str = "") -> None:
        """They have moved away from the node."""
        free, total = self._lost.pop(node, _NOTHING)
        for resource in COUNTED:
            gone = moving.get(resource, 0) + free.get(resource, 0)
            self._free[resource] = self._free.get(resource, 0) - gone
            self._total[resource] = self._total.get(resource, 0) - total.get(resource, 0)
        self._free[PODS] = self._free.get(PODS, 0) - pods - free.get(PODS, 0)

    def next_wave(self, drained: list[str]) -> None:
        """These nodes are drained, and what is done to them is done. They may take pods again."""


def takes_pods(node: Node) -> bool:
    """True if an ordinary pod may go there: not cordoned, Ready, and without taints against it."""
    ready = node.ready()
    if node.spec.unschedulable or (ready is not None and ready.status != "True"):
        return False
    return not any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints)
