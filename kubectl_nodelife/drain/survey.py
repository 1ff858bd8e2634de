"""Budgets by themselves: the arithmetic of each, who uses it, and which nodes it makes undrainable.

The numbers are computed from the objects, as the disruption controller would, and held against the
status that was read: where the two differ, that is said. `find_budgets` answers for now; whether a
drain would finish all the same, because replacements come, is the plan's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kubectl_nodelife.drain.advice import operator_of, rule_of
from kubectl_nodelife.drain.scope import standing
from kubectl_nodelife.drain.snapshot import Snapshot
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import format_selector, selector_fault
from kubectl_nodelife.kube.workload import (
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    ReplicaSet,
)
from kubectl_nodelife.workloads.budgets import (
    Expectation,
    count_healthy_pods,
    disruptions_allowed,
    expected_pods,
    sync_failure,
)
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.scales import ScaleUnknown, SyncFailure

# What a budget is, worst first.
NEVER: Final = "never"
SYNC_FAILED: Final = "sync-failed"
STALE: Final = "stale"
BLOCKING: Final = "blocking"
UNUSED: Final = "unused"
OK: Final = "ok"
STATES: Final = (NEVER, SYNC_FAILED, STALE, BLOCKING, UNUSED, OK)

POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "pool",
)
"""Labels that name a node's pool, in the order in which they are looked for."""


@dataclass(slots=True)
class BudgetFinding:
    """One thing worth knowing about a budget, and what to do about it, "" if nothing."""

    what: str
    remedy: str = ""


@dataclass(slots=True)
class BudgetView:
    """One budget. `allowed` is the status' figure; `counted` what the objects give, None unknown.

    `undrainable`: nodes from which it now lets no pod go.
    """

    namespace: str
    name: str
    rule: str
    selector: str
    policy: str
    state: str
    expected: int
    desired: int
    healthy: int
    allowed: int
    disrupted: int
    counted: int | None
    pods: int
    owners: list[str]
    nodes: list[str]
    undrainable: list[str]
    findings: list[BudgetFinding] = field(default_factory=list)


@dataclass(slots=True)
class PoolView:
    """A pool of nodes, and what keeps it from being upgraded now."""

    name: str
    label: str
    nodes: int
    undrainable: list[str]
    budgets: list[str]


@dataclass(slots=True)
class BudgetSurvey:
    """All budgets asked for, the pods with two of them, and the pools."""

    budgets: list[BudgetView]
    two_budgets: dict[str, list[str]]
    pools: list[PoolView]
    warnings: list[str]


def survey(
    snapshot: Snapshot, namespace: str | None = None, pool_label: str | None = None
) -> BudgetSurvey:
    """The budgets of a namespace, or of all."""
    budgets = [
        budget
        for budget in snapshot.all_of(PodDisruptionBudget)
        if namespace is None or budget.namespace == namespace
    ]
    members = _members(snapshot, budgets)
    floors = _floors(snapshot)
    views = [_view(snapshot, b, members[b.key], floors) for b in budgets]
    views.sort(key=lambda view: (STATES.index(view.state), view.namespace, view.name))
    double = _two_budgets(snapshot, budgets, members)
    warnings = []
    if not snapshot.was_read("PodDisruptionBudget"):
        warnings.append("no budgets were read: this says nothing about the cluster")
    return BudgetSurvey(views, double, _pools(snapshot, views, double, pool_label), warnings)


def _members(
    snapshot: Snapshot, budgets: Sequence[PodDisruptionBudget]
) -> dict[tuple[str, str], list[Pod]]:
    members: dict[tuple[str, str], list[Pod]] = {budget.key: [] for budget in budgets}
    index = snapshot.budgets
    for namespace in {budget.namespace for budget in budgets}:
        for pod in snapshot.pods_by_namespace.get(namespace, ()):
            for budget in index.find(namespace, pod.metadata.labels):
                members[budget.key].append(pod)
    return members


def _view(
    snapshot: Snapshot,
    budget: PodDisruptionBudget,
    pods: list[Pod],
    floors: dict[tuple[str, str, str], int],
) -> BudgetView:
    status = budget.status
    expectation, failure = _expectation(snapshot, budget, pods)
    disrupted = standing(dict(status.disrupted_pods or {}), pods, snapshot.now_ns)
    counted = None
    if expectation is not None:
        healthy = count_healthy_pods(pods, disrupted, snapshot.now_ns)
        counted = disruptions_allowed(healthy, expectation.desired, expectation.expected)
    guarded = [pod for pod in pods if pod.spec.node_name and _guarded(pod)]
    view = BudgetView(
        namespace=budget.namespace,
        name=budget.name,
        rule=rule_of(budget.spec),
        selector=format_selector(budget.spec.selector) or "<all pods>",
        policy=budget.spec.unhealthy_pod_eviction_policy or "IfHealthyBudget",
        state=_state(budget, pods, failure, expectation),
        expected=status.expected_pods,
        desired=status.desired_healthy,
        healthy=status.current_healthy,
        allowed=status.disruptions_allowed,
        disrupted=len(disrupted),
        counted=counted,
        pods=len(pods),
        owners=sorted({_owner_name(snapshot, pod) for pod in pods}),
        nodes=sorted({pod.spec.node_name for pod in guarded}),
        undrainable=[],
    )
    if view.state not in (OK, UNUSED):
        view.undrainable = view.nodes
    view.findings = list(_findings(snapshot, budget, pods, view, expectation, failure, floors))
    return view


def _guarded(pod: Pod) -> bool:
    """Whether an eviction of the pod asks the budget."""
    owner = controller_of(pod.metadata)
    return (
        pod.status.phase not in (*TERMINAL_PHASES, "Pending")
        and pod.metadata.deletion_timestamp is None
        and not (owner is not None and owner.kind == "DaemonSet")
    )


def _expectation(
    snapshot: Snapshot, budget: PodDisruptionBudget, pods: list[Pod]
) -> tuple[Expectation | None, str]:
    """What the objects give, or why they give nothing."""
    try:
        return expected_pods(budget.spec, pods, snapshot), ""
    except SyncFailure as failure:
        return None, str(failure)
    except ScaleUnknown:
        return None, ""


def _state(
    budget: PodDisruptionBudget, pods: list[Pod], failure: str, expectation: Expectation | None
) -> str:
    status = budget.status
    if not pods:
        return UNUSED
    if sync_failure(status) is not None or failure:
        return SYNC_FAILED
    if status.observed_generation < budget.metadata.generation:
        return STALE
    if status.disruptions_allowed > 0:
        return OK
    desired = expectation.desired if expectation is not None else status.desired_healthy
    expected = expectation.expected if expectation is not None else status.expected_pods
    return NEVER if desired >= expected else BLOCKING


def _owner_name(snapshot: Snapshot, pod: Pod) -> str:
    """`Deployment/web`, or what owns the pod directly."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return "<none>"
    found = snapshot.find(owner.kind, pod.namespace, owner.name)
    if isinstance(found, ReplicaSet):
        above = controller_of(found.metadata)
        if above is not None:
            return f"{above.kind}/{above.name}"
    return f"{owner.kind}/{owner.name}"


# --- findings ------------------------------------------------------------------------------------


def _findings(
    snapshot: Snapshot,
    budget: PodDisruptionBudget,
    pods: list[Pod],
    view: BudgetView,
    expectation: Expectation | None,
    failure: str,
    floors: dict[tuple[str, str, str], int],
) -> Iterable[BudgetFinding]:
    fault = selector_fault(budget.spec.selector)
    if fault is not None:
        yield BudgetFinding(f"its selector is malformed, {fault}: evictions pass it by")
    elif not pods:
        counted = budget.status.expected_pods
        if counted:
            yield BudgetFinding(f"it matches no pod that was read; its status counts {counted}")
        else:
            yield BudgetFinding(
                f"it matches no pod ({view.selector})", "correct the selector, or delete it"
            )
    recorded = sync_failure(budget.status)
    if recorded is not None or failure:
        yield BudgetFinding(
            f"its sync fails, so nothing may go: {recorded or failure}",
            "give it an integer minAvailable, or narrow its selector",
        )
    if view.state == STALE:
        yield BudgetFinding(
            "the disruption controller has not seen its newest spec",
            "check kube-controller-manager",
        )
    yield from _never(view, expectation)
    yield from _rounding(budget, expectation)
    unready = [pod.name for pod in pods if _guarded(pod) and not pod.ready()]
    if unready and view.state == BLOCKING:
        yield BudgetFinding(
            f"{len(unready)} of its pods are not Ready: {', '.join(unready[:3])}",
            "mend them, or set unhealthyPodEvictionPolicy: AlwaysAllow",
        )
    if expectation is not None and expectation.unmanaged:
        yield BudgetFinding(
            f"{len(expectation.unmanaged)} of its pods have no controller and do not count",
            "use an integer minAvailable",
        )
    if view.counted is not None and view.counted != view.allowed and view.state in (OK, BLOCKING):
        yield BudgetFinding(
            f"its status allows {view.allowed}, the objects give {view.counted}",
            "look again; if a second budget matches its pods, only one of the two is kept current",
        )
    yield from _floor(view, expectation, floors)
    yield from _operator(pods, view)


def _never(view: BudgetView, expectation: Expectation | None) -> Iterable[BudgetFinding]:
    if view.state != NEVER or expectation is None:
        return
    if view.rule.startswith("maxUnavailable"):
        yield BudgetFinding(
            f"{view.rule} of {expectation.expected} spares none, ever", "set maxUnavailable to 1"
        )
    else:
        yield BudgetFinding(
            f"{view.rule} asks for {expectation.desired} of {expectation.expected} pods: it spares"
            " none, ever",
            "use maxUnavailable: 1 instead, or scale up by one",
        )


def _rounding(
    budget: PodDisruptionBudget, expectation: Expectation | None
) -> Iterable[BudgetFinding]:
    """Percentages round up, both of them."""
    if expectation is None or expectation.expected == 0:
        return
    spec, expected = budget.spec, expectation.expected
    if isinstance(spec.max_unavailable, str):
        spared = expected - expectation.desired
        exact = int(spec.max_unavailable.rstrip("%")) * expected / 100
        if 0 < exact <= spared - 0.5:
            yield BudgetFinding(
                f"{spec.max_unavailable} of {expected} is {exact:g}, rounded up to {spared}"
            )
    elif isinstance(spec.min_available, str):
        exact = int(spec.min_available.rstrip("%")) * expected / 100
        if exact < expectation.desired == expected:
            yield BudgetFinding(
                f"{spec.min_available} of {expected} is {exact:g}, rounded up to all of them",
                "use maxUnavailable: 1 instead",
            )


def _floors(snapshot: Snapshot) -> dict[tuple[str, str, str], int]:
    """minReplicas of each autoscaler's target, by namespace, kind and name."""
    return {
        (hpa.namespace, hpa.spec.scale_target_ref.kind, hpa.spec.scale_target_ref.name): (
            1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas
        )
        for hpa in snapshot.all_of(HorizontalPodAutoscaler)
    }


def _floor(
    view: BudgetView, expectation: Expectation | None, floors: dict[tuple[str, str, str], int]
) -> Iterable[BudgetFinding]:
    """An autoscaler that may shrink the workload to what the budget asks for."""
    if expectation is None or len(view.owners) != 1 or not view.rule.startswith("minAvailable"):
        return
    kind, _, name = view.owners[0].partition("/")
    floor = floors.get((view.namespace, kind, name))
    if floor is not None and floor <= expectation.desired and "%" not in view.rule:
        yield BudgetFinding(
            f"the autoscaler may go down to {floor} pods, and {view.rule} spares none then",
            f"set minReplicas to {expectation.desired + 1}",
        )


def _operator(pods: list[Pod], view: BudgetView) -> Iterable[BudgetFinding]:
    if view.state in (NEVER, BLOCKING) and pods:
        operator = operator_of(pods[0])
        if operator is not None:
            yield BudgetFinding(f"{operator[0]} pins it by design", operator[1])


# --- two budgets, and pools ----------------------------------------------------------------------


def _two_budgets(
    snapshot: Snapshot,
    budgets: Sequence[PodDisruptionBudget],
    members: dict[tuple[str, str], list[Pod]],
) -> dict[str, list[str]]:
    """The pods that more than one budget matches, and which; the Eviction API refuses those."""
    names: dict[str, list[str]] = {}
    for budget in budgets:
        for pod in members[budget.key]:
            names.setdefault(f"{pod.namespace}/{pod.name}", []).append(budget.name)
    return {pod: found for pod, found in sorted(names.items()) if len(found) > 1}


def _pools(
    snapshot: Snapshot,
    views: list[BudgetView],
    double: dict[str, list[str]],
    pool_label: str | None,
) -> list[PoolView]:
    blocking: dict[str, set[str]] = {}
    for view in views:
        for node_name in view.undrainable:
            blocking.setdefault(node_name, set()).add(f"{view.namespace}/{view.name}")
    for name, budgets in double.items():
        namespace, _, pod_name = name.partition("/")
        pod = snapshot.find("Pod", namespace, pod_name)
        if isinstance(pod, Pod) and pod.spec.node_name:
            told = f"{namespace}/{'+'.join(budgets)}"
            blocking.setdefault(pod.spec.node_name, set()).add(told)
    pools: dict[tuple[str, str], PoolView] = {}
    for node in snapshot.nodes.values():
        label, value = _pool_of(node.metadata.labels or {}, pool_label)
        pool = pools.setdefault((label, value), PoolView(value, label, 0, [], []))
        pool.nodes += 1
        if node.name in blocking:
            pool.undrainable.append(node.name)
            pool.budgets = sorted({*pool.budgets, *blocking[node.name]})
    return [pools[key] for key in sorted(pools)]


def _pool_of(labels: dict[str, str], pool_label: str | None) -> tuple[str, str]:
    for label in (pool_label,) if pool_label else POOL_LABELS:
        if label in labels:
            return label, labels[label]
    return "", "<none>"
