"""The pictures of a drain plan: a Gantt chart of waves and pods, and budgets over time.

What is here are positions and texts; templates/charts.html makes SVG of them, without script: the
page must stand alone and print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.drain.results import (
    KEPT,
    NEVER,
    NOT_READ,
    REFUSED,
    UNKNOWN,
    BudgetPlan,
    BudgetPoint,
    DrainPlan,
    PodPlan,
    WavePlan,
)
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.report.ages import clock
from kubectl_nodelife.report.html import Tick

ROW: Final = 18
LEFT: Final = 300
"""The most space for labels; shorter ones leave it to the bars, which counts on a narrow screen."""
LABEL_SPACE: Final = 30
LETTER: Final = 7
WIDTH: Final = 1100
MARKS: Final = 130
"""Room for the marks to the right of the bars."""
TOP: Final = 26
MOST_POD_ROWS: Final = 250
"""With more pods than that a chart has one bar for each node."""
MOST_ROWS: Final = 2000
"""A row of a node whose name has 253 characters takes 600 bytes of the page."""
MOST_POINTS: Final = 500
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


class DrawnBar(NamedTuple):
    """A bar's place."""

    style: str
    x: str
    width: str


class DrawnRow(NamedTuple):
    """A row's place and texts."""

    style: str
    title: str
    label: str
    indent: int
    y: int
    bars: list[DrawnBar]
    mark: str
    mark_x: str


class ChartFrame(NamedTuple):
    """A chart's width, its margins, and which of the ticks are labelled: each, each second..."""

    width: int = 520
    left: int = 34
    right: int = 10
    every: int = 2


SMALL: Final = ChartFrame()


class GanttChart(NamedTuple):
    """A whole chart, in pixels."""

    width: int
    height: int
    top: int
    bar_height: int
    ticks: list[Tick]
    rows: list[DrawnRow]


class BudgetChart(NamedTuple):
    """Two stepped lines, each as points `x,y`, from `bottom` to `top`, which is at `top_y`."""

    name: str
    width: int
    height: int
    left: int
    bottom: int
    top: int
    top_y: str
    ticks: list[Tick]
    healthy: list[str]
    desired: list[str]


def horizon(plan: DrainPlan) -> float:
    """The last instant worth showing, in seconds."""
    times = [t for pod in plan.pods() for t in (pod.start, pod.gone, pod.end) if t is not None]
    times += [t for wave in plan.waves for t in (wave.start, wave.end) if t is not None]
    times += [node.end for node in plan.nodes if node.end is not None]
    times += [wave.end + plan.maintenance for wave in plan.waves if wave.end is not None]
    return max([1.0, *times])


def gantt(plan: DrainPlan) -> GanttChart:
    """The chart of nodes and their pods; for waves of our own, of waves and nodes."""
    last = horizon(plan)
    by_pod = not plan.own_waves and len(plan.pods()) <= MOST_POD_ROWS
    rows: list[Row] = []
    for wave in plan.waves:
        if plan.own_waves:
            span = _span(wave.start, wave.end, last, "wave")
            size = counted(len(wave.nodes), "node")
            rows.append(Row(f"wave {wave.index + 1}", span, size, "group"))
        rows += _wave_rows(plan, wave, by_pod, last)
    return draw_gantt(rows[:MOST_ROWS], 0.0, last)


def wave_charts(plan: DrainPlan) -> list[tuple[int, GanttChart]]:
    """(index, chart) of each wave of our own, on its own axis: a maintenance lies between them."""
    if not plan.own_waves or len(plan.pods()) > 4 * MOST_POD_ROWS:
        return []
    charts = []
    for wave in plan.waves:
        if wave.start is not None:
            last = wave.end if wave.end is not None else horizon(plan)
            rows = list(_wave_rows(plan, wave, True, last))
            charts.append((wave.index, draw_gantt(rows, wave.start, max(last, wave.start + 1))))
    return charts


def _wave_rows(plan: DrainPlan, wave: WavePlan, by_pod: bool, last: float) -> Iterable[Row]:
    nodes = {node.name: node for node in plan.nodes}
    for name in wave.nodes:
        node = nodes[name]
        pods = [pod for pod in wave.pods if pod.node == name and pod.verdict != KEPT]
        span = [*_span(node.start, node.end, last, "node"), *_maintenance(plan, wave, last)]
        yield Row(name, span, f"{name}: {counted(len(pods), 'pod')}", "group", _mark(pods))
        if by_pod:
            for pod in pods:
                yield _pod_row(pod, node.start or 0.0, last)


def _span(begin: float | None, end: float | None, last: float, style: str) -> list[Bar]:
    return [] if begin is None else [Bar(begin, last if end is None else end, style)]


def _maintenance(plan: DrainPlan, wave: WavePlan, last: float) -> list[Bar]:
    """The time in which the nodes of the wave are out of service, as far as the chart reaches."""
    if not plan.maintenance or wave.end is None or wave.end >= last:
        return []
    return [Bar(wave.end, min(last, wave.end + plan.maintenance), "maintenance")]


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
    if pod.verdict not in ("ready", "slow") and (pod.verdict, pod.gate) != (UNKNOWN, "none"):
        mark = pod.verdict if pod.gate == "none" else f"{pod.verdict}: {pod.gate}"
    title = pod.reason.removesuffix(NOT_READ)
    return Row(f"{pod.namespace}/{pod.name}", bars, title, pod.verdict, mark)


def draw_gantt(rows: list[Row], first: float, last: float) -> GanttChart:
    """The chart of these rows between two instants, in seconds."""
    left = gantt_frame(rows).left
    scale = (WIDTH - left - MARKS) / (last - first)
    shown = [
        Tick(f"{left + tick * scale:.1f}", clock(first + tick)) for tick in ticks(last - first)
    ]
    drawn = [
        _drawn(_clipped(row, last), TOP + i * ROW, left, first, scale) for i, row in enumerate(rows)
    ]
    return GanttChart(WIDTH, TOP + ROW * len(rows) + 8, TOP, ROW - 6, shown, drawn)


def gantt_frame(rows: list[Row]) -> ChartFrame:
    """Where the chart of these rows has its times, for another one above it."""
    left = min(LEFT, LABEL_SPACE + LETTER * max((len(row.label) for row in rows), default=0))
    return ChartFrame(WIDTH, left, MARKS, 1)


def _clipped(row: Row, last: float) -> Row:
    """A bar that is longer than the chart ends with it, and a mark says until when it goes on."""
    longest = max((bar.end for bar in row.bars), default=last)
    if longest <= last:
        return row
    bars = [bar._replace(end=min(bar.end, last)) for bar in row.bars if bar.begin < last]
    mark = f"{row.mark} → {clock(longest)}".strip()
    return row._replace(bars=bars, mark=mark)


def _drawn(row: Row, y: int, left: int, first: float, scale: float) -> DrawnRow:
    indent = 0 if row.style == "group" else 14
    right, bars = float(left), []
    for bar in row.bars:
        x = left + (bar.begin - first) * scale
        width = max(1.5, (bar.end - bar.begin) * scale)
        bars.append(DrawnBar(bar.style, f"{x:.1f}", f"{width:.1f}"))
        right = max(right, x + width)
    title = (row.title or row.label)[:LONGEST_TITLE]
    label = _shortened(row.label, 46 - indent // 6)
    return DrawnRow(row.style, title, label, indent, y, bars, row.mark, f"{right + 5:.1f}")


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"


def ticks(last: float) -> list[float]:
    """Round instants from 0 to the end, at most ten or so, however far the end is."""
    step = next((step for step in _STEPS if last / step <= 10), _STEPS[-1])
    while last / step > 10:
        step *= 10
    return [float(i * step) for i in range(int(last // step) + 1)]


def is_level(points: Sequence[BudgetPoint]) -> bool:
    """True if neither line of the budget's chart ever moves: a row says it as well."""
    return len({(point.healthy, point.desired) for point in points}) <= 1


def near_bottom(points: Sequence[BudgetPoint]) -> int:
    """The number of pods at the bottom of a chart that shows how they change.

    It is 0 unless the change would take less than a third of the height, as that from 15 to 14.
    """
    counts = [count for point in points for count in (point.healthy, point.desired)]
    low, high = min(counts, default=0), max(counts, default=0)
    bottom = low - max(1, (high - low) // 2)
    return bottom if bottom > 0 and 3 * (high - low) < high else 0


def budget_chart(
    budget: BudgetPlan, last: float, bottom: int = 0, frame: ChartFrame = SMALL
) -> BudgetChart:
    """Healthy and desired pods of one budget over time, as two stepped lines above `bottom`."""
    width, left, height = frame.width, frame.left, 90
    top = max([p.healthy for p in budget.points] + [p.desired for p in budget.points] + [1])
    x_scale = (width - left - frame.right) / last
    y_scale = (height - 26) / max(1, top - bottom)

    def stepped(values: list[tuple[float, int]]) -> list[str]:
        points: list[str] = []
        before: int | None = None
        for at, value in values:
            x = left + min(at, last) * x_scale
            if before is not None:
                points.append(f"{x:.1f},{height - 16 - (before - bottom) * y_scale:.1f}")
            points.append(f"{x:.1f},{height - 16 - (value - bottom) * y_scale:.1f}")
            before = value
        if before is not None:
            points.append(
                f"{left + last * x_scale:.1f},{height - 16 - (before - bottom) * y_scale:.1f}"
            )
        return points

    shown = budget.points[:: -(-len(budget.points) // MOST_POINTS) or 1]
    healthy = stepped([(p.at, p.healthy) for p in shown])
    desired = stepped([(p.at, p.desired) for p in shown])
    axis = [Tick(f"{left + t * x_scale:.1f}", clock(t)) for t in ticks(last)[:: frame.every]]
    top_y = f"{height - 12 - (top - bottom) * y_scale:.1f}"
    return BudgetChart(budget.name, width, height, left, bottom, top, top_y, axis, healthy, desired)
