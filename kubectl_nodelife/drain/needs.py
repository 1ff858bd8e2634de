"""Which kinds a plan depends on, and which of them were not read.

A plan from a dump without budgets must not say `ready`: what was not read may stop the drain.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.drain.results import KindNotRead
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.unreadable import Unreadable
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.eviction import can_ignore_budgets
from kubectl_nodelife.workloads.volumes import claim_names

OWNERS: Final = frozenset(
    {"ReplicaSet", "Deployment", "StatefulSet", "ReplicationController", "Job", "DaemonSet"}
)
ADMISSION: Final = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)

WHY: Final = {
    "Pod": "without pods there is nothing to say about a drain",
    "PodDisruptionBudget": "a budget may hold evictions up or stop them",
    "Namespace": "nothing can be evicted in a namespace that is being deleted",
    "Lease": "without its Lease a kubelet that stopped lately seems to run",
    "PersistentVolumeClaim": "a claim may tie a replacement to this node or to its zone",
    "PersistentVolume": "a volume may tie a replacement to this node or to its zone",
} | dict.fromkeys(ADMISSION, "it may refuse evictions")
_WHY_OWNER: Final = "it decides whether and when pods are replaced, and what budgets expect"


def kinds_needed(pod: Pod, options: DrainOptions) -> set[str]:
    """The kinds that decide whether this pod goes, and what comes of it."""
    kinds = {"Lease", *ADMISSION}
    if not options.disable_eviction:
        kinds.add("Namespace")
        if not can_ignore_budgets(pod):
            kinds.add("PodDisruptionBudget")
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind in OWNERS:
        kinds.add(owner.kind)
    if claim_names(pod):
        kinds |= {"PersistentVolumeClaim", "PersistentVolume"}
    return kinds


def _hangs(pod: Pod, found: Unreadable, kinds: set[str], budgets: bool) -> bool:
    """True if the pod's answer depends on an object that cannot be read."""
    namespace, name = found.key
    owner = controller_of(pod.metadata)
    owns = (owner.kind, (pod.namespace, owner.name)) if owner is not None else None
    if found.kind == "Pod":  # one more of the same owner, or one that counts for the same budget
        return owns in found.related or (budgets and namespace == pod.namespace)
    if found.kind not in kinds:
        return False
    if found.kind == "Lease":
        return name == pod.spec.node_name
    if found.kind == "Namespace":
        return name == pod.namespace
    if found.kind in OWNERS:
        return (found.kind, found.key) == owns
    return namespace in ("", pod.namespace)


class Unread:
    """The kinds that were needed and not read, gathered over all pods."""

    def __init__(self, snapshot: PlanSnapshot) -> None:
        self._snapshot = snapshot
        self._kinds: set[str] = set()

    def of(self, pod: Pod, options: DrainOptions) -> list[str]:
        """Those that this pod's answer hangs on."""
        if self._snapshot.kinds_read is None:
            return []
        missing = kinds_needed(pod, options) - self._snapshot.kinds_read
        self._kinds |= missing
        return sorted(missing)

    def unreadable_for(self, pod: Pod, budgets: bool, options: DrainOptions) -> list[str]:
        """The objects that cannot be read and that this pod's answer hangs on.

        `budgets`: whether a budget matches the pod, whose counts then hang on all pods that it may
        match.
        """
        if not self._snapshot.unreadable:
            return []
        kinds = kinds_needed(pod, options)
        return [
            str(found)
            for found in self._snapshot.unreadable
            if _hangs(pod, found, kinds, budgets and not options.disable_eviction)
        ]

    def unreadable_on(self, node: str) -> list[str]:
        """The pods of the node that cannot be read; whether they go is not known."""
        bound = ("Node", ("", node))
        return [
            str(found)
            for found in self._snapshot.unreadable
            if found.kind == "Pod" and bound in found.related
        ]

    def pods(self) -> bool:
        """True if not even the pods were read, so that a node without any may have many."""
        if self._snapshot.was_read("Pod"):
            return False
        self._kinds.add("Pod")
        return True

    def listed(self) -> list[KindNotRead]:
        """All of them, with why they count."""
        return [KindNotRead(kind, WHY.get(kind, _WHY_OWNER)) for kind in sorted(self._kinds)]
