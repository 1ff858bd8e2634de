"""Actions on pods: creation, conditions, phase, labels, deletion, eviction.

A created pod carries its whole manifest, as it would be sent; its name is chosen by the controller
and not by the server (`generateName`), so that a create that is sent twice makes one pod. A person
orders `EvictPod` and `SetPodReady`; the others are decided by controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from kubectl_nodelife.engine.actions.action import Detail, PodAction, condition_detail, created_pod
from kubectl_nodelife.engine.actions.nodes import taint_detail
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import KubeObject, Time, controller_of
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition, disruption_target
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API


class CreatePod(PodAction, frozen=True, kw_only=True, gc=False):
    """POST of a daemon pod for `node`; `revision` is the hash label that it carries."""

    detail_fields: ClassVar[tuple[str, ...]] = ("node", "owner", "revision")

    manifest: dict[str, Any]
    node: str
    owner: str
    owner_uid: str
    revision: str

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The new pod, Pending; one of that name that is there already stays as it is."""
        if obj is not None:
            return obj
        return created_pod(self.manifest, now_ns)

    def shown_by(self, obj: KubeObject) -> bool:
        """The same set's pod for the same node, whatever it is called."""
        if not isinstance(obj, Pod):
            return False
        if self.node != obj.spec.node_name and self.node not in _nodes_named_by_affinity(obj):
            return False  # asked first: thousands of nodes may wait for their pods of one set
        owner = controller_of(obj.metadata)
        return owner is not None and owner.uid == self.owner_uid


class SetPodCondition(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of one condition in a pod's status; `phase` goes along if it is set."""

    condition: PodCondition
    phase: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        detail = condition_detail(self.condition)
        if self.phase:
            detail["phase"] = self.phase
        yield "SetPodCondition", detail

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
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
        yield "MarkPodNotReady", condition_detail(self.condition)

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Pod):
            return obj
        conditions = put_condition(obj.status.conditions, self.condition)
        if conditions is obj.status.conditions:
            return obj
        return replace(obj, status=replace(obj.status, conditions=conditions))

    def stamped(self, now_ns: int) -> MarkPodNotReady:
        """The same when its turn comes then: `UpdatePodCondition` reads the clock for each pod."""
        since = whole_seconds(now_ns)
        if since == self.condition.last_transition_time:
            return self
        return replace(self, condition=replace(self.condition, last_transition_time=since))

    def shown_by(self, obj: KubeObject) -> bool:
        """Ready is there, and False."""
        present = obj.status.condition("Ready") if isinstance(obj, Pod) else None
        return present is not None and present.status == "False"


class SetPodReason(PodAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a pod's reason and message (the classic evictor's NodeLost).

    `by_pod_worker`: as of `MarkPodNotReady`.
    """

    detail_fields: ClassVar[tuple[str, ...]] = ("reason", "message")

    reason: str
    message: str
    by_pod_worker: bool = False

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Pod) or obj.status.reason == self.reason:
            return obj
        status = replace(obj.status, reason=self.reason, message=self.message)
        return replace(obj, status=status)


class SetPodPhase(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of a pod's phase (pod-gc before it deletes)."""

    detail_fields: ClassVar[tuple[str, ...]] = ("phase",)

    phase: str

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Pod) or obj.status.phase == self.phase:
            return obj
        return replace(obj, status=replace(obj.status, phase=self.phase))


class SetPodReady(PodAction, frozen=True, kw_only=True, gc=False):
    """PATCH of the status of a pod's Ready condition; its reason and message stay as they are."""

    status: str
    at: Time

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "SetPodReady", {"type": "Ready", "status": self.status}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Pod):
            return obj
        ready = obj.status.condition("Ready") or PodCondition("Ready")
        changed = replace(ready, status=self.status, last_transition_time=self.at)
        conditions = put_condition(obj.status.conditions, changed)
        if conditions is obj.status.conditions:
            return obj
        return replace(obj, status=replace(obj.status, conditions=conditions))

    def shown_by(self, obj: KubeObject) -> bool:
        """Ready has that status."""
        ready = obj.status.condition("Ready") if isinstance(obj, Pod) else None
        return ready is not None and ready.status == self.status


class SetPodLabel(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of one label of a pod."""

    detail_fields: ClassVar[tuple[str, ...]] = ("key", "value")

    key: str
    value: str

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        return None if obj is None else with_label(obj, self.key, self.value)


class DeletePod(PodAction, frozen=True, kw_only=True, gc=False):
    """DELETE of a pod. `grace_period_seconds` None: the pod's own; 0 with `force`: at once.

    `if_unchanged`: only in the version that was decided on. `by_pod_worker`: as of
    `MarkPodNotReady`.
    """

    deletes: ClassVar[bool] = True

    grace_period_seconds: int | None = None
    force: bool = False
    if_unchanged: bool = False
    by_pod_worker: bool = False
    taints: tuple[Taint, ...] = ()

    def records(self) -> Iterator[tuple[str, Detail]]:
        detail: Detail = {}
        if self.grace_period_seconds is not None:
            detail["gracePeriodSeconds"] = self.grace_period_seconds
        if self.force:
            detail["force"] = True
        if self.taints:
            detail["taints"] = [taint_detail(t) for t in self.taints]
        yield "DeletePod", detail

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod terminating since now, or gone where it gets no grace (`kube.deletion`)."""
        if not isinstance(obj, Pod):
            return obj
        return delete_pod(obj, now_ns, self.grace_period_seconds)

    def shown_by(self, obj: KubeObject) -> bool:
        """The pod is terminating; a forced deletion only shows in its being gone."""
        return not self.force and obj.metadata.deletion_timestamp is not None


EVICTION_MESSAGE: Final = "Eviction API: evicting"


class EvictPod(PodAction, frozen=True, kw_only=True, gc=False):
    """POST of an Eviction. `grace_period_seconds` None: the pod's own.

    An answer of 429 means that a budget is used up, or busy: it is asked again every five seconds.
    """

    grace_period_seconds: int | None = None

    def records(self) -> Iterator[tuple[str, Detail]]:
        grace = self.grace_period_seconds
        yield "EvictPod", {} if grace is None else {"gracePeriodSeconds": grace}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """As a DELETE of the pod; the API server says on it why."""
        marked = self._deletion().effect(obj, now_ns)
        if marked is obj or not isinstance(marked, Pod):
            return marked
        reason = EVICTION_BY_EVICTION_API
        condition = disruption_target(marked.status, reason, EVICTION_MESSAGE, now_ns)
        if condition is None:
            return marked
        conditions = put_condition(marked.status.conditions, condition)
        return replace(marked, status=replace(marked.status, conditions=conditions))

    def shown_by(self, obj: KubeObject) -> bool:
        """The pod is terminating."""
        return obj.metadata.deletion_timestamp is not None

    def _deletion(self) -> DeletePod:
        return DeletePod(
            controller=self.controller,
            because=self.because,
            namespace=self.namespace,
            pod=self.pod,
            pod_uid=self.pod_uid,
            grace_period_seconds=self.grace_period_seconds,
        )


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


def _nodes_named_by_affinity(pod: Pod) -> Iterator[str]:
    """The nodes that a pod's affinity names by their metadata.name, as daemon pods' does."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                yield from field.values


def with_label(obj: Any, key: str, value: str) -> Any:
    """The object with the label; the same object where it has it."""
    labels = obj.metadata.labels or {}
    if labels.get(key) == value:
        return obj
    return replace(obj, metadata=replace(obj.metadata, labels={**labels, key: value}))
