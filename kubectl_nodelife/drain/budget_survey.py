"""Budgets by themselves: the arithmetic of each, who uses it, and which nodes it makes undrainable.

The numbers are computed from the objects, as the disruption controller would, and held against the
status that was read: where the two differ, that is said. `find_budgets` answers for now; whether a
drain would finish all the same, because replacements come, is the plan's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import field

from kubectl_nodelife.document import document
from kubectl_nodelife.drain.budget_findings import (
    BLOCKING,
    NEVER,
    OK,
    STALE,
    STATES,
    SYNC_FAILED,
    TWO,
    UNUSED,
    BudgetView,
    findings,
    guarded,
)
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.errors import NotFound
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import LabelSelector, controller_of
from kubectl_nodelife.kube.node import pool_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import format_selector, matches
from kubectl_nodelife.kube.workload import (
    Deployment,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    ReplicaSet,
    StatefulSet,
)
from kubectl_nodelife.workloads.budget_ledger import standing
from kubectl_nodelife.workloads.budgets import (
    EvictionRefused,
    Expectation,
    count_healthy_pods,
    decide_eviction,
    disruptions_allowed,
    expected_pods,
    rule_of,
    sync_failure,
)
from kubectl_nodelife.workloads.owners import ScaleUnknown, SyncFailure, owner_chain


class PoolView(msgspec.Struct, rename="camel"):
    """A pool of nodes, and what keeps it from being upgraded now."""

    name: str
    label: str | None
    nodes: int
    undrainable: list[str]
    budgets: list[str]


class PodUnderTwo(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that more than one budget matches; the Eviction API refuses that for ever. `node`: the
    one that it keeps from being drained; empty where it has none, or a drain leaves it alone."""

    pod: str
    budgets: list[str]
    node: str = ""


class BudgetSurvey(msgspec.Struct, frozen=True, rename="camel"):
    """All budgets asked for, the pods with two of them, and the pools. Its encoding, under a head,
    is the contract's BudgetList.
    """

    budgets: list[BudgetView] = field(name="items")
    two_budgets: list[PodUnderTwo]
    pools: list[PoolView]
    warnings: list[str]

    def document(self) -> dict[str, Any]:
        """The BudgetList."""
        return document("BudgetList", **msgspec.to_builtins(self))


def survey(
    snapshot: PlanSnapshot,
    namespace: str | None = None,
    pool_label: str | None = None,
    names: Sequence[str] = (),
    labels: LabelSelector | None = None,
) -> BudgetSurvey:
    """The budgets of a namespace, or of all; of these names or with these labels alone, if any.
    Raises NotFound."""
    budgets = [
        budget
        for budget in snapshot.all_of(PodDisruptionBudget)
        if namespace is None or budget.namespace == namespace
    ]
    members = _members(snapshot, budgets)
    floors = _floors(snapshot)
    views = [_view(snapshot, b, members[b.key], floors) for b in budgets]
    views.sort(key=lambda view: (STATES.index(view.state), view.namespace, view.name))
    double = _two_budgets(budgets, members)
    chosen = {b.key for b in budgets if labels is None or matches(labels, b.metadata.labels)}
    views = [view for view in views if (view.namespace, view.name) in chosen]
    if names:
        among = {view.name for view in views}
        for name in names:
            if name not in among:
                prefix = f"{namespace}/" if namespace else ""
                there = [f"{prefix}{one}" for one in among]
                raise NotFound("poddisruptionbudgets.policy", f"{prefix}{name}", among=there)
        views = [view for view in views if view.name in names]
        double = [one for one in double if not set(one.budgets).isdisjoint(names)]
    warnings = []
    if not snapshot.was_read("PodDisruptionBudget"):
        warnings.append("no budgets were read: nothing is known about the cluster's")
    return BudgetSurvey(views, double, _pools(snapshot, views, double, pool_label), warnings)


def _members(
    snapshot: PlanSnapshot, budgets: Sequence[PodDisruptionBudget]
) -> dict[tuple[str, str], list[Pod]]:
    members: dict[tuple[str, str], list[Pod]] = {budget.key: [] for budget in budgets}
    for namespace in {budget.namespace for budget in budgets}:
        for pod in snapshot.pods_by_namespace.get(namespace, ()):
            for budget in _budgets_of(snapshot, pod):
                members[budget.key].append(pod)
    return members


def _view(
    snapshot: PlanSnapshot,
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
    asking = [pod for pod in pods if pod.spec.node_name and guarded(pod)]
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
        nodes=sorted({pod.spec.node_name for pod in asking}),
        undrainable=[],
    )
    refused = [pod for pod in asking if _is_refused(pod, budget, snapshot.now_ns)]
    if asking and all(len(_budgets_of(snapshot, pod)) > 1 for pod in asking):
        view.state, refused = TWO, asking
    view.undrainable = sorted({pod.spec.node_name for pod in refused})
    empty = _scaled_to_zero(snapshot, budget) if view.state == UNUSED else []
    view.findings = list(findings(budget, pods, view, expectation, failure, floors, empty))
    return view


def _budgets_of(snapshot: PlanSnapshot, pod: Pod) -> Sequence[PodDisruptionBudget]:
    return list(snapshot.budgets.find(pod.namespace, pod.metadata.labels))


def _is_refused(pod: Pod, budget: PodDisruptionBudget, now_ns: int) -> bool:
    """True if the budget refuses the pod's eviction now. One that is not Ready may go where the
    budget says so, or has as many healthy pods as it needs."""
    return isinstance(decide_eviction(pod, [budget], now_ns, dry_run=True), EvictionRefused)


def _scaled_to_zero(snapshot: PlanSnapshot, budget: PodDisruptionBudget) -> list[str]:
    """Workloads without pods whose pods the budget is for."""
    owners: list[Deployment | StatefulSet | ReplicaSet]
    owners = [*snapshot.all_of(Deployment), *snapshot.all_of(StatefulSet)]
    owners += snapshot.all_of(ReplicaSet)
    return [
        f"{kind_of(owner)} {owner.name}"
        for owner in owners
        if owner.namespace == budget.namespace
        and owner.spec.replicas == 0
        and controller_of(owner.metadata) is None
        and matches(budget.spec.selector, owner.spec.template.get("metadata", {}).get("labels"))
    ]


def _expectation(
    snapshot: PlanSnapshot, budget: PodDisruptionBudget, pods: list[Pod]
) -> tuple[Expectation | None, str]:
    """The count that the objects give, or why they give none."""
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
    if not pods and not status.expected_pods:
        return UNUSED
    if not pods:
        expectation = None  # its pods are not among those that were read
    if sync_failure(status) is not None or failure:
        return SYNC_FAILED
    if status.observed_generation < budget.metadata.generation:
        return STALE
    if status.disruptions_allowed > 0:
        return OK
    desired = expectation.desired if expectation is not None else status.desired_healthy
    expected = expectation.expected if expectation is not None else status.expected_pods
    return NEVER if desired >= expected else BLOCKING


def _owner_name(snapshot: PlanSnapshot, pod: Pod) -> str:
    """`Deployment/web`: the topmost owner."""
    chain = owner_chain(pod, snapshot)
    return f"{chain[-1].kind}/{chain[-1].name}" if chain else "<none>"


def _floors(snapshot: PlanSnapshot) -> dict[tuple[str, str, str], int]:
    """minReplicas of each autoscaler's target, by namespace, kind and name."""
    return {
        (hpa.namespace, hpa.spec.scale_target_ref.kind, hpa.spec.scale_target_ref.name): (
            1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas
        )
        for hpa in snapshot.all_of(HorizontalPodAutoscaler)
    }


# --- two budgets, and pools ----------------------------------------------------------------------


def _two_budgets(
    budgets: Sequence[PodDisruptionBudget], members: dict[tuple[str, str], list[Pod]]
) -> list[PodUnderTwo]:
    """The pods that more than one budget matches, and which; the Eviction API refuses those."""
    names: dict[tuple[str, str], list[str]] = {}
    pods: dict[tuple[str, str], Pod] = {}
    for budget in budgets:
        for pod in members[budget.key]:
            pods[pod.key] = pod
            names.setdefault(pod.key, []).append(budget.name)
    return [
        PodUnderTwo("/".join(key), found, pods[key].spec.node_name if guarded(pods[key]) else "")
        for key, found in sorted(names.items())
        if len(found) > 1
    ]


def _pools(
    snapshot: PlanSnapshot,
    views: list[BudgetView],
    double: Sequence[PodUnderTwo],
    pool_label: str | None,
) -> list[PoolView]:
    blocking: dict[str, set[str]] = {}
    for view in views:
        for node_name in view.undrainable if view.state != TWO else ():
            blocking.setdefault(node_name, set()).add(f"{view.namespace}/{view.name}")
    for one in double:
        if one.node:
            combined = f"{one.pod.partition('/')[0]}/{'+'.join(one.budgets)}"
            blocking.setdefault(one.node, set()).add(combined)
    pools: dict[tuple[str, str], PoolView] = {}
    for node in snapshot.nodes.values():
        label, value = pool_of(node.metadata.labels, pool_label)
        pool = pools.setdefault(
            (label, value), PoolView(value or "<none>", label or None, 0, [], [])
        )
        pool.nodes += 1
        if node.name in blocking:
            pool.undrainable.append(node.name)
            pool.budgets = sorted({*pool.budgets, *blocking[node.name]})
    return [pools[key] for key in sorted(pools)]
