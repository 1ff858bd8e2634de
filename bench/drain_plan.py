"""How long a drain plan takes: 500 of 5,000 nodes in waves, and one node of the same cluster.

Besides, smaller seeded clusters are planned in waves: `gapMedian` and `gapP90` are how many more
waves the plans have than their lower bound, as a share of it; every plan is replayed by the
independent check (`budgetsBroken`, `movedTwice`).
"""

from __future__ import annotations

import gc
import time

from bench import Stopwatch
from bench._drain_cluster import cluster
from kubectl_nodelife.drain.plan import make_plan, make_wave_plan
from kubectl_nodelife.drain.results import DrainPlan, WaveOptions
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.plan_judge import Findings, replay

NODES = 5000
PODS = 150_000
BUDGETS = 500
INSTANCES = 30

OPTIONS = DrainOptions(ignore_daemonsets=True)


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Plan a tenth of the nodes of one large cluster, then many small ones."""
    budgets = max(1, BUDGETS * nodes // NODES)
    snapshot = cluster(nodes, pods, budgets, seed)
    gc.collect()
    gc.freeze()
    planned = sorted(snapshot.nodes)[: max(1, nodes // 10)]
    waves = WaveOptions(max_parallel=max(1, len(planned) // 25), max_per_zone=None)
    one_node = _seconds_for_one(snapshot, sorted(snapshot.nodes)[-1])
    with stopwatch:
        plan = make_wave_plan(snapshot, planned, OPTIONS, waves)
    large = replay(plan, snapshot, waves)
    gaps, small = _instances(seed)
    return {
        "plannedNodes": len(planned),
        "plannedPods": len(plan.pods()),
        "verdict": plan.verdict,
        "waves": len(plan.waves),
        "wavesLowerBound": plan.bound.waves,
        "oneNodeSeconds": round(one_node, 6),
        "instances": len(gaps),
        "gapMedian": gaps[len(gaps) // 2],
        "gapP90": gaps[-(-len(gaps) * 9 // 10) - 1],
        "budgetsBroken": len(large.budgets_broken) + len(small.budgets_broken),
        "movedTwice": len(large.moved_twice) + len(small.moved_twice),
        "otherFindings": len(large.limits_broken + large.pods_missing)
        + len(small.limits_broken + small.pods_missing),
    }


def _seconds_for_one(snapshot: PlanSnapshot, node: str) -> float:
    """Seconds for the plan of one node, from a snapshot whose indexes are not built yet."""
    fresh = PlanSnapshot(snapshot.cache.copy(), snapshot.now_ns)
    begin = time.perf_counter()
    make_plan(fresh, [node], OPTIONS)
    return time.perf_counter() - begin


def _instances(seed: int) -> tuple[list[float], Findings]:
    """The gaps of small clusters, sorted, and what the replay found wrong in any of them."""
    gaps: list[float] = []
    found = Findings()
    for i in range(INSTANCES):
        snapshot = cluster(
            60 + 20 * (i % 4), 1200 + 300 * (i % 5), 20 + 10 * (i % 6), seed * 1000 + i
        )
        planned = sorted(snapshot.nodes)[: 20 + 5 * (i % 3)]
        limits = WaveOptions(
            max_parallel=(3, 5, 8)[i % 3],
            max_per_zone=(None, 2, 3)[i // 3 % 3],
            maintenance_ns=(0, 600_000_000_000)[i % 2],
        )
        plan = make_wave_plan(snapshot, planned, OPTIONS, limits)
        gaps.append(gap(plan))
        wrong = replay(plan, snapshot, limits)
        found.budgets_broken += wrong.budgets_broken
        found.moved_twice += wrong.moved_twice
        found.limits_broken += wrong.limits_broken
        found.pods_missing += wrong.pods_missing
    return sorted(gaps), found


def gap(plan: DrainPlan) -> float:
    """The number of waves above the bound, as a share of the bound."""
    return round(len(plan.waves) / plan.bound.waves - 1, 4)
