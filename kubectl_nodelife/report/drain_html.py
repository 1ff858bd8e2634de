"""A drain plan as one self-contained page: blockers on top, a Gantt chart, budgets over time.

No script, no font, nothing fetched: the file can be mailed, archived and printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from kubectl_nodelife.drain.results import NEVER, REFUSED, DrainPlan, NodePlan, PodPlan
from kubectl_nodelife.report.drain import blockers, clock, headline, landing_text
from kubectl_nodelife.report.drain_svg import budget_chart, gantt, horizon, wave_charts
from kubectl_nodelife.report.html import render_page

_MOST_ROWS = 600
"""Rows of the table of pods; the others are counted."""
_MOST_BUDGETS = 40
_MOST_BLOCKERS = 100
_MOST_NOTES = 200
_LONGEST = 600
"""Characters of a text from the cluster: a policy's message may have a million."""


def page(plan: DrainPlan, source: dict[str, Any]) -> str:
    """The page. What comes from the cluster is escaped."""
    shown = plan.with_flags or plan
    parts = [
        *_head(plan, source),
        *_blockers(plan),
    ]
    if shown is not plan:
        flags = " ".join(plan.flags_needed)
        parts.append(f"<h2>With <code>{escape(flags)}</code></h2><p>{escape(headline(shown))}</p>")
        parts += _blockers(shown)
    parts += [
        *_chart(shown),
        *_budgets(shown),
        *_nodes(shown),
        *_workloads(shown),
        *_pods(shown),
        *_notes(shown),
    ]
    return render_page("drain", _title(plan), parts)


def _title(plan: DrainPlan) -> str:
    names = [node.name for node in plan.nodes]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Drain plan of {', '.join(names[:3])}{more}"


def _head(plan: DrainPlan, source: dict[str, Any]) -> Iterable[str]:
    yield f"<h1>{escape(_title(plan))}</h1>"
    yield (
        f'<p><span class="verdict {plan.verdict}">{plan.verdict}</span>'
        f" {escape(headline(plan))}</p>"
    )
    moment = source.get("moment") or {}
    if moment:
        told = f"of {moment.get('time', '')} ({moment.get('origin', '')})"
        yield f'<p class="dim">From objects {escape(told)}. Times count from the start.</p>'


def _blockers(plan: DrainPlan) -> Iterable[str]:
    told: dict[tuple[str, str], list[PodPlan]] = {}
    for pod in blockers(plan):
        if pod.gate != "none" or pod.verdict == NEVER:
            told.setdefault((pod.gate, pod.reason), []).append(pod)
    if not told:
        return
    yield '<ul class="blockers">'
    for (gate, reason), pods in list(told.items())[:_MOST_BLOCKERS]:
        names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:5])
        more = f" and {len(pods) - 5} more" if len(pods) > 5 else ""
        yield f"<li><strong>{escape(gate)}</strong> {escape(names + more)}<br>{_text(reason)}"
        remedy = pods[0].remedy
        if remedy is not None:
            yield (
                f"<br>To unblock: <code>{_text(remedy.change)}</code>"
                f' <span class="dim">Risk: {escape(remedy.risk)}</span>'
            )
        yield "</li>"
    if len(told) > _MOST_BLOCKERS:
        yield f"<li>and {len(told) - _MOST_BLOCKERS} more reasons</li>"
    yield "</ul>"


def _chart(plan: DrainPlan) -> Iterable[str]:
    yield "<h2>When</h2>"
    words = (
        ("waiting", "waits for its turn or its budget"),
        ("going", "is terminating"),
        ("starting", "replacement starts"),
        ("stuck", "does not go"),
    )
    key = "".join(
        f'<span style="background: var(--{style}, #f2b8b5)"></span>{word}' for style, word in words
    )
    yield f'<p class="key dim">{key}</p><div class="scroll">{gantt(plan)}</div>'
    for index, chart in wave_charts(plan):
        yield f'<h3>Wave {index + 1}</h3><div class="scroll">{chart}</div>'


def _budgets(plan: DrainPlan) -> Iterable[str]:
    moved = [b for b in plan.budgets if len(b.points) > 1 or b.allowed == 0]
    if not moved:
        return
    yield "<h2>Budgets over time</h2>"
    yield '<p class="dim">Healthy pods (line) and how many the budget asks for (dashes).</p>'
    yield '<div class="budgets">'
    last = horizon(plan)
    moved.sort(key=lambda budget: min(p.allowed for p in budget.points) if budget.points else 0)
    for budget in moved[:_MOST_BUDGETS]:
        name = f"{budget.namespace}/{budget.name}"
        told = (
            f"{budget.rule}: {budget.healthy} healthy of {budget.expected},"
            f" {budget.desired} needed, {budget.allowed} may go"
        )
        yield (
            f"<figure><figcaption><strong>{escape(name)}</strong>"
            f' <span class="dim">{escape(told)}</span></figcaption>'
            f"{budget_chart(budget, last)}</figure>"
        )
    yield "</div>"
    if len(moved) > _MOST_BUDGETS:
        yield f'<p class="dim">and {len(moved) - _MOST_BUDGETS} more</p>'


def _nodes(plan: DrainPlan) -> Iterable[str]:
    yield "<h2>Nodes</h2>"
    yield from _table(
        ("node", "zone", "verdict", "pods", "kept", "from", "to", "command"),
        [_node_cells(node) for node in plan.nodes[: 5 * _MOST_ROWS]],
    )


def _node_cells(node: NodePlan) -> tuple[object, ...]:
    return (
        node.name,
        node.zone,
        node.verdict,
        node.pods,
        len(node.kept),
        clock(node.start),
        clock(node.end),
        node.command,
    )


def _workloads(plan: DrainPlan) -> Iterable[str]:
    hit = [w for w in plan.workloads if w.outage != "none"]
    if not hit:
        return
    yield "<h2>What users notice</h2>"
    yield from _table(
        ("workload", "outage", "for", "ready", "lowest", "evicted", "time to ready", "learnt from"),
        [
            (
                f"{w.namespace}/{w.kind.lower()}/{w.name}",
                w.outage,
                clock(w.seconds) if w.seconds is not None else "no end seen",
                w.ready,
                w.lowest,
                w.evicted,
                clock(w.time_to_ready),
                w.time_to_ready_from,
            )
            for w in hit[:_MOST_ROWS]
        ],
    )


def _pods(plan: DrainPlan) -> Iterable[str]:
    pods = plan.pods()
    order = {REFUSED: 0, NEVER: 1, "unknown": 2, "slow": 3, "ready": 4}
    pods = sorted(pods, key=lambda pod: order.get(pod.verdict, 5))
    yield "<h2>Pods</h2>"
    yield from _table(
        ("pod", "node", "verdict", "gate", "evicted", "gone", "replaced", "lands on", "why"),
        [
            (
                f"{pod.namespace}/{pod.name}",
                pod.node,
                pod.verdict,
                pod.gate,
                clock(pod.start),
                clock(pod.gone),
                clock(pod.end),
                landing_text(pod.landing),
                pod.reason,
            )
            for pod in pods[:_MOST_ROWS]
        ],
    )
    if len(pods) > _MOST_ROWS:
        yield f'<p class="dim">and {len(pods) - _MOST_ROWS} more</p>'


def _notes(plan: DrainPlan) -> Iterable[str]:
    yield "<h2>What this rests on</h2><ul>"
    bound = plan.bound
    yield (
        f"<li>{len(plan.waves)} wave{'s' if len(plan.waves) != 1 else ''}; no plan needs fewer"
        f" than {bound.waves},"
        f" nor less than {clock(bound.seconds)}</li>"
    )
    for missing in plan.not_evaluated:
        yield f"<li>Not read: {escape(missing.kind)}; {escape(missing.why)}</li>"
    notes = (*plan.assumptions, *plan.warnings)
    for text in notes[:_MOST_NOTES]:
        yield f"<li>{_text(text)}</li>"
    if len(notes) > _MOST_NOTES:
        yield f"<li>and {len(notes) - _MOST_NOTES} more</li>"
    yield "</ul>"


def _table(headers: tuple[str, ...], rows: list[tuple[object, ...]]) -> Iterable[str]:
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(header)}</th>" for header in headers)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(_cell(str(cell)) for cell in row) + "</tr>"
    yield "</tbody></table></div>"


def _cell(text: str) -> str:
    kind = ' class="short"' if len(text) <= 12 else ""
    return f"<td{kind}>{_text(text)}</td>"


def _text(text: str) -> str:
    """The text escaped, and cut where it is very long."""
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
