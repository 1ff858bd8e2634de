"""Which nodes a pod may run on by its own words: nodeSelector and required node affinity.

Follows component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go. A malformed requirement
makes its term match nothing (upstream: the term is an error, the other terms still count). Left
out: preferred terms, which decide nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubectl_nodelife.kube.meta import LabelSelectorRequirement
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import NodeSelector, NodeSelectorTerm, PodSpec
from kubectl_nodelife.kube.selectors import IN, NOT_IN, matches_set, requirement_matches

_FIELD_NAME = "metadata.name"


def matches_required_node_affinity(spec: PodSpec, node: Node) -> bool:
    """True if nodeSelector and required node affinity both admit the node.

    Follows `GetRequiredNodeAffinity(pod).Match(node)`.
    """
    if spec.node_selector and not matches_set(spec.node_selector, node.metadata.labels):
        return False
    selector = required_node_selector(spec)
    return selector is None or matches_node_selector(selector, node)


def required_node_selector(spec: PodSpec) -> NodeSelector | None:
    """The pod's required node affinity; None where it has none, which admits every node."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return None
    return affinity.required_during_scheduling_ignored_during_execution


def matches_node_selector(selector: NodeSelector, node: Node) -> bool:
    """True if one of the terms matches; no terms match nothing. Follows `NodeSelector.Match`."""
    return matches_node_selector_terms(selector.node_selector_terms, node)


def matches_node_selector_terms(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """True if one of the terms matches the node. Follows `MatchNodeSelectorTerms`."""
    return any(matches_node_selector_term(term, node) for term in terms)


def matches_node_selector_term(term: NodeSelectorTerm, node: Node) -> bool:
    """True if all expressions and all fields of the term hold; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels or {}
    return all(requirement_matches(r, labels) for r in term.match_expressions) and all(
        _field_matches(r, node) for r in term.match_fields
    )


def _field_matches(requirement: LabelSelectorRequirement, node: Node) -> bool:
    """A field requirement: only metadata.name, only In and NotIn, only one value."""
    if requirement.key != _FIELD_NAME or len(requirement.values) != 1:
        return False
    if requirement.operator == IN:
        return node.metadata.name == requirement.values[0]
    return requirement.operator == NOT_IN and node.metadata.name != requirement.values[0]
