"""What a person orders with `drain`, `cordon` and `uncordon`: evictions and unschedulable nodes.

Like `actions.py`, which these classes belong to. No controller takes these actions by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import DeletePod, Detail, NodeAction, PodAction, put_condition
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.pod_conditions import disruption_target
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API

EVICTION_MESSAGE: Final = "Eviction API: evicting"


class EvictPod(PodAction, frozen=True, kw_only=True, gc=False):
    """POST of an Eviction. `grace_period_seconds` None: the pod's own.

    An answer of 429 means that a budget is used up, or busy: it is asked again every five seconds.
    """

    grace_period_seconds: int | None = None

    def records(self) -> Iterator[tuple[str, Detail]]:
        """EvictPod."""
        grace = self.grace_period_seconds
        yield "EvictPod", {} if grace is None else {"gracePeriodSeconds": grace}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """As a DELETE of the pod; the API server says on it why."""
        left = self._deletion().effect(obj, now_ns)
        if left is obj or not isinstance(left, Pod):
            return left
        reason = EVICTION_BY_EVICTION_API
        condition = disruption_target(left.status, reason, EVICTION_MESSAGE, now_ns)
        if condition is None:
            return left
        conditions = put_condition(left.status.conditions, condition)
        return replace(left, status=replace(left.status, conditions=conditions))

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


class SetUnschedulable(NodeAction, frozen=True, kw_only=True, gc=False):
    """PATCH of a node's spec.unschedulable: cordon (True) or uncordon (False)."""

    unschedulable: bool

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetUnschedulable."""
        yield "SetUnschedulable", {"unschedulable": self.unschedulable}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The node cordoned or uncordoned."""
        if not isinstance(obj, Node) or obj.spec.unschedulable == self.unschedulable:
            return obj
        return replace(obj, spec=replace(obj.spec, unschedulable=self.unschedulable))
