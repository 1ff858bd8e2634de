"""The result of a study: the document StudyResult of the runs that were played, their files, and
their sums.

The files are `runs.jsonl`, a whole line for each run as it comes in the study's
order, and `runs.parquet` of the same at the end.

A line has the run's key (see `Plan.key`), so that a study which was interrupted goes on where it
was, and one that was changed repeats only what is new. A torn last line is dropped.

Runs are summed up as quantiles, means with bootstrap intervals, paired differences and the Pareto
front. Intervals are percentile bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap",
1993), with resamples that a seed draws: the same runs give the same interval. Points are compared
on the same seeds, so that what fails is the same in both (common random numbers): the interval of
the paired differences is much shorter than the two means' own intervals would suggest.
"""

from __future__ import annotations

import operator
import os
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.sim.scenario import API_VERSION
from kubectl_nodelife.sweep.points import Point
from kubectl_nodelife.sweep.runs import Plan, RunId

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
    warnings: list[str]
    partial: bool = False


def runs_of(points: Sequence[Point], seeds: Sequence[int]) -> list[RunId]:
    """All runs in the study's order: point by point, seed by seed."""
    pairs = ((number, point, seed) for number, point in enumerate(points) for seed in seeds)
    return [RunId(i, *each) for i, each in enumerate(pairs)]


def summed_up(
    plan: Plan,
    runs: Sequence[RunId],
    measured: Mapping[int, Mapping[str, float]],
    assertions: Iterable[Assertion] = (),
    *,
    today: Point,
    failed: Sequence[str] = (),
    warnings: Sequence[str] = (),
    partial: bool = False,
) -> StudyResult:
    """`found`: number of a run -> its measures; missing runs are not counted."""
    values: dict[int, dict[str, dict[int, float]]] = {}
    points: dict[int, Point] = {}
    for run in runs:
        if run.number in measured:
            points[run.point_number] = run.point
            by_measure = values.setdefault(run.point_number, defaultdict(dict))
            for name in plan.measures:
                by_measure[name][run.seed] = measured[run.number][name]
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
        runs=len(measured),
        measures=list(plan.measures),
        points=results,
        front_of=list(FRONT) if _has_front(plan) else [],
        asserts=[str(each) for each in assertions],
        broken=list(chain.from_iterable(_broken(each, results) for each in assertions)),
        failed=list(failed),
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
    results = []
    for number, point in sorted(points.items()):
        against: dict[str, Interval] = {}
        if of_today is not None and number != of_today:
            against = {
                name: difference
                for name, by in values[number].items()
                if (difference := difference_of(by, values[of_today][name])) is not None
            }
        runs = max((len(by) for by in values[number].values()), default=0)
        of_point = (point, runs, number == of_today, number in front, summaries[number])
        results.append(PointResult(*of_point, against))
    return results


def _broken(assertion: Assertion, points: Iterable[PointResult]) -> Iterable[BrokenAssertion]:
    for result in points:
        summary = result.measures[assertion.measure]
        if not assertion.holds(summary):
            value = getattr(summary, assertion.statistic)
            yield BrokenAssertion(str(assertion), result.point, value)


LINES: Final = "runs.jsonl"
TABLE: Final = "runs.parquet"


class RunStore:
    """A context: the folder's runs.jsonl, open to be written. Raises Failed on a disk error."""

    def __init__(self, folder: Path, plan: Plan, runs: Sequence[RunId], *, resume: bool) -> None:
        """Raises BadInput where there are runs already, and `resume` is not set."""
        self.folder, self._plan, self._runs = folder, plan, runs
        self.path = folder / LINES
        self._keys = {run.number: plan.key(run) for run in runs}
        self._out: IO[bytes] | None = None
        self.found: dict[int, dict[str, float]] = {}
        if not resume and self.path.exists():
            remedy = "go on with --resume, or name another folder with --out"
            raise BadInput("holds runs already", on=str(folder), remedy=remedy)
        self._read = self._known() if resume else {}

    def __enter__(self) -> RunStore:
        with self._on_disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write_all(self._read)
            self._out = open(self.path, "ab")
        self.found = dict(self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._out is not None:
            with self._on_disk() if error is None else suppress(OSError):
                self._out.close()

    def add(self, number: int, measures: dict[str, float]) -> None:
        """Take in a run: first, so that an interruption behind the line does not lose it."""
        assert self._out is not None
        self.found[number] = measures
        with self._on_disk():
            self._out.write(self._line(number, measures))
            self._out.flush()

    def finish(self, documents: Mapping[str, bytes]) -> None:
        """Put all runs in the study's order, and write the table and these files."""
        with self._on_disk():
            if self._out is not None:
                self._out.close()
            self._write_all(self.found)
            self._write_table()
            for name, content in documents.items():
                (self.folder / name).write_bytes(content)

    def _line(self, number: int, measures: Mapping[str, float]) -> bytes:
        run = self._runs[number]
        identity = {"key": self._keys[number], "point": run.point, "seed": run.seed}
        return msgspec.json.encode({**identity, **measures}) + b"\n"

    def _known(self) -> dict[int, dict[str, float]]:
        """The runs that the file has of this study, by number."""
        with self._on_disk():
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        numbers = {key: number for number, key in self._keys.items()}
        by_number: dict[int, dict[str, float]] = {}
        for line in lines:
            try:
                record: Any = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(record, dict) and record.get("key") in numbers:
                measures: dict[str, Any] = {name: record.get(name) for name in self._plan.measures}
                if all(isinstance(value, (int, float)) for value in measures.values()):
                    by_number[numbers[record["key"]]] = measures
        return dict(sorted(by_number.items()))

    def _write_all(self, by_number: Mapping[int, Mapping[str, float]]) -> None:
        draft = self.folder / f".{LINES}.part"
        with open(draft, "wb") as out:
            out.writelines(self._line(number, by_number[number]) for number in sorted(by_number))
        os.replace(draft, self.path)

    def _write_table(self) -> None:
        """A column for each name of the space, the seed, and each measure."""
        import pyarrow
        from pyarrow import parquet

        rows = [(self._runs[number], self.found[number]) for number in sorted(self.found)]
        columns: dict[str, Any] = {}
        for name in dict.fromkeys(name for run, _ in rows for name in run.point):
            values = [run.point.get(name) for run, _ in rows]
            plain = all(isinstance(v, (int, float)) or v is None for v in values)
            columns[name] = values if plain else [None if v is None else str(v) for v in values]
        columns["seed"] = [run.seed for run, _ in rows]
        for name in self._plan.measures:
            columns[name] = [float(measures[name]) for _, measures in rows]
        draft = self.folder / f".{TABLE}.part"
        parquet.write_table(pyarrow.table(columns), draft)
        os.replace(draft, self.folder / TABLE)

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what, remedy = error.strerror or error, "make room, and go on with --resume"
            raise Failed(f"cannot be written: {what}", on=str(self.folder), remedy=remedy) from None


STATISTICS: Final = ("p5", "median", "p95", "mean")
OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_RESAMPLES: Final = 1000
_SEED: Final = 1
_FIGURES: Final = 6


class Interval(msgspec.Struct, frozen=True):
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True if it lies on one side of zero."""
        return self.low > 0 or self.high < 0


class Summary(msgspec.Struct, frozen=True):
    """A measure over the runs of a point."""

    p5: float
    median: float
    p95: float
    mean: float
    low: float
    high: float


class Assertion(NamedTuple):
    """`statistic OP value` must be true of `measure`, at every point."""

    statistic: str
    measure: str
    op: str
    value: float

    def holds(self, summary: Summary) -> bool:
        """True if the assertion holds at a point."""
        return OPERATORS[self.op](getattr(summary, self.statistic), self.value)

    def __str__(self) -> str:
        return f"{self.statistic} {self.measure} {self.op} {self.value:g}"


def summary_of(values: Sequence[float]) -> Summary:
    """The summary of at least one value."""
    ordered = sorted(values)
    middle = interval_of(values)
    p5, median, p95 = (quantile(ordered, share) for share in (0.05, 0.5, 0.95))
    return Summary(p5, median, p95, middle.mean, middle.low, middle.high)


def quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation between neighbours (type 7 of Hyndman and Fan)."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    value = ordered[below] + (ordered[above] - ordered[below]) * (at - below)
    return round(value, _FIGURES)


def interval_of(values: Sequence[float]) -> Interval:
    """The mean of at least one value, with its interval."""
    many = len(values)
    mean = round(sum(values) / many, _FIGURES)
    if min(values) == max(values):
        return Interval(mean, mean, mean)
    means = sorted(sum(take(values)) / many for take in _resamples(many))
    return Interval(mean, quantile(means, 0.025), quantile(means, 0.975))


@lru_cache(maxsize=8)
def _resamples(many: int) -> list[Callable[[Sequence[float]], Sequence[float]]]:
    """A function that takes as many of the values, with replacement; at least two."""
    chance = random.Random(_SEED)
    return [itemgetter(*chance.choices(range(many), k=many)) for _ in range(_RESAMPLES)]


def difference_of(values: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """The interval of the values minus the others, seed by seed; None where no seed is in both."""
    pairs = [values[seed] - others[seed] for seed in values if seed in others]
    return interval_of(pairs) if pairs else None


def pareto_front(of: Mapping[Hashable, tuple[float, ...]]) -> list[Any]:
    """The keys for which no other one is at least as low in all figures and lower in one."""
    return [
        name
        for name, costs in of.items()
        if not any(other != costs and all(map(operator.le, other, costs)) for other in of.values())
    ]
