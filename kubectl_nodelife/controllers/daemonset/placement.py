"""Should a node run a set's pod, may one that is there stay, and which rule decides?

Follows `nodeShouldRunDaemonPod` (`pkg/controller/daemon/daemon_controller.go`) from 1.12 on: the
template's node name, its node selector and required affinity, and taints against the trial pod's
tolerations. Node conditions, `spec.unschedulable`, resources, ports and preferred terms are not
looked at. What 1.11 checks besides is in `simulated_predicates.py`.

A verdict carries the rule that decided, as a value: the truth table prints it and actions quote it.
Verdicts are remembered by what they depend on (some labels, the taints), so that thousands of equal
nodes share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubectl_nodelife.controllers.daemonset.placement_decision import (
    NODE_AFFINITY,
    NODE_NAME,
    NODE_SELECTOR,
    PlacementDecision,
    judge_taints,
    no,
    yes,
)
from kubectl_nodelife.controllers.daemonset.simulated_predicates import simulate
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.kube.affinity import (
    matches_node_selector_term,
    matches_node_selector_terms,
    required_node_selector,
)
from kubectl_nodelife.kube.meta import LabelSelectorRequirement
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import NodeSelector, NodeSelectorTerm, Pod
from kubectl_nodelife.kube.selectors import requirement_matches
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE


class Placement:
    """The verdicts of one set. A new template needs a new one."""

    def __init__(self, template: PodTemplate) -> None:
        self.template = template
        self._simulated = template.rules.simulated_predicates
        spec = template.spec
        self._node_name = spec.node_name
        self._selector = dict(spec.node_selector or {})
        self._required = required_node_selector(spec)
        self._tolerations = template.trial_tolerations
        self._keys = _label_keys(self._selector, self._required)
        self._by_name = bool(self._node_name) or _uses_fields(self._required)
        self._remembered: dict[object, PlacementDecision] = {}

    def judge(self, node: Node, pods_bound_to: Callable[[str], Iterable[Pod]]) -> PlacementDecision:
        """The verdict for the node; `pods_bound_to` gives all pods of a node (for 1.11)."""
        if self._simulated:
            simulated = self.mismatch(node) or simulate(
                self.template, node, pods_bound_to(node.name)
            )
            return self._remembered.setdefault(simulated, simulated)
        key = self._signature(node)
        verdict = self._remembered.get(key)
        if verdict is None:
            verdict = self._remembered[key] = self._judge(node)
        return verdict

    def _signature(self, node: Node) -> object:
        taints: tuple[tuple[str, str, str], ...] = ()
        if node.spec.taints:
            taints = tuple(
                (t.key, t.effect, t.value)
                for t in node.spec.taints
                if t.effect in (NO_SCHEDULE, NO_EXECUTE)
            )
        if not self._keys and not self._by_name:
            return taints
        labels = node.metadata.labels or {}
        values = tuple(labels.get(key) for key in self._keys)
        return (taints, values, node.name if self._by_name else "")

    def _judge(self, node: Node) -> PlacementDecision:
        mismatch = self.mismatch(node)
        if mismatch is not None:
            return mismatch
        if not self.template.rules.taints_count:
            return yes("no selector or affinity rule forbids a pod")
        return judge_taints(node.spec.taints, self._tolerations)

    def mismatch(self, node: Node) -> PlacementDecision | None:
        """The verdict where name, selector or required affinity exclude the node, else None."""
        if self._node_name and self._node_name != node.name:
            return no(NODE_NAME, self._node_name, f"the template names node {self._node_name}")
        labels = node.metadata.labels or {}
        for key, value in self._selector.items():
            if labels.get(key) != value:
                has = f"the node has {key}={labels[key]}" if key in labels else "it is not set"
                text = f"the template's nodeSelector wants {key}={value}, {has}"
                return no(NODE_SELECTOR, f"{key}={value}", text)
        if self._required is None:
            return None
        unmet = unmet_terms(self._required.node_selector_terms, node)
        if unmet is None:
            return None
        text = f"no term of the required node affinity matches: {unmet}"
        return no(NODE_AFFINITY, unmet, text)


def unmet_terms(terms: Sequence[NodeSelectorTerm], node: Node) -> str | None:
    """None if some term matches the node, else what each lacks, as text."""
    if matches_node_selector_terms(terms, node):
        return None
    return "; ".join(unmet_requirement(term, node) for term in terms) or "it has no terms"


def unmet_requirement(term: NodeSelectorTerm, node: Node) -> str:
    """The first requirement of a term that the node does not meet, in words."""
    labels = node.metadata.labels or {}
    for requirement in term.match_expressions:
        if not requirement_matches(requirement, labels):
            has = labels.get(requirement.key)
            shown = "not set" if has is None else f"{has!r}"
            return f"{_requirement_text(requirement)} ({requirement.key} is {shown})"
    for requirement in term.match_fields:
        if not matches_node_selector_term(NodeSelectorTerm(match_fields=(requirement,)), node):
            return f"{_requirement_text(requirement)} (the node is {node.name})"
    return "the term is empty"


def _requirement_text(requirement: LabelSelectorRequirement) -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _label_keys(selector: dict[str, str], required: NodeSelector | None) -> tuple[str, ...]:
    keys = dict.fromkeys(selector)
    for term in required.node_selector_terms if required else ():
        keys |= dict.fromkeys(r.key for r in term.match_expressions)
    return tuple(keys)


def _uses_fields(required: NodeSelector | None) -> bool:
    return required is not None and any(t.match_fields for t in required.node_selector_terms)
