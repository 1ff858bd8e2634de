"""Decides if a pod stuck on an unreachable node may be force-deleted, in one text for all verbs.

`drain-plan`, `explain`, `audit` and `repair` print what is decided here, and nothing else about it.
Nothing that the API shows proves that a machine is off. A node whose kubelet no longer posts may be
partitioned, with its containers running; then a force delete starts a second copy beside the first.
So the advice lists what was found, what an operator has to verify, and how to undo each step.

`NodeReadiness` is what it is decided by: if the node is Ready, and its last heartbeat.
`kubelet_reports` decides once if its kubelet still reports, for all code that judges pods which
depend on it.
"""

from __future__ import annotations

import shlex
from typing import Final, Protocol

import msgspec

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod, is_mirror_pod
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, human_duration
from kubectl_nodelife.kube.wellknown import FALSE, TAINT_NODE_OUT_OF_SERVICE, TRUE, UNKNOWN
from kubectl_nodelife.kube.wellknown import UNKNOWN as WORD_UNKNOWN

STATUS_EVERY_NS: Final = 5 * MINUTE_NS
"""How often a kubelet with a Lease posts what has not changed (`nodeStatusReportFrequency`)."""

TAINT_NODE_SHUTDOWN: Final = "node.cloudprovider.kubernetes.io/shutdown"
OUT_OF_SERVICE: Final = f"{TAINT_NODE_OUT_OF_SERVICE}=nodeshutdown:NoExecute"

REMOVED_BY_THE_CLUSTER: Final = frozenset(
    {"batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"}
)
"""Finalizers that controllers of the cluster itself remove as soon as the pod has ended."""

_TAKES_OFF: Final = {
    "batch.kubernetes.io/job-tracking": "the Job controller",
    "foregroundDeletion": "the garbage collector",
    "orphan": "the garbage collector",
}

POD_GC_NS: Final = 120 * SECOND_NS
"""So long after its time pod-gc has deleted a pod of a missing node, where nothing refuses it: it
waits 40 s after it saw the node gone, and passes every 20 s."""

NOT_NEEDED: Final = "not-needed"
AFTER_POWER_OFF: Final = "only-after-power-off"
NEVER: Final = "never"
UNAVAILABLE: Final = "unavailable"


class NodeReadiness(msgspec.Struct, frozen=True, gc=False):
    """The state of a node by which its pods are judged, worked out once a node.

    `read` False: nodes were not read at all, so nothing is known. `exists` False: there is no such
    node. `ready` is the Ready condition's status, "" without one, which says neither that the node
    is up nor that it is down. Instants in ns.
    """

    name: str
    read: bool = True
    exists: bool = True
    ready: str = ""
    ready_reason: str = ""
    ready_since_ns: int | None = None
    heartbeat_ns: int | None = None
    heartbeat_from_lease: bool = False
    taints: tuple[Taint, ...] = ()
    uid: str = ""
    resource_version: str = ""

    @property
    def is_ready(self) -> bool:
        """The node exists and its Ready condition is True."""
        return self.ready == TRUE

    @property
    def is_down(self) -> bool:
        """The node is reported or marked as not Ready, or does not exist."""
        return self.read and (not self.exists or self.ready in (FALSE, WORD_UNKNOWN))

    @property
    def heartbeat_field(self) -> str:
        """Where the heartbeat was read."""
        if self.heartbeat_from_lease:
            return f"lease {self.name}: spec.renewTime"
        return f"node {self.name}: status.conditions[Ready].lastHeartbeatTime"

    def has_taint(self, key: str) -> bool:
        """True if the node has a taint of that key, whatever its effect."""
        return any(taint.key == key for taint in self.taints)


class ForceAdvice(msgspec.Struct, frozen=True, rename="camel"):
    """The two ways to force a pod away, and what to know before. Each way is `not-needed`,
    `only-after-power-off`, `never`, or `unavailable` in this release. `sentence`: what to do."""

    sentence: str
    force_delete: str
    out_of_service_taint: str
    evidence_found: tuple[str, ...]
    evidence_missing: tuple[str, ...]
    hazards: tuple[str, ...]
    commands: tuple[str, ...]
    undo: tuple[str, ...]


class Release(msgspec.Struct, frozen=True):
    """The parts of the release and its settings that the advice depends on.

    `collects_out_of_service`: whether pod-gc deletes the terminating pods of a node with the
    out-of-service taint. `heartbeat_ns`: how old a kubelet's heartbeat may be.
    """

    collects_out_of_service: bool = True
    heartbeat_ns: int = 50 * SECOND_NS


class ReleaseSettings(Protocol):
    """The settings of the cluster's controllers, as far as the advice depends on them."""

    @property
    def node_monitor_grace_period_ns(self) -> int:
        """How long a kubelet may not report."""

    def gate(self, name: str) -> bool:
        """True if the feature gate is on."""


def node_readiness(node: Node, renewed_ns: int | None) -> NodeReadiness:
    """The health of a node that exists. Its heartbeat is when its Lease was renewed, or where that
    is not known (None) the one of the Ready condition."""
    ready = node.ready()
    posted: int | None = None if ready is None else ready.last_heartbeat_time
    return NodeReadiness(
        name=node.name,
        ready="" if ready is None else ready.status,
        ready_reason="" if ready is None else ready.reason,
        ready_since_ns=None if ready is None else ready.last_transition_time,
        heartbeat_ns=posted if renewed_ns is None else renewed_ns,
        heartbeat_from_lease=renewed_ns is not None,
        taints=node.spec.taints,
        uid=node.uid,
        resource_version=node.metadata.resource_version,
    )


def kubelet_reports(node: NodeReadiness, grace_ns: int, now_ns: int) -> bool:
    """True if the kubelet reports: by its heartbeat, or by the Ready condition where none was read.

    `grace_ns`: how old a heartbeat may be. Of a node that is Ready the status alone may be older by
    the period in which a kubelet with a Lease repeats it.
    """
    if not node.exists:
        return False
    if node.heartbeat_ns is None:
        return node.ready in (TRUE, FALSE)
    if node.is_ready and not node.heartbeat_from_lease:
        grace_ns += STATUS_EVERY_NS
    return now_ns - node.heartbeat_ns < grace_ns


def release_of(settings: ReleaseSettings) -> Release:
    """The settings that the advice depends on."""
    return Release(
        collects_out_of_service=settings.gate("NodeOutOfServiceVolumeDetach"),
        heartbeat_ns=settings.node_monitor_grace_period_ns,
    )


def force_advice(pod: Pod, node: NodeReadiness, release: Release, now_ns: int) -> ForceAdvice:
    """The advice for a pod that is terminating for too long."""
    alive = kubelet_reports(node, release.heartbeat_ns, now_ns)
    collected = node.has_taint(TAINT_NODE_OUT_OF_SERVICE) and release.collects_out_of_service
    gone = not pod.spec.node_name or not node.exists
    if gone or is_mirror_pod(pod) or (collected and not node.is_ready):
        force = taint = NOT_NEEDED
    elif alive:
        force = taint = NEVER
    else:
        force = taint = AFTER_POWER_OFF
    if not release.collects_out_of_service:
        taint = UNAVAILABLE
    asked = force == AFTER_POWER_OFF
    return ForceAdvice(
        sentence=_sentence(pod, node, force, taint, now_ns),
        force_delete=force,
        out_of_service_taint=taint,
        evidence_found=_found(node, now_ns),
        evidence_missing=_missing(node, alive) if asked or alive else (),
        hazards=_hazards(pod),
        commands=_commands(pod, node, taint) if asked else (),
        undo=_undo(pod, node, taint) if asked else (),
    )


def finalizers_that_hold(pod: Pod) -> list[str]:
    """The finalizers that keep the object of a pod that has ended."""
    finalizers = pod.metadata.finalizers
    return [f for f in finalizers if f not in REMOVED_BY_THE_CLUSTER] if finalizers else []


def _sentence(pod: Pod, node: NodeReadiness, force: str, taint: str, now_ns: int) -> str:
    """The advice about the pod, in one sentence that every verb prints."""
    gone = not node.exists and bool(pod.spec.node_name)
    if finalizers := finalizers_that_hold(pod):
        return f"forcing does not help: the owner of {', '.join(finalizers)} must take it off"
    late_ns = _overdue_ns(pod, now_ns)
    if pod.metadata.finalizers and gone and late_ns > POD_GC_NS:
        return _held(pod, node, late_ns)
    if force == NOT_NEEDED and is_mirror_pod(pod) and node.exists and node.is_ready:
        return (
            f"leave it: it shows a static pod of {node.name}, whose kubelet makes the object anew, "
            "and the container runs on; a taint that it does not tolerate deletes it over and over:"
            " give its manifest a toleration"
        )
    if force == NOT_NEEDED and is_mirror_pod(pod) and node.exists:
        return (
            f"leave it: it shows a static pod of {node.name}, whose kubelet makes the object anew "
            "when it is back; repair the node, or delete it"
        )
    if gone and late_ns > POD_GC_NS:
        return (
            f"overdue: node {node.name} does not exist, and pod-gc should have deleted the pod "
            f"{human_duration(late_ns)} ago; something refuses it (the log of "
            "kube-controller-manager says what; duplicate container ports are one cause): once "
            f"that machine is known to be off, {_force_command(pod)}"
        )
    if force == NOT_NEEDED:
        why = "is out of service" if node.exists else "does not exist"
        why = f"node {node.name} {why}" if pod.spec.node_name else "no node has it"
        return f"nothing has to be forced: {why}, so pod-gc deletes the pod"
    if force == NEVER:
        return f"do not force-delete: {_machine_is_on(node, now_ns)}"
    off = f"only once the machine of {node.name} is known to be off:"
    if taint == AFTER_POWER_OFF:
        return f"{off} {_taint_command(node)}, and pod-gc deletes its terminating pods"
    return f"{off} {_force_command(pod)}"


def _overdue_ns(pod: Pod, now_ns: int) -> int:
    """For how long the pod's grace period has been over; negative while it lasts or none runs."""
    deleted_ns = pod.metadata.deletion_timestamp
    return -1 if deleted_ns is None else now_ns - int(deleted_ns)


def _held(pod: Pod, node: NodeReadiness, late_ns: int) -> str:
    """A pod that pod-gc deletes in vain: a finalizer of a controller of the cluster holds it."""
    finalizers = pod.metadata.finalizers
    whose = ", ".join(dict.fromkeys(_TAKES_OFF[name] for name in finalizers))
    held = f"{', '.join(finalizers)} has held it for {human_duration(late_ns)}"
    return (
        f"forcing does not help: {held}, and pod-gc, which deletes pods of the missing node "
        f"{node.name}, cannot take that off; {whose} should have (look at the log of "
        "kube-controller-manager)"
    )


def _machine_is_on(node: NodeReadiness, now_ns: int) -> str:
    reported = "reports"
    if node.heartbeat_ns is not None:
        reported = f"reported {human_duration(now_ns - node.heartbeat_ns)} ago"
    why = f"the kubelet of {node.name} {reported}, so the machine is on"
    if node.ready == FALSE:
        return f"{why}; repair the node, whose kubelet says why it is not ready"
    if node.ready == UNKNOWN:
        return f"{why}; wait, the node is coming back"
    return f"{why}; look there at its containers, its volumes and the kubelet's log"


def _found(node: NodeReadiness, now_ns: int) -> tuple[str, ...]:
    if not node.exists:
        return (f"there is no node {node.name}",)
    if not node.name:
        return ("no node has it",)
    facts = [f"node {node.name} is Ready={node.ready} ({node.ready_reason or 'no reason'})"]
    if node.heartbeat_ns is not None:
        age = human_duration(now_ns - node.heartbeat_ns)
        facts.append(f"its last heartbeat is {age} old ({node.heartbeat_field})")
    if node.has_taint(TAINT_NODE_SHUTDOWN):
        facts.append(f"the cloud says that the machine is shut down (taint {TAINT_NODE_SHUTDOWN})")
    if node.has_taint(TAINT_NODE_OUT_OF_SERVICE):
        facts.append(f"an operator says that it is off (taint {TAINT_NODE_OUT_OF_SERVICE})")
    return tuple(facts)


def _missing(node: NodeReadiness, alive: bool) -> tuple[str, ...]:
    if alive:
        return ("that the machine is off: its kubelet reports, so it is on",)
    missing = []
    if node.heartbeat_ns is None:
        missing.append("a heartbeat: none was read, so the age of the last one is unknown")
    if not node.has_taint(TAINT_NODE_SHUTDOWN):
        missing.append(
            "that the machine is powered off, seen at the machine, its management board or the"
            " cloud's console"
        )
    if node.ready == UNKNOWN:
        missing.append("that it is not merely cut off from the API server")
    return tuple(missing)


def _hazards(pod: Pod) -> tuple[str, ...]:
    hazards = []
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind == "StatefulSet":
        hazards.append(f"StatefulSet {owner.name} promises at most one {pod.name}; two could run")
    for volume in pod.spec.volumes:
        claim = volume.persistent_volume_claim
        if claim is not None and not claim.read_only:
            hazards.append(f"claim {claim.claim_name} could get two writers")
    if pod.metadata.finalizers:
        finalizers = ", ".join(pod.metadata.finalizers)
        hazards.append(f"the object stays even when forced, until its finalizers go: {finalizers}")
    return tuple(hazards)


def _commands(pod: Pod, node: NodeReadiness, taint: str) -> tuple[str, ...]:
    force = _force_command(pod)
    return (_taint_command(node), force) if taint == AFTER_POWER_OFF else (force,)


def _force_command(pod: Pod) -> str:
    named = shlex.join(("-n", pod.namespace, pod.name))
    return f"kubectl delete pod {named} --grace-period=0 --force"


def _taint_command(node: NodeReadiness) -> str:
    return f"kubectl taint {subject('node', node.name)} {OUT_OF_SERVICE}"


def _undo(pod: Pod, node: NodeReadiness, taint: str) -> tuple[str, ...]:
    owner = controller_of(pod.metadata)
    then = f"{owner.kind} {owner.name} makes a new pod" if owner else "no controller makes it anew"
    final = f"a forced delete cannot be undone; {then}"
    if taint != AFTER_POWER_OFF:
        return (final,)
    return (
        f"when the machine is back and empty: kubectl taint {subject('node', node.name)}"
        f" {TAINT_NODE_OUT_OF_SERVICE}:NoExecute-",
        final,
    )
