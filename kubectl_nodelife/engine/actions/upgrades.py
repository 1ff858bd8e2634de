"""Decisions of the upgrade controller: one PATCH for each change of a node's state, and the rest.

A node's state, its cordon, taints, labels and annotations change together, under the version that
was judged: a change in between is answered with 409, and the next pass decides anew. Of those that
are no calls to the API server, `StartWork` and `StopWork` go to what runs commands, the others are
records alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from kubectl_nodelife.engine.actions.action import (
    Action,
    Detail,
    NodeAction,
    ObjectAction,
    created_object,
    created_pod,
)
from kubectl_nodelife.kube.codec import convert
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints

Changes = dict[str, str | None]
"""Key to value; None takes the key away."""
CLAIM_NODE: Final = "ClaimNode"
"""The record of a claim: cordon, annotation, label and shield in one PATCH."""


class NodeMarkPatch(NodeAction, frozen=True, kw_only=True, gc=False):
    """One JSON merge patch of a node. `unschedulable` None: as it is. Taints go by key and effect.
    `from_`, `to`: states of the upgrade, "" for none. `record`: the word of its record.
    """

    record: str = "MarkNode"
    from_: str = ""
    to: str = ""
    unschedulable: bool | None = None
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()
    annotations: Changes = {}
    labels: Changes = {}

    @property
    def word(self) -> str:
        """`record`."""
        return self.record

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One record, from which state to which."""
        states = (("from", self.from_), ("to", self.to))
        yield self.record, {key: state for key, state in states if state}

    def node_after(self, node: Node) -> Node:
        spec, meta = node.spec, node.metadata
        taints = remove_taints(spec.taints, self.remove_taints)
        taints = add_or_update_taints(taints, self.add_taints)
        cordoned = spec.unschedulable if self.unschedulable is None else self.unschedulable
        annotations = _changed(meta.annotations, self.annotations)
        labels = _changed(meta.labels, self.labels)
        if annotations is not meta.annotations or labels is not meta.labels:
            meta = replace(meta, annotations=annotations, labels=labels)
        if taints is not spec.taints or cordoned != spec.unschedulable:
            spec = replace(spec, taints=taints, unschedulable=cordoned)
        if meta is node.metadata and spec is node.spec:
            return node
        return replace(node, metadata=meta, spec=spec)


class StartWork(NodeAction, frozen=True, kw_only=True, gc=False):
    """Begin the work on a node, on the leader's machine. `env`: the variables of the command."""

    writes: ClassVar[bool] = False
    detail_fields: ClassVar[tuple[str, ...]] = ("mode", "try_")

    try_: int
    mode: str
    env: dict[str, str] = {}


class StopWork(NodeAction, frozen=True, kw_only=True, gc=False):
    """End the process group of a node's work: TERM, ten seconds, KILL."""

    writes: ClassVar[bool] = False
    detail_fields: ClassVar[tuple[str, ...]] = ("try_",)

    try_: int


class WorkDone(NodeAction, frozen=True, kw_only=True, gc=False):
    """The work on a node ended. `code` None: without an exit code of ours."""

    writes: ClassVar[bool] = False

    try_: int
    code: int | None = None

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "WorkDone", {"try": self.try_} | ({} if self.code is None else {"code": self.code})


class FailWithoutMark(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node failed that bears no mark of the run, whose document names it: its object went, and no
    newcomer came in time, or it was to be proven and cannot be.
    """

    writes: ClassVar[bool] = False

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "FailNode", {"to": "Failed"}


class ForNode(ObjectAction, frozen=True, kw_only=True, gc=False):
    """An action on what is made for a node: its canary, or the Job of one try of its work."""

    detail_fields: ClassVar[tuple[str, ...]] = ("node",)

    node: str

    @property
    def word(self) -> str:
        """CreateCanary, DeleteJob, and so on."""
        what = "Canary" if self.kind == "Pod" else self.kind
        return f"{'Delete' if self.deletes else 'Create'}{what}"


class CreateForNode(ForNode, frozen=True, kw_only=True, gc=False):
    """POST of the manifest. 409: it is there already."""

    manifest: dict[str, Any]

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The new object, a pod Pending; one of that name that is there already stays as it is."""
        if obj is not None:
            return obj
        if self.kind == "Pod":
            return created_pod(self.manifest, now_ns)
        manifest = convert(self.manifest, kind_named(self.kind).type, "", "")
        created: KubeObject = created_object(manifest, self.kind, now_ns)
        return created

    def shown_by(self, obj: KubeObject) -> bool:
        """One of that name is there."""
        return True


class DeleteForNode(ForNode, frozen=True, kw_only=True, gc=False):
    """DELETE under the uid: of a pod with its own grace period, of a Job with its pods."""

    deletes: ClassVar[bool] = True

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod terminating, or gone; the Job gone."""
        return delete_pod(obj, now_ns) if isinstance(obj, Pod) else None

    def shown_by(self, obj: KubeObject) -> bool:
        """It is being deleted."""
        return obj.metadata.deletion_timestamp is not None


class UpdateRun(ObjectAction, frozen=True, kw_only=True, gc=False):
    """PATCH of the run's Lease: its document, and a request struck off with it. `phase`, `step`,
    `window`: what changes of them, for the records; "" and None where it does not.
    """

    kind: str = "Lease"
    annotations: Changes
    phase_from: str = ""
    phase: str = ""
    step: int | None = None
    window: int | None = None

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetUpgradePhase and SetWindow, where these change."""
        if self.phase:
            yield "SetUpgradePhase", {"from": self.phase_from, "to": self.phase}
        if self.window is not None:
            yield "SetWindow", {"step": self.step, "window": self.window}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Lease):
            return obj
        annotations = _changed(obj.metadata.annotations, self.annotations)
        if annotations is obj.metadata.annotations:
            return obj
        return replace(obj, metadata=replace(obj.metadata, annotations=annotations))


class SetGate(Action, frozen=True, kw_only=True, gc=False):
    """A gate holds from now on, or no longer does."""

    writes: ClassVar[bool] = False
    detail_fields: ClassVar[tuple[str, ...]] = ("gate", "holds")

    gate: str
    holds: bool

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("Gate", ("", gate))"""
        return ("Gate", ("", self.gate))


def _changed(present: dict[str, str] | None, changes: Mapping[str, str | None]) -> Any:
    """`present` with the changes made; the same mapping where that changes nothing, None for an
    empty one, as the API server keeps none.
    """
    before = present or {}
    after = {key: value for key, value in before.items() if changes.get(key, value) is not None}
    after |= {key: value for key, value in changes.items() if value is not None}
    return present if after == before else after or None
