"""Observers of a simulated upgrade that judge from outside, by what the API server is told.

They know the policy's numbers and the marks on nodes, and none of the controller's code: what is
available, what a floor is, and whose cordon a node has is worked out here once more.
"""

import json
import math
from collections import Counter
from typing import Any

from kubectl_nodelife.engine.actions import Action, DeletePod, EvictPod, SetZoneState
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.world import World

ANNOTATION = "nodelife.dev/upgrade"
UNPROVEN = "nodelife.dev/unproven"
OURS = ("Draining", "Working", "Settling", "Proving")
ZONE = "topology.kubernetes.io/zone"
MAY_FOLLOW = {
    "": {"Draining", "Settling"},
    "Draining": {"Working", "Held", ""},
    "Working": {"Working", "Settling", "Failed", "Held", ""},
    "Settling": {"Proving", "Settling", "Failed", "Held", ""},
    "Proving": {"Soaking", "Failed", "Held", ""},
    "Soaking": {"Done", "Failed", ""},
    "Done": {""},
    "Failed": {"Draining", "Settling", ""},
    "Held": {"Draining", "Settling", ""},
}
"""Section 4 of the specification: the states that may follow each; "" is a node without our mark.
Marks go at the end of a run, by `clean`, by a proof's end, and where a drain is given back."""


def mark_of(node: Node | None) -> dict[str, Any]:
    """The node's annotation, as JSON; empty where it has none or an unreadable one."""
    text = ((node.metadata.annotations if node is not None else None) or {}).get(ANNOTATION, "{}")
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}


def is_available(node: Node) -> bool:
    """Section 6 of the specification, on a node alone."""
    ready = node.ready()
    if ready is None or ready.status != "True" or node.spec.unschedulable:
        return False
    keys = {t.key for t in node.spec.taints if t.effect in ("NoSchedule", "NoExecute")}
    return not any(key.startswith("node.kubernetes.io/") or key == UNPROVEN for key in keys)


def _is_closed(node: Node) -> bool:
    """True if ordinary pods are kept off it."""
    return node.spec.unschedulable or any(t.key == UNPROVEN for t in node.spec.taints)


class Judges:
    """Watches a world; `faults` are the sentences of what broke an invariant.

    `floor` and `most`: how many nodes must be available, and may be unavailable, of the pool.
    `persons`: nodes that a person cordoned, until a person uncordons them; `meddled`: nodes whose
    marks of ours a person edited, from which the run keeps its hands; `opened`: nodes that a person
    uncordoned or untainted, until the run closes them again; `told_late_until_ns`: until
    then the leader does not see what others do, and cannot count it.
    """

    def __init__(self, world: World, *, min_available: int, max_unavailable: int) -> None:
        self._api = world.api
        self._base = len(world.api.store.nodes)
        self._floor, self._most = min_available, max_unavailable
        self.faults: list[str] = []
        self.persons: set[str] = set()
        self.others_down: set[str] = set()
        self.meddled: set[str] = set()
        self.opened: set[str] = set()
        self.released: set[str] = set()
        self.told_late_until_ns = 0
        self.seen: Counter[str] = Counter()
        self._writers: dict[int, object] = {}
        self._epochs: dict[str, int] = {}
        self._newcomers: set[str] = set()
        self._acting = False
        world.api.on_node(self._node_changed)
        world.api.on_pod(self._pod_changed)

    def fault(self, invariant: str, what: str) -> None:
        seconds = self._api.now_ns // 1_000_000_000 % 100_000
        self.faults.append(f"{invariant} at {seconds}: {what}")

    # I1, I4, I7 and claims

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        if old is None and new is not None:
            self._newcomers.add(new.uid)
        if old is None or new is None:
            return
        before, after = mark_of(old), mark_of(new)
        if cause is not None and cause.controller == "upgrade":
            self._ours(old, new, before, after)
        if after.get("state") != before.get("state"):
            self.seen[str(after.get("state", "none"))] += 1
            self.released |= {new.name} if after.get("state") == "Soaking" else set()

    def _ours(self, old: Node, new: Node, before: dict[str, Any], after: dict[str, Any]) -> None:
        name = new.name
        if _is_closed(new) and not _is_closed(old):
            self.opened.discard(name)
        if is_available(old) and not is_available(new) and before.get("state") not in OURS:
            self._taken(name, str(after.get("state")))
        if old.spec.unschedulable and not new.spec.unschedulable and name in self.persons:
            self.fault("I4", f"the cordon of {name} was a person's")
        was, became = str(before.get("state", "")), str(after.get("state", ""))
        if was != became and became not in MAY_FOLLOW[was]:
            self.fault("I10", f"{name} goes from {was} to {became}")
        epoch = int(after.get("epoch") or before.get("epoch") or 0)
        if epoch < self._epochs.get(name, 0) and after:
            self.fault("I7", f"{name} is written with epoch {epoch} after {self._epochs[name]}")
        self._epochs[name] = max(epoch, self._epochs.get(name, 0))

    def _taken(self, name: str, state: str) -> None:
        """An available node was taken out of service by the run."""
        nodes = self._api.store.nodes
        free = sum(1 for n in nodes.values() if is_available(n) and n.name != name)
        base = max(self._base, len(nodes))
        self.seen["taken"] += 1
        if self._api.now_ns <= self.told_late_until_ns:
            return
        if free < self._floor:
            self.fault("I1", f"{state} {name} leaves {free} of {base} available, not {self._floor}")
        if state == "Draining" and base - free > self._most:
            self.fault("I1", f"{name} makes {base - free} unavailable, not {self._most}")

    def wrote(self, action: Action, epoch: int, leader: object) -> None:
        """A leader's call reaches the API server."""
        known = self._writers.setdefault(epoch, leader)
        if known is not leader:
            self.fault("I7", f"two leaders write with epoch {epoch}")
        if isinstance(action, DeletePod):
            self.fault("I9", f"{action.pod} is deleted past its budgets")

    # I2

    def decided(self, action: Action) -> None:
        """What a controller of the cluster decided."""
        if not isinstance(action, SetZoneState) or action.to in ("Normal", "Initial"):
            return
        zone = action.zone.replace("\0", "").split(":")[-1].strip()
        nodes = [
            n for n in self._api.store.nodes.values() if (n.metadata.labels or {}).get(ZONE) == zone
        ]
        down = [n for n in nodes if (r := n.ready()) is None or r.status != "True"]
        others = [n for n in down if n.name in self.others_down or not mark_of(n)]
        if len(others) <= 1:
            names = ", ".join(n.name for n in down)
            self.fault("I2", f"zone {zone} becomes {action.to} by us: {names} are not Ready")

    # I3, I9

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
            self._bound(new)
        if (
            isinstance(cause, EvictPod)
            and new is not None
            and old is not None
            and old.metadata.deletion_timestamp is None
        ):
            self._evicted(old)

    def _bound(self, pod: Pod) -> None:
        node = self._api.store.nodes.get(pod.spec.node_name)
        if (
            node is None
            or node.name in self.meddled | self.opened
            or mark_of(node).get("state") not in OURS
        ):
            return
        keys = {t.key for t in pod.spec.tolerations}
        tolerant = {"", "node.kubernetes.io/unschedulable", UNPROVEN} & keys
        if not tolerant and node.uid not in self._newcomers:
            self.fault("I3", f"{pod.name} is bound to {node.name} between claim and release")

    def _evicted(self, pod: Pod) -> None:
        self.seen["evicted"] += 1
        for budget in self._api.store.all("PodDisruptionBudget"):
            if isinstance(budget, PodDisruptionBudget) and _matches(budget, pod):
                self._spent(budget, pod)

    def _spent(self, budget: PodDisruptionBudget, gone: Pod) -> None:
        matching = [
            p
            for p in self._api.store.pods.values()
            if p.namespace == budget.namespace and _matches(budget, p)
        ]
        healthy = [
            p
            for p in matching
            if p.uid != gone.uid and p.metadata.deletion_timestamp is None and p.ready()
        ]
        wanted = budget.spec.min_available
        if wanted is None:
            spared = budget.spec.max_unavailable
            assert isinstance(spared, int), "the budgets say how many, and no percentage"
            wanted = budget.status.expected_pods - spared
        assert isinstance(wanted, int), "the budgets say how many, and no percentage"
        if gone.ready() and len(healthy) < wanted:
            self.fault("I9", f"{gone.name} leaves {len(healthy)} healthy, budget wants {wanted}")

    # I5

    def leftovers(self, nodes: dict[str, Node], *, released: bool) -> list[str]:
        """Marks of ours that should be gone. `released`: those of Failed and Held too."""
        left = []
        for node in nodes.values():
            if node.name in self.meddled:
                continue
            state = mark_of(node).get("state")
            if not released and state in ("Failed", "Held"):
                continue
            meta = node.metadata
            keys = [*(meta.annotations or {}), *(meta.labels or {})]
            keys += [taint.key for taint in node.spec.taints]
            ours = [k for k in keys if k.startswith("nodelife.dev/") or k in _SHIELD]
            if node.spec.unschedulable and node.name not in self.persons:
                ours.append("cordon")
            left += [f"I5: {node.name} keeps {', '.join(ours)}"] if ours else []
        return left


_SHIELD = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
    "remediation.medik8s.io/exclude-from-remediation",
)


def _matches(budget: PodDisruptionBudget, pod: KubeObject) -> bool:
    selector = budget.spec.selector
    wanted = (selector.match_labels if selector is not None else None) or {}
    labels = pod.metadata.labels or {}
    return bool(wanted) and all(labels.get(k) == v for k, v in wanted.items())


def floor_of(count: int, percent: int) -> int:
    """A percentage rounded up, as a budget's minAvailable."""
    return math.ceil(count * percent / 100)
