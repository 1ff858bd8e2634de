"""A `StudyResult` as one self-contained page: what each point costs, and against today's settings.

No script, no font, nothing fetched. What is here are plain values; templates/sweep.html makes
markup of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.report.html import Tick, render_page
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
_WIDTH: Final = 930
_LABEL: Final = 400
_LETTERS: Final = 62
_RIGHT: Final = 24
_TOP: Final = 22
_ROW: Final = 20
_SIDE: Final = 460
_MARGIN: Final = 56
_TICKS: Final = 4
_STEPS: Final = (1, 2, 5, 10, 20)


class _Whisker(NamedTuple):
    """A row of a plot: a mean with its interval, and where there is one, a range and a median."""

    label: str
    title: str
    style: str
    y: int
    mean: str
    low: str
    width: str
    range_from: str = ""
    range_to: str = ""
    median: str = ""


class _Whiskers(NamedTuple):
    """A plot of one measure, a row a point. `zero`: where nothing differs, if that is shown."""

    name: str
    width: int
    height: int
    label_width: int
    ticks: list[Tick]
    rows: list[_Whisker]
    zero: str = ""


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
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    spots: list[_Spot]
    front: list[str]


Scale = Callable[[float], str]


def page(answer: StudyResult) -> str:
    """The page."""
    shown = _shown(answer)
    against = [point for point in shown if point.against_today]
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
        differences=[_differences(name, against) for name in answer.measures] if against else [],
        more=len(answer.points) - len(shown),
        tables_of_answer=tables,
        notes=[*answer.assumed, *answer.warnings, *answer.failed[:_MOST_ROWS]],
    )


def _shown(answer: StudyResult) -> list[PointResult]:
    """As many as can be read: today's, those of the front, then the first ones; in their order."""
    ranked = sorted(answer.points, key=lambda p: (not p.today, not p.front))
    kept = ranked[:_MOST_ROWS]
    return [point for point in answer.points if any(point is each for each in kept)]


def _style(point: PointResult) -> str:
    return "today" if point.today else "front" if point.front else "other"


def _label(point: PointResult) -> str:
    words = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in point.point.items())
    words = f"{words or 'the base'}{' (today)' if point.today else ''}"
    return words if len(words) <= _LETTERS else f"…{words[1 - _LETTERS :]}"  # values stand last


def _linear(low: float, high: float, begin: float, end: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: f"{begin + (value - low) / span * (end - begin):.1f}"


def _ticks(low: float, high: float, scale: Scale) -> list[Tick]:
    """At multiples of 1, 2 or 5 times a power of ten, about four of them."""
    if not high > low:
        return [Tick(scale(low), f"{low:g}")]
    power = math.floor(math.log10((high - low) / _TICKS))
    step = next(s for s in _STEPS if s * 10.0**power * (_TICKS + 1) > high - low) * 10.0**power
    digits = max(0, -math.floor(math.log10(step)))
    multiples = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [Tick(scale(m * step), f"{m * step:,.{digits}f}") for m in multiples]


def _plot(name: str, points: Sequence[PointResult]) -> _Whiskers:
    """The mean with its interval, and p5 to p95, of each point."""
    found = [point.measures[name] for point in points]
    high = max((max(s.p95, s.high) for s in found), default=0.0)
    low = min(0.0, *(min(s.p5, s.low) for s in found)) if found else 0.0
    scale = _linear(low, high, _LABEL, _WIDTH - _RIGHT)
    rows = [
        _whisker(point, summary, scale, y)._replace(
            range_from=scale(summary.p5), range_to=scale(summary.p95), median=scale(summary.median)
        )
        for point, summary, y in zip(points, found, _places(points), strict=True)
    ]
    return _Whiskers(
        measure_words(name), _WIDTH, _height(points), _LABEL, _ticks(low, high, scale), rows
    )


def _differences(name: str, points: Sequence[PointResult]) -> _Whiskers:
    """The paired difference of each point to today's."""
    found = [point.against_today[name] for point in points]
    low = min(0.0, *(i.low for i in found)) if found else 0.0
    high = max(0.0, *(i.high for i in found)) if found else 0.0
    scale = _linear(low, high, _LABEL, _WIDTH - _RIGHT)
    rows = [
        _whisker(point, interval, scale, y)._replace(style=_sign(interval))
        for point, interval, y in zip(points, found, _places(points), strict=True)
    ]
    ticks = _ticks(low, high, scale)
    zero = scale(0.0)
    return _Whiskers(measure_words(name), _WIDTH, _height(points), _LABEL, ticks, rows, zero)


def _sign(interval: Interval) -> str:
    if not interval.excludes_zero:
        return "other"
    return "less" if interval.high < 0 else "more"


def _whisker(point: PointResult, found: Summary | Interval, scale: Scale, y: int) -> _Whisker:
    width = max(1.5, float(scale(found.high)) - float(scale(found.low)))
    title = f"{point_words(point.point)}: {interval_words(found)}"
    return _Whisker(
        *(_label(point), title, _style(point), y),
        *(scale(found.mean), scale(found.low), f"{width:.1f}"),
    )


def _places(points: Sequence[PointResult]) -> Iterable[int]:
    return (_TOP + number * _ROW for number in range(len(points)))


def _height(points: Sequence[PointResult]) -> int:
    return _TOP + len(points) * _ROW + 4


def _scatter(answer: StudyResult) -> _Scatter:
    x_name, y_name = answer.front_of
    of_x = [point.measures[x_name] for point in answer.points]
    of_y = [point.measures[y_name] for point in answer.points]
    x_high = max((s.high for s in of_x), default=0.0)
    y_high = max((s.high for s in of_y), default=0.0)
    x_scale = _linear(0.0, x_high, _MARGIN, _SIDE - 12)
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
        *(measure_words(x_name), measure_words(y_name), _SIDE, _MARGIN),
        *(_ticks(0.0, x_high, x_scale), _ticks(0.0, y_high, y_scale), spots),
        [f"{x_scale(x)},{y_scale(-y)}" for x, y in on_front],
    )
