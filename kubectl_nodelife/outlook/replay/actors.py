"""Names who did something: by an Event's source, a field manager, or condition DisruptionTarget.

Only the audit log has users' names; a field manager is a program's name, and kubectl's means a
person.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.taints import MIRRORING_KEYS
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.wellknown import (
    DELETION_BY_POD_GC,
    DELETION_BY_TAINT_MANAGER,
    EVICTION_BY_EVICTION_API,
)
from kubectl_nodelife.outlook.replay.replay_line import CONTROLLER, KUBELET, OTHER, US, USER, Actor

NOBODY_KNOWN: Final = Actor(OTHER, "not known")

# An Event's component -> our name of the controller. Others keep their own name.
_COMPONENTS: Final = {
    "node-controller": "node-lifecycle",
    "taint-eviction-controller": "taint-eviction",
    "taint-controller": "taint-eviction",
    "daemonset-controller": "daemonset",
    "pod-garbage-collector-controller": "pod-gc",
    "default-scheduler": "scheduler",
}

# The reason of a pod's condition DisruptionTarget -> who ends the pod
DISRUPTORS: Final = {
    DELETION_BY_TAINT_MANAGER: Actor(CONTROLLER, "taint-eviction"),
    DELETION_BY_POD_GC: Actor(CONTROLLER, "pod-gc"),
    "PreemptionByScheduler": Actor(CONTROLLER, "scheduler"),
    EVICTION_BY_EVICTION_API: Actor(OTHER, "Eviction API"),
    "TerminationByKubelet": Actor(KUBELET, "kubelet"),
}


def of_event(event: Event) -> Actor:
    """Who sent the Event."""
    component = event.reporting_component or event.source.component
    if component == "kubelet":
        host = event.source.host
        return Actor(KUBELET, f"kubelet {host}" if host else "kubelet")
    if not component:
        return NOBODY_KNOWN
    return Actor(CONTROLLER, _COMPONENTS.get(component, component))


def of_manager(manager: str, node: str = "") -> Actor:
    """Who wrote a field, by the manager's name."""
    if manager.startswith("kubectl-nodelife"):
        return Actor(US, "us")
    if manager.startswith("kubectl"):
        return Actor(USER, f"{manager} (a user)")
    if manager == "kubelet":
        return Actor(KUBELET, f"kubelet {node}" if node else "kubelet")
    if manager in ("kube-controller-manager", "kube-scheduler", "cloud-controller-manager"):
        return Actor(CONTROLLER, manager)
    return Actor(OTHER, manager) if manager else NOBODY_KNOWN


def of_taint(key: str, manager: str) -> Actor:
    """Who set a taint, by its key and by who wrote the taints last, which is all that is kept."""
    writer = of_manager(manager)
    if key in MIRRORING_KEYS and writer.kind != USER:
        return Actor(CONTROLLER, "node-lifecycle")
    return writer


def of_change(controller: str, outcome: str) -> Actor:
    """Who did what the journal tells: the controller itself where the cluster shows it."""
    if outcome == "confirmed":
        return Actor(CONTROLLER, controller)
    return Actor(US, f"us, as {controller}")
