"""Budgets in words: their arithmetic, why one refuses, findings about one, and what to do about
them. What unblocks a pod is in `remedies`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import field

from kubectl_nodelife.drain.play import Play
from kubectl_nodelife.kube.names import first_names, subject
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_daemon_pod
from kubectl_nodelife.kube.selectors import selector_fault
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger
from kubectl_nodelife.workloads.budgets import (
    ALWAYS_ALLOW,
    EvictionRefused,
    Expectation,
    desired_pods,
    disruptions_allowed,
    rule_of,
    sync_failure,
)

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
    yield from _members(pods, view, expectation)
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


def _members(
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


def numbers(budget: PodDisruptionBudget) -> str:
    """The budget's arithmetic in one clause."""
    status = budget.status
    return (
        f"budget {budget.name} ({rule_of(budget.spec)}) has {status.current_healthy} healthy of"
        f" {status.expected_pods} and needs {status.desired_healthy}"
    )


def operator_of(pod: Pod) -> tuple[str, str] | None:
    """(name, the proper way) of the operator that the pod belongs to, if it is one known here."""
    labels = pod.metadata.labels or {}
    for label, name, way in OPERATORS:
        if label in labels:
            return name, way
    return None


class Advice:
    """Sentences about one run."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def numbers(self, ledger: BudgetLedger) -> str:
        """The budget's arithmetic at the plan's moment."""
        return numbers(self._play.scope.ledgers[ledger.budget.key].budget)

    def why_refused(self, ledger: BudgetLedger, refusal: EvictionRefused) -> str:
        """Why the budget refuses, in a sentence with the numbers as they are at the end."""
        budget = ledger.budget
        counts = numbers(budget)
        if refusal.gate == "pdb-stale":
            failure = sync_failure(budget.status)
            return (
                f"the status of budget {budget.name} is of generation"
                f" {budget.status.observed_generation}, its spec of {budget.metadata.generation}:"
                " the disruption controller "
                + ("has not looked at it" if failure is None else f"fails on it: {failure}")
            )
        if refusal.gate == "pdb-sync-failed":
            failure = sync_failure(budget.status)
            return f"the sync of budget {budget.name} failed, so nothing may go: {failure}"
        if refusal.gate == "unready-under-pdb":
            policy = budget.spec.unhealthy_pod_eviction_policy or "IfHealthyBudget"
            return (
                f"it is not Ready, and {counts}; {policy} protects it until the others are healthy"
            )
        return f"{counts}; {self._why_none(ledger)}"

    def _why_none(self, ledger: BudgetLedger) -> str:
        status = ledger.budget.status
        if status.desired_healthy >= status.expected_pods:
            return "it can never spare one"
        unready = ledger.matched - ledger.healthy
        if unready > 0:
            verb = "is" if unready == 1 else "are"
            return f"{unready} of its pods {verb} not Ready, and nothing that was read changes that"
        return "it does not refill"
