"""The page of `sweep`: what was played, each point with what it measures, and what stands out.

As a page of HTML it has the same blocks below charts: for each measure one of lanes, a lane a
point, on a scale of the measure in place of time. templates/sweep.html makes the markup.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubectl_nodelife.report.formats import Block, Column, Page, Table
from kubectl_nodelife.report.html import Bar, LaneChart, Row, Tick, draw_lanes, render_page
from kubectl_nodelife.report.terminal import BAD, GOOD, ColoredText
from kubectl_nodelife.sweep.points import FLAG, Value
from kubectl_nodelife.sweep.result import Interval, PointResult, StudyResult, Summary

_SHOWN: Final = 40


def study_page(answer: StudyResult) -> Page:
    """A `StudyResult` as an answer, its names the points of the front."""
    front = [point_words(p.point) for p in answer.points if p.front]

    def blocks(*, wide: bool) -> Iterator[Block]:
        """The runs, points with means and intervals, differences, the front, assertions."""
        yield headline(answer)
        shown = answer.points if wide else answer.points[:_SHOWN]
        yield _by_measure(answer, shown, lambda p, name: interval_words(p.measures[name]))
        if len(shown) < len(answer.points):
            yield f"... and {len(answer.points) - len(shown):,} more: -o wide shows all"
        yield _quantiles(answer, shown) if wide else ""
        against = [p for p in shown if p.against_today]
        if against:
            yield "Against today's settings, on the same failures:"
            yield _by_measure(answer, against, lambda p, name: _difference(p.against_today[name]))
        if answer.front_of:
            better = " and ".join(map(measure_words, answer.front_of))
            yield f"no other point is better in {better}: {'; '.join(front)}"
        yield "\n".join(assertion_lines(answer))

    return Page(blocks, lambda: answer, lambda: (f"point/{words}" for words in front))


def headline(answer: StudyResult) -> str:
    """The runs that were played, in a sentence."""
    hours = answer.duration_seconds / 3600
    text = (
        f"{answer.name}: {answer.runs:,} runs of {hours:g}h, {len(answer.points):,} points with "
        f"{answer.seeds:,} seeds"
    )
    missing = answer.planned - answer.runs
    if missing:
        text += f"; {missing:,} runs are missing: --resume plays them"
    return text


def point_words(point: Mapping[str, Value]) -> str:
    """A point, by its values."""
    return ", ".join(f"{name}={value}" for name, value in point.items()) or "the base"


def measure_words(name: str) -> str:
    """`needlessEvictions` -> `needless evictions`."""
    return re.sub(r"(?=[A-Z])", " ", name).lower()


def value_words(name: str) -> str:
    """A name of the space: a flag as it is, `tolerationSeconds` -> `toleration seconds`."""
    return name.removeprefix(FLAG) if name.startswith(FLAG) else measure_words(name)


def assertion_lines(answer: StudyResult) -> Iterable[str]:
    """Each assertion, and where it does not hold."""
    for text in answer.asserts:
        broken = [each for each in answer.broken if each.text == text]
        yield f"asserted: {text}: {'does not hold' if broken else 'holds at every point'}"
        for each in broken:
            yield f"  {point_words(each.point)}: {each.found:g}"


def interval_words(interval: Interval | Summary, *, signed: bool = False) -> str:
    """A mean and its interval."""
    sign = "+" if signed else ""
    mean, low, high = (_number(x, sign) for x in (interval.mean, interval.low, interval.high))
    return mean if low == high else f"{mean} [{low}, {high}]"


def _number(value: float, sign: str = "") -> str:
    """With about three figures."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:{sign}.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "+0") else text


def _columns(answer: StudyResult, *more: str) -> list[Column]:
    names = dict.fromkeys(name for point in answer.points for name in point.point)
    return [
        *(Column(value_words(name)) for name in names),
        *(Column(measure_words(name), gives=i) for i, name in enumerate(more, 1)),
    ]


def _values(answer: StudyResult, result: PointResult) -> list[object]:
    names = dict.fromkeys(name for point in answer.points for name in point.point)
    cells: list[object] = [str(result.point.get(name, "")) for name in names]
    if result.today and cells:
        cells[-1] = f"{cells[-1]} (today)"
    return cells


def _by_measure(
    answer: StudyResult, shown: Iterable[PointResult], cell: Callable[[PointResult, str], object]
) -> Table:
    """A row a point, with a cell for each measure."""
    rows = [[*_values(answer, p), *(cell(p, name) for name in answer.measures)] for p in shown]
    return Table(_columns(answer, *answer.measures), rows)


def _quantiles(answer: StudyResult, shown: Iterable[PointResult]) -> Table:
    rows = [
        [*_values(answer, p), measure_words(name), *(_number(x) for x in (s.p5, s.median, s.p95))]
        for p in shown
        for name, s in p.measures.items()
    ]
    return Table(_columns(answer, "measure", "p5", "median", "p95"), rows)


def _difference(interval: Interval) -> object:
    """Green where it is surely less, red where it is surely more."""
    text = interval_words(interval, signed=True)
    if not interval.excludes_zero:
        return text
    return ColoredText(text, GOOD if interval.high < 0 else BAD)


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


_Plot = tuple[str, LaneChart]
"""A measure, and its chart: a lane a point."""
Scale = Callable[[float], str]


_TABLES: Final = ("Means", "Quantiles", "Against today")


def html_page(answer: StudyResult) -> str:
    """The page as HTML."""
    shown = _shown(answer)
    against = [point for point in shown if point.against_today]
    alike = [name for name in answer.measures if not _differ(name, against)]
    blocks = study_page(answer).blocks(wide=True)
    tables = [block.cells(wide=True) for block in blocks if isinstance(block, Table)]
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
        differences=[
            _difference_plot(name, against) for name in answer.measures if name not in alike
        ],
        against=bool(against),
        alike=", ".join(map(measure_words, alike)),
        more=len(answer.points) - len(shown),
        tables_of_answer=[(name, *table) for name, table in zip(_TABLES, tables, strict=False)],
        notes=[*answer.warnings, *answer.failed[:_MOST_ROWS]],
    )


def _differ(name: str, against: Sequence[PointResult]) -> bool:
    differences = (point.against_today[name] for point in against)
    return any(each.low or each.high for each in differences)


def _shown(answer: StudyResult) -> list[PointResult]:
    """As many as can be read: today's, those of the front, then the first ones; in their order."""
    ranked = sorted(answer.points, key=lambda p: (not p.today, not p.front))
    best = ranked[:_MOST_ROWS]
    return [point for point in answer.points if any(point is each for each in best)]


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
    measured = [(point, point.measures[name]) for point in points]
    rows = [
        _lane(
            point,
            summary,
            Bar(summary.p5, summary.p95, "spread", place=_THIN),
            Bar(summary.low, summary.high, _style(point), place=_THICK),
            Bar(summary.median, summary.median, "median", place=_LOW),
            Bar(summary.mean, summary.mean, "mean", place=_WHOLE),
        )
        for point, summary in measured
    ]
    ends = [end for _, s in measured for end in (s.p5, s.low, s.p95, s.high)]
    return _drawn(name, rows, ends)


def _difference_plot(name: str, points: Sequence[PointResult]) -> _Plot:
    """The paired difference of each point to today's."""
    measured = [(point, point.against_today[name]) for point in points]
    rows = [
        _lane(
            point,
            interval,
            Bar(0.0, 0.0, "none", place=_WHOLE),
            Bar(interval.low, interval.high, _sign(interval), place=_THICK),
            Bar(interval.mean, interval.mean, "mean", place=_WHOLE),
        )
        for point, interval in measured
    ]
    return _drawn(name, rows, [end for _, each in measured for end in (each.low, each.high)])


def _lane(point: PointResult, measured: Summary | Interval, *bars: Bar) -> Row:
    words = interval_words(measured, signed=isinstance(measured, Interval))
    note = "today" if point.today else ""
    return Row(_label(point) or "the base", bars, point_words(point.point), words=words, note=note)


def _drawn(name: str, rows: Sequence[Row], ends: Iterable[float]) -> _Plot:
    """From 0, or from below it, so that lengths can be compared."""
    every = [0.0, *ends]
    low, high = min(every), max(every)
    marks, text = _marks(low, high)
    last = high if high > low else low + 1.0
    return measure_words(name), draw_lanes(rows, low, last, text, marks)


def _sign(interval: Interval) -> str:
    if not interval.excludes_zero:
        return "other"
    return "less" if interval.high < 0 else "more"


def _scatter(answer: StudyResult) -> dict[str, Any]:
    """All points among the two measures of the front, each with the arms of its intervals.

    `front`: the line through those on it.
    """
    x_name, y_name = answer.front_of
    of_x = [point.measures[x_name] for point in answer.points]
    of_y = [point.measures[y_name] for point in answer.points]
    x_high = max((s.high for s in of_x), default=0.0)
    y_high = max((s.high for s in of_y), default=0.0)
    x_scale = _linear(0.0, x_high, _MARGIN, _SIDE - _RIGHT)
    y_scale = _linear(0.0, y_high, _SIDE - _MARGIN, 12)
    spots = [
        {
            "title": f"{point_words(point.point)}: {interval_words(x)} / {interval_words(y)}",
            "style": _style(point),
            "x": x_scale(x.mean),
            "y": y_scale(y.mean),
            "x_arm": (x_scale(x.low), x_scale(x.high)),
            "y_arm": (y_scale(y.high), y_scale(y.low)),
        }
        for point, x, y in zip(answer.points, of_x, of_y, strict=True)
    ]
    on_front = sorted(
        (x.mean, -y.mean)
        for point, x, y in zip(answer.points, of_x, of_y, strict=True)
        if point.front
    )
    return {
        "names": (measure_words(x_name), measure_words(y_name)),
        "size": (_SIDE, _MARGIN, _RIGHT),
        "ticks": (_ticks(0.0, x_high, x_scale), _ticks(0.0, y_high, y_scale)),
        "spots": spots,
        "front": [f"{x_scale(x)},{y_scale(-y)}" for x, y in on_front],
    }
