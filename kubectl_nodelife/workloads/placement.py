"""A simulated scheduler: where a pod goes, and why not elsewhere.

The filters are `workloads.scheduling`'s, the choice among the nodes that fit is a `Scoring`'s. This
file keeps the counts behind the filters up while pods come and go, and checks as few nodes as
possible. A result that nothing fits is certain; the node that is taken is likely. The room that a
preemptor's victims leave is reserved for it (`nominate`) from pods of lower or equal priority: on
such a node a pod must fit with the nominated pods and without them
(`RunFilterPluginsWithNominatedPods` of pkg/scheduler/framework/runtime).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kubectl_nodelife.copy_on_write import fork_dict, made_later
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodSpec, is_daemon_pod
from kubectl_nodelife.workloads.placement_rules import PlacementRules, SchedulerCache, SoftRules
from kubectl_nodelife.workloads.pod_classes import Demands, PodClasses
from kubectl_nodelife.workloads.scheduling import (
    NO_NEEDS,
    NodeInfo,
    PodRequirements,
    VolumeNeeds,
    claim_names,
    resource_reasons,
    rule_reason,
    static_reason,
)
from kubectl_nodelife.workloads.scoring import SMALL, Candidates, Prefers, Scoring, preference_of

REASON_GATED: Final = "scheduling is blocked due to non-empty scheduling gates"
REASON_CONFLICT: Final = "pod affinity terms conflict"
REASON_NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
REASON_CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already"
    " in-use by another pod"
)


Reserved: TypeAlias = Mapping[str, Sequence[Pod]]
"""Node -> the pods that wait for victims to go there."""


MOST_EQUALS: Final = 5
"""So many nodes with the same score are kept of a pod's place."""


class Luck(NamedTuple):
    """Which of the nodes with the same score a pod gets, where kube-scheduler takes one by chance:
    one of these, or, `seeks` False, one of the others, if it can be.
    """

    nodes: frozenset[str]
    seeks: bool


class NoRoom(NamedTuple):
    """Why a pod has nowhere to go: upstream's reasons, and on how many nodes each.

    `anywhere`: the one reason rules out all nodes before any is looked at (PreFilter).
    """

    reasons: tuple[tuple[str, int], ...]
    nodes: int
    anywhere: bool = False

    def __str__(self) -> str:
        """As `FitError` says it, whose counts are sorted as text, without the last full stop."""
        if not self.nodes:
            return "no nodes available to schedule pods"
        counted = [reason if self.anywhere else f"{n} {reason}" for reason, n in self.reasons]
        return f"0/{self.nodes} nodes are available: {', '.join(sorted(counted))}"


class PlacementSimulator:
    """Nodes for pods. It receives changes (`node_changed`, `pod_changed`) once the cache has them.
    A node that reports no allocatable has room for everything.
    """

    def __init__(
        self,
        cache: SchedulerCache,
        scoring: Scoring,
        classes: PodClasses,
    ) -> None:
        self._cache = cache
        self._scoring = scoring
        self._infos: dict[str, NodeInfo] = {}
        self._ranks = {name: i for i, name in enumerate(cache.nodes)}
        self._next_rank = self._count = len(self._ranks)
        self._classes = classes
        self._candidates: dict[Demands, Candidates] = {}
        self._stale: dict[Demands, set[str]] = {}
        self._groups: list[list[str]] | None = None
        self._rules = PlacementRules(cache)
        self._soft = SoftRules(cache)
        self._nominated: dict[str, tuple[str, Pod]] = {}
        self.luck: Luck | None = None
        """None: of nodes with the same score a pod gets the one first seen."""
        self.takes_last = False
        """True: of nodes with the same score a pod gets the one last seen."""
        self.equals: dict[str, tuple[str, ...]] | None = None
        """Uid of a pod -> the first nodes among which its place was chance, where that is kept."""

    def fork(self, cache: SchedulerCache) -> PlacementSimulator:
        """Another one at the same point, over the fork of the cache; made by sharing."""
        other = copy(self)
        other._cache = cache
        other._scoring = copy(self._scoring)
        self._infos, other._infos = fork_dict(self._infos, NodeInfo.copy)
        self._ranks, other._ranks = fork_dict(self._ranks)
        self._stale, other._stale = fork_dict(self._stale, set)
        other._candidates = {
            demands: candidates.fork(other, other._prefers(demands), other._scoring)
            for demands, candidates in self._candidates.items()
        }
        other._rules = self._rules.fork(cache)
        other._soft = self._soft.fork(cache)
        other._nominated = dict(self._nominated)
        return other

    # --- what changes ----------------------------------------------------------------------------

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, or changed in something that a filter looks at."""
        node = new or old
        assert node is not None
        name = node.name
        if old is None:
            self._ranks[name] = self._next_rank
            self._next_rank += 1
        self._count += (new is not None) - (old is not None)
        info = self._infos.get(name)
        if info is not None and old is not None and new is not None:
            info.node = new
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._infos.pop(name, None)
        self._groups = None
        for stale in self._stale.values():
            stale.add(name)
        self._rules.node_changed(old, new)
        self._soft.node_changed(old, new)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, went, was bound, has ended, or began to terminate."""
        before, after = _place_of(old), _place_of(new)
        if self._nominated and old is not None and (new is None or after or new.uid != old.uid):
            self.nominate(old, None)
        if before != after:
            if new is not None and after:
                self._takes_room(new, after, 1)
            if old is not None and before:
                self._takes_room(old, before, -1)
                for stale in self._stale.values():
                    stale.add(before)
        self._rules.pod_changed(old, new, before, after)
        self._soft.pod_changed(old, new, before, after)

    def _takes_room(self, pod: Pod, name: str, by: int) -> None:
        info = self._infos.get(name)
        if info is not None:
            wanted = self._classes.room_of(pod)
            if by > 0:
                info.add(wanted.requests, wanted.ports, scored=wanted.scored)
            else:
                info.remove(wanted.requests, wanted.ports, wanted.scored)
        self._rules.pod_moved(pod, name, by)

    def prepare(self, pods: Iterable[Pod]) -> None:
        """Find the nodes for each class of these pods now, and what each node has left once it is
        asked: forks share what is found. Nothing is placed here from then on, only in forks."""
        if len(self._infos) < self._count:
            names = {name: name for name in self._cache.nodes}
            self._infos = made_later(names, self._cache.stock, NodeInfo.copy, self._infos)
        pods = tuple(pods)
        self.prepare_for(pods)
        if self._count <= SMALL:
            self._soft.prepare(pods)

    def prepare_for(self, pods: Iterable[Pod]) -> None:
        """Find the nodes for each class of these pods now, and nothing else."""
        for demands in {self._classes.demands_of(pod): None for pod in pods}:
            self._candidates_for(demands).prepare()

    def end(self) -> None:
        """Break the reference cycle between candidates and the simulator."""
        self._candidates.clear()

    # --- nodes (scoring asks) --------------------------------------------------------------------

    def node_count(self) -> int:
        """How many nodes there are."""
        return self._count

    def rank(self, name: str) -> int:
        """The node's place in the order in which nodes were first seen."""
        return self._ranks[name]

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The nodes in that order."""
        return sorted(names, key=self._ranks.__getitem__)

    def info(self, name: str) -> NodeInfo:
        """The node's free room."""
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = self._cache.stock(name)
        return info

    def counted(self, name: str) -> NodeInfo | None:
        """The same, where it was counted before: it may not have heard of the newest change."""
        return self._infos.get(name)

    def infos(self, names: Iterable[str]) -> list[NodeInfo]:
        """The free room of each of the nodes."""
        infos = self._infos
        return [infos[name] if name in infos else self.info(name) for name in names]

    def pod_count(self, name: str) -> int:
        """How many pods take room on the node."""
        return self._cache.pod_count(name)

    # --- who waits for victims to go --------------------------------------------------------------

    def nominate(self, pod: Pod, name: str | None) -> None:
        """Keep room on the node for a pod without one; None: no longer."""
        if name is None:
            self._nominated.pop(pod.uid, None)
        else:
            self._nominated[pod.uid] = (name, pod)

    def nominated_node(self, pod: Pod) -> str | None:
        """The node whose room is reserved for the pod."""
        nomination = self._nominated.get(pod.uid)
        return None if nomination is None else nomination[0]

    def nominated_to(self, name: str) -> list[Pod]:
        """The pods for which room is reserved on the node."""
        return [pod for node, pod in self._nominated.values() if node == name]

    def _reserved_from(self, pod: Pod) -> Reserved:
        """The others than this pod for which room is reserved from it."""
        reserved: dict[str, list[Pod]] = {}
        for uid, (node, other) in self._nominated.items():
            if uid != pod.uid and priority(other) >= priority(pod):
                reserved.setdefault(node, []).append(other)
        return reserved

    # --- where to --------------------------------------------------------------------------------

    def place(self, pod: Pod) -> str | None:
        """The node that the pod would be bound to now, wherever it may be; None: none fits."""
        best = self.best(pod)
        if self.luck is not None and len(best) > 1:
            nodes, seeks = self.luck
            best = [name for name in best if (name in nodes) is seeks] or best
        if self.takes_last:
            best = best[::-1]
        if self.equals is not None and len(best) > 1:
            self.equals[pod.uid] = tuple(best[:MOST_EQUALS])
        return best[0] if best else None

    def best(self, pod: Pod) -> list[str]:
        """The nodes of the highest score, among which kube-scheduler's choice is chance."""
        demands = self._classes.demands_of(pod)
        wanted = self._rules.wanted(pod, demands)
        if self._nowhere(wanted):
            return []
        reserved = self._reserved_from(pod)
        nominated, pinned = self.nominated_node(pod), pinned_node(pod.spec)
        if nominated is not None and self._fits(wanted, nominated, reserved):
            return [nominated]
        if pinned is not None:
            return [pinned] if self._fits(wanted, pinned, reserved) else []
        has_rules = wanted.needs is not NO_NEEDS or wanted.spread or wanted.interpod or reserved
        return self._candidates_for(demands).best(
            wanted,
            partial(self._has_room, wanted, reserved=reserved),
            (lambda name: self._forbids(wanted, name, reserved) is None) if has_rules else None,
            partial(self._soft.scores, pod),
        )

    def fits_without(self, pod: Pod, name: str, leaving: Iterable[Pod]) -> bool:
        """True if the pod fits on the node once these have left it."""
        wanted = self._rules.wanted(pod, self._classes.demands_of(pod))
        node = self._cache.nodes.get(name)
        if node is None or self._nowhere(wanted) or pinned_node(pod.spec) not in (None, name):
            return False
        if self._keeps_off(pod, node) is not None:
            return False
        coming = self._reserved_from(pod).get(name, ())
        rounds = ((), coming) if coming else ((),)
        return all(self._fits_among(wanted, node, come, leaving) for come in rounds)

    def _fits_among(
        self,
        wanted: PodRequirements,
        node: Node,
        coming: Sequence[Pod],
        leaving: Iterable[Pod],
    ) -> bool:
        """True if room, ports and rules let the pod go there once these came and those left."""
        if rule_reason(self._rules.after(wanted, node, coming, leaving), node) is not None:
            return False
        if not node.status.allocatable:
            return True
        info = self._with_reserved(node.name, {node.name: coming}).copy()
        for gone in leaving:
            room = self._classes.room_of(gone)
            info.remove(room.requests, room.ports)
        return not resource_reasons(wanted, info)

    def line_of(self, pod: Pod) -> Hashable:
        """Pods with the same value fit the same nodes: where one waits, all do."""
        class_ = self._rules.class_of(pod, self._classes.demands_of(pod))
        return (class_, is_daemon_pod(pod), claim_names(pod), priority(pod))

    def follows_pods(self) -> bool:
        """True if a pod that comes may let in another that had nowhere to go."""
        return self._rules.are_counted()

    def candidates(self, pod: Pod, most: int) -> list[str]:
        """Nodes on which the pod fits now, at most so many."""
        demands = self._classes.demands_of(pod)
        wanted = self._rules.wanted(pod, demands)
        if self._nowhere(wanted):
            return []
        names: list[str] = []
        reserved = self._reserved_from(pod)
        for name in self._candidates_for(demands).names():
            if self._fits(wanted, name, reserved):
                names.append(name)
                if len(names) >= most:
                    break
        return names

    def no_room(self, pod: Pod) -> NoRoom:
        """Why the pod fits nowhere, counted over all nodes."""
        wanted = self._rules.wanted(pod, self._classes.demands_of(pod))
        nodes = self._cache.nodes
        nowhere = self._nowhere(wanted)
        if nowhere and nowhere != REASON_CLAIM_IN_USE:
            return NoRoom(((nowhere, len(nodes)),), len(nodes), anywhere=True)
        reasons: Counter[str] = Counter()
        reserved, named = self._reserved_from(pod), named_nodes(pod.spec)
        for name, node in nodes.items():
            if named is not None and name not in named:
                reasons[REASON_NOT_NAMED] += 1
            elif (reason := self._keeps_off(pod, node)) is not None:
                reasons[reason] += 1
            else:
                reasons.update(self._lacks(wanted, name, reserved, in_use=bool(nowhere)))
        ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        return NoRoom(tuple(item for item in ordered if item[1]), len(self._cache.nodes))

    def needs(self, pod: Pod) -> VolumeNeeds:
        """The demands of the pod's volumes on a node."""
        return self._rules.volume_needs(pod)

    def _fits(self, wanted: PodRequirements, name: str, reserved: Reserved) -> bool:
        node = self._cache.nodes.get(name)
        if node is None or self._keeps_off(wanted.pod, node) is not None:
            return False
        return (
            self._has_room(wanted, name, reserved) and self._forbids(wanted, name, reserved) is None
        )

    def _lacks(
        self, wanted: PodRequirements, name: str, reserved: Reserved, *, in_use: bool
    ) -> list[str]:
        """Why the node has no room now. `in_use`: another pod has a claim that the pod wants."""
        if not self._has_room(wanted, name, reserved):
            return resource_reasons(wanted, self._with_reserved(name, reserved))
        reason = REASON_CLAIM_IN_USE if in_use else self._forbids(wanted, name, reserved)
        return [] if reason is None else [reason]

    def _forbids(self, wanted: PodRequirements, name: str, reserved: Reserved) -> str | None:
        """Why volumes, the spread or other pods keep the pod away, or None: with the pods that wait
        to go there first, then without them.
        """
        node, coming = self._cache.nodes[name], reserved.get(name)
        reason = None
        if coming:
            reason = rule_reason(self._rules.after(wanted, node, coming, ()), node)
        return reason or rule_reason(wanted, node)

    def _has_room(self, wanted: PodRequirements, name: str, reserved: Reserved) -> bool:
        """True if the node itself has room."""
        if not self._cache.nodes[name].status.allocatable:
            return True
        infos = self._infos
        info = (
            infos[name] if name in infos and not reserved else self._with_reserved(name, reserved)
        )
        return not resource_reasons(wanted, info)

    def _with_reserved(self, name: str, reserved: Reserved) -> NodeInfo:
        """The node's free room, less what is reserved on it."""
        info = self.info(name)
        for pod in reserved.get(name, ()):
            info, room = info.copy(), self._classes.room_of(pod)
            info.add(room.requests, room.ports)
        return info

    def _keeps_off(self, pod: Pod, node: Node) -> str | None:
        """Why the node is excluded for the pod, whatever runs there."""
        return static_reason(pod, node) or (
            None if is_daemon_pod(pod) else self._cache.keeps_off(node)
        )

    def _nowhere(self, wanted: PodRequirements) -> str:
        """Why no node will do, whatever its state; "" if one may."""
        if wanted.pod.spec.scheduling_gates:
            return REASON_GATED
        if named_nodes(wanted.pod.spec) == frozenset():
            return REASON_CONFLICT
        if wanted.needs.nowhere:
            return wanted.needs.nowhere
        in_use = wanted.needs.exclusive and self._claim_in_use(wanted)
        return REASON_CLAIM_IN_USE if in_use else ""

    def _claim_in_use(self, wanted: PodRequirements) -> bool:
        claims = {name for _, name in wanted.needs.exclusive}
        return any(
            pod.metadata.uid != wanted.pod.metadata.uid and claims.intersection(claim_names(pod))
            for pod, _ in self._cache.placed(wanted.pod.namespace)
        )

    def _candidates_for(self, demands: Demands) -> Candidates:
        """The nodes to which pods with these demands may go, brought up to date."""
        candidates = self._candidates.get(demands)
        if candidates is None:
            candidates = self._scoring.candidates(self, self._prefers(demands))
            self._candidates[demands] = candidates
            self._stale[demands] = set()
            spec, sample = demands.wanted.pod.spec, demands.wanted.pod
            for names in self._alike(by_labels=asks_for_labels(spec)):
                admitted = self._keeps_off(sample, self._cache.nodes[names[0]]) is None
                candidates.update_alike(names, admitted)
        stale = self._stale[demands]
        if stale:
            nodes, sample = self._cache.nodes, demands.wanted.pod
            known_nodes = stale & self._ranks.keys()  # pods may name nodes that do not exist
            for name in self.in_order(known_nodes):
                node = nodes.get(name)
                admitted = node is not None and self._keeps_off(sample, node) is None
                candidates.update(name, admitted)
            stale.clear()
        return candidates

    def _alike(self, *, by_labels: bool) -> Iterable[list[str]]:
        """The nodes in groups that nothing but their room tells apart, and, unless that is asked
        for, their labels and names; each in the order in which they were first seen.
        """
        nodes = self._cache.nodes
        if by_labels:
            return [[name] for name in self.in_order(n for n in nodes if n in self._ranks)]
        if self._groups is None:
            groups = defaultdict[Hashable, list[str]](list)
            for name in self.in_order(n for n in nodes if n in self._ranks):
                node = nodes[name]
                spec, keeps_off = node.spec, self._cache.keeps_off(node)
                groups[spec.unschedulable, spec.taints, keeps_off].append(name)
            self._groups = list(groups.values())
        return self._groups

    def _prefers(self, demands: Demands) -> Prefers:
        """The preference of pods with these demands for a node."""
        return lambda name: preference_of(demands.wanted.pod, self._cache.nodes[name])


def asks_for_labels(spec: PodSpec) -> bool:
    """True if the pod asks anything of the labels or the name of a node."""
    affinity = spec.affinity
    return bool(spec.node_selector) or (affinity is not None and affinity.node_affinity is not None)


def priority(pod: Pod) -> int:
    """The pod's priority; 0 where it has none. Follows `PodPriority`."""
    return pod.spec.priority or 0


def pinned_node(spec: PodSpec) -> str | None:
    """The one node that the pod's affinity names, as the DaemonSet controller writes it."""
    names = named_nodes(spec)
    return next(iter(names)) if names is not None and len(names) == 1 else None


def named_nodes(spec: PodSpec) -> frozenset[str] | None:
    """The nodes that each term of the pod's required affinity names; None: some term names none.

    Follows `PreFilter` of plugins/nodeaffinity, after which no other node is looked at.
    """
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or not required.node_selector_terms:
        return None
    names: frozenset[str] = frozenset()
    for term in required.node_selector_terms:
        named = [
            frozenset(field.values)
            for field in term.match_fields
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not named:
            return None
        names |= frozenset.intersection(*named)
    return names


def _place_of(pod: Pod | None) -> str:
    """The node on which the pod takes room, "" for none."""
    return "" if pod is None or pod.status.phase in TERMINAL_PHASES else pod.spec.node_name
