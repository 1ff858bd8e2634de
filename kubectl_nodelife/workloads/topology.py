"""Rules about pods in one topology domain: required affinity and anti-affinity between pods, and
topology spread constraints that must hold.

Affinity follows kube-scheduler plugins/interpodaffinity/filtering.go, with the counts kept up as
pods come and go. Pods that are terminating still count, as upstream. The preferred terms, which
never rule a node out, are counted in `SoftRules`. `matchLabelKeys` are already part of a stored
pod's selectors.

Spread follows kube-scheduler plugins/podtopologyspread (filtering.go, common.go), with the counts
kept up as pods come and go (`AddPod`, `RemovePod`). A cordoned node is still a domain unless the
constraint honours taints, and a domain emptied by a drain then limits every other one: that is
upstream's behaviour too. Constraints with ScheduleAnyway, the scheduler's own defaults among them,
never rule a node out: `SoftRules` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import NamedTuple

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodAffinityTerm, TopologySpreadConstraint
from kubectl_nodelife.kube.selectors import matches, matches_required_node_affinity
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

_NO_LABELS: Mapping[str, str] = {}

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""The labels of each namespace, by its name."""


class Term(NamedTuple):
    """One term: the pods it selects, and the label by whose value nodes form a domain."""

    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None
    topology_key: str

    def means(self, pod: Pod, namespaces: NamespaceLabels) -> bool:
        """True if the term selects `pod`. Follows `AffinityTerm.Matches`."""
        namespace = pod.namespace
        if namespace not in self.namespaces and not (
            self.namespace_selector is not None
            and matches(self.namespace_selector, namespaces.get(namespace, _NO_LABELS))
        ):
            return False
        return matches(self.selector, pod.metadata.labels)


def affinity_terms(pod: Pod) -> tuple[Term, ...]:
    """The pod's required affinity terms."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return ()
    return _terms(pod, affinity.pod_affinity.required_during_scheduling_ignored_during_execution)


def anti_affinity_terms(pod: Pod) -> tuple[Term, ...]:
    """The pod's required anti-affinity terms."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    required = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    return _terms(pod, required)


def _terms(pod: Pod, terms: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
    return tuple(
        Term(
            frozenset(term.namespaces)
            if term.namespaces or term.namespace_selector is not None
            else frozenset((pod.namespace,)),
            term.namespace_selector,
            term.label_selector,
            term.topology_key,
        )
        for term in terms
    )


class WeightedTerm(NamedTuple):
    """A term that draws a pod to a domain, or by a negative weight keeps it away."""

    term: Term
    weight: int


def preferred_terms(pod: Pod) -> tuple[WeightedTerm, ...]:
    """The pod's preferred affinity terms, and those of anti-affinity with a negative weight."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    terms_of_all: list[WeightedTerm] = []
    for of, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        preferred = of.preferred_during_scheduling_ignored_during_execution if of else ()
        terms = _terms(pod, (weighted.pod_affinity_term for weighted in preferred))
        weights = (sign * weighted.weight for weighted in preferred)
        terms_of_all += map(WeightedTerm, terms, weights)
    return tuple(terms_of_all)


Counts = dict[tuple[str, str], int]


class InterPodAffinity:
    """The counts of the placed pods that matter for one pod. Follows `preFilterState`."""

    __slots__ = ("_affinity", "_anti_affinity", "_existing", "_namespaces", "_pod", "anti", "terms")

    def __init__(self, pod: Pod, namespaces: NamespaceLabels) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self.terms = affinity_terms(pod)
        self.anti = anti_affinity_terms(pod)
        self._affinity: Counts = {}
        self._anti_affinity: Counts = {}
        self._existing: Counts = {}

    def fork(self) -> InterPodAffinity:
        """Another one with the same counts."""
        other = copy(self)
        self._affinity, other._affinity = fork_dict(self._affinity)
        self._anti_affinity, other._anti_affinity = fork_dict(self._anti_affinity)
        self._existing, other._existing = fork_dict(self._existing)
        return other

    def change(self, pod: Pod, node: Node, by: int) -> None:
        """A pod came to `node` (1) or left it (-1)."""
        labels = node.metadata.labels or _NO_LABELS
        for term in anti_affinity_terms(pod):
            if term.means(self._pod, self._namespaces):
                _change(self._existing, term, labels, by)
        if self.terms and all(term.means(pod, self._namespaces) for term in self.terms):
            for term in self.terms:
                _change(self._affinity, term, labels, by)
        for term in self.anti:
            if term.means(pod, self._namespaces):
                _change(self._anti_affinity, term, labels, by)

    def concerns(self) -> bool:
        """True if a rule of the pod's own, or of a pod that is placed, is about the pod."""
        return bool(self.terms or self.anti or self._existing)

    def reason(self, node: Node) -> str | None:
        """Why the pod may not go to the node, or None."""
        labels = node.metadata.labels or _NO_LABELS
        if not self._affinity_holds(labels):
            return REASON_AFFINITY
        for term in self.anti:
            value = labels.get(term.topology_key)
            if value is not None and self._anti_affinity.get((term.topology_key, value), 0) > 0:
                return REASON_ANTI_AFFINITY
        if self._existing:
            for pair in labels.items():
                if self._existing.get(pair, 0) > 0:
                    return REASON_EXISTING
        return None

    def _affinity_holds(self, labels: Mapping[str, str]) -> bool:
        holds = True
        for term in self.terms:
            value = labels.get(term.topology_key)
            if value is None:
                return False
            if self._affinity.get((term.topology_key, value), 0) <= 0:
                holds = False
        if holds:
            return True
        # The first of a series of pods with affinity to one another may go anywhere.
        alone = not self._affinity
        return alone and all(term.means(self._pod, self._namespaces) for term in self.terms)


def _change(counts: Counts, term: Term, labels: Mapping[str, str], by: int) -> None:
    value = labels.get(term.topology_key)
    if value is None:
        return
    pair = (term.topology_key, value)
    counts[pair] = counts.get(pair, 0) + by
    if not counts[pair]:
        del counts[pair]


REASON_SKEW = "node(s) didn't match pod topology spread constraints"
REASON_NO_LABEL = REASON_SKEW + " (missing required label)"

_DO_NOT_SCHEDULE = frozenset({NO_SCHEDULE, NO_EXECUTE})


def hard_constraints(pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
    """The pod's constraints that keep it off a node, with matchLabelKeys merged into selectors."""
    return _constraints(pod, "DoNotSchedule")


def soft_constraints(pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
    """Its constraints that only count for a node's score."""
    return _constraints(pod, "ScheduleAnyway")


def _constraints(pod: Pod, when_unsatisfiable: str) -> tuple[TopologySpreadConstraint, ...]:
    return tuple(
        _with_match_label_keys(constraint, pod.metadata.labels or _NO_LABELS)
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == when_unsatisfiable
    )


def _with_match_label_keys(
    constraint: TopologySpreadConstraint, labels: Mapping[str, str]
) -> TopologySpreadConstraint:
    pairs = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    if not pairs or constraint.label_selector is None:
        return constraint
    selector = msgspec.structs.replace(
        constraint.label_selector,
        match_labels={**(constraint.label_selector.match_labels or {}), **pairs},
    )
    return msgspec.structs.replace(constraint, label_selector=selector)


class Domains:
    """How many matching pods each value of a topology key has, and the fewest of all."""

    __slots__ = ("counts", "fewest", "how_many")

    def __init__(self, values: Iterable[str]) -> None:
        self.counts: dict[str, int] = dict.fromkeys(values, 0)
        self.how_many: dict[int, int] = {0: len(self.counts)}
        self.fewest = 0

    def fork(self) -> Domains:
        """Others with the same counts."""
        other = copy(self)
        self.counts, other.counts = fork_dict(self.counts)
        other.how_many = dict(self.how_many)
        return other

    def change(self, value: str, by: int) -> None:
        """One pod more (`by` 1) or less (-1) in the domain."""
        before = self.counts.get(value)
        if before is None:
            return
        after = self.counts[value] = before + by
        how_many = self.how_many
        how_many[before] -= 1
        how_many[after] = how_many.get(after, 0) + 1
        if after < self.fewest:
            self.fewest = after
        while not how_many.get(self.fewest) and self.fewest < after:
            self.fewest += 1

    def minimum(self, min_domains: int | None) -> int:
        """The global minimum; 0 where there are fewer domains than asked for."""
        return 0 if len(self.counts) < (min_domains or 1) else self.fewest


class TopologySpread:
    """The constraints of one pod, and how pods are spread now. Follows `preFilterState`."""

    __slots__ = ("_domains", "_eligible", "_empty_selects_all", "_pod", "constraints", "namespace")

    def __init__(self, pod: Pod, nodes: Iterable[Node], *, empty_selects_all: bool = False) -> None:
        """`empty_selects_all`: an empty selector counts every pod of the namespace (since 1.38)."""
        self._pod = pod
        self._empty_selects_all = empty_selects_all
        self.namespace = pod.namespace
        self.constraints = hard_constraints(pod)
        keys = [constraint.topology_key for constraint in self.constraints]
        values: list[set[str]] = [set() for _ in keys]
        self._eligible: dict[str, tuple[bool, ...]] = {}
        for node in nodes:
            labels = node.metadata.labels or _NO_LABELS
            if not all(key in labels for key in keys):
                continue
            counts_for = tuple(counts_as_domain(c, pod, node) for c in self.constraints)
            self._eligible[node.name] = counts_for
            for i, counted in enumerate(counts_for):
                if counted:
                    values[i].add(labels[keys[i]])
        self._domains = [Domains(value) for value in values]

    def fork(self) -> TopologySpread:
        """Another one with the same counts."""
        other = copy(self)
        other._domains = [domains.fork() for domains in self._domains]
        return other

    def selectors(self) -> list[LabelSelector | None]:
        """The selectors of the constraints: pods that match one of them change the counts."""
        return [constraint.label_selector for constraint in self.constraints]

    def honours_taints(self) -> bool:
        """True if a node's taints decide if it is a domain (`nodeTaintsPolicy: Honor`)."""
        return any(c.node_taints_policy == "Honor" for c in self.constraints)

    def change(self, pod: Pod, node: Node, by: int) -> None:
        """A pod came to `node` (1), or left it or began to terminate (-1)."""
        self._change(pod, node, by, self._counts)

    def suppose(self, pod: Pod, node: Node, by: int) -> None:
        """The same of a pod that is tried. Follows `updateWithPod`: unlike in the first count, pods
        count that terminate, and those that an empty selector matches.
        """
        self._change(pod, node, by, lambda s, of: s is not None and matches(s, of.metadata.labels))

    def _change(
        self, pod: Pod, node: Node, by: int, counts: Callable[[LabelSelector | None, Pod], bool]
    ) -> None:
        counts_for = self._eligible.get(node.name)
        if counts_for is None or pod.namespace != self.namespace:
            return
        labels = node.metadata.labels or _NO_LABELS
        for constraint, counted, domains in zip(
            self.constraints, counts_for, self._domains, strict=True
        ):
            if counted and counts(constraint.label_selector, pod):
                domains.change(labels[constraint.topology_key], by)

    def _counts(self, selector: LabelSelector | None, pod: Pod) -> bool:
        """Up to 1.37 an empty selector counts nothing here, unlike elsewhere. Follows
        `countPodsMatchSelector`.
        """
        if selector is None:
            return False
        if not (selector.match_labels or selector.match_expressions):
            return self._empty_selects_all
        return matches(selector, pod.metadata.labels)

    def reason(self, node: Node) -> str | None:
        """Why the pod may not go to the node, or None."""
        labels = node.metadata.labels or _NO_LABELS
        for constraint, domains in zip(self.constraints, self._domains, strict=True):
            value = labels.get(constraint.topology_key)
            if value is None:
                return REASON_NO_LABEL
            itself = 1 if matches(constraint.label_selector, self._pod.metadata.labels) else 0
            skew = domains.counts.get(value, 0) + itself - domains.minimum(constraint.min_domains)
            if skew > constraint.max_skew:
                return REASON_SKEW
        return None


def counts_as_domain(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    """True if the node counts at all. Follows `matchNodeInclusionPolicies`."""
    if constraint.node_affinity_policy == "Honor" and not matches_required_node_affinity(
        pod.spec, node
    ):
        return False
    if constraint.node_taints_policy != "Honor":
        return True
    untolerated = find_matching_untolerated_taint(
        node.spec.taints, pod.spec.tolerations, _DO_NOT_SCHEDULE
    )
    return untolerated is None
