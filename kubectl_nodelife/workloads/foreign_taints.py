"""Taints that other parties set on nodes: whose each is, what it means, who takes it off, and since
when it is odd that it is still there.

A node with one of them that keeps new pods away is not healthy, whatever its kubelet reports. Since
when it is there follows from its timeAdded, from a time in its value (cluster-autoscaler), or, of
taints that a node starts with, from the node's creation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS, human_duration

CREATED: Final = "created"
"""Of a taint that a node starts with."""

_ADDED, _VALUE = "timeAdded", "value"
_LONGEST_EPOCH: Final = 11
"""Digits of a time in seconds, as cluster-autoscaler writes it."""


class TaintNote(NamedTuple):
    """What is known of a taint's key. `owner`: whose it is; `word`: the node's state in few words;
    `ends`: who takes it off, and when; `odd_ns`: after which time something is wrong, 0: it may
    stay; `wrong`: what then; `since`: what says since when it is there, besides its timeAdded.
    """

    owner: str
    word: str
    ends: str
    odd_ns: int = 0
    wrong: str = ""
    since: str = _ADDED


_CLOUD: Final = TaintNote(
    "a cloud controller",
    "uninitialized",
    "the cloud controller manager takes it off once it has initialized the node",
    5 * MINUTE_NS,
    "no cloud controller works (or it fails)",
    CREATED,
)
_CSI: Final = TaintNote(
    "a CSI driver",
    "driver not ready",
    "its node plugin takes it off once it runs",
    10 * MINUTE_NS,
    "the plugin's pod does not run there, or fails",
    CREATED,
)
_KARPENTER_LEAVES: Final = TaintNote(
    "Karpenter",
    "disrupted",
    "Karpenter drains the node and deletes it, or takes it off if it gives up",
    HOUR_NS,
    "Karpenter waits for something, or does not work",
)

NOTES: Final[dict[str, TaintNote]] = {
    "node.cloudprovider.kubernetes.io/uninitialized": _CLOUD,
    "node.cloudprovider.kubernetes.io/shutdown": TaintNote(
        "a cloud controller",
        "shut down",
        "the cloud controller takes it off when the machine runs again",
    ),
    wellknown.TAINT_NODE_OUT_OF_SERVICE: TaintNote(
        "a person's out-of-service taint",
        "out of service",
        "who set it takes it off once the machine is back: no controller does",
    ),
    "node.cluster.x-k8s.io/uninitialized": TaintNote(
        "Cluster API",
        "uninitialized",
        "Cluster API takes it off once its machine controller has labelled the node",
        10 * MINUTE_NS,
        "its machine controller does not reach this cluster, or fails",
        CREATED,
    ),
    "node.kubernetes.io/network-unavailable": TaintNote(
        "the network plugin",
        "network unavailable",
        "it ends with the condition NetworkUnavailable, which the network plugin or the cloud's "
        "route controller sets",
        5 * MINUTE_NS,
        "the network plugin does not work there",
    ),
    "ToBeDeletedByClusterAutoscaler": TaintNote(
        "cluster-autoscaler",
        "marked for deletion",
        "cluster-autoscaler deletes the node, or takes it off if it gives up",
        30 * MINUTE_NS,
        "still there, so stale: cluster-autoscaler failed or was restarted, and has not cleaned up",
        _VALUE,
    ),
    "DeletionCandidateOfClusterAutoscaler": TaintNote(
        "cluster-autoscaler",
        "candidate for deletion",
        "cluster-autoscaler takes it off when the node is needed again",
        2 * HOUR_NS,
        "still there, so stale: cluster-autoscaler has not cleaned up",
        _VALUE,
    ),
    "karpenter.sh/unregistered": TaintNote(
        "Karpenter",
        "unregistered",
        "Karpenter takes it off when it has registered the node",
        15 * MINUTE_NS,
        "Karpenter has not registered it: it may not find the node's claim",
        CREATED,
    ),
    "karpenter.sh/disrupted": _KARPENTER_LEAVES,
    "karpenter.sh/disruption": _KARPENTER_LEAVES,
    "node.cilium.io/agent-not-ready": TaintNote(
        "Cilium",
        "agent not ready",
        "Cilium takes it off once its agent runs there",
        5 * MINUTE_NS,
        "the agent's pod does not run there, or fails",
        CREATED,
    ),
    "ebs.csi.aws.com/agent-not-ready": _CSI,
    "efs.csi.aws.com/agent-not-ready": _CSI,
    "fsx.csi.aws.com/agent-not-ready": _CSI,
    "weave.works/kured-node-reboot": TaintNote(
        "kured", "waits for its reboot", "kured takes it off after the reboot"
    ),
    "medik8s.io/drain": TaintNote(
        "medik8s", "maintained", "medik8s takes it off when the maintenance is over"
    ),
    "aws-node-termination-handler/spot-itn": TaintNote(
        "the AWS node termination handler", "about to be interrupted", "the machine goes"
    ),
    "cloud.google.com/impending-node-termination": TaintNote(
        "Google Cloud", "about to be terminated", "the machine goes, or is started again"
    ),
}


class ForeignMark(NamedTuple):
    """A taint of another party on a node. `closed`: new pods keep away; `sentence`: what it means,
    for how long it has been there, who takes it off, and what is wrong where it is odd."""

    owner: str
    closed: bool
    odd: bool
    sentence: str


def foreign_marks(node: Node, now_ns: int) -> list[ForeignMark]:
    """What other parties' taints on the node say, and a taint of a cordon that is off."""
    return [
        mark
        for taint in node.spec.taints
        if (mark := mark_of_taint(node, taint, now_ns)) is not None
    ]


def note_of(key: str) -> TaintNote | None:
    """What is known of a taint's key."""
    return NOTES.get(key)


def mark_of_taint(node: Node, taint: Taint, now_ns: int) -> ForeignMark | None:
    """What one taint says; None for one of the cluster itself, or of nobody known."""
    closed = taint.effect in (wellknown.NO_SCHEDULE, wellknown.NO_EXECUTE)
    if taint.key == wellknown.TAINT_NODE_UNSCHEDULABLE and not node.spec.unschedulable:
        sentence = (
            f"{taint} is stale, the cordon is off: node-lifecycle takes it off with the next "
            "update of the Node (a kubelet posts at least every 5 minutes)"
        )
        return ForeignMark("a cordon that is off", closed, True, sentence)
    note = NOTES.get(taint.key)
    if note is None:
        return None
    since_ns, value = _since(node, taint, note), ""
    if note.since == _VALUE and taint.value:
        value = f" (value {taint.value:.40})"
    lasted = f" for {human_duration(now_ns - since_ns)}" if since_ns is not None else ""
    odd = bool(note.odd_ns) and since_ns is not None and now_ns - since_ns > note.odd_ns
    if note.since == _VALUE and since_ns is not None:
        lasted = f" {human_duration(now_ns - since_ns)} ago{value}"
    end = f": {note.wrong}" if odd else f": {note.ends}"
    return ForeignMark(note.owner, closed, odd, f"{note.word}{lasted}{end} ({taint.key})")


def _since(node: Node, taint: Taint, note: TaintNote) -> int | None:
    if taint.time_added is not None:
        return int(taint.time_added)
    if note.since == _VALUE and taint.value.isdecimal() and len(taint.value) <= _LONGEST_EPOCH:
        return int(taint.value) * SECOND_NS
    created = node.metadata.creation_timestamp
    return int(created) if note.since == CREATED and created is not None else None
