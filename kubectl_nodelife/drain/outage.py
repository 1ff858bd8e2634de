"""The outage of each workload while its pods move: nothing, fewer pods, or none at all."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from kubectl_nodelife.drain.actors import Workload
from kubectl_nodelife.drain.results import WorkloadPlan
from kubectl_nodelife.drain.world import Play
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.workloads.owners import owner_chain

NONE = "none"
DEGRADED = "degraded"
FULL = "full"


def workload_plans(play: Play) -> list[WorkloadPlan]:
    """The workloads that lose a pod, those that suffer most first."""
    evicted: Counter[str] = Counter()
    for run in play.runs.values():
        for target in run.targets:
            if target.accepted_ns is not None and target.actor.workload is not None:
                evicted[target.actor.workload.uid] += 1
    plans = [_plan(play, play.world.workloads[uid], count) for uid, count in evicted.items()]
    order = {FULL: 0, DEGRADED: 1, NONE: 2}
    return sorted(plans, key=lambda plan: (order[plan.outage], plan.namespace, plan.name))


def _plan(play: Play, workload: Workload, evicted: int) -> WorkloadPlan:
    before = workload.entries[0][1]
    lowest = min(ready for _, ready in workload.entries)
    if before == 0 or lowest >= before:
        outage, limit = NONE, 0
    elif lowest == 0:
        outage, limit = FULL, 0
    else:
        outage, limit = DEGRADED, before - 1
    top = owner_chain(play.scope.owner_pods[workload.uid][0], play.scope.snapshot)[-1]
    took = play.scope.times.time_to_ready(play.scope.owner_pods[workload.uid][0])
    return WorkloadPlan(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        outage=outage,
        seconds=0.0 if outage == NONE else _time_at_most(workload, limit),
        ready=before,
        lowest=lowest,
        evicted=evicted,
        time_to_ready=None if took is None else round(took.middle_ns / SECOND_NS, 1),
        time_to_ready_from="none of its pods is Ready" if took is None else took.source,
        top=f"{top.kind}/{top.name}",
        end_known=play.world.controllers is None or play.world.controllers.next_due() is None,
    )


def _time_at_most(workload: Workload, limit: int) -> float | None:
    """For how long there were at most `limit` Ready pods; None: to the end of the run and on."""
    entries = workload.entries
    if entries[-1][1] <= limit:
        return None
    total = 0
    for (begin_ns, ready), (end_ns, _) in pairwise(entries):
        if ready <= limit:
            total += end_ns - begin_ns
    return round(total / SECOND_NS, 1)
