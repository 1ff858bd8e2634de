"""What the pods that run elsewhere mean to one that is placed: the rules between pods, with their
counts kept up while pods come and go.

The rules look beyond a single node: topology spread, and affinity and anti-affinity between pods.
They are counted once for a class of pods that are alike, when first asked for. `PlacementRules` are
those that a node has to meet, `SoftRules` those that add to its score.

The scores follow kube-scheduler plugins/podtopologyspread (scoring.go, with the constraints that
the scheduler has for pods without any) and plugins/interpodaffinity (scoring.go), with their
weights in the default profile. They are for clusters in which all nodes that fit are compared
(`scoring.SMALL`).

`SchedulerCache` is what the simulated scheduler asks of the cluster: nodes, what their pods leave,
volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from math import floor, log
from typing import Final, NamedTuple, Protocol

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, TopologySpreadConstraint
from kubectl_nodelife.kube.selectors import SelectorIndex, matches
from kubectl_nodelife.kube.wellknown import LABEL_HOSTNAME, LABEL_ZONE
from kubectl_nodelife.workloads import topology
from kubectl_nodelife.workloads.pod_classes import Demands, PodClass, has_affinity
from kubectl_nodelife.workloads.scheduling import (
    NO_NEEDS,
    NodeInfo,
    PodRequirements,
    VolumeNeeds,
    Volumes,
    volume_needs,
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


class SchedulerCache(Volumes, Protocol):
    """The cluster as the scheduler sees it now."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""

    @property
    def empty_selector_spreads(self) -> bool:
        """True if a spread constraint with an empty selector counts every pod of the namespace."""

    def pod_count(self, name: str) -> int:
        """How many pods are bound to the node."""

    def stock(self, name: str) -> NodeInfo:
        """The node's room beside its pods; the caller's own copy."""

    def placed(self, namespace: str | None) -> Iterable[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node and have not ended."""

    def placed_anti_affinity(self) -> Iterable[tuple[Pod, Node]]:
        """Those of them that keep others away by a required anti-affinity."""

    def default_selector(self, pod: Pod) -> tuple[LabelSelector | None, str]:
        """What selects the pods that the scheduler spreads with this one by default, or the uid of
        their owner where that was not read; None and "": it spreads none.

        Follows `DefaultSelector`: the Services and the owner that select the pod.
        """

    def keeps_off(self, node: Node) -> str | None:
        """Why no pod goes to the node though the filters let it, or None."""


class PlacementRules:
    """The rules of all classes of pods that were asked about. It receives changes, as
    `PlacementSimulator` does.
    """

    def __init__(self, cache: SchedulerCache) -> None:
        self._cache = cache
        self._anti_affinity = any(True for _ in cache.placed_anti_affinity())
        self._counted: dict[PodClass, PodRequirements] = {}
        self._spreads: SelectorIndex[topology.TopologySpread] = SelectorIndex()
        self._spreading: list[topology.TopologySpread] = []
        self._interpods: list[topology.InterPodAffinity] = []

    def fork(self, cache: SchedulerCache) -> PlacementRules:
        """Another one with the same counts, made by sharing."""
        other = copy(self)
        other._cache = cache
        other._spreading = [spread.fork() for spread in self._spreading]
        other._interpods = [interpod.fork() for interpod in self._interpods]
        spreads = dict(zip(self._spreading, other._spreading, strict=True))
        interpods = dict(zip(self._interpods, other._interpods, strict=True))
        other._counted = {
            class_: PodRequirements(
                wanted.pod,
                spreads[wanted.spread] if wanted.spread is not None else None,
                interpods[wanted.interpod] if wanted.interpod is not None else None,
            )
            for class_, wanted in self._counted.items()
        }
        other._spreads = SelectorIndex()
        for spread in other._spreading:
            other._file(spread)
        return other

    def class_of(self, pod: Pod, demands: Demands) -> PodClass:
        """The pod's class; labels count where some pod has a required anti-affinity to others."""
        return demands.class_of(pod, self._anti_affinity)

    def wanted(self, pod: Pod, demands: Demands) -> PodRequirements:
        """The pod's demands, its volumes included."""
        class_ = self.class_of(pod, demands)
        shared = demands.wanted if class_ is demands.plain else self._of_class(class_)
        volumes = pod.spec.volumes
        if not volumes or not any(v.persistent_volume_claim or v.ephemeral for v in volumes):
            return shared
        needs = self.volume_needs(pod)
        if needs is NO_NEEDS:
            return shared
        return PodRequirements(pod, shared.spread, shared.interpod, needs, self._cache)

    def volume_needs(self, pod: Pod) -> VolumeNeeds:
        """The demands of the pod's volumes on a node."""
        return volume_needs(pod, self._cache, created_anew=True)

    def after(
        self,
        wanted: PodRequirements,
        node: Node,
        coming: Iterable[Pod],
        leaving: Iterable[Pod],
    ) -> PodRequirements:
        """A pod's demands as they are once these have come to the node, and those have left it.

        Follows `AddPod` and `RemovePod` of the plugins' PreFilterExtensions. InterPodAffinity has
        none for a pod that no rule concerned before: its PreFilter says Skip.
        """
        spread = wanted.spread.fork() if wanted.spread is not None else None
        interpod = wanted.interpod
        interpod = interpod.fork() if interpod is not None and interpod.concerns() else None
        for others, by in ((coming, 1), (leaving, -1)):
            for other in others:
                if spread is not None:
                    spread.suppose(other, node, by)
                if interpod is not None:
                    interpod.change(other, node, by)
        changed = copy(wanted)
        changed.spread, changed.interpod = spread, interpod
        return changed

    def are_counted(self) -> bool:
        """True if some class's rules are counted, so that a new pod may make room for another."""
        return bool(self._counted)

    # What changes

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, or changed in something that a filter looks at."""
        moved = old is None or new is None or old.metadata.labels != new.metadata.labels
        if moved or any(spread.honours_taints() for spread in self._spreading):
            self._forget()

    def pod_moved(self, pod: Pod, name: str, by: int) -> None:
        """A pod takes room on the node from now on (`by` 1), or no longer (-1)."""
        node = self._cache.nodes.get(name)
        if (
            pod.spec.affinity is not None
            and not self._anti_affinity
            and topology.anti_affinity_terms(pod)
        ):
            # From now on labels divide classes that were one.
            self._anti_affinity = True
            self._forget()
        if node is not None:
            for interpod in self._interpods:
                interpod.change(pod, node, by)

    def pod_changed(self, old: Pod | None, new: Pod | None, before: str, after: str) -> None:
        """A pod changed that takes room on these nodes, "" for none; terminating ones are not
        spread any more.
        """
        if not self._spreading:
            return
        counted_before = before if _is_counted(old) else ""
        counted_after = after if _is_counted(new) else ""
        if counted_before != counted_after:
            self._spread(old, counted_before, -1)
            self._spread(new, counted_after, 1)

    def _spread(self, pod: Pod | None, name: str, by: int) -> None:
        node = self._cache.nodes.get(name) if name else None
        if pod is None or node is None:
            return
        # Each once, though two of its selectors match.
        for spread in dict.fromkeys(self._spreads.find(pod.namespace, pod.metadata.labels)):
            spread.change(pod, node, by)

    def _forget(self) -> None:
        """All counts are taken anew when they are next needed."""
        self._counted.clear()
        self._spreads, self._spreading, self._interpods = SelectorIndex(), [], []

    # The counts of a class

    def _of_class(self, class_: PodClass) -> PodRequirements:
        requirements = self._counted.get(class_)
        if requirements is None:
            sample = class_.sample
            requirements = PodRequirements(
                sample, self._spread_of(sample), self._interpod_of(sample)
            )
            self._counted[class_] = requirements
        return requirements

    def _spread_of(self, pod: Pod) -> topology.TopologySpread | None:
        if not topology.hard_constraints(pod):
            return None
        all_of_them = self._cache.empty_selector_spreads
        spread = topology.TopologySpread(
            pod, self._cache.nodes.values(), empty_selects_all=all_of_them
        )
        for placed, node in self._cache.placed(pod.namespace):
            if placed.metadata.deletion_timestamp is None:
                spread.change(placed, node, 1)
        self._spreading.append(spread)
        self._file(spread)
        return spread

    def _file(self, spread: topology.TopologySpread) -> None:
        for selector in spread.selectors():
            self._spreads.add(spread.namespace, selector, spread)

    def _interpod_of(self, pod: Pod) -> topology.InterPodAffinity | None:
        terms = topology.affinity_terms(pod) + topology.anti_affinity_terms(pod)
        if not terms and not self._anti_affinity:
            return None
        interpod = topology.InterPodAffinity(pod, self._cache.namespace_labels)
        if all(t.namespace_selector is None and t.namespaces == {pod.namespace} for t in terms):
            # Its own terms are about its namespace alone; elsewhere only others' terms count.
            for other, node in self._cache.placed(pod.namespace) if terms else ():
                interpod.change(other, node, 1)
            for other, node in self._cache.placed_anti_affinity():
                if not terms or other.namespace != pod.namespace:
                    interpod.change(other, node, 1)
        else:
            for other, node in self._cache.placed(None):
                interpod.change(other, node, 1)
        self._interpods.append(interpod)
        return interpod


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
                for constraint in topology.soft_constraints(pod)
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
                if asks and not topology.counts_as_domain(constraint, pod, nodes[name]):
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

    def __init__(self, pod: Pod, namespaces: topology.NamespaceLabels) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self._terms = topology.preferred_terms(pod)
        self._counts: topology.Counts = {}

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

    def _add(self, term: topology.Term, of: Pod, node: Node, weight: int) -> None:
        value = (node.metadata.labels or _NO_LABELS).get(term.topology_key)
        if value is not None and term.means(of, self._namespaces):
            pair = (term.topology_key, value)
            self._counts[pair] = self._counts.get(pair, 0) + weight

    def of(self, node: Node) -> int:
        """The sum for a node."""
        counts = self._counts
        return sum(counts.get(pair, 0) for pair in (node.metadata.labels or _NO_LABELS).items())


def _terms_towards_others(pod: Pod) -> Iterator[topology.WeightedTerm]:
    """The terms of a placed pod that count for one to come: hardPodAffinityWeight is 1."""
    yield from topology.preferred_terms(pod)
    for term in topology.affinity_terms(pod):
        yield topology.WeightedTerm(term, 1)


def _is_counted(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is None
