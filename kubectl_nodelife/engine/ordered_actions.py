"""What a person orders with `repair` and `rollout undo`: one write each, as it was shown to him.

Like `drain_actions.py`. No controller takes these actions by itself. Each hangs on the version of
the object that was judged: a change in between is answered with a conflict, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, Detail, PodAction, put_condition
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.workload import DaemonSet


class SetPodReady(PodAction, frozen=True, kw_only=True, gc=False):
    """PATCH of the status of a pod's Ready condition; its reason and message stay as they are."""

    status: str
    at: Time

    def records(self) -> Iterator[tuple[str, Detail]]:
        """SetPodReady."""
        yield "SetPodReady", {"type": "Ready", "status": self.status}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The pod with that status of Ready."""
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


class RollBackDaemonSet(Action, frozen=True, kw_only=True, gc=False):
    """PATCH of a DaemonSet with the data of one of its revisions (`DaemonSetRollbacker`)."""

    namespace: str
    name: str
    set_uid: str
    revision: int
    patch: dict[str, Any]

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("DaemonSet", (namespace, name))"""
        return ("DaemonSet", (self.namespace, self.name))

    @property
    def uid(self) -> str:
        """The set's uid."""
        return self.set_uid

    def records(self) -> Iterator[tuple[str, Detail]]:
        """RollBackDaemonSet."""
        yield "RollBackDaemonSet", {"revision": self.revision}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The set with the revision's template."""
        if not isinstance(obj, DaemonSet):
            return obj
        template = (self.patch.get("spec") or {}).get("template") or {}
        restored = {key: value for key, value in template.items() if key != "$patch"}
        if restored == obj.spec.template:
            return obj
        return replace(obj, spec=replace(obj.spec, template=restored))
