"""How many nodes may be taken out of service, in the cluster, in each pool and in each zone of it.

`min_available` rounds a percentage up, as a PodDisruptionBudget; `max_unavailable` rounds it down,
but to 1 rather than to 0, as a Deployment, kops and the machine config operator. Nodes that have
vanished since the start count as unavailable.

A permanent taint of a dedicated pool does not make a node unavailable, nor does a taint that only
makes others preferable.

A zone is kept out of disruption: one node more, and one accident more, must not be too many. The
zones and their arithmetic are those of the node lifecycle controller (`ComputeZoneState`, with
ratios of 32-bit floats): from the unhealthy zone threshold on it slows or stops all evictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.marks import TAINT_UNPROVEN
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.engine.workqueue import as_float32
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE
from kubectl_nodelife.kube.workload import IntOrString, scaled_value

CORDONED: Final = "cordoned"
_KUBERNETES: Final = "node.kubernetes.io/"
_DELETES: Final = "is about to delete it"
FOREIGN_TAINTS: Final = {
    "ToBeDeletedByClusterAutoscaler": f"the cluster autoscaler {_DELETES}",
    "karpenter.sh/disrupted": f"Karpenter {_DELETES}",
    "karpenter.sh/disruption": f"Karpenter {_DELETES}",
    "medik8s.io/drain": "medik8s maintains it",
    "eks.amazonaws.com/nodegroup": "EKS upgrades its node group",
}
"""Taint keys of programs that take a node away or work on it, and what they do."""
_KURED: Final = "weave.works/kured-reboot-in-progress"
_MACHINE_CONFIG_STATE: Final = "machineconfiguration.openshift.io/state"


def foreign_mark(node: Node) -> str:
    """What else is at work on the node, in a sentence; "" where it bears no such mark."""
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    for taint in node.spec.taints:
        if _keeps_off(taint) and taint.key in FOREIGN_TAINTS:
            return f"{FOREIGN_TAINTS[taint.key]} (taint {taint.key})"
    annotations = node.metadata.annotations or {}
    if _KURED in annotations:
        return f"kured reboots it (annotation {_KURED})"
    state = annotations.get(_MACHINE_CONFIG_STATE, "Done")
    if state != "Done":
        return f"the machine config operator works on it ({_MACHINE_CONFIG_STATE}={state})"
    return ""


def why_unavailable(node: Node, *, lease_is_fresh: bool = True) -> str:
    """Why the node is not available; "" where it is. `lease_is_fresh`: it was renewed in time."""
    if not node.is_ready:
        ready = node.ready()
        return f"Ready is {ready.status if ready else 'missing'}"
    if not lease_is_fresh:
        return "its Lease is not renewed"
    if node.spec.unschedulable:
        return CORDONED
    if mark := foreign_mark(node):
        return mark
    for taint in node.spec.taints:
        if _keeps_off(taint) and (taint.key.startswith(_KUBERNETES) or taint.key == TAINT_UNPROVEN):
            return f"taint {taint.key}:{taint.effect}"
    return ""


def is_deleted_by_others(node: Node) -> bool:
    """True if a program that deletes nodes has marked it."""
    return any(FOREIGN_TAINTS.get(t.key, "").endswith(_DELETES) for t in node.spec.taints)


def _keeps_off(taint: Taint) -> bool:
    return taint.effect in (NO_SCHEDULE, NO_EXECUTE)


PARTIAL_NEEDS_MORE_THAN: Final = 2
"""Not-ready nodes up to this number never make a zone disrupted."""
RESERVE: Final = 1
"""So many nodes more a zone must be able to lose by accident."""


def zone_hold(
    nodes: int, not_ready: int, ours: int, threshold: float, *, allow_dark: bool = False
) -> str:
    """Why one node more of the zone must not go; "" where it may.

    `nodes`: those that the lifecycle controller counts. `ours`: in Draining, Working or Settling;
    `not_ready`: the others that are not Ready, the node to be claimed left out. `threshold`: the
    controller's unhealthy-zone-threshold.
    """
    if not allow_dark and nodes - not_ready - ours - 1 < 1:
        return f"no Ready node of its zone's {nodes} would be left (--allow-dark-zone)"
    down = not_ready + ours + 1 + RESERVE
    ratio = as_float32(as_float32(down) / as_float32(nodes))
    if down > PARTIAL_NEEDS_MORE_THAN and ratio >= as_float32(threshold):
        return (
            f"{down} of its zone's {nodes} nodes would be out with {RESERVE} accident more; from a"
            f" share of {threshold:.0%} on the zone counts as disrupted"
        )
    return ""


class NodeScope(NamedTuple):
    """The nodes that a limit is for: all but the control plane, a pool, or a zone of a pool."""

    kind: str
    pool: str = ""
    zone: str = ""

    @property
    def key(self) -> str:
        """The scope's name in the run's document: `cluster`, `pool/blue/`, `zone/blue/a`."""
        return "/".join(self) if self.pool or self.zone else self.kind

    def __str__(self) -> str:
        if self.kind == "cluster":
            return "cluster"
        if self.kind == "pool":
            return f"pool {self.pool or '(none)'}"
        return f"zone {self.zone or '(none)'}{f' of pool {self.pool}' if self.pool else ''}"


CLUSTER: Final = NodeScope("cluster")


def scope_of(key: str) -> NodeScope:
    """The scope that `NodeScope.key` names."""
    return NodeScope(*key.split("/", 2))


@lru_cache(maxsize=1 << 10)
def _scopes_in(pool: str, zone: str) -> tuple[NodeScope, ...]:
    return (CLUSTER, NodeScope("pool", pool), NodeScope("zone", pool, zone))


class CountedNode(NamedTuple):
    """A node as it is counted. `unavailable`: why it is not available, "" where it is; `claimed`:
    the run has it out of service. Control-plane nodes count in no scope.
    """

    name: str
    pool: str
    zone: str
    unavailable: str = ""
    claimed: bool = False
    control_plane: bool = False

    @property
    def scopes(self) -> tuple[NodeScope, ...]:
        """The scopes in which a claim of this node needs a slot."""
        return () if self.control_plane else _scopes_in(self.pool, self.zone)

    @property
    def available(self) -> bool:
        """True if it counts as available."""
        return not self.unavailable and not self.claimed


def at_most(value: IntOrString, base: int) -> int:
    """How many of `base` may be unavailable: a percentage is rounded down, but not to 0."""
    return scaled_value(value, base, up=False) or min(1, scaled_value(value, base))


Limits = tuple[IntOrString | None, IntOrString | None]
"""(how many must be available, how many may be unavailable) of a scope; None: no limit."""


def limits_of(policy: UpgradePolicy) -> dict[str, Limits]:
    """The limits that the policy sets for each kind of scope."""
    return {
        "cluster": (policy.cluster_min_available, None),
        "pool": (policy.min_available, policy.max_unavailable),
        "zone": (None, policy.max_per_zone),
    }


class ScopeBudget(NamedTuple):
    """The numbers of one scope. `base`: its nodes at the start or now, whichever are more."""

    scope: NodeScope
    base: int
    available: int
    floor: int
    most_unavailable: int

    @property
    def unavailable(self) -> int:
        """Nodes that are out of service, ours, others' and vanished ones."""
        return self.base - self.available

    @property
    def slots(self) -> int:
        """How many available nodes may be claimed now."""
        return max(0, min(self.available - self.floor, self.most_unavailable - self.unavailable))

    def refusal(self) -> str:
        """Why no node of the scope can ever be claimed; "" where one can."""
        if self.base and self.floor >= self.base:
            return f"{self.floor} of {self.base} must be available in {self.scope}"
        if self.base and self.most_unavailable <= 0:
            return f"none of the {self.base} nodes in {self.scope} may be unavailable"
        return ""


@dataclass(slots=True)
class NodeCounts:
    """The counts of all scopes, kept up to date node by node. `at_start`: how many nodes each scope
    had when the run began (N0), if any. `limits` by kind of scope: cluster, pool, zone.
    """

    limits: Mapping[str, Limits]
    at_start: Mapping[NodeScope, int] = field(default_factory=dict)
    _nodes: dict[str, CountedNode] = field(default_factory=dict)
    _total: dict[NodeScope, int] = field(default_factory=dict)
    _available: dict[NodeScope, int] = field(default_factory=dict)
    _holds: dict[NodeScope, str] = field(default_factory=dict)
    """Why a scope has no slot, "" where it has one; as long as nothing changes."""

    @classmethod
    def of(
        cls,
        nodes: Iterable[CountedNode],
        limits: Mapping[str, Limits],
        at_start: Mapping[NodeScope, int] | None = None,
    ) -> NodeCounts:
        """The counts of these nodes. Without `at_start` the run begins with them."""
        counts = cls(limits)
        for node in nodes:
            counts.put(node)
        counts.at_start = dict(counts._total) if at_start is None else at_start
        return counts

    def begin_from(self, base_counts: Mapping[str, int]) -> None:
        """Count from the numbers at the start of the run, by `NodeScope.key`; else from now."""
        at_start = {scope_of(key): number for key, number in base_counts.items()} or self.totals()
        if at_start != self.at_start:
            self.at_start = at_start
            self._holds.clear()

    def node(self, name: str) -> CountedNode:
        """The node as it counts now."""
        return self._nodes[name]

    def put(self, node: CountedNode) -> None:
        """The node is as given from now on; a node that is not available any more frees nothing."""
        old = self._nodes.get(node.name)
        if old is node or old == node:
            return
        if old is not None:
            self._add(old, -1)
        self._nodes[node.name] = node
        self._add(node, 1)

    def remove(self, name: str) -> None:
        """The node's object is gone."""
        if (old := self._nodes.pop(name, None)) is not None:
            self._add(old, -1)

    def claim(self, name: str) -> None:
        """The run takes the node out of service: what is left is for the others."""
        self.put(self._nodes[name]._replace(claimed=True))

    def scopes(self) -> list[NodeScope]:
        """All scopes that have or had nodes: the cluster, then pools and zones by name."""
        every = {s for s, n in self._total.items() if n} | self.at_start.keys()
        return sorted(every, key=lambda s: (s.kind, s.pool, s.zone))

    def totals(self) -> dict[NodeScope, int]:
        """How many nodes each scope has now: N0 of a run that begins now."""
        return {scope: count for scope, count in self._total.items() if count}

    def budget(self, scope: NodeScope) -> ScopeBudget:
        """The numbers of a scope."""
        base = max(self.at_start.get(scope, 0), self._total.get(scope, 0))
        least, most = self.limits.get(scope.kind, (None, None))
        floor = 0 if least is None else scaled_value(least, base)
        most = base if most is None else at_most(most, base)
        return ScopeBudget(scope, base, self._available.get(scope, 0), floor, most)

    def hold(self, name: str) -> str:
        """Why the node cannot be claimed; "" where all scopes have slots, or it costs none."""
        node = self._nodes[name]
        if not node.available:
            return ""
        for scope in node.scopes:
            because = self._holds.get(scope)
            if because is None:
                budget = self.budget(scope)
                because = self._holds[scope] = "" if budget.slots else self._why_none(budget)
            if because:
                return because
        return ""

    def _why_none(self, budget: ScopeBudget) -> str:
        """The numbers of a scope without a slot, and what takes them up besides the run."""
        if budget.most_unavailable <= budget.unavailable:
            limit = f"at most {budget.most_unavailable}"
        else:
            limit = f"at least {budget.floor} must be available"
        scope = budget.scope
        others = sorted(
            n for n in self._nodes.values() if n.unavailable and not n.claimed and scope in n.scopes
        )
        parts = [first_names([f"{n.name} ({n.unavailable})" for n in others], 5)] if others else []
        vanished = self.at_start.get(scope, 0) - self._total.get(scope, 0)
        if vanished > 0:
            parts.append(f"{vanished} vanished since the start (resume --rebase forgets them)")
        text = f"{scope}: {budget.unavailable} of {budget.base} unavailable, {limit}"
        return f"{text}; not by this run: {'; '.join(parts)}" if parts else text

    def _add(self, node: CountedNode, sign: int) -> None:
        self._holds.clear()
        for scope in node.scopes:
            self._total[scope] = self._total.get(scope, 0) + sign
            if node.available:
                self._available[scope] = self._available.get(scope, 0) + sign
