"""What the metrics show of the cluster: nodes and zones in steps of a node each, and what the
daemon does not watch (budgets, the Lease of an upgrade run), each by one list at most a minute.

Pods are looked at on lost nodes and on nodes that are being drained only. A node that is taken away
on purpose (cordoned, being deleted, marked by an autoscaler) counts in `nodelife_nodes`, and is
left out of what foretells a loss. What may not be read is left out of the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kubectl_nodelife.controllers.upgrade.document import OVER
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.daemon import metrics
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.node import Lease, Node, zone_display
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, is_daemon_pod, is_mirror_pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import DRAIN_IN_PROGRESS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.listwatch import read_all
from kubectl_nodelife.live.requests import Resource, resource_of
from kubectl_nodelife.outlook.node import NodeOutlook
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST, node_verdict
from kubectl_nodelife.outlook.upgrade_status import NO_RUN, upgrade_status
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import ZoneBrake, ZoneOutlook, zone_brakes, zones

BUDGET_STATES: Final = ("ok", "zero", "failed", "stale")


class BudgetSample(msgspec.Struct):
    """Budgets by state, and the nodes with a pod that none may evict now."""

    states: Counter[str] = msgspec.field(default_factory=Counter)
    blocked_nodes: int = 0


class UpgradeSample(msgspec.Struct):
    """A run that is under way. `lowest`: None where it is not known yet."""

    nodes: Counter[str] = msgspec.field(default_factory=Counter)
    gates: set[str] = msgspec.field(default_factory=set)
    held: Counter[str] = msgspec.field(default_factory=Counter)
    lowest: int | None = None


async def read_budgets(client: Client) -> list[PodDisruptionBudget] | None:
    """All budgets; None where they cannot be read."""
    try:
        objects = await read_all(client, resource_of("PodDisruptionBudget"))
    except NodelifeError:
        return None
    return [budget for budget in objects if isinstance(budget, PodDisruptionBudget)]


def budget_sample(budgets: Iterable[PodDisruptionBudget], cache: Cache) -> BudgetSample:
    """How it stands with the budgets, as the API server decides on evictions by their status."""
    sample, holding = BudgetSample(), dict[str, list[PodDisruptionBudget]]()
    for budget in budgets:
        state = budget_state(budget)
        sample.states[state] += 1
        if state in ("zero", "failed"):
            holding.setdefault(budget.namespace, []).append(budget)
    blocked = set()
    for pod in cache.pods.values() if holding else ():
        if pod.spec.node_name and pod.spec.node_name not in blocked:
            labels = pod.metadata.labels or {}
            of_namespace = holding.get(pod.metadata.namespace, ())
            if any(_selects(b, labels) for b in of_namespace):
                blocked.add(pod.spec.node_name)
    sample.blocked_nodes = len(blocked)
    return sample


def budget_state(budget: PodDisruptionBudget) -> str:
    """`zero`: it has pods, and lets none go now."""
    status = budget.status
    if any(c.type == "DisruptionAllowed" and c.reason == "SyncFailed" for c in status.conditions):
        return "failed"
    if status.observed_generation < budget.metadata.generation:
        return "stale"
    return "zero" if status.expected_pods > 0 and status.disruptions_allowed <= 0 else "ok"


def _selects(budget: PodDisruptionBudget, labels: Mapping[str, str]) -> bool:
    selector = budget.spec.selector
    return selector is not None and matches(selector, labels)


async def read_run(client: Client) -> Lease | None:
    """The Lease of an upgrade run in its usual namespace; None where there is none to be read."""
    namespace, name = UpgradePolicy().lease_key
    resource = Resource(kind_named("Lease"), namespace, f"metadata.name={name}")
    try:
        leases = await read_all(client, resource)
    except NodelifeError:
        return None
    return next((lease for lease in leases if isinstance(lease, Lease)), None)


def upgrade_sample(lease: Lease | None, cache: Cache, now_ns: int) -> UpgradeSample | None:
    """The run on the Lease; None where there is none, or it is over."""
    if lease is None:
        return None
    status = upgrade_status(list(cache.nodes.values()), lease, now_ns, {})
    if status["phase"] in {NO_RUN, *map(str, OVER)}:
        return None
    return UpgradeSample(
        Counter(status["counts"]),
        {gate["gate"] for gate in status["gates"]},
        Counter(hold["by"] for hold in status["holds"]),
        status["lowest"]["all"],
    )


ZONE_STATES: Final = ("Initial", "Normal", "PartialDisruption", "FullDisruption")
STRANDED: Final = ("forever", "brake", "mirror", "finalizer", "kubelet")
DRAIN_GATES: Final = ("eviction", "stopping", "finalizer")

SOON_LOST_NS: Final = 20 * SECOND_NS

_REMOVING: Final = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})


class ZoneSample(msgspec.Struct):
    """A zone's numbers. `until_brake`: None where no loss slows it. `stops`: in which words it is
    foretold to be slowed or stopped, "" where it is not."""

    size: int = 0
    unhealthy: int = 0
    rate: float = 0.0
    queued: int = 0
    until_brake: int | None = None
    stops: str = ""
    states: set[str] = msgspec.field(default_factory=set)
    verdicts: Counter[str] = msgspec.field(default_factory=Counter)


class NodeSample(msgspec.Struct, frozen=True):
    """The figures of a single node; `unknown_in_s` None: it cannot turn Unknown."""

    name: str
    in_trouble: bool
    unknown_in_s: float | None
    pods_due: int


class ClusterSample(msgspec.Struct):
    """All of it. `evictions`: as the controller's memory has them, by zone. `unreachable`: nodes
    that are lost now; `soon_lost` will be within 20 s. `drain_waits`: seconds by gate.
    """

    now_ns: int
    zones: dict[str, ZoneSample] = msgspec.field(default_factory=dict)
    evictions: Counter[str] = msgspec.field(default_factory=Counter)
    lease_ages: Counter[str] = msgspec.field(default_factory=Counter)
    unknown_within: Counter[str] = msgspec.field(default_factory=Counter)
    pods_due: Counter[str] = msgspec.field(default_factory=Counter)
    next_eviction_ns: int = 0
    stranded: Counter[str] = msgspec.field(default_factory=Counter)
    drain_waits: dict[str, float] = msgspec.field(default_factory=dict)
    unreachable: set[str] = msgspec.field(default_factory=set)
    soon_lost: set[str] = msgspec.field(default_factory=set)
    nodes: list[NodeSample] = msgspec.field(default_factory=list)
    dropped: int = 0


def sample_steps(view: ClusterView, *, per_node: bool) -> Generator[None, None, ClusterSample]:
    """The sample, a step a node."""
    outlook = view.outlook
    sample = ClusterSample(outlook.now_ns)
    all_zones = zones(outlook)
    yield
    label_of = _labels_of(all_zones)
    brakes = zone_brakes(outlook, all_zones)
    for zone in all_zones:
        _add_zone(sample, label_of[zone.key], zone, brakes[zone.key])
    for key, count in outlook.memory.zones.evictions.items():
        sample.evictions[label_of.get(key, metrics.OTHER_ZONES)] += count
    rates = {zone.key: zone.rate for zone in all_zones}
    yield
    for name in sorted(outlook.cache.nodes):
        node = outlook.cache.nodes.get(name)
        if node is not None:
            of_node = outlook.node(node)
            label = label_of.get(of_node.zone, metrics.OTHER_ZONES)
            _add_node(sample, label, of_node, rates.get(of_node.zone, 0.0), per_node)
        yield
    if view.source.get("standsStill"):  # no node is called lost while the cluster is not seen
        sample.unknown_within.clear()
        sample.soon_lost.clear()
    if per_node and len(sample.nodes) > metrics.MOST_NODES:
        sample.dropped = len(sample.nodes) - metrics.MOST_NODES
        sample.nodes = sorted(sample.nodes, key=lambda node: not node.in_trouble)[
            : metrics.MOST_NODES
        ]
    return sample


def is_leaving(node: Node) -> bool:
    """True if the node is taken away on purpose."""
    return (
        node.spec.unschedulable
        or node.metadata.deletion_timestamp is not None
        or any(taint.key in _REMOVING for taint in node.spec.taints)
    )


def _labels_of(all_zones: Iterable[ZoneOutlook]) -> dict[str, str]:
    """Zone key -> the label's value; past the largest so many it is `other`. Zones that are
    displayed alike, as region x and zone x, are one: a series can be there only once.
    """
    largest = sorted(all_zones, key=lambda zone: (-zone.nodes, zone.key))
    displayed: dict[str, str] = {}
    return {
        zone.key: displayed.setdefault(zone_display(zone.key), zone.key)
        if number < metrics.MOST_ZONES
        else metrics.OTHER_ZONES
        for number, zone in enumerate(largest)
    }


def _add_zone(sample: ClusterSample, label: str, zone: ZoneOutlook, brake: ZoneBrake) -> None:
    of_label = sample.zones.setdefault(label, ZoneSample())
    of_label.size += zone.nodes
    of_label.unhealthy += zone.not_ready
    of_label.rate += zone.rate
    of_label.queued += len(zone.queued)
    of_label.states.add(zone.state or ZONE_STATES[0])
    if zone.foretold.silent and any(step.rate < zone.rate for step in zone.foretold.states):
        of_label.stops = zone.coming(None)
    if brake.after is not None:
        lost = brake.after.lost
        of_label.until_brake = (
            lost if of_label.until_brake is None else min(of_label.until_brake, lost)
        )


def _add_node(
    sample: ClusterSample, label: str, of_node: NodeOutlook, rate: float, per_node: bool
) -> None:
    now_ns, leaving = sample.now_ns, is_leaving(of_node.node)
    verdict = node_verdict(of_node, now_ns)
    sample.zones.setdefault(label, ZoneSample()).verdicts[verdict.state] += 1
    age_ns = of_node.lease_age_ns
    if age_ns is None:
        sample.lease_ages[metrics.UNKNOWN_AGE] += 1
    else:
        sample.lease_ages.update(str(s) for s in metrics.LEASE_AGES if age_ns > s * SECOND_NS)
    unknown_in = of_node.unknown_in
    if unknown_in is not None and not leaving:
        within = (s for s in metrics.UNKNOWN_WITHIN if unknown_in.low_ns <= s * SECOND_NS)
        sample.unknown_within.update(map(str, within))
        if unknown_in.low_ns <= SOON_LOST_NS:
            sample.soon_lost.add(of_node.node.name)
    if of_node.timers and not leaving:
        due = [timer.comes_ns for timer in of_node.timers]
        for seconds in metrics.DUE_WITHIN:
            count = sum(due_ns <= now_ns + seconds * SECOND_NS for due_ns in due)
            sample.pods_due[str(seconds)] += count
        sample.next_eviction_ns = min(sample.next_eviction_ns or due[0], due[0])
    if of_node.ready == "Unknown":
        sample.unreachable.add(of_node.node.name)
        sample.stranded.update(_stranded(of_node, rate, now_ns))
    elif leaving:
        _add_drain(sample, of_node)
    if per_node:
        in_s = None if unknown_in is None else unknown_in.low_ns / SECOND_NS
        trouble = verdict.state in WORST_FIRST[:7]
        node = NodeSample(of_node.node.name, trouble, in_s, len(of_node.timers))
        sample.nodes.append(node)


def _stranded(of_node: NodeOutlook, rate: float, now_ns: int) -> Iterator[str]:
    """Why each pod of a lost node stays that does."""
    due = {(timer.namespace, timer.name) for timer in of_node.timers}
    tainted = any(t.effect == "NoExecute" for t in of_node.lost_taints)
    for pod in of_node.pods:
        deleted = pod.metadata.deletion_timestamp
        if pod.status.phase in TERMINAL_PHASES or pod.key in due:
            continue
        if is_mirror_pod(pod):
            yield "mirror"
        elif deleted is not None:
            if deleted <= now_ns:
                yield "finalizer" if pod.metadata.finalizers else "kubelet"
        elif tainted:
            yield "forever"
        elif rate <= 0:
            yield "brake"


def _add_drain(sample: ClusterSample, of_node: NodeOutlook) -> None:
    """Note how long a drain has waited, by gate, as far as the cluster shows it to everybody.

    An eviction that is refused leaves no trace in the cluster: that a drain is under way is then
    known where its program says so by the condition DrainInProgress.
    """
    now_ns = sample.now_ns
    began = [
        condition.last_transition_time
        for condition in of_node.node.status.conditions
        if condition.type == DRAIN_IN_PROGRESS and condition.status == "True"
    ]
    for pod in of_node.pods:
        deleted = pod.metadata.deletion_timestamp
        if pod.status.phase in TERMINAL_PHASES or is_mirror_pod(pod):
            continue
        if deleted is not None:
            gate = "finalizer" if pod.metadata.finalizers else "stopping"
            _wait(sample, gate, now_ns - deleted)
        elif began and began[0] is not None and not is_daemon_pod(pod):
            _wait(sample, "eviction", now_ns - began[0])


def _wait(sample: ClusterSample, gate: str, waited_ns: int) -> None:
    if waited_ns > 0:
        seconds = waited_ns / SECOND_NS
        sample.drain_waits[gate] = max(sample.drain_waits.get(gate, 0.0), seconds)
