"""Draining: the pods that the drain planner lets go are evicted, by the Eviction API, so that no
budget is overridden. The drain is over when they are gone on a list that is newer than the claim,
and the volumes of those that left are detached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.upgrade.claims import NO_END, DrainVerdict
from kubectl_nodelife.controllers.upgrade.counts import foreign_mark
from kubectl_nodelife.controllers.upgrade.gates import closed_gate
from kubectl_nodelife.controllers.upgrade.leaving import give_back, hold
from kubectl_nodelife.controllers.upgrade.marks import NodeMark, NodeState
from kubectl_nodelife.controllers.upgrade.memory import EvictedPod
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.controllers.upgrade.working import begin
from kubectl_nodelife.engine.actions import EvictPod, of_pod
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.storage import PersistentVolumeClaim, VolumeAttachment
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.workloads.scheduling import claim_names

NEVER_NS: Final = 60 * SECOND_NS
"""So long the planner must say that a drain cannot end before the node is given back."""
OWN_GRACE: Final = -1
"""kubectl drain's --grace-period: the pod's own."""


def drain(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """One pass over a node in Draining."""
    name = node.name
    progress, seen = p.progress(name, mark), p.memory.of(name)
    if not node.spec.unschedulable:
        hold(p, node, mark, "uncordoned by another client while it was drained")
        return
    if name in p.document.given_back:
        give_back(p, node, mark, p.document.given_back[name], entry=True)
        return
    if ends := "the run is aborted" if p.is_aborting else foreign_mark(node):
        give_back(p, node, mark, ends, entry=False)
        return
    note_containers(p, name)
    if seen.claim_seen_ns is None:
        seen.claim_seen_ns = p.now_ns
    gate = closed_gate(p)
    if name not in p.document.step.nodes:
        gate = gate or "the run's document does not name it yet"
    verdict = p.ports.drain(p.cache, name, p.names_in(NodeState.DRAINING), p.now_ns)
    if late := {key for key in verdict.moving if _came_after(p.cache.pod(*key), mark)}:
        moving, evictable = (
            tuple(key for key in keys if key not in late)
            for keys in (verdict.moving, verdict.evictable)
        )
        verdict = verdict._replace(moving=moving, evictable=evictable)
    if progress.drained_ns <= p.now_ns:
        progress.drained_ns = p.now_ns + int(verdict.high_seconds * SECOND_NS)
    waiting = _waits_for(p, node, verdict)
    if not waiting and not gate:
        begin(p, node, mark, "drained; the work begins")
        return
    progress.waits_for = waiting or gate
    if p.is_over(progress.armed_ns, p.policy.drain_timeout_ns):
        because = f"the drain did not end: {progress.waits_for}"
        give_back(p, node, mark, because, entry=not gate)
        return
    if verdict.verdict not in NO_END:
        progress.never_since_ns = None
    elif progress.never_since_ns is None:
        progress.never_since_ns = p.now_ns
    if progress.never_since_ns is not None and p.is_over(progress.never_since_ns, NEVER_NS):
        give_back(p, node, mark, verdict.sentence or "the drain cannot end", entry=True)
    elif not gate:
        _evict(p, node, verdict)


def note_containers(p: UpgradePass, name: str) -> None:
    """Remember which containers the node's pods had before the work (S7)."""
    seen = p.memory.of(name)
    seen.containers = (seen.containers or frozenset()) | {
        status.container_id
        for pod in p.cache.pods_on(name)
        for status in pod.status.container_statuses or ()
        if status.container_id
    }


def _came_after(pod: Pod | None, mark: NodeMark) -> bool:
    """True if the pod came after the claim, because it tolerates the cordon: it is kept."""
    born = pod.metadata.creation_timestamp if pod is not None else None
    if pod is None or born is None or not mark.since or born < parse_time(mark.since):
        return False
    cordon = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
    return first_tolerating(pod.spec.tolerations, cordon) is not None


def _waits_for(p: UpgradePass, node: Node, verdict: DrainVerdict) -> str:
    """The reason why the drain is not over, in words; "" where it is."""
    moving = [p.cache.pod(*key) for key in verdict.moving]
    staying = [pod for pod in moving if pod is not None and pod.spec.node_name == node.name]
    if staying:
        named = f"{staying[0].namespace}/{staying[0].name}"
        more = f" and {counted(len(staying) - 1, 'more pod')}" if len(staying) > 1 else ""
        held = verdict.waits or verdict.verdict != "ready"
        return f"{named}{more} still there" + (f": {verdict.sentence}" if held else "")
    if verdict.verdict in NO_END:
        return verdict.sentence or "the drain cannot end"
    listed_ns, claim_seen_ns = p.host.pods_listed_ns, p.memory.of(node.name).claim_seen_ns or 0
    if listed_ns is not None and listed_ns.get(node.name, 0) < claim_seen_ns:
        p.to_list.add(node.name)
        return "pods have not been listed since the claim"
    return _attached(p, node)


def _attached(p: UpgradePass, node: Node) -> str:
    """The volume of a pod that left and that is still attached; those of pods that stay may be."""
    if "VolumeAttachment" in p.host.unread:
        return "whether volumes are still attached cannot be read"
    attached = [
        attachment.spec.source.persistent_volume_name
        for attachment in p.cache.all("VolumeAttachment")
        if isinstance(attachment, VolumeAttachment) and attachment.spec.node_name == node.name
    ]
    pods = p.cache.pods_on(node.name) if attached else ()
    in_use = {volume for pod in pods for volume in _volumes_of(p, pod)}
    left = (f"volume {volume} is still attached" for volume in attached if volume not in in_use)
    return next(left, "")


def _volumes_of(p: UpgradePass, pod: Pod) -> Iterator[str]:
    for name in claim_names(pod):
        claim = p.cache.get("PersistentVolumeClaim", (pod.namespace, name))
        if isinstance(claim, PersistentVolumeClaim) and claim.spec.volume_name:
            yield claim.spec.volume_name


def _evict(p: UpgradePass, node: Node, verdict: DrainVerdict) -> None:
    """Ask for the eviction of what the plan lets go now."""
    grace = int(p.policy.drain.get("gracePeriod", OWN_GRACE))
    for key in verdict.evictable:
        pod = p.cache.pod(*key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            continue
        if pod.spec.node_name != node.name or p.is_under_way("Pod", key):
            continue
        p.decide(
            EvictPod,
            f"{node.name} is taken out for its upgrade",
            **of_pod(pod),
            grace_period_seconds=None if grace < 0 else grace,
        )
        note_eviction(p, pod)


def note_eviction(p: UpgradePass, pod: Pod) -> None:
    """Remember the pod, and whose Ready replacement is to be looked for: none for a pod that had
    ended or was not Ready, nor for a daemon pod whose set is gone.
    """
    owner = controller_of(pod.metadata)
    uid = owner.uid if owner is not None and pod.ready() else ""
    if owner is not None and owner.kind == "DaemonSet":
        uid = uid if p.cache.get("DaemonSet", (pod.namespace, owner.name)) is not None else ""
    p.memory.evicted.pop(pod.key, None)  # one of its name that was evicted before
    p.memory.evicted[pod.key] = EvictedPod(uid, p.now_ns, p.clock_ns)
