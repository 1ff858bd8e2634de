"""Workload owners: a pod that is lost gets a successor, when and as its owner would make one.

The rules are `workloads/owners.py`; here they are carried out. A successor copies the spec of the
pod that it replaces, tolerations included, and gets a new name (a StatefulSet's keeps its own).
Owners only replace: nobody scales, rolls out or finishes anything. DaemonSets are left to their
controller, static pods to their kubelet.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.acts import MakePod
from kubectl_nodelife.sim.agenda import OWNER, Agenda
from kubectl_nodelife.sim.api import CLUSTER, Api, whole_seconds
from kubectl_nodelife.workloads.owners import (
    AT_ONCE,
    NEVER,
    Replacement,
    is_active,
    replacement_of,
    successor,
)

_HASH_LABELS = ("pod-template-hash", "controller-revision-hash")
_NOT_HERE = frozenset({"DaemonSet", "Node"})

SHORTEST_LIFE_NS = SECOND_NS
"""A pod that is lost the moment it was made is not replaced before that: virtual time must move on,
where a pod that tolerates its node's taint for no time at all is made and evicted over and over.
"""

Place = Callable[[Pod], str | None]
"""Finds a node for a pod like this one, if it fits somewhere."""


class WorkloadControllers:
    """Watches pods and replaces those that their owners lose."""

    def __init__(self, api: Api, agenda: Agenda, place: Place, kinds_read: frozenset[str]) -> None:
        """`kinds_read`: kinds of which an absent object is known not to exist."""
        self._api = api
        self._agenda = agenda
        self._place = place
        self._kinds_read = kinds_read
        self._active: dict[str, int] = {}
        self._made: dict[str, int] = {}

    def fork(self, api: Api, agenda: Agenda, place: Place) -> WorkloadControllers:
        """Those of the world's fork."""
        other = copy(self)
        other._api, other._agenda, other._place = api, agenda, place
        self._active, other._active = fork_dict(self._active)
        self._made, other._made = fork_dict(self._made)
        return other

    def begin(self) -> None:
        """From now on pods are replaced."""
        self._api.on_pod(self._pod_changed)

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object of that kind and name, or None."""
        return self._api.store.get(kind, (namespace, name))

    def was_read(self, kind: str) -> bool:
        """Whether objects of that kind were read, so that None means that there is none."""
        return kind in self._kinds_read

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        was, still = old is not None and is_active(old), new is not None and is_active(new)
        if was != still:
            self._count(old or new, 1 if still else -1)
        if old is None or still or not (was or new is None):
            return
        owner = controller_of(old.metadata)
        if owner is None or owner.kind in _NOT_HERE:
            return
        if new is not None and new.status.phase == "Succeeded":
            return
        rule = replacement_of(old, self)
        if rule.when == NEVER:
            return
        if was if rule.when == AT_ONCE else new is None:
            delay_ns = rule.delay_ns if new is not None else 0
            at_ns = max(self._api.now_ns + delay_ns, self._made.get(old.uid, 0) + SHORTEST_LIFE_NS)
            self._agenda.add(at_ns, OWNER, self._replace, old, rule, cause)
        if new is None:
            self._made.pop(old.uid, None)

    def _count(self, pod: Pod | None, more: int) -> None:
        """Keep the number of an owner's active pods, where it was asked for."""
        owner = controller_of(pod.metadata) if pod is not None else None
        if owner is not None and owner.uid in self._active:
            self._active[owner.uid] += more

    def _active_pods(self, owner_uid: str) -> int:
        if owner_uid not in self._active:
            pods = self._api.store.pods_of(owner_uid)
            self._active[owner_uid] = sum(1 for pod in pods if is_active(pod))
        return self._active[owner_uid]

    def _replace(self, lost: Pod, rule: Replacement, cause: Action | None, at_ns: int) -> None:
        owner = controller_of(lost.metadata)
        assert owner is not None
        if rule.replicas is not None and self._active_pods(owner.uid) >= rule.replicas:
            return
        if owner.kind == "StatefulSet" and lost.key in self._api.store.pods:
            return
        pod = self._successor(lost, owner)
        self._made[pod.uid] = at_ns
        labels = pod.metadata.labels or {}
        made = self._api.note(
            MakePod(
                controller=CLUSTER,
                because=f"{owner.kind} {owner.name} makes a pod in place of {lost.name}",
                cause=cause,
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                node=pod.spec.node_name,
                owner=owner.name,
                revision=next((labels[key] for key in _HASH_LABELS if key in labels), ""),
            )
        )
        self._api.put("Pod", pod, made)

    def _successor(self, lost: Pod, owner: OwnerReference) -> Pod:
        """A new Pending pod with the same spec, labels and owner, bound if it fits somewhere."""
        generated = lost.metadata.generate_name or f"{owner.name}-"
        name, uid = self._api.new_name(generated)
        pod = successor(lost, name, uid, whole_seconds(self._api.now_ns))
        pod = self._api.admission.admit(pod)
        node = self._place(pod)
        return pod if node is None else replace(pod, spec=replace(pod.spec, node_name=node))
