"""A `--timeout` within the range that a plan gives without one is never called hopeless, one below
it is, and one above it is sure: the verdict and the range are of one cloth.
"""

from collections.abc import Callable

import pytest

from kubectl_nodelife.drain.results import DrainPlan
from kubectl_nodelife.kube.times import SECOND_NS
from tests.drain.build import Json, budget, node, plan, replica_set, stateful_set

Objects = list[Json | list[Json]]


def _nodes() -> list[Json]:
    return [obj for name in ("a1", "b1", "b2", "b3") for obj in node(name)]


def _unguarded() -> Objects:
    return [_nodes(), replica_set("web", "a1", "a1", "a1", grace=20)]


def _guarded() -> Objects:
    """Three pods of a budget that spares one at a time, and kubectl's rounds of 5 s."""
    guard = budget("web", "web", healthy=4, desired=3, expected=4, minAvailable=3)
    return [_nodes(), replica_set("web", "a1", "a1", "a1", "b1", grace=10), guard]


def _in_order() -> Objects:
    guard = budget("db", "db", healthy=3, desired=2, expected=3, minAvailable=2)
    return [_nodes(), stateful_set("db", "a1", "a1", "b1"), guard]


def _within(objects: Objects, seconds: float, *nodes: str) -> DrainPlan:
    return plan(*objects, nodes=nodes or ("a1",), timeout_ns=round(seconds * SECOND_NS))


@pytest.mark.parametrize("make", [_unguarded, _guarded, _in_order])
def test_a_timeout_within_the_range_is_neither_sure_nor_hopeless(
    make: Callable[[], Objects],
) -> None:
    objects = make()
    (wave,) = plan(*objects).waves  # kubectl's own start, before the time limit begins, apart
    assert wave.estimate is not None
    low, high = wave.estimate.low, wave.estimate.high
    for share in (0.0, 0.02, 0.1, 0.3, 0.6, 0.9):
        limit = low + 0.1 + share * (high - low - 0.2)
        found = _within(objects, limit)
        assert found.verdict == "slow", f"--timeout={limit} of {low} to {high}: {found.verdict}"
        assert found.nodes[0].may_fail.startswith("within --timeout=")
        assert found.waves[0].estimate == wave.estimate, "that of a kubectl without --timeout"
    assert not _within(objects, high + 1).nodes[0].may_fail


@pytest.mark.parametrize("make", [_guarded, _in_order])
def test_a_timeout_below_the_range_is_hopeless(make: Callable[[], Objects]) -> None:
    objects = make()
    estimate = plan(*objects).estimate
    assert estimate is not None
    assert _within(objects, max(0.5, estimate.low - 1)).verdict == "never"
