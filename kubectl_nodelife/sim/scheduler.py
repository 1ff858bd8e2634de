"""The simulated scheduler: an unbound pod goes to the best node among those where it fits.

`workloads.placement` decides which nodes fit; this module, which pod is next. Pods that fit on no
node wait in one line for each class of equal pods. A line is tried again when something changed,
but not before its back-off is over, as in pkg/scheduler/backend/queue: 1 s after the first attempt
that failed, twice as long after each further one, 10 s at most; since 1.33 an idle scheduler does
not wait for its end (`SchedulerPopFromBackoffQ`). Of those whose turn it is the one
of the highest priority goes first (`PrioritySort`).

Each binding is a request of the scheduler's client: 50 a second after a burst of 100. While it has
no token no pod is tried; left out on purpose: that upstream chooses the node before it waits, and
the requests by which it reports pods that fit nowhere.

The filters read the simulated API's objects through `StoreCache`: nodes, what their pods leave,
volumes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import asdict, replace

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.pace import SCHEDULER
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import (
    KubeObject,
    LabelSelector,
    LabelSelectorRequirement,
    OwnerReference,
    controller_of,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodCondition, with_condition
from kubectl_nodelife.kube.selectors import matches_set
from kubectl_nodelife.kube.service import Service
from kubectl_nodelife.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubectl_nodelife.kube.times import SECOND_NS, whole_seconds
from kubectl_nodelife.kube.workload import ReplicaSet, ReplicationController, StatefulSet
from kubectl_nodelife.sim.api import Api, BindPod, ForkedWorld, WorldPart, event_record
from kubectl_nodelife.sim.timeline import OWNER, Agenda
from kubectl_nodelife.workloads.placement import PlacementSimulator, pinned_node, priority
from kubectl_nodelife.workloads.pod_classes import (
    PodClasses,
    RoomOnNodes,
    pods_among,
    stock,
    summary_of,
)
from kubectl_nodelife.workloads.scheduling import NodeInfo
from kubectl_nodelife.workloads.scoring import FewestPods, Scoring
from kubectl_nodelife.workloads.topology import anti_affinity_terms

_SCHEDULED = "PodScheduled"
_VOLUME_KINDS = frozenset({"PersistentVolumeClaim", "PersistentVolume", "StorageClass"})

INITIAL_BACKOFF_NS: Final = SECOND_NS
MAX_BACKOFF_NS: Final = 10 * SECOND_NS
"""podInitialBackoffSeconds and podMaxBackoffSeconds of the scheduler's configuration."""

_SPREADING_OWNERS = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})
"""Owners whose selector `DefaultSelector` asks for."""

REASON_NOT_READY = "node(s) were not ready"


class _Waiting(NamedTuple):
    """A pod that waits for a node: its turn, and which pod it was.

    `turn`: its priority, negated, and its number.
    """

    turn: tuple[int, int]
    key: Key
    uid: str


@dataclass(slots=True, eq=False)
class _Line:
    """Pods that are alike and fit nowhere. `attempts` have failed, the last one at `tried_ns`.

    `moved`: something has changed since, so that it is tried once its back-off is over;
    `backs_off`: that attempt is in the agenda.
    """

    pods: dict[Key, _Waiting] = field(default_factory=dict)
    attempts: int = 0
    tried_ns: int = 0
    moved: bool = False
    backs_off: bool = False

    def copy(self) -> _Line:
        """A copy with the same pods."""
        other = copy(self)
        other.pods = dict(self.pods)
        return other

    def failed(self, now_ns: int) -> None:
        """Count one more failed attempt."""
        self.attempts += 1
        self.tried_ns = now_ns

    def due_ns(self) -> int:
        """When the next attempt may be made. Follows `calculateBackoffDuration`."""
        if not self.attempts:
            return 0
        backoff_ns = INITIAL_BACKOFF_NS << min(self.attempts - 1, 10)
        return self.tried_ns + min(backoff_ns, MAX_BACKOFF_NS)

    def first(self) -> _Waiting:
        """The pod whose turn it is."""
        return next(iter(self.pods.values()))


class Scheduler(WorldPart):
    """Finds nodes for pods, and keeps those that fit nowhere until something changes."""

    def __init__(
        self,
        api: Api,
        agenda: Agenda,
        scoring: Scoring | None = None,
        *,
        paced: bool = False,
    ) -> None:
        """`paced`: its client has the limits of upstream's default; else none."""
        super().__init__(api, agenda)
        self._scoring = scoring or FewestPods()
        self.classes = PodClasses()
        """What pods ask of nodes and take of them, read once for all that ask and take the same."""
        self._waiting: dict[Hashable, _Line] = {}
        self._line_of: dict[Key, Hashable] = {}
        self._bindings = TokenBucket(*SCHEDULER) if paced else None
        self._token_ns = 0
        self._next_turn = 0
        self._look_again = False
        self._changed = False
        self._on_failure: list[Callable[[Pod], None]] = []

    def ask_when_unschedulable(self, asked: Callable[[Pod], None]) -> None:
        """Have `asked` called with each pod that was tried and fits nowhere."""
        self._on_failure.append(asked)

    def ask_as(self, of_this_world: Callable[[Any], Any]) -> None:
        """In a fork: call its own parts from now on."""
        self._on_failure = [of_this_world(asked) for asked in self._on_failure]

    def end(self) -> None:
        """Remove the callbacks, and the reference cycles of the placement."""
        self._on_failure.clear()
        self.placement.end()

    def begin(self) -> None:
        """Count what is there, and find nodes for the pods that were never tried."""
        self._cache = StoreCache(self._api, self.classes)
        self.placement = PlacementSimulator(self._cache, self._scoring, self.classes)
        self._note_unbound()
        self._api.on_pod(self._pod_changed)
        self._api.on_node(self._node_changed)
        self._api.on_object(self._object_changed)

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = super().fork(world)
        cache = other._cache = self._cache.fork(world.api)
        other.placement = self.placement.fork(cache)
        self._waiting, other._waiting = fork_dict(self._waiting, _Line.copy)
        self._line_of, other._line_of = fork_dict(self._line_of)
        other._bindings = copy(self._bindings)
        return other

    def count_rooms(self) -> None:
        """Count what the pods of all nodes take, so that forks need not."""
        self._cache.count_rooms()

    def _note_unbound(self) -> None:
        for pod in self._api.store.unsettled_pods():
            if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                continue
            if pod.status.phase in ("", "Pending"):
                self.placement.nominate(pod, pod.status.nominated_node_name or None)
                tried = pod.status.condition("PodScheduled")
                self._line_up(pod)
                if tried is None or tried.status != "False":
                    self._something_changed()

    def bind(self, pod: Pod) -> Pod:
        """The new pod with its node, or as it is, if it fits nowhere now or has to wait."""
        if pod.spec.node_name or self._waits_for_token():
            return pod
        node = self.placement.place(pod)
        if node is not None:
            self._spend()
            return _bound(pod, node)
        if pinned_node(pod.spec) is None:
            return pod
        condition = PodCondition(
            type=_SCHEDULED,
            status="False",
            reason="Unschedulable",
            message=f"{self.placement.no_room(pod)}.",
            last_transition_time=whole_seconds(self._api.now_ns),
        )
        return with_condition(pod, condition)

    def _waits_for_token(self) -> bool:
        """True if the client has no token now: all that wait are tried again once it has."""
        if self._bindings is None:
            return False
        now_ns = self._api.now_ns
        at_ns = self._bindings.next_accept(now_ns)
        assert at_ns is not None
        if at_ns > max(now_ns, self._token_ns):
            self._token_ns = at_ns
            self._agenda.add(at_ns, OWNER, self._token_comes)
        return at_ns > now_ns

    def _token_comes(self, at_ns: int) -> None:
        self._look_again = bool(self._waiting)

    def _spend(self) -> None:
        if self._bindings is not None:
            self._bindings.reserve(self._api.now_ns)

    def place_waiting(self) -> None:
        """Try again for the pods that fit nowhere, if something changed since: in the order of
        their turns; a class is left once one of its pods still fits nowhere.
        """
        if not self._look_again:
            return
        self._look_again = False
        now_ns = self._api.now_ns
        idle = self._api.profile.has("pops_backoff_queue")
        turns = []
        for i, (name, line) in enumerate(self._waiting.items()):
            line.moved |= self._changed
            if not line.moved:
                continue
            due_ns = line.due_ns()
            if idle or due_ns <= now_ns:
                line.moved = False
                turns.append((line.first().turn, i, name))
            elif not line.backs_off:
                line.backs_off = True
                self._agenda.add(due_ns, OWNER, self._backed_off, name)
        self._changed = False
        heapq.heapify(turns)
        while turns:
            if self._waits_for_token():
                for _, _, name in turns:
                    self._waiting[name].moved = True
                return
            _, number, name = heapq.heappop(turns)
            line = self._waiting[name]
            first = line.first()
            pod = self._api.store.pods.get(first.key)
            if pod is not None and pod.uid == first.uid and not pod.spec.node_name:
                node = self.placement.place(pod)
                if node is None:
                    if not line.attempts:
                        self._note_failure(pod, None)
                    line.failed(now_ns)
                    for asked in self._on_failure:
                        asked(pod)
                    continue
                self._spend()
                self._bind_waiting(pod, node)
            self._leave(first.key)
            if line.pods:
                heapq.heappush(turns, (line.first().turn, number, name))

    def _bind_waiting(self, pod: Pod, node: str) -> None:
        event = event_record(pod, "Scheduled", f"the pod fits on {node}")
        done = BindPod(**asdict(event), node=node)
        self._api.put("Pod", _bound(pod, node), self._api.note(done))

    def _backed_off(self, name: Hashable, at_ns: int) -> None:
        line = self._waiting.get(name)
        if line is not None:
            line.backs_off, self._look_again = False, True

    def _something_changed(self) -> None:
        """All that wait are tried again, each once its back-off is over."""
        self._changed = self._look_again = bool(self._waiting)

    def _line_up(self, pod: Pod) -> None:
        """Let the pod wait behind those in its line; a successor keeps the lost pod's turn."""
        name = self.placement.line_of(pod)
        before = self._leave(pod.key) if self._line_of.get(pod.key) != name else None
        line = self._waiting.get(name)
        if line is None:
            line = self._waiting[name] = _Line()
        before = line.pods.get(pod.key, before)
        turn = (-priority(pod), self._next_turn) if before is None else before.turn
        self._next_turn += 1
        line.pods[pod.key] = _Waiting(turn, pod.key, pod.uid)
        self._line_of[pod.key] = name

    def _leave(self, key: Key) -> _Waiting | None:
        """Take the pod out of its line."""
        name = self._line_of.pop(key, None)
        if name is None:
            return None
        line = self._waiting[name]
        pod = line.pods.pop(key, None)
        if not line.pods:
            del self._waiting[name]
        return pod

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        if old is not None and new is not None and _seen_by_filters(old) == _seen_by_filters(new):
            return
        self.placement.node_changed(old, new)
        self._something_changed()

    def _object_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        self._cache.object_changed(kind)
        if kind in _VOLUME_KINDS:
            self._something_changed()

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        if new is not None and not after:
            self._unbound_changed(old, new, cause)
        self._cache.pod_changed(old, new)
        self.placement.pod_changed(old, new)
        if self._waiting and (
            (before and before != after) or (after and self.placement.follows_pods())
        ):
            self._something_changed()

    def _note_failure(self, pod: Pod, cause: Action | None) -> None:
        scheduled = pod.status.condition(_SCHEDULED)
        why = "no node meets the pod's demands now"
        if scheduled is not None and scheduled.status == "False":
            why = scheduled.message
        self._api.note(event_record(pod, "FailedScheduling", why, cause=cause, warning=True))

    def _unbound_changed(self, old: Pod | None, new: Pod, cause: Action | None) -> None:
        if old is None:
            self._line_up(new)
            line = self._waiting[self._line_of[new.key]]
            if self._waits_for_token():
                line.moved = True
                return
            if not line.attempts:
                line.failed(self._api.now_ns)
            self._note_failure(new, cause)
            for asked in self._on_failure:
                asked(new)
        elif old.spec is not new.spec:
            name = self._line_of.get(old.key)
            if name is not None and self.placement.line_of(new) != name:
                self._leave(old.key)
                self._line_up(new)
                self._something_changed()


def _bound(pod: Pod, node: str) -> Pod:
    """The pod as the binding leaves it. Follows `assignPod` of the API server's registry."""
    scheduled = pod.status.condition(_SCHEDULED)
    if scheduled is None or scheduled.status != "True":
        pod = with_condition(pod, PodCondition(type=_SCHEDULED, status="True"))
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _seen_by_filters(node: Node) -> tuple[object, ...]:
    spec = node.spec
    labels = node.metadata.labels
    return (
        is_ready_or_silent(node),
        spec.unschedulable,
        spec.taints,
        labels,
        node.status.allocatable,
    )


class StoreCache:
    """The API's objects, as the simulated scheduler needs them."""

    def __init__(self, api: Api, classes: PodClasses) -> None:
        self._store = api.store
        self.empty_selector_spreads = api.profile.has("empty_selector_spreads")
        self._rooms = RoomOnNodes(classes)
        self._selectors: dict[Hashable, tuple[LabelSelector | None, str]] = {}
        self._free: dict[str, list[PersistentVolume]] | None = None
        self._keep_off: dict[Key, None] = dict.fromkeys(
            pod.key
            for pod in pods_among(self._store, lambda summary: summary.keep_off)
            if pod.spec.affinity is not None and anti_affinity_terms(pod)
        )

    def fork(self, api: Api) -> StoreCache:
        """The same for a fork of the world."""
        other = copy(self)
        other._store = api.store
        other._rooms = self._rooms.fork()
        other._selectors = dict(self._selectors)
        self._keep_off, other._keep_off = fork_dict(self._keep_off)
        return other

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Note which pods keep others away, and which nodes are to be counted anew: a pod that has
        ended takes no room."""
        if old is not None and new is not None and old.spec is new.spec:
            was, now = old.status.phase, new.status.phase
            if (was in TERMINAL_PHASES) is (now in TERMINAL_PHASES):
                return
        for pod in (old, new):
            if pod is not None:
                self._rooms.forget(pod.spec.node_name)
        if new is not None and new.spec.affinity is not None and anti_affinity_terms(new):
            self._keep_off[new.key] = None
        elif old is not None and old.spec.affinity is not None:
            self._keep_off.pop(old.key, None)

    def object_changed(self, kind: str) -> None:
        """A volume may be free, or no longer; pods may be selected by others."""
        if kind == "PersistentVolume":
            self._free = None
        elif kind == "Service" or kind in _SPREADING_OWNERS:
            self._selectors = {}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._store.nodes

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return {n.name: n.metadata.labels or {} for n in self._store.all("Namespace")}

    def pod_count(self, name: str) -> int:
        """How many pods are bound to the node."""
        return self._store.count_on(name)

    def stock(self, name: str) -> NodeInfo:
        """The room that the node's pods leave on it. Most have the same requests, so they are
        counted.
        """
        store = self._store
        rooms = self._rooms.of(name, store.pods_on, store.pods.values)
        return stock(store.nodes[name], rooms)

    def count_rooms(self) -> None:
        """Count what the pods of all nodes take, so that forks need not."""
        summary = summary_of(self._store)
        if summary is not None:
            self._rooms.counted_ahead(summary.rooms())
        else:
            self._rooms.count_ahead(self._store.pods.values())

    def placed(self, namespace: str | None) -> Iterator[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node and have not ended."""
        nodes = self._store.nodes
        for pod in self._store.pods.values():
            node = nodes.get(pod.spec.node_name)
            if node is None or pod.status.phase in TERMINAL_PHASES:
                continue
            if namespace is None or pod.metadata.namespace == namespace:
                yield pod, node

    def placed_anti_affinity(self) -> Iterator[tuple[Pod, Node]]:
        """Those of them that keep others away by a required anti-affinity."""
        for key in self._keep_off:
            pod = self._store.pods[key]
            node = self._store.nodes.get(pod.spec.node_name)
            if node is not None and pod.status.phase not in TERMINAL_PHASES:
                yield pod, node

    def default_selector(self, pod: Pod) -> tuple[LabelSelector | None, str]:
        """Follows `DefaultSelector`. What selects a pod is kept by its owner and labels."""
        owner = controller_of(pod.metadata)
        labels = pod.metadata.labels or {}
        key = (pod.namespace, owner.uid if owner is not None else "", frozenset(labels.items()))
        selector = self._selectors.get(key)
        if selector is None:
            selector = self._selectors[key] = self._default_selector(pod, owner)
        return selector

    def _default_selector(
        self, pod: Pod, owner: OwnerReference | None
    ) -> tuple[LabelSelector | None, str]:
        pairs: dict[str, str] = {}
        for service in self._store.all("Service"):
            if isinstance(service, Service) and service.namespace == pod.namespace:
                selector = service.spec.selector
                if selector is not None and matches_set(selector, pod.metadata.labels):
                    pairs |= selector
        expressions: tuple[LabelSelectorRequirement, ...] = ()
        if owner is not None and owner.kind in _SPREADING_OWNERS:
            workload = self._store.get(owner.kind, (pod.namespace, owner.name))
            if isinstance(workload, ReplicationController):
                pairs |= workload.spec.selector or {}
            elif isinstance(workload, (ReplicaSet, StatefulSet)):
                selected = workload.spec.selector or LabelSelector()
                pairs |= selected.match_labels or {}
                expressions = selected.match_expressions
            elif not self._store.was_read(owner.kind):
                return None, owner.uid
        if not pairs and not expressions:
            return None, ""
        return LabelSelector(match_labels=pairs, match_expressions=expressions), ""

    def keeps_off(self, node: Node) -> str | None:
        """A node that is not Ready gets no pods, whether or not a taint says so yet."""
        return None if is_ready_or_silent(node) else REASON_NOT_READY

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The claim, or None."""
        claim = self._store.get("PersistentVolumeClaim", (namespace, name))
        return claim if isinstance(claim, PersistentVolumeClaim) else None

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume, or None."""
        volume = self._store.get("PersistentVolume", ("", name))
        return volume if isinstance(volume, PersistentVolume) else None

    def storage_class(self, name: str) -> StorageClass | None:
        """The class, or None."""
        storage_class = self._store.get("StorageClass", ("", name))
        return storage_class if isinstance(storage_class, StorageClass) else None

    def free_volumes(self, class_name: str) -> list[PersistentVolume]:
        """The volumes of a class that no claim has."""
        if self._free is None:
            self._free = {}
            for volume in self._store.all("PersistentVolume"):
                if isinstance(volume, PersistentVolume) and volume.spec.claim_ref is None:
                    self._free.setdefault(volume.spec.storage_class_name, []).append(volume)
        return self._free.get(class_name, [])

    def volumes_read(self) -> bool:
        """True if claims and volumes were read at all."""
        return all(map(self._store.was_read, ("PersistentVolumeClaim", "PersistentVolume")))


def is_ready_or_silent(node: Node) -> bool:
    """True if the node is Ready, or has no Ready condition: a taint keeps pods off a lost node,
    where taints mirror conditions.
    """
    ready = node.ready()
    return ready is None or ready.status == "True"
