"""A look at nodes and zones for the metrics, made in steps, a node each.

Pods are looked at on lost nodes and on nodes that are being drained only. A node that is taken away
on purpose (cordoned, being deleted, marked by an autoscaler) counts in `nodelife_nodes`, and is
left out of what foretells a loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Final

import msgspec

from kubectl_nodelife.daemon.metrics.families import (
    DUE_WITHIN,
    LEASE_AGES,
    MOST_NODES,
    MOST_ZONES,
    OTHER_ZONES,
    UNKNOWN_AGE,
    UNKNOWN_WITHIN,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, is_daemon_pod, is_mirror_pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import DRAIN_IN_PROGRESS
from kubectl_nodelife.outlook.node import NodeOutlook
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST, node_verdict
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import ZoneBrake, ZoneOutlook, zone_brakes, zones

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
    found = zones(outlook)
    yield
    label_of = _labels_of(found)
    brakes = zone_brakes(outlook, found)
    for zone in found:
        _add_zone(sample, label_of[zone.key], zone, brakes[zone.key])
    for key, count in outlook.memory.zones.evictions.items():
        sample.evictions[label_of.get(key, OTHER_ZONES)] += count
    rates = {zone.key: zone.rate for zone in found}
    yield
    for name in sorted(outlook.cache.nodes):
        node = outlook.cache.nodes.get(name)
        if node is not None:
            of_node = outlook.node(node)
            label = label_of.get(of_node.zone, OTHER_ZONES)
            _add_node(sample, label, of_node, rates.get(of_node.zone, 0.0), per_node)
        yield
    if view.source.get("standsStill"):  # no node is called lost while the cluster is not seen
        sample.unknown_within.clear()
        sample.soon_lost.clear()
    if per_node and len(sample.nodes) > MOST_NODES:
        kept = [node for node in sample.nodes if node.in_trouble][:MOST_NODES]
        sample.dropped = len(sample.nodes) - len(kept)
        sample.nodes = kept
    return sample


def is_leaving(node: Node) -> bool:
    """True if the node is taken away on purpose."""
    return (
        node.spec.unschedulable
        or node.metadata.deletion_timestamp is not None
        or any(taint.key in _REMOVING for taint in node.spec.taints)
    )


def _labels_of(found: Iterable[ZoneOutlook]) -> dict[str, str]:
    """Zone key -> the label's value; past the largest so many it is `other`."""
    largest = sorted(found, key=lambda zone: (-zone.nodes, zone.key))
    return {
        zone.key: zone.key if number < MOST_ZONES else OTHER_ZONES
        for number, zone in enumerate(largest)
    }


def _add_zone(sample: ClusterSample, label: str, zone: ZoneOutlook, brake: ZoneBrake) -> None:
    made = sample.zones.setdefault(label, ZoneSample())
    made.size += zone.nodes
    made.unhealthy += zone.not_ready
    made.rate += zone.rate
    made.queued += len(zone.queued)
    made.states.add(zone.state or ZONE_STATES[0])
    if zone.foretold.silent and any(step.rate < zone.rate for step in zone.foretold.states):
        made.stops = zone.coming(None)
    if brake.after is not None:
        lost = brake.after.lost
        made.until_brake = lost if made.until_brake is None else min(made.until_brake, lost)


def _add_node(
    sample: ClusterSample, label: str, of_node: NodeOutlook, rate: float, per_node: bool
) -> None:
    now_ns, leaving = sample.now_ns, is_leaving(of_node.node)
    verdict = node_verdict(of_node, now_ns)
    sample.zones.setdefault(label, ZoneSample()).verdicts[verdict.state] += 1
    age_ns = of_node.lease_age_ns
    if age_ns is None:
        sample.lease_ages[UNKNOWN_AGE] += 1
    else:
        sample.lease_ages.update(str(s) for s in LEASE_AGES if age_ns > s * SECOND_NS)
    left = of_node.unknown_in
    if left is not None and not leaving:
        within = (s for s in UNKNOWN_WITHIN if left.low_ns <= s * SECOND_NS)
        sample.unknown_within.update(map(str, within))
        if left.low_ns <= SOON_LOST_NS:
            sample.soon_lost.add(of_node.node.name)
    if of_node.timers and not leaving:
        due = [timer.comes_ns for timer in of_node.timers]
        for seconds in DUE_WITHIN:
            count = sum(due_ns <= now_ns + seconds * SECOND_NS for due_ns in due)
            sample.pods_due[str(seconds)] += count
        sample.next_eviction_ns = min(sample.next_eviction_ns or due[0], due[0])
    if of_node.ready == "Unknown":
        sample.unreachable.add(of_node.node.name)
        sample.stranded.update(_stranded(of_node, rate, now_ns))
    elif leaving:
        _add_drain(sample, of_node)
    if per_node:
        in_s = None if left is None else left.low_ns / SECOND_NS
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
