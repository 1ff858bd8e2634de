"""One line of a replay: what happened, to which object, who did it, and why.

The actor is known from an Event's source, a field manager, or condition DisruptionTarget. Only the
audit log has users' names; a field manager is a program's name, and kubectl's means a person.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.taints import MIRRORING_KEYS
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.field_managers import FieldManager
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import Event

CONTROLLER: Final = "controller"
KUBELET: Final = "kubelet"
USER: Final = "user"
US: Final = "us"
OTHER: Final = "other"

JOURNAL: Final = "journal"
EVENT: Final = "event"
OBJECT: Final = "object"
ORDER_OF_SOURCES: Final = (JOURNAL, EVENT, OBJECT)
"""The one that knows most first."""


# An Event's component -> our name of the controller. Others keep their own name.
_COMPONENTS: Final = {
    "node-controller": "node-lifecycle",
    "taint-eviction-controller": "taint-eviction",
    "taint-controller": "taint-eviction",
    "daemonset-controller": "daemonset",
    "pod-garbage-collector-controller": "pod-gc",
    "default-scheduler": "scheduler",
}
ACTS: Final = frozenset({"drain", "repair", "rollout", "upgrade"})
"""Verbs by which a person orders writes, as their journal names them."""
_OURS: Final = "kubectl-nodelife"
_CONTROL_PLANE: Final = frozenset(
    {*wellknown.CONTROLLER_MANAGERS, "kube-scheduler", "cloud-controller-manager"}
)
# Beginning of a taint's key -> whose it is
_TAINTS_OF: Final = {
    "ToBeDeletedByClusterAutoscaler": "cluster-autoscaler, about to take the node away",
    "DeletionCandidateOfClusterAutoscaler": "cluster-autoscaler, which may take the node away",
    "karpenter.sh/": "Karpenter",
    "node.cloudprovider.kubernetes.io/": "a cloud controller",
    "aws-node-termination-handler/": "the AWS node termination handler",
    "cloud.google.com/": "Google Cloud",
    "node.cilium.io/": "Cilium",
    "medik8s.io/": "a medik8s operator",
    "nodelife.dev/": "kubectl nodelife",
    "node.kubernetes.io/out-of-service": "an operator who declares nodes out of service",
}
# Part of a program's name -> what it does next with a node that it took out of service
_WHAT_NEXT: Final = {
    "cluster-autoscaler": "it deletes the node, or takes its taint off if it gives up",
    "karpenter": "it drains the node and deletes it",
    "kured": "it uncordons the node after the reboot",
    "machine-config": "it uncordons the node once the update is done, and cordons it for the next",
    "node-maintenance": "it uncordons the node once the NodeMaintenance object is deleted",
    "draino": "it drains the node, and cordons it again while the condition lasts",
    "system-upgrade": "it uncordons the node once its plan is done",
}
_SAME_WRITE_NS: Final = 2 * SECOND_NS
"""Both instants have whole seconds."""


class Actor(NamedTuple):
    """The author of a change. `kind` is one of CONTROLLER, KUBELET, USER, US, OTHER."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


class ReplayLine(msgspec.Struct, eq=False):
    """What happened to one object, who did it, and why.

    `time_ns`: since the epoch; `first_ns`: of the first of `count` alike.

    `identity` names what happened whatever source shows it: two lines of the same identity at about
    the same time are one. `node`: where the pod was. `outcome`: the journal's word, else "".
    `seen`: which sources show it. `change`, `change_cause`: ids in the journal. `inferred`: the
    cause was found by rule, not recorded in the journal. `names`: pods that the text mentions.
    `sets`: what a write sets, by the names of a record's detail, where that is known: `detail` says
    the same to people. A write of a node's taints has them all, as `taints`.
    """

    time_ns: int
    actor: Actor
    action: str
    kind: str
    namespace: str
    name: str
    identity: tuple[str, ...]
    seen: tuple[str, ...]
    node: str = ""
    detail: str = ""
    why: str = ""
    outcome: str = ""
    count: int = 1
    first_ns: int | None = None
    change: int | None = None
    change_cause: int | None = None
    cause: ReplayLine | None = None
    inferred: bool = False
    names: tuple[str, ...] = ()
    sets: Mapping[str, Any] = {}

    @property
    def family(self) -> str:
        """The kind of happening, as in `causes.RULES`."""
        return self.identity[0]

    @property
    def documents(self) -> tuple[dict[str, str], dict[str, str]]:
        """Who did it, and to what, as documents have them."""
        obj = {"kind": self.kind, "namespace": self.namespace, "name": self.name}
        return self.actor._asdict(), {key: value for key, value in obj.items() if value}

    @property
    def about_node(self) -> str:
        """The node that it is about, or where its pod was; "" where that is not known."""
        return self.name if self.kind == "Node" else self.node


UNKNOWN_ACTOR: Final = Actor(OTHER, "not known")
EVICTION_API: Final = Actor(OTHER, "Eviction API")


# The reason of a pod's condition DisruptionTarget -> what ends the pod
DISRUPTORS: Final = {
    wellknown.DELETION_BY_TAINT_MANAGER: Actor(CONTROLLER, "taint-eviction"),
    wellknown.DELETION_BY_POD_GC: Actor(CONTROLLER, "pod-gc"),
    "DeletionByDeviceTaintManager": Actor(CONTROLLER, "device-taint-eviction"),
    "PreemptionByScheduler": Actor(CONTROLLER, "scheduler"),
    wellknown.EVICTION_BY_EVICTION_API: EVICTION_API,
    "TerminationByKubelet": Actor(KUBELET, "kubelet"),
}


def of_event(event: Event) -> Actor:
    """The sender of the Event."""
    component = event.reporting_component or event.source.component
    if component == "kubelet":
        host = event.source.host
        return Actor(KUBELET, f"kubelet {host}" if host else "kubelet")
    if not component:
        return UNKNOWN_ACTOR
    return Actor(CONTROLLER, _COMPONENTS.get(component, component))


def of_manager(manager: str, node: str = "") -> Actor:
    """The author of a field, by the manager's name."""
    if manager.startswith(_OURS):
        part = manager.removeprefix(_OURS).removeprefix("-")
        if part in ACTS:
            return Actor(USER, f"kubectl nodelife {part} (a user)")
        return Actor(US, f"kubectl nodelife ({part})" if part else "kubectl nodelife")
    if manager.startswith("kubectl"):
        return Actor(USER, f"{manager} (a user)")
    if manager == "kubelet":
        return Actor(KUBELET, f"kubelet {node}" if node else "kubelet")
    if manager in _CONTROL_PLANE:
        return Actor(CONTROLLER, manager)
    return Actor(OTHER, manager) if manager else UNKNOWN_ACTOR


def of_taint(key: str, added_ns: int, writer: FieldManager | None) -> Actor:
    """The author of a taint: the taints' last writer, if that was when it came; else by its key.

    Of the list of taints only the last write is kept, which may have been about another taint.
    """
    if writer is not None and abs(writer.time_ns - added_ns) < _SAME_WRITE_NS:
        last = of_manager(writer.name)
        if last.kind in (USER, US) or key not in MIRRORING_KEYS:
            return last
    if key in MIRRORING_KEYS:
        return Actor(CONTROLLER, "node-lifecycle")
    owner = owner_of_taint(key)
    return Actor(OTHER, owner) if owner else UNKNOWN_ACTOR


def owner_of_taint(key: str) -> str:
    """Whose taint it is by its key alone; "" where the key says nothing."""
    return next((who for start, who in _TAINTS_OF.items() if key.startswith(start)), "")


def what_next(actor: Actor, node: str) -> str:
    """How the actor's change of the node is undone or repeated, by the actor's name; else ""."""
    if actor.kind in (USER, US):
        return f"nothing undoes it by itself (kubectl uncordon {shlex.quote(node)})"
    actor_name = actor.name.lower()
    return next((then for name, then in _WHAT_NEXT.items() if name in actor_name), "")


def of_change(controller: str, outcome: str) -> Actor:
    """The actor of what a journal records: the controller itself where the cluster shows it."""
    if controller in ACTS:
        return Actor(USER, f"kubectl nodelife {controller} (a user)")
    if outcome == "confirmed":
        return Actor(CONTROLLER, controller)
    return Actor(US, f"us, as {controller}")
