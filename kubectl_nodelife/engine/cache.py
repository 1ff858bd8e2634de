"""The engine's picture of the cluster: typed objects, two indexes, and the nodes' heartbeats.

Fed by `apply`, a few lines per kind of event and no thinking. Controllers read; only the engine
and the overlay write. A Lease of a node becomes a `Heartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, Protocol, Self, TypeVar, cast

from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import (
    CopyOnWriteDict,
    copy_of_dict,
    entries_of,
    fork_dict,
    in_key_order,
    made_later,
    peek,
    unchanging,
    values_at,
)
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import (
    Change,
    ConditionsChanged,
    Gone,
    Heartbeats,
    LeaseReads,
    Put,
    Unreadable,
)
from kubectl_nodelife.engine.heartbeat import Heartbeat, first_heartbeats, followed
from kubectl_nodelife.engine.quarantine import Quarantine
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, controller_of
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE

Key = tuple[str, str]
_RUNNING: Final = "Running"
_INDEXED_KINDS: Final = frozenset({"Lease", "Node", "Pod"})
OK: Final = 200
NOT_FOUND: Final = 404
T = TypeVar("T")
K = TypeVar("K", str, Key)


class ListFailed(Exception):
    """A listing could not be had: a cache that asks the API server for it may raise this."""


class PodIndex(Protocol):
    """What is kept of all pods by someone who asks for it often (`workloads.pod_classes`)."""

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, went or changed."""

    def copy(self) -> Self:
        """Another one, kept up by itself."""


class Cache:
    """Objects by kind and key, pods by node and by controlling owner, heartbeats by node name.

    An object that can no longer be read stays as it was when it could; `quarantine` names it.
    `kinds_read`: kinds of which an object that is not there is known not to exist.
    `heartbeats` are as a watch of Leases shows them. What a GET of one answers is in `read_lease`:
    the same, but where the source says that their watch stands still, or that reads fail.
    `pod_index`: is true of the pods, where it is not None, and then `known_to` are controllers that
    have heard of these pods.
    """

    def __init__(self) -> None:
        self.kinds_read: frozenset[str] = frozenset()
        self.quarantine = Quarantine()
        self.objects: dict[str, dict[Key, KubeObject]] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[Key, Pod] = {}
        self.heartbeats: dict[str, Heartbeat] = {}
        self._renews_every: dict[str, int] = {}
        self._live: dict[str, Heartbeat | None] = {}
        self._stale_since_ns: int | None = None
        self._failing_reads: dict[str, int] = {}
        self._pods_by_node: dict[str, dict[Key, Pod]] = {}
        self._pods_by_owner: dict[str, dict[Key, None]] = {}
        self._unsettled: dict[Key, None] | None = None
        self._unsettled_pods: list[Pod] | None = None
        self.pod_index: PodIndex | None = None
        self.known_to: Sequence[object] = ()
        self._keeps_index = False

    def keep(self, index: PodIndex) -> None:
        """Keep the index up from now on, in copies too; forks have it until a pod changes."""
        self.pod_index, self._keeps_index = index, True

    def node(self, name: str) -> Node | None:
        """The node, or None."""
        return self.nodes.get(name)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod, or None."""
        return self.pods.get((namespace, name))

    def pods_on(self, node: str) -> list[Pod]:
        """The pods bound to a node ("" is none), in the order in which they came there."""
        bound = peek(self._pods_by_node, node)
        return list(bound.values()) if bound is not None else []

    def count_on(self, node: str) -> int:
        """How many pods are bound to a node."""
        pods = peek(self._pods_by_node, node)
        return len(pods) if pods is not None else 0

    def nodes_with_pods(self) -> Collection[str]:
        """Names of the nodes to which some pod is bound, whether or not the node exists."""
        return self._pods_by_node.keys()

    def pods_of(self, owner_uid: str) -> list[Pod]:
        """The pods whose controller has that uid."""
        keys = peek(self._pods_by_owner, owner_uid) if owner_uid else None
        return values_at(self.pods, keys) if keys else []

    def count_of(self, owner_uid: str) -> int:
        """How many pods have the controller of that uid."""
        pods = peek(self._pods_by_owner, owner_uid)
        return len(pods) if pods is not None else 0

    def pods_of_nobody(self) -> list[Pod]:
        """The pods that no controller has, or one without a uid."""
        return [self.pods[key] for key in peek(self._pods_by_owner, "") or ()]

    def unsettled_pods(self) -> list[Pod]:
        """The pods that do not simply run (`is_settled`), in the order of all pods: where the rest
        need no look, those are few. Once asked for, they are kept up, in forks until a pod changes.
        """
        if self._unsettled_pods is not None:
            return self._unsettled_pods
        pods, unsettled = self.pods, self._unsettled
        if unsettled is None:
            found = [pod for pod in pods.values() if not is_settled(pod)]
            self._unsettled = {pod.key: None for pod in found}
        else:
            found = [pods[key] for key in pods if key in unsettled]
        self._unsettled_pods = found
        return found

    def first_of_owners(self) -> Iterator[tuple[str, Pod]]:
        """The uid by which `pods_of` finds the pods of each controller, and the first of them."""
        for uid, keys in entries_of(self._pods_by_owner):
            if uid:
                yield uid, self.pods[next(iter(keys))]

    def get(self, kind: str, key: Key) -> KubeObject | None:
        """The object of that kind and (namespace, name), or None."""
        if kind == "Node":
            return self.nodes.get(key[1])
        if kind == "Pod":
            return self.pods.get(key)
        return self.objects.get(kind, {}).get(key)

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object of that kind and name, or None."""
        return self.get(kind, (namespace, name))

    def was_read(self, kind: str) -> bool:
        """True if objects of that kind were read, so that None means that there is none."""
        return kind in self.kinds_read

    def all(self, kind: str) -> Iterable[KubeObject]:
        """All objects of a kind, in the order in which they were first seen."""
        if kind == "Node":
            return self.nodes.values()
        if kind == "Pod":
            return self.pods.values()
        return self.objects.get(kind, {}).values()

    def as_now(self, kind: str) -> dict[Key, KubeObject]:
        """The objects of a kind but Node and Pod, as they will still be when those here change."""
        self.objects[kind], now = fork_dict(self.objects.get(kind, {}))
        return now

    def everything(self) -> Iterator[KubeObject]:
        """All objects: the nodes, those of each other kind, and the pods."""
        yield from self.nodes.values()
        for store in self.objects.values():
            yield from store.values()
        yield from self.pods.values()

    def heartbeat(self, node: str) -> Heartbeat | None:
        """The node's heartbeat, or None where no Lease was ever seen."""
        return self.heartbeats.get(node)

    def read_lease(self, node: str, now_ns: int) -> tuple[int, int]:
        """(HTTP code, version) that a GET of the node's Lease answers; the version is 0 where the
        code is not 200, and the code NO_ANSWER where none comes.
        """
        if self._failing_reads:
            code = self._failing_reads.get(node, self._failing_reads.get("", OK))
            if code != OK:
                return code, 0
        heartbeat = self._live.get(node, self.heartbeats.get(node))
        version = heartbeat.version(now_ns) if heartbeat is not None else 0
        return (OK, version) if version else (NOT_FOUND, 0)

    def leases_seen_until(self) -> int | None:
        """The version up to which the watch shows Leases; None: it shows every write."""
        return self._stale_since_ns

    def is_quarantined(self, kind: str, key: Key) -> bool:
        """True if no decision on the object may be taken: it, or what it depends on, cannot be read
        (`engine.quarantine`).
        """
        quarantine = self.quarantine
        if not quarantine.unreadable:
            return False
        pod = self.pods.get(key) if kind == "Pod" else None
        return quarantine.holds_pod(pod) if pod is not None else quarantine.holds((kind, key))

    def apply(self, event: Put | Gone | Heartbeats | Unreadable, now_ns: int) -> Change | None:
        """Take in one event; None where no controller needs to know (a lease renewed as usual)."""
        if type(event) is Put:
            kind, obj, cause = event.kind, event.obj, event.cause
            if self.quarantine.unreadable:
                self.quarantine.lift(kind, obj.key)
            if kind == "Lease":
                return self._put_lease(cast(Lease, obj), now_ns, cause)
            meta = obj.metadata
            return Change(kind, self.set(kind, (meta.namespace, meta.name), obj), obj, cause)
        if type(event) is Gone:
            kind, key, cause = event.kind, event.key, event.cause
            self.quarantine.lift(kind, key)
            old = self.set(kind, key, None)
            if kind == "Lease" and key[0] == NAMESPACE_NODE_LEASE:
                return self._drop_lease(key[1], now_ns, cause)
            return Change(kind, old, None, cause) if old is not None else None
        if isinstance(event, Unreadable):
            self.quarantine.put(event, now_ns)
            return None
        self.follow(event, now_ns)
        return self._heartbeat_change(event.node, event.cause)

    def follow(self, event: Heartbeats, now_ns: int) -> None:
        """Take in the schedule of a kubelet's heartbeats."""
        heartbeat = self._heartbeat(event.node)
        if (since_ns := self._stale_since_ns) is not None:
            live = self._live.get(event.node)
            if live is None:
                live = self._live[event.node] = Heartbeat()
            live.follow(event, now_ns)
            event = replace(event, unseen_ns=since_ns)
        heartbeat.follow(event, now_ns)

    def follow_all(
        self, every_ns: Mapping[str, int], schedule: Callable[[str], Heartbeats], now_ns: int
    ) -> None:
        """Take in schedules without an end, of kubelets that renew so often (by node), each when
        the node's heartbeat is first asked for.
        """
        self.heartbeats = followed(unchanging(self.heartbeats), every_ns, schedule, now_ns)
        self._renews_every = dict(every_ns)

    def renew_for_ever(self) -> Mapping[str, int]:
        """How often kubelets renew their Leases that go on by the schedules that were taken in
        together, ns, by node. Of others their heartbeats tell."""
        return unchanging(self._renews_every)

    def heartbeats_now(self) -> Mapping[str, Heartbeat]:
        """The heartbeats, as they will still be when these here have changed."""
        self.heartbeats, now = fork_dict(self.heartbeats, copy)
        return now

    def apply_lease_reads(self, event: LeaseReads, now_ns: int) -> list[Change]:
        """Take in how the controllers see Leases from now on. A change of each node's heartbeat,
        since each node must be looked at.
        """
        self._failing_reads, self._renews_every = dict(event.failing), {}
        was_stale = self._stale_since_ns is not None
        if event.stale and not was_stale:
            self._stale_since_ns = now_ns
            self._live = {name: copy(beat) for name, beat in self.heartbeats.items()}
            for name in list(self.heartbeats):
                self.heartbeats[name].freeze(now_ns)
        elif was_stale and not event.stale:
            shown, live = self.heartbeats, self._live
            self._stale_since_ns, self._live = None, {}
            self.heartbeats = {
                name: beat.caught_up(shown.get(name), now_ns)
                for name, beat in live.items()
                if beat is not None
            }
        return [self._heartbeat_change(name, event.cause) for name in self.nodes]

    def apply_conditions(self, event: ConditionsChanged, owners: Container[str]) -> list[Change]:
        """Take in changes of conditions. The changes of those pods alone whose controlling owner is
        of a kind in `owners` ("": it has no controller).
        """
        pods = self.pods
        changed: list[Change] = []
        for old, new, cause in event.changes:
            meta = new.metadata
            key = (meta.namespace, meta.name)
            if pods.get(key) is old:
                self.replace_pod(new)
            else:
                self.set("Pod", key, new)
            owner = controller_of(meta)
            if (owner.kind if owner is not None else "") in owners:
                changed.append(Change("Pod", old, new, cause))
        return changed

    def fill(
        self, objects: Iterable[KubeObject], now_ns: int, unreadable: Iterable[Unreadable] = ()
    ) -> None:
        """Take in a first list: as one Put after the other, for callers that need no changes."""
        for each in unreadable:
            self.quarantine.put(each, now_ns)
        pods, by_node, by_owner = self.pods, self._pods_by_node, self._pods_by_owner
        before, follows = len(pods), self._unsettled is not None
        for obj in objects:
            meta = obj.metadata
            key = (meta.namespace, meta.name)
            if type(obj) is not Pod or key in pods:
                kind = type(obj).__name__
                if kind in _INDEXED_KINDS or self.quarantine.unreadable:
                    self.apply(Put(kind, obj), now_ns)
                else:
                    self.objects.setdefault(kind, {})[key] = obj
                continue
            pods[key] = obj
            node, owner = obj.spec.node_name, _owner_uid(meta)
            if follows:
                self._settle(key, obj)
            if self.pod_index is not None:
                self._tell_index(None, obj)
            if node:
                if node in by_node:
                    by_node[node][key] = obj
                else:
                    by_node[node] = {key: obj}
            if owner in by_owner:
                by_owner[owner][key] = None
            else:
                by_owner[owner] = {key: None}
        if len(pods) > before:
            self._unsettled_pods = None

    def take_in(self, other: Cache, now_ns: int) -> None:
        """Take in a first list of kinds that are not here yet, which is not to be used any more: by
        sharing, so that its objects are not even looked at.
        """
        for kind, store in other.objects.items():
            if kind in _INDEXED_KINDS or self.objects.get(kind) or self.quarantine.unreadable:
                self.fill(store.values(), now_ns)
            else:
                self.objects[kind] = store
        self.fill((*other.nodes.values(), *other.pods.values()), now_ns)

    def copy(self) -> Cache:
        """Another cache with the same in it; the objects are shared, since they never change."""
        other = Cache()
        other.kinds_read, other.quarantine = self.kinds_read, self.quarantine.copy()
        other.objects = {kind: dict(store) for kind, store in self.objects.items()}
        other.nodes, other.pods = dict(self.nodes), dict(self.pods)
        other.heartbeats = {node: copy(beat) for node, beat in self.heartbeats.items()}
        other._share_reads(self)
        other._pods_by_node = {node: dict(keys) for node, keys in self._pods_by_node.items()}
        other._pods_by_owner = {uid: dict(keys) for uid, keys in self._pods_by_owner.items()}
        if self._unsettled is not None:
            other._unsettled = dict(self._unsettled)
            other._unsettled_pods = self._unsettled_pods
        if self.pod_index is not None:
            other.keep(self.pod_index.copy())
        return other

    def as_listed(self, kinds: Iterable[str], now_ns: int) -> Cache:
        """A fork as a first look at that instant takes these kinds in, beside nodes and pods: in
        the order in which the API lists.
        """
        forked, other = self.fork(), Cache()
        other.kinds_read, other.quarantine = forked.kinds_read, forked.quarantine
        other.nodes = in_key_order(forked.nodes)
        other.pods = CopyOnWriteDict(unchanging(forked.pods), in_order=in_key_order)
        for kind in kinds:
            objects = unchanging(forked.objects.get(kind, {}))
            if kind == "Lease":
                objects = in_key_order(objects)
                other.heartbeats = first_heartbeats(cast("dict[Key, Lease]", objects), now_ns)
            if objects:
                other.objects[kind] = CopyOnWriteDict(objects, in_order=in_key_order)
        on_nodes = unchanging(forked._pods_by_node)
        if gone := on_nodes.keys() - other.nodes.keys():
            on_nodes = dict(on_nodes)
            for node in sorted(gone, key=lambda n: min(on_nodes[n])):
                on_nodes[node] = on_nodes.pop(node)
        other._pods_by_node = _each_sorted(on_nodes)
        other._pods_by_owner = _each_sorted(unchanging(forked._pods_by_owner))
        unsettled = self._unsettled if forked._unsettled is None else forked._unsettled
        if unsettled is not None:
            other._unsettled_pods = [other.pods[key] for key in sorted(unsettled)]
        other._share_index(forked)
        return other

    def fork_in_child(self) -> Cache:
        """A fork for a process in which nobody feeds this cache any more."""
        other = Cache.fork(self)
        if self._unsettled is not None:
            other._unsettled = dict(self._unsettled)
        return other

    def fork(self) -> Cache:
        """Another cache with the same in it, made by sharing: how many objects there are does not
        matter. What one receives from then on does not reach the other.
        """
        other = Cache()
        other.kinds_read, other.quarantine = self.kinds_read, self.quarantine.copy()
        for kind, store in self.objects.items():
            self.objects[kind], other.objects[kind] = fork_dict(store)
        self.nodes, other.nodes = fork_dict(self.nodes)
        self.pods, other.pods = fork_dict(self.pods)
        self.heartbeats, other.heartbeats = fork_dict(self.heartbeats, copy)
        self._renews_every, other._renews_every = fork_dict(self._renews_every)
        other._share_reads(self)
        self._pods_by_node, other._pods_by_node = fork_dict(self._pods_by_node, copy_of_dict)
        self._pods_by_owner, other._pods_by_owner = fork_dict(self._pods_by_owner, copy_of_dict)
        other._unsettled_pods = self._unsettled_pods
        other._share_index(self)
        return other

    def replace_pod(self, pod: Pod) -> None:
        """Store a pod that is there already, of which only the status changed."""
        key = (pod.metadata.namespace, pod.metadata.name)
        if self.pod_index is not None:
            self._tell_index(self.pods.get(key), pod)
        self.pods[key] = pod
        if self._unsettled is None:  # as in most plays: no call for each pod
            self._unsettled_pods = None
        else:
            self._settle(key, pod)
        if node := pod.spec.node_name:
            self._pods_by_node[node][key] = pod

    def set(self, kind: str, key: Key, obj: KubeObject | None) -> KubeObject | None:
        """Store the object (None: drop it), keep the indexes, and return what was there."""
        old: KubeObject | None
        if kind == "Pod":
            pod: Pod | None = obj  # type: ignore[assignment]
            was = self.pods.get(key)
            if pod is None:
                self.pods.pop(key, None)
            elif was is not None and was.spec is pod.spec and was.metadata is pod.metadata:
                self.replace_pod(pod)  # its status changed, as it does most often
                return was
            else:
                self.pods[key] = pod
            self._index(key, was, pod)
            return was
        if kind == "Node":
            old = self.nodes.get(key[1])
            if obj is None:
                self.nodes.pop(key[1], None)
            else:
                self.nodes[key[1]] = cast(Node, obj)
            return old
        store = self.objects.setdefault(kind, {})
        old = store.get(key)
        if obj is None:
            store.pop(key, None)
        else:
            store[key] = obj
        return old

    def _index(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Note to which node and owner the pod belongs now."""
        if self.pod_index is not None:
            self._tell_index(old, new)
        if self._unsettled is None:
            self._unsettled_pods = None
        else:
            self._settle(key, new)
        old_node = old.spec.node_name if old is not None else ""
        new_node = new.spec.node_name if new is not None else ""
        if old_node and old_node != new_node:
            _drop(self._pods_by_node, key, old_node)
        if new_node and new is not None:
            self._pods_by_node.setdefault(new_node, {})[key] = new
        old_owners = old.metadata.owner_references if old is not None else None
        new_owners = new.metadata.owner_references if new is not None else None
        if old_owners is not new_owners:
            old_owner = _owner_uid(old.metadata) if old is not None else None
            new_owner = _owner_uid(new.metadata) if new is not None else None
            if old_owner is not None and old_owner != new_owner:
                _drop(self._pods_by_owner, key, old_owner)
            if new_owner is not None and old_owner != new_owner:
                self._pods_by_owner.setdefault(new_owner, {})[key] = None

    def _tell_index(self, old: Pod | None, new: Pod | None) -> None:
        """Keep the index of pods up, or do without it from now on."""
        if self._keeps_index and self.pod_index is not None:
            self.pod_index.pod_changed(old, new)
        else:
            self.pod_index, self.known_to = None, ()

    def _share_index(self, other: Cache) -> None:
        """Have the other's index of pods, which holds for these as well, until one changes."""
        index, self.known_to = other.pod_index, other.known_to
        self.pod_index = index.copy() if index is not None and other._keeps_index else index

    def _settle(self, key: Key, pod: Pod | None) -> None:
        """Note whether the pod, which is stored now, simply runs."""
        unsettled = self._unsettled
        assert unsettled is not None
        if pod is not None and not is_settled(pod):
            unsettled[key] = self._unsettled_pods = None
        elif key in unsettled:
            del unsettled[key]
            self._unsettled_pods = None

    def pod_counts(self) -> dict[str, int]:
        """How many pods are bound to each node."""
        return {node: len(keys) for node, keys in entries_of(self._pods_by_node)}

    def _put_lease(self, lease: Lease, now_ns: int, cause: Action | None) -> Change | None:
        namespace, name = lease.metadata.namespace, lease.metadata.name
        old = self.set("Lease", (namespace, name), lease)
        if namespace != NAMESPACE_NODE_LEASE:
            return Change("Lease", old, lease, cause)
        seen = lease.spec.renew_time, now_ns, lease.metadata.resource_version
        if self._stale_since_ns is not None:
            live = self._live.get(name)
            if live is None:
                live = self._live[name] = Heartbeat()
            live.observe(*seen)
            return None
        heartbeat = self._heartbeat(name)
        if not heartbeat.observe(*seen):
            return None
        if old is None:
            heartbeat.first_seen(lease)
        return self._heartbeat_change(name, cause)

    def _drop_lease(self, node: str, now_ns: int, cause: Action | None) -> Change | None:
        beats = self.heartbeats if self._stale_since_ns is None else self._live
        heartbeat = beats.get(node)
        if heartbeat is None:
            return None
        self._renews_every.pop(node, None)
        beats[node] = heartbeat.deleted(now_ns)
        return self._heartbeat_change(node, cause) if self._stale_since_ns is None else None

    def _share_reads(self, other: Cache) -> None:
        """Read Leases as `other` does."""
        self._stale_since_ns, self._failing_reads = other._stale_since_ns, other._failing_reads
        self._live = {node: copy(beat) for node, beat in other._live.items()}

    def _heartbeat(self, node: str) -> Heartbeat:
        """The node's heartbeat, which is about to change."""
        if self._renews_every:
            self._renews_every.pop(node, None)
        heartbeat = self.heartbeats.get(node)
        if heartbeat is None:
            heartbeat = self.heartbeats[node] = Heartbeat()
        return heartbeat

    def _heartbeat_change(self, node: str, cause: Action | None) -> Change:
        """A change of kind Heartbeat; `new` is the node, if there is one."""
        present = self.nodes.get(node)
        return Change("Heartbeat", present, present, cause)


def _each_sorted(groups: dict[str, dict[Key, T]]) -> dict[str, dict[Key, T]]:
    """Groups of pods, each of which is brought in order when it is first looked at."""
    return made_later(groups, lambda group: dict(in_key_order(group)), copy_of_dict)


def is_settled(pod: Pod) -> bool:
    """True if the pod simply runs: it is bound, Running and Ready, is not being deleted, and no
    finalizer will hold it up.
    """
    meta, status = pod.metadata, pod.status
    if status.phase != _RUNNING or meta.deletion_timestamp is not None or meta.finalizers:
        return False
    return bool(pod.spec.node_name) and pod.ready()


def _owner_uid(meta: ObjectMeta) -> str:
    owner = controller_of(meta)
    return owner.uid if owner else ""


def _drop(index: dict[str, dict[Key, T]], key: Key, group: str) -> None:
    """Take the pod out of its group, and the group where that was its last."""
    members = index.get(group)
    if members is not None:
        members.pop(key, None)
        if not members:
            del index[group]
