"""Actions on DaemonSets, their revisions, and the owner references of their pods.

A person orders `RollBackDaemonSet`; the others are decided by the DaemonSet controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from kubectl_nodelife.engine.actions.action import Detail, ObjectAction, camel_case, created_object
from kubectl_nodelife.engine.actions.pods import with_label
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
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
