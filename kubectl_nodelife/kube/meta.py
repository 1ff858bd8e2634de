"""The common part of every Kubernetes object: metadata, owner references, instants.

The slices in this folder hold the fields that some decision here reads, in the API's own nesting
and names (snake_case; msgspec renames). Unknown fields are skipped while decoding, which is what
makes a pod cost microseconds instead of a generated model's 724. All slices are frozen: a change is
a new object (`msgspec.structs.replace`), so a reference held by a controller never changes under
its feet.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""The widest integer that a field of the API has; JSON may hold wider ones."""


class Time(int):
    """An instant in ns since the Unix epoch; `metav1.Time` (RFC 3339, seconds) on the wire."""

    __slots__ = ()


class MicroTime(Time):
    """An instant like `Time`; `metav1.MicroTime` (RFC 3339 with microseconds) on the wire."""

    __slots__ = ()


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A typed slice of an API object or of a part of one. Equality is by value."""


class OwnerReference(ApiStruct, frozen=True):
    """`metav1.OwnerReference`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True):
    """`metav1.ObjectMeta`, without managedFields. `labels is None` means that there is no map at
    all.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    generate_name: str = ""
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class BaseCondition(ApiStruct, frozen=True):
    """What the conditions of all kinds have."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class LabelSelectorRequirement(ApiStruct, frozen=True):
    """`metav1.LabelSelectorRequirement`; also `core/v1.NodeSelectorRequirement` (which adds Gt and
    Lt).
    """

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiStruct, frozen=True):
    """`metav1.LabelSelector`. An empty one matches everything, an absent one (`None`) nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class KubeObject(ApiStruct, frozen=True):
    """An object with metadata; `kube.kinds` gives kind and apiVersion for the Python type."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """metadata.name"""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace, "" for cluster-scoped objects"""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """metadata.uid"""
        return self.metadata.uid

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name): what names the object within its kind."""
        return (self.metadata.namespace, self.metadata.name)


def new_controller_ref(
    kind: str, owner: KubeObject, api_version: str = "apps/v1"
) -> OwnerReference:
    """The reference of an object that the owner controls, as upstream's `NewControllerRef`."""
    return OwnerReference(
        kind, owner.name, owner.uid, api_version, controller=True, block_owner_deletion=True
    )


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner reference with `controller: true`, as upstream's `metav1.GetControllerOf`."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None
