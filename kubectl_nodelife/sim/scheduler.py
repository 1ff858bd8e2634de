"""A simple scheduler: an unbound pod goes to the node with the fewest pods among those where it
fits.

The filters are the scheduler's own (`workloads/scheduling.py`); of its scores only "least loaded"
is left, and ties go to the node first seen. A pod that names one node in its affinity, as the
DaemonSet controller's do, is bound there without further questions. Pods with the same demands
share one heap of the nodes that meet them, kept lazily: an entry is brought up to date when it
comes up, and a node that changed is looked at again when the heap is next used. Left out: rules
between pods, volumes, preemption.
"""

from __future__ import annotations

import heapq

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec
from kubectl_nodelife.sim.acts import told
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.workloads.nodeinfo import (
    Amounts,
    HostPort,
    NodeInfo,
    host_ports,
    pod_requests,
)
from kubectl_nodelife.workloads.scheduling import Wanted, room_reasons, static_reason


class _Demands:
    """What a class of pods asks of a node, and the nodes that meet it, fewest pods first.

    `heap` holds (pods on the node, its number, its name). `listed` tells with how many pods a node
    stands in it; an entry that says otherwise is a leftover.
    """

    __slots__ = ("changed", "heap", "listed", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.heap: list[tuple[int, int, str]] = []
        self.listed: dict[str, int] = {}
        self.changed: set[str] = set()


class Scheduler:
    """Finds nodes for pods, and keeps those that fit nowhere until something changes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        self._infos: dict[str, NodeInfo] = {}
        self._demands: dict[bytes, _Demands] = {}
        self._of_owner: dict[str, tuple[PodSpec, _Demands]] = {}
        self._all_asks: list[tuple[Amounts, tuple[HostPort, ...]]] = []
        self._asks_numbers: dict[tuple[frozenset[tuple[str, int]], tuple[HostPort, ...]], int] = {}
        self._asks_of_owner: dict[str, tuple[PodSpec, int]] = {}
        self._waiting: dict[Key, str] = {}
        self._look_again = False

    def begin(self) -> None:
        """Count what is there, and find nodes for the pods that nobody tried to place yet."""
        self._pods = self._api.store.pod_counts()
        if sum(self._pods.values()) < len(self._api.store.pods):
            self._note_unbound()
        for name in self._api.store.nodes:
            self._number(name)
        self._api.on_pod(self._pod_changed)
        self._api.on_node(self._node_changed)

    def _note_unbound(self) -> None:
        for pod in self._api.store.pods.values():
            if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                continue
            if pod.status.phase in ("", "Pending"):
                tried = pod.status.condition("PodScheduled")
                self._waiting[pod.key] = pod.uid
                self._look_again |= tried is None or tried.status != "False"

    def bind(self, pod: Pod) -> Pod:
        """The new pod with its node, or as it is, if it fits nowhere now."""
        if pod.spec.node_name:
            return pod
        node = self.place(pod)
        return pod if node is None else _bound(pod, node)

    def place_waiting(self) -> None:
        """Try again for the pods that fit nowhere, if something changed since."""
        if not self._look_again:
            return
        self._look_again = False
        hopeless: set[int] = set()
        for key, uid in list(self._waiting.items()):
            pod = self._api.store.pods.get(key)
            if pod is None or pod.uid != uid or pod.spec.node_name:
                del self._waiting[key]
                continue
            demands = self._demands_of(pod)
            if id(demands) in hopeless:
                continue
            node = self.place(pod)
            if node is None:
                hopeless.add(id(demands))
                continue
            del self._waiting[key]
            done = self._api.note(told(pod, "Scheduled", f"the pod fits on {node}"))
            self._api.put("Pod", _bound(pod, node), done)

    def place(self, pod: Pod) -> str | None:
        """A node for a pod like this one, wherever it may be now; None where it fits nowhere."""
        if pod.spec.scheduling_gates:
            return None
        pinned = _pinned_node(pod.spec)
        if pinned is not None:
            return pinned if pinned in self._api.store.nodes else None
        demands = self._demands_of(pod)
        self._catch_up(demands)
        set_aside = []
        found = None
        while demands.heap:
            entry = heapq.heappop(demands.heap)
            count, number, name = entry
            if demands.listed.get(name) != count:
                continue
            present = self._pods.get(name, 0)
            if present != count:
                demands.listed[name] = present
                heapq.heappush(demands.heap, (present, number, name))
                continue
            set_aside.append(entry)
            if not self._full(demands.wanted, name):
                found = name
                break
        for entry in set_aside:
            heapq.heappush(demands.heap, entry)
        return found

    def _full(self, wanted: Wanted, name: str) -> bool:
        """Whether the node has no room; a node that tells no capacity always has."""
        node = self._api.store.nodes[name]
        if not node.status.allocatable:
            return False
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = self._take_stock(node)
        return bool(room_reasons(wanted, info))

    def _take_stock(self, node: Node) -> NodeInfo:
        """What the pods on a node take of it. Most ask for one of a few amounts, so these are
        counted.
        """
        times: dict[int, int] = {}
        for pod in self._api.store.pods_on(node.name):
            number = self._asks(pod)
            times[number] = times.get(number, 0) + 1
        info = NodeInfo(node)
        for number, count in times.items():
            requests, ports = self._all_asks[number]
            if ports:
                for _ in range(count):
                    info.add(requests, ports)
                continue
            info.pod_count += count
            for name, amount in requests.items():
                info.requested[name] = info.requested.get(name, 0) + amount * count
        return info

    def _asks(self, pod: Pod) -> int:
        """What the pod takes of its node, as an index of `_all_asks`.

        The pods of one owner nearly always ask for the same.
        """
        spec = pod.spec
        owners = pod.metadata.owner_references
        owner_uid = owners[0].uid if owners else ""
        known = self._asks_of_owner.get(owner_uid)
        if known is not None and _same_asks(known[0], spec):
            return known[1]
        asks = (pod_requests(pod), host_ports(pod))
        key = (frozenset(asks[0].items()), asks[1])
        number = self._asks_numbers.setdefault(key, len(self._all_asks))
        if number == len(self._all_asks):
            self._all_asks.append(asks)
        self._asks_of_owner[owner_uid] = (spec, number)
        return number

    def _demands_of(self, pod: Pod) -> _Demands:
        spec = pod.spec
        owners = pod.metadata.owner_references
        owner_uid = owners[0].uid if owners else ""
        known = self._of_owner.get(owner_uid)
        if known is not None and _same_demands(known[0], spec):
            return known[1]
        containers = [(c.resources, c.ports) for c in spec.containers + spec.init_containers]
        key = msgspec.json.encode(
            (spec.tolerations, spec.node_selector, spec.affinity, spec.overhead, containers)
        )
        demands = self._demands.get(key)
        if demands is None:
            demands = self._demands[key] = _Demands(Wanted(pod))
            demands.changed.update(self._api.store.nodes)
        if owner_uid:
            self._of_owner[owner_uid] = (spec, demands)
        return demands

    def _catch_up(self, demands: _Demands) -> None:
        """Look at the nodes that changed since the heap was last used."""
        if not demands.changed:
            return
        for name in demands.changed:
            node = self._api.store.nodes.get(name)
            if node is None or not _ready(node) or static_reason(demands.wanted.pod, node):
                demands.listed.pop(name, None)
                continue
            count = self._pods.get(name, 0)
            if demands.listed.get(name) != count:
                demands.listed[name] = count
                heapq.heappush(demands.heap, (count, self._numbers[name], name))
        demands.changed.clear()

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        node = new or old
        assert node is not None
        name = node.name
        if old is None:
            self._number(name)
        elif new is not None and _seen_by_filters(old) == _seen_by_filters(new):
            return
        self._infos.pop(name, None)
        self._look_again = bool(self._waiting)
        for demands in self._demands.values():
            demands.changed.add(name)

    def _number(self, name: str) -> None:
        self._numbers[name] = self._next_number
        self._next_number += 1

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        if old is None and new is not None and not after:
            self._wait(new, cause)
        if before == after:
            return
        if new is not None and after:
            self._pods[after] = self._pods.get(after, 0) + 1
            if after in self._infos:
                self._infos[after].add(*self._all_asks[self._asks(new)])
        if old is not None and before:
            self._pods[before] -= 1
            if before in self._infos:
                self._infos[before].remove(*self._all_asks[self._asks(old)])
            self._look_again = bool(self._waiting)
            for demands in self._demands.values():
                demands.changed.add(before)

    def _wait(self, pod: Pod, cause: Action | None) -> None:
        self._waiting[pod.key] = pod.uid
        why = "no node meets the pod's demands now"
        self._api.note(told(pod, "FailedScheduling", why, cause=cause, warning=True))


def _bound(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _pinned_node(spec: PodSpec) -> str | None:
    """The one node that the pod's affinity names, as the DaemonSet controller writes it."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or len(required.node_selector_terms) != 1:
        return None
    fields = required.node_selector_terms[0].match_fields
    if len(fields) != 1 or fields[0].operator != "In" or len(fields[0].values) != 1:
        return None
    return fields[0].values[0] if fields[0].key == "metadata.name" else None


def _same_asks(one: PodSpec, other: PodSpec) -> bool:
    """Whether two pods take the same of a node; equal containers are mostly one object."""
    if one is other:
        return True
    return (
        (one.containers is other.containers or one.containers == other.containers)
        and one.init_containers == other.init_containers
        and one.overhead == other.overhead
        and one.resources == other.resources
    )


def _same_demands(one: PodSpec, other: PodSpec) -> bool:
    """Whether two pods may go to the same nodes."""
    return (
        one.tolerations == other.tolerations
        and one.node_selector == other.node_selector
        and one.affinity == other.affinity
        and _same_asks(one, other)
    )


def _ready(node: Node) -> bool:
    """Ready, or silent about it: a taint keeps pods off a lost node, where taints mirror
    conditions.
    """
    ready = node.ready()
    return ready is None or ready.status == "True"


def _seen_by_filters(node: Node) -> tuple[object, ...]:
    spec = node.spec
    labels = node.metadata.labels
    return (_ready(node), spec.unschedulable, spec.taints, labels, node.status.allocatable)
