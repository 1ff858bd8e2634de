"""Lets all pods of a cluster hold equal parts once, to save memory.

Thirty pods of a Deployment carry the same labels, owner, containers and tolerations, and every pod
of a cluster the same few words in its conditions. Decoded each by itself that is most of a pod's
memory. Objects are never changed, so equal parts may be one object; a part is replaced between an
object's decoding and the first time that anybody sees it.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod

_encode = msgspec.msgpack.Encoder().encode

_SPEC_PARTS: Final = (
    "affinity",
    "containers",
    "init_containers",
    "node_selector",
    "tolerations",
    "topology_spread_constraints",
    "volumes",
)


class SharedParts:
    """Parts seen so far. When there are more than `limit` it begins anew, or it would grow for ever
    in a cluster where workloads come and go.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._parts: dict[bytes, Any] = {}

    def share(self, obj: KubeObject) -> None:
        """Replace the object's parts by equal ones that were seen before."""
        meta = obj.metadata
        if meta.namespace:
            force_setattr(meta, "namespace", intern(meta.namespace))
        if meta.labels:
            self._part(meta, "labels", meta.labels)
        if meta.owner_references:
            self._part(meta, "owner_references", meta.owner_references)
        if type(obj) is Pod:
            self._share_pod(obj)
        if len(self._parts) > self._limit:
            self._parts.clear()

    def _share_pod(self, pod: Pod) -> None:
        spec, status = pod.spec, pod.status
        for name in _SPEC_PARTS:
            part = getattr(spec, name)
            if part:
                self._part(spec, name, part)
        force_setattr(spec, "node_name", intern(spec.node_name))
        force_setattr(spec, "restart_policy", intern(spec.restart_policy))
        force_setattr(spec, "scheduler_name", intern(spec.scheduler_name))
        force_setattr(status, "phase", intern(status.phase))
        force_setattr(status, "qos_class", intern(status.qos_class))
        if status.host_ip:
            force_setattr(status, "host_ip", intern(status.host_ip))
        for condition in status.conditions:
            force_setattr(condition, "type", intern(condition.type))
            force_setattr(condition, "status", intern(condition.status))
            if condition.reason:
                force_setattr(condition, "reason", intern(condition.reason))
            if condition.message:
                force_setattr(condition, "message", intern(condition.message))
        for statuses in (status.container_statuses, status.init_container_statuses):
            for container in statuses or ():
                force_setattr(container, "name", intern(container.name))
                force_setattr(container, "image", intern(container.image))

    def _part(self, owner: Any, name: str, part: Any) -> None:
        """One field: by value, which its encoding stands for, since a dict has no hash."""
        key = _encode((name, part))
        known = self._parts.get(key)
        if known is None:
            self._parts[key] = part
        else:
            force_setattr(owner, name, known)
