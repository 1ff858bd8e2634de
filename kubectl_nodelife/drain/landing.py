"""A virtual scheduler: where replacements go, and why not elsewhere.

The filters are those of `workloads.scheduling`; this file keeps their counts up while pods come and
go, and chooses. Of the nodes that fit it takes the one with the largest free share of cpu and
memory, looking at all nodes of a small cluster and at a sample of a large one, as the real
scheduler does. Its choice is a likely one, not a promise; that nothing fits is certain. Left out:
preemption, and schedulers other than the default one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.drain.terrain import Terrain, static_key
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts, pod_requests
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints
from kubectl_nodelife.kube.wellknown import (
    LABEL_CONTROLLER_REVISION_HASH,
    NO_SCHEDULE,
    TAINT_NODE_UNSCHEDULABLE,
)
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.interpod import (
    InterPodAffinity,
    affinity_terms,
    anti_affinity_terms,
)
from kubectl_nodelife.workloads.matching import SelectorIndex
from kubectl_nodelife.workloads.nodeinfo import NodeInfo, host_ports
from kubectl_nodelife.workloads.scheduling import Wanted, room_reasons
from kubectl_nodelife.workloads.spread import TopologySpread, hard_constraints
from kubectl_nodelife.workloads.volumes import NO_NEEDS, VolumeNeeds, claim_names, volume_needs

SAMPLE: Final = 3
"""Nodes that fit, among which one is chosen, in a cluster of more than `SMALL` nodes."""
SMALL: Final = 60

UNSCHEDULABLE_TAINT: Final = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)
LABEL_POD_TEMPLATE_HASH: Final = "pod-template-hash"


def cordoned(node: Node) -> Node:
    """The node as `kubectl cordon` and then the node lifecycle controller leave it."""
    taints = add_or_update_taints(node.spec.taints, (UNSCHEDULABLE_TAINT,))
    spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


def uncordoned(node: Node) -> Node:
    """The node without the cordon and its taint."""
    taints = remove_taints(node.spec.taints, (UNSCHEDULABLE_TAINT,))
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


class NoRoom(NamedTuple):
    """Why a pod has nowhere to go: upstream's reasons, and on how many nodes each."""

    reasons: tuple[tuple[str, int], ...]
    nodes: int

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {reason}" for reason, count in self.reasons)
        return f"0/{self.nodes} nodes are available: {counted}"


class Landing:
    """The nodes with their pods, and a choice of one for a pod that waits.

    `changes` grows whenever something happens that may let a pod in that had nowhere to go.
    """

    def __init__(self, terrain: Terrain) -> None:
        self._terrain = terrain
        self._snapshot = terrain.snapshot
        self.nodes: dict[str, Node] = dict(terrain.snapshot.nodes)
        self._changed: set[str] = set()
        self._infos: dict[str, NodeInfo] = {}
        self._gone: set[str] = set()
        self._going: set[str] = set()
        self._new: dict[str, dict[str, Pod]] = {}
        self._wanted: dict[Hashable, Wanted] = {}
        self._static: dict[Hashable, list[str]] = {}
        self._spreads: SelectorIndex[TopologySpread] = SelectorIndex()
        self._spreading = False
        self._interpods: list[InterPodAffinity] = []
        self._next = 0
        self.changes = 0

    # --- what is where ---------------------------------------------------------------------------

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """The nodes are as given from now on: cordoned, uncordoned."""
        for node in nodes:
            self.nodes[node.name] = node
            self._changed.add(node.name)
            self._own(node.name).node = node
        self._static.clear()
        self._wanted.clear()
        self._spreads = SelectorIndex()
        self._spreading = False
        self._interpods = []
        self.changes += 1

    def info(self, name: str) -> NodeInfo:
        """What the node has left."""
        return self._infos.get(name) or self._terrain.info(name)

    def _own(self, name: str) -> NodeInfo:
        """As `info`, to be changed."""
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = self._terrain.info(name).copy()
        return info

    def _placed(self, namespace: str | None) -> Iterator[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node now."""
        pods = self._snapshot.pods
        if namespace is not None:
            pods = self._snapshot.pods_by_namespace.get(namespace, [])
        for pod in pods:
            node = self.nodes.get(pod.spec.node_name)
            if node is None or pod.status.phase in TERMINAL_PHASES:
                continue
            if pod.metadata.uid not in self._gone:
                yield pod, node
        for name, new in self._new.items():
            for pod in new.values():
                if namespace is None or pod.metadata.namespace == namespace:
                    yield pod, self.nodes[name]

    def marked(self, pod: Pod, node_name: str) -> None:
        """The pod on the node was marked deleted: it no longer counts for the spread."""
        node = self.nodes.get(node_name)
        if node is None or pod.metadata.uid in self._going:
            return
        self._going.add(pod.metadata.uid)
        for spread in self._spreads_of(pod):
            spread.change(pod, node, -1)
        self.changes += 1

    def left(self, pod: Pod, node_name: str) -> None:
        """The pod's object is gone from the node."""
        self.marked(pod, node_name)
        uid = pod.metadata.uid
        new = self._new.get(node_name)
        if new is not None and uid in new:
            del new[uid]
        else:
            self._gone.add(uid)
        node = self.nodes.get(node_name)
        if node is None or pod.status.phase in TERMINAL_PHASES:
            return
        self._own(node_name).remove(pod_requests(pod), host_ports(pod))
        for interpod in self._interpods:
            interpod.change(pod, node, -1)
        self.changes += 1

    def place(self, pod: Pod) -> str | None:
        """Bind the pod to the node that the scheduler would take; None where none fits."""
        wanted = self._wanted_by(pod)
        node_name = self._choose(wanted)
        if node_name is not None:
            self._bind(wanted, pod, node_name)
        return node_name

    def _bind(self, wanted: Wanted, pod: Pod, node_name: str) -> None:
        node = self.nodes[node_name]
        self._new.setdefault(node_name, {})[pod.metadata.uid] = pod
        self._own(node_name).add(wanted.requests, wanted.ports)
        for spread in self._spreads_of(pod):
            spread.change(pod, node, 1)
        for interpod in self._interpods:
            interpod.change(pod, node, 1)
        if self._interpods:
            self.changes += 1

    def _spreads_of(self, pod: Pod) -> Iterable[TopologySpread]:
        """The spreads that count the pod, each once though two of its selectors match."""
        if not self._spreading:
            return ()
        return dict.fromkeys(self._spreads.find(pod.namespace, pod.metadata.labels))

    # --- where to --------------------------------------------------------------------------------

    def _choose(self, wanted: Wanted) -> str | None:
        if self._nowhere(wanted):
            return None
        names = self._admitted(wanted.pod)
        enough = len(names) if len(self.nodes) <= SMALL else SAMPLE
        best, best_score, found = None, -1.0, 0
        for name in self._from_next(names):
            info = self.info(name)
            if room_reasons(wanted, info):
                continue
            score = free_share(info, wanted.requests)
            if score > best_score:
                best, best_score = name, score
            found += 1
            if found >= enough:
                break
        return best

    def _from_next(self, names: list[str]) -> Iterator[str]:
        """All of them, starting where the last look ended, as the scheduler goes round."""
        count = len(names)
        start = self._next
        for i in range(count):
            if len(self.nodes) > SMALL:
                self._next = start + i + 1
            yield names[(start + i) % count]

    def candidates(self, pod: Pod, most: int) -> list[str]:
        """Nodes on which the pod fits now, at most so many."""
        wanted = self._wanted_by(pod)
        if self._nowhere(wanted):
            return []
        found: list[str] = []
        for name in self._admitted(pod):
            if not room_reasons(wanted, self.info(name)):
                found.append(name)
                if len(found) >= most:
                    break
        return found

    def no_room(self, pod: Pod) -> NoRoom:
        """Why the pod fits nowhere, counted over all nodes."""
        wanted = self._wanted_by(pod)
        nowhere = self._nowhere(wanted)
        if nowhere:
            return NoRoom(((nowhere, len(self.nodes)),), len(self.nodes))
        reasons: Counter[str] = Counter()
        for name, node in self.nodes.items():
            reason = self._terrain.keeps_off(pod, node)
            if reason is not None:
                reasons[reason] += 1
            else:
                reasons.update(room_reasons(wanted, self.info(name)))
        ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        return NoRoom(tuple(ordered), len(self.nodes))

    def needs(self, pod: Pod) -> VolumeNeeds:
        """What the pod's volumes ask of a node."""
        return self._wanted_by(pod).needs

    def _nowhere(self, wanted: Wanted) -> str:
        """Why no node will do, whatever its state; "" if one may."""
        if wanted.pod.spec.scheduling_gates:
            return "scheduling is blocked due to non-empty scheduling gates"
        if wanted.needs.exclusive and self._claim_in_use(wanted):
            return (
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access"
                " mode already in-use by another pod"
            )
        return wanted.needs.nowhere

    def _claim_in_use(self, wanted: Wanted) -> bool:
        claims = {name for _, name in wanted.needs.exclusive}
        return any(
            pod.metadata.uid != wanted.pod.metadata.uid and claims.intersection(claim_names(pod))
            for pod, _ in self._placed(wanted.pod.namespace)
        )

    def _admitted(self, pod: Pod) -> list[str]:
        """The nodes that the pod may go to, as they are now."""
        key = static_key(pod)
        names = self._static.get(key)
        if names is None:
            changed = self._changed
            names = [name for name in self._terrain.admitted(pod) if name not in changed]
            names += [
                name
                for name in sorted(changed)
                if self._terrain.keeps_off(pod, self.nodes[name]) is None
            ]
            self._static[key] = names
        return names

    def _wanted_by(self, pod: Pod) -> Wanted:
        """What the pod wants, shared by all pods of a template; apart where claims differ."""
        owner = controller_of(pod.metadata)
        labels = pod.metadata.labels or {}
        template = labels.get(LABEL_POD_TEMPLATE_HASH) or labels.get(LABEL_CONTROLLER_REVISION_HASH)
        key = (owner.uid, template) if owner is not None else (pod.metadata.uid, None)
        shared = self._wanted.get(key)
        if shared is None:
            shared = self._wanted[key] = Wanted(pod, self._spread_of(pod), self._interpod_of(pod))
        if not any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes):
            return shared
        needs = volume_needs(pod, self._snapshot, created_anew=True)
        if needs is NO_NEEDS:
            return shared
        return Wanted(pod, shared.spread, shared.interpod, needs, self._snapshot)

    def _spread_of(self, pod: Pod) -> TopologySpread | None:
        if not hard_constraints(pod):
            return None
        spread = TopologySpread(pod, self.nodes.values())
        for placed, node in self._placed(pod.namespace):
            going = placed.metadata.deletion_timestamp is not None
            if not going and placed.metadata.uid not in self._going:
                spread.change(placed, node, 1)
        self._spreading = True
        for selector in spread.selectors():
            self._spreads.add(pod.namespace, selector, spread)
        return spread

    def _interpod_of(self, pod: Pod) -> InterPodAffinity | None:
        terms = affinity_terms(pod) + anti_affinity_terms(pod)
        if not terms and not self._snapshot.anti_affinity_pods:
            return None
        interpod = InterPodAffinity(pod, self._snapshot.namespace_labels)
        if all(t.namespace_selector is None and t.namespaces == {pod.namespace} for t in terms):
            # Its own terms are about its namespace alone; elsewhere only others' terms count.
            for other, node in self._placed(pod.namespace) if terms else ():
                interpod.change(other, node, 1)
            for other, node in self._placed_anti_affinity():
                if not terms or other.namespace != pod.namespace:
                    interpod.change(other, node, 1)
        else:
            for other, node in self._placed(None):
                interpod.change(other, node, 1)
        self._interpods.append(interpod)
        return interpod

    def _placed_anti_affinity(self) -> Iterator[tuple[Pod, Node]]:
        """The pods that keep others away and are on a node now."""
        for pod in self._snapshot.anti_affinity_pods:
            node = self.nodes.get(pod.spec.node_name)
            if node is not None and pod.metadata.uid not in self._gone:
                yield pod, node
        for name, new in self._new.items():
            for pod in new.values():
                if anti_affinity_terms(pod):
                    yield pod, self.nodes[name]


def free_share(info: NodeInfo, requests: Amounts) -> float:
    """What is left of cpu and memory once the pod is there, as a share; LeastAllocated's score."""
    total = 0.0
    for name in ("cpu", "memory"):
        allocatable = info.allocatable.get(name, 0)
        if allocatable:
            used = info.requested.get(name, 0) + requests.get(name, 0)
            total += max(0, allocatable - used) / allocatable
    return total / 2
