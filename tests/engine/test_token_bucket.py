"""The token bucket in upstream's arithmetic, and when the next token will be there."""

import random

import pytest

from kubectl_nodelife.engine.workqueue import Always, Never, TokenBucket, as_float32
from kubectl_nodelife.kube.times import SECOND_NS


def test_a_rate_goes_through_32_bits() -> None:
    assert as_float32(0.1) == 0.10000000149011612
    assert TokenBucket(0.1, 1).qps == as_float32(0.1)


@pytest.mark.parametrize(
    ("qps", "after_ns"),
    [(0.1, 9_999_999_850), (0.01, 100_000_002_234), (1.0, SECOND_NS), (0.5, 2 * SECOND_NS)],
)
def test_the_next_token_comes_when_its_deficit_is_worth_less_than_1_ns(
    qps: float, after_ns: int
) -> None:
    bucket = TokenBucket(qps, 1)
    assert bucket.try_accept(0)
    assert not bucket.try_accept(after_ns - 2)
    assert bucket.next_accept(0) == pytest.approx(after_ns, abs=1)
    assert bucket.try_accept(after_ns + 1)


def test_it_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(1, 3)
    assert [bucket.try_accept(1000 * SECOND_NS) for _ in range(4)] == [True, True, True, False]


def test_a_refusal_costs_nothing() -> None:
    bucket = TokenBucket(1, 1)
    assert bucket.try_accept(0)
    for tenth in range(1, 10):
        assert not bucket.try_accept(tenth * SECOND_NS // 10)
    assert bucket.try_accept(SECOND_NS)


def test_a_bucket_of_rate_0_gives_its_burst_and_then_nothing() -> None:
    bucket = TokenBucket(0, 1)
    assert bucket.next_accept(7) == 7
    assert bucket.try_accept(7)
    assert not bucket.try_accept(10**18)
    assert bucket.next_accept(10**18) is None


def test_the_other_limiters_report_a_rate_of_1() -> None:
    assert Always().qps == Never().qps == 1.0
    assert (Always().try_accept(0), Always().next_accept(3)) == (True, 3)
    assert (Never().try_accept(0), Never().next_accept(3)) == (False, None)


@pytest.mark.parametrize("seed", range(30))
def test_next_accept_is_the_first_instant_that_accepts(seed: int) -> None:
    chance = random.Random(seed)
    bucket = TokenBucket(chance.choice([0.01, 0.1, 0.2, 1 / 3, 3, 1e-6]), chance.choice([1, 2]))
    now_ns = 0
    for _ in range(20):
        now_ns += chance.randrange(0, 20 * SECOND_NS)
        at_ns = bucket.next_accept(now_ns)
        assert at_ns is not None
        if at_ns > now_ns:
            assert not bucket.try_accept(now_ns)
            assert not bucket.try_accept(at_ns - 1)
            now_ns = at_ns
        assert bucket.try_accept(now_ns)


def test_a_rate_next_to_nothing_still_has_an_answer() -> None:
    bucket = TokenBucket(1e-30, 1)
    assert bucket.try_accept(0)
    at_ns = bucket.next_accept(1)
    assert at_ns is not None
    assert at_ns > 10**38
