"""An action for each call that Kubernetes' controllers make on an object.

Nodes come first, then pods, then DaemonSets with their revisions.

A created pod carries its whole manifest, as it would be sent; its name is chosen by the controller
and not by the server (`generateName`), so that a create that is sent twice makes one pod. A person
orders `SetUnschedulable`, `EvictPod`, `SetPodReady` and `RollBackDaemonSet`; the others are decided
by controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from kubectl_nodelife.engine.actions.action import (
    Detail,
    NodeAction,
    ObjectAction,
    PodAction,
    camel_case,
    condition_detail,
    created_object,
    created_pod,
)
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, Time, controller_of
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition, disruption_target, with_condition
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, DaemonSetStatus


class SetNodeConditions(NodeAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a node: conditions replace those of their type, new ones are appended."""

    conditions: tuple[NodeCondition, ...]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One SetNodeCondition a condition."""
        for c in self.conditions:
            yield "SetNodeCondition", condition_detail(c)

    def node_after(self, node: Node) -> Node:
        new = {c.type: c for c in self.conditions}
        in_place = tuple(new.pop(c.type, c) for c in node.status.conditions)
        merged = in_place + tuple(new.values())
        if merged == node.status.conditions:
            return node
        return replace(node, status=replace(node.status, conditions=merged))

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
            yield "AddTaint", taint_detail(t)

    def node_after(self, node: Node) -> Node:
        return _with_taints(node, add_or_update_taints(node.spec.taints, self.taints))

    def shown_by(self, obj: KubeObject) -> bool:
        """Each taint is there, whenever it was added."""
        return isinstance(obj, Node) and all(obj.has_taint(t.key, t.effect) for t in self.taints)


class RemoveTaints(NodeAction, frozen=True, kw_only=True, gc=False):
    """One patch that removes taints by key and effect (`RemoveTaintOffNode`)."""

    taints: tuple[Taint, ...]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One RemoveTaint a taint."""
        for t in self.taints:
            yield "RemoveTaint", taint_detail(t)

    def node_after(self, node: Node) -> Node:
        return _with_taints(node, remove_taints(node.spec.taints, self.taints))


class SetNodeLabels(NodeAction, frozen=True, kw_only=True, gc=False):
    """One patch of a node's labels."""

    labels: dict[str, str]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One SetNodeLabel a label."""
        for key, value in self.labels.items():
            yield "SetNodeLabel", {"key": key, "value": value}

    def node_after(self, node: Node) -> Node:
        labels = {**(node.metadata.labels or {}), **self.labels}
        if labels == node.metadata.labels:
            return node
        return replace(node, metadata=replace(node.metadata, labels=labels))


class SetUnschedulable(NodeAction, frozen=True, kw_only=True, gc=False):
    """PATCH of a node's spec.unschedulable: cordon (True) or uncordon (False)."""

    detail_fields: ClassVar[tuple[str, ...]] = ("unschedulable",)

    unschedulable: bool

    def node_after(self, node: Node) -> Node:
        if node.spec.unschedulable == self.unschedulable:
            return node
        return replace(node, spec=replace(node.spec, unschedulable=self.unschedulable))


def _with_taints(node: Node, taints: tuple[Taint, ...]) -> Node:
    if taints is node.spec.taints:
        return node
    return replace(node, spec=replace(node.spec, taints=taints))


def taint_detail(taint: Taint) -> Detail:
    """A taint in a record."""
    detail = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        detail["value"] = taint.value
    return detail


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

    def pod_after(self, pod: Pod, now_ns: int) -> Pod:
        return _with_phase(with_condition(pod, self.condition), self.phase or pod.status.phase)

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

    def pod_after(self, pod: Pod, now_ns: int) -> Pod:
        return with_condition(pod, self.condition)

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

    def pod_after(self, pod: Pod, now_ns: int) -> Pod:
        if pod.status.reason == self.reason:
            return pod
        status = replace(pod.status, reason=self.reason, message=self.message)
        return replace(pod, status=status)


class SetPodPhase(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of a pod's phase (pod-gc before it deletes)."""

    detail_fields: ClassVar[tuple[str, ...]] = ("phase",)

    phase: str

    def pod_after(self, pod: Pod, now_ns: int) -> Pod:
        return _with_phase(pod, self.phase)


class SetPodReady(PodAction, frozen=True, kw_only=True, gc=False):
    """PATCH of the status of a pod's Ready condition; its reason and message stay as they are."""

    status: str
    at: Time

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "SetPodReady", {"type": "Ready", "status": self.status}

    def pod_after(self, pod: Pod, now_ns: int) -> Pod:
        ready = pod.status.condition("Ready") or PodCondition("Ready")
        changed = replace(ready, status=self.status, last_transition_time=self.at)
        return with_condition(pod, changed)

    def shown_by(self, obj: KubeObject) -> bool:
        """Ready has that status."""
        ready = obj.status.condition("Ready") if isinstance(obj, Pod) else None
        return ready is not None and ready.status == self.status


class SetPodLabel(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of one label of a pod."""

    detail_fields: ClassVar[tuple[str, ...]] = ("key", "value")

    key: str
    value: str

    def pod_after(self, pod: Pod, now_ns: int) -> KubeObject:
        return with_label(pod, self.key, self.value)  # type: ignore[no-any-return]


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

    def pod_after(self, pod: Pod, now_ns: int) -> Pod | None:
        """The pod terminating since now, or gone where it gets no grace (`kube.deletion`)."""
        return delete_pod(pod, now_ns, self.grace_period_seconds)

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

    def pod_after(self, pod: Pod, now_ns: int) -> Pod | None:
        """As a DELETE of the pod; the API server says on it why."""
        marked = delete_pod(pod, now_ns, self.grace_period_seconds)
        if marked is pod or marked is None:
            return marked
        reason = EVICTION_BY_EVICTION_API
        condition = disruption_target(marked.status, reason, EVICTION_MESSAGE, now_ns)
        return marked if condition is None else with_condition(marked, condition)

    def shown_by(self, obj: KubeObject) -> bool:
        """The pod is terminating."""
        return obj.metadata.deletion_timestamp is not None


def _with_phase(pod: Pod, phase: str) -> Pod:
    if pod.status.phase == phase:
        return pod
    return replace(pod, status=replace(pod.status, phase=phase))


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


STATUS_COUNTS = (
    "desired_number_scheduled",
    "current_number_scheduled",
    "number_misscheduled",
    "number_ready",
    "updated_number_scheduled",
    "number_available",
    "number_unavailable",
    "observed_generation",
)
"""The status fields that the controller computes, in the order in which they are reported."""


class AdoptObject(ObjectAction, frozen=True, kw_only=True, gc=False):
    """Patch of a controller reference into an orphan.

    The executor first reads the owner afresh: it must still have that uid and not be
    terminating, or the garbage collector would take what was adopted.
    """

    owner: OwnerReference

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "AdoptObject", {"owner": self.owner.name}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if obj is None or any(o.uid == self.owner.uid for o in obj.metadata.owner_references):
            return obj
        owners = (*obj.metadata.owner_references, self.owner)
        return replace(obj, metadata=replace(obj.metadata, owner_references=owners))


class ReleaseObject(ObjectAction, frozen=True, kw_only=True, gc=False):
    """Patch that takes the owner reference of `owner_uid` out of an object."""

    owner_uid: str

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if obj is None:
            return None
        other_owners = tuple(o for o in obj.metadata.owner_references if o.uid != self.owner_uid)
        if len(other_owners) == len(obj.metadata.owner_references):
            return obj
        return replace(obj, metadata=replace(obj.metadata, owner_references=other_owners))


class CreateControllerRevision(ObjectAction, frozen=True, kw_only=True, gc=False):
    """POST of a revision: the set's template as it is now, under the next number.

    Where one of that name exists the server answers 409, and the executor shows the one that is
    there before it reports the failure.
    """

    kind: str = "ControllerRevision"

    revision: ControllerRevision

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "CreateControllerRevision", {"revision": self.revision.revision}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The new revision; one of that name that is there already stays as it is."""
        if obj is not None:
            return obj
        created: ControllerRevision = created_object(self.revision, "ControllerRevision", now_ns)
        return created

    def shown_by(self, obj: KubeObject) -> bool:
        """The same owner's revision of the same number, whatever it is called."""
        owner, ours = controller_of(obj.metadata), controller_of(self.revision.metadata)
        return (
            isinstance(obj, ControllerRevision)
            and owner is not None
            and ours is not None
            and owner.uid == ours.uid
            and obj.revision == self.revision.revision
        )


class UpdateControllerRevision(ObjectAction, frozen=True, kw_only=True, gc=False):
    """PUT of a revision with another number (a rollback) or with its hash label (an old object)."""

    kind: str = "ControllerRevision"

    number: int
    hash_label: tuple[str, str] | None = None

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "UpdateControllerRevision", {"revision": self.number}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, ControllerRevision):
            return obj
        revision = obj
        if self.hash_label is not None:
            revision = with_label(revision, *self.hash_label)
        if revision.revision == self.number:
            return revision
        return replace(revision, revision=self.number)


class DeleteControllerRevision(ObjectAction, frozen=True, kw_only=True, gc=False):
    """DELETE of a revision beyond the history limit, or of a duplicate; `number` is what it had."""

    kind: str = "ControllerRevision"

    deletes: ClassVar[bool] = True

    number: int

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "DeleteControllerRevision", {"revision": self.number}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        return None


class UpdateDaemonSetStatus(ObjectAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a DaemonSet's counts.

    `reread`: the second try after an error; the executor reads the set afresh first, and an
    error of that read is the outcome.
    """

    kind: str = "DaemonSet"

    replaces: ClassVar[bool] = True

    status: DaemonSetStatus
    reread: bool = False

    def records(self) -> Iterator[tuple[str, Detail]]:
        """UpdateDaemonSetStatus, with all the counts that are written."""
        counts = {camel_case(field): getattr(self.status, field) for field in STATUS_COUNTS}
        yield "UpdateDaemonSetStatus", counts

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The set with those counts; conditions and collision count stay."""
        if not isinstance(obj, DaemonSet):
            return obj
        counts = {field: getattr(self.status, field) for field in STATUS_COUNTS}
        status = replace(obj.status, **counts)
        return obj if status == obj.status else replace(obj, status=status)


class RaiseCollisionCount(ObjectAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus that raises the collision count by one, from `seen` (None: not set).

    The executor first reads the set afresh; with `check` a count that differs from `seen` is a
    failure (409): it is raised already.
    """

    kind: str = "DaemonSet"

    seen: int | None
    check: bool = True

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "UpdateDaemonSetStatus", {"collisionCount": (self.seen or 0) + 1}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The set with the higher count; unchanged where it is higher already."""
        if not isinstance(obj, DaemonSet):
            return obj
        present = obj.status.collision_count or 0
        wanted = (self.seen or 0) + 1
        if present >= wanted:
            return obj
        return replace(obj, status=replace(obj.status, collision_count=wanted))


class RollBackDaemonSet(ObjectAction, frozen=True, kw_only=True, gc=False):
    """PATCH of a DaemonSet with the data of one of its revisions (`DaemonSetRollbacker`).

    A person orders it (`daemonset undo`), under the version of the set that was judged.
    """

    detail_fields: ClassVar[tuple[str, ...]] = ("revision",)

    kind: str = "DaemonSet"
    revision: int
    patch: dict[str, Any]

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, DaemonSet):
            return obj
        template = (self.patch.get("spec") or {}).get("template") or {}
        restored = {key: value for key, value in template.items() if key != "$patch"}
        if restored == obj.spec.template:
            return obj
        return replace(obj, spec=replace(obj.spec, template=restored))
