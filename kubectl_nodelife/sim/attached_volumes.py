"""Volumes that are attached to one node only: a pod elsewhere does not start before they are free.

Follows pkg/controller/volume/attachdetach (reconciler.go, util.IsMultiAttachAllowed): a volume is
needed on a node as long as the object of a pod that uses it there exists. After that the kubelet
unmounts it and it is detached. Where the kubelet is silent, the controller waits six minutes and
then detaches the volume by force if the node is not Ready, or at once if it is marked out of
service, or from 1.38 on if the Node object is gone. Left out: the flag that switches the force off,
and how long a detach takes.
A volume without an attachment, where attachments were read, needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Final

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import TAINT_NODE_OUT_OF_SERVICE
from kubectl_nodelife.sim.api import event_record
from kubectl_nodelife.sim.timeline import KUBELET
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.scheduling import attaches_to_one, claim_names, volumes_elsewhere

MAX_WAIT_FOR_UNMOUNT_NS: Final = 6 * MINUTE_NS
"""maxWaitForUnmountDuration of the attach-detach controller."""

WAITING: Final = "Waiting for detach"
MULTI_ATTACH: Final = "Multi-Attach error"
"""How FailedAttachVolume begins, from v1.37 on and before."""

_LOOK_AGAIN_NS: Final = SECOND_NS


class AttachedVolumes:
    """The node to which each claim's volume is attached. `waits`: pods that are bound and do not
    start, with the node that has their volume."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._attached: frozenset[str] | None = None
        if world.api.store.was_read("VolumeAttachment"):
            self._attached = frozenset(
                attachment.spec.source.persistent_volume_name
                for attachment in world.api.store.all("VolumeAttachment")
                if isinstance(attachment, VolumeAttachment)
            )
        self._holder: dict[Key, str] = {}
        self._leaving: dict[Key, int] = {}
        self.waits: dict[Key, str] = {}
        store = world.api.store
        for pod in store.pods.values():
            if pod.spec.volumes and pod.spec.node_name and pod.status.phase == "Running":
                self._attach(pod)
        unsettled = store.unsettled_pods()
        elsewhere = volumes_elsewhere(store.pods.values(), unsettled, store.get)
        for pod in unsettled if elsewhere else ():
            if pod.uid in elsewhere:
                self.waits[pod.key] = elsewhere[pod.uid].holder.spec.node_name
        world.join(self)
        world.kubelets.attend(self._kubelet_starts, on_run=self._holds_up, first=True)
        world.api.on_pod(self._pod_changed)
        world.api.on_node(self._node_changed)

    def fork(self, world: World) -> AttachedVolumes:
        """The same for a fork of the world."""
        other = copy(self)
        other._world = world
        self._holder, other._holder = fork_dict(self._holder)
        other._leaving, other.waits = dict(self._leaving), dict(self.waits)
        return other

    def _claims(self, pod: Pod) -> Iterator[Key]:
        """The pod's claims whose volumes are attached to one node at a time."""
        store = self._world.api.store
        for name in claim_names(pod):
            claim = store.get("PersistentVolumeClaim", (pod.namespace, name))
            if not isinstance(claim, PersistentVolumeClaim):
                continue
            if attaches_to_one(claim) and self._is_attached(claim.spec.volume_name):
                yield claim.key

    def _is_attached(self, volume: str) -> bool:
        """True if volumes of this kind are attached to nodes at all."""
        store = self._world.api.store
        pv = store.get("PersistentVolume", ("", volume))
        if isinstance(pv, PersistentVolume) and (pv.spec.local or pv.spec.host_path):
            return False
        return self._attached is None or volume in self._attached

    def _attach(self, pod: Pod) -> None:
        for claim in self._claims(pod):
            self._holder[claim] = pod.spec.node_name

    def _holds_up(self, pod: Pod) -> bool:
        """True if another node has a volume of a pod about to run; else attaches its volumes."""
        for claim in self._claims(pod):
            holder = self._holder.get(claim, pod.spec.node_name)
            if holder != pod.spec.node_name:
                api = self._world.api
                words = WAITING if api.profile.has("waiting_for_detach") else MULTI_ATTACH
                why = f"{words} for the volume of claim {claim[1]}: it is attached to {holder}"
                api.note(event_record(pod, "FailedAttachVolume", why, warning=True))
                self.waits[pod.key] = holder
                return True
        self._attach(pod)
        return False

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        """A pod whose object is gone no longer needs its volumes."""
        if old is None or (new is not None and new.uid == old.uid):
            return
        self.waits.pop(old.key, None)
        for claim in self._claims(old):
            if self._holder.get(claim) == old.spec.node_name and not self._is_wanted(claim):
                self._leaves(claim, old.spec.node_name)

    def _is_wanted(self, claim: Key) -> bool:
        node = self._holder[claim]
        return any(
            pod.namespace == claim[0] and claim[1] in claim_names(pod)
            for pod in self._world.api.store.pods_on(node)
            if pod.status.phase not in TERMINAL_PHASES
        )

    def _leaves(self, claim: Key, node: str) -> None:
        if self._world.kubelets.alive(node) or self._is_given_up(node):
            self._free(claim)
            return
        now_ns = self._leaving[claim] = self._world.api.now_ns
        due_ns = now_ns + MAX_WAIT_FOR_UNMOUNT_NS
        self._world.agenda.add(due_ns, KUBELET, self._time_is_over, claim, now_ns)

    def _time_is_over(self, claim: Key, since_ns: int, at_ns: int) -> None:
        if self._leaving.get(claim) != since_ns:
            return
        node = self._world.api.store.nodes.get(self._holder[claim])
        if node is None or not node.is_ready:
            self._free(claim)
        else:
            due_ns = at_ns + _LOOK_AGAIN_NS
            self._world.agenda.add(due_ns, KUBELET, self._time_is_over, claim, since_ns)

    def _is_given_up(self, name: str) -> bool:
        """True if nothing counts as mounted on the node."""
        node = self._world.api.store.nodes.get(name)
        if node is None:
            return self._world.api.profile.has("detach_when_node_is_gone")
        return any(taint.key == TAINT_NODE_OUT_OF_SERVICE for taint in node.spec.taints)

    def _kubelet_starts(self, node: str) -> None:
        """It unmounts the volumes that no pod of its node needs any more."""
        for claim in [c for c in self._leaving if self._holder.get(c) == node]:
            self._free(claim)

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        about = new if new is not None else old
        if self._leaving and about is not None and self._is_given_up(about.name):
            self._kubelet_starts(about.name)

    def _free(self, claim: Key) -> None:
        """The volume is detached: pods that waited for it start."""
        self._holder.pop(claim, None)
        self._leaving.pop(claim, None)
        for key in list(self.waits):
            pod = self._world.api.store.pods.get(key)
            if pod is not None and claim in self._claims(pod):
                del self.waits[key]
                why = f"the volume of its claim {claim[1]} is attached to {pod.spec.node_name}"
                done = self._world.api.note(event_record(pod, "SuccessfulAttachVolume", why))
                self._world.kubelets.start_pod(pod, done)
