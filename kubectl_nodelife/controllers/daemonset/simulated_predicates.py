"""The checks that the 1.11 controller makes itself, since it binds its pods without a scheduler.

Follows `simulate` and `nodeShouldRunDaemonPod` of 1.11 and the predicates of that release
(`pkg/scheduler/algorithm/predicates`): taints, then host name, host ports, selector and affinity,
and resources unless the pod is critical. All reasons are collected, then judged one by one.

The switch over reasons of 1.11 also names disk conflicts, volumes, memory and disk pressure and
affinity between pods, but `Predicates` of that release (taints, then GeneralPredicates, or
EssentialPredicates for critical pods) never gives them, so they are left out here; so is the old
GPU resource.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubectl_nodelife.controllers.daemonset.placement_decision import (
    HOST_PORT,
    RESOURCES,
    PlacementDecision,
    judge_taints,
    no,
)
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec
from kubectl_nodelife.kube.quantity import Amounts, amounts
from kubectl_nodelife.workloads.nodeinfo import NodeInfo, host_ports

ALWAYS_CHECKED = ("cpu", "memory", "ephemeral-storage")
_FINISHED = ("Succeeded", "Failed")


def simulate(template: PodTemplate, node: Node, pods_on_node: Iterable[Pod]) -> PlacementDecision:
    """The verdict of 1.11 for a node that name, selector and affinity do not exclude.

    `pods_on_node` are all pods bound to it; finished ones and the set's own do not count.
    """
    set_uid = template.daemon_set.uid
    others = [p for p in pods_on_node if not _is_left_out(p, set_uid)]
    conflict = _port_conflict(template.spec, node, others)
    if conflict is not None:
        return conflict
    verdict = judge_taints(node.spec.taints, template.trial_tolerations)
    if template.critical:
        return verdict
    shortage = insufficient_resource(template.spec, node, others)
    if shortage is None or not verdict.should_run:
        return verdict
    text = f"it has no room: {shortage}"
    told = (f"Node didn't have enough resource: {shortage}",)
    return PlacementDecision(True, False, True, RESOURCES, shortage, text, told)


def _is_left_out(pod: Pod, set_uid: str) -> bool:
    if pod.status.phase in _FINISHED:
        return True
    return any(o.controller and o.uid == set_uid for o in pod.metadata.owner_references)


def _port_conflict(spec: PodSpec, node: Node, others: list[Pod]) -> PlacementDecision | None:
    wanted = host_ports(Pod(spec=spec))
    if not wanted:
        return None
    for pod in others:
        info = NodeInfo(node)
        info.add({}, host_ports(pod))
        if info.port_taken(wanted):
            name = f"{pod.namespace}/{pod.name}"
            return no(HOST_PORT, name, f"a host port is taken by {name}")
    return None


def insufficient_resource(spec: PodSpec, node: Node, others: list[Pod]) -> str | None:
    """The last resource of which the node has too little, with the figures, or None.

    Follows `PodFitsResources`: the number of pods always counts; where the pod requests anything,
    cpu, memory and ephemeral storage are compared even if it does not request that one.
    """
    allocatable = amounts(node.status.allocatable)
    wanted = _requests_with_init(spec)
    used: Amounts = {}
    for pod in others:
        _add(used, _requests(pod.spec))
    short = None
    if len(others) + 1 > allocatable.get("pods", 0):
        short = _shortage("pods", 1, len(others), allocatable.get("pods", 0))
    if not any(wanted.values()):
        return short
    for name in dict.fromkeys((*ALWAYS_CHECKED, *wanted)):
        has, want, taken = allocatable.get(name, 0), wanted.get(name, 0), used.get(name, 0)
        if name != "pods" and want + taken > has:
            short = _shortage(name, want, taken, has)
    return short


def _shortage(name: str, wanted: int, used: int, capacity: int) -> str:
    return f"{name}, requested: {wanted}, used: {used}, capacity: {capacity}"


def _requests(spec: PodSpec) -> Amounts:
    total: Amounts = {}
    for container in spec.containers:
        _add(total, amounts(container.resources.requests))
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _requests_with_init(spec: PodSpec) -> Amounts:
    total = _requests(spec)
    for container in spec.init_containers:
        for name, amount in amounts(container.resources.requests).items():
            total[name] = max(amount, total.get(name, 0))
    return total
