"""Should a node run a set's pod, may one that is there stay, and which rule decides?

Follows `nodeShouldRunDaemonPod` (`pkg/controller/daemon/daemon_controller.go`) from 1.12 on: the
template's node name, its node selector and required affinity, and taints against the trial pod's
tolerations. Node conditions, `spec.unschedulable`, resources, ports and preferred terms are not
looked at.

A decision carries the rule that decided, as a value: the truth table prints it and actions quote
it. Decisions are remembered by what they depend on (some labels, the taints), so that thousands of
equal nodes share one.

The 1.11 controller makes more checks itself, since it binds its pods without a scheduler
(`simulate`, with the predicates of that release, `pkg/scheduler/algorithm/predicates`): taints,
then host name, host ports, selector and affinity, and resources unless the pod is critical. All
reasons are collected, then judged one by one. The switch over reasons of 1.11 also names disk
conflicts, volumes, memory and disk pressure and affinity between pods, but `Predicates` of that
release (taints, then GeneralPredicates, or EssentialPredicates for critical pods) never gives them,
so they are left out here; so is the old GPU resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.kube.meta import LabelSelectorRequirement
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Toleration,
)
from kubectl_nodelife.kube.quantity import Amounts, amounts, max_of, sum_of
from kubectl_nodelife.kube.selectors import (
    matches_node_selector_term,
    matches_node_selector_terms,
    required_node_selector,
    requirement_matches,
)
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE
from kubectl_nodelife.workloads.scheduling import NodeInfo, host_ports

FITS = "Fits"
NODE_NAME = "NodeName"
NODE_SELECTOR = "NodeSelector"
NODE_AFFINITY = "NodeAffinity"
TAINT = "Taint"
HOST_PORT = "HostPort"
RESOURCES = "Resources"


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The answer for one set on one node.

    `rule` is a word from above, `subject` what it is about, `text` says it in half a sentence whose
    subject is the node.
    """

    want_to_run: bool
    """Counts as desired in the status; differs from `should_run` in 1.11 only."""
    should_run: bool
    """A pod may be made now; 1.11's shouldSchedule."""
    should_continue_running: bool
    rule: str
    subject: str
    text: str
    failed_placements: tuple[str, ...] = ()
    """Reasons to be reported as `FailedPlacement` at each evaluation (1.11)."""


def yes(text: str = "no taint, selector or affinity rule forbids a pod") -> PlacementDecision:
    """The verdict of a node on which nothing forbids the pod."""
    return PlacementDecision(True, True, True, FITS, "", text)


def no(rule: str, subject: str, text: str) -> PlacementDecision:
    """The verdict of a node that must not have a pod."""
    return PlacementDecision(False, False, False, rule, subject, text)


def judge_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> PlacementDecision:
    """The verdict by taints alone: an untolerated NoSchedule taint lets a running pod stay."""
    taint = find_matching_untolerated_taint(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE))
    if taint is None:
        return yes()
    evicting = find_matching_untolerated_taint(taints, tolerations, (NO_EXECUTE,))
    if evicting is not None:
        return no(TAINT, str(evicting), f"its taint {evicting} is not tolerated")
    text = f"its taint {taint} is not tolerated; a pod that runs may stay"
    return PlacementDecision(False, False, True, TAINT, str(taint), text)


ALWAYS_CHECKED = ("cpu", "memory", "ephemeral-storage")


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


def simulate(template: PodTemplate, node: Node, pods_on_node: Iterable[Pod]) -> PlacementDecision:
    """The verdict of 1.11 for a node that name, selector and affinity do not exclude.

    `pods_on_node` are all pods bound to it; finished ones and the set's own do not count.
    """
    set_uid = template.daemon_set.uid
    others = [p for p in pods_on_node if not _is_left_out(p, set_uid)]
    conflict = _port_conflict(template.spec, node, others)
    if conflict is not None:
        return conflict
    verdict = judge_taints(node.spec.taints, template.trial_tolerations)
    if template.critical:
        return verdict
    shortage = insufficient_resource(template.spec, node, others)
    if shortage is None or not verdict.should_run:
        return verdict
    text = f"it has no room: {shortage}"
    failed_placements = (f"Node didn't have enough resource: {shortage}",)
    return PlacementDecision(True, False, True, RESOURCES, shortage, text, failed_placements)


def _is_left_out(pod: Pod, set_uid: str) -> bool:
    if pod.status.phase in TERMINAL_PHASES:
        return True
    return any(o.controller and o.uid == set_uid for o in pod.metadata.owner_references)


def _port_conflict(spec: PodSpec, node: Node, others: list[Pod]) -> PlacementDecision | None:
    wanted = host_ports(Pod(spec=spec))
    if not wanted:
        return None
    for pod in others:
        info = NodeInfo(node)
        info.add({}, host_ports(pod))
        if info.port_taken(wanted):
            name = f"{pod.namespace}/{pod.name}"
            return no(HOST_PORT, name, f"a host port is taken by {name}")
    return None


def insufficient_resource(spec: PodSpec, node: Node, others: list[Pod]) -> str | None:
    """The last resource of which the node has too little, with the figures, or None.

    Follows `PodFitsResources`: the number of pods always counts; where the pod requests anything,
    cpu, memory and ephemeral storage are compared even if it does not request that one.
    """
    allocatable = amounts(node.status.allocatable)
    wanted, used = _requests(spec), sum_of(_requests(pod.spec) for pod in others)
    for container in spec.init_containers:
        wanted = max_of(wanted, amounts(container.resources.requests))
    short = None
    if len(others) + 1 > allocatable.get("pods", 0):
        short = _shortage("pods", 1, len(others), allocatable.get("pods", 0))
    if not any(wanted.values()):
        return short
    for name in dict.fromkeys((*ALWAYS_CHECKED, *wanted)):
        has, want, taken = allocatable.get(name, 0), wanted.get(name, 0), used.get(name, 0)
        if name != "pods" and want + taken > has:
            short = _shortage(name, want, taken, has)
    return short


def _shortage(name: str, wanted: int, used: int, capacity: int) -> str:
    return f"{name}, requested: {wanted}, used: {used}, capacity: {capacity}"


def _requests(spec: PodSpec) -> Amounts:
    return sum_of(amounts(container.resources.requests) for container in spec.containers)
