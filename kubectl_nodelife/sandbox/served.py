"""The simulated cluster's API server, kept in the store that is served.

The simulator's parts (kubelets, scheduler, owners, controllers) read and write slices through
`sim.api.Api`. Here each of their writes is merged back onto the whole object, gets a version, and
goes out to watchers; and each write of a client is passed to them as a slice. What
differs between the slice before and after is written onto the object (`merge_back`), and everything
that no slice holds stays as it was.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.codec import decode, encode
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import format_micro_time, format_time
from kubectl_nodelife.sandbox.discovery import BY_KIND
from kubectl_nodelife.sandbox.store import ObjectStore, StoredObject
from kubectl_nodelife.sim.api import Api

MAX_EVENTS = 2000
"""Event objects that are kept; a real cluster forgets them after an hour."""

_MISSING: Any = object()
# Fields by one of which the members of a list are identified.
_MEMBER_KEYS = (("key", "effect"), ("type",), ("name",), ("uid",))


class ServedApi(Api):
    """`sim.api.Api` over a `ObjectStore`; the clock is set by the caller."""

    def __init__(self, store: ObjectStore, now_ns: int) -> None:
        self.events = ClusterEvents(self)
        super().__init__(self.events, now_ns)
        self.served = store
        self.bind: Callable[[Pod], Pod] = lambda pod: pod
        """Gives a client's new pod its node, if it fits somewhere."""

    def put(self, kind: str, obj: KubeObject, cause: Action | None = None) -> None:
        """A write of the cluster itself or of a controller: merged onto the object served."""
        present = self.served.get(kind, obj.key)
        if present is None:
            document = self._new_document(obj)
        else:
            document = merge_back(present.document(), encode(present.obj), encode(obj))
        super().put(kind, self.served.put(kind, document).obj, cause)

    def put_conditions(self, changes: list[ConditionsChange]) -> None:
        """Writes of pods' conditions: each is one that watchers get."""
        for _, pod, cause in changes:
            self.put("Pod", pod, cause)

    def load(self, kind: str, obj: KubeObject) -> None:
        """Store the initial objects, before there are watchers."""
        whole = obj if obj.uid and obj.metadata.creation_timestamp else self.fill_in(obj)
        self.store.set(kind, obj.key, self.served.load(kind, whole).obj)

    def drop(self, kind: str, key: Key, cause: Action | None = None) -> KubeObject | None:
        """A removal by the cluster itself, a controller or a client."""
        self.served.drop(kind, key)
        return super().drop(kind, key, cause)

    def write(self, resource: Kind, document: dict[str, Any]) -> StoredObject:
        """A write of a client: the whole object as it now is. Raises InputError."""
        if resource.name == "Pod" and not document.get("spec", {}).get("nodeName"):
            self._schedule(document)
        entry = self.served.put(resource.name, document)
        if resource.type is not KubeObject:
            super().put(resource.name, entry.obj)
        return entry

    def _schedule(self, document: dict[str, Any]) -> None:
        """Bind a new pod to a node before any client sees it, if it fits on one."""
        pod = decode("Pod", document)
        assert isinstance(pod, Pod)
        if self.served.get("Pod", pod.key) is None and pod.status.phase in ("", "Pending"):
            node = self.bind(pod).spec.node_name
            if node:
                document["spec"]["nodeName"] = node

    def remove(self, resource: Kind, key: Key) -> StoredObject | None:
        """A removal by a client; returns the object as it went."""
        entry = self.served.drop(resource.name, key)
        if resource.type is not KubeObject:
            super().drop(resource.name, key)
        return entry

    def _new_document(self, obj: KubeObject) -> dict[str, Any]:
        """An object that the cluster makes; a pod has all fields of its owner's template."""
        document = encode(obj)
        resource = BY_KIND[document["kind"]]
        meta = document.setdefault("metadata", {})
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", format_time(self.now_ns))
        owner = controller_of(obj.metadata) if resource.name == "Pod" else None
        above = self.served.get(owner.kind, (obj.namespace, owner.name)) if owner else None
        if above is not None:
            template = above.document().get("spec", {}).get("template", {})
            document = overlay({"spec": template.get("spec", {})}, document)
        return document


class ClusterEvents:
    """Journal of the simulated parts, and the Event objects that they and controllers record."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api
        self._known: dict[tuple[str, ...], Key] = {}
        self._kept: deque[tuple[str, ...]] = deque()

    def write(self, now_ns: int, action: Action) -> None:
        """Record Events only; the rest is visible in the objects themselves."""
        if isinstance(action, RecordEvent):
            self.record(action, now_ns)

    def write_all(self, now_ns: int, actions: Sequence[Action]) -> None:
        """The same of several."""
        for action in actions:
            self.write(now_ns, action)

    def record(self, action: RecordEvent, now_ns: int) -> None:
        """An Event object, or one more of the same, as client-go's recorder aggregates them."""
        resource = BY_KIND.get(action.kind)
        if resource is None:
            return
        same = (action.kind, action.namespace, action.name, action.reason, action.message)
        key = self._known.get(same)
        present = self._api.served.get("Event", key) if key is not None else None
        if present is not None:
            document = present.document()
            document["count"] = document.get("count", 1) + 1
            document["lastTimestamp"] = format_time(now_ns)
        else:
            document = self._event(action, resource, now_ns)
            meta = document["metadata"]
            self._known[same] = (meta["namespace"], meta["name"])
            self._kept.append(same)
            if len(self._kept) > MAX_EVENTS:
                self._api.served.drop("Event", self._known.pop(self._kept.popleft()))
        self._api.served.put("Event", document)

    def _event(self, action: RecordEvent, resource: Kind, now_ns: int) -> dict[str, Any]:
        namespace = action.namespace or "default"
        involved = {
            "kind": action.kind,
            "apiVersion": resource.api_version,
            "name": action.name,
            # The recorder writes a node's name where its uid should be, and kubectl looks there.
            "uid": action.name if action.kind == "Node" else action.object_uid,
        }
        if action.namespace:
            involved["namespace"] = action.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{action.name}.{uuid.uuid4().hex[:16]}",
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": format_time(now_ns),
            },
            "involvedObject": involved,
            "reason": action.reason,
            "message": action.message or action.because,
            "source": {"component": action.controller},
            "reportingComponent": action.controller,
            "type": action.type,
            "count": 1,
            "firstTimestamp": format_time(now_ns),
            "lastTimestamp": format_time(now_ns),
            "eventTime": None,
        }


def renewed_lease(
    present: StoredObject | None, node: str, uid: str, now_ns: int, seconds: int
) -> dict[str, Any]:
    """A node's Lease document, renewed now."""
    if present is not None:
        document = present.document()
        document["spec"]["renewTime"] = format_micro_time(now_ns)
        return document
    owners = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}] if uid else []
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "namespace": "kube-node-lease",
            "uid": str(uuid.uuid4()),
            "creationTimestamp": format_time(now_ns),
            "ownerReferences": owners,
        },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": seconds,
            "renewTime": format_micro_time(now_ns),
        },
    }


def merge_back(raw: Any, before: Any, after: Any) -> Any:
    """`raw` with what changed from `before` to `after`, all plain JSON; raw stays as it is."""
    if before == after:
        return raw
    if isinstance(raw, dict) and isinstance(before, dict) and isinstance(after, dict):
        return _merge_object(raw, before, after)
    if isinstance(raw, list) and isinstance(before, list) and isinstance(after, list):
        return _merge_list(raw, before, after)
    return after


def overlay(base: Any, over: Any) -> Any:
    """`base` with all fields of `over` on top: for an object that is made from a template."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {
            key: overlay(base[key], over[key]) if key in base and key in over else either
            for key, either in {**base, **over}.items()
        }
    if isinstance(base, list) and isinstance(over, list):
        members = {_member_key(member): member for member in base}
        members.pop(None, None)
        return [overlay(members.get(_member_key(member), member), member) for member in over]
    return over


def _merge_object(raw: dict[str, Any], before: Any, after: Any) -> dict[str, Any]:
    merged = dict(raw)
    for key in before.keys() | after.keys():
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old == new:
            continue
        if new is _MISSING:
            merged.pop(key, None)
        else:
            merged[key] = merge_back(raw.get(key), old, new)
    return merged


def _merge_list(raw: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Members keep what no slice holds, found again by position if unchanged, else by their key."""
    if len(raw) != len(before):
        return after
    merged = []
    for new in after:
        for whole, old in zip(raw, before, strict=True):
            if old == new or (
                _member_key(old) is not None and _member_key(old) == _member_key(new)
            ):
                merged.append(merge_back(whole, old, new))
                break
        else:
            merged.append(new)
    return merged


def _member_key(member: Any) -> tuple[Any, ...] | None:
    if isinstance(member, dict):
        for fields in _MEMBER_KEYS:
            if all(field in member for field in fields):
                return (fields, *(member[field] for field in fields))
    return None
