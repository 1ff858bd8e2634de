"""The page of `sweep`: what was played, each point with what it measures, and what stands out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.screen import BAD, GOOD, ColoredText
from kubectl_nodelife.report.table import Column, Table
from kubectl_nodelife.sweep.points import FLAG, Value
from kubectl_nodelife.sweep.result import Interval, PointResult, StudyResult, Summary

_SHOWN: Final = 40


class StudyPage:
    """A `StudyResult` as an answer."""

    def __init__(self, answer: StudyResult) -> None:
        self._answer = answer

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The runs, points with means and intervals, differences, the front, assertions."""
        answer = self._answer
        yield headline(answer)
        shown = answer.points if wide else answer.points[:_SHOWN]
        yield _means(answer, shown)
        if len(shown) < len(answer.points):
            yield f"... and {len(answer.points) - len(shown):,} more: -o wide shows all"
        yield _quantiles(answer, shown) if wide else ""
        against = [p for p in shown if p.against_today]
        if against:
            yield "Against today's settings, on the same failures:"
            yield _differences(answer, against)
        if answer.front_of:
            front = [point_words(p.point) for p in answer.points if p.front]
            better = " and ".join(map(measure_words, answer.front_of))
            yield f"no other point is better in {better}: {'; '.join(front)}"
        if answer.asserts:
            yield "\n".join(assertion_lines(answer))
        notes = [*answer.assumed]
        if notes:
            yield "\n".join(notes)

    def document(self) -> object:
        """The contract's StudyResult."""
        return self._answer

    def names(self) -> Iterable[str]:
        """The points of the front."""
        return (f"point/{point_words(p.point)}" for p in self._answer.points if p.front)


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


def interval_words(found: Interval | Summary, *, signed: bool = False) -> str:
    """A mean and its interval."""
    sign = "+" if signed else ""
    mean, low, high = (_number(x, sign) for x in (found.mean, found.low, found.high))
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


def _means(answer: StudyResult, shown: Iterable[PointResult]) -> Table:
    rows = [
        [*_values(answer, p), *(interval_words(p.measures[name]) for name in answer.measures)]
        for p in shown
    ]
    return Table(_columns(answer, *answer.measures), rows)


def _quantiles(answer: StudyResult, shown: Iterable[PointResult]) -> Table:
    rows = [
        [*_values(answer, p), measure_words(name), *(_number(x) for x in (s.p5, s.median, s.p95))]
        for p in shown
        for name, s in p.measures.items()
    ]
    return Table(_columns(answer, "measure", "p5", "median", "p95"), rows)


def _differences(answer: StudyResult, shown: Iterable[PointResult]) -> Table:
    rows = [
        [*_values(answer, p), *(_difference(p.against_today[name]) for name in answer.measures)]
        for p in shown
    ]
    return Table(_columns(answer, *answer.measures), rows)


def _difference(found: Interval) -> object:
    """Green where it is surely less, red where it is surely more."""
    text = interval_words(found, signed=True)
    if not found.excludes_zero:
        return text
    return ColoredText(text, GOOD if found.high < 0 else BAD)
