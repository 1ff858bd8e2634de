"""An independent check of a plan: every pod is there once, no budget is broken, none moves twice.

It reads the plan as it is written (times, landing places) and the snapshot, and counts. Nothing of
the planner's own state goes in.
"""

from collections import Counter
from dataclasses import dataclass, field

from kubectl_nodelife.drain.results import CORDON_BY_WAVE, KEPT, DrainPlan, PodPlan, WaveOptions
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.workload import PodDisruptionBudget

_EVICTED, _READY = 1, 0
"""At one instant a pod that became Ready counts before one that is evicted."""


@dataclass(slots=True)
class Findings:
    """What is wrong with a plan; all empty for a good one."""

    budgets_broken: list[str] = field(default_factory=list)
    moved_twice: list[str] = field(default_factory=list)
    limits_broken: list[str] = field(default_factory=list)
    pods_missing: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """Everything in one list."""
        return self.budgets_broken + self.moved_twice + self.limits_broken + self.pods_missing


def replay(plan: DrainPlan, snapshot: PlanSnapshot, waves: WaveOptions | None = None) -> Findings:
    """Check the plan against the snapshot that it was made from."""
    findings = Findings()
    _check_pods(plan, snapshot, findings)
    _check_limits(plan, snapshot, waves, findings)
    _check_moves(plan, waves, findings)
    for budget in snapshot.all_of(PodDisruptionBudget):
        _check_budget(budget, plan, snapshot, findings)
    return findings


def _check_pods(plan: DrainPlan, snapshot: PlanSnapshot, findings: Findings) -> None:
    listed = Counter((pod.node, pod.namespace, pod.name) for pod in plan.pods())
    there = Counter(
        (node.name, *pod.key) for node in plan.nodes for pod in snapshot.cache.pods_on(node.name)
    )
    for node_name, namespace, name in (listed - there) | (there - listed):
        count = listed[(node_name, namespace, name)]
        findings.pods_missing.append(f"{namespace}/{name} of {node_name} is listed {count} times")


def _check_limits(
    plan: DrainPlan, snapshot: PlanSnapshot, waves: WaveOptions | None, findings: Findings
) -> None:
    seen: set[str] = set()
    for wave in plan.waves:
        if waves is not None and len(wave.nodes) > waves.max_parallel:
            findings.limits_broken.append(f"wave {wave.index} has {len(wave.nodes)} nodes")
        zones: dict[str, int] = {}
        for name in wave.nodes:
            if name in seen:
                findings.limits_broken.append(f"{name} is in two waves")
            seen.add(name)
            labels = snapshot.nodes[name].metadata.labels or {}
            zone = labels.get("topology.kubernetes.io/zone", "")
            zones[zone] = zones.get(zone, 0) + 1
        if waves is not None and waves.max_per_zone is not None:
            for zone, count in zones.items():
                if count > waves.max_per_zone:
                    findings.limits_broken.append(f"wave {wave.index} has {count} of zone {zone}")


def _check_moves(plan: DrainPlan, waves: WaveOptions | None, findings: Findings) -> None:
    """No replacement may land on a node of the plan, unless it was drained and has come back.

    A replacement is Ready some time after it landed; one that is Ready before its node's wave has
    begun landed there too early. Without a maintenance no node comes back. Where a wave is cordoned
    when it begins, the nodes of later waves take pods.
    """
    wave_of = {name: wave for wave in plan.waves for name in wave.nodes}
    returns = waves is not None and waves.maintenance_ns > 0
    by_wave = plan.cordon is not None and plan.cordon.when == CORDON_BY_WAVE
    for pod in plan.pods():
        if pod.start is None or not pod.landing or not pod.landing[0].node:
            continue
        wave = wave_of.get(pod.landing[0].node)
        if wave is None:
            continue
        if by_wave and (wave.start is None or pod.start < wave.start):
            continue
        begun = wave.start is not None and (pod.end is None or pod.end > wave.start)
        if not (returns and begun):
            node = pod.landing[0].node
            findings.moved_twice.append(f"{pod.namespace}/{pod.name} lands on {node}")


def _check_budget(
    budget: PodDisruptionBudget, plan: DrainPlan, snapshot: PlanSnapshot, findings: Findings
) -> None:
    """No eviction of a Ready pod may leave fewer healthy pods than the budget asks for."""
    moves = [
        pod
        for pod in plan.pods()
        if pod.namespace == budget.namespace
        and pod.verdict != KEPT
        and pod.start is not None
        and budget.name in pod.budgets
    ]
    if not moves:
        return
    members = [
        pod
        for pod in snapshot.pods_by_namespace.get(budget.namespace, ())
        if matches(budget.spec.selector, pod.metadata.labels)
    ]
    healthy = sum(1 for pod in members if _healthy(pod))
    by_name = {pod.name: pod for pod in members}
    needed = budget.status.desired_healthy
    for at, kind, pod in sorted(_events(moves), key=lambda event: event[:2]):
        if kind == _READY:
            healthy += 1
        elif _healthy(by_name[pod.name]):
            healthy -= 1
            if healthy < needed:
                findings.budgets_broken.append(
                    f"{budget.namespace}/{budget.name} has {healthy} of {needed} at {at:.3f} s"
                )


def _events(moves: list[PodPlan]) -> list[tuple[float, int, PodPlan]]:
    events = [(pod.start, _EVICTED, pod) for pod in moves if pod.start is not None]
    events += [
        (pod.end, _READY, pod)
        for pod in moves
        if pod.end is not None and pod.landing and pod.landing[0].node
    ]
    return events


def _healthy(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.ready()
