"""The resources that must be gone from a node before the pod's object may go from the API server.

Follows `PodResourcesAreReclaimed` in pkg/kubelet/kubelet_pods.go (up to 1.26: all four, asked by
`canBeDeleted` with each batch) and `SyncTerminatedPod` in pkg/kubelet/kubelet.go (1.27 and later:
the kubelet finishes with the pod once containers have stopped, volumes are unmounted and the cgroup
is removed, and only then reports it as finished; containers that are dead but kept by the runtime
no longer hold it). Pure: takes the resources that are there, returns those that hold the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from kubectl_nodelife.kube.pod import Pod, PodStatus
from kubectl_nodelife.kubelet.releases import StatusRules

RUNNING_CONTAINERS: Final = "containers"
RUNTIME_CONTAINERS: Final = "runtime"
VOLUMES: Final = "volumes"
CGROUP: Final = "cgroup"
RESOURCES: Final = (RUNNING_CONTAINERS, RUNTIME_CONTAINERS, VOLUMES, CGROUP)

HOLDS: Final = {
    RUNNING_CONTAINERS: "some containers still run",
    RUNTIME_CONTAINERS: "the runtime still has containers of it",
    VOLUMES: "its volumes are not cleaned up",
    CGROUP: "its cgroup still exists",
}


class ReclaimTerms(msgspec.Struct, frozen=True):
    """The kubelet's flags for this: `--keep-terminated-pod-volumes` and `--cgroups-per-qos`."""

    keep_terminated_pod_volumes: bool = False
    cgroups_per_qos: bool = True


def containers_are_stopped(status: PodStatus) -> bool:
    """True if each regular container is terminated or waiting: the part that a status can show of
    `PodResourcesAreReclaimed`. Follows the kubelet's `notRunning`."""
    return all(
        s.state.terminated is not None or s.state.waiting is not None
        for s in status.container_statuses or ()
    )


def what_holds(
    there: Collection[str], status: PodStatus, terms: ReclaimTerms, rules: StatusRules
) -> list[str]:
    """The `RESOURCES` that hold the pod's object, in the order in which the kubelet checks them.

    `there`: which of them the node still has; `status`: the kubelet's cached status of the pod.
    """
    return [
        resource
        for resource in RESOURCES
        if _holds(resource, resource in there, status, terms, rules)
    ]


def _holds(
    resource: str, is_there: bool, status: PodStatus, terms: ReclaimTerms, rules: StatusRules
) -> bool:
    match resource:
        case "containers":
            return is_there or not containers_are_stopped(status)
        case "runtime":
            return is_there and not rules.delete_when_finished
        case "volumes":
            stays = terms.keep_terminated_pod_volumes and not rules.delete_when_finished
            return is_there and not stays
        case _:
            return is_there and terms.cgroups_per_qos


def what_can_hold(pod: Pod, rules: StatusRules) -> Iterator[tuple[str, str]]:
    """(the resource, what the API server's object shows of it) for each of `RESOURCES` that can
    hold a pod in that release."""
    statuses = pod.status.container_statuses or ()
    running = [s.name for s in statuses if s.state.running is not None]
    if running:
        reported = f"{', '.join(running)} reported running"
    elif statuses:
        reported = "all are reported stopped"
    else:
        reported = "nothing is reported of them"
    yield "running containers", reported
    if not rules.delete_when_finished:
        reported = "the API does not show whether the runtime has removed them"
        yield "stopped containers", reported
    names = ", ".join(volume.name for volume in pod.spec.volumes)
    of_them = f"it has {names}; " if names else "it has none but what the kubelet mounts; "
    yield "volumes", f"{of_them}the API does not show whether they are unmounted"
    yield "the cgroup", "the API does not show whether it is removed"
