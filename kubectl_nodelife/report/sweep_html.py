"""A `StudyResult` as one self-contained page: what each point costs, and against today's settings.

Each measure is a chart of lanes, a lane a point, on a scale of the measure in place of time. No
script, no font, nothing fetched. What is here are plain values; templates/sweep.html makes markup
of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.report.html import Tick, render_page
from kubectl_nodelife.report.lanes import Bar, LaneChart, Row, draw_lanes
from kubectl_nodelife.report.sweep import (
    StudyPage,
    assertion_lines,
    headline,
    interval_words,
    measure_words,
    point_words,
)
from kubectl_nodelife.report.table import Table, cell
from kubectl_nodelife.sweep.result import Interval, PointResult, StudyResult, Summary

_MOST_ROWS: Final = 60
_SIDE: Final = 460
_RIGHT: Final = 40
"""Half of the longest text below the right end of an axis has room there."""
_MARGIN: Final = 56
_TICKS: Final = 4
_WHOLE: Final = (4, 92)
_THICK: Final = (25, 50)
_LOW: Final = (35, 30)
_THIN: Final = (44, 12)
"""Places of bars, in percent of a lane's height."""
_STEPS: Final = (1, 2, 5, 10, 20)


class _Plot(NamedTuple):
    """A chart of one measure, a lane a point."""

    name: str
    chart: LaneChart


class _Spot(NamedTuple):
    """A point among two measures, with the arms of its intervals."""

    title: str
    style: str
    x: str
    y: str
    left: str
    right: str
    top: str
    bottom: str


class _Scatter(NamedTuple):
    """All points among the two measures of the front. `front`: the line through those on it."""

    x_name: str
    y_name: str
    side: int
    margin: int
    right: int
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    spots: list[_Spot]
    front: list[str]


Scale = Callable[[float], str]


def page(answer: StudyResult) -> str:
    """The page."""
    shown = _shown(answer)
    against = [point for point in shown if point.against_today]
    alike = [name for name in answer.measures if not _differ(name, against)]
    blocks = list(StudyPage(answer).blocks(wide=True))
    tables = [
        (name, [c.header for c in block.columns], [[cell(v) for v in r] for r in block.rows])
        for name, block in zip(
            ("Means", "Quantiles", "Against today"),
            (block for block in blocks if isinstance(block, Table)),
            strict=False,
        )
    ]
    return render_page(
        "sweep",
        title=f"Study {answer.name}",
        headline=headline(answer),
        answer=answer,
        broken=bool(answer.broken),
        asserted=list(assertion_lines(answer)),
        scatter=_scatter(answer) if answer.front_of else None,
        front=[point_words(point.point) for point in answer.points if point.front],
        plots=[_plot(name, shown) for name in answer.measures],
        differences=[_differences(name, against) for name in answer.measures if name not in alike],
        against=bool(against),
        alike=", ".join(map(measure_words, alike)),
        more=len(answer.points) - len(shown),
        tables_of_answer=tables,
        notes=[*answer.assumed, *answer.warnings, *answer.failed[:_MOST_ROWS]],
    )


def _differ(name: str, against: Sequence[PointResult]) -> bool:
    found = (point.against_today[name] for point in against)
    return any(each.low or each.high for each in found)


def _shown(answer: StudyResult) -> list[PointResult]:
    """As many as can be read: today's, those of the front, then the first ones; in their order."""
    ranked = sorted(answer.points, key=lambda p: (not p.today, not p.front))
    kept = ranked[:_MOST_ROWS]
    return [point for point in answer.points if any(point is each for each in kept)]


def _style(point: PointResult) -> str:
    return "today" if point.today else "front" if point.front else "other"


def _label(point: PointResult) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in point.point.items())


def _linear(low: float, high: float, begin: float, end: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: f"{begin + (value - low) / span * (end - begin):.1f}"


def _marks(low: float, high: float) -> tuple[list[float], Callable[[float], str]]:
    """Multiples of 1, 2 or 5 times a power of ten, about four of them, and how they are written."""
    if not high > low:
        return [low], "{:g}".format
    power = math.floor(math.log10((high - low) / _TICKS))
    step = next(s for s in _STEPS if s * 10.0**power * (_TICKS + 1) > high - low) * 10.0**power
    multiples = range(math.ceil(low / step), math.floor(high / step) + 1)
    digits = max(0, -math.floor(math.log10(step)))
    return [m * step for m in multiples], f"{{:,.{digits}f}}".format


def _ticks(low: float, high: float, scale: Scale) -> list[Tick]:
    marks, text = _marks(low, high)
    return [Tick(scale(at), text(at)) for at in marks]


def _plot(name: str, points: Sequence[PointResult]) -> _Plot:
    """The mean with its interval, and p5 to p95 with the median, of each point."""
    found = [(point, point.measures[name]) for point in points]
    rows = [
        _lane(
            point,
            summary,
            Bar(summary.p5, summary.p95, "spread", place=_THIN),
            Bar(summary.low, summary.high, _style(point), place=_THICK),
            Bar(summary.median, summary.median, "median", place=_LOW),
            Bar(summary.mean, summary.mean, "mean", place=_WHOLE),
        )
        for point, summary in found
    ]
    ends = [end for _, s in found for end in (s.p5, s.low, s.p95, s.high)]
    return _drawn(name, rows, ends)


def _differences(name: str, points: Sequence[PointResult]) -> _Plot:
    """The paired difference of each point to today's."""
    found = [(point, point.against_today[name]) for point in points]
    rows = [
        _lane(
            point,
            interval,
            Bar(0.0, 0.0, "none", place=_WHOLE),
            Bar(interval.low, interval.high, _sign(interval), place=_THICK),
            Bar(interval.mean, interval.mean, "mean", place=_WHOLE),
        )
        for point, interval in found
    ]
    return _drawn(name, rows, [end for _, each in found for end in (each.low, each.high)])


def _lane(point: PointResult, found: Summary | Interval, *bars: Bar) -> Row:
    words = interval_words(found, signed=isinstance(found, Interval))
    note = "today" if point.today else ""
    return Row(_label(point) or "the base", bars, point_words(point.point), words=words, note=note)


def _drawn(name: str, rows: Sequence[Row], ends: Iterable[float]) -> _Plot:
    """From 0, or from below it, so that lengths can be compared."""
    every = [0.0, *ends]
    low, high = min(every), max(every)
    marks, text = _marks(low, high)
    last = high if high > low else low + 1.0
    return _Plot(measure_words(name), draw_lanes(rows, low, last, text, marks))


def _sign(interval: Interval) -> str:
    if not interval.excludes_zero:
        return "other"
    return "less" if interval.high < 0 else "more"


def _scatter(answer: StudyResult) -> _Scatter:
    x_name, y_name = answer.front_of
    of_x = [point.measures[x_name] for point in answer.points]
    of_y = [point.measures[y_name] for point in answer.points]
    x_high = max((s.high for s in of_x), default=0.0)
    y_high = max((s.high for s in of_y), default=0.0)
    x_scale = _linear(0.0, x_high, _MARGIN, _SIDE - _RIGHT)
    y_scale = _linear(0.0, y_high, _SIDE - _MARGIN, 12)
    spots = [
        _Spot(
            f"{point_words(point.point)}: {interval_words(x)} / {interval_words(y)}",
            _style(point),
            *(x_scale(x.mean), y_scale(y.mean), x_scale(x.low), x_scale(x.high)),
            *(y_scale(y.high), y_scale(y.low)),
        )
        for point, x, y in zip(answer.points, of_x, of_y, strict=True)
    ]
    on_front = sorted(
        (x.mean, -y.mean)
        for point, x, y in zip(answer.points, of_x, of_y, strict=True)
        if point.front
    )
    return _Scatter(
        *(measure_words(x_name), measure_words(y_name), _SIDE, _MARGIN, _RIGHT),
        *(_ticks(0.0, x_high, x_scale), _ticks(0.0, y_high, y_scale), spots),
        [f"{x_scale(x)},{y_scale(-y)}" for x, y in on_front],
    )
