"""The page of `drain-plan`: the answer in one line, what stops the drain and what it costs for
good, then nodes, pods, workloads, budgets; of a drain that was carried out, each wave's promised
and real time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kubectl_nodelife.drain.results import (
    CORDON_FIRST,
    FULL,
    KEPT,
    NEVER,
    NOT_READ,
    READY,
    REFUSED,
    SLOW,
    UNKNOWN,
    BudgetPlan,
    DrainPlan,
    Estimate,
    NodePlan,
    PlannedPlacement,
    PodPlan,
    WorkloadPlan,
)
from kubectl_nodelife.drain.snapshot import ADMISSION
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import clock
from kubectl_nodelife.report.formats import Block, Page
from kubectl_nodelife.report.table import Table, columns
from kubectl_nodelife.report.terminal import BAD, GOOD, WARN, ColoredText
from kubectl_nodelife.sim.kubectl.options import FLAG_DELETE_EMPTYDIR_DATA, FLAG_FORCE

_VERDICTS: Final = {
    "ready": "This drain finishes",
    "slow": "This drain finishes, after waiting",
    "unknown": "Nothing that was read stops this drain, but not everything was read{lacking}",
    "never": "This drain does not finish",
    "refused": "kubectl refuses this drain as it is",
}
_TIMED: Final = {
    "ready": "This drain finishes in {}",
    "slow": "This drain finishes, after waiting, in {}",
    "unknown": (
        "Nothing that was read stops this drain, but not everything was read{lacking}; it takes {}"
    ),
}
_NAMED: Final = 5
_FEW_NODES: Final = 12
_FEW_KINDS: Final = 3
_WEIGHTY: Final = {
    "Pod": "pods",
    "PodDisruptionBudget": "budgets",
    "DaemonSet": "DaemonSets",
    "Namespace": "namespaces",
    "Node": "nodes",
}


def headline(plan: DrainPlan) -> str:
    """`headlines` in one line."""
    return ". ".join(headlines(plan))


def headlines(plan: DrainPlan) -> list[str]:
    """One or two sentences: if and when the drain finishes and which flags it needs, then what
    users notice meanwhile.
    """
    text = _ending(plan)
    then = plan
    if plan.flags_needed:
        text += f"; it needs {' '.join(plan.flags_needed)}"
        if plan.with_flags is not None:
            then = plan.with_flags
            ending = _ending(then)
            text += f". Then: {ending[:1].lower()}{ending[1:]}"
    noticed = list(_noticed(then))
    return [text, f"Meanwhile {', and '.join(noticed)}"] if noticed else [text]


def _ending(plan: DrainPlan) -> str:
    lacking = _lacking({missing.kind for missing in plan.not_evaluated})
    if plan.estimate is None or plan.verdict not in _TIMED:
        return _VERDICTS[plan.verdict].format(lacking=lacking)
    may_fail = [node.may_fail for node in plan.nodes if node.may_fail]
    if may_fail and plan.verdict == SLOW:
        which = f" {may_fail[0]}"
        if len(plan.nodes) > 1:
            which = f": {len(may_fail)} of {len(plan.nodes)} nodes may not be drained{which}"
        return f"This drain may not finish{which}; it takes {span(plan.estimate)}"
    return _TIMED[plan.verdict].format(span(plan.estimate), lacking=lacking)


def _lacking(kinds: set[str]) -> str:
    """` (no budgets, no webhooks or admission policies)`: what may stop the drain first."""
    words = [word for kind, word in _WEIGHTY.items() if kind in kinds]
    others = kinds - _WEIGHTY.keys()
    if others >= {*ADMISSION}:
        words.append("webhooks or admission policies")
        others -= {*ADMISSION}
    named = first_names([f"no {word}" for word in (*words, *sorted(others))], _FEW_KINDS)
    return f" ({named})" if kinds else ""


def _noticed(plan: DrainPlan) -> Iterator[str]:
    """Warnings beside "finishes": workloads at zero, pods without a node."""
    hit = [workload for workload in plan.workloads if workload.outage == FULL]
    if hit:
        ends = [workload.seconds for workload in hit]
        told = [seconds for seconds in ends if seconds is not None]
        has = "has" if len(hit) == 1 else "have"
        how_long = f", which {_no_end(hit)}"
        if len(told) == len(ends):
            how_long = f" for up to {clock(max(told))}"
        of = counted(len(plan.workloads), "workload")
        yield f"{len(hit)} of {of} {has} no ready pod{how_long}"
    stranded = len(plan.stranded())
    if stranded:
        yield f"{counted(stranded, 'pod')} {_find(stranded)} no node to land on"


def consequences(plan: DrainPlan) -> Iterator[str]:
    """The data that is lost for good, with the flag that allows it; and which nodes go together."""
    pods = [pod for pod in plan.pods() if pod.verdict != KEPT]
    bare = [pod for pod in pods if pod.gone_for_good]
    if bare:
        needed = f" ({FLAG_FORCE})" if FLAG_FORCE in plan.flags_needed else ""
        yield f"gone for good{needed}, no controller makes them anew: {_names(bare)}"
    kept_here = [pod for pod in pods if pod.data_lost]
    if kept_here:
        needed = FLAG_DELETE_EMPTYDIR_DATA
        needed = f" ({needed})" if needed in plan.flags_needed else ""
        losses = [f"{_name(pod)} ({', '.join(pod.data_lost)})" for pod in kept_here]
        yield f"emptyDir data lost{needed}: {first_names(losses, _NAMED)}"
    if plan.together is not None and plan.with_flags is None:
        text, stranded = _together(plan.together, len(plan.nodes)), len(plan.stranded())
        if stranded and len(plan.together) == len(plan.nodes):
            text += f", though {counted(stranded, 'pod')} {_find(stranded)} no node to land on"
        yield text


def _find(count: int) -> str:
    return "find" if count > 1 else "finds"


def _together(names: Sequence[str], of: int) -> str:
    if not names:
        return f"together can go: none was found of the {of} nodes"
    if len(names) == of:
        return f"together can go: all {of} nodes"
    named = first_names(names, _FEW_NODES)
    return f"together can go, at most: {named} ({len(names)} of {of} nodes)"


def _names(pods: Iterable[PodPlan]) -> str:
    return first_names([_name(pod) for pod in pods], _NAMED)


def _name(pod: PodPlan) -> str:
    return f"{pod.namespace}/{pod.name}"


def span(estimate: Estimate) -> str:
    """`12s to 20s`"""
    return f"{clock(estimate.low)} to {clock(estimate.high)}"


def outage_length(workload: WorkloadPlan) -> str:
    """How long its outage lasts. The play goes on until nothing changes any more, so that one
    without an end stays until a person does something.
    """
    if workload.seconds is not None:
        return clock(workload.seconds)
    return _no_end([workload])


def _no_end(workloads: Sequence[WorkloadPlan]) -> str:
    stays = any(w.seconds is None and w.end_known for w in workloads)
    return "does not end by itself" if stays else "is not known to end"


_NODE_COLUMNS = columns("node | zone* | verdict | pods | kept | start | end | command*")
_POD_COLUMNS = columns(
    "namespace | pod | node:4 | verdict | gate:1 | start:2 | gone | ready again:5 | lands on* | "
    "reason"
)
_WORKLOAD_COLUMNS = columns(
    "namespace:1 | workload | outage | for | ready:2 | lowest:3 | evicted:4 | time to ready* | "
    "learnt from*"
)
_BUDGET_COLUMNS = columns("namespace | budget | rule | expected | desired | healthy | allowed")
_TONES = {READY: GOOD, SLOW: WARN, UNKNOWN: WARN, NEVER: BAD, REFUSED: BAD}

_MANY = 40
"""Pods of which the plain page shows only those that do not go at the first try."""


_COLUMNS = columns("wave | nodes | pods | promised | took | result")


def drain_page(plan: DrainPlan, source: dict[str, Any]) -> Page:
    """A `DrainPlan` as an answer: blockers on top, then nodes, pods, workloads and budgets.
    `source` says where the objects are from and of which moment.

    Names: node/NAME of each node that can be drained; trouble: how many the drain does not empty.
    """

    def blocks(*, wide: bool) -> Iterator[Block]:
        yield from _blocks(plan, wide, _not_seen(plan, source))
        if plan.with_flags is not None:
            flags = " ".join(plan.flags_needed)
            yield f"With {flags}:\n"
            yield from _blocks(plan.with_flags, wide, "")

    emptied = [node for node in plan.nodes if node.verdict not in (NEVER, REFUSED)]
    return Page(
        blocks,
        partial(plan.document, source),
        lambda: (f"node/{node.name}" for node in emptied),
        lambda: len(plan.nodes) - len(emptied),
    )


def _not_seen(plan: DrainPlan, source: dict[str, Any]) -> str:
    """Of a dump: nodes of which it has no pod at all, though each has static or daemon pods."""
    empty = [node.name for node in plan.nodes if not node.pods and not node.kept]
    if not empty or source.get("kind") != "snapshot":
        return ""
    named = first_names(empty, _NAMED)
    return (
        f"Not read: any pod of {named}, not even a static one or a DaemonSet's. The dump seems "
        "to be a part of the cluster, and nothing is said of what runs there"
    )


# --- for people ----------------------------------------------------------------------------------


def _blocks(plan: DrainPlan, wide: bool, not_seen: str) -> Iterable[Block]:
    lines = headlines(plan)
    if not_seen:
        lines = [not_seen, *(f"Of the rest: {line}" for line in lines)]
    yield "\n".join(lines)
    yield "\n".join(consequences(plan))
    yield "\n".join(_blocker_lines(plan))
    yield Table(_NODE_COLUMNS, [_node_row(node) for node in plan.nodes])
    pods = _pods_to_show(plan, wide)
    yield Table(_POD_COLUMNS, [_pod_row(pod) for pod in pods])
    hidden = len(plan.pods()) - len(pods)
    if hidden and plan.with_flags is None:
        verbs = "goes at the first try or stays" if hidden == 1 else "go at the first try or stay"
        yield f"{counted(hidden, 'more pod')} {verbs} (-o wide shows them)"
    hit = [w for w in plan.workloads if w.outage != "none"]
    yield Table(_WORKLOAD_COLUMNS, [_workload_row(w) for w in hit])
    if wide:
        yield Table(_BUDGET_COLUMNS, [_budget_row(budget) for budget in plan.budgets])
    if plan.with_flags is None:
        yield "\n".join(
            [*(f"webhook {hook.sentence()}" for hook in plan.webhooks), *_footnotes(plan)]
        )


def blockers(plan: DrainPlan) -> list[PodPlan]:
    """The pods that stop the plan, those with a gate of their own first."""
    stopped = [pod for pod in plan.pods() if pod.verdict in (NEVER, REFUSED)]
    return sorted(stopped, key=lambda pod: pod.gate == "none")


def _blocker_lines(plan: DrainPlan) -> Iterable[str]:
    """One line a blocker: what, why, and the cheapest way out. Alike ones are counted."""
    seen: dict[tuple[str, str], list[PodPlan]] = {}
    for pod in blockers(plan):
        if pod.gate != "none" or pod.verdict == NEVER:
            seen.setdefault((pod.gate, pod.reason), []).append(pod)
    for (gate, reason), pods in seen.items():
        first = f"{pods[0].namespace}/{pods[0].name}"
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        yield f"{pods[0].verdict} ({gate}): {first}{more}: {reason}"
        remedy = pods[0].remedy
        if remedy is not None:
            yield f"  to unblock: {remedy.change} (risk: {remedy.risk})"
        elif pods[0].hint:
            yield f"  {pods[0].hint}"


def _pods_to_show(plan: DrainPlan, wide: bool) -> list[PodPlan]:
    pods = plan.pods()
    if plan.with_flags is not None:
        return []  # what kubectl objects to is shown above, and the rest below
    if wide or len(pods) <= _MANY:
        return pods
    return [pod for pod in pods if pod.verdict not in (READY, KEPT)]


def _footnotes(plan: DrainPlan) -> Iterable[str]:
    yield from limits(plan)
    for assumption in plan.assumptions:
        yield f"assumed: {assumption}"


def limits(plan: DrainPlan) -> Iterator[str]:
    """How far the plan is from the best that any could be, when it cordons and why, and what it
    knows nothing of."""
    bound, waves = plan.bound, counted(len(plan.waves), "wave")
    yield f"{waves}; no plan needs fewer than {bound.waves}, nor less than {clock(bound.seconds)}"
    if plan.cordon is not None:
        when = "all nodes first" if plan.cordon.when == CORDON_FIRST else "wave by wave"
        yield f"cordoned {when}: {plan.cordon.because}"
    yield from _not_read(plan)


def _not_read(plan: DrainPlan) -> Iterable[str]:
    """One line for all kinds that were not read: what they could do to the plan."""
    kinds: dict[str, list[str]] = {}
    for missing in plan.not_evaluated:
        kinds.setdefault(missing.why, []).append(missing.kind)
    clauses = [f"{', '.join(names)} ({why})" for why, names in kinds.items()]
    if clauses:
        yield f"not evaluated, because not read: {'; '.join(clauses)}"


def _verdict(verdict: str) -> str:
    tone = _TONES.get(verdict)
    return verdict if tone is None else ColoredText(verdict, tone)


def _node_row(node: NodePlan) -> tuple[object, ...]:
    return (
        node.name,
        node.zone,
        _verdict(node.verdict),
        node.pods,
        len(node.kept),
        clock(node.start),
        clock(node.end),
        node.command,
    )


def _pod_row(pod: PodPlan) -> tuple[object, ...]:
    return (
        pod.namespace,
        pod.name,
        pod.node,
        _verdict(pod.verdict),
        pod.gate,
        clock(pod.start),
        clock(pod.gone),
        clock(pod.end),
        landing_text(pod.landing),
        pod.reason.removesuffix(NOT_READ),
    )


def landing_text(landing: list[PlannedPlacement]) -> str:
    """`a2 (or a3, a4)`, `a2|a3 by chance (or a4)`, or what rules all nodes out."""
    nodes = [place.node for place in landing if place.node]
    if nodes:
        equals = [place.node for place in landing if place.by_chance] or nodes[:1]
        others = nodes[len(equals) :]
        text = "|".join(equals) + (" by chance" if len(equals) > 1 else "")
        return text + (f" (or {', '.join(others)})" if others else "")
    return ", ".join(f"{place.nodes} {place.reason}" for place in landing)


def _workload_row(workload: WorkloadPlan) -> tuple[object, ...]:
    return (
        workload.namespace,
        workload_name(workload),
        ColoredText(workload.outage, BAD if workload.outage == "full" else WARN),
        outage_length(workload),
        workload.ready,
        workload.lowest,
        workload.evicted,
        clock(workload.time_to_ready),
        workload.time_to_ready_from,
    )


def workload_name(workload: WorkloadPlan) -> str:
    """`deployment/web`, the topmost owner."""
    kind, _, name = workload.top.partition("/")
    return f"{kind.lower()}/{name}"


def _budget_row(budget: BudgetPlan) -> tuple[object, ...]:
    return (
        budget.namespace,
        budget.name,
        budget.rule,
        budget.expected,
        budget.desired,
        budget.healthy,
        budget.allowed,
    )


class WaveOutcome(Protocol):
    """A wave that was begun (`acts.drain.WaveRun`)."""

    nodes: list[str]
    promised: Estimate | None
    pods: int
    seconds: float | None
    errors: dict[str, str]


def drain_run_text(waves: Sequence[WaveOutcome]) -> str:
    """The table: promised against real."""
    rows = [(number, *_row(wave)) for number, wave in enumerate(waves, 1)]
    return Table(_COLUMNS, rows).text()


def _row(wave: WaveOutcome) -> Iterator[object]:
    yield ",".join(wave.nodes)
    yield wave.pods
    yield span(wave.promised) if wave.promised is not None else "-"
    yield clock(wave.seconds)
    yield _result(wave.promised, wave.seconds, wave.errors)


def _result(promised: Estimate | None, seconds: float | None, errors: Mapping[str, str]) -> str:
    if errors:
        return f"not drained{'' if promised else ', as promised'}: {', '.join(errors)}"
    if seconds is None or promised is None:
        return "drained"
    if seconds > promised.high:
        return "drained, later than promised"
    if seconds < promised.low:
        return "drained, sooner than promised"
    return "drained, as promised"
