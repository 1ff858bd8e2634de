"""The answer of `drain-plan` in one line, and below it what the drain costs for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubectl_nodelife.drain.outage import FULL
from kubectl_nodelife.drain.results import KEPT, DrainPlan, Estimate, PodPlan, WorkloadPlan
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.sim.kubectl.options import FLAG_DELETE_EMPTYDIR_DATA, FLAG_FORCE

_VERDICTS: Final = {
    "ready": "This drain finishes",
    "slow": "This drain finishes, after waiting",
    "unknown": "Nothing that was read stops this drain, but not everything was read",
    "never": "This drain does not finish",
    "refused": "kubectl refuses this drain as it is",
}
_TIMED: Final = {
    "ready": "This drain finishes in {}",
    "slow": "This drain finishes, after waiting, in {}",
    "unknown": "Nothing that was read stops this drain, but not everything was read; it takes {}",
}
_NAMED: Final = 5
_NODES_NAMED: Final = 12


def headline(plan: DrainPlan) -> str:
    """`headlines` in one line."""
    return ". ".join(headlines(plan))


def headlines(plan: DrainPlan) -> list[str]:
    """One or two sentences: if and when the drain finishes and which flags it needs, then what
    users notice meanwhile.
    """
    text = _verdict(plan)
    then = plan
    if plan.flags_needed:
        text += f"; it needs {' '.join(plan.flags_needed)}"
        if plan.with_flags is not None:
            then = plan.with_flags
            told = _verdict(then)
            text += f". Then: {told[:1].lower()}{told[1:]}"
    noticed = list(_noticed(then))
    return [text, f"Meanwhile {', and '.join(noticed)}"] if noticed else [text]


def _verdict(plan: DrainPlan) -> str:
    if plan.estimate is None or plan.verdict not in _TIMED:
        return _VERDICTS[plan.verdict]
    return _TIMED[plan.verdict].format(span(plan.estimate))


def _noticed(plan: DrainPlan) -> Iterator[str]:
    """Warnings beside "finishes": workloads at zero, pods without a node."""
    hit = [workload for workload in plan.workloads if workload.outage == FULL]
    if hit:
        ends = [workload.seconds for workload in hit]
        known = [seconds for seconds in ends if seconds is not None]
        has = "has" if len(hit) == 1 else "have"
        how_long = f", which {_no_end(hit)}"
        if len(known) == len(ends):
            how_long = f" for up to {clock(max(known))}"
        of = counted(len(plan.workloads), "workload")
        yield f"{len(hit)} of {of} {has} no ready pod{how_long}"
    stranded = len(plan.stranded())
    if stranded:
        yield f"{counted(stranded, 'pod')} {'find' if stranded > 1 else 'finds'} no node to land on"


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
        told = [f"{_name(pod)} ({', '.join(pod.data_lost)})" for pod in kept_here]
        yield f"emptyDir data lost{needed}: {first_names(told, _NAMED)}"
    if plan.together is not None and plan.with_flags is None:
        yield _together(plan.together, len(plan.nodes))


def _together(names: Sequence[str], of: int) -> str:
    if not names:
        return f"together can go: none of the {of} nodes"
    if len(names) == of:
        return f"together can go: all {of} nodes"
    named = first_names(names, _NODES_NAMED)
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
    without an end stays until somebody does something.
    """
    if workload.seconds is not None:
        return clock(workload.seconds)
    return _no_end([workload])


def _no_end(workloads: Sequence[WorkloadPlan]) -> str:
    stays = any(w.seconds is None and w.end_known for w in workloads)
    return "does not end by itself" if stays else "is not known to end"


def clock(seconds: float | None) -> str:
    """`4.2s`, `72s`, `12m05s`, `2h03m`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
