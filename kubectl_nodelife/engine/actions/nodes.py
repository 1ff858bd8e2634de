"""Actions on nodes: conditions, taints, labels, cordon. A person orders `SetUnschedulable`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from kubectl_nodelife.engine.actions.action import Detail, NodeAction, condition_detail
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints


class SetNodeConditions(NodeAction, frozen=True, kw_only=True, gc=False):
    """UpdateStatus of a node: conditions replace those of their type, new ones are appended."""

    conditions: tuple[NodeCondition, ...]

    def records(self) -> Iterator[tuple[str, Detail]]:
        """One SetNodeCondition a condition."""
        for c in self.conditions:
            yield "SetNodeCondition", condition_detail(c)

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Node):
            return obj
        new = {c.type: c for c in self.conditions}
        in_place = tuple(new.pop(c.type, c) for c in obj.status.conditions)
        merged = in_place + tuple(new.values())
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
            yield "AddTaint", taint_detail(t)

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
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
            yield "RemoveTaint", taint_detail(t)

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
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
        if not isinstance(obj, Node):
            return obj
        labels = {**(obj.metadata.labels or {}), **self.labels}
        if labels == obj.metadata.labels:
            return obj
        return replace(obj, metadata=replace(obj.metadata, labels=labels))


class SetUnschedulable(NodeAction, frozen=True, kw_only=True, gc=False):
    """PATCH of a node's spec.unschedulable: cordon (True) or uncordon (False)."""

    detail_fields: ClassVar[tuple[str, ...]] = ("unschedulable",)

    unschedulable: bool

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        if not isinstance(obj, Node) or obj.spec.unschedulable == self.unschedulable:
            return obj
        return replace(obj, spec=replace(obj.spec, unschedulable=self.unschedulable))


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
