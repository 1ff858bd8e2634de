"""What controllers decide: values that explain themselves, and know their effect.

`action.py` tells what they share. Everything is imported from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from kubectl_nodelife.engine.action import Action as Action
from kubectl_nodelife.engine.action import Detail as Detail
from kubectl_nodelife.engine.action import NodeAction as NodeAction
from kubectl_nodelife.engine.action import PodAction as PodAction
from kubectl_nodelife.engine.action import Requeue as Requeue
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints
from kubectl_nodelife.kube.times import SECOND_NS as SECOND_NS


class SetNodeConditions(NodeAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a node: conditions replace those of their type, new ones are appended."""

    conditions: tuple[NodeCondition, ...]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One SetNodeCondition a condition."""
        for c in self.conditions:
            yield "SetNodeCondition", {"type": c.type, "status": c.status, "reason": c.reason}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The node with the conditions replaced or appended."""
        if not isinstance(obj, Node):
            return obj
        new = {c.type: c for c in self.conditions}
        kept = tuple(new.pop(c.type, c) for c in obj.status.conditions)
        merged = kept + tuple(new.values())
        if merged == obj.status.conditions:
            return obj
        return replace(obj, status=replace(obj.status, conditions=merged))

    def shown_by(self, obj: KubeObject) -> bool:
        """Each condition is there with that status."""
        present = {c.type: c.status for c in obj.status.conditions} if isinstance(obj, Node) else {}
        return all(present.get(c.type) == c.status for c in self.conditions)


class AddTaints(NodeAction, frozen=True, kw_only=True, gc=False):
    """One patch that adds taints, or replaces those of the same key and effect.

    Follows `AddOrUpdateTaintOnNode`.
    """

    taints: tuple[Taint, ...]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One AddTaint a taint."""
        for t in self.taints:
            yield "AddTaint", _taint_detail(t)

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The node with the taints."""
        if not isinstance(obj, Node):
            return obj
        return _with_taints(obj, add_or_update_taints(obj.spec.taints, self.taints))

    def shown_by(self, obj: KubeObject) -> bool:
        """Each taint is there, whenever it was added."""
        return isinstance(obj, Node) and all(obj.has_taint(t.key, t.effect) for t in self.taints)


class RemoveTaints(NodeAction, frozen=True, kw_only=True, gc=False):
    """One patch that removes taints by key and effect (`RemoveTaintOffNode`)."""

    taints: tuple[Taint, ...]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One RemoveTaint a taint."""
        for t in self.taints:
            yield "RemoveTaint", _taint_detail(t)

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The node without the taints."""
        if not isinstance(obj, Node):
            return obj
        return _with_taints(obj, remove_taints(obj.spec.taints, self.taints))


class SetNodeLabels(NodeAction, frozen=True, kw_only=True, gc=False):
    """One patch of a node's labels."""

    labels: dict[str, str]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One SetNodeLabel a label."""
        for key, value in self.labels.items():
            yield "SetNodeLabel", {"key": key, "value": value}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The node with the labels."""
        if not isinstance(obj, Node):
            return obj
        labels = {**(obj.metadata.labels or {}), **self.labels}
        if labels == obj.metadata.labels:
            return obj
        return replace(obj, metadata=replace(obj.metadata, labels=labels))


class SetPodCondition(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of one condition in a pod's status; `phase` goes along if it is set."""

    condition: PodCondition
    phase: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetPodCondition."""
        c = self.condition
        detail: Detail = {"type": c.type, "status": c.status, "reason": c.reason}
        if self.phase:
            detail["phase"] = self.phase
        yield "SetPodCondition", detail

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod with the condition replaced or appended, and the phase."""
        if not isinstance(obj, Pod):
            return obj
        conditions = put_condition(obj.status.conditions, self.condition)
        phase = self.phase or obj.status.phase
        if conditions is obj.status.conditions and phase == obj.status.phase:
            return obj
        return replace(obj, status=replace(obj.status, conditions=conditions, phase=phase))

    def shown_by(self, obj: KubeObject) -> bool:
        """The condition is there with that status and reason, and the phase."""
        present = obj.status.condition(self.condition.type) if isinstance(obj, Pod) else None
        if present is None or (
            self.phase and isinstance(obj, Pod) and obj.status.phase != self.phase
        ):
            return False
        return (present.status, present.reason) == (self.condition.status, self.condition.reason)


class MarkPodNotReady(PodAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a pod: Ready becomes False, its reason and message stay as they are.

    `by_pod_worker`: decided when the pod came to its node, not in a pass.
    """

    condition: PodCondition
    by_pod_worker: bool = False

    def records(self) -> Iterator[tuple[str, Detail]]:
        """MarkPodNotReady."""
        c = self.condition
        yield "MarkPodNotReady", {"type": "Ready", "status": "False", "reason": c.reason}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod with Ready False."""
        if not isinstance(obj, Pod):
            return obj
        conditions = put_condition(obj.status.conditions, self.condition)
        if conditions is obj.status.conditions:
            return obj
        return replace(obj, status=replace(obj.status, conditions=conditions))

    def shown_by(self, obj: KubeObject) -> bool:
        """Ready is there, and False."""
        present = obj.status.condition("Ready") if isinstance(obj, Pod) else None
        return present is not None and present.status == "False"


class SetPodReason(PodAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a pod's reason and message (the classic evictor's NodeLost)."""

    reason: str
    message: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetPodReason."""
        yield "SetPodReason", {"reason": self.reason, "message": self.message}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod with the reason."""
        if not isinstance(obj, Pod) or obj.status.reason == self.reason:
            return obj
        status = replace(obj.status, reason=self.reason, message=self.message)
        return replace(obj, status=status)


class SetPodPhase(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of a pod's phase (pod-gc before it deletes); no record, the delete tells it."""

    phase: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """None."""
        return iter(())

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod in that phase."""
        if not isinstance(obj, Pod) or obj.status.phase == self.phase:
            return obj
        return replace(obj, status=replace(obj.status, phase=self.phase))


class DeletePod(PodAction, frozen=True, kw_only=True, gc=False):
    """DELETE of a pod. `grace_period_seconds` None: the pod's own; 0 with `force`: at once.

    `if_unchanged`: only in the version that was decided on.
    """

    deletes: ClassVar[bool] = True

    grace_period_seconds: int | None = None
    force: bool = False
    if_unchanged: bool = False
    taints: tuple[Taint, ...] = ()

    def records(self) -> Iterator[tuple[str, Detail]]:
        """DeletePod."""
        detail: Detail = {}
        if self.grace_period_seconds is not None:
            detail["gracePeriodSeconds"] = self.grace_period_seconds
        if self.force:
            detail["force"] = True
        if self.taints:
            detail["taints"] = [_taint_detail(t) for t in self.taints]
        yield "DeletePod", detail

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod terminating since now, or gone where it gets no grace (`kube.deletion`)."""
        if not isinstance(obj, Pod):
            return obj
        return delete_pod(obj, now_ns, self.grace_period_seconds)

    def shown_by(self, obj: KubeObject) -> bool:
        """The pod is terminating; a forced deletion only shows in its being gone."""
        return not self.force and obj.metadata.deletion_timestamp is not None


class RecordEvent(Action, frozen=True, kw_only=True, gc=False):
    """An Event on an object. It never changes what a controller reads."""

    kind: str
    name: str
    namespace: str = ""
    object_uid: str = ""
    type: str = "Normal"
    reason: str
    message: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """The involved object."""
        return (self.kind, (self.namespace, self.name))

    @property
    def uid(self) -> str:
        """The involved object's uid."""
        return self.object_uid

    def records(self) -> Iterator[tuple[str, Detail]]:
        """RecordEvent."""
        detail: Detail = {"type": self.type, "reason": self.reason}
        if self.message:
            detail["message"] = self.message
        yield "RecordEvent", detail


class SetZoneState(Action, frozen=True, kw_only=True, gc=False):
    """A zone's state and with it the rate at which its nodes are tainted, in nodes a second."""

    writes: ClassVar[bool] = False

    zone: str
    from_: str
    to: str
    rate: float

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("Zone", ("", zone key))"""
        return ("Zone", ("", self.zone))

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetZoneState."""
        detail = {"zone": self.zone, "from": self.from_, "to": self.to, "rate": self.rate}
        yield "SetZoneState", detail


class QueueNode(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node waits in its zone's queue for a NoExecute taint.

    In classic mode it waits for the eviction of its pods.
    """

    writes: ClassVar[bool] = False

    zone: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """QueueNode."""
        yield "QueueNode", {"zone": self.zone}


class UnqueueNode(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node that waited no longer does, without having been tainted."""

    writes: ClassVar[bool] = False

    zone: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """UnqueueNode."""
        yield "UnqueueNode", {"zone": self.zone}


class ScheduleEviction(PodAction, frozen=True, kw_only=True, gc=False):
    """A pod will be deleted at `due_ns`, after `toleration_seconds` under the taints (0: now)."""

    writes: ClassVar[bool] = False

    due_ns: int
    toleration_seconds: int
    taints: tuple[Taint, ...] = ()

    def records(self) -> Iterator[tuple[str, Detail]]:
        """ScheduleEviction; `due` is made relative by whoever writes the record."""
        yield (
            "ScheduleEviction",
            {"due_ns": self.due_ns, "tolerationSeconds": self.toleration_seconds},
        )


class CancelEviction(PodAction, frozen=True, kw_only=True, gc=False):
    """A scheduled eviction will not happen; `due_ns` is when it would have."""

    writes: ClassVar[bool] = False

    due_ns: int

    def records(self) -> Iterator[tuple[str, Detail]]:
        """CancelEviction."""
        yield "CancelEviction", {"due_ns": self.due_ns}


def _with_taints(node: Node, taints: tuple[Taint, ...]) -> Node:
    if taints is node.spec.taints:
        return node
    return replace(node, spec=replace(node.spec, taints=taints))


def put_condition(
    conditions: tuple[PodCondition, ...], condition: PodCondition
) -> tuple[PodCondition, ...]:
    """The conditions with this one in place of the one of its type, or appended.

    The same tuple comes back where that changes nothing.
    """
    type_ = condition.type
    for i, present in enumerate(conditions):
        if present.type == type_:
            if present == condition:
                return conditions
            changed = list(conditions)
            changed[i] = condition
            return tuple(changed)
    return (*conditions, condition)


def _taint_detail(taint: Taint) -> Detail:
    detail = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        detail["value"] = taint.value
    return detail
