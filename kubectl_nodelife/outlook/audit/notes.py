"""Describes each class of finding: what it means, which upstream issues are known, what to do.

The page, the JSON and the documentation read this one table; findings are shown in its order.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.outlook.audit.classify import (
    GATES,
    LAGGING,
    MARKED_NODE_DOWN,
    RECOVERING,
    STALE_READY,
    STUCK_NOT_READY,
)
from kubectl_nodelife.outlook.audit.classify import OK as OK
from kubectl_nodelife.outlook.audit.classify import UNKNOWN as UNKNOWN

TERMINATING_DEAD_NODE: Final = "terminating-dead-node"
TERMINATING_FINALIZER: Final = "terminating-finalizer"
TERMINATING_SLOW: Final = "terminating-slow"
ORPHANED: Final = "orphaned"
EVICTED_LEFTOVER: Final = "evicted-leftover"
DAEMONSET_NEVER_EVICTED: Final = "daemonset-never-evicted"
NEVER_EVICTED: Final = "never-evicted"

UNHEARD: Final = "unheard"
QUIET: Final = (OK, UNKNOWN, UNHEARD)
"""The words for pods without a finding."""

WRONG: Final = "wrong"
"""Something is not as it should be, and somebody may have to act."""
NOTE: Final = "note"
"""As it should be under the circumstances; good to know."""


class ClassNote(msgspec.Struct, frozen=True):
    """Severity, meaning and remedy of each finding of a class; a finding adds its own evidence."""

    severity: str
    meaning: str
    remedy: str
    risk: str
    issues: tuple[str, ...] = ()


_K = "kubernetes/kubernetes#"

NOTES: Final[dict[str, ClassNote]] = {
    STALE_READY: ClassNote(
        WRONG,
        "Ready is True although the containers or the node say otherwise; Services may still send"
        " traffic there",
        "have the node fenced or mended; the pod follows. Setting Ready to False by hand only"
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
        " kubelet sets both, so somebody else wrote, or the kubelet has not looked since",
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
        "look at the kubelet's log and the pod's events on that node; never force it there",
        "a forced delete leaves containers and mounts behind that nothing cleans up",
        (f"{_K}72226",),
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
        "mend the node, or delete it; nothing has to be done about the pod",
        "none",
        (f"{_K}19563", f"{_K}70184", f"{_K}117204", f"{_K}85878"),
    ),
    NEVER_EVICTED: ClassNote(
        NOTE,
        "it tolerates for ever that its node is not Ready, so it is never evicted and no other"
        " takes its place",
        "mend the node, or delete it; a static pod lives and dies with its machine",
        "none",
        (f"{_K}55713",),
    ),
}

BLIND_RECONCILE: Final = (f"{_K}77661", f"{_K}84951", f"{_K}84931", f"{_K}85389")
"""The fault of 1.15, early 1.16 and 1.17: the kubelet compared its belief with itself."""

UNREADY_AFTER_RECOVERY: Final = (f"{_K}120256", f"{_K}92378", f"{_K}80968", f"{_K}87615")
"""Pods that stay not ready in other releases."""

READY_ON_NOT_READY_NODE: Final = (f"{_K}125618",)
READY_ON_LOST_NODE: Final = (f"{_K}112733", f"{_K}135205", f"{_K}70184")
TERMINAL_AND_READY: Final = (f"{_K}108594",)
