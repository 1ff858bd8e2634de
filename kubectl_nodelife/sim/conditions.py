"""The conditions that a simulated kubelet sees and posts: of its node, and of a pod that runs.

Reasons are those of pkg/kubelet/nodestatus/setters.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.kube.pod import PodCondition, PodStatus
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import SILENT_REASONS

_RUNNING_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")

# condition -> (status, reason) of a kubelet with nothing to complain about
_HEALTHY = {
    "Ready": ("True", "KubeletReady"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
}
# (condition, status) -> reason where there is something
_REASONS = {
    ("Ready", "False"): "KubeletNotReady",
    ("MemoryPressure", "True"): "KubeletHasInsufficientMemory",
    ("DiskPressure", "True"): "KubeletHasDiskPressure",
    ("PIDPressure", "True"): "KubeletHasInsufficientPID",
}


def reason_of(type_: str, status: str) -> str:
    """The reason that goes with a status; a made-up one for a condition that is not a kubelet's."""
    healthy = _HEALTHY.get(type_)
    if healthy is not None and healthy[0] == status:
        return healthy[1]
    return _REASONS.get((type_, status), f"{type_}Is{status}")


def own_conditions(node: Node) -> dict[str, NodeCondition]:
    """The conditions as the node's kubelet sees them: those that it posted before, and healthy ones
    where the monitor wrote over them. The kubelet of a node without Ready sees all of them healthy.
    """
    own = {}
    for type_, (status, reason) in _HEALTHY.items():
        shown = node.status.condition(type_)
        if shown is not None and shown.reason not in SILENT_REASONS:
            own[type_] = shown
        elif shown is not None or node.ready() is None:
            own[type_] = NodeCondition(type=type_, status=status, reason=reason)
    return own


def alike(a: NodeCondition, b: NodeCondition) -> bool:
    """True if they say the same, their times aside."""
    return (a.status, a.reason, a.message) == (b.status, b.reason, b.message)


def overwritten(seen: Mapping[str, NodeCondition], node: Node) -> bool:
    """True if the Node shows other conditions than its kubelet sees."""
    shown = {c.type: c.status for c in node.status.conditions}
    return any(shown.get(own.type) != own.status for own in seen.values())


def posted(
    shown: Iterable[NodeCondition], seen: Mapping[str, NodeCondition], now: Time
) -> tuple[tuple[NodeCondition, ...], tuple[NodeCondition, ...]]:
    """(all conditions after a post, those of them whose status the post changes).

    Conditions that are not the kubelet's stay as they are.
    """
    conditions, changed = [], []
    missing = dict(seen)
    for old in shown:
        own = missing.pop(old.type, None)
        if own is None:
            conditions.append(old)
            continue
        since = old.last_transition_time if old.status == own.status else now
        new = NodeCondition(old.type, own.status, own.reason, own.message, now, since)
        conditions.append(new)
        if old.status != own.status:
            changed.append(new)
    for own in missing.values():
        new = replace(own, last_heartbeat_time=now, last_transition_time=now)
        conditions.append(new)
        changed.append(new)
    return tuple(conditions), tuple(changed)


class RunningStatuses:
    """Pods' statuses with everything running. Pods that start together share one."""

    def __init__(self) -> None:
        self._last = (PodStatus(), -1, PodStatus())

    def of(self, status: PodStatus, at_ns: int) -> PodStatus:
        """The status after `status` if the containers run from that instant on."""
        before, since_ns, after = self._last
        if since_ns == at_ns and before == status:
            return after
        now = whole_seconds(at_ns)
        conditions = {c.type: c for c in status.conditions}
        for type_ in _RUNNING_CONDITIONS:
            old = conditions.get(type_)
            if old is None or old.status != "True":
                conditions[type_] = PodCondition(
                    type=type_, status="True", last_transition_time=now
                )
        after = replace(
            status, phase="Running", conditions=tuple(conditions.values()), start_time=now
        )
        self._last = (status, at_ns, after)
        return after
