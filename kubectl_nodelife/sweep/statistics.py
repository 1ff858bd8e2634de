"""Sums up runs: quantiles, means with bootstrap intervals, paired differences, the Pareto front.

Intervals are percentile bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993),
with resamples that a seed draws: the same runs give the same interval. Points are compared on the
same seeds, so that what fails is the same in both (common random numbers): the interval of the
paired differences is much shorter than what the two means' own intervals would tell.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

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
    """`statistic` of `measure` must stand in `op` to `value`, at every point."""

    statistic: str
    measure: str
    op: str
    value: float

    def holds(self, summary: Summary) -> bool:
        """True if it does at a point."""
        return OPERATORS[self.op](getattr(summary, self.statistic), self.value)

    def __str__(self) -> str:
        return f"{self.statistic} {self.measure} {self.op} {self.value:g}"


def summary_of(values: Sequence[float]) -> Summary:
    """Of at least one value."""
    ordered = sorted(values)
    middle = interval_of(values)
    return Summary(
        quantile(ordered, 0.05),
        quantile(ordered, 0.5),
        quantile(ordered, 0.95),
        middle.mean,
        middle.low,
        middle.high,
    )


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
    return [_taking(chance.choices(range(many), k=many)) for _ in range(_RESAMPLES)]


def _taking(indices: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    return itemgetter(*indices)


def difference_of(values: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """Of the values minus the others, seed by seed; None where no seed is in both."""
    pairs = [values[seed] - others[seed] for seed in values if seed in others]
    return interval_of(pairs) if pairs else None


def pareto_front(of: Mapping[Hashable, tuple[float, ...]]) -> list[Any]:
    """Those for which no other one is at least as low in all and lower in one."""
    return [
        name
        for name, costs in of.items()
        if not any(_dominates(other, costs) for other in of.values())
    ]


def _dominates(costs: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return costs != others and all(a <= b for a, b in zip(costs, others, strict=True))
