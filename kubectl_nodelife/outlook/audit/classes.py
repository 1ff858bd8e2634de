"""The classes of findings: does a pod's readiness fit its containers and its node, and what is
to be said of each class.

Our own design on top of upstream's facts, seen from outside, by the API alone. We cannot know what
runs; we know what the kubelet last *reported*, and can compute the conditions that follow from it.
The node lifecycle controller marks the pods of a lost node by setting Ready to False and nothing
else: no reason, no message, and ContainersReady stays True. That shape is what most classes turn
on. Ages are not judged here, but where a class turns on how long the node has been Ready again.

`NOTES` says what each class means, which upstream issues are known, what to do. The page, the JSON
and the documentation read this one table; findings are shown in its order.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodCondition, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import FALSE, TRUE
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    INITIALIZED,
    READINESS_GATES_NOT_READY,
    READY,
    containers_ready_condition,
    initialized_condition,
    ready_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.workloads.force_advice import NodeReadiness

OK: Final = "ok"
STUCK_NOT_READY: Final = "stuck-not-ready"
MARKED_NODE_DOWN: Final = "marked-node-down"
RECOVERING: Final = "recovering"
GATES: Final = "gates"
STALE_READY: Final = "stale-ready"
UNKNOWN: Final = "unknown"
LAGGING: Final = "lagging"

SETTLE_NS: Final = 60 * SECOND_NS
"""Six batches of a kubelet: what it was going to repair it has repaired by then."""

TERMINATING_DEAD_NODE: Final = "terminating-dead-node"
TERMINATING_FINALIZER: Final = "terminating-finalizer"
TERMINATING_SLOW: Final = "terminating-slow"
NOT_STARTING: Final = "not-starting"
NOT_EVICTED: Final = "not-evicted"
ORPHANED: Final = "orphaned"
EVICTED_LEFTOVER: Final = "evicted-leftover"
DAEMONSET_NEVER_EVICTED: Final = "daemonset-never-evicted"
NEVER_EVICTED: Final = "never-evicted"
UNHEARD: Final = "unheard"
QUIET: Final = (OK, UNKNOWN, UNHEARD)
"""The words for pods without a finding."""
WRONG: Final = "wrong"
"""Something is not as it should be, and a person may have to act."""
NOTE: Final = "note"
"""As it should be under the circumstances; good to know."""
_K = "kubernetes/kubernetes#"
BLIND_RECONCILE: Final = (f"{_K}77661", f"{_K}84951", f"{_K}84931", f"{_K}85389")
"""The fault of 1.15, early 1.16 and 1.17: the kubelet compared its belief with itself."""
UNREADY_AFTER_RECOVERY: Final = (f"{_K}120256", f"{_K}92378", f"{_K}80968", f"{_K}87615")
"""Pods that stay not ready in other releases."""
READY_ON_NOT_READY_NODE: Final = (f"{_K}125618",)
READY_ON_LOST_NODE: Final = (f"{_K}112733", f"{_K}135205", f"{_K}70184")
TERMINAL_AND_READY: Final = (f"{_K}108594",)


class Classification(msgspec.Struct, frozen=True, gc=False):
    """A class of readiness, and the Ready condition that the pod should have (None: not to be
    said)."""

    name: str
    expected: PodCondition | None = None


def classify(pod: Pod, node: NodeReadiness, rules: StatusRules, *, now_ns: int) -> Classification:
    """The class of the pod's readiness. `node` is the one the pod is bound to."""
    status = pod.status
    stored = status.condition(READY)
    if stored is None:
        return Classification(UNKNOWN)
    expected = ready_condition(pod.spec, status, rules)
    if stored.status == TRUE and (node.is_down or status.phase in TERMINAL_PHASES):
        return Classification(STALE_READY, expected)
    if not status.container_statuses:
        return Classification(UNKNOWN)
    if stored.status == TRUE and expected.status != TRUE:
        return Classification(STALE_READY, expected)
    if stored.status == FALSE and stored.reason == READINESS_GATES_NOT_READY:
        return Classification(GATES, expected)
    if expected.status == TRUE and bears_the_mark(status):
        return Classification(_class_of_mark(pod, node, now_ns), expected)
    return Classification(OK if _fits(pod, stored, expected, rules) else LAGGING, expected)


def bears_the_mark(status: PodStatus) -> bool:
    """True if Ready is False in the way that only the node controller makes it so. Follows the
    traces of `MarkPodsNotReady`."""
    ready, containers = status.condition(READY), status.condition(CONTAINERS_READY)
    return (
        ready is not None
        and containers is not None
        and (ready.status, ready.reason, ready.message) == (FALSE, "", "")
        and containers.status == TRUE
    )


def _class_of_mark(pod: Pod, node: NodeReadiness, now_ns: int) -> str:
    if node.is_down:
        return MARKED_NODE_DOWN
    if not node.is_ready:
        return UNKNOWN
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
        return LAGGING
    since = node.ready_since_ns
    if since is not None and now_ns - since < SETTLE_NS:
        return RECOVERING
    return STUCK_NOT_READY


def _fits(pod: Pod, stored: PodCondition, expected: PodCondition, rules: StatusRules) -> bool:
    """True if Ready agrees word for word, and the conditions behind it by status.

    The words of a terminal pod are those of the release that it ended under, and say nothing.
    """
    status = pod.status
    if stored.status != expected.status:
        return False
    words_count = status.phase not in TERMINAL_PHASES
    if words_count and (stored.reason, stored.message) != (expected.reason, expected.message):
        return False
    return _agrees(
        status.condition(CONTAINERS_READY), containers_ready_condition(pod.spec, status, rules)
    ) and _agrees(status.condition(INITIALIZED), initialized_condition(pod.spec, status, rules))


def _agrees(stored: PodCondition | None, expected: PodCondition) -> bool:
    return stored is None or stored.status == expected.status


class ClassNote(msgspec.Struct, frozen=True):
    """Severity, meaning and remedy of each finding of a class; a finding adds its own evidence."""

    severity: str
    meaning: str
    remedy: str
    risk: str
    issues: tuple[str, ...] = ()


NOTES: Final[dict[str, ClassNote]] = {
    STALE_READY: ClassNote(
        WRONG,
        "Ready is True although the containers or the node say otherwise; Services may still send"
        " traffic there",
        "have the node fenced or repaired; the pod follows. Setting Ready to False by hand only"
        " takes it out of its Services",
        "if the node runs on, unseen, the pod still serves; out of its Services it serves no"
        " requests",
    ),
    STUCK_NOT_READY: ClassNote(
        WRONG,
        "the node controller marked the pod while its node was lost, the node is back, and its"
        " kubelet never set Ready again: no Service sends traffic to a pod that works",
        "undo the mark (`kubectl nodelife repair` prints the patch), restart the kubelet, or"
        " delete the pod, whose owner makes a new one",
        "the container statuses are as reported before the outage; a kubelet whose watch is dead"
        " would not have reported a failure since",
    ),
    LAGGING: ClassNote(
        WRONG,
        "a condition says something else than the container statuses beside it; one write of the"
        " kubelet sets both, so another client wrote, or the kubelet has not looked since",
        "look at the kubelet's log on that node; a restart of the kubelet writes them anew",
        "a restart of the kubelet leaves containers alone",
        (f"{_K}87615",),
    ),
    TERMINATING_DEAD_NODE: ClassNote(
        WRONG,
        "deleted, and its node is not Ready; only its kubelet can stop it and take the object away",
        "make sure that the machine is off, then taint the node out-of-service or delete it",
        "while the machine runs, the pod may run: two pods of one StatefulSet, or two writers to"
        " one volume",
        (f"{_K}72226", f"{_K}74689", f"{_K}54472"),
    ),
    TERMINATING_FINALIZER: ClassNote(
        WRONG,
        "deleted, its node is Ready, and finalizers keep the object",
        "ask the owner of the finalizer; the kubelet is not what it waits for",
        "taking a finalizer away by hand skips the cleaning up that it stands for",
    ),
    TERMINATING_SLOW: ClassNote(
        WRONG,
        "deleted, its node is Ready, and its kubelet has not finished: containers that do not"
        " stop, volumes that do not unmount, or a runtime that hangs",
        "look at the kubelet's log and the pod's events on that node; do not force-delete it there",
        "a forced delete leaves containers and mounts behind that nothing cleans up",
        (f"{_K}72226",),
    ),
    NOT_STARTING: ClassNote(
        WRONG,
        "bound to a Ready node, and none of its containers was made: its volumes, its network or"
        " its image are not there",
        "kubectl describe pod: its Events say what is missing (FailedAttachVolume, FailedMount,"
        " FailedCreatePodSandBox), or look at the kubelet's log on that node",
        "none",
    ),
    NOT_EVICTED: ClassNote(
        WRONG,
        "its node is Ready, with a NoExecute taint that should have had the pod deleted",
        "see why taint-eviction does not delete it (disabled, stopped or stuck: 'kubectl nodelife"
        " diverge' says more), or take the taint off",
        "none",
    ),
    ORPHANED: ClassNote(
        WRONG,
        "its node does not exist; no kubelet looks after it and no eviction is due",
        "pod garbage collection removes it, 40 s after it saw the node gone; look at the"
        " controller manager if it stays for more than 2 minutes",
        "none, if the machine of that node is gone too; if it runs on, so does the pod",
    ),
    RECOVERING: ClassNote(
        NOTE,
        "the node came back a moment ago, and its kubelet has not undone the mark yet",
        "wait for the settle time",
        "none",
    ),
    MARKED_NODE_DOWN: ClassNote(
        NOTE,
        "the node controller marked the pod because its node is not Ready; right while that lasts",
        "nothing; the kubelet undoes the mark when the node is back",
        "none",
        (f"{_K}17741", f"{_K}18410"),
    ),
    GATES: ClassNote(
        NOTE,
        "the containers are ready, a readiness gate is not",
        "ask the owner of the condition that the gate names",
        "none",
    ),
    EVICTED_LEFTOVER: ClassNote(
        NOTE,
        "it was put out and has failed for good; only the object is left, as a record",
        "delete the object when its record is no longer needed",
        "its logs and its reason are lost",
        (f"{_K}104531", f"{_K}122122", f"{_K}112443"),
    ),
    DAEMONSET_NEVER_EVICTED: ClassNote(
        NOTE,
        "a DaemonSet's pod on a node that is not Ready: it tolerates that for ever, is never"
        " evicted, and counts as unavailable in a rollout",
        "repair the node, or delete it; nothing has to be done about the pod",
        "none",
        (f"{_K}19563", f"{_K}70184", f"{_K}117204", f"{_K}85878"),
    ),
    NEVER_EVICTED: ClassNote(
        NOTE,
        "it tolerates for ever that its node is not Ready, so it is never evicted and no other"
        " takes its place",
        "repair the node, or delete it; a static pod lives and dies with its machine",
        "none",
        (f"{_K}55713",),
    ),
}
