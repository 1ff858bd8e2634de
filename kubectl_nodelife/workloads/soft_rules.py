"""What a pod's topology spread and the affinity between pods add to the scores of nodes.

Follows kube-scheduler plugins/podtopologyspread (scoring.go, with the constraints that the
scheduler has for pods without any) and plugins/interpodaffinity (scoring.go), with their weights in
the default profile. Their counts are kept up as pods come and go. They are for clusters in which
all nodes that fit are compared (`scoring.SMALL`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from math import floor, log
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec, TopologySpreadConstraint
from kubectl_nodelife.kube.selectors import SelectorIndex, matches
from kubectl_nodelife.kube.wellknown import LABEL_HOSTNAME, LABEL_ZONE
from kubectl_nodelife.workloads.placement_rules import SchedulerCache
from kubectl_nodelife.workloads.topology import (
    Counts,
    NamespaceLabels,
    Term,
    WeightedTerm,
    affinity_terms,
    counts_as_domain,
    preferred_terms,
    soft_constraints,
)

_WEIGHT: Final = 2
"""Of PodTopologySpread and of InterPodAffinity in kube-scheduler's default profile."""

_BEST: Final = 100
"""MaxNodeScore."""

DEFAULT_CONSTRAINTS: Final = (
    TopologySpreadConstraint(
        max_skew=3, topology_key=LABEL_HOSTNAME, when_unsatisfiable="ScheduleAnyway"
    ),
    TopologySpreadConstraint(
        max_skew=5, topology_key=LABEL_ZONE, when_unsatisfiable="ScheduleAnyway"
    ),
)
"""systemDefaultConstraints, for the pods that a pod's Services and owner select."""

_encode = msgspec.msgpack.Encoder().encode
_NO_LABELS: Mapping[str, str] = {}


class _PodSelection(NamedTuple):
    """Pods of a namespace by a selector, or by their owner's uid where that was not read."""

    namespace: str
    selector: LabelSelector | None
    owner_uid: str = ""

    @property
    def key(self) -> Hashable:
        return self.owner_uid or (self.namespace, _encode(self.selector))


class SoftRules:
    """The counts, each made when it is first asked for. It receives changes, as
    `PlacementSimulator` does.
    """

    def __init__(self, cache: SchedulerCache) -> None:
        self._cache = cache
        self._counts: dict[Hashable, Counter[str]] = {}
        """How many pods of a selection each node has; those that terminate do not count."""
        self._selecting: SelectorIndex[Hashable] = SelectorIndex()
        """Where the counts are found; forks share it, and lack the counts of one another."""
        self._by_owner: frozenset[str] = frozenset()
        """The namespaces whose pods were counted for each owner's uid."""
        self._likings: dict[Hashable, _Liking] = {}
        self._values: dict[str, dict[str, str]] = {}
        """Label -> node -> its value; forks share it."""
        self._affine: bool | None = None
        """True if a pod with affinity to or against others was seen; None: not looked for."""

    def fork(self, cache: SchedulerCache) -> SoftRules:
        """Others with the same counts."""
        other = copy(self)
        other._cache = cache
        self._counts, other._counts = fork_dict(self._counts, copy)
        other._likings = {key: liking.fork() for key, liking in self._likings.items()}
        return other

    # What changes

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, or has other labels."""
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._likings, self._values = {}, {}

    def pod_changed(self, old: Pod | None, new: Pod | None, before: str, after: str) -> None:
        """A pod changed that takes room on these nodes, "" for none."""
        if self._counts:
            from_node = before if _is_counted(old) else ""
            to_node = after if _is_counted(new) else ""
            if from_node != to_node:
                self._count(old, from_node, -1)
                self._count(new, to_node, 1)
        if before != after and self._affine is not None:
            self._like(old, before, -1)
            self._like(new, after, 1)

    def _count(self, pod: Pod | None, node: str, by: int) -> None:
        if pod is None or not node:
            return
        keys = dict.fromkeys(self._selecting.find(pod.namespace, pod.metadata.labels))
        for key in keys:
            counts = self._counts.get(key)
            if counts is not None:
                counts[node] += by
        if pod.namespace in self._by_owner:
            self._count_for_owners(pod, node, by)

    def _count_for_owners(self, pod: Pod, node: str, by: int) -> None:
        for owner in pod.metadata.owner_references:
            counts = self._counts.get(owner.uid)
            if counts is None:
                counts = self._counts[owner.uid] = Counter()
            counts[node] += by

    def _like(self, pod: Pod | None, name: str, by: int) -> None:
        node = self._cache.nodes.get(name) if name else None
        if pod is None or node is None:
            return
        if not self._affine and has_affinity(pod.spec):
            self._affine = True
            self._likings = {}
        for liking in self._likings.values():
            liking.change(pod, node, by)

    # Scores

    def prepare(self, pods: Iterable[Pod]) -> None:
        """Count what the scores of these pods need, so that forks share it."""
        self._is_affine()
        owned = {(p.namespace, *(o.uid for o in p.metadata.owner_references)): p for p in pods}
        for pod in owned.values():
            for _, selected in self._spread_constraints(pod):
                self._counts_of(selected)

    def scores(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """What both plugins add to the score of each of the nodes, which all fit the pod."""
        scores = self._spread_scores(pod, names)
        if self._is_affine() or has_affinity(pod.spec):
            liked = self._liking_scores(pod, names)
            scores = [spread + like for spread, like in zip(scores, liked, strict=True)]
        return [_WEIGHT * score for score in scores]

    def _spread_constraints(self, pod: Pod) -> list[tuple[TopologySpreadConstraint, _PodSelection]]:
        """Follows `initPreScoreState`."""
        if pod.spec.topology_spread_constraints:
            return [
                (constraint, _PodSelection(pod.namespace, constraint.label_selector))
                for constraint in soft_constraints(pod)
            ]
        of_owner = _PodSelection(pod.namespace, *self._cache.default_selector(pod))
        if of_owner.selector is None and not of_owner.owner_uid:
            return []
        return [(constraint, of_owner) for constraint in DEFAULT_CONSTRAINTS]

    def _spread_scores(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """Follows PodTopologySpread's `PreScore`, `Score` and `NormalizeScore`."""
        constraints = self._spread_constraints(pod)
        if not constraints:
            return [0] * len(names)
        scored = set(names)
        required = []  # without a label that its own constraints name, a node is no domain
        if pod.spec.topology_spread_constraints:
            required = [self._values_of(constraint.topology_key) for constraint, _ in constraints]
            scored = {name for name in names if all(name in values for values in required)}
        raw = dict.fromkeys(scored, 0.0)
        for constraint, selected in constraints:
            self._add(raw, pod, constraint, self._counts_of(selected), required)
        rounded = {name: floor(score + 0.5) for name, score in raw.items()}
        most, least = max(rounded.values(), default=0), min(rounded.values(), default=0)
        return [
            (_BEST * (most + least - rounded[name]) // most if most else _BEST)
            if name in rounded
            else 0
            for name in names
        ]

    def _add(
        self,
        raw: dict[str, float],
        pod: Pod,
        constraint: TopologySpreadConstraint,
        counts: Mapping[str, int],
        required: Sequence[Mapping[str, str]],
    ) -> None:
        """Add one constraint's part to the nodes. `required`: what all domains have values of."""
        more = constraint.max_skew - 1
        if constraint.topology_key == LABEL_HOSTNAME:
            values: Mapping[str, str] = {name: name for name in raw}
            per_value = dict(counts)
            weight = log(len(raw) + 2)
        else:
            values = self._values_of(constraint.topology_key)
            per_value = {values.get(name, ""): 0 for name in raw}
            weight = log(len(per_value) + 2)
            spec, nodes = pod.spec, self._cache.nodes
            asks = spec.node_selector or spec.affinity or constraint.node_taints_policy == "Honor"
            for name, count in counts.items():
                value = values.get(name, "")
                if value not in per_value or not count:
                    continue
                if asks and not counts_as_domain(constraint, pod, nodes[name]):
                    continue
                if all(name in others for others in required):
                    per_value[value] += count
        for name in raw:
            if name in values:
                raw[name] += per_value.get(values[name], 0) * weight + more

    def _values_of(self, key: str) -> Mapping[str, str]:
        """The value of a label on each node that has it."""
        values = self._values.get(key)
        if values is None:
            values = self._values[key] = {
                name: node.metadata.labels[key]
                for name, node in self._cache.nodes.items()
                if node.metadata.labels and key in node.metadata.labels
            }
        return values

    def _counts_of(self, selected: _PodSelection) -> Mapping[str, int]:
        selector = selected.selector
        if not selected.owner_uid and (
            selector is None or not (selector.match_labels or selector.match_expressions)
        ):
            return {}  # countPodsMatchSelector counts no pods for an empty selector
        key, namespace = selected.key, selected.namespace
        if selected.owner_uid and namespace not in self._by_owner:
            self._by_owner |= {namespace}
            for pod, node in self._cache.placed(namespace):
                if pod.metadata.deletion_timestamp is None:
                    self._count_for_owners(pod, node.name, 1)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counter()
            self._selecting.add(namespace, selector, key)
            for pod, node in self._cache.placed(namespace) if selector is not None else ():
                meta = pod.metadata
                if meta.deletion_timestamp is None and matches(selector, meta.labels):
                    counts[node.name] += 1
        return counts

    def _is_affine(self) -> bool:
        if self._affine is None:
            self._affine = any(has_affinity(p.spec) for p, _ in self._cache.placed(None))
        return self._affine

    def _liking_scores(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """Follows InterPodAffinity's `PreScore`, `Score` and `NormalizeScore`."""
        key = _encode((pod.namespace, pod.metadata.labels, pod.spec.affinity))
        liking = self._likings.get(key)
        if liking is None:
            liking = self._likings[key] = _Liking(pod, self._cache.namespace_labels)
            for other, node in self._cache.placed(None):
                liking.change(other, node, 1)
        raw = [liking.of(self._cache.nodes[name]) for name in names]
        least, span = min(raw), max(raw) - min(raw)
        return [int(float(_BEST) * ((one - least) / span)) if span else 0 for one in raw]


class _Liking:
    """By how much pods that are placed draw one pod to a node or keep it away."""

    __slots__ = ("_counts", "_namespaces", "_pod", "_terms")

    def __init__(self, pod: Pod, namespaces: NamespaceLabels) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self._terms = preferred_terms(pod)
        self._counts: Counts = {}

    def fork(self) -> _Liking:
        """Another one with the same counts."""
        other = copy(self)
        self._counts, other._counts = fork_dict(self._counts)
        return other

    def change(self, pod: Pod, node: Node, by: int) -> None:
        """A pod came to the node (1) or left it (-1). Follows `processExistingPod`."""
        for term, weight in self._terms:
            self._add(term, pod, node, weight * by)
        if pod.spec.affinity is not None:
            for term, weight in _terms_towards_others(pod):
                self._add(term, self._pod, node, weight * by)

    def _add(self, term: Term, of: Pod, node: Node, weight: int) -> None:
        value = (node.metadata.labels or _NO_LABELS).get(term.topology_key)
        if value is not None and term.means(of, self._namespaces):
            pair = (term.topology_key, value)
            self._counts[pair] = self._counts.get(pair, 0) + weight

    def of(self, node: Node) -> int:
        """The sum for a node."""
        counts = self._counts
        return sum(counts.get(pair, 0) for pair in (node.metadata.labels or _NO_LABELS).items())


def _terms_towards_others(pod: Pod) -> Iterator[WeightedTerm]:
    """The terms of a placed pod that count for one to come: hardPodAffinityWeight is 1."""
    yield from preferred_terms(pod)
    for term in affinity_terms(pod):
        yield WeightedTerm(term, 1)


def has_affinity(spec: PodSpec) -> bool:
    """True if the pod has any term about other pods."""
    affinity = spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )


def _is_counted(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is None
