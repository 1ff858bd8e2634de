"""The page of `drain-plan`: the answer in one line, what stops the drain and what it costs for
good, then nodes, pods, workloads, budgets; of a drain that was carried out, each wave's promised
and real time.

As a page of HTML it has lanes of waves, nodes and pods, and of budgets over time, then the same
blocks. templates/drain.html makes the markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol

from kubectl_nodelife.drain import results
from kubectl_nodelife.kube.kinds import ADMISSION_KINDS
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import clock
from kubectl_nodelife.report import html
from kubectl_nodelife.report.formats import Block, Page, Table, columns
from kubectl_nodelife.report.terminal import BAD, GOOD, WARN, ColoredText
from kubectl_nodelife.sim.kubectl.options import FLAG_DELETE_EMPTYDIR_DATA, FLAG_FORCE

_VERDICTS: Final = {
    "ready": "This drain finishes",
    "slow": "This drain finishes, after waiting",
    "unknown": "Nothing that was read stops this drain, but not everything was read{lacking}",
    "never": "This drain does not finish",
    "refused": "kubectl refuses this drain as it is",
}
_TAKES: Final = {"ready": " in", "slow": ", in", "unknown": "; it takes"}
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


def headline(plan: results.DrainPlan) -> str:
    """`headlines` in one line."""
    return ". ".join(headlines(plan))


def headlines(plan: results.DrainPlan) -> list[str]:
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


def _ending(plan: results.DrainPlan) -> str:
    lacking = _lacking({missing.kind for missing in plan.not_evaluated})
    text = _VERDICTS[plan.verdict].format(lacking=lacking)
    if plan.estimate is None or plan.verdict not in _TAKES:
        return text
    may_fail = [node.may_fail for node in plan.nodes if node.may_fail]
    if may_fail and plan.verdict == results.SLOW:
        which = f" {may_fail[0]}"
        if len(plan.nodes) > 1:
            which = f": {len(may_fail)} of {len(plan.nodes)} nodes may not be drained{which}"
        return f"This drain may not finish{which}; it takes {span(plan.estimate)}"
    return f"{text}{_TAKES[plan.verdict]} {span(plan.estimate)}"


def _lacking(kinds: set[str]) -> str:
    """` (no budgets, no webhooks or admission policies)`: what may stop the drain first."""
    words = [word for kind, word in _WEIGHTY.items() if kind in kinds]
    others = kinds - _WEIGHTY.keys()
    if others >= {*ADMISSION_KINDS}:
        words.append("webhooks or admission policies")
        others -= {*ADMISSION_KINDS}
    named = first_names([f"no {word}" for word in (*words, *sorted(others))], _FEW_KINDS)
    return f" ({named})" if kinds else ""


def _noticed(plan: results.DrainPlan) -> Iterator[str]:
    """Warnings beside "finishes": workloads at zero, pods without a node."""
    hit = [workload for workload in plan.workloads if workload.outage == results.FULL]
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


def consequences(plan: results.DrainPlan) -> Iterator[str]:
    """The data that is lost for good, with the flag that allows it; and which nodes go together."""
    pods = [pod for pod in plan.pods() if pod.verdict != results.KEPT]
    bare = [pod for pod in pods if pod.gone_for_good]
    if bare:
        needed = f" ({FLAG_FORCE})" if FLAG_FORCE in plan.flags_needed else ""
        named = first_names([_name(pod) for pod in bare], _NAMED)
        yield f"gone for good{needed}, no controller makes them anew: {named}"
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


def _name(pod: results.PodPlan) -> str:
    return f"{pod.namespace}/{pod.name}"


def span(estimate: results.Estimate) -> str:
    """`12s to 20s`"""
    return f"{clock(estimate.low)} to {clock(estimate.high)}"


def outage_length(workload: results.WorkloadPlan) -> str:
    """How long its outage lasts. The play goes on until nothing changes any more, so that one
    without an end stays until a person does something.
    """
    if workload.seconds is not None:
        return clock(workload.seconds)
    return _no_end([workload])


def _no_end(workloads: Sequence[results.WorkloadPlan]) -> str:
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
_BUDGET_CELLS = attrgetter("namespace", "name", "rule", "expected", "desired", "healthy", "allowed")
_TONES = {
    results.READY: GOOD,
    results.SLOW: WARN,
    results.UNKNOWN: WARN,
    results.NEVER: BAD,
    results.REFUSED: BAD,
}

_MANY = 40
"""Pods of which the plain page shows only those that do not go at the first try."""


_COLUMNS = columns("wave | nodes | pods | promised | took | result")


def drain_page(plan: results.DrainPlan, source: dict[str, Any]) -> Page:
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

    emptied = [node for node in plan.nodes if node.verdict not in (results.NEVER, results.REFUSED)]
    return Page(
        blocks,
        partial(plan.document, source),
        lambda: (f"node/{node.name}" for node in emptied),
        lambda: len(plan.nodes) - len(emptied),
    )


def _not_seen(plan: results.DrainPlan, source: dict[str, Any]) -> str:
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


def _blocks(plan: results.DrainPlan, wide: bool, not_seen: str) -> Iterable[Block]:
    lines = headlines(plan)
    if not_seen:
        lines = [not_seen, *(f"Of the rest: {line}" for line in lines)]
    yield "\n".join(lines)
    yield "\n".join(consequences(plan))
    yield "\n".join(blocker_lines(plan))
    yield from tables(plan, wide=wide)


def tables(plan: results.DrainPlan, *, wide: bool) -> Iterator[Block]:
    """What follows the answer: nodes, pods, workloads and budgets, and what the plan rests on."""
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
        yield Table(_BUDGET_COLUMNS, map(_BUDGET_CELLS, plan.budgets))
    if plan.with_flags is None:
        yield "\n".join(
            [*(f"webhook {hook.sentence()}" for hook in plan.webhooks), *_footnotes(plan)]
        )


def blocker_lines(plan: results.DrainPlan) -> Iterator[str]:
    """What stops the plan, pods with a gate of their own first: what, why, and the cheapest way
    out. Alike ones are one.
    """
    seen: dict[tuple[str, str], list[results.PodPlan]] = {}
    stopped = [pod for pod in plan.pods() if pod.verdict in (results.NEVER, results.REFUSED)]
    for pod in sorted(stopped, key=lambda pod: pod.gate == "none"):
        if pod.gate != "none" or pod.verdict == results.NEVER:
            seen.setdefault((pod.gate, pod.reason), []).append(pod)
    for (gate, reason), pods in seen.items():
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        line = f"{pods[0].verdict} ({gate}): {_name(pods[0])}{more}: {reason}"
        remedy = pods[0].remedy
        if remedy is not None:
            line += f"\n  to unblock: {remedy.change} (risk: {remedy.risk})"
        elif pods[0].hint:
            line += f"\n  {pods[0].hint}"
        yield line


def _pods_to_show(plan: results.DrainPlan, wide: bool) -> list[results.PodPlan]:
    pods = plan.pods()
    if plan.with_flags is not None:
        return []  # what kubectl objects to is shown above, and the rest below
    if wide or len(pods) <= _MANY:
        return pods
    return [pod for pod in pods if pod.verdict not in (results.READY, results.KEPT)]


def _footnotes(plan: results.DrainPlan) -> Iterable[str]:
    yield from _limits(plan)
    for assumption in plan.assumptions:
        yield f"assumed: {assumption}"


def _limits(plan: results.DrainPlan) -> Iterator[str]:
    """How far the plan is from the best that any could be, when it cordons and why, and what it
    knows nothing of."""
    bound, waves = plan.bound, counted(len(plan.waves), "wave")
    yield f"{waves}; no plan needs fewer than {bound.waves}, nor less than {clock(bound.seconds)}"
    if plan.cordon is not None:
        when = "all nodes first" if plan.cordon.when == results.CORDON_FIRST else "wave by wave"
        yield f"cordoned {when}: {plan.cordon.because}"
    yield from _not_read(plan)


def _not_read(plan: results.DrainPlan) -> Iterable[str]:
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


def _node_row(node: results.NodePlan) -> tuple[object, ...]:
    counts = (_verdict(node.verdict), node.pods, len(node.kept))
    return (node.name, node.zone, *counts, clock(node.start), clock(node.end), node.command)


def _pod_row(pod: results.PodPlan) -> tuple[object, ...]:
    reason = pod.reason.removesuffix(results.NOT_READ)
    times = (clock(pod.start), clock(pod.gone), clock(pod.end))
    what = (pod.namespace, pod.name, pod.node, _verdict(pod.verdict), pod.gate)
    return (*what, *times, landing_text(pod.landing), reason)


def landing_text(landing: list[results.PlannedPlacement]) -> str:
    """`a2 (or a3, a4)`, `a2|a3 by chance (or a4)`, or what rules all nodes out."""
    nodes = [place.node for place in landing if place.node]
    if nodes:
        equals = [place.node for place in landing if place.by_chance] or nodes[:1]
        others = nodes[len(equals) :]
        text = "|".join(equals) + (" by chance" if len(equals) > 1 else "")
        return text + (f" (or {', '.join(others)})" if others else "")
    return ", ".join(f"{place.nodes} {place.reason}" for place in landing)


def _workload_row(workload: results.WorkloadPlan) -> tuple[object, ...]:
    kind, _, name = workload.top.partition("/")  # of the topmost owner
    outage = ColoredText(workload.outage, BAD if workload.outage == "full" else WARN)
    what = (workload.namespace, f"{kind.lower()}/{name}", outage, outage_length(workload))
    learnt = (clock(workload.time_to_ready), workload.time_to_ready_from)
    return (*what, workload.ready, workload.lowest, workload.evicted, *learnt)


class WaveOutcome(Protocol):
    """A wave that was begun (`acts.drain.WaveRun`)."""

    nodes: list[str]
    promised: results.Estimate | None
    pods: int
    seconds: float | None
    errors: dict[str, str]


def drain_run_text(waves: Sequence[WaveOutcome]) -> str:
    """The table: promised against real."""
    rows = []
    for number, wave in enumerate(waves, 1):
        promised = span(wave.promised) if wave.promised is not None else "-"
        nodes, took = ",".join(wave.nodes), clock(wave.seconds)
        rows.append((number, nodes, wave.pods, promised, took, _result(wave)))
    return Table(_COLUMNS, rows).text()


def _result(wave: WaveOutcome) -> str:
    promised, seconds = wave.promised, wave.seconds
    if wave.errors:
        return f"not drained{'' if promised else ', as promised'}: {', '.join(wave.errors)}"
    if seconds is None or promised is None:
        return "drained"
    if seconds > promised.high:
        return "drained, later than promised"
    if seconds < promised.low:
        return "drained, sooner than promised"
    return "drained, as promised"


# --- as HTML --------------------------------------------------------------------------------------

_MOST_BUDGETS = 40
_MOST_NOTES = 200
_BARS = (
    ("waiting", "waits for its turn or its budget"),
    ("going", "is terminating"),
    ("starting", "replacement starts"),
    ("stuck", "does not go"),
)
_MAINTENANCE = ("maintenance", "maintenance")


def html_page(plan: results.DrainPlan, source: dict[str, Any]) -> str:
    """The page as HTML."""
    shown = plan.with_flags or plan
    parts = html.parts_of(tables(shown, wide=True))
    notes, budgets = [*parts.below, *shown.warnings], _moving_budgets(shown)
    return html.render_page(
        "drain",
        title=f"Drain plan of {first_names([node.name for node in plan.nodes], 3)}",
        verdict=plan.verdict,
        headline=headline(plan),
        consequences=list(consequences(plan)),
        moment=source.get("moment"),
        blockers=_blockers(plan),
        with_flags=plan.with_flags and " ".join(plan.flags_needed),
        then=headline(shown),
        blockers_then=_blockers(shown),
        bars=(*_BARS, _MAINTENANCE) if shown.maintenance else _BARS,
        when=plan_chart(shown),
        waves=[(index + 1, chart) for index, chart in wave_charts(shown)],
        budgets=html.draw_lanes(budgets[:_MOST_BUDGETS], 0.0, horizon(shown)) if budgets else None,
        more_budgets=len(budgets[_MOST_BUDGETS:]),
        parts=parts,
        notes=notes[:_MOST_NOTES],
        more_notes=len(notes[_MOST_NOTES:]),
    )


def _blockers(plan: results.DrainPlan) -> list[str]:
    """What stops the drain, as much of it as can be read."""
    lines = list(blocker_lines(plan))
    more = len(lines) - _MOST_NOTES
    return lines if more <= 0 else [*lines[:_MOST_NOTES], f"and {more} more reasons"]


def _moving_budgets(plan: results.DrainPlan) -> list[html.Row]:
    """A lane of each budget whose pods become fewer or more, the scarcest first."""
    moving = [budget for budget in plan.budgets if not html.is_level(budget.points)]
    moving.sort(key=lambda budget: min(point.allowed for point in budget.points))
    return [
        html.Row(
            f"{budget.namespace}/{budget.name}",
            words=f"{budget.rule}: {budget.healthy} healthy of {budget.expected},"
            f" {budget.desired} needed, {budget.allowed} may go",
            lines=html.budget_lines(budget.points),
        )
        for budget in moving
    ]


MOST_POD_ROWS: Final = 250
"""With more pods than that a chart has one bar for each node."""
MOST_ROWS: Final = 2000
"""A row of a node whose name has 253 characters takes 600 bytes of the page."""


def horizon(plan: results.DrainPlan) -> float:
    """The last instant worth showing, in seconds."""
    times = [t for pod in plan.pods() for t in (pod.start, pod.gone, pod.end) if t is not None]
    times += [t for wave in plan.waves for t in (wave.start, wave.end) if t is not None]
    times += [node.end for node in plan.nodes if node.end is not None]
    times += [wave.end + plan.maintenance for wave in plan.waves if wave.end is not None]
    return max([1.0, *times])


def plan_chart(plan: results.DrainPlan) -> html.LaneChart:
    """The chart of nodes and their pods; for waves of our own, of waves and nodes."""
    last = horizon(plan)
    by_pod = not plan.own_waves and len(plan.pods()) <= MOST_POD_ROWS
    rows: list[html.Row] = []
    for wave in plan.waves:
        if plan.own_waves:
            span = _span(wave.start, wave.end, last, "wave")
            size = counted(len(wave.nodes), "node")
            rows.append(html.Row(f"wave {wave.index + 1}", span, size, "group", note=size))
        rows += _wave_rows(plan, wave, by_pod, last)
    return html.draw_lanes(rows[:MOST_ROWS], 0.0, last)


def wave_charts(plan: results.DrainPlan) -> list[tuple[int, html.LaneChart]]:
    """(index, chart) of each wave of our own, on its own axis: a maintenance lies between them."""
    if not plan.own_waves or len(plan.pods()) > 4 * MOST_POD_ROWS:
        return []
    charts = []
    for wave in plan.waves:
        if wave.start is not None:
            last = wave.end if wave.end is not None else horizon(plan)
            rows = _wave_rows(plan, wave, True, last)
            chart = html.draw_lanes(rows, wave.start, max(last, wave.start + 1))
            charts.append((wave.index, chart))
    return charts


def _wave_rows(
    plan: results.DrainPlan, wave: results.WavePlan, by_pod: bool, last: float
) -> Iterable[html.Row]:
    nodes = {node.name: node for node in plan.nodes}
    for name in wave.nodes:
        node = nodes[name]
        pods = [pod for pod in wave.pods if pod.node == name and pod.verdict != results.KEPT]
        span = [*_span(node.start, node.end, last, "node"), *_maintenance(plan, wave, last)]
        yield html.Row(name, span, name, "group", _mark(pods), counted(len(pods), "pod"))
        if by_pod:
            for pod in pods:
                yield _pod_lane(pod, node.start or 0.0, last)


def _span(begin: float | None, end: float | None, last: float, style: str) -> list[html.Bar]:
    return [] if begin is None else [html.Bar(begin, last if end is None else end, style)]


def _maintenance(plan: results.DrainPlan, wave: results.WavePlan, last: float) -> list[html.Bar]:
    """The time in which the nodes of the wave are out of service, as far as the chart reaches."""
    if not plan.maintenance or wave.end is None or wave.end >= last:
        return []
    return [html.Bar(wave.end, min(last, wave.end + plan.maintenance), "maintenance")]


def _mark(pods: list[results.PodPlan]) -> str:
    for verdict in (results.REFUSED, results.NEVER):
        count = sum(1 for pod in pods if pod.verdict == verdict)
        if count:
            return f"{count} {verdict}"
    return ""


def _pod_lane(pod: results.PodPlan, begin: float, last: float) -> html.Row:
    """Waiting for the eviction, going, and until the replacement is Ready."""
    bars = []
    start = pod.start
    if start is None:
        if pod.verdict != results.REFUSED:
            bars.append(html.Bar(begin, last, "stuck"))
    else:
        if start - begin > 1:
            bars.append(html.Bar(begin, start, "waiting"))
        gone = pod.gone if pod.gone is not None else last
        bars.append(html.Bar(start, gone, "going" if pod.gone is not None else "stuck"))
        if pod.end is not None and pod.end > gone:
            bars.append(html.Bar(gone, pod.end, "starting"))
    mark = ""
    unread = (pod.verdict, pod.gate) == (results.UNKNOWN, "none")
    if pod.verdict not in (results.READY, results.SLOW) and not unread:
        mark = pod.verdict if pod.gate == "none" else f"{pod.verdict}: {pod.gate}"
    title = pod.reason.removesuffix(results.NOT_READ)
    return html.Row(f"{pod.namespace}/{pod.name}", bars, title, f"pod {pod.verdict}", mark)
