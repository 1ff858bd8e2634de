"""Which kinds a plan depends on, and which of them were not read.

A plan from a dump without budgets must not say `ready`: what was not read may stop the drain.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.drain.results import KindNotRead
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
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
    "Lease": "without its Lease a kubelet that died lately looks alive",
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

    def pods(self) -> bool:
        """Whether not even the pods were read, so that a node without any may have many."""
        if self._snapshot.was_read("Pod"):
            return False
        self._kinds.add("Pod")
        return True

    def listed(self) -> list[KindNotRead]:
        """All of them, with why they count."""
        return [KindNotRead(kind, WHY.get(kind, _WHY_OWNER)) for kind in sorted(self._kinds)]
