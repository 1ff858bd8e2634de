"""The result of a study: the document StudyResult, of the runs that were played."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from kubectl_nodelife.sim.scenario import API_VERSION
from kubectl_nodelife.sweep.runs import Plan, RunId
from kubectl_nodelife.sweep.space import Point
from kubectl_nodelife.sweep.statistics import (
    Assertion,
    Interval,
    Summary,
    difference_of,
    pareto_front,
    summary_of,
)

FRONT: Final = ("unavailablePodMinutes", "needlessEvictions")


class PointResult(msgspec.Struct, frozen=True, rename="camel"):
    """A point: its values, and each measure over its runs. `against_today`: the paired difference
    to the point at which nothing is changed; `front`: no other point is as good in both measures
    of FRONT and better in one."""

    point: Point
    runs: int
    today: bool
    front: bool
    measures: dict[str, Summary]
    against_today: dict[str, Interval]


class BrokenAssertion(msgspec.Struct, frozen=True, rename="camel"):
    """An assertion that does not hold at a point, and what was found there."""

    text: str
    point: Point
    found: float


class StudyResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The whole answer. `planned`: how many runs the study has; `failed`: runs that could not be
    played, with why; `partial`: it was interrupted."""

    api_version: str = API_VERSION
    kind: str = "StudyResult"
    name: str
    version: str
    profile: str
    digest: str
    duration_seconds: float
    scheduler: str
    seeds: int
    planned: int
    runs: int
    measures: list[str]
    points: list[PointResult]
    front_of: list[str]
    asserts: list[str]
    broken: list[BrokenAssertion]
    failed: list[str]
    assumed: list[str]
    warnings: list[str]
    partial: bool = False


def runs_of(points: Sequence[Point], seeds: Sequence[int]) -> list[RunId]:
    """All runs in the study's order: point by point, seed by seed."""
    pairs = ((number, point, seed) for number, point in enumerate(points) for seed in seeds)
    return [RunId(i, *each) for i, each in enumerate(pairs)]


def summed_up(
    plan: Plan,
    runs: Sequence[RunId],
    found: Mapping[int, Mapping[str, float]],
    assertions: Iterable[Assertion] = (),
    *,
    today: Point,
    failed: Sequence[str] = (),
    assumed: Sequence[str] = (),
    warnings: Sequence[str] = (),
    partial: bool = False,
) -> StudyResult:
    """`found`: number of a run -> its measures; runs that are not there count nowhere."""
    values: dict[int, dict[str, dict[int, float]]] = {}
    points: dict[int, Point] = {}
    for run in runs:
        if run.number in found:
            points[run.point_number] = run.point
            by_measure = values.setdefault(run.point_number, defaultdict(dict))
            for name in plan.measures:
                by_measure[name][run.seed] = found[run.number][name]
    results = _points(plan, points, values, today)
    assertions = list(assertions)
    return StudyResult(
        name=plan.study,
        version=plan.version,
        profile=plan.base.profile,
        digest=plan.base.digest,
        duration_seconds=plan.terms.duration_ns / 1e9,
        scheduler=plan.terms.scheduler,
        seeds=len({run.seed for run in runs}),
        planned=len(runs),
        runs=len(found),
        measures=list(plan.measures),
        points=results,
        front_of=list(FRONT) if _has_front(plan) else [],
        asserts=[str(each) for each in assertions],
        broken=list(chain.from_iterable(_broken(each, results) for each in assertions)),
        failed=list(failed),
        assumed=list(assumed),
        warnings=list(warnings),
        partial=partial,
    )


def _has_front(plan: Plan) -> bool:
    return all(name in plan.measures for name in FRONT)


def _points(
    plan: Plan,
    points: Mapping[int, Point],
    values: Mapping[int, Mapping[str, Mapping[int, float]]],
    today: Point,
) -> list[PointResult]:
    of_today = next((number for number, point in points.items() if point == today), None)
    summaries = {
        number: {name: summary_of(list(by.values())) for name, by in values[number].items()}
        for number in points
    }
    costs: dict[Any, tuple[float, ...]] = {
        number: tuple(summary[name].mean for name in FRONT)
        for number, summary in summaries.items()
        if _has_front(plan)
    }
    front = set(pareto_front(costs))
    found = []
    for number, point in sorted(points.items()):
        against: dict[str, Interval] = {}
        if of_today is not None and number != of_today:
            for name, by in values[number].items():
                difference = difference_of(by, values[of_today][name])
                if difference is not None:
                    against[name] = difference
        runs = max((len(by) for by in values[number].values()), default=0)
        summary = summaries[number]
        is_today = number == of_today
        found.append(PointResult(point, runs, is_today, number in front, summary, against))
    return found


def _broken(assertion: Assertion, points: Iterable[PointResult]) -> Iterable[BrokenAssertion]:
    for result in points:
        summary = result.measures[assertion.measure]
        if not assertion.holds(summary):
            found = getattr(summary, assertion.statistic)
            yield BrokenAssertion(str(assertion), result.point, found)
