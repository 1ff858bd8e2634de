"""Lower bounds that no plan can beat, by arithmetic that shares nothing with the planner.

Only pods, budgets, nodes and options go in: no filters, no loads, no virtual clock. A bound may be
weak, it must never be wrong. It counts what has to be so in any order of events: what a budget
refuses is decided again no sooner than half a second later; a wave spares a budget no more pods
than the budget can spare; nodes that may not go together need waves of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kubectl_nodelife.drain.results import Bound, WaveOptions
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, moves_off
from kubectl_nodelife.kube.quantity import amounts, pod_requests
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.budgets import is_healthy

AGAIN_S = 0.5
"""Where two evictions meet at one budget the API server decides one of them again no sooner
(`EvictionsRetry` of pkg/registry/core/pod/storage). kubectl itself asks again 5 s later."""
BURST = 10
"""Requests that kubectl sends at once; more are spread out, and a budget may refill in between."""

Key = tuple[str, str]
ResourceRequest = dict[str, Counter[Key]]
"""For each node, how many of its pods certainly need each budget."""


def kubectl_bound(snapshot: PlanSnapshot, nodes: Iterable[str], options: DrainOptions) -> Bound:
    """The bounds for nodes drained one after another.

    One wave a node. Under a budget that can spare `a` of a node's `p` pods at a time, kubectl asks
    at least p / a times; nodes follow one another.
    """
    nodes = list(nodes)
    asked, spare = _asked(snapshot, nodes, options)
    total = 0.0
    for name in nodes:
        rounds = [-(-count // spare[key]) - 1 for key, count in asked[name].items()]
        if len(snapshot.cache.pods_on(name)) <= BURST:
            total += AGAIN_S * max(rounds, default=0)
    return Bound(len(nodes), total)


def waves_bound(
    snapshot: PlanSnapshot, nodes: Iterable[str], options: DrainOptions, waves: WaveOptions
) -> Bound:
    """The bounds for waves of our own.

    The largest of: nodes by the limit of a wave, a zone's nodes by its limit, each budget's pods by
    what it spares, a set of nodes of which no two may go together, and room that grows only as
    nodes come back. Between two waves lies a maintenance.
    """
    nodes = list(nodes)
    asked, spare = _asked(snapshot, nodes, options)
    least = max(
        -(-len(nodes) // waves.max_parallel),
        _zones(snapshot, nodes, waves),
        max((_budget(key, asked, spare[key]) for key in spare), default=0),
        _clique(nodes, asked, spare),
        _room(snapshot, nodes, waves),
    )
    seconds = max(0, least - 1) * waves.maintenance_ns / SECOND_NS
    return Bound(least, round(seconds, 3))


def _zones(snapshot: PlanSnapshot, nodes: list[str], waves: WaveOptions) -> int:
    if waves.max_per_zone is None:
        return 0
    labels = (snapshot.nodes[name].metadata.labels or {} for name in nodes)
    count = Counter(tuple(of_node.get(label) for label in _ZONE_LABELS) for of_node in labels)
    return max((-(-n // waves.max_per_zone) for n in count.values()), default=0)


_ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)


def _budget(key: Key, asked: ResourceRequest, spare: int) -> int:
    """Waves that one budget needs: nodes that exceed it go alone, the others share it."""
    counts = [of_node[key] for of_node in asked.values() if key in of_node]
    alone = sum(1 for count in counts if count > spare)
    shared = [count for count in counts if count <= spare]
    large = sum(1 for count in shared if 2 * count > spare)
    return alone + max(-(-sum(shared) // spare), large)


def _clique(nodes: list[str], asked: ResourceRequest, spare: Mapping[Key, int]) -> int:
    """A set of nodes of which each two exceed some budget together, grown greedily."""
    needing: dict[Key, list[str]] = {}
    for name in nodes:
        for key, count in asked[name].items():
            if 2 * count > spare[key]:
                needing.setdefault(key, []).append(name)
    best = 0
    for members in sorted(needing.values(), key=len, reverse=True)[:20]:
        clique = list(members)
        for name in nodes:
            if name not in clique and all(_conflict(name, o, asked, spare) for o in clique):
                clique.append(name)
        best = max(best, len(clique))
    return best


def _conflict(one: str, other: str, asked: ResourceRequest, spare: Mapping[Key, int]) -> bool:
    theirs = asked[other]
    return any(
        key in theirs and count + theirs[key] > spare[key] for key, count in asked[one].items()
    )


def _room(snapshot: PlanSnapshot, nodes: list[str], waves: WaveOptions) -> int:
    """Waves that cpu and memory force where nodes come back after their maintenance.

    As favourable as can be: the nodes that ask least go first, and those that give most come back.
    """
    if not waves.maintenance_ns:
        return 0
    return max(_room_for(resource, snapshot, nodes, waves) for resource in ("cpu", "memory"))


def _room_for(resource: str, snapshot: PlanSnapshot, nodes: list[str], waves: WaveOptions) -> int:
    planned = set(nodes)
    free = 0
    for name, node in snapshot.nodes.items():
        if name not in planned and not node.spec.unschedulable:
            pods = snapshot.cache.pods_on(name)
            used = sum(
                pod_requests(pod).get(resource, 0)
                for pod in pods
                if pod.status.phase not in TERMINAL_PHASES
            )
            free += max(0, amounts(node.status.allocatable).get(resource, 0) - used)
    asks = []
    gives = []
    for name in nodes:
        pods = [p for p in snapshot.cache.pods_on(name) if moves_off(p)]
        ask = sum(pod_requests(pod).get(resource, 0) for pod in pods)
        asks.append(ask)
        allocatable = amounts(snapshot.nodes[name].status.allocatable).get(resource, 0)
        gives.append(max(0, allocatable - ask))
    asks.sort()
    gives.sort(reverse=True)
    done, count = 0, 0
    while done < len(asks):
        room = free + sum(gives[:done])
        taken = done
        while taken < len(asks) and sum(asks[: taken + 1]) - sum(asks[:done]) <= room:
            taken += 1
        if taken == done:
            return 0  # not even one fits by this count: the limit is not what decides
        count += 1
        done = taken
    return count


# --- the pods ------------------------------------------------------------------------------------


def _asked(
    snapshot: PlanSnapshot, nodes: list[str], options: DrainOptions
) -> tuple[ResourceRequest, dict[Key, int]]:
    """For each node the pods that certainly need a budget, and what each budget can spare."""
    asked: ResourceRequest = {name: Counter() for name in nodes}
    spare: dict[Key, int] = {}
    if options.disable_eviction:
        return asked, spare
    selector = options.selector()
    for name in nodes:
        for pod in snapshot.cache.pods_on(name):
            if not (is_healthy(pod) and moves_off(pod)):
                continue
            if not matches(selector, pod.metadata.labels):
                continue
            asked_for = snapshot.budgets_of(pod)
            if len(asked_for) == 1:
                key = asked_for[0].key
                asked[name][key] += 1
                spare[key] = _spare(asked_for[0])
    return asked, spare


def _spare(budget: PodDisruptionBudget) -> int:
    """The most pods that the budget can ever let go at once, at least 1."""
    status = budget.status
    most = max(status.expected_pods, status.current_healthy) - status.desired_healthy
    return max(1, most, status.disruptions_allowed)
