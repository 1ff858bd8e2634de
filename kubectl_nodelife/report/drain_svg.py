"""The pictures of a drain plan: a Gantt chart of waves and pods, and budgets over time, as SVG.

Text only, no script: the page must stand alone and print. Every name is escaped, for a dump may
hold anything. Positions are numbers of our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from kubectl_nodelife.drain.results import (
    KEPT,
    NEVER,
    REFUSED,
    BudgetPlan,
    DrainPlan,
    PodPlan,
    WavePlan,
)
from kubectl_nodelife.report.drain import clock

ROW: Final = 18
LEFT: Final = 300
WIDTH: Final = 1100
TOP: Final = 26
MOST_POD_ROWS: Final = 250
"""With more pods than that a chart has one bar for each node."""
MOST_ROWS: Final = 4000
MOST_POINTS: Final = 1000
"""Of a budget's line: it is some 500 pixels wide."""
LONGEST_TITLE: Final = 300

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)


class Bar(NamedTuple):
    """A stretch of time in a row: from, to, and its CSS class."""

    begin: float
    end: float
    style: str


class Row(NamedTuple):
    """A line of the chart. `mark` is a word at its end; `title` the text under the pointer."""

    label: str
    bars: Sequence[Bar]
    title: str = ""
    style: str = ""
    mark: str = ""


def horizon(plan: DrainPlan) -> float:
    """The last instant worth showing, in seconds."""
    times = [t for pod in plan.pods() for t in (pod.start, pod.gone, pod.end) if t is not None]
    times += [t for wave in plan.waves for t in (wave.start, wave.end) if t is not None]
    times += [node.end for node in plan.nodes if node.end is not None]
    return max([1.0, *times])


def gantt(plan: DrainPlan) -> str:
    """The chart of nodes and their pods; for waves of our own, of waves and nodes."""
    last = horizon(plan)
    by_pod = not plan.own_waves and len(plan.pods()) <= MOST_POD_ROWS
    rows: list[Row] = []
    for wave in plan.waves:
        if plan.own_waves:
            span = _span(wave.start, wave.end, last, "wave")
            rows.append(Row(f"wave {wave.index + 1}", span, f"{len(wave.nodes)} nodes", "group"))
        rows += _wave_rows(plan, wave, by_pod, last)
    return _chart(rows[:MOST_ROWS], 0.0, last)


def wave_charts(plan: DrainPlan) -> list[tuple[int, str]]:
    """(index, chart) of each wave of our own, on its own axis: a maintenance lies between them."""
    if not plan.own_waves or len(plan.pods()) > 4 * MOST_POD_ROWS:
        return []
    charts = []
    for wave in plan.waves:
        if wave.start is not None:
            last = wave.end if wave.end is not None else horizon(plan)
            rows = list(_wave_rows(plan, wave, True, last))
            charts.append((wave.index, _chart(rows, wave.start, max(last, wave.start + 1))))
    return charts


def _wave_rows(plan: DrainPlan, wave: WavePlan, by_pod: bool, last: float) -> Iterable[Row]:
    nodes = {node.name: node for node in plan.nodes}
    for name in wave.nodes:
        node = nodes[name]
        pods = [pod for pod in wave.pods if pod.node == name and pod.verdict != KEPT]
        span = _span(node.start, node.end, last, "node")
        yield Row(name, span, f"{name}: {len(pods)} pods", "group", _mark(pods))
        if by_pod:
            for pod in pods:
                yield _pod_row(pod, node.start or 0.0, last)


def _span(begin: float | None, end: float | None, last: float, style: str) -> list[Bar]:
    return [] if begin is None else [Bar(begin, last if end is None else end, style)]


def _mark(pods: list[PodPlan]) -> str:
    for verdict in (REFUSED, NEVER):
        count = sum(1 for pod in pods if pod.verdict == verdict)
        if count:
            return f"{count} {verdict}"
    return ""


def _pod_row(pod: PodPlan, begin: float, last: float) -> Row:
    """Waiting for the eviction, going, and until the replacement is Ready."""
    bars = []
    start = pod.start
    if start is None:
        if pod.verdict != REFUSED:
            bars.append(Bar(begin, last, "stuck"))
    else:
        if start - begin > 1:
            bars.append(Bar(begin, start, "waiting"))
        gone = pod.gone if pod.gone is not None else last
        bars.append(Bar(start, gone, "going" if pod.gone is not None else "stuck"))
        if pod.end is not None and pod.end > gone:
            bars.append(Bar(gone, pod.end, "starting"))
    mark = ""
    if pod.verdict not in ("ready", "slow"):
        mark = pod.verdict if pod.gate == "none" else f"{pod.verdict}: {pod.gate}"
    return Row(f"{pod.namespace}/{pod.name}", bars, pod.reason, pod.verdict, mark)


def _chart(rows: list[Row], first: float, last: float) -> str:
    scale = (WIDTH - LEFT - 130) / (last - first)
    height = TOP + ROW * len(rows) + 8
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-label="waves and pods over time">'
    ]
    for tick in ticks(last - first):
        x = LEFT + tick * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{TOP - 8}">{clock(first + tick)}</text>')
    for i, row in enumerate(rows):
        parts += _row_parts(row, TOP + i * ROW, first, scale)
    return "\n".join([*parts, "</svg>"])


def _row_parts(row: Row, y: int, first: float, scale: float) -> Iterable[str]:
    title = f"<title>{escape((row.title or row.label)[:LONGEST_TITLE])}</title>"
    indent = 0 if row.style == "group" else 14
    yield f'<g class="row {row.style}">{title}'
    yield (
        f'<text class="label" x="{indent}" y="{y + 13}">'
        f"{escape(_shortened(row.label, 46 - indent // 6))}</text>"
    )
    right = float(LEFT)
    for bar in row.bars:
        x = LEFT + (bar.begin - first) * scale
        width = max(1.5, (bar.end - bar.begin) * scale)
        yield (
            f'<rect class="{bar.style}" x="{x:.1f}" y="{y + 3}" width="{width:.1f}"'
            f' height="{ROW - 6}"/>'
        )
        right = max(right, x + width)
    if row.mark:
        yield f'<text class="mark" x="{right + 5:.1f}" y="{y + 13}">{escape(row.mark)}</text>'
    yield "</g>"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"


def ticks(last: float) -> list[float]:
    """Round instants from 0 to the end, at most ten or so, however far the end is."""
    step = next((step for step in _STEPS if last / step <= 10), _STEPS[-1])
    while last / step > 10:
        step *= 10
    return [float(i * step) for i in range(int(last // step) + 1)]


def budget_chart(budget: BudgetPlan, last: float) -> str:
    """Healthy and desired pods of one budget over time, as two stepped lines."""
    width, height, left = 520, 90, 34
    top = max([p.healthy for p in budget.points] + [p.desired for p in budget.points] + [1])
    x_scale = (width - left - 10) / last
    y_scale = (height - 26) / top

    def stepped(values: list[tuple[float, int]]) -> str:
        points: list[str] = []
        before: int | None = None
        for at, value in values:
            x = left + min(at, last) * x_scale
            if before is not None:
                points.append(f"{x:.1f},{height - 16 - before * y_scale:.1f}")
            points.append(f"{x:.1f},{height - 16 - value * y_scale:.1f}")
            before = value
        if before is not None:
            points.append(f"{left + last * x_scale:.1f},{height - 16 - before * y_scale:.1f}")
        return " ".join(points)

    shown = budget.points[:: -(-len(budget.points) // MOST_POINTS) or 1]
    healthy = stepped([(p.at, p.healthy) for p in shown])
    desired = stepped([(p.at, p.desired) for p in shown])
    axis = "".join(
        f'<text class="tick" x="{left + t * x_scale:.1f}" y="{height - 3}">{clock(t)}</text>'
        for t in ticks(last)[::2]
    )
    return (
        f'<svg class="budget" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" aria-label="{escape(budget.name)} over time">'
        f'<text class="tick end" x="{left - 4}" y="{height - 12 - top * y_scale:.1f}">{top}</text>'
        f'<text class="tick end" x="{left - 4}" y="{height - 12}">0</text>{axis}'
        f'<polyline class="healthy" points="{healthy}"/>'
        f'<polyline class="desired" points="{desired}"/></svg>'
    )
