"""What the DaemonSet controller decides: pods, revisions, owner references, status.

Like `actions.py`, which these classes belong to. A created object carries its whole manifest, as
it would be sent; its name is chosen by the controller and not by the server (`generateName`), so
that a create that is sent twice makes one pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import SECOND_NS, Action, Detail, PodAction
from kubectl_nodelife.kube.decode import convert
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, Time, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, DaemonSetStatus

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
"""The status fields that the controller computes, in the order in which they are told."""


def created_uid(kind: str, namespace: str, name: str, now_ns: int) -> str:
    """A uid for an object that only we know of, the same in every run."""
    digest = hashlib.sha256(f"{kind}/{namespace}/{name}/{now_ns}".encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def created_object(obj: Any, kind: str, now_ns: int) -> Any:
    """The object with what the API server fills in at creation."""
    meta = obj.metadata
    created = Time(now_ns // SECOND_NS * SECOND_NS)
    uid = meta.uid or created_uid(kind, meta.namespace, meta.name, now_ns)
    return replace(obj, metadata=replace(meta, uid=uid, creation_timestamp=created))


class CreatePod(PodAction, frozen=True, kw_only=True, gc=False):
    """POST of a daemon pod for `node`; `revision` is the hash label that it carries."""

    manifest: dict[str, Any]
    node: str
    owner: str
    owner_uid: str
    revision: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """CreatePod."""
        yield "CreatePod", {"node": self.node, "owner": self.owner, "revision": self.revision}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The new pod, Pending; one of that name that is there already stays as it is."""
        if obj is not None:
            return obj
        pod = convert(self.manifest, Pod, "", "")
        pod = replace(pod, status=replace(pod.status, phase="Pending"))
        created: Pod = created_object(pod, "Pod", now_ns)
        return created

    def shown_by(self, obj: KubeObject) -> bool:
        """The same set's pod for the same node, whatever it is called."""
        if not isinstance(obj, Pod):
            return False
        if self.node != obj.spec.node_name and self.node not in _nodes_named_by_affinity(obj):
            return False  # asked first: thousands of nodes may wait for their pods of one set
        owner = controller_of(obj.metadata)
        return owner is not None and owner.uid == self.owner_uid


class SetPodLabel(PodAction, frozen=True, kw_only=True, gc=False):
    """Patch of one label of a pod."""

    key: str
    value: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetPodLabel."""
        yield "SetPodLabel", {"key": self.key, "value": self.value}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod with the label."""
        return None if obj is None else _with_label(obj, self.key, self.value)


class ObjectAction(Action, frozen=True, kw_only=True, gc=False):
    """An action on a namespaced object of any kind."""

    kind: str
    namespace: str
    name: str
    object_uid: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """(kind, (namespace, name))"""
        return (self.kind, (self.namespace, self.name))

    @property
    def uid(self) -> str:
        """The object's uid."""
        return self.object_uid


class AdoptObject(ObjectAction, frozen=True, kw_only=True, gc=False):
    """Patch of a controller reference into an orphan.

    Who carries it out first reads the owner afresh: it must still have that uid and not be
    terminating, or the garbage collector would take what was adopted.
    """

    owner: OwnerReference

    def records(self) -> Iterator[tuple[str, Detail]]:
        """AdoptObject."""
        yield "AdoptObject", {"owner": self.owner.name}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The object with the reference."""
        if obj is None or any(o.uid == self.owner.uid for o in obj.metadata.owner_references):
            return obj
        owners = (*obj.metadata.owner_references, self.owner)
        return replace(obj, metadata=replace(obj.metadata, owner_references=owners))


class ReleaseObject(ObjectAction, frozen=True, kw_only=True, gc=False):
    """Patch that takes the owner reference of `owner_uid` out of an object."""

    owner_uid: str

    def records(self) -> Iterator[tuple[str, Detail]]:
        """ReleaseObject."""
        yield "ReleaseObject", {}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The object without the reference."""
        if obj is None:
            return None
        kept = tuple(o for o in obj.metadata.owner_references if o.uid != self.owner_uid)
        if len(kept) == len(obj.metadata.owner_references):
            return obj
        return replace(obj, metadata=replace(obj.metadata, owner_references=kept))


class RevisionAction(Action, frozen=True, kw_only=True, gc=False):
    """An action on a ControllerRevision."""

    namespace: str
    name: str
    revision_uid: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("ControllerRevision", (namespace, name))"""
        return ("ControllerRevision", (self.namespace, self.name))

    @property
    def uid(self) -> str:
        """The revision's uid."""
        return self.revision_uid


class CreateControllerRevision(RevisionAction, frozen=True, kw_only=True, gc=False):
    """POST of a revision: the set's template as it is now, under the next number.

    Where one of that name exists the server answers 409, and whoever sent it shows the one that is
    there before it reports the failure.
    """

    revision: ControllerRevision

    def records(self) -> Iterator[tuple[str, Detail]]:
        """CreateControllerRevision."""
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


class UpdateControllerRevision(RevisionAction, frozen=True, kw_only=True, gc=False):
    """PUT of a revision with another number (a rollback) or with its hash label (an old object)."""

    number: int
    hash_label: tuple[str, str] | None = None

    def records(self) -> Iterator[tuple[str, Detail]]:
        """UpdateControllerRevision."""
        yield "UpdateControllerRevision", {"revision": self.number}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The revision with that number and label."""
        if not isinstance(obj, ControllerRevision):
            return obj
        revision = obj
        if self.hash_label is not None:
            revision = _with_label(revision, *self.hash_label)
        if revision.revision == self.number:
            return revision
        return replace(revision, revision=self.number)


class DeleteControllerRevision(RevisionAction, frozen=True, kw_only=True, gc=False):
    """DELETE of a revision beyond the history limit, or of a duplicate; `number` is what it had."""

    deletes: ClassVar[bool] = True

    number: int

    def records(self) -> Iterator[tuple[str, Detail]]:
        """DeleteControllerRevision."""
        yield "DeleteControllerRevision", {"revision": self.number}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """Gone."""
        return None


class DaemonSetAction(Action, frozen=True, kw_only=True, gc=False):
    """An action on a DaemonSet."""

    namespace: str
    name: str
    set_uid: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("DaemonSet", (namespace, name))"""
        return ("DaemonSet", (self.namespace, self.name))

    @property
    def uid(self) -> str:
        """The set's uid."""
        return self.set_uid


class UpdateDaemonSetStatus(DaemonSetAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a DaemonSet's counts.

    `reread`: the second try after an error; who carries it out reads the set afresh first, and an
    error of that read is the outcome.
    """

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


class RaiseCollisionCount(DaemonSetAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus that raises the collision count by one, from `seen` (None: not set).

    Who carries it out first reads the set afresh; with `check` a count that differs from `seen` is
    a failure (409): somebody raised it already.
    """

    seen: int | None
    check: bool = True

    def records(self) -> Iterator[tuple[str, Detail]]:
        """UpdateDaemonSetStatus."""
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


def _nodes_named_by_affinity(pod: Pod) -> Iterator[str]:
    """The nodes that a pod's affinity names by their metadata.name, as daemon pods' does."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                yield from field.values


def _with_label(obj: Any, key: str, value: str) -> Any:
    labels = obj.metadata.labels or {}
    if labels.get(key) == value:
        return obj
    return replace(obj, metadata=replace(obj.metadata, labels={**labels, key: value}))


def camel_case(field: str) -> str:
    """A field's name in the API's spelling."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
