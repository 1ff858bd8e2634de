"""Budgets by themselves: the arithmetic of each, who uses it, which nodes it makes undrainable,
what is worth knowing about it, and what to do about that. What unblocks a pod is in `remedies`.

The numbers are computed from the objects, as the disruption controller would, and held against the
status that was read: where the two differ, that is said. `survey` answers for now; whether a drain
would finish all the same, because replacements come, is the plan's to say.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import field

from kubectl_nodelife.document import document
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.errors import NotFound
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import LabelSelector, controller_of
from kubectl_nodelife.kube.names import first_names, subject
from kubectl_nodelife.kube.node import pool_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_daemon_pod
from kubectl_nodelife.kube.selectors import format_selector, matches, selector_fault
from kubectl_nodelife.kube.workload import (
    Deployment,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    ReplicaSet,
    StatefulSet,
)
from kubectl_nodelife.workloads.budgets import (
    ALWAYS_ALLOW,
    EvictionRefused,
    Expectation,
    decide_eviction,
    desired_pods,
    disruptions_allowed,
    expected_pods,
    is_healthy,
    rule_of,
    standing,
    sync_failure,
)
from kubectl_nodelife.workloads.owners import ScaleUnknown, SyncFailure, owner_chain

BUILT_IN_OWNERS: Final = frozenset(
    {
        "<none>",
        "DaemonSet",
        "Deployment",
        "Job",
        "Node",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    }
)
"""What the first word of an owner's name is, where Kubernetes' own controllers count its pods."""

# What a budget is, worst first.
NEVER: Final = "never"
SYNC_FAILED: Final = "sync-failed"
STALE: Final = "stale"
BLOCKING: Final = "blocking"
TWO: Final = "two-budgets"
UNUSED: Final = "unused"
OK: Final = "ok"
STATES: Final = (NEVER, TWO, SYNC_FAILED, STALE, BLOCKING, UNUSED, OK)


class BudgetFinding(msgspec.Struct, frozen=True, rename="camel"):
    """One thing worth knowing about a budget, and what to do about it, None if nothing."""

    what: str
    remedy: str | None = None


class BudgetView(msgspec.Struct, rename="camel", kw_only=True):
    """One budget. `allowed` is the status' figure; `counted` what the objects give, None unknown.

    `undrainable`: nodes from which it now lets no pod go; of `two-budgets` all that have its pods.
    """

    namespace: str
    name: str
    state: str
    rule: str
    selector: str
    policy: str = field(name="unhealthyPodEvictionPolicy")
    expected: int = field(name="expectedPods")
    desired: int = field(name="desiredHealthy")
    healthy: int = field(name="currentHealthy")
    allowed: int = field(name="disruptionsAllowed")
    disrupted: int = field(name="disruptedPods")
    counted: int | None
    pods: int
    owners: list[str]
    nodes: list[str]
    undrainable: list[str]
    findings: list[BudgetFinding] = []


def guarded(pod: Pod) -> bool:
    """True if an eviction of the pod asks the budget."""
    return (
        pod.status.phase not in (*TERMINAL_PHASES, "Pending")
        and pod.metadata.deletion_timestamp is None
        and not is_daemon_pod(pod)
    )


def findings(
    budget: PodDisruptionBudget,
    pods: list[Pod],
    view: BudgetView,
    expectation: Expectation | None,
    failure: str,
    floors: dict[tuple[str, str, str], int],
    scaled_to_zero: Sequence[str] = (),
) -> Iterable[BudgetFinding]:
    """Everything worth knowing about one budget. `failure`: why its arithmetic fails, or "";
    `scaled_to_zero`: workloads without pods whose pods it is for."""
    yield from _selection(budget, pods, view, scaled_to_zero)
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
    yield from _scale(budget, pods, view)
    yield from _readiness(pods, view, expectation)
    yield from _floor(view, expectation, floors)
    yield from _operator(pods, view)


def _selection(
    budget: PodDisruptionBudget, pods: list[Pod], view: BudgetView, scaled_to_zero: Sequence[str]
) -> Iterable[BudgetFinding]:
    fault = selector_fault(budget.spec.selector)
    counted = budget.status.expected_pods
    if fault is not None:
        yield BudgetFinding(f"its selector is malformed, {fault}: evictions pass it by")
    elif not pods and counted:
        yield BudgetFinding(f"it matches no pod that was read; its status counts {counted}")
    elif not pods and scaled_to_zero:
        yield BudgetFinding(f"it matches no pod: {first_names(scaled_to_zero, 3)} has none now")
    elif not pods:
        yield BudgetFinding(
            f"it matches no pod ({view.selector})", "correct the selector, or delete it"
        )


def _readiness(
    pods: list[Pod], view: BudgetView, expectation: Expectation | None
) -> Iterable[BudgetFinding]:
    unready = [pod.name for pod in pods if guarded(pod) and not pod.ready()]
    if unready and view.state == BLOCKING:
        yield BudgetFinding(
            f"{len(unready)} of its pods {'is' if len(unready) == 1 else 'are'} not Ready: "
            f"{', '.join(unready[:3])}",
            _about_unready(unready[0], view),
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


def _about_unready(name: str, view: BudgetView) -> str:
    """What to do about pods that are not Ready, which may be allowed to go themselves."""
    if view.policy == ALWAYS_ALLOW or view.healthy >= view.desired > 0:
        command = f"kubectl delete {subject('pod', name)} -n {shlex.quote(view.namespace)}"
        return f"repair them, or let them be made anew, which the budget allows: {command}"
    return "repair them; unhealthyPodEvictionPolicy: AlwaysAllow lets these alone be evicted"


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
            f"use maxUnavailable: 1 instead{_scale_up(view.rule)}",
        )


def _scale_up(rule: str) -> str:
    """A budget of a number of pods is not spared by the number that there are, but by one more."""
    return "" if rule.endswith("%") else ", or scale up by one"


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


def _scale(
    budget: PodDisruptionBudget, pods: list[Pod], view: BudgetView
) -> Iterable[BudgetFinding]:
    """A rule of shares is measured by the scale of the pods' owners (`getExpectedScale`), which for
    a custom resource need not be the number of its pods. What a built-in controller has too many or
    too few of, it soon has not.
    """
    custom = [owner for owner in view.owners if owner.partition("/")[0] not in BUILT_IN_OWNERS]
    here = sum(
        pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL_PHASES
        for pod in pods
    )
    if not custom or view.state not in (OK, BLOCKING, NEVER) or here == view.expected:
        return
    wanted = desired_pods(budget.spec, here, here).desired
    meant = disruptions_allowed(view.healthy, wanted, here)
    if view.allowed == meant:
        return
    more = view.allowed > meant
    yield BudgetFinding(
        f"it guards {here} pods, and the scale of their owner {custom[0]} says {view.expected}: it"
        f" lets {view.allowed} go at once, {'not' if more else 'and would let'} {meant}"
        f"{'' if more else ' by the number of its pods'}",
        f"use an integer minAvailable, {wanted} for so many pods",
    )


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


OPERATORS: Final = (
    ("cnpg.io/cluster", "CloudNativePG", "switch the primary over, or set nodeMaintenanceWindow"),
    ("postgres-operator.crunchydata.com/cluster", "PGO", "switch the primary over first"),
    ("longhorn.io/component", "Longhorn", "set its node-drain-policy, or evict its replicas first"),
    ("strimzi.io/cluster", "Strimzi", "let Strimzi's drain cleaner roll the pod"),
    ("kubevirt.io", "KubeVirt", "let it migrate the virtual machine (evictionStrategy)"),
    ("ceph.rook.io/fs", "Rook", "wait until Ceph's placement groups are active+clean"),
    ("rook_cluster", "Rook", "wait until Ceph's placement groups are active+clean"),
)
"""Operators that pin budgets at 0 by design: (a label of their pods, name, the proper way)."""


def operator_of(pod: Pod) -> tuple[str, str] | None:
    """(name, the proper way) of the operator that the pod belongs to, if it is one known here."""
    labels = pod.metadata.labels or {}
    return next(((name, way) for label, name, way in OPERATORS if label in labels), None)


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
            for budget in snapshot.budgets_of(pod):
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
        healthy = sum(is_healthy(pod) and pod.name not in disrupted for pod in pods)
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
    if asking and all(len(snapshot.budgets_of(pod)) > 1 for pod in asking):
        view.state, refused = TWO, asking
    view.undrainable = sorted({pod.spec.node_name for pod in refused})
    empty = _scaled_to_zero(snapshot, budget) if view.state == UNUSED else []
    view.findings = list(findings(budget, pods, view, expectation, failure, floors, empty))
    return view


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
        PodUnderTwo("/".join(key), of_pod, pods[key].spec.node_name if guarded(pods[key]) else "")
        for key, of_pod in sorted(names.items())
        if len(of_pod) > 1
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
