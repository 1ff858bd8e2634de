"""What the scheduler's scores ask about a pod and a node: preferences, and the owner's other pods.

Follows the plugins TaintToleration (PreferNoSchedule), NodeAffinity (preferred terms) and
PodTopologySpread (its default constraints, which count the pods of one owner). Left out: soft
constraints that a pod writes itself, and preferred affinity between pods.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import Final

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches_node_selector_term
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.wellknown import PREFER_NO_SCHEDULE
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.scheduler_cache import SchedulerCache
from kubectl_nodelife.workloads.scoring import SMALL, Preference, Siblings

_NONE: Final = Preference()
_NOBODY: Final[Siblings] = {}


def preference_of(pod: Pod, node: Node) -> Preference:
    """What the pod thinks of the node. Follows `countIntolerableTaintsPreferNoSchedule` and
    NodeAffinity's `Score`."""
    taints = sum(
        taint.effect == PREFER_NO_SCHEDULE and first_tolerating(pod.spec.tolerations, taint) is None
        for taint in node.spec.taints
    )
    affinity = pod.spec.affinity
    of_nodes = affinity.node_affinity if affinity is not None else None
    terms = of_nodes.preferred_during_scheduling_ignored_during_execution if of_nodes else ()
    weight = sum(t.weight for t in terms if matches_node_selector_term(t.preference, node))
    return Preference(taints, -weight) if taints or weight else _NONE


class OwnersPods:
    """How many pods of each owner are on each node; counted when first asked for.

    In a cluster of more than `SMALL` nodes a few nodes are compared, and this is not looked at.
    """

    def __init__(self) -> None:
        self._on: dict[str, Counter[str]] | None = None

    def fork(self) -> OwnersPods:
        """Others with the same counts."""
        other = OwnersPods()
        if self._on is not None:
            self._on, other._on = fork_dict(self._on, copy)
        return other

    def siblings(self, pod: Pod, cache: SchedulerCache) -> Siblings:
        """Node -> pods of the pod's owner there."""
        owner = controller_of(pod.metadata)
        if owner is None or len(cache.nodes) > SMALL:
            return _NOBODY
        if self._on is None:
            self._on = {}
            for placed, node in cache.placed(None):
                if placed.status.phase not in TERMINAL_PHASES:
                    self._count(placed, node.name, 1)
        return self._on.get(owner.uid, _NOBODY)

    def moved(self, pod: Pod | None, before: str, after: str) -> None:
        """The pod takes room on another node, or on none."""
        if pod is not None and self._on is not None:
            if before:
                self._count(pod, before, -1)
            if after:
                self._count(pod, after, 1)

    def _count(self, pod: Pod, node: str, by: int) -> None:
        owner = controller_of(pod.metadata)
        if owner is not None and self._on is not None:
            self._on.setdefault(owner.uid, Counter())[node] += by
