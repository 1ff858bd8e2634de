"""Quantiles, intervals, paired differences, the Pareto front: small tables by hand."""

import random
from statistics import fmean, quantiles

import pytest

from kubectl_nodelife.sweep.result import (
    Assertion,
    difference_of,
    interval_of,
    pareto_front,
    quantile,
    summary_of,
)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7], 0.5, 7),
        ([1, 2], 0.5, 1.5),
        ([1, 2, 3, 4, 5], 0.05, 1.2),
        ([1, 2, 3, 4, 5], 0.95, 4.8),
    ],
)
def test_a_quantile_lies_between_neighbours(
    values: list[float], share: float, expected: float
) -> None:
    assert quantile(values, share) == pytest.approx(expected)


def test_quantiles_are_those_of_the_standard_library() -> None:
    chance = random.Random(3)
    values = sorted(chance.random() for _ in range(101))
    expected = quantiles(values, n=20, method="inclusive")
    assert [quantile(values, i / 20) for i in range(1, 20)] == pytest.approx(expected, abs=1e-6)


def test_an_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = [random.Random(4).gauss(10, 2) for _ in range(1)] + [8.0, 9.5, 11.0, 12.5, 10.0]
    found = interval_of(values)
    assert found == interval_of(list(values))
    assert found.low < found.mean < found.high
    assert found.mean == pytest.approx(fmean(values), abs=1e-6)


def test_intervals_cover_the_true_mean_about_nineteen_times_in_twenty() -> None:
    chance = random.Random(5)
    found = [interval_of([chance.gauss(0, 1) for _ in range(60)]) for _ in range(200)]
    covered = sum(each.low <= 0 <= each.high for each in found)
    assert 176 <= covered <= 199


def test_of_equal_values_nothing_is_uncertain() -> None:
    found = summary_of([3.0, 3.0, 3.0])
    assert (found.low, found.mean, found.high) == (3, 3, 3)


def test_a_paired_difference_takes_the_common_seeds_alone() -> None:
    found = difference_of({1: 5.0, 2: 105.0, 9: 1.0}, {1: 4.0, 2: 104.0, 8: 50.0})
    assert found is not None
    assert (found.low, found.mean, found.high) == (1, 1, 1)
    assert difference_of({1: 5.0}, {2: 4.0}) is None


def test_pairing_sees_what_means_alone_do_not() -> None:
    chance = random.Random(6)
    others = {seed: chance.gauss(100, 30) for seed in range(40)}
    values = {seed: value + 1 + chance.gauss(0, 0.1) for seed, value in others.items()}
    paired = difference_of(values, others)
    assert paired is not None and paired.excludes_zero
    means = interval_of(list(values.values())), interval_of(list(others.values()))
    assert means[0].low < means[1].high


@pytest.mark.parametrize(
    ("costs", "front"),
    [
        ({"a": (1, 1), "b": (2, 2)}, ["a"]),
        ({"a": (1, 2), "b": (2, 1), "c": (2, 2)}, ["a", "b"]),
        ({"a": (1, 1), "b": (1, 1)}, ["a", "b"]),
        ({}, []),
    ],
    ids=["one beats the other", "two ends and what they beat", "equal ones", "none"],
)
def test_the_front(costs: dict[str, tuple[float, ...]], front: list[str]) -> None:
    assert pareto_front(dict(costs)) == front


@pytest.mark.parametrize(
    ("op", "value", "holds"), [("<", 3, False), ("<=", 3, True), (">", 2, True), ("==", 3, True)]
)
def test_an_assertion(op: str, value: float, holds: bool) -> None:
    assert Assertion("mean", "evictions", op, value).holds(summary_of([2, 4])) is holds
