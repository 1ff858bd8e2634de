"""Required affinity and anti-affinity between pods: the terms of one pod, and those of the others.

Follows kube-scheduler plugins/interpodaffinity/filtering.go, with the counts kept up as pods come
and go. Pods that are terminating still count, as upstream. Left out: the preferred terms, which
never rule a node out. `matchLabelKeys` are already part of a stored pod's selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodAffinityTerm
from kubectl_nodelife.kube.selectors import matches

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

_NO_LABELS: Mapping[str, str] = {}

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""The labels of each namespace, by its name."""


class Term(NamedTuple):
    """One term: which pods it means, and the label whose value makes nodes one place."""

    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None
    topology_key: str

    def means(self, pod: Pod, namespaces: NamespaceLabels) -> bool:
        """True if the term is about `pod`. Follows `AffinityTerm.Matches`."""
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


Counts = dict[tuple[str, str], int]


class InterPodAffinity:
    """The meaning of the pods that are placed for one pod. Follows `preFilterState`."""

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
        found = True
        for term in self.terms:
            value = labels.get(term.topology_key)
            if value is None:
                return False
            if self._affinity.get((term.topology_key, value), 0) <= 0:
                found = False
        if found:
            return True
        # The first of a series that wants to be with its own kind may go anywhere.
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
