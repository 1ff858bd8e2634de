"""Topology spread constraints that must hold: where one more pod would not skew the spread.

Follows kube-scheduler plugins/podtopologyspread (filtering.go, common.go), with the counts kept up
as pods come and go (`AddPod`, `RemovePod`). A cordoned node is still a domain unless the constraint
honours taints, and a domain emptied by a drain then holds every other one down: that is upstream's
behaviour too. Constraints with ScheduleAnyway, the scheduler's own defaults among them, never rule
a node out and are left out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, TopologySpreadConstraint
from kubectl_nodelife.kube.selectors import matches, matches_required_node_affinity
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE

REASON_SKEW = "node(s) didn't match pod topology spread constraints"
REASON_NO_LABEL = REASON_SKEW + " (missing required label)"

_DO_NOT_SCHEDULE = frozenset({NO_SCHEDULE, NO_EXECUTE})
_NO_LABELS: Mapping[str, str] = {}


def hard_constraints(pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
    """The pod's constraints that keep it off a node, with matchLabelKeys merged into selectors."""
    return tuple(
        _with_match_label_keys(constraint, pod.metadata.labels or _NO_LABELS)
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "DoNotSchedule"
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

    __slots__ = ("_domains", "_eligible", "_pod", "constraints", "namespace")

    def __init__(self, pod: Pod, nodes: Iterable[Node]) -> None:
        self._pod = pod
        self.namespace = pod.namespace
        self.constraints = hard_constraints(pod)
        keys = [constraint.topology_key for constraint in self.constraints]
        values: list[set[str]] = [set() for _ in keys]
        self._eligible: dict[str, tuple[bool, ...]] = {}
        for node in nodes:
            labels = node.metadata.labels or _NO_LABELS
            if not all(key in labels for key in keys):
                continue
            counts_for = tuple(_includes(c, pod, node) for c in self.constraints)
            self._eligible[node.name] = counts_for
            for i, counted in enumerate(counts_for):
                if counted:
                    values[i].add(labels[keys[i]])
        self._domains = [Domains(found) for found in values]

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
        counts_for = self._eligible.get(node.name)
        if counts_for is None or pod.namespace != self.namespace:
            return
        labels = node.metadata.labels or _NO_LABELS
        for constraint, counted, domains in zip(
            self.constraints, counts_for, self._domains, strict=True
        ):
            if counted and _counts(constraint.label_selector, pod):
                domains.change(labels[constraint.topology_key], by)

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


def _counts(selector: LabelSelector | None, pod: Pod) -> bool:
    """An empty selector counts nothing here, unlike elsewhere (`countPodsMatchSelector`)."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    return matches(selector, pod.metadata.labels)


def _includes(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
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
